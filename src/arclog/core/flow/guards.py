"""Runs the guards of a task list, from the position of a pipeline to its next task.

Law: between two tasks nothing that a condition can see changes, so guards asked again give the same answer, and a round
in which no task runs would be followed by the same round forever. Only the count of rounds changes; it is written to
the `task.started` of the task that is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from arclog.model.errors import ExpressionError, ResultUnavailable
from arclog.model.outcome import TaskError, error, result_error
from arclog.plan.guards import Back, Begin, Go, Guards, Reach, Round, Test
from arclog.plan.net import Block


class Reached(Struct, frozen=True):
    """Where guards lead to."""

    #: index of the task that comes next; None: the end of the list, or an error
    index: int | None
    #: counts of rounds that differ from those before, by block
    rounds: dict[str, int] = {}
    problem: TaskError | None = None


def follow(guards: Guards, at: int, rounds: Mapping[str, int], scope: Callable[[], Mapping[str, Any]]) -> Reached:
    """The way from behind the first `at` tasks to the next one. `scope` gives the names that conditions see."""
    position = guards.position(at)
    counts: dict[str, int] = {}
    again: set[str] = set()
    names: Mapping[str, Any] | None = None
    while position < guards.end:
        code = guards.code[position]
        position += 1
        match code:
            case Reach():
                changed = {name: count for name, count in counts.items() if count != rounds.get(name, 0)}
                return Reached(code.index, changed)
            case Test():
                if names is None and code.condition.template is not None:
                    names = scope()
                try:
                    holds = code.condition.holds(names or {})
                except ExpressionError as failure:
                    return _failed(code.block, _problem(failure))
                if not holds:
                    position = code.otherwise
            case Go():
                position = code.to
            case Begin():
                counts[code.name] = 0
            case Round():
                name = code.block.name
                count = counts.get(name, rounds.get(name, 0)) + 1
                if count > code.max:
                    return _over(code.block)
                counts[name] = count
            case Back():
                name = code.block.name
                if name in again:
                    return _endless(code.block)
                again.add(name)
                position = code.to
    return Reached(None)


def _over(block: Block) -> Reached:
    still = "still true" if block.word == "while" else "still not true"
    message = f"its condition is {still} after {block.max} rounds (max: {block.max})"
    return _failed(block, error("limit", message, code="MAX_ROUNDS"))


def _endless(block: Block) -> Reached:
    if block.max is not None:
        return _over(block)
    message = "a round ran no task, so its condition never changes"
    return _failed(block, error("config", message, code="ENDLESS_ROUNDS"))


def _problem(failure: ExpressionError) -> TaskError:
    if isinstance(failure.__cause__, ResultUnavailable):
        return replace(result_error(failure.__cause__), message=str(failure))
    return error("template", str(failure))


def _failed(block: Block, problem: TaskError) -> Reached:
    return Reached(None, problem=replace(problem, message=f"{block.word} at {block.at}: {problem.message}"))
