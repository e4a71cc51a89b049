"""Names that a caller gives: refused with what was probably meant when the run's plan has no such step or task."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from arclog.model.errors import RequestRejected
from arclog.plan.program import Program

_LISTED = 20


def require_task(program: Program, step: str, task: str) -> None:
    """Both may be '' (any); a task is looked for in the step, or in all of them."""
    if step and step not in program.steps:
        raise RequestRejected(f"the run has no step {step!r}; {_known('it has', program.steps, step)}")
    within = [program.steps[step]] if step else list(program.steps.values())
    tasks = dict.fromkeys(one.name for each in within for one in each.plan.tasks)
    if task and task not in tasks:
        where = f"step {step}" if step else "the run"
        raise RequestRejected(f"{where} has no task {task!r}; {_known('it has', tasks, task)}")


def _known(intro: str, names: Iterable[str], given: str) -> str:
    all_names = list(names)
    near = get_close_matches(given, all_names, n=1)
    rest = f" and {len(all_names) - _LISTED:,} more" if len(all_names) > _LISTED else ""
    return (f"did you mean {near[0]}? " if near else "") + f"{intro} {', '.join(all_names[:_LISTED])}{rest}"
