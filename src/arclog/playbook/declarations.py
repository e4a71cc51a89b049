"""The declarations of a playbook besides its steps: keychain entries, typed inputs, schedules and webhooks."""

from __future__ import annotations

import re
from typing import Any

from arclog.model.data.shapes import Field
from arclog.model.inputs import LONGEST_SECRET, misfit_of, pattern_fault
from arclog.playbook.canon import Playbook, Webhook
from arclog.playbook.document import Path, as_list, as_map, as_text
from arclog.playbook.schema import INPUT, NAME, has_template
from arclog.playbook.walk import Findings, Walker, suggested_name

# Keychain entries as data: their kinds, and the fields of each.
#
# Invariant: an entry names the source of a secret, never its value. An entry with a value is an error, and no message
# repeats it.


#: The source of a secret text: one of env, file and secret.
SOURCE = (
    Field("env", "string", "Name of an environment variable of the worker."),
    Field("file", "string", "Path of a file on the worker."),
    Field("secret", "string", "Name in the local store (`arclog secret set`)."),
    Field("key", "string", "Field of the secret, if it is a JSON object."),
)
_PLACES = ("env", "file", "secret")


def _source(name: str, doc: str, *, or_text: bool = False) -> Field:
    return Field(name, "string|object" if or_text else "object", doc, fields=SOURCE)


#: The fields of an entry by its kind, besides `name` and `kind`.
KINDS: dict[str, tuple[Field, ...]] = {
    "env": (Field("var", "string", "Name of the variable. Default: the entry's name."),),
    "file": (
        Field("path", "string", "Path of the file, relative to the worker's working directory.", required=True),
        Field("format", "string", "Format of the file.", default="text", choices=("text", "json")),
    ),
    "secret": (Field("secret", "string", "Name in the local store. Default: the entry's name."),),
    "secret_manager": (Field("secret", "string", "Name in the secret manager. Default: the entry's name."),),
    "bearer": (_source("token", "Source of the token. Default: the local store, under the entry's name."),),
    "basic": (
        _source("username", "User name, or its source.", or_text=True),
        _source("password", "Source of the password."),
    ),
    "postgres_credential": (
        _source(
            "source",
            "Source of the credential: a JSON object or a connection string. Default: the local store, under the entry's name.",
        ),
        Field("host", "string", "Host of the server."),
        Field("port", "integer", "Port of the server.", minimum=1, maximum=65_535),
        Field("user", "string", "User name (PostgreSQL role)."),
        Field("dbname", "string", "Name of the database."),
        Field("sslmode", "string", "TLS mode of libpq, such as `verify-full`."),
        _source("password", "Source of the password."),
    ),
    "oauth2": (
        Field("token_url", "string", "Address of the token endpoint: https, or http on this machine."),
        _source("client_id", "Client id, or its source.", or_text=True),
        _source("client_secret", "Source of the client secret."),
        Field("scope", "string", "Scopes to request, separated by spaces."),
        Field("audience", "string", "Audience of the token."),
        Field(
            "client_auth",
            "string",
            "How the client authenticates: with HTTP basic authentication, or in the form.",
            default="basic",
            choices=("basic", "post"),
        ),
    ),
}

_OWN = (
    Field("name", "name", "Name of the entry in templates and in `auth`.", required=True),
    Field("kind", "string", "Where the secret is stored and what it is used for.", required=True, choices=tuple(KINDS)),
)
#: All keys of an entry by its kind.
TABLES = {kind: (*_OWN, *fields) for kind, fields in KINDS.items()}

#: Keys whose text would be a secret.
_SECRET_KEYS = frozenset(
    {"value", "token", "password", "passphrase", "client_secret", "api_key", "access_key", "secret_key"}
    | {"private_key", "dsn", "url"}
)


def read_entry(walker: Walker, entry: dict[str, Any], path: Path) -> None:
    """Check one entry and add its findings."""
    findings = walker.findings
    spoken = {key: value for key, value in entry.items() if key in _SECRET_KEYS and not isinstance(value, dict)}
    for key, value in spoken.items():
        if value is None:
            continue
        hint = f"refer to it: {key}: {{env: VARIABLE}}, {{file: PATH}} or {{secret: NAME}} (`arclog secret set NAME`)"
        message = f"keychain entry.{key}: a playbook must not contain a secret"
        findings.key("literal-secret", message, (*path, key), hint)
    others = {key: value for key, value in entry.items() if key not in spoken or value is None}
    kind = entry.get("kind")
    table = TABLES.get(kind) if isinstance(kind, str) else None
    if table is None:
        walker.keys({key: others[key] for key in ("name", "kind") if key in others}, _OWN, path, "keychain entry")
        return
    if not walker.keys(others, table, path, "keychain entry"):
        return
    for key, value in others.items():
        if isinstance(value, dict) and not key.startswith("x-"):
            _check_places(walker, value, (*path, key), key)
    if kind == "postgres_credential" and "source" in others and len(others) > 3:
        message = "keychain entry.source is the whole credential and cannot be combined with other keys"
        findings.key("conflict", message, (*path, "source"), "give source, or host, user, password …")


