"""The NATS bucket of a result store. Every request may be sent twice: it is repeated if NATS was unavailable."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import nats.errors
from msgspec import Struct
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from arclog.drivers.backoff import retry
from arclog.drivers.nats.connect import Connection
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, ResultStoreAway, ResultUnavailable, SettingsError
from arclog.results.parts import Damaged, Index, folder_of, is_sha256, read_index, tenant_of

# ── objects ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The form of results in a NATS bucket: that of the object store (ADR-20), so that `nats object get` returns the stored
# file.
#
# An object `<tenant>/<sha256>.zst` is a message that describes it, and its chunks as messages under their own subject. A
# chunk never crosses parts, and a table of the chunks' sequence numbers follows the parts, in a frame that zstd skips. So
# any part can be read alone.
#
#     frame … frame │ magic size │ place … place │ sha256 │ index


#: the chunk size of the object store's own clients
CHUNK_BYTES = 128 * 1024
_SKIPPABLE = 0x184D2A5D
_HEAD = struct.Struct("<II")
_DIGEST = 32
_SUFFIX = ".zst"


class ObjectInfo(msgspec.Struct, omit_defaults=True):
    """The message that describes an object. The names are those of NATS' ADR-20."""

    name: str
    bucket: str
    nuid: str
    size: int = 0
    mtime: str = ""
    chunks: int = 0
    digest: str = ""
    deleted: bool = False
    #: chunk: largest chunk; tail: sequence numbers of the last chunks; table, index: their sizes in bytes
    metadata: dict[str, str] = {}
    options: dict[str, Any] = {}


class PlacedIndex(Index, frozen=True):
    """An index that also has the sequence numbers of the chunks."""

    #: sequence number of every chunk of every part
    places: list[int]
    #: number of the first chunk of each part, and the total number
    chunk_of: list[int]


