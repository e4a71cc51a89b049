"""Compiles Jinja's expression nodes to Python closures.

Invariant: a node type, filter, test, method or function that is not in a table here cannot be compiled, and closures
access values only through the modules that limit them. Nothing is evaluated while compiling.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NoReturn, cast

from msgspec import Struct

from arclog.expr.budget import ENTRY, ITEM, LIST, MAP, Failure
from arclog.expr.compiler import access, operators
from arclog.expr.compiler.access import called, indexed, keyed, load_name, misfit
from arclog.expr.convert import admit
from arclog.expr.filters import methods
from arclog.expr.filters import table as filters
from arclog.expr.filters.predicates import LENIENT
from arclog.expr.frame import located
from arclog.expr.stored import counted
from arclog.expr.values import JSON_TYPES, SCALARS, Undefined, did_you_mean, is_text, step_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2 import nodes

    from arclog.expr.frame import Expression, Frame


# The meaning of names in a template, resolved at compile time.
#
# A name is the innermost `set` or `for` variable, else a free name that the scope must have. A variable that is set
# only on some paths through the template is also a free name, as in Jinja.


class Variable(Struct):
    """A `set` or `for` variable: its slot, and whether every path to this point assigned it."""

    slot: int
    certain: bool


class Names:
    """The names of one template during compilation."""

    def __init__(self) -> None:
        #: number of variables; -1 if no statement can declare one, so that a frame needs no slots
        self.slots = -1
        self.paths: set[tuple[str, ...]] = set()
        #: the same with integer indexes among the keys: the parts of values that are read
        self.reads: set[tuple[str | int, ...]] = set()
        self._blocks: list[dict[str, Variable]] = [{}]

    def declare(self, name: str) -> int:
        """Record that `name` is assigned here, in the innermost block. Returns its slot."""
        block = self._blocks[-1]
        if name not in block:
            block[name] = Variable(self.slots, certain=True)
            self.slots += 1
        block[name].certain = True
        return block[name].slot

    def find(self, name: str) -> tuple[list[int], bool]:
        """Return the slots that may contain `name`, innermost first, and whether the scope is searched after them."""
        slots: list[int] = []
        for block in reversed(self._blocks):
            variable = block.get(name)
            if variable is not None:
                slots.append(variable.slot)
                if variable.certain:
                    return slots, False
        return slots, True

    def enter(self) -> None:
        """Start a block with its own variables."""
        self._blocks.append({})

    def leave(self) -> list[int]:
        """End a block. Returns its slots."""
        return [variable.slot for variable in self._blocks.pop().values()]

    def certainty(self) -> dict[str, bool]:
        """Return which variables of the innermost block are certain."""
        return {name: variable.certain for name, variable in self._blocks[-1].items()}

    def restore(self, before: dict[str, bool]) -> None:
        """Start another branch: variables that only the previous branch assigned are not certain in it."""
        for name, variable in self._blocks[-1].items():
            variable.certain = before.get(name, False)

    def merge(self, branches: list[dict[str, bool]]) -> None:
        """End the branches: a variable is certain if it is certain at the end of each."""
        for name, variable in self._blocks[-1].items():
            variable.certain = all(branch.get(name, False) for branch in branches)


#: Maximum depth of an expression or of nested statements; each level takes one or two stack frames at run time.
MAX_NESTING = 100


class Compiler:
    """Compiles the expressions of one template."""

    def __init__(self) -> None:
        self.names = Names()
        #: number of nodes compiled so far: the cost of one round of a loop body
        self.nodes = 0
        self._nesting = 0
        self._line = 1

    def expression(self, node: nodes.Node | None) -> Expression:
        """Compile one expression node."""
        if node is None:
            return _constant(None)
        self.nodes += 1
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise Failure(
                f"the expression is nested deeper than {MAX_NESTING} levels; take it apart with args or set",
                node.lineno,
            )
        compile_node = _NODES.get(type(node).__name__)
        if compile_node is None:
            raise Failure(f"{type(node).__name__} is not part of the template language", node.lineno)
        outer, self._line = self._line, _line_of(node)
        try:
            made = compile_node(self, node)
            return made if self._line == outer else located(made, self._line)
        except Failure as failure:
            failure.line = failure.line or self._line
            raise
        finally:
            self._nesting -= 1
            self._line = outer

    # Names, keys and indexes

    def chain(self, node: Any) -> Expression:
        """Compile a name and the keys after it, and record the longest static path."""
        steps: list[Any] = []
        while type(node).__name__ in ("Getattr", "Getitem"):
            steps.append(node)
            node = node.node
        steps.reverse()
        self.nodes += len(steps)
        if type(node).__name__ != "Name":
            return self._reach(self.expression(node), steps, "(...)")
        slots, free = self.names.find(node.name)
        keys: list[str] = []
        for step in steps:
            key = _static_key(step)
            if key is None:
                break
            keys.append(key)
        if free:
            self.names.paths.add((node.name, *keys))
            self.names.reads.add((node.name, *_constant_keys(steps)))
        start = load_name(node.name, slots, free=free, keys=tuple(keys))
        label = node.name + "".join(map(step_text, keys))
        return self._reach(start, steps[len(keys) :], label)

    def _reach(self, start: Expression, steps: list[Any], label: str) -> Expression:
        if len(steps) > MAX_NESTING:
            raise Failure(f"more than {MAX_NESTING} indexes in a row")
        for step in steps:
            if type(step).__name__ == "Getitem" and type(step.arg).__name__ == "Slice":
                start, label = self._slice(start, step.arg), f"{label}[...]"
                continue
            if type(step).__name__ == "Getattr":
                key, start = step.attr, keyed(start, step.attr, label)
            elif type(step.arg).__name__ == "Const":
                key, start = step.arg.value, keyed(start, step.arg.value, label)
            else:
                key, start = None, indexed(start, self.expression(step.arg), label)
            label += step_text(key)
        return start

    def _slice(self, value: Expression, node: nodes.Slice) -> Expression:
        start, stop, step = (self.expression(bound) for bound in (node.start, node.stop, node.step))
        return lambda frame: access.cut(frame, value(frame), start(frame), stop(frame), step(frame))

    # Operators

    def binary(self, node: nodes.BinExpr) -> Expression:
        """Compile an arithmetic operator."""
        compute = operators.BINARY[type(node).__name__]
        left, right = self.expression(node.left), self.expression(node.right)
        return lambda frame: compute(frame, left(frame), right(frame))

    def logical(self, node: nodes.BinExpr) -> Expression:
        """Compile a chain of `and`, or of `or`, which Jinja nests to the left."""
        kind = type(node)
        parts: list[nodes.Expr] = []
        first: nodes.Expr = node
        while type(first) is kind:
            parts.append(first.right)
            first = first.left
        terms = [self.expression(part) for part in (first, *reversed(parts))]
        stops_at = kind.__name__ == "Or"
        if len(terms) == 2:  # by far the most frequent case
            left_term, right_term = terms
            return (
                (lambda frame: left_term(frame) or right_term(frame))
                if stops_at
                else (lambda frame: left_term(frame) and right_term(frame))
            )

        def decide(frame: Frame) -> Any:
            value: Any = None
            for term in terms:
                value = term(frame)
                if bool(value) is stops_at:
                    break
            return value

        return decide

    def negation(self, node: nodes.UnaryExpr) -> Expression:
        """Compile `not`."""
        value = self.expression(node.node)
        return lambda frame: not value(frame)

    def sign(self, node: nodes.UnaryExpr) -> Expression:
        """Compile a sign."""
        compute: Callable[[Any], Any] = operator.neg if type(node).__name__ == "Neg" else operator.pos
        value = self.expression(node.node)
        return lambda frame: operators.signed(value(frame), compute)

    def compare(self, node: nodes.Compare) -> Expression:
        """Compile a chain of comparisons; each middle term is evaluated once."""
        first = self.expression(node.expr)
        comparisons = [(operators.COMPARE[operand.op], self.expression(operand.expr)) for operand in node.ops]
        if len(comparisons) > 1:
            return _compared(first, comparisons)
        test, second = comparisons[0]
        last = node.ops[0]
        if last.op in ("eq", "ne") and type(last.expr).__name__ == "Const":
            # Compared with a literal nothing can be large, and Undefined raises by itself.
            literal = cast("nodes.Const", last.expr).value
            if last.op == "eq":
                return lambda frame: bool(first(frame) == literal)
            return lambda frame: bool(first(frame) != literal)
        return lambda frame: test(frame, first(frame), second(frame))

    def concat(self, node: nodes.Concat) -> Expression:
        """Compile `~`."""
        parts = [self.expression(part) for part in node.nodes]
        return lambda frame: operators.concatenate(frame, [part(frame) for part in parts])

    def conditional(self, node: nodes.CondExpr) -> Expression:
        """Compile `a if b else c`."""
        test, then = self.expression(node.test), self.expression(node.expr1)
        if node.expr2 is None:
            reason = "the condition was false and there is no else"
            return lambda frame: then(frame) if test(frame) else Undefined("a if b", reason=reason)
        otherwise = self.expression(node.expr2)
        return lambda frame: then(frame) if test(frame) else otherwise(frame)

    # Literals

    def constant(self, node: nodes.Const) -> Expression:
        """Compile a literal."""
        if type(node.value) is str and not is_text(node.value):
            return _half_a_character  # not an error here: stored plans stay readable
        return _constant(node.value)

    def sequence(self, node: nodes.List | nodes.Tuple) -> Expression:
        """Compile a list or tuple: both become lists, since JSON has no tuples."""
        parts = [self.expression(part) for part in node.items]
        size = LIST + ITEM * len(parts)

        def make(frame: Frame) -> list[Any]:
            frame.room(size)
            return [part(frame) for part in parts]

        return make

    def mapping(self, node: nodes.Dict) -> Expression:
        """Compile a map."""
        pairs = [(self.expression(pair.key), self.expression(pair.value)) for pair in node.items]

        size = MAP + ENTRY * len(pairs)

        def make(frame: Frame) -> dict[Any, Any]:
            frame.room(size)
            return {_key(key(frame)): value(frame) for key, value in pairs}

        return make

    # Filters, tests, calls

    def filter(self, node: nodes.Filter) -> Expression:
        """Compile `value | name(...)`."""
        apply = filters.find_filter(node.name)
        args, options = self._arguments(node, apply, f"filter {node.name}")
        value = self.expression(node.node)
        if node.name in filters.LENIENT_FILTERS:
            return lambda frame: apply(
                frame, value(frame), *[arg(frame) for arg in args], **{k: v(frame) for k, v in options.items()}
            )
        applied = _applied(apply, value, args, options)
        return counted(value, applied) if node.name in ("length", "count") else applied

    def test(self, node: nodes.Test) -> Expression:
        """Compile `value is name(...)`."""
        predicate = filters.find_predicate(node.name)
        args, options = self._arguments(node, predicate, f"test {node.name}")
        value = self.expression(node.node)
        if node.name == "defined":
            return lambda frame: type(value(frame)) is not Undefined
        if node.name in LENIENT:
            return lambda frame: type(value(frame)) is Undefined
        return _applied(predicate, value, args, options)

    def call(self, node: nodes.Call) -> Expression:
        """Compile a method or function call."""
        target: Any = node.node
        if type(target).__name__ == "Getattr":
            return self._method(node, target)
        if type(target).__name__ == "Name" and not self.names.find(target.name)[0]:
            function = methods.FUNCTIONS.get(target.name)
            if function is None:
                names = list(methods.FUNCTIONS)
                raise Failure(f"there is no function {target.name!r}{did_you_mean(target.name, names)}")
            args, options = self._arguments(node, function, f"{target.name}()")
            return _applied(function, _constant(None), args, options)
        raise Failure("only a method of a value, or range, dict and namespace, can be called")

    def _method(self, node: nodes.Call, target: nodes.Getattr) -> Expression:
        name = target.attr
        if name not in methods.NAMES:
            raise Failure(f"there is no method {name!r}{did_you_mean(name, list(methods.NAMES))}")
        args, options = self._arguments(node)
        value = self.expression(target.node)

        def invoke(frame: Frame) -> Any:
            method, owner = methods.find_method(value(frame), name)
            values = [_admitted(arg(frame)) for arg in args]
            by_name = {key: _admitted(option(frame)) for key, option in options.items()}
            return called(method, f"{name}()", frame, owner, *values, **by_name)

        return invoke

    def _arguments(
        self, node: Any, function: Callable[..., Any] | None = None, label: str = ""
    ) -> tuple[list[Expression], dict[str, Expression]]:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise Failure("arguments cannot be unpacked with * or **")
        names = [option.key for option in node.kwargs]
        wrong = misfit(function, label, len(node.args), names) if function else ""
        if wrong or len(set(names)) < len(names):
            raise Failure(wrong or "an argument is named twice")
        args = [self.expression(arg) for arg in node.args]
        return args, {option.key: self.expression(option.value) for option in node.kwargs}


def _line_of(node: Any) -> int:
    # Jinja gives operators the line of their end; authors look at the beginning.
    while type(node).__name__ in _LEFT:
        node = getattr(node, _LEFT[type(node).__name__])
    return int(node.lineno)


_LEFT = dict.fromkeys((*operators.BINARY, "And", "Or"), "left") | {"Compare": "expr", "CondExpr": "expr1"}


def _constant(value: Any) -> Expression:
    return lambda _: value


def _half_a_character(_: Frame) -> NoReturn:
    raise Failure("a literal has half a character (a lone surrogate); write the whole character")


def _constant_keys(steps: list[Any]) -> list[str | int]:
    """Return the keys up to the first computed one."""
    keys: list[str | int] = []
    for step in steps:
        key: Any = _static_key(step)
        if key is None:
            key = _static_index(step.arg) if type(step).__name__ == "Getitem" else None
        if key is None:
            break
        keys.append(key)
    return keys


def _static_index(node: Any) -> int | None:
    """Return an integer index; `[-1]` is a sign and a number."""
    sign = 1
    if type(node).__name__ == "Neg":
        sign, node = -1, node.node
    return sign * node.value if type(node).__name__ == "Const" and type(node.value) is int else None


def _static_key(step: Any) -> str | None:
    if type(step).__name__ == "Getattr":
        return str(step.attr)
    if type(step.arg).__name__ == "Const" and type(step.arg.value) is str:
        return step.arg.value
    return None


def _key(value: Any) -> Any:
    if type(value) not in SCALARS:
        value = admit(value)
        if type(value) not in SCALARS:
            raise Failure("a map's key must be a string")
    return value


def _admitted(value: Any) -> Any:
    return value if type(value) in JSON_TYPES else admit(value)


def _applied(
    function: Callable[..., Any], value: Expression, args: list[Expression], options: dict[str, Expression]
) -> Expression:
    if not args and not options:
        return lambda frame: function(frame, _admitted(value(frame)))

    def apply(frame: Frame) -> Any:
        owner = _admitted(value(frame))
        values = [_admitted(arg(frame)) for arg in args]
        return function(frame, owner, *values, **{name: _admitted(option(frame)) for name, option in options.items()})

    return apply


def _compared(first: Expression, comparisons: list[tuple[operators.Binary, Expression]]) -> Expression:
    def compare(frame: Frame) -> bool:
        left = first(frame)
        for test, term in comparisons:
            right = term(frame)
            if not test(frame, left, right):
                return False
            left = right
        return True

    return compare


_NODES: dict[str, Callable[[Compiler, Any], Expression]] = {
    "Name": Compiler.chain,
    "Getattr": Compiler.chain,
    "Getitem": Compiler.chain,
    "Const": Compiler.constant,
    "List": Compiler.sequence,
    "Tuple": Compiler.sequence,
    "Dict": Compiler.mapping,
    "And": Compiler.logical,
    "Or": Compiler.logical,
    "Not": Compiler.negation,
    "Neg": Compiler.sign,
    "Pos": Compiler.sign,
    "Compare": Compiler.compare,
    "Concat": Compiler.concat,
    "CondExpr": Compiler.conditional,
    "Filter": Compiler.filter,
    "Test": Compiler.test,
    "Call": Compiler.call,
    **dict.fromkeys(operators.BINARY, Compiler.binary),
}
