"""Notifications about the end of a run, written to the outbox by the append that ends it. Facts by reference: no
result, no workload, and of an error what the log says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from arclog.core.transitions.decide import ENDS, webhooks_for
from arclog.model.events import TERMINAL, Event
from arclog.model.ids import timestamp
from arclog.ports.storage.outbox import NewDelivery

if TYPE_CHECKING:
    from arclog.core.transitions.state import State
    from arclog.plan.net import Plan
    from arclog.ports.storage.store import NewExecution


def news_of(plan: Plan, state: State, events: Sequence[Event], new: NewExecution) -> list[NewDelivery]:
    """The deliveries that these events lead to; `state` is the one behind them."""
    if not plan.webhooks or not any(event.type in TERMINAL and not event.informative for event in events):
        return []
    end = ENDS[state.status]
    cause = state.error or {}
    body = {
        "event": event_name(end),
        "execution_id": str(state.execution_id),
        "run_id": new.run_id,
        "name": new.name,
        "path": new.path,
        "version": str(new.version),
        "tenant_id": new.scope.tenant,
        "project_id": new.scope.project,
        "environment_id": new.scope.environment,
        "state": state.status,
        "started_at": None if state.started_at is None else timestamp(state.started_at),
        "ended_at": None if state.ended_at is None else timestamp(state.ended_at),
        "error": {key: cause[key] for key in ("kind", "message", "code", "step") if cause.get(key)} or None,
    }
    encoded = msgspec.json.encode(body)
    return [NewDelivery(each.url, each.secret, end, encoded) for each in webhooks_for(plan, state.status)]


def event_name(end: str) -> str:
    """In lifecycle names."""
    return "execution.cancelled" if end == "cancelled" else f"playbook.{end}"
