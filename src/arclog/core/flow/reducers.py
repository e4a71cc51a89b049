"""Reducers: how the values that `set_ctx` contributes to a declared ctx key are combined, and how iterations write ctx.

Invariant: a contribution is kept as a *part*, the reducer's result for the values so far. Parts of one key are combined
in order: those of a pipeline as they come, those of iterations in item order, those of step runs as they end. Combining
is associative (except for the rounding of floats), so the grouping of parts does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec.json import Encoder, encode
from msgspec.structs import replace

from arclog.core.transitions.state import Gathered, State, StepRun, path_key, path_of
from arclog.model.commands import Captured, Pipeline
from arclog.model.config.reducers import kind, misfit, unfit
from arclog.model.outcome import TaskError, error
from arclog.plan.program import Program

_canonical = Encoder(order="deterministic").encode

#: Error code: a reducer cannot take a value, or cannot continue from one.
REFUSED = "CTX_REDUCER"
#: Reducers whose result grows with every value.
GROWING = frozenset({"append", "union", "merge"})


def begun(reducer: str, value: Any) -> Any:
    """Return the part for one value."""
    match reducer:
        case "count":
            return 1
        case "append":
            return [value]
        case "union":
            return _distinct([value if isinstance(value, list) else [value]])
    return value


def combined(reducer: str, start: Any, *parts: Any) -> Any:
    """Combine the current value (None if there is none) with later parts, in order."""
    values = parts if start is None else (start, *parts)
    return values[0] if len(values) == 1 else _COMBINE[reducer](values)


def extended(reducers: Mapping[str, str], patch: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the values of one more rule to a pipeline's changes of ctx.

    The result has parts for keys with a reducer and values for all others. Values that their reducers cannot take are
    left out; `refused` reports them.
    """
    changed = dict(patch)
    for key, value in values.items():
        reducer = reducers.get(key)
        if reducer is None:
            changed[key] = value
        elif not misfit(reducer, value):
            changed[key] = combined(reducer, patch.get(key), begun(reducer, value))
    return changed


