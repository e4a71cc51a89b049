"""Receives messages of a stream: fetches from a consumer, and acknowledges.

Invariants: a message is acknowledged only by an explicit task, never by being received. Messages of an interrupted
fetch are returned at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, Self

import msgspec
from msgspec import UNSET, Struct
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from arclog.model.outcome import Outcome, error
from arclog.ports.tool import TaskContext
from arclog.tools.listing import Rows
from arclog.tools.nats.connection import SharedConnection
from arclog.tools.nats.failure import Failure, refused
from arclog.tools.nats.kind import NatsConfig
from arclog.tools.nats.payload import check_name, decoded
from arclog.tools.nats.publish import pieces

_BATCH = 100
_NANO = 1_000_000_000
_TOKEN = "$JS.ACK."  # noqa: S105 - a subject, no secret
_ACK_BODIES = {"ack": b"+ACK", "nak": b"-NAK", "term": b"+TERM", "progress": b"+WPI"}
#: Time limit for the server's response beyond the requested wait.
_SLACK_S = 5.0
_NO_MESSAGES, _TIMED_OUT, _NO_RESPONDERS = "404", "408", "503"


class Delivered(Struct, frozen=True):
    """The metadata in the acknowledgement subject of a message."""

    stream: str
    consumer: str
    deliveries: int
    seq: int
    nanos: int
    pending: int

    @property
    def moment(self) -> str:
        whole, part = divmod(self.nanos, _NANO)
        text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{text}.{part // 1000:06d}Z"


def delivered(reply: str) -> Delivered:
    parts = reply.split(".")
    if len(parts) > 9:  # with domain and account at the front, and a token at the end
        parts = parts[:2] + parts[4:11]
    stream, consumer, deliveries, seq, _, nanos, pending = parts[2:9]
    return Delivered(stream, consumer, int(deliveries), int(seq), int(nanos), int(pending))


async def fetch(
    connection: SharedConnection, config: NatsConfig, context: TaskContext, most: int, most_bytes: int
) -> Outcome:
    stream, consumer = check_name(config.stream, "stream"), check_name(config.consumer, "consumer")
    batch = _BATCH if config.batch is UNSET else config.batch
    if batch > most:
        raise Failure(
            error("limit", f"batch: {batch} is above {most} (setting nats.max_messages)", code="nats.max_messages")
        )
    operation = f"consumer {consumer} of stream {stream}"
    pull = Pull(connection, stream, consumer, operation)
    rows = Rows(context, "messages")
    got: list[Msg] = []
    pending = 0
    try:
        async with pull:
            got += await pull.ask(batch, most_bytes)
            if not got and config.wait_s is not UNSET and config.wait_s > 0:
                got += await pull.ask(1, most_bytes, wait_s=config.wait_s)
                if got and batch > 1:
                    got += await pull.ask(batch - 1, max(1, most_bytes - len(got[0].data)))
        for at in range(0, len(got), _BATCH):
            await rows.add([_row(message, config, operation) for message in got[at : at + _BATCH]])
        if got:
            pending = delivered(got[-1].reply).pending
        if config.ack == "now":
            await _acknowledge(connection, [message.reply for message in got], _ACK_BODIES["ack"])
        return await rows.outcome({"stream": stream, "consumer": consumer, "pending": pending})
    except BaseException:
        await _give_back(connection, got)
        raise
    finally:
        await rows.close()


def _row(message: Msg, config: NatsConfig, operation: str) -> dict[str, Any]:
    delivery = delivered(message.reply)
    data, taken = decoded(message.data, config.decode, f"{operation}, message {delivery.seq}")
    return {
        "subject": message.subject,
        "data": data,
        "as": taken,
        "headers": dict(message.headers or {}),
        "seq": delivery.seq,
        "time": delivery.moment,
        "deliveries": delivery.deliveries,
        "ack": message.reply,
    }


async def acknowledge(connection: SharedConnection, config: NatsConfig, context: TaskContext) -> Outcome:
    how = "ack" if config.how is UNSET else config.how
    ack_body = _ACK_BODIES[how]
    if config.delay_s is not UNSET:
        ack_body += b" " + msgspec.json.encode({"delay": round(config.delay_s * _NANO)})
    done = 0
    messages = config.messages
    if isinstance(messages, str | dict):
        messages = [messages]
    async for some in pieces(messages, context):
        await _acknowledge(connection, [_token(entry, done + at) for at, entry in enumerate(some)], ack_body)
        done += len(some)
        context.progress(done, None, "messages")
    return Outcome(result={"data": {how: done}}, data_at="data")


def _token(message: Any, at: int) -> str:
    token = message.get("ack") if isinstance(message, dict) else message
    # Anything else would publish a message to an arbitrary subject.
    if not isinstance(token, str) or not token.startswith(_TOKEN) or any(ord(char) < 33 for char in token):
        raise refused(f"messages[{at}]: is neither a message of `fetch` nor its `ack`")
    return token


async def _acknowledge(connection: SharedConnection, tokens: list[str], ack_body: bytes) -> None:
    """Send acknowledgements, and wait until the stream has confirmed them."""

    async def acknowledge(token: str) -> None:
        parts = token.split(".")
        operation = f"acknowledging a message of stream {parts[4] if len(parts) > 9 else parts[2]}"
        try:
            await connection.request(token, ack_body, operation=operation)
        except NoRespondersError:
            raise Failure(error("not_found", f"{operation}: its consumer is gone", code="CONSUMER_NOT_FOUND")) from None

    going = [asyncio.ensure_future(acknowledge(token)) for token in tokens]
    try:
        for answer in going:
            await answer
    finally:
        for answer in going:
            answer.cancel()
        await asyncio.gather(*going, return_exceptions=True)


async def _give_back(connection: SharedConnection, got: list[Msg]) -> None:
    """Return messages, so that other consumers get them at once instead of after the consumer's ack_wait."""
    if not got:
        return
    with suppress(Failure):
        await connection.send([(message.reply, _ACK_BODIES["nak"], {}) for message in got])