class Subjects:
    """The subjects of a bucket."""

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket
        self.stream = f"OBJ_{bucket}"
        self.all_info = f"$O.{bucket}.M.>"
        self.all_chunks = f"$O.{bucket}.C.>"

    def info(self, tenant: str, sha256: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(object_name(tenant, sha256).encode()).decode()}"

    def chunks(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"


def object_name(tenant: str, sha256: str) -> str:
    return f"{folder_of(tenant)}/{sha256}{_SUFFIX}"


def content_of(name: str) -> tuple[str, str] | None:
    """Return tenant and sha256 of an object; None if it is not a result."""
    folder, _, file = name.partition("/")
    tenant, sha256 = tenant_of(folder), file.removesuffix(_SUFFIX)
    return (tenant, sha256) if tenant is not None and is_sha256(sha256) and file.endswith(_SUFFIX) else None


def cut(frame: bytes, size: int) -> list[bytes]:
    return [frame[at : at + size] for at in range(0, len(frame), size)]


def table_of(places: Sequence[int]) -> bytes:
    """Return the table of sequence numbers, as a skippable frame."""
    body = struct.pack(f"<{len(places)}Q", *places)
    body += hashlib.sha256(body).digest()
    return _HEAD.pack(_SKIPPABLE, len(body)) + body


def read_tail(tail: bytes, info: ObjectInfo) -> PlacedIndex:
    """Parse table and index. Raises Damaged if they are inconsistent."""
    try:
        chunk, table_bytes = int(info.metadata["chunk"]), int(info.metadata["table"])
    except (KeyError, ValueError):
        raise Damaged("it was not stored by arclog") from None
    table, end = tail[:table_bytes], tail[table_bytes:]
    if len(table) != table_bytes or table_bytes < _HEAD.size + _DIGEST or str(len(end)) != info.metadata.get("index"):
        raise Damaged("it is cut")
    magic, size = _HEAD.unpack_from(table)
    body, digest = table[_HEAD.size : -_DIGEST], table[-_DIGEST:]
    if magic != _SKIPPABLE or size != len(table) - _HEAD.size or hashlib.sha256(body).digest() != digest:
        raise Damaged("its table of chunks was changed")
    places = list(struct.unpack(f"<{len(body) // 8}Q", body))
    index = read_index(end, info.size - len(table))
    chunk_of = [0]
    for part in index.parts:
        chunk_of.append(chunk_of[-1] + -(-part.packed // chunk))
    if chunk_of[-1] != len(places):
        raise Damaged("its table of chunks is inconsistent")
    return PlacedIndex(
        index.sha256, index.bytes, index.rows, index.parts, index.starts, index.firsts, places=places, chunk_of=chunk_of
    )


def info_of(
    subjects: Subjects, tenant: str, sha256: str, nuid: str, size: int, digest: bytes, chunk: int,
    places: Sequence[int], tail: Sequence[int], table_bytes: int, index_bytes: int,
) -> ObjectInfo:  # fmt: skip
    """Return the message of a complete object."""
    return ObjectInfo(
        name=object_name(tenant, sha256),
        bucket=subjects.bucket,
        nuid=nuid,
        size=size,
        mtime=now(),
        chunks=len(places) + len(tail),
        digest=f"SHA-256={base64.urlsafe_b64encode(digest).decode()}",
        metadata={
            "chunk": str(chunk),
            "tail": " ".join(map(str, tail)),
            "table": str(table_bytes),
            "index": str(index_bytes),
        },
        options={"max_chunk_size": chunk},
    )


def now() -> str:
    """Return the storage time for a message."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


# ── bucket ────────────────────────────────────────────────────────────────────────────────────────────────────────────


# The connection of a NATS result store, and the meaning of its errors.
#
# Work must be safe to repeat: if a server fails in the middle, the work is repeated over a new connection, until
# `results.patience_s` has passed. Messages name servers, never credentials.


R = TypeVar("R")
Work = Callable[[JetStreamContext], Awaitable[R]]

#: JetStream's error code of a publish whose subject has a newer message than expected
MOVED_ON = 10071
#: its error codes for "no space": the stream's limit, the server's or the account's storage
_FULL = frozenset({10023, 10028, 10047, 10077})


#: Opens a connection. Raises SettingsError if a retry would fail in the same way, another ArclogError if it might not.
Connect = Callable[[], Awaitable[tuple[Connection, JetStreamContext]]]


class _Lost(Exception):
    """The connection was lost during a request."""


class BucketConnection:
    def __init__(self, connect: Connect, place: str, settings: Settings) -> None:
        #: the bucket's server, for messages
        self.place = place
        self._connect = connect
        self._timeout_s = settings.number("results.timeout_s")
        self._patience_s = settings.number("results.patience_s")
        self._line: Connection | None = None
        self._context: JetStreamContext | None = None
        self._connecting = asyncio.Lock()

    @property
    def max_payload(self) -> int:
        """The largest message that the server accepts."""
        return 0 if self._line is None else self._line.max_payload

    async def run(self, work: Work[R]) -> R:
        """Do work and return its result. It may be done twice. Errors for missing or changed messages are left to the
        caller.
        """
        return await retry(lambda: self._once(work), on=ResultStoreAway, patience_s=self._patience_s)

    async def _once(self, work: Work[R]) -> R:
        try:
            line, context = await self._connected()
            return await _unless_lost(work(context), line)
        except js_errors.NotFoundError:
            raise
        except js_errors.BadRequestError as problem:
            raise (problem if problem.err_code == MOVED_ON else self._meant(problem)) from None
        except (nats.errors.Error, OSError, TimeoutError, _Lost) as problem:
            raise self._meant(problem) from problem

    async def _connected(self) -> tuple[Connection, JetStreamContext]:
        async with self._connecting:
            if self._line is None or self._context is None or self._line.over.is_set():
                await self.close()
                try:
                    self._line, self._context = await self._connect()
                except SettingsError as problem:
                    raise ResultUnavailable(f"the result store {self.place} cannot be used: {problem}") from problem
                except ArclogError as problem:
                    raise ResultStoreAway(f"the result store {self.place} cannot be reached: {problem}") from problem
            return self._line, self._context

    async def close(self) -> None:
        line, self._line, self._context = self._line, None, None
        if line is not None:
            with suppress(nats.errors.Error, OSError):
                await line.close()

    def _meant(self, problem: BaseException) -> ResultUnavailable:
        """Return the error for an exception, with the remedy."""
        if isinstance(problem, js_errors.APIError) and problem.err_code in _FULL:
            return ResultUnavailable(
                f"no room: a result could not be stored in {self.place} ({problem.description}), and nothing of it is kept; "
                "give the bucket or JetStream more room (`arclog gc` removes results that are no longer needed), then run "
                "it again"
            )
        if isinstance(problem, js_errors.ServiceUnavailableError | js_errors.NoStreamResponseError):
            return ResultStoreAway(
                f"the result store {self.place} gives no answer: JetStream is not enabled there (-js), or has no leader yet"
            )
        if isinstance(problem, _Lost | OSError | nats.errors.ConnectionClosedError | nats.errors.NoRespondersError):
            return ResultStoreAway(f"the result store {self.place} cannot be reached; check whether NATS is running")
        if isinstance(problem, TimeoutError):
            return ResultStoreAway(
                f"the result store {self.place} did not answer within {self._timeout_s:g} s; check whether it is overloaded, "
                "and whether our user may use JetStream (setting results.timeout_s)"
            )
        return ResultUnavailable(f"the result store {self.place} refuses: {problem}")


async def _unless_lost(work: Awaitable[R], line: Connection) -> R:
    """Return the result of work. A lost connection ends it at once, since no response would come."""
    working = asyncio.ensure_future(work)
    losing = asyncio.ensure_future(line.over.wait())
    try:
        await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _Lost
        return working.result()
    finally:
        losing.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
#: part of a message's size that is reserved for its headers
_HEADERS_BYTES = 4096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MovedOn(Exception):
    """A newer message was published in the meantime."""


class Current(Struct, frozen=True):
    """The newest message that describes an object. It may say that the object was deleted."""

    info: ObjectInfo
    #: its sequence number in the stream
    place: int
    #: when it was stored, in microseconds since 1970
    at: int


class Bucket:
    def __init__(self, connect: Connect, place: str, settings: Settings) -> None:
        name = settings.text("results.bucket")
        if not _NAME.fullmatch(name):
            raise SettingsError(
                f"ARCLOG_RESULTS_BUCKET: {name!r} is not a valid name of a bucket; use letters, digits, _ and -"
            )
        self.connection = BucketConnection(connect, place, settings)
        self.names = Subjects(name)
        #: for messages
        self.place = f"{self.connection.place} bucket {name}"
        self._replicas = settings.integer("bus.replicas")
        self._max_bytes = settings.integer("results.bucket_max_bytes")
        self._timeout_s = settings.number("results.timeout_s")
        self._prepared = False

    async def chunk_bytes(self) -> int:
        """Create the bucket if it does not exist. Return the size of the largest chunk that it accepts."""
        if not self._prepared:
            await self.connection.run(self._prepare)
            self._prepared = True
        return min(CHUNK_BYTES, self.connection.max_payload - _HEADERS_BYTES)

    async def _prepare(self, stream: JetStreamContext) -> None:
        try:
            await stream.stream_info(self.names.stream)
        except js_errors.NotFoundError:
            await stream.create_object_store(
                self.names.bucket,
                config=api.ObjectStoreConfig(
                    bucket=self.names.bucket,
                    description="Results of arclog runs",
                    max_bytes=self._max_bytes or -1,
                    replicas=self._replicas,
                    storage=api.StorageType.FILE,
                ),
            )

    async def put(self, nuid: str, number: int, chunks: Sequence[bytes]) -> list[int]:
        """Add chunks, the first of which has this number. Return their sequence numbers. An existing chunk is not added
        again.
        """
        subject = self.names.chunks(nuid)

        async def work(stream: JetStreamContext) -> list[int]:
            # They are sent in this order.
            sent = [
                self._publish(stream, subject, chunk, {api.Header.MSG_ID: f"{nuid}-{number + at}"})
                for at, chunk in enumerate(chunks)
            ]
            # All are answered before a refusal is raised: one that is still on its way would be stored after the purge.
            answers = await asyncio.gather(*sent, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
            return [answer for answer in answers if isinstance(answer, int)]

        return await self.connection.run(work)

    async def publish_info(self, subject: str, info: ObjectInfo, instead_of: int) -> int:
        """Publish the description of an object, if the message `instead_of` (0 if none) is still the last one. Return
        its sequence number.
        """
        headers: dict[str, str] = {
            api.Header.ROLLUP: "sub",
            api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE: str(instead_of),
        }
        try:
            return await self.connection.run(
                lambda stream: self._publish(stream, subject, msgspec.json.encode(info), headers)
            )
        except js_errors.BadRequestError:
            raise MovedOn from None

    async def _publish(self, stream: JetStreamContext, subject: str, body: bytes, headers: dict[str, str]) -> int:
        try:
            return (await stream.publish(subject, body, headers=headers)).seq
        except js_errors.NoStreamResponseError:
            # No responders: either the bucket does not exist, or JetStream is not ready yet.
            with suppress(js_errors.NotFoundError):
                await stream.stream_info(self.names.stream)
                raise
            self._prepared = False
            raise ResultUnavailable(
                f"{self.place} is gone, and with it all results that were in it; a new one is made for the next result. "
                "Restore it from a backup, or repeat the runs whose results are still needed"
            ) from None

    async def current(self, subject: str) -> Current | None:
        """Return the newest message of an object, from the stream's leader."""
        try:
            message = await self.connection.run(lambda stream: stream.get_last_msg(self.names.stream, subject))
        except js_errors.NotFoundError:
            return None
        return _current(message)

    async def every(self) -> AsyncIterator[Current]:
        """Yield the newest messages of all objects."""
        after = 0
        while (message := await self._next(after + 1)) is not None:
            after = message.seq or 0
            current = _current(message)
            if current is not None:
                yield current

    async def _next(self, place: int) -> api.RawStreamMsg | None:
        async def work(stream: JetStreamContext) -> api.RawStreamMsg | None:
            try:
                return await stream.get_msg(
                    self.names.stream, seq=place, subject=self.names.all_info, next=True, direct=True
                )
            except nats.errors.NoRespondersError:  # the bucket does not exist, or not yet again
                await stream.stream_info(self.names.stream)
                raise

        try:
            return await self.connection.run(work)
        except js_errors.NotFoundError:
            return None

    async def get(self, nuid: str, places: Sequence[int]) -> bytes | None:
        """Return the chunks at these sequence numbers; None if one no longer exists."""
        subject = self.names.chunks(nuid)

        async def message_at(stream: JetStreamContext, place: int) -> api.RawStreamMsg:
            try:
                return await stream.get_msg(self.names.stream, seq=place, direct=True)
            except (js_errors.NotFoundError, nats.errors.NoRespondersError):
                # A replica that is behind may have answered, so the leader is asked.
                return await stream.get_msg(self.names.stream, seq=place)

        async def work(stream: JetStreamContext) -> list[api.RawStreamMsg]:
            return await asyncio.gather(*(message_at(stream, place) for place in places))

        try:
            messages = await self.connection.run(work)
        except js_errors.NotFoundError:
            return None
        if any(message.subject != subject for message in messages):
            return None
        return b"".join(message.data or b"" for message in messages)

    async def purge(self, nuid: str) -> None:
        """Remove an object's chunks."""
        with suppress(js_errors.NotFoundError):
            subject = self.names.chunks(nuid)
            await self.connection.run(lambda stream: stream.purge_stream(self.names.stream, subject=subject))

    async def erase(self, place: int) -> None:
        """Remove one message."""

        async def work(stream: JetStreamContext) -> None:
            with suppress(js_errors.APIError):  # it was removed already
                await stream.delete_msg(self.names.stream, place)

        await self.connection.run(work)

    async def last_chunk_at(self, nuid: str) -> int:
        """Return when the last chunk of an object was stored, in microseconds since 1970; 0 if there is none."""
        try:
            subject = self.names.chunks(nuid)
            return _moment(await self.connection.run(lambda stream: stream.get_last_msg(self.names.stream, subject)))
        except js_errors.NotFoundError:
            return 0

    async def chunk_counts(self, nuid: str = "") -> dict[str, int]:
        """Return the numbers of chunks by nuid, of one object or of all."""
        wanted = self.names.chunks(nuid) if nuid else self.names.all_chunks
        counts: dict[str, int] = {}
        while True:
            asked = {"subjects_filter": wanted, "offset": len(counts)}
            page = await self.connection.run(lambda stream: self._info(stream, asked))  # noqa: B023 - run before the next turn
            counts |= {name.rpartition(".")[2]: count for name, count in page.items()}
            if not page or nuid:
                return counts

    async def _info(self, stream: JetStreamContext, asked: dict[str, Any]) -> dict[str, int]:
        """Return one page of subjects with their counts. The client's own call cannot request the next page."""
        answer = await stream._nc.request(  # noqa: SLF001 - it hands out no client
            f"$JS.API.STREAM.INFO.{self.names.stream}", msgspec.json.encode(asked), timeout=self._timeout_s
        )
        body = msgspec.json.decode(answer.data)
        if "error" in body:
            if body["error"].get("code") == 404:
                return {}
            raise js_errors.APIError(**body["error"])
        counts: dict[str, int] = body["state"].get("subjects") or {}
        return counts


def _current(message: api.RawStreamMsg) -> Current | None:
    """Return the description in a message; None if it does not describe an object."""
    try:
        info = msgspec.json.decode(message.data or b"", type=ObjectInfo)
    except msgspec.DecodeError:
        return None
    return Current(info, message.seq or 0, _moment(message))


def _moment(message: api.RawStreamMsg) -> int:
    if message.time is None:
        return 0
    since = message.time - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
