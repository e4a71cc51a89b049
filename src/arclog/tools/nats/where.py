"""Where a task's server is and who to be there: the task's `servers` and what its `auth` gives.

Law: an address that came out of a credential is never shown, whole or in part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from arclog.ports.secrets import Credential
from arclog.tools.nats.config import NatsConfig
from arclog.tools.nats.failure import Failure, refused
from arclog.tools.nats.payload import check_subject

_PORT = 4222
_SCHEMES = ("nats", "tls")
_JWT = re.compile(r"-----BEGIN NATS USER JWT-----\s*(\S+)\s*-+END NATS USER JWT-+")
_SEED = re.compile(r"-----BEGIN USER NKEY SEED-----\s*(\S+)\s*-+END USER NKEY SEED-+")
_IS_SEED = re.compile(r"SU[A-Z2-7]{56}")
#: what a login needs → the names that it may have in a credential
_NAMES = {
    "servers": ("servers", "server", "url"),
    "creds": ("creds", "credentials"),
    "jwt": ("jwt",),
    "seed": ("seed", "nkey", "nkey_seed"),
    "user": ("username", "user"),
    "password": ("password", "pass"),
    "token": ("token", "access_token"),
}


class Server(Struct, frozen=True):
    host: str
    port: int
    #: as errors show it
    shown: str
    #: nothing may be said before the connection is encrypted
    encrypted: bool


class Login(Struct, frozen=True):
    """Who to be; all empty: nobody."""

    jwt: str = ""
    seed: str = ""
    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return "Login(…)"


class Target(Struct, frozen=True):
    """What a connection is kept by: tasks with the same target share one."""

    servers: tuple[Server, ...]
    login: Login
    inbox_prefix: str
    #: executions of different scopes never share a connection
    scope: str


def target_of(config: NatsConfig, auth: Credential | None, scope: str) -> Target:
    given = {} if auth is None else _given(auth)
    login = _login(given, auth)
    written = config.servers if isinstance(config.servers, list) else config.servers.split(",")
    servers = [_server(text.strip(), text.strip())[0] for text in written if text.strip()]
    if auth is not None and given.get("servers"):
        shown = f"the server of auth {auth.name!r}"
        found = [_server(text.strip(), shown, secret=True) for text in given["servers"].split(",")]
        servers = servers or [server for server, _ in found]
        if login == Login():
            login = next((other for _, other in found if other != Login()), login)
    elif auth is not None and login == Login():
        raise refused(
            f"auth {auth.name!r} ({auth.kind}) gives no login: it has to give creds (the text of a .creds file), seed "
            "(an NKEY), jwt + seed, username + password, token, or a server's url"
        )
    if not servers:
        raise refused(
            "a nats task needs to know its server: give `servers: nats://host:4222`, or an `auth` that has `servers`"
        )
    prefix = check_subject(config.inbox_prefix, "inbox_prefix") if config.inbox_prefix else ""
    return Target(tuple(servers), login, prefix, scope)


def _given(auth: Credential) -> dict[str, str]:
    """The credential's fields by our names."""
    fields: Mapping[str, Any] = auth.fields
    value = fields.get("value")
    if isinstance(value, str) and auth.kind not in ("bearer", "oauth2"):
        try:
            parsed = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            parsed = None
        fields = parsed if isinstance(parsed, dict) else _of_text(value)
    found: dict[str, str] = {}
    for ours, names in _NAMES.items():
        for name in names:
            text = fields.get(name)
            if isinstance(text, list):
                text = ",".join(map(str, text))
            if isinstance(text, str) and text:
                found.setdefault(ours, text)
    return found


def _of_text(value: str) -> dict[str, str]:
    """What a secret that is one text must be."""
    text = value.strip()
    if _JWT.search(text):
        return {"creds": text}
    if _IS_SEED.fullmatch(text):
        return {"seed": text}
    if text.startswith(tuple(f"{scheme}://" for scheme in _SCHEMES)):
        return {"servers": text}
    return {"token": text}


def _login(given: Mapping[str, str], auth: Credential | None) -> Login:
    if "creds" in given:
        jwt, seed = _JWT.search(given["creds"]), _SEED.search(given["creds"])
        if jwt is None or seed is None:
            name = "" if auth is None else auth.name
            raise refused(f"auth {name!r}: is no .creds file: it has to hold a NATS USER JWT and a USER NKEY SEED")
        return Login(jwt=jwt[1], seed=seed[1])
    if "seed" in given:
        return Login(jwt=given.get("jwt", ""), seed=given["seed"].strip(), token=given.get("token", ""))
    if "user" in given and "password" in given:
        return Login(user=given["user"], password=given["password"])
    return Login(token=given.get("token", ""))


def _server(text: str, shown: str, *, secret: bool = False) -> tuple[Server, Login]:
    wrong: Failure = refused(
        f"{shown if secret else 'servers'}: is not an address of a server; write nats://host:4222 or tls://host:4222"
    )
    try:
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in _SCHEMES or not host or parts.path.strip("/") or parts.query or parts.fragment:
        raise wrong
    login = Login()
    if parts.username is not None or "@" in parts.netloc:
        if not secret:
            raise refused("servers: an address must not contain credentials; use `auth`")
        name = unquote(parts.username or "")
        login = Login(token=name) if parts.password is None else Login(user=name, password=unquote(parts.password))
    return Server(host, port or _PORT, shown, parts.scheme == "tls"), login
