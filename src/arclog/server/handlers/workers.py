"""Handlers of `operations.workers`: `ports.control` for workers on other machines.

A long poll ends early when its caller is gone or the server drains; commands that were claimed for somebody who is gone are
given back at once. Claims and revocations are counted by their worker: an answer that was lost on the way is given again.
"""

from __future__ import annotations

import asyncio

from msgspec import Raw, Struct
from starlette.responses import Response

from arclog.core.boundary.reports import MAX_REPORT_EVENTS
from arclog.model.commands import Report, ReportAnswer
from arclog.model.data.json_data import value_count
from arclog.model.errors import RequestRejected
from arclog.model.events import Event
from arclog.model.ids import LATEST, MAX_ID
from arclog.operations import workers as ops
from arclog.operations.operation import JSON
from arclog.plan import net
from arclog.ports import work
from arclog.ports.control import LoopPage, WorkerInfo
from arclog.ports.secrets import checked_secret
from arclog.ports.storage.task_logs import STREAMS, LogLine
from arclog.server.call import Call, decoded, numbers_fit, too_many_values
from arclog.server.dispatch import handles
from arclog.server.streams.waiting import caller_gone, longest_wait, unless_gone

_MOST_COMMANDS = 1000
_MOST_EVENTS = 10_000
#: Commands that one worker may say it holds; kinds or pools that it may name, and how long each may be.
_MOST_HELD = 10_000
#: A report from here on is looked at in two steps.
_LARGE_REPORT = 256 * 1024
#: Where a large report has said whose it is.
_REPORT_HEAD = 4096
_MOST_NAMES = 1000
_LONGEST_NAME = 128
#: Three names and what parts them.
_LONGEST_SCOPE = 3 * 128 + 2


@handles(ops.REGISTER)
async def register(call: Call, hello: work.Hello) -> work.Welcome:
    if hello.protocol != work.PROTOCOL:
        raise RequestRejected(
            f"the worker speaks protocol {hello.protocol}, this server {work.PROTOCOL}; run the same version of both"
        )
    _check_worker(hello.worker)
    settings, workspace = call.services.settings, call.workspace
    lease_s, most = settings.number("leases.seconds"), settings.integer("results.max_bytes")
    return work.Welcome(lease_s, workspace.results.name, most, shared=workspace.serves_all_tenants)


@handles(ops.CLAIM)
async def claim(call: Call, asked: work.ClaimAsked) -> work.Claimed | work.WireClaimed:
    worker = asked.worker
    _check_worker(worker)
    if not 1 <= asked.limit <= _MOST_COMMANDS:
        raise RequestRejected(f"limit: {asked.limit} is not between 1 and {_MOST_COMMANDS}")
    services, control = call.services, call.workspace.control

    async def claimed() -> work.Claimed:
        wait_s = 0.0 if services.draining() else longest_wait(services, asked.wait_s)
        # Not cancelled when the caller is gone, but told so: a claim that is in progress may have taken commands.
        commands = await control.claim(worker, asked.limit, wait_s, lambda: caller_gone(call))
        if commands and await call.request.is_disconnected():
            for command in commands:
                await control.give_back(worker.worker_id, command.execution_id, command.command_id, command.fence)
            commands = []
        return work.Claimed(commands)

    with numbers_fit():
        found = await services.answers.once(_asker(call, worker.worker_id), asked.n, claimed, work.Claimed())
    if asked.form:
        commands = await call.workspace.wire_commands(found.commands)
        return work.WireClaimed(commands, services.settings.number("leases.seconds"))
    return found


@handles(ops.REPORT)
async def report(call: Call) -> ReportAnswer:
    given = await _reported(call)
    _check_id(given.worker_id)
    given.wants = max(0, min(given.wants, _MOST_COMMANDS))
    with numbers_fit():
        return await call.workspace.control.report(given)


@handles(ops.HEARTBEAT)
async def heartbeat(call: Call, asked: work.HeartbeatAsked) -> work.Lost:
    _check_id(asked.worker_id)
    if len(asked.held) > _MOST_HELD:
        raise RequestRejected(f"held: {len(asked.held)} commands; a heartbeat can name at most {_MOST_HELD}")
    with numbers_fit():
        return work.Lost(await call.workspace.control.heartbeat(asked.worker_id, asked.held))


@handles(ops.GIVE_BACK)
async def give_back(call: Call, asked: work.GiveBackAsked) -> work.Done:
    _check_id(asked.worker_id)
    control = call.workspace.control
    with numbers_fit():
        await control.give_back(asked.worker_id, asked.execution_id, asked.command_id, asked.fence)
    return work.Done()


