"""Applies loop events to a state.

Invariant: the state holds the iterations in progress and a few totals, never ended iterations, so the state of a loop
with a million items stays small. Iterations of a chunk start in order; a started iteration that is not open has ended.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

from msgspec.json import encode

from arclog.core.flow import reducers
from arclog.core.flow.pipeline import last_record
from arclog.core.transitions import faults
from arclog.core.transitions.state import Chunk, Iteration, Loop, OpenCommand, State, StepRun, path_key, path_of
from arclog.model.commands import Pipeline
from arclog.model.errors import InvariantBroken, shortened
from arclog.model.events import Event, is_closing
from arclog.model.outcome import data_of
from arclog.plan.net import LoopPlan
from arclog.plan.program import Program, StepProgram

#: Maximum number of errors in loop.done (those of the first items), and maximum length of their messages.
MAX_ERRORS = 100
MAX_MESSAGE = 500
#: Weight of the newest item in the moving average of item times.
_NEWEST = 0.2
#: Bytes of `null` and a comma.
_NULL_BYTES = 5


def open_loop(event: Event, *, keeps_results: bool) -> Loop | None:
    """Return the step run's own loop, from its step.scheduled."""
    return opened(event, keeps_results=keeps_results) if "total" in event.payload else None


def opened(event: Event, *, keeps_results: bool) -> Loop:
    """Return the loop whose items an event has."""
    return Loop((), event.payload["total"], event.payload.get("items", []), results={} if keeps_results else None)


def open_chunk(step_run: StepRun, path: tuple[int, ...], first: int, last: int) -> Chunk:
    """Open a new chunk of a loop."""
    step_run.chunks_made += 1
    chunk = step_run.chunks[step_run.chunks_made] = Chunk(step_run.chunks_made, path, first, last, first)
    loop = loop_at(step_run, path)
    loop.handed = max(loop.handed, last)
    return chunk


def loop_at(step_run: StepRun, path: tuple[int, ...]) -> Loop:
    loops = step_run.loops
    loop = loops.get(path_key(path)) if path else loops.get("")
    if loop is None:
        raise InvariantBroken(f"step {step_run.step} run {step_run.run} has no loop at {path}")
    return loop


def chunk_with(step_run: StepRun, path: tuple[int, ...]) -> Chunk:
    """Return the chunk that contains an iteration."""
    index = path[-1]
    for chunk in step_run.chunks.values():
        if chunk.first <= index < chunk.last and chunk.path == path[:-1]:
            return chunk
    raise InvariantBroken(f"step {step_run.step} run {step_run.run}: no command has iteration {path_key(path)}")


def pipeline_of(step_run: StepRun, path: tuple[int, ...] | None) -> Pipeline:
    """Return the open pipeline of a step run, or of one of its iterations."""
    if path is None:
        pipeline = step_run.pipeline
    else:
        iteration = step_run.iterations.get(str(path[0]) if len(path) == 1 else path_key(path))
        pipeline = None if iteration is None else iteration.pipeline
    if pipeline is None:
        where = "" if path is None else f" iteration {path_key(path)}"
        raise InvariantBroken(f"step {step_run.step} run {step_run.run}{where} has no open pipeline")
    return pipeline


def iter_of(plan: LoopPlan, loop: Loop, index: int) -> dict[str, Any]:
    """Return the value of `iter` in templates at the start of an iteration."""
    names: dict[str, Any] = {} if are_stored(loop.items) else {plan.iterator: item_at(loop.items, index)}
    names["index"] = index
    names["total"] = loop.total
    if loop.parent is not None:
        names["parent"] = loop.parent
    return names


def level_of(step: StepProgram, path: tuple[int, ...]) -> LoopPlan:
    """Return the plan of the loop below these outer indexes."""
    levels = step.loops
    if len(path) >= len(levels):
        raise InvariantBroken(f"step {step.name} has no loop at depth {len(path)}")
    return levels[len(path)]


def iterator_of(step: StepProgram) -> str:
    """Return the name of the innermost loop's items; '' without a loop."""
    plan = step.plan.loop
    while plan is not None and plan.inner is not None:
        plan = plan.inner
    return "" if plan is None else plan.iterator


