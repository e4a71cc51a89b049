"""What a secret may be called, where it is valid and what may be told of it, wherever it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from arclog.model.errors import NotFound, RequestRejected
from arclog.ports.secrets import SecretInfo, checked_secret

_SCOPE = re.compile(r"[^/\s\x00-\x1f]{1,128}(/[^/\s\x00-\x1f]{1,128}){0,2}\Z")


def described(name: str, scope: str, value: str, at: str, most: int) -> SecretInfo:
    """What may be told of a secret that is to be kept. Raises RequestRejected."""
    checked_secret(name)
    if not _SCOPE.match(scope):
        raise RequestRejected(f"{scope[:400]!r} is not a scope: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT")
    if not value:
        raise RequestRejected(f"the secret {name} is empty")
    if len(value.encode()) > most:
        raise RequestRejected(f"the secret {name} is larger than {most} bytes (secrets.max_bytes)")
    return SecretInfo(name, scope, tuple(json_fields(value) or ()), at)


def widening(scope: str) -> Iterator[str]:
    """A scope and those around it, the narrowest first."""
    while scope:
        yield scope
        scope = scope.rpartition("/")[0]


def json_fields(text: str) -> dict[str, object] | None:
    """The fields of a secret that is a JSON object; None of any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return value if isinstance(value, dict) else None


def not_kept(name: str, scope: str) -> NotFound:
    """There is none to be removed."""
    return NotFound(f"there is no secret {name} in scope {scope}; `arclog secret list` shows all secrets")
