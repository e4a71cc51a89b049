"""`arclog.kind` makes a tool kind from one function or class.

The config is declared once, by the function's parameters or by a msgspec Struct. The keys that a task may have, their
types and defaults, the JSON Schema and the findings of `arclog check` are derived from it.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from typing import Any, overload

import msgspec
from msgspec import NODEFAULT, Struct

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome, error, failed
from arclog.ports.tool import TaskContext, TaskFailed, Tool, ToolKind, ToolServices

_OWN = {"name", "kind", "spec", "desc", "auth"}


@overload
def kind(source: Callable[..., Any], /) -> CustomKind: ...


@overload
def kind(*, name: str = "", effectful: bool = True) -> Callable[[Callable[..., Any]], CustomKind]: ...


def kind(source: Callable[..., Any] | None = None, /, *, name: str = "", effectful: bool = True) -> Any:
    """Make a tool kind from a function or a class.

        @arclog.kind
        def shout(text: str, times: int = 1) -> str:
            \"\"\"Returns a text in capitals.\"\"\"
            return text.upper() * times

        arclog.run("flow.yaml", kinds=[shout])

    A function's parameters are the keys of a task of this kind; a parameter without a default is required. A parameter named
    `context` gets the `TaskContext`. An ordinary function runs in a thread, a coroutine function on the worker's event loop. What
    it returns is the task's data; an exception fails the task with the error kind `exception`, `arclog.errors.TaskFailed` with
    the kind that it names.

    A class is for tools that keep something open. It has a coroutine method `run(self, config, context)` whose `config` is
    annotated with a msgspec Struct, and may have `close(self)`; both may be plain methods. It is made once for each worker.

    Args:
        source: The function or class.
        name: The name of the kind. Default: the name of the function, or that of the class in lower case.
        effectful: Whether a task can change something outside the run. The end of an effectful task is stored before the
            next one starts. False saves that commit; after a crash, several such tasks may run again.

    Returns:
        A kind, to be passed as `kinds=[…]` to `arclog.run`, `arclog.open` and `arclog.testing.play`, or named by an entry point of
        the group `arclog.kinds` so that every worker in that environment knows it. A kind made from a function can still be
        called as that function.

    Raises:
        TypeError: a parameter has no type annotation, or the class has no fitting `run`.

    """
    if source is None:
        return lambda decorated: _kind_of(decorated, name, effectful)
    return _kind_of(source, name, effectful)


class CustomKind(ToolKind, frozen=True):
    """A kind made by `arclog.kind`."""

    _source: Callable[..., Any]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the function, or create an object of the class, from which the kind was made."""
        return self._source(*args, **keywords)


def _kind_of(source: Callable[..., Any], name: str, effectful: bool) -> CustomKind:
    called = name or (source.__name__.lower() if isinstance(source, type) else source.__name__)
    config, opening = _of_class(source) if isinstance(source, type) else _of_function(source)
    doc = inspect.getdoc(source) or f"Tasks of kind {called}."
    spec = KindSpec(
        name=called,
        summary=" ".join(doc.partition("\n\n")[0].split()),
        fields=_fields(config, called),
        effectful=effectful,
    )
    return CustomKind(spec, opening, source)


class _Called:
    """The tool of a kind. It calls user code and converts its result or error into an outcome."""

    def __init__(self, config: type[Struct], work: Callable[..., Any], close: Callable[[], Any] | None = None) -> None:
        self.Config = config
        self._work = work
        self._is_async = inspect.iscoroutinefunction(work)
        self._close = close

    async def run(self, config: Any, context: TaskContext) -> Outcome:
        try:
            if self._is_async:
                value = await self._work(config, context)
            else:
                value = await asyncio.to_thread(self._work, config, _for_threads(context))
        except TaskFailed as problem:
            return failed(problem.error)
        except Exception as problem:  # noqa: BLE001 - whatever user code raises is the task's error
            name = type(problem).__name__
            text = "".join(traceback.format_exception(problem.with_traceback(_own(problem))))
            context.log("stderr", text)
            return failed(error("exception", f"{name}: {problem}" if str(problem) else name, code=name))
        return value if isinstance(value, Outcome) else Outcome(result=_as_data(value))

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        if self._close is not None:
            answer = self._close()
            if inspect.isawaitable(answer):
                await answer


def _for_threads(context: TaskContext) -> TaskContext:
    """Return the context for code in a thread: log lines and progress are passed to the event loop."""
    call = asyncio.get_running_loop().call_soon_threadsafe

    def log(stream: str, text: str) -> None:
        call(context.log, stream, text)

    def progress(done: float, total: float | None = None, unit: str = "") -> None:
        call(context.progress, done, total, unit)

    return msgspec.structs.replace(context, log=log, progress=progress)


def _own(problem: BaseException) -> Any:
    """Return the traceback without arclog's own frames."""
    frames = problem.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in (__name__, "concurrent.futures.thread"):
        frames = frames.tb_next
    return frames


