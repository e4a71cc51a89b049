"""One connection in libpq's pipeline mode: requests are sent at once, and responses arrive in the same order.

A request is one or more statements and one transaction: PostgreSQL runs everything between two synchronisation points
completely or not at all. So each request takes one round trip, no state stays on the connection (a pooler may give each
request another server process), and no request waits for another.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format

from arclog.drivers.postgres.refusals import READ_ONLY, Meaning, is_outdated, refusal_of, state_of, text_of
from arclog.model.errors import ArclogError, InvariantBroken, RequestRejected, StoreUnavailable

# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Translates PostgreSQL's errors. Every message names the problem, the place and the remedy; none contains a password.

_SETTING = "ARCLOG_STORE_URL"


def translated(error: BaseException, place: str) -> ArclogError:
    """Return the error to raise instead of a driver's error."""
    if isinstance(error, ArclogError):
        return error
    if isinstance(error, UnicodeEncodeError | OverflowError | struct.error):
        return RequestRejected(f"{place} cannot take this value: {error}")
    if not isinstance(error, psycopg.Error):
        return InvariantBroken(f"{place}: unexpected {type(error).__name__}: {error}; nothing was written")
    refusal, text = refusal_of(error), text_of(error)
    if refusal.problem:
        remedy = refusal.remedy.format(address=_SETTING)
        return StoreUnavailable(f"{place}: {refusal.problem} ({text}); {remedy}")
    match refusal.meaning:
        case Meaning.VALUE:
            return RequestRejected(f"{place} cannot take this value: {text}")
        case Meaning.CONSTRAINT:
            return InvariantBroken(f"{place} refused a row that breaks one of its rules ({text}); nothing was written")
        case Meaning.AWAY | Meaning.TROUBLE:
            return StoreUnavailable(
                f"{place} cannot be reached ({text}); check that PostgreSQL runs there, and {_SETTING}"
            )
        case _:
            return InvariantBroken(f"{place}: unexpected {state_of(error)} {text}; nothing was written")


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Parameters in PostgreSQL's binary form. A number is always an int8, so the types of a statement never depend on its
# values.

_INT8 = Struct("!q").pack
_HEAD = Struct("!iiIii").pack
_SIZE = Struct("!i").pack
_SIZED_INT8 = Struct("!iq").pack
_NULL = _SIZE(-1)
_TRUE, _FALSE = b"\x01", b"\x00"
_OID_BOOL, _OID_BYTEA, _OID_INT8, _OID_TEXT = 16, 17, 20, 25
_HEADS_OF_ONE = {oid: _HEAD(1, 1, oid, 1, 1) for oid in (_OID_BOOL, _OID_BYTEA, _OID_INT8, _OID_TEXT)}


def packed(values: Iterable[Any]) -> list[bytes | None]:
    """Encode the parameters of a statement."""
    return [_PACKED[type(value)](value) for value in values]


class _Packed(dict[type, Callable[[Any], bytes | None]]):
    def __missing__(self, kind: type) -> Callable[[Any], bytes | None]:
        """Return the encoder of a base class."""
        for base in kind.__mro__:
            if base in self:
                return self.setdefault(kind, self[base])
        raise TypeError(f"a {kind.__name__} cannot be a parameter")


_PACKED = _Packed(
    {
        int: _INT8,
        str: str.encode,
        bytes: lambda value: value,
        bool: lambda value: _TRUE if value else _FALSE,
        type(None): lambda _: None,
    }
)


def ints(values: Iterable[int | None]) -> bytes:
    return _array(_OID_INT8, [_NULL if value is None else _SIZED_INT8(8, value) for value in values])


def bools(values: Iterable[bool]) -> bytes:
    return _array(_OID_BOOL, [b"\x00\x00\x00\x01\x01" if value else b"\x00\x00\x00\x01\x00" for value in values])


def texts(values: Iterable[str | None]) -> bytes:
    return blobs([None if value is None else value.encode() for value in values], _OID_TEXT)


def blobs(values: Iterable[bytes | None], oid: int = _OID_BYTEA) -> bytes:
    return _array(oid, [_NULL if value is None else _SIZE(len(value)) + value for value in values])


