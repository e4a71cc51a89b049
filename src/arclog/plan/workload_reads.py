"""What a playbook reads of its workload: the keys that its templates and code name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from arclog.plan.program import Program

Path = tuple[str, ...]
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

    def names(self, path: Path, depth: int) -> bool:
        """Whether something names the key at `path[depth]`, or reads the whole map that holds it."""
        wanted = path[: depth + 1]
        if any(read[: len(wanted)] == wanted or read == path[: len(read)] for read in self._paths):
            return True
        return bool(self._code and re.search(rf"\b{re.escape(path[depth])}\b", self._code))

    def below(self, above: Path) -> list[str]:
        """Keys of a map that templates name."""
        keys = {read[len(above)] for read in self._paths if len(read) > len(above) and read[: len(above)] == above}
        return sorted(keys)

    def _workload_paths(self) -> Iterator[Path]:
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
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
