"""Typed inputs: the declared workload of a playbook.

`bound` converts the given values and collects all faults. A declaration is a map, as in the playbook: `{type, required,
default, enum, min, max, pattern, description, items, properties}`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from arclog.model.errors import shortened

if TYPE_CHECKING:
    from arclog.model.data.regex import Charge


TYPES = ("string", "integer", "number", "boolean", "date", "datetime", "list", "object", "secret", "any")
#: Maximum number of listed faults of one request; the others are counted.
MAX_FAULTS = 50
#: Maximum length of a text that is matched against a pattern, and maximum number of steps of the match.
_MAX_MATCHED = 10_000
_MAX_STEPS = 50_000
#: Maximum number of steps for all values of one request: pattern matches and `enum` lookups.
_MAX_ALL_STEPS = 500_000

_NAMES = {
    "string": "a text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "date": "a date (2027-01-31)",
    "datetime": "a moment with its offset (2027-01-31T09:00:00Z)",
    "list": "a list",
    "object": "a map",
    "secret": "a text, which is kept out of the log",
}

Declaration = Mapping[str, Any]


class InputFault(Struct, frozen=True):
    """One fault of the given values."""

    #: path of the value: `rows[0].id`
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class _Misfit(Exception):
    """The value does not fit; the message says why."""


class _Faults(list[InputFault]):
    """The faults so far, and the steps spent."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0

    def charge(self, count: int) -> None:
        self._steps += count
        if self._steps > _MAX_ALL_STEPS:
            raise _Misfit("is not checked: matching all values against patterns and `enum` would take too long")

    def near(self, key: str, names: Iterable[str]) -> str:
        """Return a similar known key, for faults that are shown."""
        return _near(key, names) if len(self) < MAX_FAULTS else ""


def bound(
    inputs: Mapping[str, Declaration], workload: Container[str], values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[InputFault]]:
    """Convert the given values to the declared types. Returns them with all faults.

    Keys of the playbook's own `workload` that are not inputs are accepted unchanged.
    """
    faults = _Faults()
    converted: dict[str, Any] = {}
    for key, value in values.items():
        declared = inputs.get(key)
        if declared is not None:
            converted[key] = _checked(value, declared, key, faults)
        elif key in workload:
            converted[key] = value
        else:
            faults.append(InputFault(key, f"there is no such input{faults.near(key, inputs)}"))
    for name, declared in inputs.items():
        if declared.get("required") and name not in values:
            faults.append(InputFault(name, f"is required ({_wanted(declared)})"))
    return converted, faults


def described(faults: list[InputFault]) -> str:
    """Return all faults as one message."""
    shown = "; ".join(map(str, faults[:MAX_FAULTS]))
    more = f"; and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
    return f"the workload does not fit the playbook's inputs: {shown}{more}"


def secret_names(inputs: Mapping[str, Declaration]) -> list[str]:
    """Return the inputs of type secret, whose values are not part of the workload and never enter the log."""
    return [name for name, declared in inputs.items() if declared.get("type") == "secret"]


#: Why a run with secret inputs cannot be run again.
FORGOTTEN_SECRETS = "secret inputs are forgotten when a run ends; start a new run of this playbook with them"
#: Maximum length of the name of a secret input; with the run's id it forms the name of a stored secret.
LONGEST_SECRET = 100


def run_secret(execution_id: int | str, name: str) -> str:
    """Return the name of the stored secret for a run's secret input."""
    return f"run.{execution_id}.{name}"


def misfit_of(value: Any, declared: Declaration) -> str:
    """Return why a value does not fit its declaration, or ''."""
    faults = _Faults()
    _checked(value, declared, "", faults)
    return faults[0].message if faults else ""


def defaults(inputs: Mapping[str, Declaration]) -> dict[str, Any]:
    """Return the workload before any value is given: each optional input with its default, or null."""
    return {
        name: declared.get("default")
        for name, declared in inputs.items()
        if ("default" in declared or not declared.get("required")) and declared.get("type") != "secret"
    }


def _checked(value: Any, declared: Declaration, path: str, faults: _Faults) -> Any:
    if value is None and not declared.get("required"):
        return None
    kind = declared.get("type", "any")
    if kind == "secret":
        if not _is_fit_secret(value, declared, faults.charge):
            faults.append(InputFault(path, "does not fit; it is a secret, so its value is not shown"))
        return value
    try:
        value = _converted(value, kind)
        _within(value, declared, faults.charge)
    except _Misfit as problem:
        note = declared.get("description")
        faults.append(InputFault(path, f"{problem}{f' ({note})' if note else ''}"))
        return value
    if isinstance(value, list) and isinstance(declared.get("items"), dict):
        item = {"required": True, **declared["items"]}
        return [_checked(part, item, f"{path}[{index}]", faults) for index, part in enumerate(value)]
    if isinstance(value, dict) and isinstance(declared.get("properties"), dict):
        return _properties(value, declared["properties"], path, faults)
    return value


def _is_fit_secret(value: Any, declared: Declaration, charge: Charge) -> bool:
    try:
        _within(value, declared, charge)
    except _Misfit:
        return False
    return isinstance(value, str) and bool(value)


