"""Identifiers and times: their layout, parsing and formatting. Ids are created elsewhere, since that needs a clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from arclog.model.data.digest import sha256
from arclog.model.data.lazy import pattern
from arclog.model.errors import RequestRejected

#: Snowflake layout: 41 bits of ms since 2024-01-01, 10 bits of node, 12 bits of sequence.
EPOCH_MS = 1_704_067_200_000
NODE_BITS = 10
SEQUENCE_BITS = 12
MAX_NODE = (1 << NODE_BITS) - 1
MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1
MAX_ID = (1 << 63) - 1

#: Microseconds per second.
MICROS = 1_000_000
#: The last moment of the calendar.
LATEST = 253_402_300_799 * MICROS
_UUID = pattern(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, whose name isoformat would write
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def compose(ms: int, node: int, sequence: int) -> int:
    """Return the snowflake of a moment on a node."""
    return ((ms - EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS)) | (node << SEQUENCE_BITS) | sequence


def node_of(snowflake: int) -> int:
    """Return the node that created the id."""
    return snowflake >> SEQUENCE_BITS & MAX_NODE


def minted_at_ms(snowflake: int) -> int:
    """Return the Unix milliseconds at which the id was created."""
    return (snowflake >> (NODE_BITS + SEQUENCE_BITS)) + EPOCH_MS


def moved(snowflake: int, by: int) -> int:
    """Return the id `by` places after this one (or before, if negative) in a block of ids.

    After the last sequence number, the block continues in the next millisecond: the bits in between are the node's.
    """
    place = (snowflake & MAX_SEQUENCE) + by
    if 0 <= place <= MAX_SEQUENCE:
        return snowflake + by
    return (
        (snowflake & ~MAX_SEQUENCE) + ((place >> SEQUENCE_BITS) << (NODE_BITS + SEQUENCE_BITS)) + (place & MAX_SEQUENCE)
    )


def first_since(moment: int) -> int:
    """Return the smallest id of the millisecond of a moment (microseconds since 1970); at least 1."""
    return min(MAX_ID, max(1, compose(max(moment // 1000, EPOCH_MS), 0, 0)))


def parse_id(raw: object, noun: str = "id") -> int:
    """Return a positive i64 from an int or its decimal string. Raises RequestRejected for anything else."""
    if isinstance(raw, str):
        if not raw.isascii() or not raw.isdigit() or len(raw) > 19:
            raise RequestRejected(f"{noun} {raw[:40]!r} is not a positive 64-bit integer; copy it from `arclog list`")
        raw = int(raw)
    elif isinstance(raw, bool) or not isinstance(raw, int):
        raise RequestRejected(f"{noun} must be an integer or its decimal string, not {type(raw).__name__}")
    if not 0 < raw <= MAX_ID:
        raise RequestRejected(f"{noun} {raw} is not a positive 64-bit integer")
    return raw


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID in the form of RFC 9562."""
    return _UUID.fullmatch(text) is not None


def as_uuid(text: str, namespace: str) -> str:
    """Return a UUID for any name: the name itself if it is one, else a version 8 UUID that depends on name and
    namespace.
    """
    if is_uuid(text):
        return text
    raw = bytearray.fromhex(sha256(f"{namespace}|{text}".encode("utf-8", "surrogatepass"))[:32])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def milliseconds(began: int, ended: int) -> int | None:
    """Return the whole milliseconds between two moments; None if the first is unknown (0).

    Never negative, although the clocks of two machines can disagree.
    """
    return max(0, ended - began) // 1000 if began else None


def timestamp(micros: int) -> str:
    """Format a time as RFC 3339 UTC with microseconds."""
    seconds, part = divmod(micros, MICROS)
    return f"{_second(seconds)}.{part:06}Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """Format a second. Cached, since most timestamps are of the current second."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def micros(text: str) -> int:
    """Parse an RFC 3339 timestamp to microseconds since 1970."""
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


# Ids of traces and spans, computed from the ids in the log, so that they need not be stored or passed on.
#
# A run is a trace; its steps are spans below the run's, its task runs spans below their step's.


def trace_id(execution_id: int | str) -> int:
    """Return a trace id: 128 bits, never 0."""
    return int(sha256(f"trace:{execution_id}".encode())[:32], 16) or 1


def span_id(key: str) -> int:
    """Return a span id: 64 bits, never 0.

    The key of a run is its execution id, of a step run `id:step:run`, of a task run its task key.
    """
    return int(sha256(f"span:{key}".encode())[:16], 16) or 1


def traceparent(execution_id: str, task_key: str) -> str:
    """Return the W3C header that connects a task's requests to its trace."""
    return f"00-{trace_id(execution_id):032x}-{span_id(task_key):016x}-01"