def _as_data(value: Any) -> Any:
    """Convert a returned value to JSON data: Structs and dataclasses become maps, dates text."""
    return msgspec.to_builtins(value, str_keys=True)


def _of_function(function: Callable[..., Any]) -> tuple[type[Struct], Callable[[ToolServices], Tool]]:
    parameters = inspect.signature(function, eval_str=True).parameters
    name = function.__name__
    whole = [key for key, declared in parameters.items() if key != "context" and _is_struct(declared.annotation)]
    takes_context = "context" in parameters
    if whole:
        if set(parameters) - {whole[0], "context"}:
            raise TypeError(f"kind {name}: beside the Struct {whole[0]} a function takes only `context`")
        config = parameters[whole[0]].annotation

        def arguments(values: Any) -> dict[str, Any]:
            return {whole[0]: values}

    else:
        rows: list[Any] = []
        for key, parameter in parameters.items():
            if key == "context":
                continue
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"kind {name}: {parameter} cannot be a key of a task; name every parameter")
            if parameter.annotation is parameter.empty:
                raise TypeError(f"kind {name}: parameter {key} has no type; write for example `{key}: str`")
            rows.append(
                (key, parameter.annotation)
                if parameter.default is parameter.empty
                else (key, parameter.annotation, _default(parameter.default))
            )
        config = msgspec.defstruct(f"{name.title()}Config", rows, kw_only=True, forbid_unknown_fields=True)

        def arguments(values: Any) -> dict[str, Any]:
            return {key: getattr(values, key) for key in values.__struct_fields__}

    if inspect.iscoroutinefunction(function):

        async def awaited(values: Any, context: TaskContext) -> Any:
            more = {"context": context} if takes_context else {}
            return await function(**arguments(values), **more)

        return config, lambda _: _Called(config, awaited)

    def called(values: Any, context: TaskContext) -> Any:
        more = {"context": context} if takes_context else {}
        return function(**arguments(values), **more)

    return config, lambda _: _Called(config, called)


def _of_class(source: type[Any]) -> tuple[type[Struct], Callable[[ToolServices], Tool]]:
    run = getattr(source, "run", None)
    if run is None:
        raise TypeError(f"kind {source.__name__}: the class needs a method run(self, config, context)")
    parameters = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
    if len(parameters) != 2 or not _is_struct(parameters[0].annotation):
        raise TypeError(
            f"kind {source.__name__}: run takes (self, config, context), and config is annotated with a msgspec Struct"
        )

    def opening(_: ToolServices) -> Tool:
        tool = source()
        return _Called(parameters[0].annotation, tool.run, getattr(tool, "close", None))

    return parameters[0].annotation, opening


def _is_struct(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Struct)


def _default(value: Any) -> Any:
    """Return a default for msgspec. Lists and maps are copied for each use."""
    return msgspec.field(default_factory=lambda: type(value)(value)) if isinstance(value, list | dict | set) else value


def _fields(config: type[Struct], kind_name: str) -> tuple[Field, ...]:
    """Return the keys of a task, from the Struct's fields."""
    fields: list[Field] = []
    for row in msgspec.structs.fields(config):
        if row.encode_name in _OWN:
            raise TypeError(f"kind {kind_name}: {row.encode_name!r} is a key of every task; choose another name")
        default = None if row.default is NODEFAULT else row.default
        fields.append(
            Field(
                row.encode_name,
                _word(msgspec.inspect.type_info(row.type)),
                _description(row.type),
                required=row.required,
                default=default,
                template=True,
            )
        )
    return tuple(fields)


def _description(annotation: Any) -> str:
    for extra in getattr(annotation, "__metadata__", ()):
        if isinstance(extra, msgspec.Meta) and extra.description:
            return str(extra.description)
    return ""


def _word(shape: Any) -> str:
    """Return the name of a type, as in `model.data.shapes`."""
    names: dict[Any, str] = {
        msgspec.inspect.StrType: "string",
        msgspec.inspect.IntType: "integer",
        msgspec.inspect.FloatType: "number",
        msgspec.inspect.BoolType: "boolean",
        msgspec.inspect.NoneType: "null",
        msgspec.inspect.ListType: "list",
        msgspec.inspect.SetType: "list",
        msgspec.inspect.VarTupleType: "list",
        msgspec.inspect.TupleType: "list",
        msgspec.inspect.DictType: "object",
        msgspec.inspect.StructType: "object",
        msgspec.inspect.DataclassType: "object",
        msgspec.inspect.TypedDictType: "object",
    }
    if isinstance(shape, msgspec.inspect.Metadata):
        return _word(shape.type)
    if isinstance(shape, msgspec.inspect.UnionType):
        words = list(dict.fromkeys(_word(part) for part in shape.types))
        return "any" if "any" in words else "|".join(words)
    return names.get(type(shape), "any")
