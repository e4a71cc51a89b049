"""Templates: one text of a playbook, compiled once, evaluated in many scopes.

Invariant: `evaluate` returns JSON data or raises ExpressionError; the result is never evaluated as a template again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from arclog.expr.budget import DEFAULT_LIMITS, Failure, Limits
from arclog.expr.compiler.parse import has_markers, parse_expression, parse_lone, parse_template
from arclog.expr.convert import composed, passed_through
from arclog.expr.frame import Expression, Frame, Statement, translated
from arclog.expr.stored import Stored
from arclog.expr.values import Undefined
from arclog.model.errors import NOWHERE, ExpressionError, Position

if TYPE_CHECKING:
    from jinja2 import nodes

    from arclog.expr.compiler.compile import Compiler

# The compiler, and with it the filters, is loaded for the first text with a template: many playbooks have none.

_REMEDY = "a condition is one {{ expression }}, a bare expression, or true or false"


class Code(Struct, frozen=True):
    """The compiled form of a text, independent of its location."""

    #: None for a text without template markers, whose literal `finish` returns
    run: Expression | None
    finish: Finish
    #: the longest static path of keys for each use of a free name
    paths: frozenset[tuple[str, ...]]
    #: the same with constant indexes among the keys
    reads: frozenset[tuple[str | int, ...]]
    #: the names that the scope must have
    free: frozenset[str]
    slots: int
    #: number of nodes
    nodes: int = 0


class Template:
    """A compiled text. Immutable; safe to share and to evaluate many times."""

    __slots__ = ("_finish", "_limits", "_nodes", "_run", "_slots", "at", "constant", "free", "paths", "reads", "source")

    def __init__(self, source: str, at: Position, limits: Limits, code: Code) -> None:
        self.source = source
        self.at = at
        #: whether it has no template markers: evaluate returns the literal
        self.constant = code.run is None
        self.paths = code.paths
        self.reads = code.reads
        self.free = code.free
        self._run = code.run
        self._finish = code.finish
        self._slots = code.slots
        self._nodes = code.nodes
        self._limits = limits

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Return the template's value in `scope`."""
        run = self._run
        if run is None:
            return self._finish(None, None)
        frame = Frame(scope, self._limits, self._slots, self._nodes)
        try:
            if frame.work < 0:
                frame.more_work()
            value = self._finish(frame, run(frame))
        except Exception as error:  # noqa: BLE001  # the one place where every Python error becomes the author's
            raise self._failed(frame, error)  # noqa: B904  # it has its cause
        if frame.meter is not None:
            frame.settle(frame.meter)
        return value

    def evaluate_items(self, scope: Mapping[str, Any]) -> Any:
        """Like `evaluate`, but return a range or stored data as it is."""
        run = self._run
        if run is None:
            return self._finish(None, None)
        frame = Frame(scope, self._limits, self._slots, self._nodes)
        try:
            if frame.work < 0:
                frame.more_work()
            value = run(frame)
            if type(value) is not range and type(value) is not Stored:
                value = self._finish(frame, value)
        except Exception as error:  # noqa: BLE001  # as in evaluate
            raise self._failed(frame, error)  # noqa: B904  # as in evaluate
        if frame.meter is not None:
            frame.settle(frame.meter)
        return value

    def _failed(self, frame: Frame, error: Exception) -> ExpressionError:
        if frame.meter is not None:
            frame.kept = 0
            frame.settle(frame.meter)
        return _placed(error, self.source, self.at)

    def __repr__(self) -> str:
        return f"Template({self.source!r})"


#: Converts the result of the closures to the template's value.
Finish = Callable[[Any, Any], Any]
#: Maximum length of cached texts; longer ones are rare, and caching them would let a playbook fill the memory.
_KEPT_LENGTH = 512
#: Maximum number of parts of an arranged value; more of them could repeat the same data.
_ARRANGED = 32


