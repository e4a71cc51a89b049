"""Which keychain entries the steps of some pools use. Pure; what cannot be told from the plan counts as used."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from arclog.plan.program import Program, TaskProgram


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
    found = {str(auth)} if auth is not None else set()
    for path in task.paths():
        if path[0] == "keychain":
            found |= names if len(path) == 1 else {path[1]}
    return frozenset(found)