class Pull:
    """Requests messages from a consumer, through a separate inbox."""

    def __init__(self, connection: SharedConnection, stream: str, consumer: str, operation: str) -> None:
        self._connection = connection
        self._stream = stream
        self._consumer = consumer
        self._what = operation
        self._came: asyncio.Queue[Msg] = asyncio.Queue()
        self._asked = 0

    async def __aenter__(self) -> Self:
        self._inbox = await self._connection.listen(self._hear)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.leave(self._inbox)
        # Messages that arrived but were not delivered, because the fetch was interrupted.
        undelivered = [self._came.get_nowait() for _ in range(self._came.qsize())]
        await _give_back(self._connection, [message for message in undelivered if message.reply.startswith(_TOKEN)])

    async def _hear(self, message: Msg) -> None:
        self._came.put_nowait(message)

    async def ask(self, batch: int, most_bytes: int, wait_s: float = 0.0) -> list[Msg]:
        """Fetch at most `batch` messages. Without `wait_s`, only available ones are returned, possibly none."""
        got: list[Msg] = []
        try:
            async with aclosing(self.messages(batch, most_bytes, wait_s)) as messages:
                async for message in messages:
                    got.append(message)  # noqa: PERF401 - what came before a failure is given back
        except BaseException:
            await _give_back(self._connection, got)
            raise
        return got

    async def messages(self, batch: int, most_bytes: int, wait_s: float = 0.0) -> AsyncGenerator[Msg, None]:
        asked: dict[str, Any] = {"batch": batch, "max_bytes": most_bytes}
        asked |= {"expires": round(wait_s * _NANO)} if wait_s else {"no_wait": True}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        self._asked += 1
        reply = f"{self._inbox.subject.removesuffix('*')}{self._asked}"
        await self._connection.ask(subject, msgspec.json.encode(asked), reply)
        came = 0
        while came < batch:
            message = await self._next(wait_s, subject)
            if message.reply.startswith(_TOKEN):
                came += 1
                yield message
                continue
            if message.subject != reply:
                continue  # the end of an earlier request
            headers = message.headers or {}
            status, described = headers.get("Status", ""), str(headers.get("Description", ""))
            if status in (_NO_MESSAGES, _TIMED_OUT) or (came and "maxbytes" in described.lower()):
                return
            raise await self._refusal(status, described)

    async def _next(self, wait_s: float, subject: str) -> Msg:
        within_s = wait_s + max(_SLACK_S, self._connection.answer_s)
        waiting = asyncio.wait_for(self._came.get(), within_s)
        return await self._connection.during(waiting, self._what, frozenset({subject}), wait_s=within_s)

    async def _refusal(self, status: str, described: str) -> Failure:
        if status == _NO_RESPONDERS:
            # Raises if JetStream, the stream or the consumer is missing.
            await self._connection.api(f"CONSUMER.INFO.{self._stream}.{self._consumer}", None, self._what)
            return Failure(error("server_error", f"{self._what}: has no leader at the moment", code="NO_LEADER"))
        if "maxbytes" in described.lower():
            message = f"{self._what}: the next message is larger than one fetch may be (setting nats.max_bytes)"
            return Failure(error("limit", message, code="nats.max_bytes"))
        lower = described.lower()
        if "push" in lower or "deleted" in lower:
            return Failure(
                error("config" if "push" in lower else "not_found", f"{self._what}: {described}", code="CONSUMER")
            )
        kind = "server_error" if status == "409" else "client_error"
        return Failure(error(kind, f"{self._what}: {described or status}", code=f"NATS_{status}"))
