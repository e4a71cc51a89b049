"""Path and query parameters of an operation, from text to its struct."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from arclog.model.errors import RequestRejected
from arclog.operations.operation import Operation

_PLACE = re.compile(r" - at `\$\.(\w+).*`$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(\w+)`")
#: Words for a truth value beside true, false, 1 and 0.
_TRUTH = {
    "yes": "true",
    "y": "true",
    "on": "true",
    "t": "true",
    "no": "false",
    "n": "false",
    "off": "false",
    "f": "false",
}


class ParameterMistake(RequestRejected):
    """A parameter that is missing or does not fit."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(f"the request is invalid: {at}: {message}")
        self.at = at
        self.message = message


class Parameters:
    """Reads the parameters of one operation."""

    def __init__(self, operation: Operation[Any]) -> None:
        self._kind: type[Struct] = operation.params
        self._path_names = frozenset(operation.path_names)
        (_,), components = msgspec.json.schema_components([self._kind])
        schema: dict[str, dict[str, Any]] = components[self._kind.__name__].get("properties", {})
        self._queried = frozenset(schema) - self._path_names
        self._lists = frozenset(name for name, of in schema.items() if of.get("type") == "array")
        self._truths = frozenset(name for name, of in schema.items() if of.get("type") == "boolean")
        self._patterned = frozenset(name for name, of in schema.items() if "pattern" in of)

    def read(self, path_values: Mapping[str, str], query: bytes) -> Struct:
        """The parameters of a request. Raises ParameterMistake."""
        values: dict[str, Any] = dict(path_values)
        for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if query else ():
            if name not in self._queried:
                continue
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in self._truths:
                values[name] = _TRUTH.get(value.lower(), value)
            else:
                values[name] = value
        try:
            found = msgspec.convert(values, self._kind, strict=False)
        except msgspec.ValidationError as problem:
            raise self._mistake(str(problem)) from None
        for name in self._patterned & values.keys():
            if values[name].endswith("\n"):  # `$` matches before the last line's end, too
                raise ParameterMistake(self._at(name), "Expected no line break")
        return found

    def _mistake(self, problem: str) -> ParameterMistake:
        missing = _MISSING.search(problem)
        if missing is not None:
            return ParameterMistake(self._at(missing[1]), "it is required")
        place = _PLACE.search(problem)
        return ParameterMistake(self._at("" if place is None else place[1]), _PLACE.sub("", problem))

    def _at(self, name: str) -> str:
        return f"{'path' if name in self._path_names else 'query'}.{name}"
