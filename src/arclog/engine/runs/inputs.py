"""The typed inputs of a playbook, held against the workload that a run is asked for with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.model.errors import InputsRefused
from arclog.model.inputs import InputFault, bound, described, secret_names
from arclog.model.outcome import TaskError, error
from arclog.plan.net import Plan


def fitted(plan: Plan, workload: Mapping[str, Any], *, recorded: bool = False) -> dict[str, Any]:
    """The workload with its inputs converted. Raises InputsRefused with every fault. `recorded`: it is written down before
    a run exists, so it can hold no secret inputs.
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
    """The same for a run without a waiting caller: it is created and fails with the reason."""
    try:
        return fitted(plan, workload, recorded=True), None
    except InputsRefused as refused:
        kept = {name: value for name, value in workload.items() if name not in secret_names(plan.inputs)}
        return kept, error("config", str(refused), code="INPUTS")
