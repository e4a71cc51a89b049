"""Recognizes imported runs by the idempotency key that the import gave them."""

from __future__ import annotations

from arclog.ports.storage.store import NewExecution

#: Requests cannot bring keys that begin so.
PREFIX = "arclog.import/"


def is_imported(new: NewExecution) -> bool:
    """Whether a run was recorded elsewhere: it is read-only here."""
    return new.idempotency_key.startswith(PREFIX)
