"""Key-value buckets: streams named `KV_bucket` with one subject for each key.

Invariant: a write carries an id that is the same in each attempt. If its acknowledgement is lost, the write is neither
repeated (a stream remembers ids for a while) nor mistaken for another's (the last write of a key has its id).
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any

from msgspec import UNSET
from nats.aio.msg import Msg

from arclog.model.outcome import Outcome, error
from arclog.ports.tool import TaskContext
from arclog.tools.listing import Rows
from arclog.tools.nats.connection import SharedConnection
from arclog.tools.nats.failure import Failure, refused
from arclog.tools.nats.kind import NatsConfig
from arclog.tools.nats.payload import check_name, decoded, encoded, outcome_of
from arclog.tools.nats.publish import MSG_ID, check_ttl, store, ttl_header
from arclog.tools.nats.pull import Pull, delivered

_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_OPERATION = "KV-Operation"
_MARKER = "Nats-Marker-Reason"
_GONE = ("delete", "purge")
_NAMES = {"DEL": "delete", "PURGE": "purge"}
_KEY = re.compile(r"[-/_=.A-Za-z0-9]+")
_FILTER = re.compile(r"[-/_=.*>A-Za-z0-9]+")
_MOMENT = re.compile(r"(\.\d{6})\d*Z$")
#: Number of keys, and of revisions with their values, that are requested at a time.
_KEYS = 500
_VALUES = 16
_NANO = 1_000_000_000


async def get(connection: SharedConnection, config: NatsConfig, context: TaskContext) -> Outcome:
    bucket, key = _names(config)
    entry = await _entry(connection, bucket, key, 0 if config.revision is UNSET else config.revision)
    if entry is None:
        raise Failure(error("not_found", _which(bucket, key) + " is not there", code="KEY_NOT_FOUND"))
    about = {"bucket": bucket, "key": key, "revision": entry["seq"], "time": _moment(entry)}
    return await outcome_of(_body(entry), config.decode, about, context, _which(bucket, key))


async def write(connection: SharedConnection, config: NatsConfig, context: TaskContext) -> Outcome:
    """Put, create, update or delete a key."""
    bucket, key = _names(config)
    headers = {MSG_ID: context.key}
    body = b""
    if config.op == "kv_delete":
        headers[_OPERATION] = "DEL"
    else:
        body = await encoded(config.data, config.encoding, context.results, connection.max_payload)
    if config.ttl_s is not UNSET:
        check_ttl(connection)
        headers |= ttl_header(config)
    if config.op == "kv_create":
        headers[_EXPECTED] = "0"
    elif config.revision is not UNSET:
        headers[_EXPECTED] = str(config.revision)
    try:
        stored = await _stored(connection, bucket, key, body, headers)
    except Failure as failure:
        if failure.problem.code != "WRONG_REVISION":
            raise
        stored = await _settled(connection, config, body, headers)
    return Outcome(result={"bucket": bucket, "key": key, "data": {"revision": stored["seq"]}}, data_at="data")


async def keys(connection: SharedConnection, config: NatsConfig, context: TaskContext, most: int) -> Outcome:
    bucket = check_name(config.bucket, "bucket")
    wanted = ">" if config.filter is UNSET else config.filter
    if not _FILTER.fullmatch(wanted):
        raise refused("filter is a key with * (one part) or > (all remaining parts): orders.*")
    asked = {"deliver_policy": "last_per_subject", "headers_only": True, "filter_subject": _subject(bucket, wanted)}
    rows = Rows(context, "keys")
    try:
        async with aclosing(_messages(connection, bucket, asked, most, _KEYS)) as messages:
            async for some in messages:
                there = [message for message in some if _operation(message.headers or {}) not in _GONE]
                await rows.add([message.subject.removeprefix(_subject(bucket, "")) for message in there])
        return await rows.outcome({"bucket": bucket})
    finally:
        await rows.close()


async def history(connection: SharedConnection, config: NatsConfig, context: TaskContext, most: int) -> Outcome:
    bucket, key = _names(config)
    rows = Rows(context, "revisions")
    try:
        asked = {"deliver_policy": "all", "filter_subject": _subject(bucket, key)}
        async with aclosing(_messages(connection, bucket, asked, most, _VALUES)) as messages:
            async for some in messages:
                await rows.add([_revision(message, config, _which(bucket, key)) for message in some])
        return await rows.outcome({"bucket": bucket, "key": key})
    finally:
        await rows.close()


async def _settled(
    connection: SharedConnection, config: NatsConfig, body: bytes, headers: dict[str, str]
) -> dict[str, Any]:
    """Return the result of a write that found an unexpected revision. Raises Failure if another write was first."""
    bucket, key = _names(config)
    last = await _last(connection, bucket, key)
    if last is not None and _headers(last).get(MSG_ID) == headers[MSG_ID]:
        return last  # an earlier attempt of this task wrote it
    if config.op != "kv_create":
        message = (
            f"{_which(bucket, key)}: its revision is not {config.revision}: it was changed meanwhile; read it again"
        )
        raise Failure(error("conflict", message, code="WRONG_REVISION"))
    if last is not None and _operation(_headers(last)) in _GONE:
        try:
            # The marker of a deleted key counts as its last revision.
            return await _stored(connection, bucket, key, body, {**headers, _EXPECTED: str(last["seq"])})
        except Failure as failure:
            if failure.problem.code != "WRONG_REVISION":
                raise
    raise Failure(error("conflict", f"{_which(bucket, key)} already exists", code="EXISTS"))


async def _stored(
    connection: SharedConnection, bucket: str, key: str, body: bytes, headers: dict[str, str]
) -> dict[str, Any]:
    operation = _which(bucket, key)
    try:
        return await store(connection, _subject(bucket, key), body, headers, operation)
    except Failure as failure:
        if failure.problem.code == "NO_STREAM":
            raise _no_bucket(bucket) from None
        raise


async def _entry(connection: SharedConnection, bucket: str, key: str, revision: int) -> dict[str, Any] | None:
    """Return the last value of a key, or the value of a revision; None if there is none."""
    if not revision:
        message = await _last(connection, bucket, key)
    else:
        message = await _message(connection, bucket, {"seq": revision}, _which(bucket, key))
        if message is not None and message["subject"] != _subject(bucket, key):
            message = None  # the revision of another key
    return None if message is None or _operation(_headers(message)) in _GONE else message


async def _last(connection: SharedConnection, bucket: str, key: str) -> dict[str, Any] | None:
    return await _message(connection, bucket, {"last_by_subj": _subject(bucket, key)}, _which(bucket, key))


async def _message(
    connection: SharedConnection, bucket: str, asked: dict[str, Any], operation: str
) -> dict[str, Any] | None:
    """Return a message of the bucket's stream, from its leader, so that earlier writes are visible."""
    try:
        answer = await connection.api(f"STREAM.MSG.GET.KV_{bucket}", asked, operation)
    except Failure as failure:
        if failure.problem.code == "MESSAGE_NOT_FOUND":
            return None
        if failure.problem.code == "STREAM_NOT_FOUND":
            raise _no_bucket(bucket) from None
        raise
    message: dict[str, Any] = answer["message"]
    return message


