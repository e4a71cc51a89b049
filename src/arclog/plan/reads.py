"""What a plan reads: parts of step results, keychain entries, and keys of the workload."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from arclog.plan.net import TaskPlan

if TYPE_CHECKING:
    from arclog.plan.program import Program, TaskProgram

# Demand: which parts of a step's result the server's own templates read.
#
# Routing, admission, args and the execution's result are evaluated by the server, which reads no stored data. So the
# worker that stores a large result puts what is demanded here into the event, and a playbook works the same whatever the
# size of its data.


Path = tuple[str | int, ...]

#: Fields of an outcome that are never stored elsewhere.
_OWN = frozenset({"status", "error", "meta"})


def demanded(
    reads: Iterable[Path], steps: Iterable[str], own: Mapping[str, Iterable[Path]]
) -> dict[str, frozenset[Path]]:
    """What is read of each step's outcome: by the step's name anywhere, and by other names in the step itself (`own`)."""
    demand: dict[str, set[Path]] = {step: set() for step in steps}
    for path in reads:
        if path[0] in demand:
            demand[str(path[0])].add(path[1:])
    for step, paths in own.items():
        demand[step].update(path[1:] for path in paths)
    return {step: frozenset(paths) for step, paths in demand.items()}


def payload_paths(task: TaskPlan, outcome_paths: Iterable[Path]) -> list[Path]:
    """The same paths seen from the payload of a task: what below its data is read; () is all of it. The shorter first."""
    paths: set[Path] = set()
    for path in outcome_paths:
        below = _below_payload(task, path)
        if below is not None:
            paths.add(below)
    return sorted(paths, key=lambda path: (len(path), str(path)))


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
    """The value at a path of plain data."""
    for key in path:
        in_map = isinstance(value, dict) and key in value
        in_list = isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)
        if not (in_map or in_list):
            return missing
        value = value[key]
    return value


# Keychain entries that the steps of some pools use. An entry counts as used unless the plan shows that it is not.


def entries_for(program: Program, pools: Collection[str] | None) -> tuple[dict[str, Any], ...]:
    """The entries of a plan without those that only steps of other pools use; None: all pools."""
    entries = program.plan.keychain
    if pools is None or all(step.pool in pools for step in program.plan.steps):
        return entries
    names = frozenset(str(entry["name"]) for entry in entries)
    here = {webhook.secret for webhook in program.plan.webhooks if webhook.secret}  # signed by the server itself
    elsewhere: set[str] = set()
    for step in program.steps.values():
        used = here if step.plan.pool in pools else elsewhere
        for task in step.tasks:
            used |= _used(task, names)
    return tuple(entry for entry in entries if str(entry["name"]) not in elsewhere - here)


def _used(task: TaskProgram, names: frozenset[str]) -> frozenset[str]:
    auth = task.plan.config.get("auth")
    if auth is not None and auth not in names:
        return names  # known when it is rendered
    used = {str(auth)} if auth is not None else set()
    for path in task.paths():
        if path[0] == "keychain":
            used |= names if len(path) == 1 else {path[1]}
    return frozenset(used)


# What a playbook reads of its workload: the keys that its templates and code name.


_Keys = tuple[str, ...]
#: Keys that are reported; a request may bring any number.
_MOST_REPORTED = 20


def unknown_keys(program: Program, workload: Mapping[str, Any]) -> list[str]:
    """Warnings about keys of a request's workload that neither the playbook's workload nor any template or code knows."""
    known = program.plan.workload
    unread = [key for key in workload if key not in known]
    if not unread:
        return []
    reads = WorkloadReads(program)
    lost = [key for key in unread if not reads.names((key,), 0)]
    names = list(dict.fromkeys((*known, *reads.below(()))))
    return [f"workload.{key}: {_nothing(key, names)}" for key in lost[:_MOST_REPORTED]]


def _nothing(key: str, names: list[str]) -> str:
    near = get_close_matches(key[:128], names, 1, 0.6)
    return "nothing in the playbook reads this key" + (f"; did you mean {near[0]}?" if near else "")


class WorkloadReads:
    """What the playbook reads of its workload."""

    def __init__(self, program: Program) -> None:
        plan = program.plan
        self._program = program
        self._paths = set(self._workload_paths())
        self._code = "\n".join(
            text for step in plan.steps for task in step.tasks for key in task.verbatim for text in _texts(task.config.get(key))
        )  # fmt: skip

    def names(self, path: _Keys, depth: int) -> bool:
        """Whether something names the key at `path[depth]`, or reads the whole map that holds it."""
        wanted = path[: depth + 1]
        if any(read[: len(wanted)] == wanted or read == path[: len(read)] for read in self._paths):
            return True
        return bool(self._code and re.search(rf"\b{re.escape(path[depth])}\b", self._code))

    def below(self, above: _Keys) -> list[str]:
        """Keys of a map that templates name."""
        keys = {read[len(above)] for read in self._paths if len(read) > len(above) and read[: len(above)] == above}
        return sorted(keys)

    def _workload_paths(self) -> Iterator[_Keys]:
        """Paths below the workload; a bare name may be one of its keys."""
        steps = self._program.steps
        for path in self._all_paths():
            if path[0] == "workload":
                yield tuple(map(str, path[1:]))
            elif path[0] not in _NAMES and path[0] not in steps:
                yield tuple(map(str, path))

    def _all_paths(self) -> Iterable[tuple[Any, ...]]:
        if self._program.result is not None:
            yield from self._program.result.paths
        for step in self._program.steps.values():
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


#: Names of templates that are no keys of the workload.
_NAMES = frozenset(
    {"args", "iter", "ctx", "event", "outcome", "keychain", "execution_id", "_prev", "_task", "_attempt"}
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
