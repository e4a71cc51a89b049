"""Demand: which parts of a step's result the server's own templates read.

Routing, admission, args and the execution's result are evaluated by the server, which reads no stored data. So the
worker that stores a large result puts what is demanded here into the event, and a playbook works the same whatever the
size of its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from arclog.plan.net import TaskPlan

Path = tuple[str | int, ...]

#: Fields of an outcome that are never stored elsewhere.
_OWN = frozenset({"status", "error", "meta"})


def demanded(
    reads: Iterable[Path], steps: Iterable[str], own: Mapping[str, Iterable[Path]]
) -> dict[str, frozenset[Path]]:
    """What is read of each step's outcome: by the step's name anywhere, and by other names in the step itself (`own`)."""
    found: dict[str, set[Path]] = {step: set() for step in steps}
    for path in reads:
        if path[0] in found:
            found[str(path[0])].add(path[1:])
    for step, paths in own.items():
        found[step].update(path[1:] for path in paths)
    return {step: frozenset(paths) for step, paths in found.items()}


def payload_paths(task: TaskPlan, outcome_paths: Iterable[Path]) -> list[Path]:
    """The same paths seen from the payload of a task: what below its data is read; () is all of it. The shorter first."""
    found: set[Path] = set()
    for path in outcome_paths:
        below = _below_payload(task, path)
        if below is not None:
            found.add(below)
    return sorted(found, key=lambda path: (len(path), str(path)))


def _below_payload(task: TaskPlan, path: Path) -> Path | None:
    if not path:
        return ()
    head, rest = path[0], path[1:]
    if head == "data":
        return rest
    if head == "result":
        if not task.data_at:
            return rest
        if not rest:
            return ()
        return rest[1:] if rest[0] == task.data_at else None
    if head in _OWN or head in task.helper:
        return None
    # Any other key falls through to the fields of the data.
    return path


def value_at(value: Any, path: Path, missing: Any) -> Any:
    """What stands at a path of plain data."""
    for key in path:
        in_map = isinstance(value, dict) and key in value
        in_list = isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)
        if not (in_map or in_list):
            return missing
        value = value[key]
    return value
