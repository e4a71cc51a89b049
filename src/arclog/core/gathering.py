"""How iterations write ctx.

A sequential loop writes as it goes: the next iteration sees it. In a parallel loop a key is written once (equal values
are fine) or has a declared reducer; what was gathered shows in ctx when the loop is done. The result never depends on
the order in which iterations end: reducers that care are folded in item order, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.json import Encoder, encode
from msgspec.structs import replace

from arclog.core.state import Gathered, State, StepRun, path_key, path_of
from arclog.model.commands import Captured
from arclog.model.outcome import error
from arclog.plan.program import Program

_canonical = Encoder(order="deterministic").encode

#: Every float is a whole number of these, so sums of floats can be kept exact and do not depend on their order.
_UNIT = 1 << 1074


def _sum(start: Any, values: Sequence[Any]) -> Any:
    return sum(values, start or 0)


def _min(start: Any, values: Sequence[Any]) -> Any:
    return min((*values, *_known(start)), key=_integers_first)


def _max(start: Any, values: Sequence[Any]) -> Any:
    return max((*values, *_known(start)), key=lambda value: (value, isinstance(value, int)))


def _count(start: Any, values: Sequence[Any]) -> Any:
    return (start or 0) + len(values)


def _append(start: Any, values: Sequence[Any]) -> Any:
    return [*(start or ()), *values]


def _union(start: Any, values: Sequence[Any]) -> Any:
    """What is new, once each; a list stands for its items."""
    found = {_canonical(item): item for item in start or ()}
    for value in values:
        for item in value if isinstance(value, list) else (value,):
            found.setdefault(_canonical(item), item)
    return list(found.values())


def _merge(start: Any, values: Sequence[Any]) -> Any:
    found = dict(start or {})
    for value in values:
        found.update(value)
    return found


def _last(_start: Any, values: Sequence[Any]) -> Any:
    return values[-1]


def _known(start: Any) -> tuple[Any, ...]:
    return () if start is None else (start,)


def _integers_first(value: Any) -> tuple[Any, bool]:
    """Of 1 and 1.0 the integer is taken, whichever comes first."""
    return value, not isinstance(value, int)


#: What folds values, in item order, into the value before them (None: there is none).
REDUCERS: dict[str, Callable[[Any, Sequence[Any]], Any]] = {
    "sum": _sum,
    "count": _count,
    "min": _min,
    "max": _max,
    "append": _append,
    "union": _union,
    "merge": _merge,
    "last": _last,
}
#: Those that give the same in any order are folded as values come; the others keep them all until the end.
_ANY_ORDER = frozenset({"sum", "count", "min", "max"})
#: Those whose result grows with every value.
_GROWING = frozenset({"append", "union", "merge"})


def reduced(program: Program, ctx: Mapping[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A patch with its declared keys folded into what ctx holds: what a sequential loop writes.

    Values that their reducers cannot take are left out; the step fails for them.
    """
    if not any(key in program.plan.ctx for key in patch):
        return patch
    found: dict[str, Any] = {}
    for key, value in patch.items():
        reducer = _reducer(program, key)
        if not reducer:
            found[key] = value
        elif not _misfit(reducer, value) and not _unfit(reducer, ctx.get(key)):
            found[key] = REDUCERS[reducer](ctx.get(key), [value])
    return found


def after(program: Program, captured: Captured, patch: dict[str, Any]) -> Captured:
    """What the next iteration of a sequential loop sees."""
    return replace(captured, ctx={**captured.ctx, **reduced(program, captured.ctx, patch)})


def take(program: Program, state: State, step_run: StepRun, path: tuple[int, ...], patch: dict[str, Any]) -> None:
    """An iteration has ended: let its writes take effect, or gather them until the loop is done."""
    if not patch:
        return
    if not is_parallel(program, step_run.step):
        _watch(program, state, step_run, path, patch)
        state.ctx = {**state.ctx, **reduced(program, state.ctx, patch)}
        step_run.captured = after(program, step_run.captured, patch)
        return
    gathered = step_run.gathered = step_run.gathered or Gathered()
    for key, value in patch.items():
        if gathered.problem is None:
            _gather(program, gathered, path, key, value)


def finish(program: Program, state: State, step_run: StepRun) -> None:
    """The loop is over: what it gathered becomes visible."""
    patch, _ = outcome(program, state, step_run)
    if patch:
        state.ctx = {**state.ctx, **patch}


