"""`ports.control` for workers on other machines.

A long poll ends early when its caller is gone or the server drains; commands that were claimed for somebody who is gone are
given back at once. Claims and revocations are counted by their worker: an answer that was lost on the way is given again.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from msgspec import Raw, Struct
from starlette.responses import Response

from arclog.core.boundary.reports import MAX_REPORT_EVENTS
from arclog.model.commands import Report, ReportAnswer
from arclog.model.data.sizes import value_count
from arclog.model.errors import RequestRejected
from arclog.model.events import Event
from arclog.model.ids import LATEST, MAX_ID
from arclog.plan import net
from arclog.ports import work
from arclog.ports.control import Control, LoopPage, WorkerInfo
from arclog.ports.storage.task_logs import STREAMS, LogLine
from arclog.server.auth.access import WORK, allows, principal_of, services_of
from arclog.server.bodies import answered, body_of, decoded, hold_decoded, numbers_fit, raw_body, too_many_values
from arclog.server.openapi import work_examples as examples
from arclog.server.openapi.schemas import documented
from arclog.server.streams.waiting import caller_gone, longest_wait, unless_gone

router = APIRouter(prefix=work.ROOT, tags=["workers"], dependencies=[allows(WORK)])

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


@router.post(
    "/register",
    **documented(takes=work.Hello, takes_example=examples.HELLO, answer=work.Welcome, example=examples.WELCOME),
)
async def register(request: Request) -> Response:
    """Register a worker and return the server's settings for it."""
    hello = await body_of(request, work.Hello)
    if hello.protocol != work.PROTOCOL:
        raise RequestRejected(
            f"the worker speaks protocol {hello.protocol}, this server {work.PROTOCOL}; run the same version of both"
        )
    _checked(hello.worker)
    services = services_of(request)
    settings = services.settings
    caller = principal_of(request)
    results = services.workplace(caller).results
    lease_s, most = settings.number("leases.seconds"), settings.integer("results.max_bytes")
    shared = bool(settings["workers.shared"]) and caller.tenant == settings.text("scope.tenant")
    return answered(work.Welcome(lease_s, results.name, most, shared=shared))


@router.post(
    "/claim",
    **documented(
        takes=work.ClaimAsked,
        takes_example=examples.CLAIM,
        answer=(work.Claimed, work.WireClaimed),
        example=examples.CLAIMED,
    ),
)
async def claim(request: Request) -> Response:
    """Claim up to `limit` commands. If there are none, wait up to `wait_s` seconds. With `form: wire` the commands
    are in the form for workers that report by POST /api/events: ids are strings, and the config of the next task
    is rendered.
    """
    asked = await body_of(request, work.ClaimAsked)
    worker = _checked(asked.worker)
    if not 1 <= asked.limit <= _MOST_COMMANDS:
        raise RequestRejected(f"limit: {asked.limit} is not between 1 and {_MOST_COMMANDS}")
    control = _control(request)
    services = services_of(request)
    key = _asker(request, worker.worker_id, "claim")

    async def claimed() -> work.Claimed:
        wait_s = 0.0 if services.draining() else longest_wait(services, asked.wait_s)
        # Not cancelled when the caller is gone, but told so: a claim that is in progress may have taken commands.
        commands = await control.claim(worker, asked.limit, wait_s, lambda: caller_gone(request, services))
        if commands and await request.is_disconnected():
            for command in commands:
                await control.give_back(worker.worker_id, command.execution_id, command.command_id, command.fence)
            commands = []
        return work.Claimed(commands)

    with numbers_fit():
        found = await services.answers.once(key, asked.n, claimed, work.Claimed())
    if asked.form:
        commands = await services.ingest.commands(found.commands)
        return answered(work.WireClaimed(commands, services.settings.number("leases.seconds")))
    return answered(found)


@router.post(
    "/report",
    **documented(
        takes=Report, takes_example=examples.REPORT, answer=ReportAnswer, example=examples.ANSWER, errors=(404, 409)
    ),
)
async def report(request: Request) -> Response:
    """Send the next part of a command's report. It is durable when the response arrives."""
    given = await _reported(request)
    _checked_id(given.worker_id)
    given.wants = max(0, min(given.wants, _MOST_COMMANDS))
    with numbers_fit():
        return answered(await _control(request).report(given))


@router.post(
    "/heartbeat",
    **documented(takes=work.HeartbeatAsked, takes_example=examples.HEARTBEAT, answer=work.Lost, example=work.Lost([])),
)
async def heartbeat(request: Request) -> Response:
    """Extend leases, and return the commands that the worker no longer holds."""
    asked = await body_of(request, work.HeartbeatAsked, lax=True)
    _checked_id(asked.worker_id)
    if len(asked.held) > _MOST_HELD:
        raise RequestRejected(f"held: {len(asked.held)} commands; a heartbeat can name at most {_MOST_HELD}")
    with numbers_fit():
        return answered(work.Lost(await _control(request).heartbeat(asked.worker_id, asked.held)))


@router.post(
    "/give-back",
    **documented(
        takes=work.GiveBackAsked,
        takes_example=examples.GIVE_BACK,
        answer=work.Done,
        example=work.Done(),
        errors=(404, 409),
    ),
)
async def give_back(request: Request) -> Response:
    """Return a command between two tasks."""
    asked = await body_of(request, work.GiveBackAsked, lax=True)
    _checked_id(asked.worker_id)
    with numbers_fit():
        await _control(request).give_back(asked.worker_id, asked.execution_id, asked.command_id, asked.fence)
    return answered(work.Done())


