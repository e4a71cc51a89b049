"""The names in scope of a template, by place (first match wins).

admission, step.args, loop.in   event args ctx workload execution_id · step names · bare workload keys
task fields and policies        args iter ctx workload _prev _task _attempt execution_id (outcome) · labels · steps · bare
choose, while, until            args iter ctx workload _prev execution_id · labels · steps · bare
arcs                            event outcome ctx workload args execution_id · step names · bare workload keys

A step or task that has not run is known as well: `absent` describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from arclog.core.flow import final_step
from arclog.core.flow.reducers import merged
from arclog.core.transitions.state import State, StepRun
from arclog.expr import Meter, Reader, Scope, Stored, View
from arclog.model.commands import Captured, Pipeline
from arclog.model.ids import timestamp
from arclog.model.outcome import widened
from arclog.model.refs import FILE
from arclog.plan.program import Absent, Program

if TYPE_CHECKING:
    from arclog.core.flow.pipeline import Frame, Run


#: Fields about storage. They are not part of the view, where they would hide keys of the data once it is large.
_BOOKKEEPING = frozenset({"result_ref", "extracted", "left_out", "results_in_log"})


class Views(Mapping[str, Any]):
    """Outcome records by name. Each becomes a view when it is looked up."""

    __slots__ = ("_read", "_records")

    def __init__(self, records: Mapping[str, Any], read: Reader | None = None) -> None:
        self._records = records
        self._read = read

    def __getitem__(self, name: str) -> View:
        return view(self._records[name], self._read)

    def get(self, name: str, default: Any = None) -> Any:
        record = self._records.get(name)
        return default if record is None else view(record, self._read)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)


class _Lazy(Mapping[str, Any]):
    """Names whose values are computed when they are looked up: few templates use them."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, tuple[Callable[..., Any], Any, Any]]) -> None:
        #: name → a function and its two arguments
        self._values = values

    def __getitem__(self, name: str) -> Any:
        compute, first, second = self._values[name]
        return compute(first, second)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self._values else default

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def view(record: Mapping[str, Any], read: Reader | None = None) -> View:
    """Return an outcome record as templates see it. A stored payload is read with `read`."""
    wide = widened(record)
    extracted = record.get("extracted")
    ref = record.get("result_ref")
    if ref is not None:
        data = Stored(ref, read, extracted, record.get("left_out"))
        wide["data"] = data
        where = record.get("data_at")
        wide["result"] = {**(record.get("result") or {}), where: data} if where else data
    elif extracted:
        # Parts named by `select` are available by name, whether the data is stored or not.
        for name, value in extracted.items():
            wide.setdefault(name, value)
    if read is not None and read.opens_files and isinstance(files := record.get("files"), dict):
        wide["files"] = {name: Stored({"kind": FILE, "of": ref}, read) for name, ref in files.items()}
    if "results_in_log" in record:
        wide["results"] = Stored(record["results_in_log"], read)
    for name in _BOOKKEEPING & wide.keys():
        del wide[name]
    return View(wide)


def task_scope(
    pipeline: Pipeline, frame: Frame, move: Run, record: Mapping[str, Any] | None = None, keychain: Any = None
) -> Scope:
    """Return the names for a task's fields; with an outcome record, those for its policy."""
    own, lazy, scope = _names_between(pipeline, frame)
    lazy["_task"] = (_task_names, frame, move)
    own["_attempt"] = move.attempt
    if record is not None:
        lazy["outcome"] = (view, record, frame.read)
    elif keychain is not None:
        own["keychain"] = keychain
    return scope


def _task_names(frame: Frame, move: Run) -> dict[str, Any]:
    """Return the value of `_task` in templates."""
    plan = move.task.plan
    return {"name": plan.name, "kind": plan.kind, "run": move.task_run, "key": task_key(frame, move)}


def guard_scope(pipeline: Pipeline, frame: Frame) -> Scope:
    """Return the names for conditions between two tasks."""
    return _names_between(pipeline, frame)[2]


def _names_between(pipeline: Pipeline, frame: Frame) -> tuple[dict[str, Any], dict[str, Any], Scope]:
    captured, read = frame.captured, frame.read
    own: dict[str, Any] = {
        "args": frame.args,
        "iter": _iter(pipeline, read) if pipeline.stored else pipeline.iter,
        "ctx": ctx_of(pipeline, frame) if pipeline.ctx else captured.ctx,
        "workload": captured.workload,
        "execution_id": frame.execution_id,
    }
    lazy: dict[str, Any] = {"_prev": (view, pipeline.results[pipeline.prev], read)} if pipeline.prev else {}
    layers = (own, _Lazy(lazy), Views(pipeline.results, read), Views(captured.steps, read), captured.bare)
    return own, lazy, Scope(*layers, absent=frame.names.absent)


def ctx_of(pipeline: Pipeline, frame: Frame) -> dict[str, Any]:
    """Return ctx as a pipeline sees it: the captured values with the pipeline's changes."""
    ctx = frame.captured.ctx
    return ctx if not pipeline.ctx else {**ctx, **merged(frame.names.reducers, ctx, pipeline.ctx)}


