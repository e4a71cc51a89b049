"""Handlers of `operations.workers`: `ports.control` for workers on other machines.

A long poll ends early when its caller is gone or the server drains; commands that were claimed for a caller that is
gone are given back at once. Workers number their claims and revocations, so that an answer that was lost can be sent
again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Raw, Struct
from starlette.responses import Response, StreamingResponse

from arclog.core.boundary.reports import MAX_REPORT_EVENTS
from arclog.model.commands import Report, ReportAnswer
from arclog.model.data.json_data import value_count
from arclog.model.errors import RequestRejected, ResultTooLarge
from arclog.model.events import Event
from arclog.model.ids import LATEST, MAX_ID, MICROS
from arclog.operations import workers as ops
from arclog.operations.operation import JSON, NDJSON, OCTETS
from arclog.plan import net
from arclog.ports import work
from arclog.ports.control import LoopPage, WorkerInfo
from arclog.ports.results import Content, ResultWriter, StoredBlob
from arclog.ports.secrets import checked_secret
from arclog.ports.storage.task_logs import STREAMS, LogLine
from arclog.server.call import Call, decoded, numbers_fit, too_many_values
from arclog.server.dispatch import handles
from arclog.server.handlers.results import joined
from arclog.server.headers import media_type
from arclog.server.streams.waiting import caller_gone, longest_wait, unless_gone

# ── workers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


_MOST_EVENTS = 10_000
#: Maximum number of commands that one worker may hold, of kinds or pools that it may name, and their length.
_MOST_HELD = 10_000
#: Reports of at least this size are decoded in two steps.
_LARGE_REPORT = 256 * 1024
#: The beginning of a large report, which contains its command.
_REPORT_HEAD = 4096
_MOST_NAMES = 1000
_LONGEST_NAME = 128
#: Three names and their separators.
_LONGEST_SCOPE = 3 * 128 + 2


@handles(ops.REGISTER)
async def register(call: Call, hello: work.RegisterWorkerBody) -> work.WorkerSettings:
    if hello.protocol != work.PROTOCOL:
        raise RequestRejected(
            f"the worker speaks protocol {hello.protocol}, this server {work.PROTOCOL}; run the same version of both"
        )
    _check_worker(hello.worker)
    settings, workspace = call.services.settings, call.workspace
    lease_s, most = settings.number("leases.seconds"), settings.integer("results.max_bytes")
    return work.WorkerSettings(lease_s, workspace.results.name, most, shared=workspace.serves_all_tenants)


@handles(ops.CLAIM)
async def claim(call: Call, request: work.ClaimBody) -> work.Claimed | work.WireClaimed:
    worker = request.worker
    _check_worker(worker)
    if not 1 <= request.limit <= work.MOST_COMMANDS:
        raise RequestRejected(f"limit: {request.limit} is not between 1 and {work.MOST_COMMANDS}")
    services, control = call.services, call.workspace.control

    async def claimed() -> work.Claimed:
        wait_s = 0.0 if services.draining() else longest_wait(services, request.wait_s)
        # When the caller is gone, the claim is not cancelled but notified, since it may have taken commands already.
        commands = await control.claim(worker, request.limit, wait_s, lambda: caller_gone(call))
        if commands and await call.request.is_disconnected():
            for command in commands:
                await control.give_back(worker.worker_id, command.execution_id, command.command_id, command.fence)
            commands = []
        return work.Claimed(commands)

    with numbers_fit():
        claim_answer = await services.answers.once(_asker(call, worker.worker_id), request.n, claimed, work.Claimed())
    if request.form:
        commands = await call.workspace.wire_commands(claim_answer.commands)
        return work.WireClaimed(commands, services.settings.number("leases.seconds"))
    return claim_answer


@handles(ops.REPORT)
async def report(call: Call) -> ReportAnswer:
    sent_report = await _reported(call)
    _check_id(sent_report.worker_id)
    sent_report.wants = max(0, min(sent_report.wants, work.MOST_COMMANDS))
    with numbers_fit():
        return await call.workspace.control.report(sent_report)


@handles(ops.HEARTBEAT)
async def heartbeat(call: Call, request: work.HeartbeatBody) -> work.Lost:
    _check_id(request.worker_id)
    if len(request.held) > _MOST_HELD:
        raise RequestRejected(f"held: {len(request.held)} commands; a heartbeat can name at most {_MOST_HELD}")
    with numbers_fit():
        return work.Lost(await call.workspace.control.heartbeat(request.worker_id, request.held))


@handles(ops.GIVE_BACK)
async def give_back(call: Call, request: work.GiveBackBody) -> work.Done:
    _check_id(request.worker_id)
    control = call.workspace.control
    with numbers_fit():
        await control.give_back(request.worker_id, request.execution_id, request.command_id, request.fence)
    return work.Done()


@handles(ops.REVOKED)
async def revoked(call: Call, request: work.RevokedBody) -> work.Revoked:
    _check_id(request.worker_id)
    if len(request.held) > work.MOST_COMMANDS:
        raise RequestRejected(f"held: {len(request.held)} commands; a worker can name at most {work.MOST_COMMANDS}")
    services, control = call.services, call.workspace.control

    async def news() -> work.Revoked:
        wait_s = 0.0 if services.draining() else longest_wait(services, request.wait_s)
        revocations = await unless_gone(call, control.revoked(request.worker_id, wait_s, request.held))
        return work.Revoked(revocations or [])

    with numbers_fit():
        return await services.answers.once(_asker(call, request.worker_id), request.n, news, work.Revoked())


@handles(ops.PLAN)
async def plan(call: Call, request: ops.ByDigest) -> Response:
    program = await call.workspace.control.program(request.digest)
    return Response(net.encode(program.plan), media_type=JSON)


@handles(ops.LOOP_RESULTS)
async def loop_results(call: Call, request: work.LoopResultsBody) -> LoopPage:
    if not 1 <= request.limit <= _MOST_EVENTS:
        raise RequestRejected(f"limit: {request.limit} is not between 1 and {_MOST_EVENTS}")
    control = call.workspace.control
    with numbers_fit():
        return await control.loop_results(request.execution_id, request.step, request.run, request.after, request.limit)


@handles(ops.WRITE_LOGS)
async def write_logs(call: Call, batch: work.Lines) -> work.Done:
    for line in batch.lines:
        _check_line(line)
    with numbers_fit():
        await call.workspace.control.write_logs(batch.lines)
    return work.Done()


@handles(ops.SECRET)
async def secret(call: Call, request: work.SecretBody) -> work.SecretAnswer:
    """Return a sealed secret. It cannot be read without the key, which servers and workers have and which is never sent
    over HTTP.
    """
    checked_secret(request.name)
    if len(request.scope) > _LONGEST_SCOPE or not request.scope.isprintable():
        raise RequestRejected("scope: TENANT/PROJECT/ENVIRONMENT is required")
    return work.SecretAnswer(await call.workspace.secrets.find(request.name, request.scope))


# -- reports -----------------------------------------------------------------------------------------------------------


class _ReportHead(Struct):
    """The command that a report belongs to."""

    worker_id: str
    execution_id: int
    command_id: int


class _ReportParts(Struct):
    """A report whose events are not decoded."""

    worker_id: str
    execution_id: int
    command_id: int
    fence: int
    n: int
    events: list[Raw]
    wants: int = 0


async def _reported(call: Call) -> Report:
    """Return a report. For a large one, its command is checked before the rest is read, since decoding all of it takes
    long.
    """

    async def look(begin: bytes) -> None:
        before, found_key, _ = begin[:_REPORT_HEAD].partition(b'"events"')
        if not found_key:
            raise RequestRejected(
                f"a report of more than {_LARGE_REPORT} bytes names its worker, execution and command first, and then its events"
            )
        head = decoded(before.rstrip().removesuffix(b",") + b"}", _ReportHead)
        _check_id(head.worker_id)
        with numbers_fit():
            await call.workspace.control.check_holder(head.worker_id, head.execution_id, head.command_id)

    raw = await call.raw_body(_LARGE_REPORT, look)
    if len(raw) < _LARGE_REPORT:
        return decoded(raw, Report)
    call.hold_decoded(raw)
    most_values = call.services.settings.integer("server.max_body_values")
    return await asyncio.to_thread(_decoded_by_event, raw, most_values)


def _decoded_by_event(raw: bytes, most_values: int) -> Report:
    """A large report, decoded in a thread, so that other requests continue between two events."""
    parts = decoded(raw, _ReportParts)
    if len(parts.events) > MAX_REPORT_EVENTS:
        raise RequestRejected(f"a report has 1 to {MAX_REPORT_EVENTS} events, not {len(parts.events)}")
    events = []
    for event in map(bytes, parts.events):
        if value_count(event) > most_values:
            raise too_many_values(most_values)
        events.append(decoded(event, Event))
    return Report(parts.worker_id, parts.execution_id, parts.command_id, parts.fence, parts.n, events, parts.wants)


# -- checks ------------------------------------------------------------------------------------------------------------


def _asker(call: Call, worker_id: str) -> tuple[str, ...]:
    principal = call.principal
    return (principal.tenant, principal.subject, worker_id, call.operation.name)


def _check_worker(worker: WorkerInfo) -> None:
    _check_id(worker.worker_id)
    for field, names in (("kinds", worker.kinds), ("pools", worker.pools)):
        if len(names) > _MOST_NAMES or any(len(name) > _LONGEST_NAME for name in names):
            raise RequestRejected(f"{field}: at most {_MOST_NAMES} names of at most {_LONGEST_NAME} characters")


def _check_id(worker_id: str) -> None:
    if work.WORKER_ID.fullmatch(worker_id) is None:
        raise RequestRejected(
            f"worker_id: {worker_id[:80]!r} is not a valid worker name (letters, digits, `_`, `.`, `-`; at most 128)"
        )


def _check_line(line: LogLine) -> None:
    """Refuse a line that cannot be decoded, which would make the lines after it unreadable."""
    if line.stream not in STREAMS:
        raise RequestRejected(f"lines: there is no stream {line.stream[:50]!r}; there are {', '.join(STREAMS)}")
    if not 0 <= line.at <= LATEST:
        raise RequestRejected(f"lines: at: {line.at} is not a time (microseconds since 1970)")
    numbers = (line.execution_id, line.run, line.task_run, line.attempt, *(line.iteration or ()))
    if not all(0 <= number <= MAX_ID for number in numbers):
        raise RequestRejected("lines: a number is negative or too large")
    if len(line.step) > _LONGEST_NAME or len(line.task) > 2 * _LONGEST_NAME:
        raise RequestRejected("lines: the name of the step or task is too long")


# ── worker results ────────────────────────────────────────────────────────────────────────────────────────────────────
# Handlers of the results in `operations.workers`: content is streamed in both directions, and neither side holds more
# than a piece of it.
#
# Received content is checked against the hash that its sender names before it is stored. If sending breaks off, the
# connection is closed, so that the receiver does not take a part for the whole.


#: Items are read in batches of this size, until the answer is this large.
_ITEMS_AT_A_TIME = 256
_PAGE_BYTES = 4 << 20
#: Lines of a list are passed on after this many bytes.
_PIECE_BYTES = 1 << 20
#: Content whose upload began this long ago is considered abandoned.
_ABANDONED = 3600 * MICROS
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


@handles(ops.UPLOAD)
async def upload(call: Call, request: ops.UploadContent) -> Content:
    writer = call.workspace.results.writer(
        request.tenant, listed=request.listed, content_type=media_type(request.content_type)
    )
    arrived = hashlib.sha256()
    try:
        if request.listed:
            await _take_lines(call, writer, arrived)
        else:
            async for chunk in call.pieces():
                arrived.update(chunk)
                await writer.write(chunk)
        if arrived.hexdigest() != request.sha256:
            raise RequestRejected("the content does not match its sha256 and was not stored; send it again")
        return await writer.commit()
    finally:
        await writer.abandon()


@handles(ops.DOWNLOAD)
async def download(call: Call, request: ops.DownloadContent) -> Response:
    chunks = call.workspace.results.chunks(request.tenant, request.sha256, request.start, request.end)
    # Read the first piece now: missing content can then still be answered with a status.
    first = await anext(chunks, b"")
    return StreamingResponse(joined(first, chunks), media_type=OCTETS)


@handles(ops.ITEMS)
async def items(call: Call, request: ops.ItemsOf) -> work.Items:
    results = call.workspace.results
    first, last = request.first, request.last
    items_read: list[Any] = []
    size = 0
    while True:
        count = min(_ITEMS_AT_A_TIME, last - first)
        some = await results.items(request.tenant, request.sha256, first, first + count)
        items_read += some
        first += len(some)
        size += len(msgspec.json.encode(some))
        if len(some) < count or first >= last:
            return work.Items(items_read)
        if size >= _PAGE_BYTES:
            return work.Items(items_read, more=True)


@handles(ops.ABOUT)
async def about(call: Call, request: ops.OfContent) -> StoredBlob | None:
    return await call.workspace.results.find(request.tenant, request.sha256)


@handles(ops.REMOVE)
async def remove(call: Call, request: ops.RemoveContent) -> work.Removed:
    results = call.workspace.results
    return work.Removed(int(await results.remove(request.tenant, request.sha256, request.stored_at)))


@handles(ops.EVERYTHING)
async def everything(call: Call) -> Response:
    blobs = call.workspace.results.all()

    async def lines() -> AsyncIterator[bytes]:
        async for blob in blobs:
            yield msgspec.json.encode(blob) + b"\n"

    return StreamingResponse(lines(), media_type=NDJSON)


@handles(ops.LEFTOVERS)
async def leftovers(call: Call, request: ops.OlderThan) -> work.Removed:
    latest = call.services.clock.now() - _ABANDONED
    return work.Removed(await call.workspace.results.leftovers(min(request.older_than, latest)))


async def _take_lines(call: Call, writer: ResultWriter, arrived: Any) -> None:
    most = call.services.settings.integer("server.max_report_bytes")
    held = bytearray()
    async for chunk in call.pieces():
        arrived.update(chunk)
        held += chunk
        if len(held) >= _PIECE_BYTES and (end := held.rfind(b"\n") + 1):
            await writer.add(_decoded(held[:end]))
            del held[:end]
        elif len(held) > most:
            raise ResultTooLarge(f"an item of the list takes more than {most} bytes (ARCLOG_SERVER_MAX_REPORT_BYTES)")
    if held:
        await writer.add(_decoded(held))


def _decoded(lines: bytearray) -> list[Any]:
    try:
        return _DECODER.decode_lines(bytes(lines))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestRejected(f"a line of the list is not JSON: {problem}") from None
