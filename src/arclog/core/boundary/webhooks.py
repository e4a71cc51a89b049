"""Notifications about the end of a run (`executor.spec.webhooks`)."""

from __future__ import annotations

from arclog.model import status
from arclog.plan.net import Plan, Webhook

#: state of an ended run → what `on` calls it
ENDS = {status.COMPLETED: "completed", status.FAILED: "failed", status.CANCELLED: "cancelled"}


def to_tell(plan: Plan, state: str) -> tuple[Webhook, ...]:
    """The webhooks that want to know of an end like this."""
    return tuple(one for one in plan.webhooks if ENDS.get(state) in one.on) if plan.webhooks else ()