def _iter(pipeline: Pipeline, read: Reader | None) -> Mapping[str, Any]:
    return {**pipeline.iter, **{name: Stored(ref, read) for name, ref in pipeline.stored.items()}}


def task_key(frame: Frame, move: Run) -> str:
    """Return the idempotency key of a task run. It is the same for all attempts."""
    where = "" if frame.iteration is None else ".".join(map(str, frame.iteration))
    return f"{frame.execution_id}:{frame.step}:{frame.run}:{where}:{move.task.plan.name}:{move.task_run}"


def arrival_scope(
    program: Program, state: State, event: Mapping[str, Any], args: Mapping[str, Any], meter: Meter | None = None
) -> Scope:
    """Return the names for admission, `step.args` and `loop.in`."""
    own = {
        "event": event,
        "args": args,
        "ctx": state.ctx,
        "workload": state.workload,
        "execution_id": str(state.execution_id),
    }
    return _server_scope(program, state, own, meter, event)


def _server_scope(
    program: Program, state: State, own: dict[str, Any], meter: Meter | None, event: Mapping[str, Any] | None = None
) -> Scope:
    layers: tuple[Mapping[str, Any], ...] = (own, Views(state.results), state.workload, _RunNames(program, state))
    if event is not None and final_step.is_final(event):
        more = final_step.names(dict(event))
        layers = (*layers, {name: value for name, value in more.items() if name not in program.steps})
    return Scope(*layers, absent=program.names.absent, meter=meter)


class _RunNames(Mapping[str, Any]):
    """Names about the run itself, such as `run.started_at`; all other names take precedence."""

    __slots__ = ("_is_step", "_state")

    def __init__(self, program: Program, state: State) -> None:
        self._state = state
        self._is_step = "run" in program.steps

    def __getitem__(self, name: str) -> Any:
        if name != "run" or self._is_step:
            raise KeyError(name)
        return run_values(self._state)

    def __iter__(self) -> Iterator[str]:
        yield "run"

    def __len__(self) -> int:
        return 1


def run_values(state: State) -> dict[str, Any]:
    """Return the value of `run` in templates."""
    return {"started_at": None if state.started_at is None else timestamp(state.started_at)}


def items_scope(frame: Frame, event: Mapping[str, Any]) -> Scope:
    """Return the names for a `loop.in` that a worker evaluates: the same as those of `arrival_scope`."""
    captured = frame.captured
    own = {
        "event": event,
        "args": frame.args,
        "ctx": captured.ctx,
        "workload": captured.workload,
        "execution_id": frame.execution_id,
    }
    absent = Absent(frame.names.absent.steps)
    return Scope(own, Views(captured.steps, frame.read), captured.bare, absent=absent)


def inner_scope(
    program: Program, state: State, step_run: StepRun, iteration: Mapping[str, Any], meter: Meter | None = None
) -> Scope:
    """Return the names for an inner `loop.in`."""
    own = {
        "event": step_run.arrival,
        "args": step_run.args,
        "iter": iteration,
        "ctx": state.ctx,
        "workload": state.workload,
        "execution_id": str(state.execution_id),
    }
    return _server_scope(program, state, own, meter, step_run.arrival)


def arc_scope(program: Program, state: State, step_run: StepRun, meter: Meter | None = None) -> Scope:
    """Return the names for arc conditions and arc args."""
    own: dict[str, Any] = {
        "event": step_run.boundary,
        "ctx": state.ctx,
        "workload": state.workload,
        "args": step_run.args,
        "execution_id": str(state.execution_id),
    }
    # A run that ended before any task has an outcome as well; that of an earlier run would mislead.
    record = step_run.record or {"status": "error" if step_run.state == "failed" else "ok", "error": step_run.error}
    lazy = _Lazy({"outcome": (view, record, None)})
    layers = (own, lazy, Views(state.results), state.workload, _RunNames(program, state))
    return Scope(*layers, absent=program.names.absent, meter=meter)


def result_scope(program: Program, state: State, meter: Meter | None = None) -> Scope:
    """Return the names for `executor.spec.result`."""
    own = {"ctx": state.ctx, "workload": state.workload, "execution_id": str(state.execution_id)}
    return _server_scope(program, state, own, meter)


def capture(state: State, needs: Any) -> Captured:
    """Copy the values of the names that a step run's tasks use."""
    bare = _picked(state.workload, needs.bare)
    if "run" in needs.bare and "run" not in bare:
        bare["run"] = run_values(state)
    return Captured(
        _picked(state.ctx, needs.ctx),
        _picked(state.workload, needs.workload),
        _picked(state.results, needs.steps),
        bare,
    )


def _picked(values: dict[str, Any], keys: set[str] | None) -> dict[str, Any]:
    if keys is None:
        return values
    return {key: values[key] for key in keys if key in values} if keys else {}
