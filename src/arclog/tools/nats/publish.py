"""Publishes messages to subscribers or to a stream, and sends requests.

Invariant: a message to a stream carries an id that is the same in each attempt, so that a stream stores it once even if
an acknowledgement was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from nats.errors import NoRespondersError

from arclog.model.outcome import ERROR, Outcome, error
from arclog.model.refs import ResultRef
from arclog.ports.tool import TaskContext
from arclog.tools.nats.connection import SharedConnection, json_of, too_old
from arclog.tools.nats.failure import Failure, kind_of, refused
from arclog.tools.nats.kind import Message, NatsConfig
from arclog.tools.nats.payload import check_name, check_size, check_subject, encoded, headers_of, outcome_of

#: Maximum number of unacknowledged messages to a stream.
_WINDOW = 256
_WINDOW_BYTES = 4 * 1024 * 1024
MSG_ID = "Nats-Msg-Id"
_EXPECTED_STREAM = "Nats-Expected-Stream"
_TTL = "Nats-TTL"
#: Older servers would ignore the expiry and keep the message forever.
_TTL_SINCE = (2, 11, 0)
_SERVICE_ERROR, _SERVICE_CODE = "Nats-Service-Error", "Nats-Service-Error-Code"


class _Ready(Struct, frozen=True):
    """A message, ready to send."""

    number: int
    subject: str
    body: bytes
    headers: dict[str, str]


async def publish(connection: SharedConnection, config: NatsConfig, context: TaskContext) -> Outcome:
    to_stream = config.stream is not UNSET and config.stream is not False
    if config.ttl_s is not UNSET:
        check_ttl(connection)
    done: dict[str, Any] = {"published": 0}
    if to_stream:
        done |= {"duplicates": 0, "stream": None, "seq": None}
    single = config.messages is UNSET
    total = None if isinstance(config.messages, ResultRef) or single else len(_listed(config.messages))
    async for ready in _ready(connection, config, context, to_stream=to_stream):
        if to_stream:
            for stored in await _to_stream(connection, ready, total):
                done["duplicates"] += bool(stored.get("duplicate"))
                done["stream"], done["seq"] = stored.get("stream"), stored.get("seq")
        else:
            await connection.send([(message.subject, message.body, message.headers) for message in ready])
        done["published"] += len(ready)
        context.progress(done["published"], total, "messages")
    return Outcome(result={"data": done}, data_at="data")


async def request(connection: SharedConnection, config: NatsConfig, context: TaskContext) -> Outcome:
    subject = check_subject(config.subject, "subject")
    headers = headers_of(config.headers or None)
    body = b""
    if config.data is not UNSET:
        body = await encoded(config.data, config.encoding, context.results, connection.max_payload)
    check_size(body, headers, connection.max_payload)
    wait_s, by = connection.answer_s, "setting nats.request_timeout_s"
    if config.wait_s is not UNSET:
        wait_s, by = config.wait_s, "wait_s"
    operation = f"the request to {subject}"
    try:
        answer = await connection.request(subject, body, headers, wait_s=wait_s, operation=operation, by=by)
    except NoRespondersError:
        raise Failure(error("server_error", f"{operation}: there is no subscriber", code="NO_RESPONDERS")) from None
    answer_headers = dict(answer.headers or {})
    about: dict[str, Any] = {"subject": subject, "headers": answer_headers}
    code = answer_headers.get(_SERVICE_CODE)
    outcome = await outcome_of(
        answer.data, UNSET if code else config.decode, about, context, f"the answer to {subject}"
    )
    if code:
        kind = kind_of(int(code) if code.isascii() and code.isdigit() else 500)
        outcome.status = ERROR
        outcome.error = error(
            kind, f"{operation}: the service says {code}: {answer_headers.get(_SERVICE_ERROR, '')[:200]}", code=code
        )
    return outcome


async def store(
    connection: SharedConnection, subject: str, body: bytes, headers: dict[str, str], operation: str
) -> dict[str, Any]:
    """Publish a message to the stream with its subject. Return the acknowledgement."""
    check_size(body, headers, connection.max_payload)
    try:
        return json_of(await connection.request(subject, body, headers, operation=operation), operation)
    except NoRespondersError:
        raise await _nobody(connection, operation) from None


def check_ttl(connection: SharedConnection) -> None:
    if connection.version < _TTL_SINCE:
        raise too_old(connection, "ttl_s", _TTL_SINCE)


def ttl_header(config: NatsConfig) -> dict[str, str]:
    return {} if config.ttl_s is UNSET else {_TTL: f"{config.ttl_s}s"}


async def _nobody(connection: SharedConnection, operation: str) -> Failure:
    """Return the error if no stream accepted a message."""
    await connection.api("INFO", None, operation)  # raises if there is no JetStream
    return Failure(error("not_found", f"{operation}: no stream has this subject", code="NO_STREAM"))


async def _to_stream(connection: SharedConnection, ready: list[_Ready], total: int | None) -> list[dict[str, Any]]:
    """Send messages concurrently. The first failure is raised."""

    async def publish_message(message: _Ready) -> dict[str, Any]:
        operation = f"publishing to {message.subject}"
        if total is not None:
            operation += f" (message {message.number} of {total})"
        return await store(connection, message.subject, message.body, message.headers, operation)

    first = [] if connection.attuned else [await publish_message(ready[0])]
    going = [asyncio.ensure_future(publish_message(message)) for message in ready[len(first) :]]
    try:
        return first + [await answer for answer in going]
    finally:
        for answer in going:
            answer.cancel()
        await asyncio.gather(*going, return_exceptions=True)


async def _ready(
    connection: SharedConnection, config: NatsConfig, context: TaskContext, *, to_stream: bool
) -> AsyncIterator[list[_Ready]]:
    """Yield the task's messages in windows. An invalid message is reported before any message of its window is sent."""
    common = headers_of(config.headers or None)
    if to_stream:
        common |= ttl_header(config)
        if isinstance(config.stream, str):
            common[_EXPECTED_STREAM] = check_name(config.stream, "stream")

    async def ready(number: int, message: Message, key: str) -> _Ready:
        subject = message.subject if message.subject is not None else config.subject
        where = "subject" if not number else f"messages[{number - 1}].subject"
        headers = {**common, **headers_of(message.headers)}
        if to_stream:
            headers = {**headers_of({MSG_ID: key if message.msg_id is None else message.msg_id}), **headers}
        body = await encoded(message.data, config.encoding, context.results, connection.max_payload)
        check_size(body, headers, connection.max_payload)
        return _Ready(number, check_subject(None if subject is UNSET else subject, where), body, headers)

    if config.messages is UNSET:
        own = config.msg_id if isinstance(config.msg_id, str) else None
        yield [await ready(0, Message(None, config.data, None, own), context.key)]
        return
    number = 0
    async for some in pieces(config.messages, context):
        made: list[_Ready] = []
        size = 0
        for raw in some:
            number += 1
            made.append(await ready(number, _message(raw, number), f"{context.key}:{number}"))
            size += len(made[-1].body)
            if size > _WINDOW_BYTES:
                yield made
                made, size = [], 0
        if made:
            yield made


async def pieces(messages: Any, context: TaskContext) -> AsyncIterator[list[Any]]:
    """Yield a list in windows, whether it is inline or stored."""
    if isinstance(messages, ResultRef):
        async for items in context.results.read_items(messages):
            for at in range(0, len(items), _WINDOW):
                yield items[at : at + _WINDOW]
        return
    listed = _listed(messages)
    for at in range(0, len(listed), _WINDOW):
        yield listed[at : at + _WINDOW]


def _listed(messages: Any) -> list[Any]:
    if not isinstance(messages, list):
        raise refused(f"messages must be a list, not {type(messages).__name__}")
    return messages


def _message(raw: Any, number: int) -> Message:
    try:
        return msgspec.convert(raw, Message)
    except msgspec.ValidationError as problem:
        hint = "a message is {subject, data, headers, msg_id}"
        raise refused(f"messages[{number - 1}]: {problem}; {hint}") from None
