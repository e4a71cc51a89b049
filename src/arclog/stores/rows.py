"""Converts transactions to stored rows and back, without I/O and in the same way for every store.

An append becomes log rows (`Row`), marks and changes to step runs, all derived from its events. A row's body is a JSON
array of lean events. Its first byte identifies the form: `[` for JSON as msgspec wrote it, a space before it if the
text has escaped lone surrogates (which UTF-8 cannot encode), anything else for zstd of one of these. Informative events
are stored and read like any other, but create no marks and no step runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import local
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.model.data.json_data import decoded_size
from arclog.model.errors import EventTooLarge, InvariantBroken, RequestRejected, StoreUnavailable
from arclog.model.events import (
    BITS,
    LIFTS,
    REGISTRY,
    Event,
    is_closing,
    lifted,
    status_of,
)
from arclog.model.ids import MAX_SEQUENCE, moved
from arclog.model.refs import SCOPES, ResultRef, parse_ref
from arclog.ports.storage.marks import Marks
from arclog.ports.storage.store import Append, Ingested, StoredEvent, Timer

_JSON = ord("[")
_ESCAPED = ord(" ")
_ENCODER = msgspec.json.Encoder()
_EVENTS = msgspec.json.Decoder(list[Event])
T = TypeVar("T")
#: the event type that announces content outside the log
_STORING = "result.stored"
#: event types that open or close a step run
_BOUNDARIES = frozenset({"step.scheduled", "step.done", "step.failed"})


class _Meaning(Struct, frozen=True):
    """What an event changes besides the log."""

    #: it opens or closes a step run
    bounds: bool
    marked: bool
    #: payload key that it must have to be marked; '' if none
    marked_with: str
    mark: int
    terminal: bool


#: by event type: its bit, and its meaning, if it has one
_KINDS = {
    name: (
        BITS[name],
        _Meaning(name in _BOUNDARIES, row.marked, row.marked_with, row.bit, row.terminal)
        if row.marked or name in _BOUNDARIES
        else None,
    )
    for name, row in REGISTRY.items()
}
_LONGEST_TTL_S = 1e12
#: maximum size of a decompressed row; the limit of a written row is far below
_MAX_BODY = 1 << 30
#: Of zstd. Higher levels take longer and make rows of events no smaller.
_LEVEL = 1
#: The text of a small row, and how many times as much memory its events take.
_SMALL = 4096
_SMALL_RATIO = 8


class Row(Struct, frozen=True):
    """One row of the log, before the store assigns its position and time."""

    seq0: int
    seq1: int
    #: event id of the first event
    base: int
    #: bit set of the event types inside
    types: int
    body: bytes
    #: the approximate size of its events in memory
    decoded_bytes: int = 0


class StepChange(Struct):
    """The change of one step run by an append."""

    step: str
    run: int
    #: seq of the first and the last event in this append that belong to the step run
    first: int
    last: int
    #: step.scheduled is one of them
    opens: bool = False
    #: seq and status of the event that ends it; 0 while it is open
    closed: int = 0
    status: str = "open"


class NewResult(Struct, frozen=True):
    """Content that an event announces as stored outside the log."""

    name: str
    ref: ResultRef
    #: index in SCOPES
    scope: int
    #: microseconds; None without a limit
    ttl: int | None
    step: str
    run: int
    task: str
    seq: int


class _Stored(Struct):
    """The relevant part of the payload of such an event."""

    result_ref: ResultRef
    scope: str = "execution"
    ttl_s: float | None = None


class Derived(Struct, frozen=True):
    """Everything that is derived from an append's events."""

    rows: Sequence[Row]
    #: (event type's bit, seq)
    marks: Sequence[tuple[int, int]]
    steps: Sequence[StepChange]
    #: with their payloads as JSON
    timers: Sequence[tuple[Timer, bytes]]
    terminal: bool
    last_seq: int
    results: Sequence[NewResult] = ()
    #: events that came with their own ids
    ingested: Sequence[Ingested] = ()

    @property
    def decoded_bytes(self) -> int:
        """The approximate size of the events in memory."""
        return sum(row.decoded_bytes for row in self.rows)


