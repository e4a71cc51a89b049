"""The interface of all dialects, and the rules that they follow.

A dialect renders the canonical envelopes of a run, given in seq order, in another form. The rendering of an envelope
can depend on earlier ones; everything that a dialect remembers of them is in its state, one Struct of plain data. A
reader that starts in the middle therefore either restores the state that was stored with its cursor, or reads the log
from the beginning (only the types in `needs`) and drops the records of seqs up to the cursor.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

from msgspec import Struct

from arclog.model.events import CLOSING_REASONS

Envelope = dict[str, Any]


class Rendered(Struct, frozen=True):
    """One record in a dialect. It has the seq of its source: a cursor never separates several records of one seq."""

    #: the event's name in this dialect
    name: str
    record: dict[str, Any]
    #: the canonical envelope from which it was rendered
    source: Envelope
    #: whether it is a fact that the source implies and that is not stored as an event
    derived: bool = False

    @property
    def seq(self) -> int:
        number: int = self.source["seq"]
        return number


class Reader(Protocol):
    """Renders one run in one dialect."""

    @property
    def needs(self) -> frozenset[str] | None:
        """Canonical types that the reader needs from the start of the log:

        None for all, empty if it can start anywhere.
        """

    @property
    def state(self) -> Struct:
        """Plain data. A reader created from it continues at the same position."""

    def render(self, envelope: Envelope) -> list[Rendered]:
        """Return the records of the next envelope, in seq order.

        An event may be held back until the next one is known.
        """

    def held_back(self) -> list[Rendered]:
        """Return the events that are held back, for a reader that does not wait for more."""


def is_fact_only(envelope: Envelope) -> bool:
    """Return whether an event is stored but never applied, so that it changes no dialect's state."""
    return bool(envelope.get("informative"))


def is_closing(envelope: Envelope) -> bool:
    """Return whether the server closed something from outside (`model.events.is_closing`)."""
    return envelope["source"] == "server" and envelope["payload"].get("reason") in CLOSING_REASONS


def iteration_of(envelope: Envelope) -> tuple[int, ...] | None:
    """Return the loop indexes from the outermost; None outside loops."""
    path = envelope.get("iteration_id")
    if path is None:
        return None
    return tuple(int(index) for index in path.rpartition(":")[2].split("."))


def result_ref(payload: dict[str, Any]) -> dict[str, Any] | None:
    """Return the reference of a stored result, from the payload or its outcome; None if there is none."""
    ref = payload.get("result_ref") or (payload.get("outcome") or {}).get("result_ref")
    return ref if isinstance(ref, dict) else None


def same_task_run(left: Envelope, right: Envelope) -> bool:
    return all(left.get(key) == right.get(key) for key in ("step_run_id", "iteration_id", "task_run_id"))


@cache
def camel(name: str) -> str:
    """Return the PascalCase form of a dotted or underscored name."""
    return "".join(part.capitalize() for part in name.replace("_", ".").split("."))
