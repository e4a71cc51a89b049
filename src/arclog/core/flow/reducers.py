"""Reducers: what becomes of the values that `set_ctx` contributes to a declared ctx key.

Law: a contribution is kept as a *part*, what its reducer makes of the values given so far. Parts of one key are combined
in order: those of a pipeline as it goes, those of iterations in item order, those of step runs as they end. Combining is
associative (but for the rounding of floats), so it does not matter where parts were put together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec.json import Encoder, encode

from arclog.model.config.reducers import misfit, unfit
from arclog.model.outcome import TaskError, error

_canonical = Encoder(order="deterministic").encode

#: Code of an error that says that a reducer cannot take a value, or continue from one.
REFUSED = "CTX_REDUCER"
#: Reducers whose result grows with every value.
GROWING = frozenset({"append", "union", "merge"})


def begun(reducer: str, value: Any) -> Any:
    """The part that one value is."""
    match reducer:
        case "count":
            return 1
        case "append":
            return [value]
        case "union":
            return _distinct([value if isinstance(value, list) else [value]])
    return value


def combined(reducer: str, start: Any, *parts: Any) -> Any:
    """What was there (None: nothing) with later parts, in order."""
    given = parts if start is None else (start, *parts)
    return given[0] if len(given) == 1 else _COMBINE[reducer](given)


def extended(reducers: Mapping[str, str], patch: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline's changes of ctx with what one more rule sets: parts of keys with a reducer, values of all others.

    Values that their reducers cannot take are left out: `refused` says so.
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
    """The keys of a patch as they are once it is applied to ctx. What `unfitting` refuses is left out."""
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
    """Why a patch cannot be applied to ctx: a value there that the reducer cannot continue from, a sum that no float can
    hold, or more than `most` bytes.
    """
    for key in sorted(reducers.keys() & patch.keys()):
        wrong = unfit(reducers[key], ctx.get(key))
        if wrong:
            message = f"ctx.{key} is {wrong}, which the reducer {reducers[key]} cannot go on from"
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
    """Why some values of a `set_ctx` cannot be contributed."""
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
    except OverflowError:  # an integer that is too large for the float that it is added to
        return math.inf


def _smallest(parts: Sequence[Any]) -> Any:
    """Of 1 and 1.0 the integer is taken, whichever comes first."""
    return min(parts, key=lambda value: (value, not isinstance(value, int)))


def _largest(parts: Sequence[Any]) -> Any:
    return max(parts, key=lambda value: (value, isinstance(value, int)))


def _distinct(parts: Sequence[list[Any]]) -> list[Any]:
    """What is new, once each."""
    kept: dict[bytes, Any] = {}
    for item in chain.from_iterable(parts):
        kept.setdefault(_canonical(item), item)
    return list(kept.values())


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for part in parts:
        kept.update(part)
    return kept


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