def started(program: Program, step_run: StepRun, event: Event) -> None:
    """Fold loop.iteration.started: open the pipeline of an innermost iteration.

    An outer one waits for its inner loop.
    """
    path = _path(event)
    outer, index = path[:-1], path[-1]
    plan = level_of(program.steps[event.step], outer)
    loop = loop_at(step_run, outer)
    if plan.inner is not None:
        loop.handed = max(loop.handed, index + 1)
        return
    chunk = chunk_with(step_run, path)
    chunk.next = index + 1
    chunk.open += 1
    pipeline = Pipeline(iter=iter_of(plan, loop, index))
    if are_stored(loop.items):
        pipeline.stored = {plan.iterator: stored_item(loop.items, index)}
    step_run.iterations[path_key(path)] = Iteration(event.at, pipeline, chunk.id)


def inner_started(step: StepProgram, step_run: StepRun, event: Event) -> None:
    """Fold loop.started of an inner loop."""
    path = _path(event)
    outer = loop_at(step_run, path[:-1])
    parent = iter_of(level_of(step, path[:-1]), outer, path[-1])
    items = event.payload.get("items", [])
    step_run.loops[path_key(path)] = Loop(path, event.payload["total"], items, parent=parent, started_at=event.at)


def ended(program: Program, state: State, step_run: StepRun, event: Event) -> None:
    """Fold loop.iteration.done or loop.iteration.failed."""
    path = _path(event)
    step, outer = program.steps[event.step], path[:-1]
    loop = loop_at(step_run, outer)
    failed = event.type == "loop.iteration.failed"
    inner = len(path) < len(step.loops)
    if failed and is_closing(event):
        _cancelled(step_run, path, inner=inner)
        return
    if failed:
        problem = event.payload.get("error") or {}
        loop.failed += 1
        insort(
            loop.errors, {"index": path[-1], **_with_short_message(problem)}, key=lambda earlier: int(earlier["index"])
        )
        del loop.errors[MAX_ERRORS:]
        if step.plan.failure_mode == "fail_fast":
            loop.broken = loop.broken or problem
    else:
        loop.ok += 1
    if inner:
        if failed:
            faults.item_failed(step, state, step_run, event, None)
        step_run.loops.pop(path_key(path), None)
        return
    iteration = step_run.iterations.pop(path_key(path))
    pipeline = iteration.pipeline
    if failed:
        faults.item_failed(step, state, step_run, event, pipeline)
    if pipeline.ctx or pipeline.error:
        reducers.take(program, state, step_run, path, pipeline)
    chunk = step_run.chunks[iteration.chunk] if iteration.chunk else chunk_with(step_run, path)
    chunk.open -= 1
    record = last_record(step, pipeline, failed=failed)
    count_ended(program, state, step_run, loop, chunk, path, event.at - iteration.started_at, record)


def count_ended(
    program: Program,
    state: State,
    step_run: StepRun,
    loop: Loop,
    chunk: Chunk,
    path: tuple[int, ...],
    taken: int,
    record: dict[str, Any] | None,
) -> None:
    """Fold the duration and the record of an ended iteration into its loop, and close its chunk after the last one."""
    taken = max(1, taken)
    loop.item_us = float(taken) if not loop.item_us else loop.item_us * (1 - _NEWEST) + taken * _NEWEST
    if record is not None and (loop.broken is not None or path >= step_run.record_of):
        # Not the iteration that ended last: that would depend on timing.
        step_run.record, step_run.record_of = record, path
    own = loop_at(step_run, ()) if loop.path else loop
    if own.results is not None:
        _keep_result(program, step_run, own, own.results, path_key(path), record)
    if chunk.open == 0 and chunk.next == chunk.last:
        del step_run.chunks[chunk.id]
        for command in [held for held in state.commands.values() if _runs(held, step_run, chunk)]:
            del state.commands[command.id]


def _cancelled(step_run: StepRun, path: tuple[int, ...], *, inner: bool) -> None:
    """Fold the end of an iteration that was closed from outside: it contributes nothing to the loop."""
    own = loop_at(step_run, ())
    own.cancelled += len(path) == 1
    if inner:
        step_run.loops.pop(path_key(path), None)
        return
    step_run.iterations.pop(path_key(path), None)
    if own.results is not None:
        own.results[path_key(path)] = None


