"""Shapes: the allowed content of a map, as data.

One vocabulary describes playbook sections, tool configs and event payloads; validation, JSON Schema and docs use it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

#: The type words of a Field; alternatives are joined by '|', as in 'string|list'.
TYPES = frozenset({"any", "string", "name", "integer", "number", "boolean", "object", "list", "null", "condition"})

#: Maximum number of seconds anywhere in a playbook: a larger number is a mistake in units, and exceeds the calendar.
LONGEST_S = 100 * 366 * 86_400


class Field(Struct, frozen=True, omit_defaults=True):
    """One key of a map."""

    name: str
    #: Type words joined by '|'. `name` is an identifier; `condition` is a `when`.
    type: str
    doc: str = ""
    required: bool = False
    default: Any = None
    #: The only allowed values, if not empty.
    choices: tuple[str, ...] = ()
    #: The keys of a closed object; None for an open one.
    fields: tuple[Field, ...] | None = None
    #: The shape of each item of a list.
    items: Field | None = None
    #: Whether the value may be (or contain) a template, whose result is checked when it is rendered.
    template: bool = False
    #: Whether the text must contain no template, since the rendered text could be read as code (SQL).
    plain: bool = False
    #: Minimum of a number; with `exclusive_min` the bound itself is not allowed.
    minimum: float | None = None
    exclusive_min: float | None = None
    maximum: float | None = None
    #: Names that other tools use for this key; the message about such a key suggests this one.
    also: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(self.type.split("|"))
