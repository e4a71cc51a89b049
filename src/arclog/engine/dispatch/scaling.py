"""How many workers a pool should have: enough that what waits and what is in progress is done within `pools.scale_wait_s`."""

from __future__ import annotations

import math

#: What a command takes while nobody has seen one end.
ASSUMED_S = 1.0


def wanted_slots(backlog: int, busy: int, service_s: float, wait_s: float, limit: int | None = None) -> int:
    """Slots for so many commands that wait, beside those that are held; never more than there are commands, or than the
    pool's limit lets be held, and never fewer than are in use.
    """
    commands = backlog + busy
    enough = math.ceil(commands * service_s / wait_s - 1e-9)
    slots = min(commands, max(busy, enough, min(backlog, 1)))
    return slots if limit is None else min(slots, max(limit, busy))


def wanted_workers(slots: int, slots_per_worker: float) -> int:
    return math.ceil(slots / slots_per_worker - 1e-9)
