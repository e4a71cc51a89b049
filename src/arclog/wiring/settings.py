"""Loads settings: defaults, then `arclog.toml`, then the environment, then the caller's values.

`ARCLOG_STORE_URL_FILE=/run/secrets/store_url` sets `ARCLOG_STORE_URL` to the content of that file. Containers and
services get secrets in this way, since an environment is easier to read than a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arclog.model.config.settings import TABLE, Settings
from arclog.model.errors import SettingsError

FILE = "arclog.toml"
#: Variables with the prefix that are not settings.
_OTHER_VARIABLES = frozenset(
    {
        "ARCLOG_DEBUG",
        "ARCLOG_TOKEN",
        # Variables in the environment of tasks, since a task may call arclog.
        *(f"ARCLOG_{name}" for name in ("EXECUTION_ID", "STEP", "TASK", "ATTEMPT", "KEY", "SCRATCH")),
    }
)
#: Set in the environment of tasks.
_TASK = "ARCLOG_EXECUTION_ID"
_IN_A_FILE = "_FILE"
#: Longer than any setting.
_MOST_BYTES = 64 * 1024


def load_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """All settings; an unknown name anywhere is an error."""
    values: dict[str, Any] = {}
    path = Path(FILE)
    if path.is_file():
        values.update(_from_file(path))
    values.update(_from_environment(os.environ))
    values.update(overrides or {})
    return Settings(values)


def _from_file(path: Path) -> dict[str, Any]:
    import tomllib  # only when there is a file

    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except PermissionError as problem:
        if os.environ.get(_TASK):
            return {}  # hidden from tasks
        raise SettingsError(f"{path}: {problem}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SettingsError(f"{path}: {problem}") from None
    return dict(_flattened(tree))


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    by_variable = {row.variable: row.name for row in TABLE}
    values = {}
    for variable, raw in environment.items():
        # An empty variable counts as unset, as in most programs; a home of '' would be the working directory.
        if not variable.startswith("ARCLOG_") or variable in _OTHER_VARIABLES or not raw:
            continue
        setting = variable.removesuffix(_IN_A_FILE)
        if variable not in by_variable and variable != setting and setting in by_variable:
            if environment.get(setting):
                raise SettingsError(f"the environment has both {setting} and {variable}; one of them is a mistake")
            values[by_variable[setting]] = _content(variable, Path(raw))
            continue
        if variable not in by_variable:
            raise SettingsError(f"{variable} in the environment is not a setting (see docs/settings.md)")
        values[by_variable[variable]] = raw
    return values


def _content(variable: str, path: Path) -> str:
    """The content of a setting's file without the line end. It may be a secret, so no message repeats it."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as problem:
        raise SettingsError(f"{variable}: {path} cannot be read: {problem.strerror}") from None
    try:
        text = raw.decode().strip()
    except UnicodeDecodeError:
        raise SettingsError(f"{variable}: {path} is not UTF-8 text") from None
    if len(raw) > _MOST_BYTES or not text:
        raise SettingsError(f"{variable}: {path} {'is too large for a setting' if text else 'is empty'}")
    return text


def _flattened(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
