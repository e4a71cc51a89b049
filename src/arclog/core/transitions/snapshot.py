"""Snapshots: a State as bytes and back. A cache of the log, never a second truth.

JSON, as the log is: a value that JSON changes (a tuple, an int key, a NaN) comes back as the replay of the log has it.
`code_of` names all that a snapshot depends on: what is not exactly this code and this plan never reads it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from arclog import __version__
from arclog.core.transitions.state import STATE_VERSION, State

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(State)


def encode(state: State) -> bytes:
    """The whole state. Raises ValueError for what JSON cannot hold (lone surrogates)."""
    return _ENCODER.encode(state)


def decode(body: bytes) -> State:
    """What `encode` made into bytes. Raises ValueError (msgspec's errors are such) for anything else."""
    return _DECODER.decode(body)


@lru_cache(maxsize=1)
def _schema() -> str:
    """A fingerprint of every record inside State: a field added, removed or retyped gives another."""
    return hashlib.sha256(msgspec.json.encode(msgspec.json.schema(State))).hexdigest()


def code_of(plan_digest: str) -> str:
    """The code version that a snapshot of a run of this plan is kept under."""
    parts = (STATE_VERSION, __version__, _schema(), plan_digest)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]
