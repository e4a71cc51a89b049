"""Whether what `--set` assigns is something that the playbook has: a key of its workload, and a value of the same type.

A key that is not in the workload is taken all the same when a template or code of the playbook names it, or when
something reads the whole map that it would stand in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from arclog.cli.exits import Usage
from arclog.plan.net import Plan
from arclog.plan.program import Program

_MISSING: Any = object()
Path = tuple[str, ...]


def check_assignments(plan: Plan, assignments: Sequence[tuple[Path, Any]]) -> None:
    """Refuse a key that nothing in the playbook knows, and a value of another type than the workload's own."""
    if not plan.workload or not assignments:
        return
    reads = _Reads(plan)
    for path, value in assignments:
        for leaf, given in _leaves(path, value, plan.workload):
            _check_one(plan.workload, leaf, given, reads)


def _leaves(path: Path, value: Any, workload: Any) -> Iterator[tuple[Path, Any]]:
    """A map that is assigned to a map sets its keys one by one."""
    if isinstance(value, dict) and value and isinstance(_at(workload, path), dict):
        for key, below in value.items():
            yield from _leaves((*path, str(key)), below, workload)
    else:
        yield path, value


def _check_one(workload: dict[str, Any], path: Path, value: Any, reads: _Reads) -> None:
    place: Any = workload
    for depth, key in enumerate(path):
        if not isinstance(place, dict) or (not place and depth):
            return  # a value that takes the place of another one, or a map that is open by design
        if key not in place:
            if not reads.names(path, depth):
                raise _unknown(path, depth, place, reads)
            return
        place = place[key]
    expected, given = _type(place), _type(value)
    if expected != given and "null" not in (expected, given):
        name = ".".join(path)
        hint = f"give {expected}, as the workload's own {_brief(place)}"
        if expected == "text" and given in ("a number", "a boolean"):
            hint = f"quote it to make it text: --set '{name}=\"{value}\"'"
        raise Usage(f"--set {name}: the workload's {name} is {expected}, not {given}", hint)


def _unknown(path: Path, depth: int, place: dict[str, Any], reads: _Reads) -> Usage:
    from difflib import get_close_matches

    above, key = ".".join(path[:depth]), path[depth]
    known = list(dict.fromkeys((*place, *reads.below(path[:depth]))))
    where = f"the workload's {above}" if above else "the workload"
    near = get_close_matches(key, known, 1, 0.6)
    listed = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    meant = f"did you mean {'.'.join((*path[:depth], near[0]))}? " if near else ""
    return Usage(f"--set {'.'.join(path)}: {where} has no key {key!r}", f"{meant}it has {listed}")


class _Reads:
    """What the playbook reads of its workload."""

    def __init__(self, plan: Plan) -> None:
        self._program = Program(plan, "")
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
            for task in step.tasks:
                yield from task.config.paths
                for tree in task.by_ref.values():
                    yield from tree.paths
                for rule in task.rules:
                    yield from (*rule.condition.paths, *rule.set_iter.paths, *rule.set_ctx.paths)


#: Names of templates that are no keys of the workload.
_NAMES = frozenset(
    {"args", "iter", "ctx", "event", "outcome", "keychain", "execution_id", "_prev", "_task", "_attempt"}
)


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value.get(key, _MISSING) if isinstance(value, dict) else _MISSING
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)


def _type(value: Any) -> str:
    names = {dict: "a map", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _brief(value: Any) -> str:
    from arclog.cli.render import clip, json_text

    return clip(json_text(value), 40)