def _array(oid: int, items: list[bytes]) -> bytes:
    if len(items) == 1:  # an append on its own
        return _HEADS_OF_ONE[oid] + items[0]
    if not items:
        return _HEAD(0, 0, oid, 0, 0)[:12]
    return b"".join((_HEAD(1, 1, oid, len(items), 1), *items))


def columns(kinds: str, rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """Encode rows as one array per column. `kinds` has one letter per column: i(nteger), t(ext), b(ytes), y(es
    or no).
    """
    return [_PACKERS[kind](values) for kind, values in zip(kinds, zip(*rows, strict=True), strict=True)]


_PACKERS: dict[str, Callable[[Iterable[Any]], bytes]] = {"i": ints, "t": texts, "b": blobs, "y": bools}


# ── pipeline ──────────────────────────────────────────────────────────────────────────────────────────────────────────

log = logging.getLogger(__name__)

Rows = list[tuple[Any, ...]]
#: a statement and its parameters
Call = tuple[str, Sequence[Any]]
#: called with the rows of each statement of a request, or with the error
Answered = Callable[[list[Rows] | psycopg.Error], None]

_ROWS = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
#: SQLSTATEs of a prepared statement that exists already, and of one that does not exist
MIXED_UP = frozenset({"42P05", "26000"})
#: maximum number of prepared statements of a connection; others are sent unprepared
_MOST_PREPARED = 200


class Preparing:
    """Whether a store's connections prepare statements. It is turned off if a pooler mixes them up."""

    def __init__(self, *, on: bool) -> None:
        self.on = on

    def hear(self, error: psycopg.Error) -> None:
        if self.on and error.sqlstate in MIXED_UP:
            self.on = False
            log.warning(
                "the pooler in front of PostgreSQL does not support prepared statements: continuing without them (%s)",
                error,
            )


@lru_cache(maxsize=4096)
def _name_of(text: str, generation: int) -> bytes:
    """Return a name for a statement. The same name means the same text on every connection of a pooler."""
    name = f"arclog_{blake2b(text.encode(), digest_size=12).hexdigest()}"
    return (f"{name}_{generation}" if generation else name).encode()


class _Request:
    __slots__ = ("answered", "error", "left", "rows", "sent_at")

    def __init__(self, answered: Answered, sent_at: float) -> None:
        self.answered = answered
        self.sent_at = sent_at
        self.rows: list[Rows] = []
        self.error: psycopg.Error | None = None
        #: for each outstanding response: '' if it is that of a statement, else the text that it prepares
        self.left: deque[str] = deque()


class Pipeline:
    """A connection in pipeline mode. Nothing else may use the connection."""

    def __init__(
        self, connection: AsyncConnection[Any], name: str, preparing: Preparing, timeout_s: float, first: str = ""
    ) -> None:
        """If there is no response within `timeout_s`, the connection is closed, so that requests do not wait forever.
        `first` is a statement with which every request begins.
        """
        #: its application_name at the server
        self.name = name
        self._connection = connection
        self._pg = connection.pgconn
        self._preparing = preparing
        self._timeout_s = timeout_s
        self._watch: asyncio.TimerHandle | None = None
        self._first = first
        self._prepared: dict[str, bytes] = {}
        #: how often all statements had to be prepared again, under new names
        self._generation = 0
        self._requests: deque[_Request] = deque()
        self._loop = asyncio.get_running_loop()
        self._loader = Transformer(connection)
        self._writing = False
        self.lost: psycopg.Error | None = None
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._socket = self._pg.socket
        self._loop.add_reader(self._socket, self._readable)

    @property
    def waiting(self) -> int:
        """The number of requests without a response."""
        return len(self._requests)

    def request(self, calls: Sequence[Call]) -> asyncio.Future[list[Rows]]:
        """Run statements as one transaction. The future has the rows of each."""
        future: asyncio.Future[list[Rows]] = self._loop.create_future()

        def answered(outcome: list[Rows] | psycopg.Error) -> None:
            if future.done():
                return  # the caller was cancelled
            if isinstance(outcome, psycopg.Error):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.send(calls, answered)
        return future

    def send(self, calls: Sequence[Call], answered: Answered) -> None:
        """Run statements as one transaction, with a callback: `answered` is called when the response was read. It must
        not raise.
        """
        # values are checked before the first byte is sent
        ready = [(text, packed(values)) for text, values in calls]
        if self.lost is not None:
            answered(psycopg.OperationalError(str(self.lost)))
            return
        request = _Request(answered, self._loop.time())
        self._requests.append(request)
        try:
            if self._first:
                self._send(request, self._first, [])
            for text, values in ready:
                self._send(request, text, values)
            self._pg.pipeline_sync()
        except psycopg.Error as error:
            self._lose(error)
            return
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout_s, self._look)
        self._flush()

    def _send(self, request: _Request, text: str, values: list[bytes | None]) -> None:
        formats = [Format.BINARY] * len(values)
        name = self._prepared.get(text) if self._preparing.on else None
        if name is None and self._preparing.on and len(self._prepared) < _MOST_PREPARED:
            name = self._prepared[text] = _name_of(text, self._generation)
            self._pg.send_prepare(name, text.encode())
            request.left.append(text)
        if name is None:
            self._pg.send_query_params(text.encode(), values, None, formats, Format.BINARY)
        else:
            self._pg.send_query_prepared(name, values, formats, Format.BINARY)
        request.left.append("")

    def close(self, why: str = "closed") -> None:
        self._lose(psycopg.OperationalError(why))

    def _look(self) -> None:
        """Close the connection if the oldest request has timed out. One timer serves all requests."""
        self._watch = None
        if not self._requests:
            return
        left = self._requests[0].sent_at + self._timeout_s - self._loop.time()
        if left <= 0:
            self.close(f"no answer within {self._timeout_s:g} s")
        else:
            self._watch = self._loop.call_later(left, self._look)

    # -- the socket ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        try:
            unsent = self._pg.flush()
        except psycopg.Error as error:
            self._lose(error)
            return
        if bool(unsent) != self._writing:
            self._writing = bool(unsent)
            if unsent:
                self._loop.add_writer(self._socket, self._flush)
            else:
                self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            if self._writing:
                self._flush()
            while self._requests and self.lost is None and not self._pg.is_busy():
                self._take()
            if self.lost is None and self._pg.status == ConnStatus.BAD:
                self._lose(psycopg.OperationalError(self._pg.get_error_message()))
        except psycopg.Error as error:
            self._lose(error)

    def _take(self) -> None:
        """Read the next part of the first request's response."""
        request = self._requests[0]
        result = self._pg.get_result()
        if result is None:
            return  # separates the responses of two statements
        status = result.status
        if status == ExecStatus.PIPELINE_SYNC:
            self._requests.popleft()
            self._answer(request)
            return
        prepares = request.left.popleft() if request.left else ""
        if status in _ROWS:
            if not prepares and request.error is None:
                request.rows.append(self._load(result))
        else:
            if prepares:  # requests that already rely on it fail because it does not exist, and are repeated
                self._prepared.pop(prepares, None)
            if status != ExecStatus.PIPELINE_ABORTED and request.error is None:
                request.error = error_from_result(result)
                if is_outdated(request.error):
                    # All of them are prepared again. The server still has the old ones under their names.
                    self._prepared.clear()
                    self._generation += 1
                self._preparing.hear(request.error)
        if self._pg.status == ConnStatus.BAD:
            raise psycopg.OperationalError(self._pg.get_error_message())

    def _load(self, result: Any) -> Rows:
        count = result.ntuples
        if not count:
            return []
        self._loader.set_pgresult(result, format=Format.BINARY)
        return self._loader.load_rows(0, count, tuple)

    def _answer(self, request: _Request) -> None:
        error = request.error
        if error is None:
            request.answered(request.rows[1:] if self._first else request.rows)
            return
        request.answered(error)
        if error.sqlstate == READ_ONLY:
            self.close("no longer the primary")  # the next connection may reach the primary

    def _lose(self, error: psycopg.Error) -> None:
        """Handle a lost connection. All waiting requests fail, and it is unknown whether they were executed."""
        if self.lost is not None:
            return
        self.lost = error
        self._loop.remove_reader(self._socket)
        if self._writing:
            self._loop.remove_writer(self._socket)
        if self._watch is not None:
            self._watch.cancel()
        self._pg.finish()
        requests, self._requests = self._requests, deque()
        for request in requests:
            request.error = Lost(str(error).strip() or "connection lost")
            request.error.pipeline = self.name
            self._answer(request)


class Lost(psycopg.OperationalError):
    """The connection was lost while a request was in progress. The request may or may not have been executed."""

    #: the name of the connection
    pipeline = ""