def merged(reducers: Mapping[str, str], ctx: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a patch after it is applied to ctx, without those that `unfitting` rejects."""
    if reducers.keys().isdisjoint(patch):
        return dict(patch)
    changed: dict[str, Any] = {}
    for key, value in patch.items():
        reducer = reducers.get(key)
        if reducer is None:
            changed[key] = value
        elif not unfit(reducer, ctx.get(key)):
            result = combined(reducer, ctx.get(key), value)
            if not _overflows(result):
                changed[key] = result
    return changed


def unfitting(
    reducers: Mapping[str, str], ctx: Mapping[str, Any], patch: Mapping[str, Any], most: int
) -> TaskError | None:
    """Return why a patch cannot be applied to ctx, or None.

    The reducer cannot continue from the current value, a sum exceeds the range of floats, or the result exceeds `most`
    bytes.
    """
    for key in sorted(reducers.keys() & patch.keys()):
        wrong = unfit(reducers[key], ctx.get(key))
        if wrong:
            message = f"ctx.{key} is {wrong}, which the reducer {reducers[key]} cannot continue from"
            return error("conflict", message, code=REFUSED)
        value = combined(reducers[key], ctx.get(key), patch[key])
        if _overflows(value):
            return error("conflict", f"the sum ctx.{key} is larger than a float can be", code=REFUSED)
        if reducers[key] in GROWING:
            size = len(encode(value))
            if size > most:
                message = (
                    f"ctx.{key} has grown to {size} bytes; at most {most} are kept (limits.max_loop_results_bytes)"
                )
                return error("limit", message, code="MAX_CTX_BYTES")
    return None


def refused(reducers: Mapping[str, str], values: Mapping[str, Any]) -> TaskError | None:
    """Return why a value of a `set_ctx` cannot be contributed, or None."""
    for key, value in values.items():
        wrong = misfit(reducers[key], value) if key in reducers else ""
        if wrong:
            message = f"set_ctx gives ctx.{key} {wrong}, which the reducer {reducers[key]} cannot take"
            return error("conflict", message, code=REFUSED)
    return None


def _overflows(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _sum(parts: Sequence[Any]) -> Any:
    try:
        return sum(parts)
    except OverflowError:  # an integer that is too large for the float to which it is added
        return math.inf


def _smallest(parts: Sequence[Any]) -> Any:
    """Return the minimum. Between 1 and 1.0 prefer the integer, whichever comes first."""
    return min(parts, key=lambda value: (value, not isinstance(value, int)))


def _largest(parts: Sequence[Any]) -> Any:
    return max(parts, key=lambda value: (value, isinstance(value, int)))


def _distinct(parts: Sequence[list[Any]]) -> list[Any]:
    """Return the distinct values, in order."""
    distinct: dict[bytes, Any] = {}
    for item in chain.from_iterable(parts):
        distinct.setdefault(_canonical(item), item)
    return list(distinct.values())


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for part in parts:
        mapping.update(part)
    return mapping


_COMBINE: dict[str, Callable[[Sequence[Any]], Any]] = {
    "sum": _sum,
    "count": sum,
    "min": _smallest,
    "max": _largest,
    "append": lambda parts: list(chain.from_iterable(parts)),
    "union": _distinct,
    "merge": _merged,
    "last": lambda parts: parts[-1],
}


# Writes of iterations to ctx.
#
# A sequential loop writes ctx as it proceeds: the next iteration sees the change. In a parallel loop a key is written
# once (equal values are allowed) or has a declared reducer; the gathered values appear in ctx when the loop is done. The
# result never depends on the order in which iterations end: parts whose order matters are combined in item order, at
# the end.


#: Every float is a multiple of 1/_UNIT, so sums of floats can be kept exact and do not depend on their order.
_UNIT = 1 << 1074
#: Reducers whose result does not depend on the order fold values as they come; the others keep all values until the
#: end.
_ANY_ORDER = frozenset({"sum", "count", "min", "max"})


def parts_of(program: Program, patch: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the changes of an iteration to ctx, as parts, and the key whose value its reducer rejects, or ''.

    In plans of format 1 an iteration contributes only the last value that it set.
    """
    declared = program.declared
    if program.names.reducers or declared.keys().isdisjoint(patch):
        return patch, ""
    bad = next((key for key, value in patch.items() if key in declared and misfit(declared[key], value)), "")
    return extended(declared, {}, patch), bad


def after(program: Program, captured: Captured, patch: dict[str, Any]) -> Captured:
    """The ctx that the next iteration of a sequential loop sees."""
    parts, _ = parts_of(program, patch)
    return replace(captured, ctx={**captured.ctx, **merged(program.declared, captured.ctx, parts)})


def take(program: Program, state: State, step_run: StepRun, path: tuple[int, ...], pipeline: Pipeline) -> None:
    """Apply the writes of an ended iteration, or gather them until the loop is done."""
    patch, problem = pipeline.ctx, pipeline.error or {}
    if problem.get("code") == REFUSED:
        gathered = step_run.gathered = step_run.gathered or Gathered()
        gathered.problem = gathered.problem or {
            **problem,
            "message": f"iteration {path_key(path)}: {problem['message']}",
        }
    if not patch:
        return
    parts, bad = parts_of(program, patch)
    if bad:
        gathered = step_run.gathered = step_run.gathered or Gathered()
        gathered.problem = gathered.problem or _cannot_take(path_key(path), bad, patch[bad], program.declared[bad])
    if not is_parallel(program, step_run.step):
        _watch(program, state, step_run, path, parts)
        state.ctx = {**state.ctx, **merged(program.declared, state.ctx, parts)}
        step_run.captured = after(program, step_run.captured, patch)
        return
    gathered = step_run.gathered = step_run.gathered or Gathered()
    for key, value in parts.items():
        if gathered.problem is None:
            _gather(program, gathered, path, key, value)


def finish(program: Program, state: State, step_run: StepRun) -> None:
    """Apply the gathered writes of an ended loop to ctx."""
    patch, _ = outcome(program, state, step_run)
    if patch:
        state.ctx = {**state.ctx, **patch}


def finish_step(program: Program, state: State, step_run: StepRun, pipeline: Pipeline) -> None:
    """Apply the writes of an ended step run without a loop to ctx, or record why they cannot be applied."""
    reducers = program.names.reducers
    problem = unfitting(reducers, state.ctx, pipeline.ctx, program.plan.limits.max_loop_results_bytes)
    if problem is not None:
        step_run.gathered = Gathered(problem=problem.as_dict())
    state.ctx = {**state.ctx, **merged(reducers, state.ctx, pipeline.ctx)}


def outcome(program: Program, state: State, step_run: StepRun) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the changes of an ended loop to ctx, and the error if they are impossible."""
    gathered = step_run.gathered
    if gathered is None or not is_parallel(program, step_run.step):
        return {}, None
    # Sorted, so that the order of ctx's keys does not depend on timing.
    patch = dict(sorted(gathered.written.items()))
    for key in sorted({*gathered.folded, *gathered.exact, *gathered.ordered}):
        reducer = program.declared[key]
        start = state.ctx.get(key)
        wrong = unfit(reducer, start)
        if wrong:
            message = f"ctx.{key} was {wrong} before the loop of step {step_run.step}, which the reducer {reducer} cannot continue from"
            return {}, error("conflict", message, code=REFUSED).as_dict()
        if reducer == "sum":
            try:
                patch[key] = _total(start or 0, gathered.folded.get(key, 0), gathered.exact.get(key))
            except OverflowError:
                message = f"the sum ctx.{key} of step {step_run.step} is larger than a float can be"
                return {}, error("conflict", message, code=REFUSED).as_dict()
        elif key in gathered.folded:
            patch[key] = combined(reducer, start, gathered.folded[key])
        else:
            by_path = gathered.ordered[key]
            patch[key] = combined(reducer, start, *(by_path[path] for path in sorted(by_path, key=path_of)))
    return patch, None


def _total(start: Any, integers: int, exact: str | None) -> Any:
    if exact is None and isinstance(start, int):
        return start + integers
    units = int(exact or "0", 16) + integers * _UNIT + _units(start)
    return units / _UNIT


def _units(value: Any) -> int:
    numerator, denominator = value.as_integer_ratio()
    return int(numerator * (_UNIT // denominator))


def is_parallel(program: Program, step: str) -> bool:
    """Return whether any level of the step's loop runs items in parallel."""
    plan = program.steps[step].plan.loop
    while plan is not None:
        if plan.mode == "parallel":
            return True
        plan = plan.inner
    return False


def _gather(program: Program, gathered: Gathered, path: tuple[int, ...], key: str, part: Any) -> None:
    where = path_key(path)
    reducer = program.declared.get(key)
    if reducer is None:
        if key in gathered.written and _canonical(gathered.written[key]) != _canonical(part):
            message = (
                f"iteration {where} set ctx.{key} to another value than an iteration before; "
                f"declare a reducer: executor.spec.ctx: {{{key}: {{reducer: …}}}}"
            )
            gathered.problem = error("conflict", message, code="CTX_CONFLICT").as_dict()
        gathered.written.setdefault(key, part)
    elif reducer == "last":
        earlier = gathered.ordered.get(key)
        if not earlier or path >= max(map(path_of, earlier)):
            gathered.ordered[key] = {where: part}
    elif reducer not in _ANY_ORDER:
        gathered.ordered.setdefault(key, {})[where] = part
        gathered.ordered_bytes += len(encode(part))
    elif reducer == "sum" and isinstance(part, float):
        gathered.exact[key] = hex(int(gathered.exact.get(key, "0"), 16) + _units(part))
    else:
        gathered.folded[key] = combined(reducer, gathered.folded.get(key), part)


def _watch(program: Program, state: State, step_run: StepRun, path: tuple[int, ...], parts: dict[str, Any]) -> None:
    """Check that reducers can continue from the ctx values of a sequential loop, and count the gathered bytes."""
    for key, part in parts.items():
        reducer = program.declared.get(key)
        if reducer is None:
            continue
        gathered = step_run.gathered = step_run.gathered or Gathered()
        wrong = unfit(reducer, state.ctx.get(key))
        if wrong:
            message = f"ctx.{key} was {wrong} before iteration {path_key(path)}, which the reducer {reducer} cannot continue from"
            gathered.problem = gathered.problem or error("conflict", message, code=REFUSED).as_dict()
        elif reducer in GROWING:
            gathered.ordered_bytes += len(encode(part))


def _cannot_take(where: str, key: str, value: Any, reducer: str) -> dict[str, Any]:
    message = f"iteration {where} set ctx.{key} to {kind(value)}, which the reducer {reducer} cannot take"
    return error("conflict", message, code=REFUSED).as_dict()
