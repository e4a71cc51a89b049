"""Jinja's text and its `if`, `for` and `set` compiled into closures that write to the frame.

Law: each round of a loop pays for every node of its body, so no text outruns the counted work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arclog.expr.budget import Failure
from arclog.expr.compile import MAX_NESTING, Compiler
from arclog.expr.convert import items_of, text, unpacked
from arclog.expr.failures import located
from arclog.expr.values import MISSING, Loop, Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jinja2 import nodes

    from arclog.expr.frame import Expression, Frame, Statement

    Assign = Callable[[Frame, Any], None]


class TextCompiler(Compiler):
    """Compiles a whole text."""

    def __init__(self) -> None:
        super().__init__()
        self.names.slots = 0
        self._blocks = 0

    def body(self, parts: list[nodes.Node]) -> Statement:
        """Compile statements that run one after the other."""
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
            frame.emit(text(frame, value(frame)))

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
                if test(frame):
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
                _clear(slots, inner)
                assign(frame, item)
                slots[around] = Loop(items, at)
                body(frame)
            if otherwise is not None and not items:
                _clear(slots, inner)
                otherwise(frame)

        return run

    def assignment(self, node: nodes.Assign) -> Statement:
        """Compile `set name = value`."""
        value = self.expression(node.node)
        assign = self._target(node.target)
        return lambda frame: assign(frame, value(frame))

    def block(self, node: nodes.AssignBlock) -> Statement:
        """Compile `set name` … `endset`: the text between."""
        if node.filter is not None:
            raise Failure("write {% set x = y | filter %}; a set block takes no filter", node.lineno)
        self.names.enter()
        body = self.body(node.body)
        inner = self.names.leave()
        assign = self._target(node.target)

        def run(frame: Frame) -> None:
            outer, size, frame.out = frame.out, frame.size, []
            _clear(frame.slots, inner)
            body(frame)
            frame.room(frame.size - size)
            made, frame.out, frame.size = "".join(frame.out), outer, size
            assign(frame, made)

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

        def spread(frame: Frame, value: Any) -> None:
            parts = unpacked(value)
            if len(parts) != len(targets):
                raise Failure(f"{len(targets)} names cannot take {len(parts)} values")
            for target, part in zip(targets, parts, strict=True):
                target(frame, part)

        return spread

    def _into_cell(self, name: str, attribute: str) -> Assign:
        slots, _ = self.names.find(name)

        def assign(frame: Frame, value: Any) -> None:
            owner = next((frame.slots[slot] for slot in slots if frame.slots[slot] is not MISSING), None)
            if type(owner) is not Namespace:
                raise Failure(f"{name!r} is no namespace; begin with {{% set {name} = namespace() %}}")
            owner.cells[attribute] = value

        return assign


def _clear(slots: list[Any], which: list[int]) -> None:
    for slot in which:
        slots[slot] = MISSING


def _into_slot(slot: int) -> Assign:
    def assign(frame: Frame, value: Any) -> None:
        frame.slots[slot] = value

    return assign


def _kept(frame: Frame, items: Sequence[Any], assign: Assign, keep: Expression, cost: int) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        frame.charge(cost)
        assign(frame, item)
        if keep(frame):
            kept.append(item)
    frame.room(8 * len(kept))
    return kept


_STATEMENTS: dict[str, Callable[[TextCompiler, Any], Statement]] = {
    "If": TextCompiler.condition,
    "For": TextCompiler.loop,
    "Assign": TextCompiler.assignment,
    "AssignBlock": TextCompiler.block,
}
