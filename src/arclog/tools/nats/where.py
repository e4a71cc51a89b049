"""Where a task's server is and who to be there: the task's `servers` and what its `auth` gives.

Law: an address that came out of a credential is never shown, whole or in part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from arclog.drivers.nats.address import SCHEMES, AddressError, Login, Server, creds_login, servers_of
from arclog.ports.secrets import Credential
from arclog.tools.nats.config import NatsConfig
from arclog.tools.nats.failure import refused
from arclog.tools.nats.payload import check_subject

_IS_CREDS = "-----BEGIN NATS USER JWT-----"
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


class Target(Struct, frozen=True):
    """What a connection is kept by: tasks with the same target share one."""

    servers: tuple[Server, ...]
    #: what errors say in place of a server that came out of a credential
    hidden: str
    login: Login
    inbox_prefix: str
    #: executions of different scopes never share a connection
    scope: str

    def shown(self, server: Server) -> str:
        """A server, as errors show it."""
        return self.hidden or str(server)


def target_of(config: NatsConfig, auth: Credential | None, scope: str) -> Target:
    given = {} if auth is None else _given(auth)
    login = _login(given, auth)
    written = config.servers if isinstance(config.servers, list) else config.servers.split(",")
    servers = [server for text in written if text.strip() for server in _named(text.strip())]
    hidden = ""
    if auth is not None and given.get("servers"):
        place = f"the server of auth {auth.name!r}"
        try:
            others, other_login = servers_of(given["servers"])
        except AddressError as problem:
            raise refused(f"{place}: {problem}") from None
        hidden = "" if servers else place
        servers = servers or list(others)
        login = other_login if login == Login() else login
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
    return Target(tuple(servers), hidden, login, prefix, scope)


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
    if _IS_CREDS in text:
        return {"creds": text}
    if _IS_SEED.fullmatch(text):
        return {"seed": text}
    if text.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        return {"servers": text}
    return {"token": text}


def _login(given: Mapping[str, str], auth: Credential | None) -> Login:
    if "creds" in given:
        try:
            return creds_login(given["creds"])
        except AddressError as problem:
            raise refused(f"auth {'' if auth is None else auth.name!r}: {problem}") from None
    if "seed" in given:
        return Login(jwt=given.get("jwt", ""), seed=given["seed"].strip(), token=given.get("token", ""))
    if "user" in given and "password" in given:
        return Login(user=given["user"], password=given["password"])
    return Login(token=given.get("token", ""))


def _named(text: str) -> tuple[Server, ...]:
    """The servers that a task names."""
    try:
        servers, login = servers_of(text)
    except AddressError as problem:
        raise refused(f"servers: {problem}") from None
    if login != Login() or "@" in text:
        raise refused("servers: an address must not contain credentials; use `auth`")
    return servers
