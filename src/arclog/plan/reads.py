"""The data that a plan reads: parts of step results, keychain entries, and keys of the workload."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from arclog.plan.net import TaskPlan

if TYPE_CHECKING:
    from arclog.plan.program import Program, StepProgram, TaskProgram

# Demand: which parts of a step's result the templates of the server read.
#
# The server evaluates routing, admission, args and the execution's result, and reads no stored data. So the worker that
# stores a large result puts the demanded parts into the event, and a playbook works the same whatever the size of its
# data.


Path = tuple[str | int, ...]

#: Fields of an outcome that are never stored outside the log.
_OWN = frozenset({"status", "error", "meta"})


def demanded(
    reads: Iterable[Path], steps: Iterable[str], own: Mapping[str, Iterable[Path]]
) -> dict[str, frozenset[Path]]:
    """Return the paths that are read of each step's outcome.

    They are read by the step's name anywhere, and by other names in the step itself (`own`).
    """
    demand: dict[str, set[Path]] = {step: set() for step in steps}
    for path in reads:
        if path[0] in demand:
            demand[str(path[0])].add(path[1:])
    for step, paths in own.items():
        demand[step].update(path[1:] for path in paths)
    return {step: frozenset(paths) for step, paths in demand.items()}


def payload_paths(task: TaskPlan, outcome_paths: Iterable[Path]) -> list[Path]:
    """Return the same paths relative to the payload of a task, shorter ones first; () for all of it."""
    paths: set[Path] = set()
    for path in outcome_paths:
        below = _below_payload(task, path)
        if below is not None:
            paths.add(below)
    return sorted(paths, key=lambda path: (len(path), str(path)))


def _below_payload(task: TaskPlan, path: Path) -> Path | None:
    if not path:
        return ()
    head, below = path[0], path[1:]
    if head == "data":
        return below
    if head == "result":
        if not task.data_at:
            return below
        if not below:
            return ()
        return below[1:] if below[0] == task.data_at else None
    if head in _OWN or head in task.helper:
        return None
    # Any other key is looked up in the fields of the data.
    return path


def value_at(value: Any, path: Path, missing: Any) -> Any:
    """Return the value at a path of plain data, or `missing`."""
    for key in path:
        in_map = isinstance(value, dict) and key in value
        in_list = isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)
        if not (in_map or in_list):
            return missing
        value = value[key]
    return value


# Keychain entries that the steps of some pools use. An entry counts as used unless the plan shows that it is not.


def entries_for(program: Program, pools: Collection[str] | None) -> tuple[dict[str, Any], ...]:
    """Return the entries of a plan without those that only steps of other pools use; None for all pools."""
    entries = program.plan.keychain
    if pools is None or all(step.pool in pools for step in program.plan.steps):
        return entries
    names = frozenset(str(entry["name"]) for entry in entries)
    signing = {webhook.secret for webhook in program.plan.webhooks if webhook.secret}  # signed by the server itself
    elsewhere: set[str] = set()
    for step in program.steps.values():
        used = signing if step.plan.pool in pools else elsewhere
        for task in step.tasks:
            used |= _used(task, names)
    return tuple(entry for entry in entries if str(entry["name"]) not in elsewhere - signing)


def _used(task: TaskProgram, names: frozenset[str]) -> frozenset[str]:
    auth = task.plan.config.get("auth")
    if auth is not None and auth not in names:
        return names  # known only when it is rendered
    used = {str(auth)} if auth is not None else set()
    for path in task.paths():
        if path[0] == "keychain":
            used |= names if len(path) == 1 else {path[1]}
    return frozenset(used)


# The keys of its workload that a playbook reads: those that its templates and code name.


_Keys = tuple[str, ...]
#: Maximum number of reported keys; a request may have any number.
_MOST_REPORTED = 20


def unknown_keys(program: Program, workload: Mapping[str, Any]) -> list[str]:
    """Return warnings about keys of a request's workload that neither the playbook nor any code names."""
    own_workload = program.plan.workload
    unread = [key for key in workload if key not in own_workload]
    if not unread:
        return []
    reads = WorkloadReads(program)
    lost = [key for key in unread if not reads.names((key,), 0)]
    names = list(dict.fromkeys((*own_workload, *reads.below(()))))
    return [f"workload.{key}: {_nothing(key, names)}" for key in lost[:_MOST_REPORTED]]


def _nothing(key: str, names: list[str]) -> str:
    from arclog.model.data.suggestions import did_you_mean  # only a warning needs it

    return f"nothing in the playbook reads this key{did_you_mean(key, names)}"


class WorkloadReads:
    """The keys of the workload that the playbook reads."""

    def __init__(self, program: Program) -> None:
        plan = program.plan
        self._program = program
        self._paths = set(self._workload_paths())
        self._code = "\n".join(
            text for step in plan.steps for task in step.tasks for key in task.verbatim for text in _texts(task.config.get(key))
        )  # fmt: skip

    def names(self, path: _Keys, depth: int) -> bool:
        """Return whether a template or code names the key at `path[depth]`, or reads a whole map that contains it."""
        wanted = path[: depth + 1]
        if any(read[: len(wanted)] == wanted or read == path[: len(read)] for read in self._paths):
            return True
        return bool(self._code and re.search(rf"\b{re.escape(path[depth])}\b", self._code))

    def below(self, above: _Keys) -> list[str]:
        """Return the keys of a map that templates name."""
        keys = {read[len(above)] for read in self._paths if len(read) > len(above) and read[: len(above)] == above}
        return sorted(keys)

    def _workload_paths(self) -> Iterator[_Keys]:
        """Iterate over paths below the workload; a bare name may be one of its keys."""
        program = self._program
        steps = program.steps
        places = [(frozenset({task.plan.name for task in step.tasks}), self._paths_of(step)) for step in steps.values()]
        if program.result is not None:
            places.append((frozenset(), program.result.paths))
        for labels, paths in places:
            for path in paths:
                if path[0] == "workload":
                    yield tuple(map(str, path[1:]))
                elif path[0] not in _NAMES and path[0] not in steps and path[0] not in labels:
                    yield tuple(map(str, path))

    def _paths_of(self, step: StepProgram) -> Iterable[tuple[Any, ...]]:
        yield from step.args.paths
        for level in step.items if step.plan.loop is not None else ():
            yield from level.paths
        for condition, _ in step.admit or ():
            yield from condition.paths
        for arc in step.arcs:
            yield from (*arc.condition.paths, *arc.args.paths)
        for condition in step.guards.conditions if step.guards is not None else ():
            yield from condition.paths
        for task in step.tasks:
            yield from task.config.paths
            for tree in task.by_ref.values():
                yield from tree.paths
            for rule in task.rules:
                yield from rule.condition.paths
                for tree in rule.trees:
                    yield from tree.paths


#: Names in templates that are not keys of the workload.
_NAMES = frozenset(
    {"args", "iter", "ctx", "event", "outcome", "keychain", "execution_id", "run", "_prev", "_task", "_attempt"}
)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
