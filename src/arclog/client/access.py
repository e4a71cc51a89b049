"""Keys, the audit and credentials at a server: `ports.storage.access` and `ports.secrets` over HTTP."""

from __future__ import annotations

import builtins
from typing import TypeVar
from urllib.parse import quote

import msgspec

from arclog.client.connection import Connection
from arclog.model.errors import RequestRejected, ServerUnavailable
from arclog.ports.secrets import SecretInfo, checked_secret
from arclog.ports.storage.access import Audited, KeyMade, KeyShown, NewKey

T = TypeVar("T")

_KEYS = "/api/keys"
_AUDIT = "/api/audit"
_CREDENTIALS = "/api/credentials"
#: Most entries that a server gives at a time.
_PAGE = 1000


class _Keys(msgspec.Struct, frozen=True):
    keys: builtins.list[KeyShown]


class _Entries(msgspec.Struct, frozen=True):
    entries: builtins.list[Audited]


class _Credentials(msgspec.Struct, frozen=True):
    credentials: builtins.list[SecretInfo]


class _Forgotten(msgspec.Struct, frozen=True):
    scope: str


class RemoteKeys:
    """Implements `ports.access.KeyApi`: the keys of the caller's tenant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def create(self, new: NewKey) -> KeyMade:
        # Not to be sent twice: each time would make another key, and the first would be known to nobody.
        return _decoded(await self._connection.ask("POST", _KEYS, body=msgspec.json.encode(new)), KeyMade)

    async def list(self) -> builtins.list[KeyShown]:
        return _decoded(await self._connection.ask("GET", _KEYS), _Keys).keys

    async def revoke(self, key_id: str) -> KeyShown:
        return _decoded(await self._connection.ask("DELETE", _of(_KEYS, key_id), safe=True), KeyShown)


class RemoteAudit:
    """Implements `ports.access.AuditApi`: what callers of the caller's tenant were granted and denied."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> builtins.list[Audited]:
        found: builtins.list[Audited] = []
        while len(found) < limit:
            most = min(limit - len(found), _PAGE)
            params = {"decision": decision, "before": before, "limit": most}
            entries = _decoded(await self._connection.ask("GET", _AUDIT, params=params), _Entries).entries
            found += entries
            if len(entries) < most:
                break
            before = entries[-1].position
        return found


class RemoteCredentials:
    """Implements `ports.secrets.CredentialApi`: the secrets of the caller's tenant. A scope of '' is the whole tenant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        body = msgspec.json.encode({"value": value, **_parts(scope)})
        # The same secret put twice is there once.
        answer = await self._connection.ask("PUT", _of(_CREDENTIALS, checked_secret(name)), body=body, safe=True)
        return _decoded(answer, SecretInfo)

    async def list(self) -> builtins.list[SecretInfo]:
        return _decoded(await self._connection.ask("GET", _CREDENTIALS), _Credentials).credentials

    async def remove(self, name: str, scope: str = "") -> str:
        answer = await self._connection.ask("DELETE", _of(_CREDENTIALS, checked_secret(name)), params=_parts(scope))
        return _decoded(answer, _Forgotten).scope


def _parts(scope: str) -> dict[str, str]:
    parts = scope.split("/") if scope else []
    if len(parts) > 3 or not all(parts):
        raise RequestRejected(f"{scope[:400]!r} is not a scope: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT")
    return dict(zip(("tenant", "project", "environment"), parts, strict=False))


def _of(where: str, name: str) -> str:
    """The path of one; whatever a name may hold, it stays one part of it."""
    return f"{where}/{quote(name, safe='')}"


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ServerUnavailable(
            f"the server's answer cannot be understood ({problem}); is it an arclog server of this version?"
        ) from None
