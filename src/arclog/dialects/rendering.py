"""What every dialect answers with, and the laws that all of them keep.

A dialect tells a run's canonical envelopes, given in seq order, in an outside spelling. What one envelope becomes can depend
on those before it; all that is remembered of them is one Struct of plain data, the dialect's state. So a reader that starts
in the middle is right in either of two ways: it kept the state that belongs to its cursor, or it lets the dialect read the
log from its beginning (only the types in `needs`) and drops what is told of seqs up to the cursor.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

from msgspec import Struct

from arclog.model.events import CLOSING_REASONS

Envelope = dict[str, Any]


class Rendered(Struct, frozen=True):
    """One record in a dialect. Its seq is its source's: several records of one seq are never separated by a cursor."""

    #: the event's name in this dialect
    name: str
    record: dict[str, Any]
    #: the canonical envelope that it tells of
    source: Envelope
    #: a fact that the source carries and that is not stored as an event of its own
    derived: bool = False

    @property
    def seq(self) -> int:
        number: int = self.source["seq"]
        return number


class Reader(Protocol):
    """Renders one run in one dialect."""

    @property
    def needs(self) -> frozenset[str] | None:
        """Canonical types that it must be given from the log's beginning on; None = all, empty = it can begin anywhere."""

    @property
    def state(self) -> Struct:
        """Plain data: keep it with a cursor, and a reader made from it continues there."""

    def render(self, envelope: Envelope) -> list[Rendered]:
        """The records that the next envelope leads to, in seq order. An event may be held back until the next one is known."""

    def rest(self) -> list[Rendered]:
        """The events that are held back, rendered as far as they are known: for a reader that does not wait for more."""


def is_fact_only(envelope: Envelope) -> bool:
    """Stored and never applied: it changes nothing that a dialect remembers."""
    return bool(envelope.get("informative"))


def is_closing(envelope: Envelope) -> bool:
    """The server ended something from outside (`model.events.is_closing`)."""
    return envelope["source"] == "server" and envelope["payload"].get("reason") in CLOSING_REASONS


def iteration_of(envelope: Envelope) -> tuple[int, ...] | None:
    """Loop indexes from the outermost; None outside loops."""
    path = envelope.get("iteration_id")
    if path is None:
        return None
    return tuple(int(index) for index in path.rpartition(":")[2].split("."))


def result_ref(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The reference of a result that is stored outside the log, from the payload or its outcome."""
    ref = payload.get("result_ref") or (payload.get("outcome") or {}).get("result_ref")
    return ref if isinstance(ref, dict) else None


def same_task_run(left: Envelope, right: Envelope) -> bool:
    return all(left.get(key) == right.get(key) for key in ("step_run_id", "iteration_id", "task_run_id"))


@cache
def camel(name: str) -> str:
    """PascalCase display alias of a dotted or underscored name."""
    return "".join(part.capitalize() for part in name.replace("_", ".").split("."))
