"""Keychain entries as data: the kinds there are, and what an entry of each may say.

Law: an entry says where a secret is, never what it is. One that does is an error, and no message repeats it.
"""

from __future__ import annotations

from typing import Any

from arclog.model.data.shapes import Field
from arclog.playbook.walk import Walker
from arclog.playbook.yaml.document import Path

#: Where a secret text is: one of env, file and secret.
SOURCE = (
    Field("env", "string", "Name of an environment variable of the worker."),
    Field("file", "string", "Path of a file on the worker."),
    Field("secret", "string", "Name in the local store (`arclog secret set`)."),
    Field("key", "string", "Which field, when the secret is a JSON object."),
)
_PLACES = ("env", "file", "secret")


def _source(name: str, doc: str, *, or_text: bool = False) -> Field:
    return Field(name, "string|object" if or_text else "object", doc, fields=SOURCE)


#: The fields of an entry by its kind, beside `name` and `kind`.
KINDS: dict[str, tuple[Field, ...]] = {
    "env": (Field("var", "string", "The variable. Default: the entry's name."),),
    "file": (
        Field("path", "string", "The file; relative to the worker's working directory.", required=True),
        Field("format", "string", "What is in it.", default="text", choices=("text", "json")),
    ),
    "secret": (Field("secret", "string", "Name in the local store. Default: the entry's name."),),
    "secret_manager": (Field("secret", "string", "Name in the secret manager. Default: the entry's name."),),
    "bearer": (_source("token", "Where the token is. Default: in the local store under the entry's name."),),
    "basic": (
        _source("username", "The user's name, or where it is.", or_text=True),
        _source("password", "Where the password is."),
    ),
    "postgres_credential": (
        _source("source", "Where a JSON object or a connection text is. Default: in the local store."),
        Field("host", "string", "The server."),
        Field("port", "integer", "Its port.", minimum=1, maximum=65_535),
        Field("user", "string", "The role."),
        Field("dbname", "string", "The database."),
        Field("sslmode", "string", "As libpq has it, e.g. verify-full."),
        _source("password", "Where the password is."),
    ),
    "oauth2": (
        Field("token_url", "string", "Where tokens are given out; https, or http on this machine."),
        _source("client_id", "The client's id, or where it is.", or_text=True),
        _source("client_secret", "Where the client's secret is."),
        Field("scope", "string", "Scopes to request, separated by spaces."),
        Field("audience", "string", "Whom the token is for."),
        Field(
            "client_auth",
            "string",
            "How the client authenticates: with basic authentication or in the form.",
            default="basic",
            choices=("basic", "post"),
        ),
    ),
}

_OWN = (
    Field("name", "name", "How templates name it.", required=True),
    Field("kind", "string", "Where the secret is and what it is for.", required=True, choices=tuple(KINDS)),
)
#: All keys of an entry by its kind.
TABLES = {kind: (*_OWN, *fields) for kind, fields in KINDS.items()}

#: Keys whose text would be a secret.
_SECRET_KEYS = frozenset(
    {"value", "token", "password", "passphrase", "client_secret", "api_key", "access_key", "secret_key"}
    | {"private_key", "dsn", "url"}
)


def read_entry(walker: Walker, entry: dict[str, Any], path: Path) -> None:
    """Add what is wrong with one entry."""
    findings = walker.findings
    spoken = {key: value for key, value in entry.items() if key in _SECRET_KEYS and not isinstance(value, dict)}
    for key, value in spoken.items():
        if value is None:
            continue
        hint = f"refer to it: {key}: {{env: VARIABLE}}, {{file: PATH}} or {{secret: NAME}} (`arclog secret set NAME`)"
        message = f"keychain entry.{key}: a playbook must not contain a secret"
        findings.key("literal-secret", message, (*path, key), hint)
    rest = {key: value for key, value in entry.items() if key not in spoken or value is None}
    kind = entry.get("kind")
    table = TABLES.get(kind) if isinstance(kind, str) else None
    if table is None:
        walker.keys({key: rest[key] for key in ("name", "kind") if key in rest}, _OWN, path, "keychain entry")
        return
    if not walker.keys(rest, table, path, "keychain entry"):
        return
    for key, value in rest.items():
        if isinstance(value, dict) and not key.startswith("x-"):
            _one_place(walker, value, (*path, key), key)
    if kind == "postgres_credential" and "source" in rest and len(rest) > 3:
        message = "keychain entry.source is the whole credential and cannot be combined with other keys"
        findings.key("conflict", message, (*path, "source"), "give source, or host, user, password …")


def _one_place(walker: Walker, source: dict[str, Any], path: Path, key: str) -> None:
    named = [place for place in _PLACES if place in source]
    if len(named) != 1:
        found = "none" if not named else " and ".join(named)
        message = f"keychain entry.{key} needs exactly one of {', '.join(_PLACES)}; found {found}"
        walker.findings.value("one-of", message, path, f"for example {key}: {{env: VARIABLE}}")
