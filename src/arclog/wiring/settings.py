"""Where settings come from: defaults, then `arclog.toml`, then the environment, then what the caller says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arclog.model.errors import SettingsError
from arclog.model.settings import TABLE, Settings

FILE = "arclog.toml"
#: Variables with our prefix that are no settings.
_OTHER_VARIABLES = frozenset({"ARCLOG_DEBUG", "ARCLOG_TOKEN"})


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
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SettingsError(f"{path}: {problem}") from None
    return dict(_flattened(tree))


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    by_variable = {row.variable: row.name for row in TABLE}
    found = {}
    for variable, raw in environment.items():
        # Empty is as good as unset, as it is to most programs; a home in '' would be the working directory itself.
        if not variable.startswith("ARCLOG_") or variable in _OTHER_VARIABLES or not raw:
            continue
        if variable not in by_variable:
            raise SettingsError(f"the environment has {variable}, but there is no such setting (see docs/settings.md)")
        found[by_variable[variable]] = raw
    return found


def _flattened(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
