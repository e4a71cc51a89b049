"""Snapshots of live states: when to make one, and the way to the store and back.

Law: the log alone suffices. A snapshot that cannot be made, written, read or believed costs a log line and time, never a
run. One is made from a committed state only, at once (the state goes on changing), and written behind everybody's back.
The next is due after as many events as pay for its size, so that all snapshots of a run together cost no more than its log.
Those before the newest are kept, too, for looks at the past: `engine.snapshots_kept` of them, spread over the whole log.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from arclog import __version__
from arclog.core.transitions.state import STATE_VERSION, State
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError
from arclog.ports.storage.store import Store

# A snapshot is a State as JSON: a cache of the log, never a second source of truth. A value that JSON changes (a tuple, an
# int key, a NaN) comes back as a replay of the log has it. `code_of` identifies all that a snapshot depends on, so that only
# exactly the same code and plan read it.


_ENCODER = msgspec.json.Encoder()


def encode_state(state: State) -> bytes:
    """Encode the whole state. Raises ValueError for values that JSON cannot hold (lone surrogates)."""
    return _ENCODER.encode(state)


def decode_state(body: bytes) -> State:
    """Decode the output of `encode_state`. Raises ValueError (which msgspec's errors are) for anything else."""
    return _decoder().decode(body)


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[State]:
    """Made when the first snapshot is read: most processes read none."""
    return msgspec.json.Decoder(State)


@lru_cache(maxsize=1)
def _schema() -> str:
    """A fingerprint of every record inside State: a field added, removed or retyped gives another."""
    return hashlib.sha256(msgspec.json.encode(msgspec.json.schema(State))).hexdigest()


def code_of(plan_digest: str) -> str:
    """The code version that a snapshot of a run of this plan is kept under."""
    parts = (STATE_VERSION, __version__, _schema(), plan_digest)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]


log = logging.getLogger("arclog.engine")

#: About what an event takes in the log: a snapshot of so many bytes per event since the last one is affordable.
EVENT_BYTES = 64


def superfluous(seqs: Sequence[int], newest: int, most: int) -> list[int]:
    """The past snapshots to remove, so that one more makes at most `most`: those with the closest neighbours."""
    kept, gone = [0, *seqs, newest], []
    while len(kept) - 2 >= most:
        _, index = min((kept[index + 1] - kept[index - 1], index) for index in range(1, len(kept) - 1))
        gone.append(kept.pop(index))
    return gone


class Pace:
    """When the next snapshot of one live execution is due."""

    __slots__ = ("due", "too_large")

    def __init__(self, due: int) -> None:
        #: seq from which on it is
        self.due = due
        #: a warning about its size was logged already
        self.too_large = False


class Snapshots:
    """Keeps and finds the folded states of long logs."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        #: 0 = no snapshots
        self.every = settings.integer("engine.snapshot_events")
        self._most_past = settings.integer("engine.snapshots_kept")
        self._max_bytes = settings.integer("engine.snapshot_max_bytes")

    def pace(self, head: int) -> Pace:
        return Pace(head + self.every)

    def is_due(self, pace: Pace, state: State) -> bool:
        return state.head >= pace.due and self.every > 0

    def taken(self, pace: Pace, state: State) -> bytes | None:
        """The state as bytes, and the pace set for the next; None when it is not kept."""
        try:
            body = encode_state(state)
        except (ValueError, RecursionError, TypeError, OverflowError) as problem:
            log.warning("execution %s: no snapshot at seq %d: %s", state.execution_id, state.head, problem)
            pace.due = state.head + 10 * self.every
            return None
        pace.due = state.head + max(self.every, len(body) // EVENT_BYTES)
        if len(body) > self._max_bytes:
            if not pace.too_large:
                pace.too_large = True
                log.warning(
                    "execution %s: its state takes %d bytes, too many for a snapshot (engine.snapshot_max_bytes "
                    "is %d); resuming it requires reading its whole log",
                    state.execution_id,
                    len(body),
                    self._max_bytes,
                )
            return None
        return body

    async def write(self, execution_id: int, seq: int, plan: str, body: bytes) -> None:
        import zstandard  # not at the start: most runs are short

        try:
            packed, code = zstandard.ZstdCompressor(level=1).compress(body), code_of(plan)
            drop = None
            if self._most_past:
                drop = superfluous(await self._store.past_snapshots(execution_id, code), seq, self._most_past)
            await self._store.put_snapshot(execution_id, seq, code, packed, drop)
        except ArclogError as problem:
            log.warning("execution %s: the snapshot at seq %d was not stored: %s", execution_id, seq, problem)

    async def newest(self, execution_id: int, plan: str, last: int) -> State | None:
        """The newest state at or before event `last`; None when the log has to be read from its beginning."""
        if not self.every or last < self.every:
            return None
        import zstandard  # not at the start: most runs are short

        try:
            stored = await self._store.snapshot(execution_id, code_of(plan), last)
            if stored is None:
                return None
            seq, packed = stored
            state = decode_state(zstandard.ZstdDecompressor().decompress(packed, max_output_size=self._max_bytes))
        except (ArclogError, zstandard.ZstdError, ValueError, RecursionError) as problem:
            log.warning(
                "execution %s: its snapshot cannot be used (%s); reading the log instead", execution_id, problem
            )
            return None
        if (state.execution_id, state.head) != (execution_id, seq):
            log.warning(
                "execution %s: its snapshot belongs to another execution; reading the log instead", execution_id
            )
            return None
        return state
