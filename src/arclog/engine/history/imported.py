"""What tells an imported run from others: the idempotency key that its import gave it."""

from __future__ import annotations

from arclog.ports.storage.store import NewExecution

#: Requests cannot bring keys that begin so.
PREFIX = "arclog.import/"


def is_imported(new: NewExecution) -> bool:
    """Whether a run was recorded elsewhere: it is read-only here."""
    return new.idempotency_key.startswith(PREFIX)