@handles(ops.REVOKED)
async def revoked(call: Call, asked: work.RevokedAsked) -> work.Revoked:
    _check_id(asked.worker_id)
    if len(asked.held) > _MOST_COMMANDS:
        raise RequestRejected(f"held: {len(asked.held)} commands; a worker can name at most {_MOST_COMMANDS}")
    services, control = call.services, call.workspace.control

    async def news() -> work.Revoked:
        wait_s = 0.0 if services.draining() else longest_wait(services, asked.wait_s)
        found = await unless_gone(call, control.revoked(asked.worker_id, wait_s, asked.held))
        return work.Revoked(found or [])

    with numbers_fit():
        return await services.answers.once(_asker(call, asked.worker_id), asked.n, news, work.Revoked())


@handles(ops.PLAN)
async def plan(call: Call, asked: ops.ByDigest) -> Response:
    program = await call.workspace.control.program(asked.digest)
    return Response(net.encode(program.plan), media_type=JSON)


@handles(ops.LOOP_RESULTS)
async def loop_results(call: Call, asked: work.LoopResultsAsked) -> LoopPage:
    if not 1 <= asked.limit <= _MOST_EVENTS:
        raise RequestRejected(f"limit: {asked.limit} is not between 1 and {_MOST_EVENTS}")
    control = call.workspace.control
    with numbers_fit():
        return await control.loop_results(asked.execution_id, asked.step, asked.run, asked.after, asked.limit)


@handles(ops.WRITE_LOGS)
async def write_logs(call: Call, given: work.Lines) -> work.Done:
    for line in given.lines:
        _check_line(line)
    with numbers_fit():
        await call.workspace.control.write_logs(given.lines)
    return work.Done()


@handles(ops.SECRET)
async def secret(call: Call, asked: work.SecretAsked) -> work.SecretFound:
    """A secret as it is sealed. No answer can be read without the key, which is given to servers and workers and to nobody
    over HTTP.
    """
    checked_secret(asked.name)
    if len(asked.scope) > _LONGEST_SCOPE or not asked.scope.isprintable():
        raise RequestRejected("scope: TENANT/PROJECT/ENVIRONMENT is required")
    return work.SecretFound(await call.workspace.secrets.find(asked.name, asked.scope))


# -- reports -----------------------------------------------------------------------------------------------------------


class _ReportHead(Struct):
    """Whose report it is."""

    worker_id: str
    execution_id: int
    command_id: int


class _ReportParts(Struct):
    """A report of whose events nothing is decoded."""

    worker_id: str
    execution_id: int
    command_id: int
    fence: int
    n: int
    events: list[Raw]
    wants: int = 0


async def _reported(call: Call) -> Report:
    """A report. Of a large one, whose it is is looked at before the rest is even taken: to look at all of it takes long."""

    async def look(begin: bytes) -> None:
        before, found, _ = begin[:_REPORT_HEAD].partition(b'"events"')
        if not found:
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
    """A large report, decoded in a thread: between two events others go on."""
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
    for what, names in (("kinds", worker.kinds), ("pools", worker.pools)):
        if len(names) > _MOST_NAMES or any(len(name) > _LONGEST_NAME for name in names):
            raise RequestRejected(f"{what}: at most {_MOST_NAMES} names of at most {_LONGEST_NAME} characters")


def _check_id(worker_id: str) -> None:
    if work.WORKER_ID.fullmatch(worker_id) is None:
        raise RequestRejected(
            f"worker_id: {worker_id[:80]!r} is not a valid worker name (letters, digits, `_`, `.`, `-`; at most 128)"
        )


def _check_line(line: LogLine) -> None:
    """A line that cannot be read again would keep everybody from reading the others."""
    if line.stream not in STREAMS:
        raise RequestRejected(f"lines: there is no stream {line.stream[:50]!r}; there are {', '.join(STREAMS)}")
    if not 0 <= line.at <= LATEST:
        raise RequestRejected(f"lines: at: {line.at} is not a time (microseconds since 1970)")
    numbers = (line.execution_id, line.run, line.task_run, line.attempt, *(line.iteration or ()))
    if not all(0 <= number <= MAX_ID for number in numbers):
        raise RequestRejected("lines: a number is negative or too large")
    if len(line.step) > _LONGEST_NAME or len(line.task) > 2 * _LONGEST_NAME:
        raise RequestRejected("lines: the name of the step or task is too long")
