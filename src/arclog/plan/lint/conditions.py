"""Static analysis of conditions: their truth if some values are known, and their comparisons.

Works on Jinja's syntax tree. An undecidable condition is None, never a guess, so a lint reports only what is certain.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

from msgspec import Struct

from arclog.expr.budget import Failure
from arclog.expr.compiler.parse import has_markers, parse_expression, parse_template
from arclog.model.data.lazy import pattern
from arclog.plan.net import ArcPlan, StepPlan

#: Known values of name paths.
Facts = Mapping[tuple[str, ...], Any]

#: Maximum length of a text that is analyzed; longer ones are generated and may be nested deeply.
LONGEST = 2_000


class _Some:
    """A value that exists and is true, but is otherwise unknown."""


SOME = _Some()
_UNKNOWN = object()
_WORD = pattern(r"[A-Za-z_]\w*")
_QUOTED = pattern(r"""'([^']*)'|"([^"]*)\"""")
_KEYWORDS = frozenset(["true", "false", "none", "True", "False", "None", "and", "or", "not", "if", "else", "in", "is"])

#: Facts in a task's policy after any error.
AFTER_ERROR: Facts = {("outcome", "status"): "error", ("outcome", "error"): SOME}
_NOTHING: Facts = {}


def truth(when: str | bool | None, facts: Facts = _NOTHING) -> bool | None:
    """Return whether a condition holds, given the facts; None if that is undecidable. An absent condition holds."""
    if when is None or isinstance(when, bool):
        return when is None or when
    words = set(_WORD.findall(when))
    if not words <= _KEYWORDS and words.isdisjoint(root for root, *_ in facts):
        # It does not involve the facts: skip parsing.
        return None
    nodes = _parsed(when)
    return _truth(nodes[0], facts) if len(nodes) == 1 else None


def on_success(step: StepPlan, arc: ArcPlan) -> bool | None:
    """Return whether an arc matches when its step succeeds; None if that is undecidable."""
    facts: Facts = {("event", "name"): boundary_names(step)[0], ("event", "step"): step.name}
    return truth(arc.when, facts)


def on_failure(step: StepPlan, arc: ArcPlan) -> bool | None:
    """Return whether an arc matches when its step fails; None if that is undecidable."""
    if not arc.sees_failure:
        return False
    facts: Facts = {("event", "name"): "step.failed", ("event", "status"): "error", ("event", "step"): step.name}
    return truth(arc.when, facts)


def boundary_names(step: StepPlan) -> tuple[str, str]:
    """Return the values of `event.name` on the arcs of a step: after a success, after a failure."""
    return "step.done" if step.loop is None else "loop.done", "step.failed"


def compared(source: str, path: tuple[str, ...], expected: Container[str] = ()) -> Iterator[tuple[str, str]]:
    """Return the texts that a name path is compared with anywhere in a template, with the operator: eq or ne.

    `expected` texts are left out; a source without any other text is not parsed.
    """
    if path[-1] not in source or all(text in expected for text in _quoted(source)):
        return
    for root in _parsed(source):
        work = [root]
        while work:
            node = work.pop()
            if type(node).__name__ == "Compare" and len(node.ops) == 1:
                yield from (comparison for comparison in _comparison(node, path) if comparison[1] not in expected)
            work.extend(node.iter_child_nodes())


def _quoted(source: str) -> Iterator[str]:
    for match in _QUOTED.finditer(source):
        yield match[1] if match[1] is not None else match[2]


