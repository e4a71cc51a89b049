"""The signals that mean something to every run (SPEC §6); any other name is a playbook's own."""

from __future__ import annotations

RESERVED = frozenset(
    {
        "PAUSE",
        "RESUME",
        "CANCEL",
        "APPROVE",
        "REJECT",
        "RETRY_STEP",
        "SKIP_STEP",
        "RETRY_RUN",
        "UPDATE_PARAMS",
        "EMERGENCY_STOP",
    }
)
