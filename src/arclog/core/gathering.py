"""How iterations write ctx.

A sequential loop writes as it goes: the next iteration sees it. In a parallel loop a key is written once (equal values
are fine) or has a declared reducer; what was gathered shows in ctx when the loop is done. The result never depends on
the order in which iterations end: reducers that care are folded in item order, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.json import encode
from msgspec.structs import replace

from arclog.core.state import Gathered, State, StepRun, path_key, path_of
from arclog.model.commands import Captured
from arclog.model.outcome import error
from arclog.plan.program import Program


def _sum(total: Any, value: Any) -> Any:
    return value if total is None else total + value


def _smaller(best: Any, value: Any) -> Any:
    return value if best is None or value < best else best


def _larger(best: Any, value: Any) -> Any:
    return value if best is None or value > best else best


def _count(total: Any, _value: Any) -> Any:
    return (total or 0) + 1


def _append(found: Any, value: Any) -> Any:
    return [*(found or []), value]


def _union(found: Any, value: Any) -> Any:
    known = list(found or [])
    return known + [item for item in _listed(value) if item not in known]


def _merge(found: Any, value: Any) -> Any:
    return {**(found or {}), **value}


def _last(_found: Any, value: Any) -> Any:
    return value


#: reducer → (fold, whether the order of the values matters)
REDUCERS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "sum": (_sum, False),
    "count": (_count, False),
    "min": (_smaller, False),
    "max": (_larger, False),
    "append": (_append, True),
    "union": (_union, True),
    "merge": (_merge, True),
    "last": (_last, True),
}


def reduced(program: Program, ctx: Mapping[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A patch with its declared keys folded into what ctx holds: what a sequential loop writes."""
    declared = program.plan.ctx
    if not declared or not any(key in declared for key in patch):
        return patch
    return {
        key: REDUCERS[declared[key]["reducer"]][0](ctx.get(key), value) if _has_reducer(program, key) else value
        for key, value in patch.items()
    }


def after(program: Program, captured: Captured, patch: dict[str, Any]) -> Captured:
    """What the next iteration of a sequential loop sees."""
    return replace(captured, ctx={**captured.ctx, **reduced(program, captured.ctx, patch)})


def take(program: Program, state: State, step_run: StepRun, path: tuple[int, ...], patch: dict[str, Any]) -> None:
    """An iteration has ended: let its writes take effect, or gather them until the loop is done."""
    if not patch:
        return
    if not is_parallel(program, step_run.step):
        state.ctx = {**state.ctx, **reduced(program, state.ctx, patch)}
        step_run.captured = after(program, step_run.captured, patch)
        return
    gathered = step_run.gathered = step_run.gathered or Gathered()
    for key, value in patch.items():
        if gathered.problem is None:
            _gather(program, gathered, path, key, value)


def finish(program: Program, state: State, step_run: StepRun) -> None:
    """The loop is over: what it gathered becomes visible."""
    gathered = step_run.gathered
    if gathered is None:
        return
    patch = dict(gathered.written)
    for key, value in gathered.folded.items():
        start = state.ctx.get(key)
        reducer = program.plan.ctx[key]["reducer"]
        patch[key] = (start or 0) + value if reducer == "count" else REDUCERS[reducer][0](start, value)
    for key, by_path in gathered.ordered.items():
        fold = REDUCERS[program.plan.ctx[key]["reducer"]][0]
        found = state.ctx.get(key)
        for path in sorted(by_path, key=path_of):
            found = fold(found, by_path[path])
        patch[key] = found
    if patch:
        state.ctx = {**state.ctx, **patch}


def is_parallel(program: Program, step: str) -> bool:
    """Whether any level of the step's loop runs items side by side."""
    plan = program.steps[step].plan.loop
    while plan is not None:
        if plan.mode == "parallel":
            return True
        plan = plan.inner
    return False


def _gather(program: Program, gathered: Gathered, path: tuple[int, ...], key: str, value: Any) -> None:
    where = path_key(path)
    if not _has_reducer(program, key):
        if key in gathered.written and gathered.written[key] != value:
            message = f"iteration {where} set ctx.{key} to another value than an iteration before; declare a reducer in executor.spec.ctx"
            gathered.problem = error("conflict", message, code="CTX_CONFLICT").as_dict()
        gathered.written.setdefault(key, value)
        return
    reducer = program.plan.ctx[key]["reducer"]
    misfit = _misfit(reducer, value)
    if misfit:
        message = f"iteration {where} gave ctx.{key} {misfit}, which the reducer {reducer} cannot take"
        gathered.problem = error("conflict", message, code="CTX_REDUCER").as_dict()
        return
    fold, ordered = REDUCERS[reducer]
    # The sum of floats depends on the order in which they are added.
    if ordered or isinstance(value, float):
        gathered.ordered.setdefault(key, {})[where] = value
        gathered.ordered_bytes += len(encode(value))
    else:
        gathered.folded[key] = fold(gathered.folded.get(key), value)


def _misfit(reducer: str, value: Any) -> str:
    """What is wrong with a value for its reducer; '' when nothing is."""
    if reducer in ("sum", "min", "max") and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"a {type(value).__name__}"
    if reducer == "merge" and not isinstance(value, dict):
        return f"a {type(value).__name__}"
    return ""


def _has_reducer(program: Program, key: str) -> bool:
    return "reducer" in program.plan.ctx.get(key, {})


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