def _comparison(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    op, left, right = node.ops[0].op, node.expr, node.ops[0].expr
    if op in ("eq", "ne"):
        if _path(right) == path:
            left, right = right, left
        value = getattr(right, "value", None) if type(right).__name__ == "Const" else None
        if _path(left) == path and isinstance(value, str):
            yield op, value
    elif op in ("in", "notin") and _path(left) == path and type(right).__name__ in ("List", "Tuple"):
        for item in right.items:
            value = getattr(item, "value", None)
            if isinstance(value, str):
                yield ("eq" if op == "in" else "ne"), value


@lru_cache(maxsize=4096)
def _parsed(source: str) -> tuple[Any, ...]:
    """Return the expressions of a text; one for a condition. Empty if the text is too long or does not parse."""
    if len(source) > LONGEST:
        return ()
    try:
        if not has_markers(source):
            return (parse_expression(source.rstrip()),)
        statements: list[Any] = []
        statement: Any
        for statement in parse_template(source):
            if type(statement).__name__ == "Output":
                statements += [
                    part
                    for part in statement.iter_child_nodes()
                    if type(part).__name__ != "TemplateData" or part.data.strip()
                ]
            else:
                statements.append(statement)
        return tuple(statements)
    except Failure:
        return ()


def _truth(node: Any, facts: Facts) -> bool | None:
    match type(node).__name__:
        case "Not":
            inner = _truth(node.node, facts)
            return None if inner is None else not inner
        case "And":
            left = _truth(node.left, facts)
            if left is False:
                return False
            right = _truth(node.right, facts)
            return False if right is False else (left and right)
        case "Or":
            left = _truth(node.left, facts)
            if left is True:
                return True
            right = _truth(node.right, facts)
            return True if right is True else (None if left is None else right)
        case "CondExpr" if node.expr2 is not None:
            test = _truth(node.test, facts)
            if test is not None:
                return _truth(node.expr1 if test else node.expr2, facts)
            first, other = _truth(node.expr1, facts), _truth(node.expr2, facts)
            return first if first is other else None
        case "Compare" if len(node.ops) == 1:
            return _compare(node.ops[0].op, _value(node.expr, facts), _value(node.ops[0].expr, facts))
        case "Test" if node.name in ("defined", "undefined", "none"):
            value = _value(node.node, facts)
            if value is _UNKNOWN:
                return None
            return (value is None) if node.name == "none" else node.name == "defined"
        case _:
            value = _value(node, facts)
            return None if value is _UNKNOWN else bool(value)


def _compare(op: str, left: Any, right: Any) -> bool | None:
    if any(value is _UNKNOWN or value is SOME for value in (left, right)):
        return None
    if op in ("eq", "ne"):
        return bool(left == right) is (op == "eq")
    if op in ("in", "notin") and isinstance(right, list | str) and isinstance(left, str):
        return (left in right) is (op == "in")
    return None


def _value(node: Any, facts: Facts) -> Any:
    kind = type(node).__name__
    if kind == "Const":
        return node.value
    if kind in ("List", "Tuple"):
        items = [_value(item, facts) for item in node.items]
        return _UNKNOWN if any(item is _UNKNOWN or item is SOME for item in items) else items
    path = _path(node)
    return facts.get(path, _UNKNOWN) if path else _UNKNOWN


def _path(node: Any) -> tuple[str, ...]:
    """Return the static name path of a node, such as ('outcome', 'status'); () if it has none."""
    keys: list[str] = []
    while True:
        match type(node).__name__:
            case "Getattr":
                keys.append(node.attr)
            case "Getitem" if isinstance(getattr(node.arg, "value", None), str):
                keys.append(node.arg.value)
            case "Name":
                return (node.name, *reversed(keys))
            case _:
                return ()
        node = node.node


# Possible ends of a step: which of its arcs match, and whether a token is admitted.
#
# Conditions that the plan alone does not decide may hold or not, independently; an arc with such a condition is open.


Cases = Sequence[tuple[ArcPlan, bool | None]]


class Option(Struct, frozen=True):
    """A possible end of a step run."""

    arcs: tuple[ArcPlan, ...]
    failed: bool = False


def options(step: StepPlan, most_open: int) -> Iterator[Option]:
    """Return the possible ends of a step run: after a success, and after a failure.

    With more than `most_open` open arcs of an inclusive split, only these are returned: none of them, each alone, all
    but one, and all.
    """
    seen: set[tuple[tuple[int, ...], bool]] = set()
    for cases, failed in _ends(step):
        for arcs in _exclusive(cases) if step.mode == "exclusive" else _inclusive(cases, most_open):
            key = tuple(arc.index for arc in arcs), failed
            if key not in seen:
                seen.add(key)
                yield Option(arcs, failed)


def open_arcs(step: StepPlan) -> int:
    """Return the maximum number of open arcs of an inclusive split in one end of a run."""
    if step.mode == "exclusive":
        return 0
    return max(sum(matches is None for _, matches in cases) for cases, _ in _ends(step))


def possible_arcs(step: StepPlan) -> list[ArcPlan]:
    """Return the arcs that match in some end of a run."""
    possible: list[ArcPlan] = []
    for cases, _ in _ends(step):
        if step.mode == "exclusive":
            possible += [arc for arcs in _exclusive(cases) for arc in arcs]
        else:
            possible += [arc for arc, matches in cases if matches is not False]
    return possible


def admission(step: StepPlan) -> tuple[bool, bool]:
    """Return whether a token may be admitted, and whether it may be denied."""
    if step.admit is None:
        return True, False
    may_allow = may_deny = False
    for rule in step.admit:
        holds = True if rule.when is None else truth(rule.when)
        if holds is False:
            continue
        may_allow, may_deny = may_allow or rule.allow, may_deny or not rule.allow
        if holds:
            return may_allow, may_deny
    return may_allow, True


def _ends(step: StepPlan) -> Iterator[tuple[Cases, bool]]:
    """Return whether each arc matches, after a success and after a failure."""
    for decide, failed in ((on_success, False), (on_failure, True)):
        yield [(arc, decide(step, arc)) for arc in step.arcs], failed


def _exclusive(cases: Cases) -> Iterator[tuple[ArcPlan, ...]]:
    for arc, matches in cases:
        if matches is not False:
            yield (arc,)
        if matches:
            return
    yield ()


def _inclusive(cases: Cases, most_open: int) -> Iterator[tuple[ArcPlan, ...]]:
    sure = [arc for arc, matches in cases if matches]
    perhaps = [arc for arc, matches in cases if matches is None]
    count = len(perhaps)
    sizes = range(count + 1) if count <= most_open else sorted({0, 1, max(count - 1, 0), count})
    for size in sizes:
        for part in combinations(perhaps, size):
            arcs = {id(arc) for arc in (*sure, *part)}
            yield tuple(arc for arc, _ in cases if id(arc) in arcs)
