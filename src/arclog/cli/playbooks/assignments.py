"""Checks the assignments of `--set`: a key of the playbook's workload, and a value of the same type.

A key that is not in the workload is accepted if a template or code of the playbook uses it, or reads the whole map that
it would belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from arclog.cli.exits import Usage
from arclog.plan.net import Plan
from arclog.plan.program import Program
from arclog.plan.reads import WorkloadReads

_MISSING: Any = object()
Path = tuple[str, ...]


def check_assignments(plan: Plan, assignments: Sequence[tuple[Path, Any]]) -> None:
    """Refuse keys that the playbook does not use, and values whose type differs from the workload's. Reports all of them."""
    if not assignments:
        return
    reads = WorkloadReads(Program(plan, ""))
    faults: list[Usage] = []
    for path, value in assignments:
        if path[0] in plan.inputs or (plan.inputs and path[0] not in plan.workload):
            continue  # the start of the run checks all of them against the declarations
        for leaf, assigned in _leaves(path, value, plan.workload):
            try:
                _check_one(plan, leaf, assigned, reads)
            except Usage as fault:
                faults.append(fault)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise Usage("; ".join(f"{fault} ({fault.hint})" for fault in faults))


def typed(plan: Plan, workload: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return the workload. If an input is declared as text, the text of its `--set` is kept: 007 stays 007."""
    made = dict(workload)
    for assignment in assignments:
        name, _, raw = assignment.partition("=")
        declared = plan.inputs.get(name)
        is_text = declared is not None and declared.get("type") in ("string", "date", "datetime", "secret")
        if is_text and isinstance(made.get(name), int | float):
            made[name] = raw
    return made


def _leaves(path: Path, value: Any, workload: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the assignments of single values. Assigning a map to a map sets its keys one by one."""
    if isinstance(value, dict) and value and isinstance(_at(workload, path), dict):
        for key, below in value.items():
            yield from _leaves((*path, str(key)), below, workload)
    else:
        yield path, value


def _check_one(plan: Plan, path: Path, value: Any, reads: WorkloadReads) -> None:
    place: Any = plan.workload
    for depth, key in enumerate(path):
        if not isinstance(place, dict) or (not place and depth):
            return  # a value that replaces another one, or a map that may have any keys
        if key not in place:
            if not reads.names(path, depth):
                raise _unknown(path, depth, {**place, **plan.inputs} if depth == 0 else place, reads)
            return
        place = place[key]
    expected, actual = _type(place), _type(value)
    if expected != actual and "null" not in (expected, actual):
        name = ".".join(path)
        hint = f"give {expected}, as the workload's own {_brief(place)}"
        if expected == "text" and actual in ("a number", "a boolean"):
            hint = f"quote it to make it text: --set '{name}=\"{value}\"'"
        raise Usage(f"--set {name}: the workload's {name} is {expected}, not {actual}", hint)


def _unknown(path: Path, depth: int, place: dict[str, Any], reads: WorkloadReads) -> Usage:
    from arclog.model.data.suggestions import nearest

    above, key = ".".join(path[:depth]), path[depth]
    names = list(dict.fromkeys((*place, *reads.below(path[:depth]))))
    where = f"the workload's {above}" if above else "the workload"
    near = nearest(key, names)
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    if not names:
        return Usage(f"--set {'.'.join(path)}: the playbook reads no key of the workload", "leave it out")
    hint = f"did you mean {'.'.join((*path[:depth], near))}? " if near else ""
    return Usage(f"--set {'.'.join(path)}: {where} has no key {key!r}", f"{hint}it has {listed}")


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value.get(key, _MISSING) if isinstance(value, dict) else _MISSING
    return value


def _type(value: Any) -> str:
    names = {dict: "a map", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _brief(value: Any) -> str:
    from arclog.cli.render import clip, json_text

    return clip(json_text(value), 40)