def _check_places(walker: Walker, source: dict[str, Any], path: Path, key: str) -> None:
    """Check that a secret names exactly one place to read it from."""
    places = [place for place in _PLACES if place in source]
    if len(places) != 1:
        present = "none" if not places else " and ".join(places)
        message = f"keychain entry.{key} needs exactly one of {', '.join(_PLACES)}; found {present}"
        walker.findings.value("one-of", message, path, f"for example {key}: {{env: VARIABLE}}")


# Declarations of typed inputs: `executor.spec.inputs`, checked against themselves and against the workload.


_MAX_DEPTH = 20
#: Types for which each key of a declaration is allowed.
KEYS = {
    "pattern": ("string", "secret", "any"),
    "default": ("string", "integer", "number", "boolean", "date", "datetime", "list", "object", "any"),
    "enum": ("string", "integer", "number", "boolean", "date", "datetime", "list", "object", "any"),
    "items": ("list", "any"),
    "properties": ("object", "any"),
    "min": ("string", "secret", "integer", "number", "list", "object", "any"),
    "max": ("string", "secret", "integer", "number", "list", "object", "any"),
}


def read_inputs(walker: Walker, inputs: dict[str, Any], workload: dict[str, Any]) -> dict[str, Any]:
    """Return the declarations by name, without `x-` keys. Invalid parts become findings."""
    path: Path = ("executor", "spec", "inputs")
    made: dict[str, Any] = {}
    for name, raw in inputs.items():
        own_path = (*path, name)
        if not NAME.match(name):
            message = f"inputs: {name[:60]!r} is not a name (letters, digits and _, not starting with a digit)"
            walker.findings.key("bad-name", message, own_path, f"for example {suggested_name(name)}")
            continue
        if as_map(raw).get("type") == "secret" and len(name) > LONGEST_SECRET:
            message = f"inputs: the name of a secret has at most {LONGEST_SECRET} characters, not {len(name)}"
            walker.findings.key("bad-name", message, own_path)
        made[name] = _declaration(walker, as_map(raw), own_path, f"inputs.{name}", 0)
        if name not in workload:
            continue
        if made[name].get("type") == "secret":
            hint = "remove it: it is provided when a run is started"
            message = f"inputs.{name} is a secret, and workload.{name} has a value"
            walker.findings.key("literal-secret", message, ("workload", name), hint)
            continue
        if "default" in made[name]:
            hint = "keep the default of the input"
            message = f"inputs.{name} has a default, and workload.{name} is another"
            walker.findings.key("conflict", message, ("workload", name), hint)
        elif wrong := misfit_of(workload[name], made[name]):
            walker.findings.value("bad-value", f"workload.{name}: {wrong}", ("workload", name))
    return made


def _declaration(walker: Walker, raw: dict[str, Any], path: Path, label: str, depth: int) -> dict[str, Any]:
    made = {key: value for key, value in raw.items() if not key.startswith("x-")}
    kind = made.get("type", "any")
    if kind == "secret" and depth:
        hint = "declare it as a separate input"
        walker.findings.key("bad-value", f"{label}: a secret cannot be a part of another input", (*path, "type"), hint)
    for key, kinds in KEYS.items():
        if key in made and kind not in kinds:
            message = f"{label}: {key} has no meaning for type {kind}"
            hint = f"it belongs to type {', '.join(kinds[:-1])}"
            if kind == "secret" and key == "default":
                hint = "remove it: the secret is given when a run is started"
            walker.findings.key("bad-value", message, (*path, key), hint)
    if made.get("required") is True and "default" in made:
        hint = "remove one: an input with a default is never missing"
        walker.findings.key("conflict", f"{label} is required and has a default", (*path, "default"), hint)
    if isinstance(made.get("pattern"), str) and (wrong := pattern_fault(made["pattern"])):
        hint = r"escape special characters with a backslash: \[ \( \."
        walker.findings.value("bad-value", f"{label}.pattern: {wrong}", (*path, "pattern"), hint)
        del made["pattern"]
    least, most = made.get("min"), made.get("max")
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        message = f"{label}: min {least} is above max {most}: nothing fits"
        walker.findings.key("conflict", message, (*path, "min"), "swap them, or remove one")
    if made.get("enum") == []:
        message = f"{label}.enum is empty: nothing fits"
        walker.findings.value("bad-value", message, (*path, "enum"), "list the values, or remove it")
    if depth >= _MAX_DEPTH:
        walker.findings.value("limit-exceeded", f"{label}: declarations nest deeper than {_MAX_DEPTH} levels", path)
        return made
    if isinstance(made.get("items"), dict):
        part_path = (*path, "items")
        walker.walk(made["items"], INPUT, part_path, "input")
        made["items"] = _declaration(walker, made["items"], part_path, f"{label}.items", depth + 1)
    for key, part in as_map(made.get("properties")).items():
        part_path = (*path, "properties", key)
        walker.walk(part, INPUT, part_path, "input")
        made["properties"] = {
            **made["properties"],
            key: _declaration(walker, as_map(part), part_path, f"{label}.{key}", depth + 1),
        }
    if made.get("default") is not None and (wrong := misfit_of(made["default"], made)):
        hint = "give it a default that it allows, or none"
        walker.findings.value("bad-value", f"{label}.default: {wrong}", (*path, "default"), hint)
    return made