def compile_text(source: str, at: Position = NOWHERE, limits: Limits = DEFAULT_LIMITS) -> Template:
    """Compile a field: one `{{ expr }}` has its native value, other text is a string, text without markers itself."""
    if not has_markers(source):
        return _literal(source, source, at)
    try:
        code = _text_code if len(source) <= _KEPT_LENGTH else _text_code.__wrapped__
        return Template(source, at, limits, code(source))
    except Exception as error:  # noqa: BLE001  # as in evaluate
        placed = _placed(error, source, at)
        raise placed from placed.__cause__


def compile_condition(source: str | bool, at: Position = NOWHERE, limits: Limits = DEFAULT_LIMITS) -> Template:
    """Compile a `when`: a single `{{ expr }}`, a bare expression or a boolean; its value is a bool."""
    if isinstance(source, bool):
        return _literal(str(source).lower(), source, at)
    if not source.strip():
        raise ExpressionError(f"the condition is empty; {_REMEDY}", at)
    try:
        code = _condition_code if len(source) <= _KEPT_LENGTH else _condition_code.__wrapped__
        return Template(source, at, limits, code(source))
    except Exception as error:  # noqa: BLE001  # as in evaluate
        placed = _placed(error, source, at)
        raise placed from placed.__cause__


def compile_ending(
    source: str, last: str, at: Position = NOWHERE, limits: Limits = DEFAULT_LIMITS
) -> tuple[Template, bool]:
    """Compile a single `{{ expr }}` whose last filter may be `last`.

    Returns the template without it, and whether it was there.
    """
    from arclog.expr.compiler.compile import Compiler

    try:
        node: Any = _lone_expression(parse_template(source))
        if node is None:
            raise Failure("one {{ expression }} is expected here")
        ends = type(node).__name__ == "Filter" and node.name == last
        if ends and (node.args or node.kwargs):
            raise Failure(f"the filter {last} takes no arguments")
        inner = node.node if ends else node
        compiler = Compiler()
        run = compiler.expression(inner)
        code = _code(run, passed_through if _passes(inner) else composed, compiler)
    except Exception as error:  # noqa: BLE001  # as in evaluate
        placed = _placed(error, source, at)
        raise placed from placed.__cause__
    return Template(source, at, limits, code), ends


@lru_cache(maxsize=4096)
def _text_code(source: str) -> Code:
    from arclog.expr.compiler.compile import Compiler
    from arclog.expr.compiler.statements import TextCompiler

    body: list[nodes.Node] = []
    lone: nodes.Node | None = parse_lone(source)
    if lone is None:
        body = parse_template(source)
        lone = _lone_expression(body)
    if lone is not None:
        compiler = Compiler()
        run = compiler.expression(lone)
        return _code(run, passed_through if _passes(lone) else composed, compiler)
    text = TextCompiler()
    return _code(_rendered(text.body(body)), _as_it_is, text)


@lru_cache(maxsize=4096)
def _condition_code(source: str) -> Code:
    from arclog.expr.compiler.compile import Compiler

    node: nodes.Node | None
    if has_markers(source):
        node = parse_lone(source) or _lone_expression(parse_template(source))
        if node is None:
            raise Failure(f"{_REMEDY}; text around it is never part of one")
    else:
        node = parse_expression(source.rstrip())
    compiler = Compiler()
    return _code(compiler.expression(node), _truth, compiler)


def _code(run: Expression, finish: Finish, compiler: Compiler) -> Code:
    names = compiler.names
    paths = frozenset(names.paths)
    free = frozenset(path[0] for path in paths)
    return Code(run, finish, paths, frozenset(names.reads), free, names.slots, compiler.nodes)


def _literal(source: str, value: Any, at: Position) -> Template:
    return Template(
        source, at, DEFAULT_LIMITS, Code(None, lambda _, __: value, frozenset(), frozenset(), frozenset(), 0)
    )


def _as_it_is(frame: Frame, value: Any) -> Any:
    frame.kept = frame.size * frame.wide
    return value


