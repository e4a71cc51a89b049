"""Shapes: what a map may hold, as data.

One vocabulary describes playbook sections, tool configs and event payloads; validation, JSON Schema and docs read it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

#: The type words a Field may use; alternatives are joined by '|', as in 'string|list'.
TYPES = frozenset({"any", "string", "name", "integer", "number", "boolean", "object", "list", "null", "condition"})

#: Seconds that a playbook may name anywhere: a larger number is a mistake in units, and no date can be counted to it.
LONGEST_S = 100 * 366 * 86_400


class Field(Struct, frozen=True, omit_defaults=True):
    """One key of a map."""

    name: str
    #: Type words joined by '|'. `name` is an identifier; `condition` is a `when`.
    type: str
    doc: str = ""
    required: bool = False
    default: Any = None
    #: The only values allowed, when not empty.
    choices: tuple[str, ...] = ()
    #: The keys of a closed object; None means an open one.
    fields: tuple[Field, ...] | None = None
    #: The shape of each item of a list.
    items: Field | None = None
    #: The value may be (or hold) a template, whose result is checked when it is rendered.
    template: bool = False
    #: The text must hold no template, since what it would render to could be read as code (SQL).
    plain: bool = False
    #: Lowest value allowed for a number; `exclusive_min` when the bound itself is refused.
    minimum: float | None = None
    exclusive_min: float | None = None
    maximum: float | None = None
    #: Words that other tools have for it: a map that uses one of them is told this key.
    also: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self.type.split("|"))
