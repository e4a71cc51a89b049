"""What a keychain entry's secret is called in a manager: by scope, so that nobody reads another's.

Law: different scopes and names never come to the same path. Parts are therefore plain, and a name has no separator in it
where scopes stand before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from arclog.model.config.settings import Settings
from arclog.model.errors import SecretUnavailable, SettingsError
from arclog.secrets.naming import widening

_SCOPE, _NAME = "{scope}", "{name}"
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@+=-]{0,126}[A-Za-z0-9_])?")


class Paths:
    """Names in a manager that parts a path by `separator` and takes names that match `allowed`."""

    def __init__(self, settings: Settings, separator: str = "/", allowed: str = r"[A-Za-z0-9/_+=.@-]{1,512}") -> None:
        self._form = settings.text("secrets.manager_path")
        self._separator = separator
        self._allowed = re.compile(allowed)
        if self._form.count(_NAME) != 1 or self._form.count(_SCOPE) > 1:
            raise SettingsError(
                f"ARCLOG_SECRETS_MANAGER_PATH needs {_NAME} once, and {_SCOPE} at most once: {_SCOPE}/{_NAME}"
            )

    def of(self, name: str, scope: str) -> Iterator[str]:
        """Where a secret may be, the narrowest scope first. Raises SecretUnavailable for a name that cannot be."""
        scoped = _SCOPE in self._form
        parts = [name] if scoped else name.split("/")
        if not all(map(self._is_plain, parts)):
            hint = "letters, digits, _ . - (at most 128)" if scoped else "parts of letters, digits, _ . - joined by /"
            raise SecretUnavailable(f"{name[:140]!r} cannot be the name of a secret here: {hint}", kind="config")
        if not all(map(self._is_plain, scope.split("/"))):
            raise SecretUnavailable(f"the scope {scope} cannot be used in a name of the secret manager", kind="config")
        for prefix in widening(scope) if scoped else [""]:
            path = self._form.replace(_SCOPE, prefix).replace(_NAME, name).replace("/", self._separator)
            if not self._allowed.fullmatch(path):
                message = f"{path!r} is not a valid name for the secret manager"
                raise SecretUnavailable(f"{message}; see secrets.manager_path", kind="config")
            yield path

    def _is_plain(self, part: str) -> bool:
        return _PART.fullmatch(part) is not None and (self._separator == "/" or self._separator not in part)