class Codec:
    """Converts events to row bodies and back. Several threads may read at the same time; one writes."""

    def __init__(self, settings: Settings, *, dense: bool = False) -> None:
        """`dense` compresses smaller rows, too, for a store where bytes cost more than processor time."""
        self._compress_min = settings.integer("store.compress_min_bytes") // (2 if dense else 1)
        self._max_events = settings.integer("store.max_row_events")
        self._max_bytes = settings.integer("store.max_row_bytes")
        self._compressor: Any = None
        #: one decompressor per thread
        self._own = local()
        #: where the run is marked whose events are encoded; None if marks are not used
        self.marks: Marks | None = None

    def derive(self, append: Append) -> Derived:
        """Return the rows, marks and step changes of an append. Raises if no store may accept it."""
        marks = self.marks
        if marks is None or not append.marks:
            return self._derived(append)
        marks.begin(0, *append.marks)
        try:
            return self._derived(append)
        finally:
            marks.end(0)

    def _derived(self, append: Append) -> Derived:
        if (append.expected == 0) != (append.new is not None):
            raise InvariantBroken(
                f"append to execution {append.execution_id}: `new` belongs to the first append (expected 0) and to no other"
            )
        bits = 0
        terminal = 0
        marks: list[tuple[int, int]] = []
        steps: dict[tuple[str, int], StepChange] = {}
        seq = append.expected
        change: StepChange | None = None
        for event in append.events:
            seq += 1
            try:
                bit, meaning = _KINDS[event.type]
            except KeyError:
                raise RequestRejected(
                    f"event type {event.type!r} is not in the registry; it cannot be stored"
                ) from None
            bits |= bit
            run = event.run
            if run and (step := event.step):
                # Most events belong to the same step run as the previous one.
                if change is None or change.run != run or change.step != step:
                    change = steps.get((step, run))
                    if change is None:
                        change = steps[step, run] = StepChange(step, run, seq, seq)
                change.last = seq
                if meaning is not None and meaning.bounds and not event.informative:
                    _note(change, event, seq)
            if meaning is None or not meaning.marked or event.informative:
                continue
            if not meaning.marked_with or meaning.marked_with in event.payload:
                marks.append((meaning.mark, seq))
                terminal += meaning.terminal
        if terminal > 1:
            raise InvariantBroken(f"append to execution {append.execution_id} holds {terminal} terminal events")
        rows = self._rows(append, bits) if append.events else ()
        timers = [(timer, encode(timer.payload)) for timer in append.set_timers]
        results = _results(append) if bits & BITS[_STORING] else ()
        ingested = _ingested(append) if append.digests else ()
        return Derived(rows, marks, tuple(steps.values()), timers, bool(terminal), seq, results, ingested)

    def _rows(self, append: Append, bits: int) -> Sequence[Row]:
        events, count = append.events, len(append.events)
        if append.ids:
            return list(self._rows_of(append))
        body = encode(events) if count <= self._max_events or append.max_event_bytes else b""
        if 0 < append.max_event_bytes < len(body):
            _check_sizes(append)
        #: number of events with consecutive ids; the ids of another millisecond begin another row
        run = MAX_SEQUENCE + 1 - (append.base_id & MAX_SEQUENCE)
        fits = count <= self._max_events and (len(body) <= self._max_bytes or count == 1)
        if not fits or count > run:
            return list(self._cut_rows(append, run))
        packed = body if len(body) <= self._compress_min else self._packed(body)
        first = append.expected + 1
        return (Row(first, append.expected + count, append.base_id, bits, packed, _size_in_memory(body)),)

    def _cut_rows(self, append: Append, run: int) -> Iterator[Row]:
        """Yield the rows of events that one row cannot have. The first `run` events have consecutive ids."""
        events = append.events
        start = 0
        while start < len(events):
            left = run - start if start < run else MAX_SEQUENCE + 1 - (start - run) % (MAX_SEQUENCE + 1)
            stop = min(len(events), start + self._max_events, start + left)
            part = events[start:stop]
            body = encode(part)
            if len(body) > self._max_bytes and len(part) > 1:
                encoded = [encode(event) for event in part]
                stop = start + _first_cut([len(event_body) for event_body in encoded], self._max_bytes)
                part = events[start:stop]
                body = _joined(encoded[: stop - start])
            seq0 = append.expected + 1 + start
            bits = bits_of({event.type for event in part})
            base = moved(append.base_id, start)
            yield Row(seq0, seq0 + stop - start - 1, base, bits, self._packed(body), _size_in_memory(body))
            start = stop

    def _rows_of(self, append: Append) -> Iterator[Row]:
        """Yield rows of events that already have ids: one row for each sequence of consecutive ids."""
        events, ids = append.events, append.ids
        if len(ids) != len(events):
            raise InvariantBroken(f"append to execution {append.execution_id}: {len(ids)} ids of {len(events)} events")
        start = 0
        while start < len(events):
            stop, held = start, 2
            base = 0
            bits = 0
            while stop < len(events) and stop - start < self._max_events:
                event = events[stop]
                #: the id of the row's first event, as far as this event determines it
                first = 0 if event.own_id else ids[stop] - (stop - start)
                held += len(encode(event)) + 1
                if stop > start and ((first and base and first != base) or held > self._max_bytes):
                    break
                base = base or first
                bits |= BITS[event.type]
                stop += 1
            seq0 = append.expected + 1 + start
            body = encode(events[start:stop])
            packed = self._packed(body)
            yield Row(seq0, seq0 + stop - start - 1, base or ids[start], bits, packed, _size_in_memory(body))
            start = stop

    def _packed(self, body: bytes) -> bytes:
        if len(body) <= self._compress_min:
            return body
        if self._compressor is None:
            import zstandard

            self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        packed: bytes = self._compressor.compress(body)
        return packed if len(packed) < len(body) else body

    def events(self, body: bytes) -> list[Event]:
        """Return the events of a row."""
        if body[0] not in (_JSON, _ESCAPED):
            body = self._decompressor().decompress(body, max_output_size=_MAX_BODY)
        events = decode(body, _EVENTS)
        return [lifted(event) for event in events] if LIFTS else events

    def _decompressor(self) -> Any:
        own = self._own
        try:
            return own.decompressor
        except AttributeError:
            import zstandard

            own.decompressor = zstandard.ZstdDecompressor()
            return own.decompressor

    def stored(self, execution_id: int, seq0: int, base: int, persisted_at: int, body: bytes) -> list[StoredEvent]:
        """Return the events of a row, with their sequence numbers, ids and time."""
        try:
            events = self.events(body)
        except Exception as error:  # errors of zstd and JSON for a damaged body
            raise StoreUnavailable(
                f"the log of execution {execution_id} is damaged at seq {seq0} ({error}); restore the store from a backup"
            ) from error
        return [
            StoredEvent(event, execution_id, seq0 + i, event.own_id or base + i, persisted_at)
            for i, event in enumerate(events)
        ]