def _revision(message: Msg, config: NatsConfig, place: str) -> dict[str, Any]:
    delivery = delivered(message.reply)
    operation = _operation(message.headers or {})
    row = {"revision": delivery.seq, "time": delivery.moment, "operation": operation}
    if operation == "put":
        row["data"], row["as"] = decoded(message.data, config.decode, f"{place}, revision {delivery.seq}")
    return row


async def _messages(
    connection: SharedConnection, bucket: str, asked: dict[str, Any], most: int, batch: int
) -> AsyncGenerator[list[Msg], None]:
    """Yield messages of the bucket's stream in batches, through a temporary consumer."""
    stream, operation = f"KV_{bucket}", f"bucket {bucket}"
    config = {**asked, "ack_policy": "none", "mem_storage": True, "inactive_threshold": 60 * _NANO}
    try:
        made = await connection.api(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}, operation)
    except Failure as failure:
        raise (_no_bucket(bucket) if failure.problem.code == "STREAM_NOT_FOUND" else failure) from None
    pending = int(made["num_pending"])
    try:
        if pending > most:
            message = (
                f"{operation}: holds {pending:,} entries of these, and {most:,} are given (setting nats.max_entries)"
            )
            raise Failure(error("limit", f"{message}; narrow it with `filter`", code="nats.max_entries"))
        async with Pull(connection, stream, made["name"], operation) as pull:
            while pending > 0:
                came = await pull.ask(min(pending, batch), 0)
                if not came:
                    return  # entries were removed meanwhile
                yield came
                pending -= len(came)
    finally:
        with suppress(Failure):  # the server removes unused consumers
            await connection.api(f"CONSUMER.DELETE.{stream}.{made['name']}", None, operation)


def _no_bucket(bucket: str) -> Failure:
    return Failure(error("not_found", f"there is no bucket {bucket}", code="BUCKET_NOT_FOUND"))


def _names(config: NatsConfig) -> tuple[str, str]:
    key = str(config.key)
    if not _KEY.fullmatch(key) or key.startswith(".") or key.endswith(".") or ".." in key:
        raise refused("key: a key is made of letters, digits and - _ = / with single dots between them")
    return check_name(config.bucket, "bucket"), key


def _subject(bucket: str, key: str) -> str:
    return f"$KV.{bucket}.{key}"


def _which(bucket: str, key: str) -> str:
    return f"key {key} of bucket {bucket}"


def _body(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message.get("data") or "")


def _headers(message: dict[str, Any]) -> dict[str, str]:
    lines = base64.b64decode(message.get("hdrs") or "").decode("utf-8", "replace").split("\r\n")
    parted = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, colon, value in parted if colon}


def _operation(headers: Mapping[str, str]) -> str:
    """Return the operation of a revision: put, delete or purge."""
    if _MARKER in headers:  # written by the server: the key expired, or its stream was purged
        return "purge"
    return _NAMES.get(headers.get(_OPERATION, ""), "put")


def _moment(message: dict[str, Any]) -> str:
    """Return the time of a message, in microseconds; the server has nanoseconds."""
    return _MOMENT.sub(r"\1Z", str(message.get("time", "")))