@router.post(
    "/revoked",
    **documented(
        takes=work.RevokedAsked, takes_example=examples.REVOKED_ASKED, answer=work.Revoked, example=examples.REVOKED
    ),
)
async def revoked(request: Request) -> Response:
    """List commands that were withdrawn from the worker or must pause; waits up to `wait_s` seconds for one."""
    asked = await body_of(request, work.RevokedAsked)
    _checked_id(asked.worker_id)
    control = _control(request)
    services = services_of(request)
    key = _asker(request, asked.worker_id, "revoked")
    if len(asked.held) > _MOST_COMMANDS:
        raise RequestRejected(f"held: {len(asked.held)} commands; a worker can name at most {_MOST_COMMANDS}")

    async def wait_for_revocations() -> work.Revoked:
        wait_s = 0.0 if services.draining() else longest_wait(services, asked.wait_s)
        news = control.revoked(asked.worker_id, wait_s, asked.held)
        return work.Revoked(await unless_gone(request, services, news) or [])

    with numbers_fit():
        return answered(await services.answers.once(key, asked.n, wait_for_revocations, work.Revoked()))


@router.get(
    "/plans/{digest}", **documented(answer={"type": "object"}, example={"name": "hello", "entry": "start", "steps": []})
)
async def plan(digest: str, request: Request) -> Response:
    """Get the plan of a command."""
    program = await _control(request).program(digest)
    return Response(net.encode(program.plan), media_type="application/json")


@router.post(
    "/loop-results",
    **documented(takes=work.LoopResultsAsked, takes_example=examples.LOOP, answer=LoopPage, example=examples.LOOP_PAGE),
)
async def loop_results(request: Request) -> Response:
    """List the outcomes of the tasks of a finished loop."""
    asked = await body_of(request, work.LoopResultsAsked)
    if not 1 <= asked.limit <= _MOST_EVENTS:
        raise RequestRejected(f"limit: {asked.limit} is not between 1 and {_MOST_EVENTS}")
    with numbers_fit():
        page = await _control(request).loop_results(asked.execution_id, asked.step, asked.run, asked.after, asked.limit)
    return answered(page)


@router.post(
    "/logs", **documented(takes=work.Lines, takes_example=examples.LINES, answer=work.Done, example=work.Done())
)
async def write_logs(request: Request) -> Response:
    """Store log lines of tasks."""
    given = await body_of(request, work.Lines, "server.max_report_bytes")
    for line in given.lines:
        _check_line(line)
    with numbers_fit():
        await _control(request).write_logs(given.lines)
    return answered(work.Done())


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


async def _reported(request: Request) -> Report:
    """A report. Of a large one, whose it is is looked at before the rest is even taken: to look at all of it takes
    long.
    """

    async def look(begin: bytes) -> None:
        before, found, _ = begin[:_REPORT_HEAD].partition(b'"events"')
        if not found:
            raise RequestRejected(
                f"a report of more than {_LARGE_REPORT} bytes names its worker, execution and command first, and then its events"
            )
        head = decoded(before.rstrip().removesuffix(b",") + b"}", _ReportHead)
        _checked_id(head.worker_id)
        check = services_of(request).workplace(principal_of(request)).check_holder
        if check is not None:
            with numbers_fit():
                await check(head.worker_id, head.execution_id, head.command_id)

    raw = await raw_body(request, "server.max_events_bytes", _LARGE_REPORT, look)
    if len(raw) < _LARGE_REPORT:
        return decoded(raw, Report)
    hold_decoded(request, raw)
    most_values = services_of(request).settings.integer("server.max_body_values")
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


def _control(request: Request) -> Control:
    return services_of(request).workplace(principal_of(request)).control


def _asker(request: Request, worker_id: str, call: str) -> tuple[str, ...]:
    principal = principal_of(request)
    return (principal.tenant, principal.subject, worker_id, call)


def _checked(worker: WorkerInfo) -> WorkerInfo:
    _checked_id(worker.worker_id)
    for what, names in (("kinds", worker.kinds), ("pools", worker.pools)):
        if len(names) > _MOST_NAMES or any(len(name) > _LONGEST_NAME for name in names):
            raise RequestRejected(f"{what}: at most {_MOST_NAMES} names of at most {_LONGEST_NAME} characters")
    return worker


def _checked_id(worker_id: str) -> None:
    if work.WORKER_ID.fullmatch(worker_id) is None:
        raise RequestRejected(
            f"worker_id: {worker_id[:80]!r} is not a valid worker name (letters, digits, `_`, `.`, `-`; at most 128)"
        )


def _check_line(line: LogLine) -> None:
    """A line that could not be told again would keep everybody from reading the others."""
    if line.stream not in STREAMS:
        raise RequestRejected(f"lines: there is no stream {line.stream[:50]!r}; there are {', '.join(STREAMS)}")
    if not 0 <= line.at <= LATEST:
        raise RequestRejected(f"lines: at: {line.at} is not a time (microseconds since 1970)")
    numbers = (line.execution_id, line.run, line.task_run, line.attempt, *(line.iteration or ()))
    if not all(0 <= number <= MAX_ID for number in numbers):
        raise RequestRejected("lines: a number is negative or too large")
    if len(line.step) > _LONGEST_NAME or len(line.task) > 2 * _LONGEST_NAME:
        raise RequestRejected("lines: the name of the step or task is too long")