def outcome(program: Program, state: State, step_run: StepRun) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What a loop that is over does to ctx, and why it cannot."""
    gathered = step_run.gathered
    if gathered is None or not is_parallel(program, step_run.step):
        return {}, None
    # Sorted: also the order of ctx's keys must not tell who was first.
    patch = dict(sorted(gathered.written.items()))
    for key in sorted({*gathered.folded, *gathered.exact, *gathered.ordered}):
        reducer = _reducer(program, key)
        start = state.ctx.get(key)
        unfit = _unfit(reducer, start)
        if unfit:
            message = f"ctx.{key} was {unfit} before the loop of step {step_run.step}, which the reducer {reducer} cannot go on from"
            return {}, error("conflict", message, code="CTX_REDUCER").as_dict()
        if reducer == "sum":
            try:
                patch[key] = _total(start or 0, gathered.folded.get(key, 0), gathered.exact.get(key))
            except OverflowError:
                message = f"the sum ctx.{key} of step {step_run.step} is larger than a float can be"
                return {}, error("conflict", message, code="CTX_REDUCER").as_dict()
        elif reducer == "count":
            patch[key] = (start or 0) + gathered.folded[key]
        elif key in gathered.folded:
            patch[key] = REDUCERS[reducer](start, [gathered.folded[key]])
        else:
            by_path = gathered.ordered[key]
            patch[key] = REDUCERS[reducer](start, [by_path[path] for path in sorted(by_path, key=path_of)])
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
    """Whether any level of the step's loop runs items side by side."""
    plan = program.steps[step].plan.loop
    while plan is not None:
        if plan.mode == "parallel":
            return True
        plan = plan.inner
    return False


def _gather(program: Program, gathered: Gathered, path: tuple[int, ...], key: str, value: Any) -> None:
    where = path_key(path)
    reducer = _reducer(program, key)
    if not reducer:
        if key in gathered.written and _canonical(gathered.written[key]) != _canonical(value):
            message = (
                f"iteration {where} set ctx.{key} to another value than an iteration before; "
                f"declare a reducer: executor.spec.ctx: {{{key}: {{reducer: …}}}}"
            )
            gathered.problem = error("conflict", message, code="CTX_CONFLICT").as_dict()
        gathered.written.setdefault(key, value)
        return
    misfit = _misfit(reducer, value)
    if misfit:
        gathered.problem = _cannot_take(where, key, misfit, reducer)
    elif reducer == "last":
        known = gathered.ordered.get(key)
        if not known or path >= max(map(path_of, known)):
            gathered.ordered[key] = {where: value}
    elif reducer not in _ANY_ORDER:
        gathered.ordered.setdefault(key, {})[where] = value
        gathered.ordered_bytes += len(encode(value))
    elif reducer == "sum" and isinstance(value, float):
        gathered.exact[key] = hex(int(gathered.exact.get(key, "0"), 16) + _units(value))
    else:
        gathered.folded[key] = REDUCERS[reducer](gathered.folded.get(key), [value])


def _watch(program: Program, state: State, step_run: StepRun, path: tuple[int, ...], patch: dict[str, Any]) -> None:
    """In a sequential loop: values that a reducer cannot take, and bytes that reducers pile up."""
    for key, value in patch.items():
        reducer = _reducer(program, key)
        if not reducer:
            continue
        gathered = step_run.gathered = step_run.gathered or Gathered()
        misfit = _misfit(reducer, value)
        unfit = _unfit(reducer, state.ctx.get(key))
        if misfit:
            gathered.problem = gathered.problem or _cannot_take(path_key(path), key, misfit, reducer)
        elif unfit:
            message = f"ctx.{key} was {unfit} before iteration {path_key(path)}, which the reducer {reducer} cannot go on from"
            gathered.problem = gathered.problem or error("conflict", message, code="CTX_REDUCER").as_dict()
        elif reducer in _GROWING:
            gathered.ordered_bytes += len(encode(value))


def _cannot_take(where: str, key: str, misfit: str, reducer: str) -> dict[str, Any]:
    message = f"iteration {where} set ctx.{key} to {misfit}, which the reducer {reducer} cannot take"
    return error("conflict", message, code="CTX_REDUCER").as_dict()


def _misfit(reducer: str, value: Any) -> str:
    """What is wrong with a value for its reducer; '' when nothing is."""
    if reducer in ("sum", "min", "max") and not _is_number(value):
        return _kind(value)
    if reducer == "merge" and not isinstance(value, dict):
        return _kind(value)
    return ""


def _unfit(reducer: str, start: Any) -> str:
    """What is wrong with the value that a reducer begins with; '' when nothing is."""
    if start is None or reducer == "last":
        return ""
    if reducer in ("append", "union"):
        return "" if isinstance(start, list) else _kind(start)
    if reducer == "count":
        return "" if _is_number(start) else _kind(start)
    return _misfit(reducer, start)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    names = {dict: "a map", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _reducer(program: Program, key: str) -> str:
    """The reducer that a key is declared with; '' without one."""
    return str(program.plan.ctx.get(key, {}).get("reducer", ""))
