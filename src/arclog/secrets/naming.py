"""Names and scopes of secrets, and the public description of a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound, RequestRejected, SecretUnavailable, SettingsError
from arclog.ports.secrets import SecretInfo, checked_secret

_SCOPE = re.compile(r"[^/\s\x00-\x1f]{1,128}(/[^/\s\x00-\x1f]{1,128}){0,2}\Z")


def described(name: str, scope: str, value: str, at: str, most: int) -> SecretInfo:
    """Check a secret that is to be stored and return its public description. Raises RequestRejected."""
    checked_secret(name)
    if not _SCOPE.match(scope):
        raise RequestRejected(f"{scope[:400]!r} is not a scope: TENANT, TENANT/PROJECT or TENANT/PROJECT/ENVIRONMENT")
    if not value:
        raise RequestRejected(f"the secret {name} is empty")
    if len(value.encode()) > most:
        raise RequestRejected(f"the secret {name} is larger than {most} bytes (secrets.max_bytes)")
    return SecretInfo(name, scope, tuple(json_fields(value) or ()), at)


def widening(scope: str) -> Iterator[str]:
    """Iterate over a scope and the scopes that contain it, narrowest first."""
    while scope:
        yield scope
        scope = scope.rpartition("/")[0]


def json_fields(text: str) -> dict[str, object] | None:
    """Return the fields of a secret that is a JSON object; None for any other text."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return None
    return value if isinstance(value, dict) else None


def not_kept(name: str, scope: str) -> NotFound:
    """Return the error for a secret that does not exist."""
    return NotFound(f"there is no secret {name} in scope {scope}; `arclog secret list` shows all secrets")


# The name of a keychain entry's secret in a manager: by scope, so that no tenant reads the secrets of another.
#
# Invariant: different scopes and names never have the same path. Parts therefore contain no separator, and neither does
# a name that follows a scope.


_SCOPE_FIELD, _NAME_FIELD = "{scope}", "{name}"
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@+=-]{0,126}[A-Za-z0-9_])?")


class Paths:
    """Names in a manager that separates the parts of a path by `separator` and accepts names that match `allowed`."""

    def __init__(self, settings: Settings, separator: str = "/", allowed: str = r"[A-Za-z0-9/_+=.@-]{1,512}") -> None:
        self._form = settings.text("secrets.manager_path")
        self._separator = separator
        self._allowed = re.compile(allowed)
        if self._form.count(_NAME_FIELD) != 1 or self._form.count(_SCOPE_FIELD) > 1:
            raise SettingsError(
                f"ARCLOG_SECRETS_MANAGER_PATH needs {_NAME_FIELD} once, and {_SCOPE_FIELD} at most once: {_SCOPE_FIELD}/{_NAME_FIELD}"
            )

    def of(self, name: str, scope: str) -> Iterator[str]:
        """Iterate over the possible paths of a secret, narrowest scope first.

        Raises SecretUnavailable for an invalid name.
        """
        scoped = _SCOPE_FIELD in self._form
        parts = [name] if scoped else name.split("/")
        if not all(map(self._is_plain, parts)):
            hint = "letters, digits, _ . - (at most 128)" if scoped else "parts of letters, digits, _ . - joined by /"
            raise SecretUnavailable(f"{name[:140]!r} cannot be the name of a secret here: {hint}", kind="config")
        if not all(map(self._is_plain, scope.split("/"))):
            raise SecretUnavailable(f"the scope {scope} cannot be used in a name of the secret manager", kind="config")
        for prefix in widening(scope) if scoped else [""]:
            path = self._form.replace(_SCOPE_FIELD, prefix).replace(_NAME_FIELD, name).replace("/", self._separator)
            if not self._allowed.fullmatch(path):
                message = f"{path!r} is not a valid name for the secret manager"
                raise SecretUnavailable(f"{message}; see secrets.manager_path", kind="config")
            yield path

    def _is_plain(self, part: str) -> bool:
        return _PART.fullmatch(part) is not None and (self._separator == "/" or self._separator not in part)