def _properties(
    value: dict[str, Any], declarations: Mapping[str, Declaration], path: str, faults: _Faults
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, part in value.items():
        where = f"{path}.{key}" if path else key
        if key in declarations:
            made[key] = _checked(part, declarations[key], where, faults)
        else:
            faults.append(InputFault(where, f"there is no such key{faults.near(key, declarations)}"))
    for key, declared in declarations.items():
        if key not in value:
            if declared.get("required"):
                faults.append(InputFault(f"{path}.{key}" if path else key, f"is required ({_wanted(declared)})"))
            elif "default" in declared:
                made[key] = declared["default"]
    return made


def _converted(value: Any, kind: str) -> Any:
    """Return the value as its type. Text is parsed as a number or boolean if it is exactly one; nothing is rounded."""
    if kind == "any":
        return value
    if isinstance(value, str) and kind in ("integer", "number", "boolean"):
        value = _read(value, kind)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _fits(value, kind):
        raise _Misfit(f"expected {_NAMES[kind]}, found {_brief(value)}")
    if kind == "date":
        return _moment(value, kind, date.fromisoformat)
    if kind == "datetime":
        return _moment(value, kind, _with_offset)
    return value


def _read(text: str, kind: str) -> Any:
    stripped = text.strip()
    if kind == "boolean":
        return {"true": True, "false": False}.get(stripped.lower(), text)
    if len(stripped) > 40 or not stripped.isascii() or "_" in stripped:
        return text
    try:
        return int(stripped)
    except ValueError:
        pass
    try:
        number = float(stripped)
    except ValueError:
        return text
    return number if number - number == 0 else text  # neither an infinity nor NaN


def _fits(value: Any, kind: str) -> bool:
    if kind in ("string", "date", "datetime"):
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "list":
        return isinstance(value, list)
    if kind == "object":
        return isinstance(value, dict)
    return isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)


def _moment(value: str, kind: str, read: Any) -> str:
    try:
        read(value)
    except (ValueError, OverflowError):
        raise _Misfit(f"expected {_NAMES[kind]}, found {_brief(value)}") from None
    return value


def _with_offset(value: str) -> None:
    if datetime.fromisoformat(value).tzinfo is None:
        raise ValueError


def _within(value: Any, declared: Declaration, charge: Charge) -> None:
    enum = declared.get("enum")
    if isinstance(enum, list):
        charge(1 + len(enum) // 16)
    if isinstance(enum, list) and value not in enum:
        raise _Misfit(f"{_brief(value)} is none of {', '.join(_brief(choice) for choice in enum[:12])}")
    least, most = declared.get("min"), declared.get("max")
    if isinstance(value, int | float) and not isinstance(value, bool):
        size, unit = value, ""
    elif isinstance(value, str | list | dict):
        size, unit = len(value), "characters" if isinstance(value, str) else "items"
    else:
        return
    if least is not None and size < least:
        length = f"has {size} {unit}; at least {least} are needed"
        raise _Misfit(length if unit else f"{value} is below the lowest value allowed, {least}")
    if most is not None and size > most:
        length = f"has {size} {unit}; at most {most} are allowed"
        raise _Misfit(length if unit else f"{value} is above the highest value allowed, {most}")
    pattern = declared.get("pattern")
    if isinstance(pattern, str) and isinstance(value, str):
        _match(value, pattern, charge)


def _match(value: str, pattern: str, together: Charge) -> None:
    steps = 0

    def charge(count: int) -> None:
        nonlocal steps
        steps += count
        together(count)
        if steps > _MAX_STEPS:
            raise _Misfit(f"takes too long to match against the pattern {pattern[:60]!r}")

    if len(value) > _MAX_MATCHED:
        raise _Misfit(f"has {len(value)} characters; a pattern is matched against at most {_MAX_MATCHED}")
    from arclog.model.data.regex import compiled  # only inputs with a pattern need it

    if compiled(pattern).search(value, 0, charge) is None:
        raise _Misfit(f"{_brief(value)} does not match the pattern {pattern}")


def pattern_fault(pattern: str) -> str:
    """Return the problem of a pattern, or ''."""
    from arclog.model.data.regex import RegexError, compiled

    try:
        compiled(pattern)
    except RegexError as problem:
        return str(problem)
    return ""


def _wanted(declared: Declaration) -> str:
    note = declared.get("description")
    name = _NAMES.get(declared.get("type", "any"), "a value")
    return f"{name} ({note})" if note else name


def _near(key: str, candidates: Iterable[str]) -> str:
    from arclog.model.data.suggestions import did_you_mean  # only an error message needs it

    names = list(candidates)
    if suggestion := did_you_mean(key, names):
        return suggestion
    return f"; there are {', '.join(names[:12])}{', …' if len(names) > 12 else ''}" if names else ""


def _brief(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return repr(shortened(value, 40, "..."))
    return str(value)[:40] if isinstance(value, int | float) else "a map" if isinstance(value, dict) else "a list"
