"""Checks the workload of a requested run against the typed inputs of its playbook."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arclog.core.transitions.state import State
from arclog.engine.commits.engine import Engine
from arclog.model.errors import ArclogError, InputsRefused, NotFound
from arclog.model.events import TERMINAL, Event
from arclog.model.ids import timestamp
from arclog.model.inputs import InputFault, bound, described, run_secret, secret_names
from arclog.model.outcome import TaskError, error
from arclog.plan.net import Plan
from arclog.ports.secrets import Vault


def fitted(plan: Plan, workload: Mapping[str, Any], *, recorded: bool = False) -> dict[str, Any]:
    """Return the workload with its inputs converted. Raises InputsRefused with all problems. `recorded` means that it
    is stored before a run exists, so it must not contain secret inputs.
    """
    if not plan.inputs:
        return dict(workload)
    converted, faults = bound(plan.inputs, plan.workload, workload)
    if recorded:
        message = "is a secret, and schedules and calling playbooks would store it in the log; use the keychain"
        faults += [InputFault(name, message) for name in secret_names(plan.inputs) if name in workload]
    if faults:
        raise InputsRefused(described(faults), [(fault.path, fault.message) for fault in faults])
    return converted


def fitted_or_problem(plan: Plan, workload: Mapping[str, Any]) -> tuple[dict[str, Any], TaskError | None]:
    """Convert the workload of a run without a waiting caller. Such a run is created, and fails with the problem."""
    try:
        return fitted(plan, workload, recorded=True), None
    except InputsRefused as refused:
        kept = {name: value for name, value in workload.items() if name not in secret_names(plan.inputs)}
        return kept, error("config", str(refused), code="INPUTS")


# Secret inputs of runs: stored sealed next to the operators' secrets, never in the log, and removed with the run.
#
# Invariant: a value is stored before its run exists, so that every worker finds it, under a name that only its run has.


log = logging.getLogger("arclog.engine")


class RunSecrets:
    """The secret inputs of the runs that one engine starts and ends."""

    def __init__(self, engine: Engine, vault: Callable[[], Vault]) -> None:
        self._engine = engine
        self._vault = vault
        self._under_way: set[asyncio.Task[None]] = set()
        engine.hints.on_committed.append(self._on_committed)

    async def keep(self, execution_id: int, scope: str, values: Mapping[str, str]) -> None:
        """Store the secret inputs of a run that is about to be created."""
        vault, at = self._vault(), timestamp(self._engine.clock.now())
        for name, value in values.items():
            await vault.put(run_secret(execution_id, name), scope, value, at)

    async def forget(self, execution_id: int, scope: str, names: Sequence[str]) -> None:
        vault = self._vault()
        for name in names:
            try:
                await vault.remove(run_secret(execution_id, name), scope)
            except NotFound:
                continue  # it was not given
            except ArclogError as problem:
                log.warning("secret input %s of run %s could not be removed: %s", name, execution_id, problem)

    def _on_committed(self, state: State, events: Sequence[Event]) -> None:
        live = None if state.terminal is None else self._engine.live.kept(state.execution_id)
        names = [] if live is None else secret_names(live.program.plan.inputs)
        if names and any(event.type in TERMINAL for event in events):
            task = asyncio.ensure_future(self.forget(state.execution_id, state.scope, names))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def settle(self) -> None:
        """Wait until the secrets of ended runs are removed."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
