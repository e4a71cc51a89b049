"""The five status layers and their legal transitions, as data. Diagrams and docs are generated from these tables.

Only the playbook layer defines the state of an execution; no lower layer ever closes one.
"""

from __future__ import annotations

PENDING = "PENDING"
RUNNING = "RUNNING"
COMPLETED = "COMPLETED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"
ISSUED = "ISSUED"
CLAIMED = "CLAIMED"
CASE_HANDLED = "CASE_HANDLED"
OK = "OK"
ERROR = "ERROR"
BREAK = "BREAK"
NOOP = "NOOP"

#: layer → from → {to: the canonical event of the transition}
TRANSITIONS: dict[str, dict[str, dict[str, str]]] = {
    "playbook": {
        PENDING: {RUNNING: "playbook.started", FAILED: "playbook.finished", CANCELLED: "execution.cancelled"},
        RUNNING: {COMPLETED: "playbook.finished", FAILED: "playbook.finished", CANCELLED: "execution.cancelled"},
        COMPLETED: {},
        FAILED: {},
        CANCELLED: {},
    },
    "workflow": {
        PENDING: {RUNNING: "workflow.started"},
        RUNNING: {COMPLETED: "workflow.finished", FAILED: "workflow.finished"},
        COMPLETED: {},
        FAILED: {},
    },
    "step": {
        PENDING: {RUNNING: "step.scheduled"},
        RUNNING: {COMPLETED: "step.done", FAILED: "step.failed", CASE_HANDLED: "step.done"},
        COMPLETED: {},
        FAILED: {},
        CASE_HANDLED: {},
    },
    "command": {
        PENDING: {ISSUED: "command.issued"},
        ISSUED: {CLAIMED: "command.claimed", CANCELLED: "command.cancelled"},
        CLAIMED: {
            RUNNING: "command.started",
            ISSUED: "command.issued",
            FAILED: "command.failed",
            CANCELLED: "command.cancelled",
        },
        RUNNING: {
            COMPLETED: "command.completed",
            FAILED: "command.failed",
            ISSUED: "command.issued",
            CANCELLED: "command.cancelled",
        },
        COMPLETED: {},
        FAILED: {},
        CANCELLED: {},
    },
    "tool": {
        PENDING: {RUNNING: "task.started"},
        RUNNING: {OK: "task.done", ERROR: "task.failed", BREAK: "task.done", NOOP: "task.done"},
        OK: {},
        ERROR: {},
        BREAK: {},
        NOOP: {},
    },
}

#: the states of an execution
EXECUTION_STATES = tuple(TRANSITIONS["playbook"])


def may(layer: str, before: str, after: str) -> bool:
    """Return whether the layer's table has this transition."""
    return after in TRANSITIONS[layer][before]


def terminal_states(layer: str) -> frozenset[str]:
    """Return the final states of a layer."""
    return frozenset(state for state, exits in TRANSITIONS[layer].items() if not exits)


# The signals that every run supports (SPEC §6); any other name is a custom signal.


RESERVED_SIGNALS = frozenset(
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
