"""The five status layers and their legal transitions, as data. Diagrams and docs are drawn from these tables.

Only the playbook layer says what state an execution is in; no lower layer ever closes one.
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

#: layer → from → {to: the canonical event that says so}
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

#: what an execution can be in
EXECUTION_STATES = tuple(TRANSITIONS["playbook"])


def may(layer: str, before: str, after: str) -> bool:
    """Whether the layer's table has this transition."""
    return after in TRANSITIONS[layer][before]


def terminal_states(layer: str) -> frozenset[str]:
    """The states of a layer that nothing leaves."""
    return frozenset(state for state, exits in TRANSITIONS[layer].items() if not exits)


# The signals that mean something to every run (SPEC §6); any other name is a playbook's own.


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
