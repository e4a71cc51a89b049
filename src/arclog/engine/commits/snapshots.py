"""Snapshots of live states: when to take one, and how to write and read it.

Invariant: the log alone suffices. A snapshot that cannot be taken, written, read or validated costs a log line and
time, never a run. It is encoded at once from a committed state (which continues to change), and written in the
background. The next one is due after enough events to justify its size, so that all snapshots of a run together cost no
more than its log. Earlier snapshots are kept for views of the past: `engine.snapshots_kept` of them, spread over the
whole log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from arclog import __version__
from arclog.core.transitions.state import STATE_VERSION, State
from arclog.model.config.settings import Settings
from arclog.model.data.digest import sha256
from arclog.model.errors import ArclogError
from arclog.ports.storage.store import Store

# A snapshot is a State as JSON: a cache of the log, never a second source of truth. A value that JSON changes (a tuple,
# an int key, a NaN) comes back in the form that a replay of the log gives. `code_of` identifies everything that a
# snapshot depends on, so that only exactly the same code and plan read it.


_ENCODER = msgspec.json.Encoder()


def encode_state(state: State) -> bytes:
    """Encode the whole state. Raises ValueError for values that JSON cannot represent (lone surrogates)."""
    return _ENCODER.encode(state)


def decode_state(body: bytes) -> State:
    """Decode the output of `encode_state`. Raises ValueError (which msgspec's errors are) for anything else."""
    return _decoder().decode(body)


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[State]:
    """Return the decoder. It is created when the first snapshot is read, since most processes read none."""
    return msgspec.json.Decoder(State)


@lru_cache(maxsize=1)
def _schema() -> str:
    """Return a fingerprint of every record in State: it changes if a field is added, removed or retyped."""
    return sha256(msgspec.json.encode(msgspec.json.schema(State)))


def code_of(plan_digest: str) -> str:
    """Return the code version of a snapshot of a run with this plan."""
    parts = (STATE_VERSION, __version__, _schema(), plan_digest)
    return sha256("|".join(parts).encode())[:32]


log = logging.getLogger("arclog.engine")

#: The approximate size of an event in the log. A snapshot may have this many bytes per event since the last one.
EVENT_BYTES = 64


def superfluous(seqs: Sequence[int], newest: int, most: int) -> list[int]:
    """Return the past snapshots to remove, so that there are at most `most` with one more: those with the closest
    neighbours.
    """
    kept, gone = [0, *seqs, newest], []
    while len(kept) - 2 >= most:
        _, index = min((kept[index + 1] - kept[index - 1], index) for index in range(1, len(kept) - 1))
        gone.append(kept.pop(index))
    return gone


class Pace:
    """When the next snapshot of one live execution is due."""

    __slots__ = ("due", "too_large")

    def __init__(self, due: int) -> None:
        #: seq from which on it is due
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
        """Return the state as bytes, and set the pace for the next snapshot; None if no snapshot is kept."""
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
        import zstandard  # most runs are short and do not need it

        try:
            packed, code = zstandard.ZstdCompressor(level=1).compress(body), code_of(plan)
            drop = None
            if self._most_past:
                drop = superfluous(await self._store.past_snapshots(execution_id, code), seq, self._most_past)
            await self._store.put_snapshot(execution_id, seq, code, packed, drop)
        except ArclogError as problem:
            log.warning("execution %s: the snapshot at seq %d was not stored: %s", execution_id, seq, problem)

    async def newest(self, execution_id: int, plan: str, last: int) -> State | None:
        """Return the newest state at or before event `last`; None if the log has to be read from the beginning."""
        if not self.every or last < self.every:
            return None
        import zstandard  # most runs are short and do not need it

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