def _size_in_memory(body: bytes) -> int:
    """Return the approximate size of a row's events in memory.

    The values of a small row are not counted: most such rows take between six and eight times their text, and a state
    that has grown by many of them is measured as a whole.
    """
    return _SMALL_RATIO * len(body) if len(body) <= _SMALL else decoded_size(body)


def _check_sizes(append: Append) -> None:
    for event in append.events:
        size = len(encode(event))
        if size > append.max_event_bytes:
            of = f" of step {event.step}" if event.step else ""
            raise EventTooLarge(
                f"{event.type}{of} takes {size} bytes; an event holds {append.max_event_bytes} "
                "(limits.max_payload_bytes); large data belongs in results, which are stored by reference"
            )


def _ingested(append: Append) -> list[Ingested]:
    """Return the events of an append that came from outside with their own ids."""
    ingested = [
        Ingested(event.own_id, append.digests[event.own_id], seq)
        for seq, event in enumerate(append.events, append.expected + 1)
        if event.own_id in append.digests
    ]
    if len(ingested) != len(append.digests):
        raise InvariantBroken(f"append to execution {append.execution_id}: each digest belongs to exactly one event")
    return ingested


def _results(append: Append) -> list[NewResult]:
    """Return the content that an append's events announce as stored outside the log."""
    results: list[NewResult] = []
    for seq, event in enumerate(append.events, append.expected + 1):
        if event.type != _STORING or event.informative:
            continue
        try:
            stored = msgspec.convert(event.payload, _Stored)
        except msgspec.ValidationError as problem:
            raise RequestRejected(f"{event.type} of execution {append.execution_id}: {problem}") from problem
        ref = parse_ref(stored.result_ref.ref)
        if ref.execution_id != append.execution_id or ref.sha256 != stored.result_ref.meta.sha256:
            raise RequestRejected(
                f"{event.type} of execution {append.execution_id} refers to a result of another execution: {stored.result_ref.ref}"
            )
        if stored.scope not in SCOPES:
            raise RequestRejected(f"{event.type}: there is no scope {stored.scope!r}, but {', '.join(SCOPES)}")
        if stored.ttl_s is not None and not 0 <= stored.ttl_s <= _LONGEST_TTL_S:
            raise RequestRejected(f"{event.type}: ttl_s {stored.ttl_s} is not between 0 and {_LONGEST_TTL_S:g} seconds")
        ttl = None if stored.ttl_s is None else round(stored.ttl_s * 1_000_000)
        scope = SCOPES.index(stored.scope)
        results.append(NewResult(ref.name, stored.result_ref, scope, ttl, event.step, event.run, event.task, seq))
    return results


