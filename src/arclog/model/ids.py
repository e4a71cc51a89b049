"""Identifiers and times: their layout and how they are read and written. Minting needs a clock and lives elsewhere."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from arclog.model.errors import RequestRejected

#: Snowflake layout: 41 bits of ms since 2024-01-01, 10 bits of node, 12 bits of sequence.
EPOCH_MS = 1_704_067_200_000
NODE_BITS = 10
SEQUENCE_BITS = 12
MAX_NODE = (1 << NODE_BITS) - 1
MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1
MAX_ID = (1 << 63) - 1

#: times are counted in microseconds: so many are a second
MICROS = 1_000_000
#: the last moment that the calendar can write
LATEST = 253_402_300_799 * MICROS
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, whose name isoformat would write
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def compose(ms: int, node: int, sequence: int) -> int:
    """The snowflake of a moment on a node."""
    return ((ms - EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS)) | (node << SEQUENCE_BITS) | sequence


def node_of(snowflake: int) -> int:
    """The node that minted the id."""
    return snowflake >> SEQUENCE_BITS & MAX_NODE


def minted_at_ms(snowflake: int) -> int:
    """Unix milliseconds at which the id was minted."""
    return (snowflake >> (NODE_BITS + SEQUENCE_BITS)) + EPOCH_MS


def moved(snowflake: int, by: int) -> int:
    """The id so many places further in a run of ids (or back). After its last sequence number a run goes on in the next
    millisecond: the bits between are the node's.
    """
    place = (snowflake & MAX_SEQUENCE) + by
    if 0 <= place <= MAX_SEQUENCE:
        return snowflake + by
    return (
        (snowflake & ~MAX_SEQUENCE) + ((place >> SEQUENCE_BITS) << (NODE_BITS + SEQUENCE_BITS)) + (place & MAX_SEQUENCE)
    )


def first_since(moment: int) -> int:
    """The smallest id that can have been minted in the millisecond of a moment (microseconds since 1970); at least 1."""
    return min(MAX_ID, max(1, compose(max(moment // 1000, EPOCH_MS), 0, 0)))


def parse_id(raw: object, noun: str = "id") -> int:
    """A positive i64 from an int or its decimal string; anything else is refused."""
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise RequestRejected(f"{noun} must be an integer or its decimal string, not {type(raw).__name__}")
    if isinstance(raw, str):
        if not raw.isascii() or not raw.isdigit() or len(raw) > 19:
            raise RequestRejected(f"{noun} {raw[:40]!r} is not a positive 64-bit integer; copy it from `arclog list`")
        raw = int(raw)
    if not 0 < raw <= MAX_ID:
        raise RequestRejected(f"{noun} {raw} is not a positive 64-bit integer")
    return raw


def is_uuid(text: str) -> bool:
    """Whether a text is a UUID as RFC 9562 writes it."""
    return _UUID.fullmatch(text) is not None


def as_uuid(text: str, namespace: str) -> str:
    """A UUID for a name of any form: itself when it is one, else always the same (version 8) within a namespace."""
    if is_uuid(text):
        return text
    from hashlib import sha256  # few names need it

    raw = bytearray(sha256(f"{namespace}|{text}".encode("utf-8", "surrogatepass")).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def milliseconds(began: int, ended: int) -> int | None:
    """Whole milliseconds between two moments; None when the first is not known (0). Clocks of two machines can disagree:
    never below 0.
    """
    return max(0, ended - began) // 1000 if began else None


def timestamp(micros: int) -> str:
    """RFC 3339 UTC with microseconds."""
    seconds, part = divmod(micros, MICROS)
    return f"{_second(seconds)}.{part:06}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """Most timestamps are of this second."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def micros(text: str) -> int:
    """Microseconds since 1970 of an RFC 3339 timestamp."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise RequestRejected(f"timestamp {text!r} has no time zone; write it as UTC, e.g. 2026-01-31T12:00:00Z")
    return (moment - _UNIX_EPOCH) // timedelta(microseconds=1)


def workflow_run_id(name: str) -> str:
    return f"workflow:{name}:run:1"


def step_run_id(step: str, run: int) -> str:
    return f"step:{step}:run:{run}"


def task_run_id(task: str, run: int) -> str:
    return f"task:{task}:run:{run}"


def iteration_id(step: str, run: int, path: tuple[int, ...]) -> str:
    return f"step:{step}:run:{run}:iter:{'.'.join(map(str, path))}"


# Ids of traces and spans, computed from the ids in the log, so that they need not be passed along.
#
# A run is a trace; its steps are spans below the run's, its task runs spans below their step's.


def trace_id(execution_id: int | str) -> int:
    """128 bits, never 0."""
    return int.from_bytes(hashlib.sha256(f"trace:{execution_id}".encode()).digest()[:16]) or 1


def span_id(key: str) -> int:
    """64 bits, never 0. The key of a run is its execution id, of a step run `id:step:run`, of a task run its own."""
    return int.from_bytes(hashlib.sha256(f"span:{key}".encode()).digest()[:8]) or 1


def traceparent(execution_id: str, task_key: str) -> str:
    """The W3C header that makes what a task asks for a part of its trace."""
    return f"00-{trace_id(execution_id):032x}-{span_id(task_key):016x}-01"
