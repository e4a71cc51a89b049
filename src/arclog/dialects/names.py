"""The dialects by name, and the meaning of an event name in any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from arclog.dialects import legacy, lifecycle, run, wire
from arclog.dialects.rendering import Envelope, Reader, Rendered
from arclog.dialects.run_record import RunSubject
from arclog.model.events import REGISTRY

CANONICAL = "canonical"


class Dialect(Struct, frozen=True):
    name: str
    doc: str
    state: type[Struct]
    #: creates a reader of a run, from the state of an earlier reader if given
    reader: Callable[[RunSubject, Any], Reader]
    #: the record's key for the event's name
    name_key: str = "event_type"


class _Nothing(Struct):
    pass


class _CanonicalReader:
    """Returns the envelopes unchanged. Implements `rendering.Reader`."""

    needs: frozenset[str] | None = frozenset()

    def __init__(self, state: _Nothing | None = None) -> None:
        self.state = state or _Nothing()

    def render(self, envelope: Envelope) -> list[Rendered]:
        return [Rendered(envelope["event_type"], envelope, envelope)]

    def held_back(self) -> list[Rendered]:
        return []


DIALECTS: dict[str, Dialect] = {
    spelling.name: spelling
    for spelling in (
        Dialect(CANONICAL, "as stored", _Nothing, lambda _, state: _CanonicalReader(state)),
        Dialect(
            lifecycle.NAME,
            "the status layers' names, with every command.* fact",
            lifecycle.LifecycleState,
            lambda _, state: lifecycle.LifecycleReader(state),
        ),
        Dialect(run.NAME, "Run Events Contract: RunEventRecords", run.RunState, run.RunReader, "eventType"),
        Dialect(
            wire.NAME,
            "the shape of POST /api/events, in lifecycle names",
            lifecycle.LifecycleState,
            lambda _, state: wire.WireReader(state),
        ),
        Dialect(
            legacy.NAME,
            "names of older executors",
            legacy.LegacyState,
            lambda _, state: legacy.LegacyReader(state),
        ),
    )
}


def reader_of(dialect: str, subject: RunSubject, state: bytes | None = None) -> Reader:
    """Return a reader that starts at the beginning, or at the state of another reader of the dialect (`state_of`)."""
    names = DIALECTS[dialect]
    return names.reader(subject, None if state is None else msgspec.json.decode(state, type=names.state))


def state_of(reader: Reader) -> bytes:
    """Return the state of a reader, to be stored with its cursor."""
    return msgspec.json.encode(reader.state)


# -- names ------------------------------------------------------------------------------------------------------------


class Meaning(Struct, frozen=True):
    """A canonical type and the statuses that a name stands for; () for all."""

    canonical: str
    statuses: tuple[str, ...] = ()
    #: a further condition, as in the table of the `run` dialect
    only: str = ""

    def holds(self, envelope: Envelope) -> bool:
        return (
            envelope["event_type"] == self.canonical
            and (not self.statuses or envelope["status"] in self.statuses)
            and (self.only not in _CONDITIONS or _CONDITIONS[self.only](envelope))
        )


_CONDITIONS: dict[str, Callable[[Envelope], bool]] = {run.RETRIED: run.retries, run.RESTARTED: run.restarts}


def _meanings() -> dict[str, tuple[Meaning, ...]]:
    meanings_by_name: dict[str, dict[Meaning, None]] = {name: {Meaning(name): None} for name in REGISTRY}
    for entry in lifecycle.TABLE:
        meanings_by_name.setdefault(entry.name, {})[Meaning(entry.canonical, entry.statuses)] = None
    for row in run.TABLE:
        meanings_by_name.setdefault(row.name, {})[Meaning(row.canonical, row.statuses, row.only)] = None
    for old in legacy.TABLE:
        for canonical in old.canonical.values():
            several = len(REGISTRY[canonical].statuses) > 1 and "" in old.canonical
            meanings_by_name.setdefault(old.legacy, {})[Meaning(canonical, (old.status,) if several else ())] = None
    return {name: tuple(meanings) for name, meanings in meanings_by_name.items()}


#: event name of any dialect → meanings
MEANINGS: dict[str, tuple[Meaning, ...]] = _meanings()


def _squashed(name: str) -> str:
    return name.translate(_SEPARATORS).lower()


_SEPARATORS = str.maketrans("", "", "._- ")
#: Names match in any spelling: StepCompleted, step_completed, STEP-COMPLETED.
_SPELLINGS: dict[str, str] = {_squashed(name): name for name in reversed(MEANINGS)}


def spelled(name: str) -> str | None:
    """Return the known name with this spelling; None if there is none."""
    return _SPELLINGS.get(_squashed(name))


def canonical_types(names: Iterable[str]) -> tuple[str, ...]:
    """Return the canonical types that these names of any dialect stand for."""
    return tuple(dict.fromkeys(meaning.canonical for name in names for meaning in MEANINGS[name]))


def asked_for(rendered: Rendered, names: Iterable[str]) -> bool:
    """Return whether a filter by these names, of any dialect, matches the record."""
    for name in names:
        if name == rendered.name:
            return True
        if not rendered.derived and any(meaning.holds(rendered.source) for meaning in MEANINGS[name]):
            return True
    return False