def _passes(whole: Any) -> bool:
    # Return whether the value is data of the scope, at most rearranged: its size is then that of the data.
    from arclog.expr.filters.table import LENIENT_FILTERS

    parts = [whole]
    names = 0
    while parts:
        node = parts.pop()
        match type(node).__name__:
            case "Name":
                names += 1
            case "NoneType":
                pass
            case "Getattr" | "Getitem":
                parts.append(node.node)
            case "Const" if type(node.value) is not float:
                pass
            case "List" | "Tuple":
                parts.extend(node.items)
            case "Dict" if all(type(getattr(pair.key, "value", None)) is str for pair in node.items):
                parts.extend(pair.value for pair in node.items)
            case "And" | "Or":
                parts.extend((node.left, node.right))
            case "CondExpr":
                parts.extend((node.expr1, node.expr2))
            case "Filter" if node.name in LENIENT_FILTERS and not node.kwargs:
                parts.extend((node.node, *node.args))
            case _:
                return False
    return names <= _ARRANGED


def _rendered(body: Statement) -> Expression:
    def render(frame: Frame) -> str:
        body(frame)
        return frame.rendered()

    return render


def _truth(_: Frame, value: Any) -> bool:
    if type(value) is Undefined and value.why != Undefined.NOT_RUN:
        raise value.failure()
    return bool(value)


def _lone_expression(body: list[nodes.Node]) -> nodes.Node | None:
    # Return the expression of a text that is otherwise white space, else None.
    parts: list[nodes.Node] = []
    for statement in body:
        if type(statement).__name__ != "Output":
            return None
        for part in statement.nodes:  # type: ignore[attr-defined]  # an Output
            if type(part).__name__ != "TemplateData":
                parts.append(part)
            elif part.data.strip():
                return None
    return parts[0] if len(parts) == 1 else None


def _placed(error: Exception, source: str, at: Position) -> ExpressionError:
    failure = translated(error)
    if at.line and failure.line > 1:
        at = Position(at.line + failure.line - 1, 1)
    placed = ExpressionError(failure.message, at, source)
    placed.__cause__ = failure.__cause__
    return placed


# A nested value of a playbook whose strings are templates; keys never are.


Locate = Callable[[tuple[str | int, ...]], Position]
_Build = Callable[[Mapping[str, Any]], Any]
_MAX_DEPTH = 100


def nowhere(_: tuple[str | int, ...]) -> Position:
    """Return the unknown position, for values that are not from a file."""
    return NOWHERE


class Compiled(Protocol):
    """A part of a nested value: a template, or a part compiled in another way."""

    @property
    def constant(self) -> bool: ...
    @property
    def free(self) -> frozenset[str]: ...
    @property
    def paths(self) -> frozenset[tuple[str, ...]]: ...
    @property
    def reads(self) -> frozenset[tuple[str | int, ...]]: ...


class Tree:
    """A compiled nested value. Each evaluation builds new lists and dicts, so callers cannot change the plan."""

    __slots__ = ("_build", "_whole", "constant", "free", "paths", "reads")

    def __init__(self, build: _Build, templates: Sequence[Compiled], whole: Template | None = None) -> None:
        self._build = build
        self._whole = whole
        self.constant = all(template.constant for template in templates)
        self.free = frozenset[str]().union(*(template.free for template in templates))
        self.paths = frozenset[tuple[str, ...]]().union(*(template.paths for template in templates))
        self.reads = frozenset[tuple[str | int, ...]]().union(*(template.reads for template in templates))

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Return the value with every template evaluated; the limits apply to each template."""
        return self._build(scope)

    def evaluate_items(self, scope: Mapping[str, Any]) -> Any:
        """Like `evaluate`, but return a range or stored data as it is."""
        return self._build(scope) if self._whole is None else self._whole.evaluate_items(scope)


#: Shared: most arcs have no arguments, and a plan has thousands of them.
_EMPTY = Tree(lambda _: {}, ())


def compile_tree(value: Any, locate: Locate = nowhere, limits: Limits = DEFAULT_LIMITS) -> Tree:
    """Compile every string inside `value`; `locate` returns the position of the value at a path of keys."""
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
