"""Compiles Jinja's text and its `if`, `for` and `set` to closures that write to the frame.

Invariant: each round of a loop is charged for every node of its body, so no text exceeds the counted work.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

from arclog.expr.budget import ENTRY, SLOT, Failure, list_size, text_size
from arclog.expr.compiler.compile import MAX_NESTING, Compiler
from arclog.expr.convert import items_of, text, unpacked
from arclog.expr.frame import located
from arclog.expr.values import MISSING, Loop, Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jinja2 import nodes

    from arclog.expr.frame import Expression, Frame, Statement

    #: takes a value and the bytes that were charged for it
    Assign = Callable[[Frame, Any, int], None]


class TextCompiler(Compiler):
    """Compiles a whole text."""

    def __init__(self) -> None:
        super().__init__()
        self.names.slots = 0
        self._blocks = 0

    def body(self, parts: list[nodes.Node]) -> Statement:
        """Compile statements that run in sequence."""
        self._blocks += 1
        if self._blocks > MAX_NESTING:
            raise Failure(f"statements are nested deeper than {MAX_NESTING} levels")
        statements = [statement for part in parts for statement in self._statements(part)]
        self._blocks -= 1
        if len(statements) == 1:
            return statements[0]

        def run(frame: Frame) -> None:
            for statement in statements:
                statement(frame)

        return run

    def _statements(self, node: Any) -> list[Statement]:
        self.nodes += 1
        kind = type(node).__name__
        if kind == "Output":
            return [self._output(part) for part in node.nodes]
        compile_statement = _STATEMENTS.get(kind)
        if compile_statement is None:
            raise Failure(f"{kind} is not part of the template language; there are if, for and set", node.lineno)
        return [located(compile_statement(self, node), node.lineno)]

    def _output(self, node: Any) -> Statement:
        if type(node).__name__ == "TemplateData":
            data: str = node.data
            self.nodes += 1
            return lambda frame: frame.emit(data)
        value = self.expression(node)

        def write(frame: Frame) -> None:
            before = frame.bytes
            shown = value(frame)
            if type(shown) is not str:
                shown = text(frame, shown)
            if frame.bytes != before:
                frame.end_expression(before, shown)
            frame.emit(shown)

        return located(write, node.lineno)

    def condition(self, node: nodes.If) -> Statement:
        """Compile `if`, `elif`, `else`."""
        before = self.names.certainty()
        after: list[dict[str, bool]] = []
        branches: list[tuple[Expression, Statement]] = []
        for branch in (node, *node.elif_):
            test = self.expression(branch.test)
            branches.append((test, self.body(branch.body)))
            after.append(self.names.certainty())
            self.names.restore(before)
        otherwise = self.body(node.else_) if node.else_ else None
        after.append(self.names.certainty())
        self.names.merge(after)

        def run(frame: Frame) -> None:
            for test, then in branches:
                before = frame.bytes
                holds = bool(test(frame))
                frame.bytes = before
                if holds:
                    then(frame)
                    return
            if otherwise is not None:
                otherwise(frame)

        return run

    def loop(self, node: nodes.For) -> Statement:
        """Compile `for`, with its filter, its `else` and its `loop` variable."""
        if node.recursive:
            raise Failure("recursive loops are not part of the template language", node.lineno)
        source = self.expression(node.iter)
        size = self.nodes
        self.names.enter()
        assign = self._target(node.target)
        keep = self.expression(node.test) if node.test is not None else None
        around = self.names.declare("loop")
        body = self.body(node.body)
        inner = self.names.leave()
        cost = 1 + self.nodes - size
        self.names.enter()
        otherwise = self.body(node.else_) if node.else_ else None
        inner += self.names.leave()

        def run(frame: Frame) -> None:
            items = items_of(frame, source(frame))
            slots = frame.slots
            if keep is not None:
                items = _kept(frame, items, assign, keep, cost)
            for at, item in enumerate(items):
                frame.charge(cost)
                _clear(frame, inner)
                assign(frame, item, 0)
                slots[around] = Loop(items, at)
                body(frame)
            if otherwise is not None and not items:
                _clear(frame, inner)
                otherwise(frame)

        return run

    def assignment(self, node: nodes.Assign) -> Statement:
        """Compile `set name = value`."""
        value = self.expression(node.node)
        assign = self._target(node.target)

        def run(frame: Frame) -> None:
            before = frame.bytes
            made = value(frame)
            assign(frame, made, frame.end_expression(before, made) if frame.bytes != before else 0)

        return run

    def block(self, node: nodes.AssignBlock) -> Statement:
        """Compile `set name` … `endset`: the text in between."""
        if node.filter is not None:
            raise Failure("write {% set x = y | filter %}; a set block takes no filter", node.lineno)
        self.names.enter()
        body = self.body(node.body)
        inner = self.names.leave()
        assign = self._target(node.target)

        def run(frame: Frame) -> None:
            outer = frame.out, frame.size, frame.wide
            frame.out, frame.size, frame.wide = [], 0, 1
            _clear(frame, inner)
            body(frame)
            before = frame.bytes
            made = frame.rendered()
            frame.out, frame.size, frame.wide = outer
            assign(frame, made, before - frame.bytes)

        return run

    def _target(self, node: Any) -> Assign:
        kind = type(node).__name__
        if kind == "Name":
            return _into_slot(self.names.declare(node.name))
        if kind == "NSRef":
            return self._into_cell(node.name, node.attr)
        if kind != "Tuple":
            raise Failure("only names can be assigned to", node.lineno)
        targets = [self._target(item) for item in node.items]

        def spread(frame: Frame, value: Any, _: int) -> None:
            parts = unpacked(value)
            if len(parts) != len(targets):
                raise Failure(f"{len(targets)} names cannot take {len(parts)} values")
            for target, part in zip(targets, parts, strict=True):
                target(frame, part, 0)

        return spread

    def _into_cell(self, name: str, attribute: str) -> Assign:
        slots, _ = self.names.find(name)

        def assign(frame: Frame, value: Any, paid: int) -> None:
            owner = next((frame.slots[slot] for slot in slots if frame.slots[slot] is not MISSING), None)
            if type(owner) is not Namespace:
                raise Failure(f"{name!r} is no namespace; begin with {{% set {name} = namespace() %}}")
            if attribute not in owner.cells:
                frame.room(2 * ENTRY)
                owner.cells[attribute], owner.paid[attribute] = MISSING, 0
            frame.bytes += _put(owner.cells, owner.paid, attribute, value, paid)

        return assign


def _clear(frame: Frame, which: list[int]) -> None:
    slots, paid = frame.slots, frame.paid
    for slot in which:
        if paid[slot]:
            frame.bytes += _put(slots, paid, slot, MISSING, 0)
        else:
            slots[slot] = MISSING


def _into_slot(slot: int) -> Assign:
    def assign(frame: Frame, value: Any, paid: int) -> None:
        if paid or frame.paid[slot]:
            frame.bytes += _put(frame.slots, frame.paid, slot, value, paid)
        else:
            frame.slots[slot] = value

    return assign


def _put(cells: Any, paid: Any, at: Any, value: Any, size: int) -> int:
    """Set a variable to another value. Returns the freed bytes.

    These are the bytes that were charged for its old text or list, if nothing else refers to it. Otherwise a list that
    grows by one item at a time (`ns.l + [x]`) would count as all of its copies.
    """
    old = cells[at]
    cells[at] = value
    counted: int = paid[at]
    paid[at] = size
    if not counted or getrefcount(old) > _ALONE:
        return 0
    if type(old) is list:
        return min(counted, list_size(len(old)))
    return min(counted, text_size(old)) if type(old) is str else 0


def _references(cells: list[Any], at: int) -> int:
    old = cells[at]
    cells[at] = None
    return getrefcount(old)


#: number of references to a value that only `_put` holds, which differs between versions of Python
_ALONE = _references([["a list of its own"]], 0)


def _kept(frame: Frame, items: Sequence[Any], assign: Assign, keep: Expression, cost: int) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        frame.charge(cost)
        assign(frame, item, 0)
        before = frame.bytes
        keeps = bool(keep(frame))
        frame.bytes = before
        if keeps:
            frame.room(SLOT)
            kept.append(item)
    return kept


_STATEMENTS: dict[str, Callable[[TextCompiler, Any], Statement]] = {
    "If": TextCompiler.condition,
    "For": TextCompiler.loop,
    "Assign": TextCompiler.assignment,
    "AssignBlock": TextCompiler.block,
}
