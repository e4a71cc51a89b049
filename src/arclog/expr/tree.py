"""A nested value of a playbook whose strings are templates; keys never are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from arclog.expr.budget import DEFAULT_LIMITS, Limits
from arclog.expr.template import Template, compile_text
from arclog.model.errors import NOWHERE, ExpressionError, Position

Locate = Callable[[tuple[str | int, ...]], Position]
_Build = Callable[[Mapping[str, Any]], Any]
_MAX_DEPTH = 100


def nowhere(_: tuple[str | int, ...]) -> Position:
    """Give the unknown position, for values that came from no file."""
    return NOWHERE


class Compiled(Protocol):
    """What a nested value is made of: templates, or parts compiled in another way."""

    @property
    def constant(self) -> bool: ...
    @property
    def free(self) -> frozenset[str]: ...
    @property
    def paths(self) -> frozenset[tuple[str, ...]]: ...
    @property
    def reads(self) -> frozenset[tuple[str | int, ...]]: ...


class Tree:
    """A compiled nested value. Each evaluation builds new lists and dicts, so nobody can change the plan."""

    __slots__ = ("_build", "_whole", "constant", "free", "paths", "reads")

    def __init__(self, build: _Build, templates: Sequence[Compiled], whole: Template | None = None) -> None:
        self._build = build
        self._whole = whole
        self.constant = all(template.constant for template in templates)
        self.free = frozenset[str]().union(*(template.free for template in templates))
        self.paths = frozenset[tuple[str, ...]]().union(*(template.paths for template in templates))
        self.reads = frozenset[tuple[str | int, ...]]().union(*(template.reads for template in templates))

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Give the value with every template evaluated; the limits hold for each template."""
        return self._build(scope)

    def evaluate_items(self, scope: Mapping[str, Any]) -> Any:
        """As `evaluate`, but a range or stored data is given as it is, not written out."""
        return self._build(scope) if self._whole is None else self._whole.evaluate_items(scope)


#: Most arcs have no arguments: a plan has thousands of these.
_EMPTY = Tree(lambda _: {}, ())


def compile_tree(value: Any, locate: Locate = nowhere, limits: Limits = DEFAULT_LIMITS) -> Tree:
    """Compile every string inside `value`; `locate` gives the position of the value at a path of keys."""
    if value == {} and isinstance(value, dict):
        return _EMPTY
    templates: list[Template] = []
    build = _compiled(value, (), locate, limits, templates)
    return Tree(build, templates, templates[0] if isinstance(value, str) and templates else None)


def _compiled(
    value: Any, path: tuple[str | int, ...], locate: Locate, limits: Limits, templates: list[Template]
) -> _Build:
    if len(path) > _MAX_DEPTH:
        raise ExpressionError(f"the value is nested deeper than {_MAX_DEPTH} levels", locate(path))
    if isinstance(value, str):
        template = compile_text(value, locate(path), limits)
        if not template.constant:
            templates.append(template)
            return template.evaluate
    elif isinstance(value, Mapping):
        return _mapping({key: _compiled(part, (*path, key), locate, limits, templates) for key, part in value.items()})
    elif isinstance(value, (list, tuple)):
        return _sequence([_compiled(part, (*path, at), locate, limits, templates) for at, part in enumerate(value)])
    return lambda _: value


def _mapping(parts: dict[Any, _Build]) -> _Build:
    return lambda scope: {key: build(scope) for key, build in parts.items()}


def _sequence(parts: list[_Build]) -> _Build:
    return lambda scope: [build(scope) for build in parts]