def _note(change: StepChange, event: Event, seq: int) -> None:
    """Record that a step run was opened or closed."""
    name = event.type
    if name == "step.scheduled":
        change.opens = True
    elif not change.closed:
        change.closed = seq
        if name == "step.failed":
            change.status = "cancelled" if is_closing(event) else "failed"
        else:
            change.status = "skipped" if status_of(event) == "skipped" else "done"


def _first_cut(sizes: Sequence[int], max_bytes: int) -> int:
    """Return how many of the first events fit into a row. An event above the limit gets its own row."""
    held = 2
    for i, size in enumerate(sizes):
        held += size + 1
        if held > max_bytes and i:
            return i
    return len(sizes)


def bits_of(types: Iterable[str]) -> int:
    """Return the bit set of some event types. Unknown names match nothing."""
    bits = 0
    for name in types:
        bits |= BITS.get(name, 0)
    return bits


def encode(value: Any) -> bytes:
    """Return a value as JSON text. Lone surrogates survive the round trip."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        import json

        return b" " + json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
    except (RecursionError, TypeError, ValueError, OverflowError) as error:
        raise RequestRejected(f"this cannot be stored as JSON: {error}") from error


def _joined(encoded: Sequence[bytes]) -> bytes:
    """Return the JSON text of a list of encoded values. If one of them was escaped, the list is marked as escaped."""
    escaped = any(body[0] == _ESCAPED for body in encoded)
    return (b" [" if escaped else b"[") + b",".join(encoded) + b"]"


def decode(text: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode the output of `encode`."""
    if text[0] != _ESCAPED:
        return decoder.decode(text)
    import json

    kept: T = msgspec.convert(json.loads(text), decoder.type)
    return kept