def _with_short_message(problem: dict[str, Any]) -> dict[str, Any]:
    """Shorten the message of an error, so that a hundred errors fit in one event."""
    message = str(problem.get("message", ""))
    return problem if len(message) <= MAX_MESSAGE else {**problem, "message": shortened(message, MAX_MESSAGE)}


def _keep_result(
    program: Program, step_run: StepRun, own: Loop, results: dict[str, Any], key: str, record: dict[str, Any] | None
) -> None:
    """Keep an iteration's data if it is small, or if a template of the server reads it."""
    data = data_of(record) if record is not None else None
    own.results_bytes += len(encode(data))
    results[key] = data
    routed = step_run.step in program.results_routed
    too_much = own.results_bytes > program.plan.limits.inline_max_bytes and not routed
    if too_much or (record is not None and "result_ref" in record):
        own.results, own.results_bytes, own.results_in_log = None, 0, True


def manifest_of(program: Program, state: State, step_run: StepRun) -> dict[str, Any]:
    """Return the reference to the results of a loop in the log."""
    step, run = step_run.step, step_run.run
    # The total number of innermost items is known only to the reader of the results.
    nested = {"nested": True} if program.steps[step].loop.inner is not None else {}
    return {
        "kind": "loop",
        "ref": f"noetl://execution/{state.execution_id}/loop/{step}/{run}",
        "execution_id": str(state.execution_id),
        "step": step,
        "run": run,
        "total": loop_at(step_run, ()).total,
        **nested,
    }


def keep_results(program: Program, state: State, step_run: StepRun, record: dict[str, Any], *, gaps: bool) -> None:
    """Add the results of an ended loop to the step run's record (or to `record`) if a template reads them.

    With `gaps`, some items did not end; their results are null.
    """
    loop = loop_at(step_run, ())
    if gaps and loop.results is not None and program.steps[step_run.step].loop.inner is None:
        _fill_gaps(program, step_run, loop)
    if loop.results_in_log:
        step_run.record = {**(step_run.record or record), "results_in_log": manifest_of(program, state, step_run)}
    elif loop.results is not None:
        step_run.record = {**(step_run.record or record), "results": _in_order(loop.results)}


def _fill_gaps(program: Program, step_run: StepRun, loop: Loop) -> None:
    results = loop.results or {}
    size = loop.results_bytes + _NULL_BYTES * (loop.total - len(results))
    if size > program.plan.limits.inline_max_bytes and step_run.step not in program.results_routed:
        loop.results, loop.results_bytes, loop.results_in_log = None, 0, True
    else:
        loop.results = {str(index): results.get(str(index)) for index in range(loop.total)}


def _in_order(results: dict[str, Any]) -> list[Any]:
    """Return the data of all innermost iterations in item order."""
    return [results[key] for key in sorted(results, key=path_of)]


def _runs(command: OpenCommand, step_run: StepRun, chunk: Chunk) -> bool:
    return command.chunk == chunk.id and command.step == step_run.step and command.run == step_run.run


def _path(event: Event) -> tuple[int, ...]:
    if event.iteration is None:
        raise InvariantBroken(f"{event.type} of step {event.step} without an iteration")
    return event.iteration


# The items of a loop: a list, a range that is never expanded, or a stored list that only workers read.


def as_payload(items: list[Any] | range) -> Any:
    """Return the items in the form in which an event records them."""
    return {"range": [items.start, items.stop, items.step]} if isinstance(items, range) else items


def are_stored(items: Any) -> bool:
    return isinstance(items, dict) and "ref" in items


def item_at(items: Any, index: int) -> Any:
    if isinstance(items, dict):
        if "ref" in items:
            raise InvariantBroken("an item of a stored list was requested where stored data cannot be read")
        start, _, step = items["range"]
        return start + index * step
    return items[index]


def stored_item(items: dict[str, Any], index: int) -> dict[str, Any]:
    """Return the reference to an item of a stored list."""
    return {"kind": "item", "of": items["ref"], "index": items.get("first", 0) + index}


def part(items: Any, first: int, last: int) -> Any:
    """Return the items [first, last) in the same form."""
    if isinstance(items, dict):
        if "ref" in items:
            return {"ref": items["ref"], "first": items.get("first", 0) + first}
        start, _, step = items["range"]
        return {"range": [start + first * step, start + last * step, step]}
    return items[first:last]