# Schedules, and the webhooks that are called at the end of a run.


#: key of executor.spec → the end of the run that it handles
NOTIFICATIONS = {"on_failure": "failed", "on_success": "completed"}
SCHEDULE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
ADDRESS = r"^[^@\s,;<>\"?&]+@[^@\s,;<>\"?&]+$"


def read_notifications(findings: Findings, spec: dict[str, Any], path: Path) -> list[Webhook]:
    """Return the webhooks of `on_failure` and `on_success`. An e-mail is a webhook with a mailto: address."""
    webhooks: list[Webhook] = []
    for key, end in NOTIFICATIONS.items():
        for index, raw in enumerate(as_list(spec.get(key))):
            entry, own_path = as_map(raw), (*path, key, index)
            if not isinstance(raw, dict):
                continue
            if ("webhook" in entry) == ("email" in entry):
                message = f"{key}: an entry has either webhook or email"
                findings.value("one-of", message, own_path, "{webhook: https://…} or {email: name@example.org}")
            elif "webhook" in entry:
                url = as_text(entry["webhook"])
                if has_template(url) or not url.startswith(("http://", "https://")):
                    message = f"{key}: webhook is not an http:// or https:// address"
                    hint = "write the address itself; it cannot depend on the run"
                    findings.value("bad-value", message, (*own_path, "webhook"), hint)
                webhooks.append(Webhook(url, as_text(entry.get("secret")), (end,), own_path))
            else:
                webhooks.append(
                    Webhook(f"mailto:{','.join(_addresses(findings, key, entry, own_path))}", "", (end,), own_path)
                )
    return webhooks


def _addresses(findings: Findings, key: str, entry: dict[str, Any], path: Path) -> list[str]:
    addresses = entry["email"] if isinstance(entry["email"], list) else [entry["email"]]
    if "secret" in entry:
        findings.key("unknown-key", f"{key}: secret signs a webhook; an e-mail has none", (*path, "secret"))
    if not addresses:
        findings.value("bad-value", f"{key}: email has no address", (*path, "email"), "email: name@example.org")
    for address in addresses:
        if isinstance(address, str) and not re.fullmatch(ADDRESS, address):
            message = f"{key}: {address[:80]!r} is not an e-mail address"
            findings.value("bad-value", message, (*path, "email"), "email: name@example.org")
    return [address for address in addresses if isinstance(address, str)]


def read_schedules(findings: Findings, schedules: list[Any], path: Path, playbook: Playbook) -> list[dict[str, Any]]:
    """Return the schedules with their names. A schedule that can never fire is a finding."""
    made: list[dict[str, Any]] = []
    names: dict[str, Path] = {}
    for index, raw in enumerate(schedules):
        if not isinstance(raw, dict):
            continue
        own_path = (*path, index)
        own = {key: value for key, value in raw.items() if not key.startswith("x-")}
        name = as_text(own.get("name")) or (playbook.path or playbook.name).strip("/").replace("/", ".")
        if not re.fullmatch(SCHEDULE_NAME, name):
            message = f"schedules: {name[:80]!r} is not a valid name of a schedule"
            hint = "letters, digits, '.', '_' and '-', at most 128: name: nightly"
            findings.value("bad-name", message, (*own_path, "name") if "name" in own else own_path, hint)
        findings.unique(name, (*own_path, "name") if "name" in own else own_path, names, "schedule")
        if wrong := cron_fault(as_text(own.get("cron"))):
            findings.value("bad-value", f"schedules: cron: {wrong}", (*own_path, "cron"), "for example '0 6 * * 1-5'")
        if wrong := zone_fault(as_text(own.get("tz"), "UTC")):
            findings.value("bad-value", f"schedules: tz: {wrong}", (*own_path, "tz"), "as in Europe/Berlin")
        made.append({**own, "name": name})
    return made


def cron_fault(cron: str) -> str:
    """Return the problem of a cron expression; '' if it is valid or cannot be checked here."""
    if not cron:
        return ""  # reported elsewhere
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:  # processes that fire schedules have it
        return ""
    from datetime import UTC, datetime

    try:
        next(CronSim(cron, datetime(2024, 1, 1, tzinfo=UTC)))
    except StopIteration:
        return f"{cron[:80]!r} never matches any date"
    except (CronSimError, ValueError, AssertionError) as problem:
        return f"{cron[:80]!r}: {problem}; five fields are needed (minute hour day month weekday)"
    return ""


def zone_fault(name: str) -> str:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"there is no time zone {name[:80]!r}"
    return ""
