"""Commands that run a playbook to its end: run, resume, and retry of a whole run."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import BY_STATE, FAILED, OK
from arclog.model.errors import InvariantBroken

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.api import Api, Started, Summary


def run_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE|PATH", help="playbook file, or PATH[@VERSION] in the catalog; - is stdin")
    parser.add_argument(
        "--set",
        dest="assignments",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="set a value of the workload, e.g. user.name=Ada; VALUE is JSON, else text (repeatable)",
    )
    parser.add_argument("--workload", metavar="FILE", help="JSON or YAML file with the workload; --set wins over it")
    parser.add_argument(
        "--priority",
        type=int,
        metavar="N",
        help="-100 to 100, in the place of executor.spec.priority: higher comes first where commands wait for workers",
    )
    parser.add_argument(
        "--detach", "-d", action="store_true", help="with a server: say the run's id and leave it to it"
    )
    parser.epilog = (
        "examples:\n"
        "  arclog run examples/hello.yaml\n"
        "  arclog run flow.yaml --workload input.json --set 'ids=[1, 2]' --json\n"
        "  arclog run reports/daily@3\n\n"
        "exit codes: 0 completed, 1 failed, 2 invalid playbook or usage, 3 cancelled\n"
        "Ctrl-C cancels the run; a second one leaves it so that `arclog resume ID` can go on with it. With a server it\n"
        "asks, on a terminal, whether to cancel the run or to detach from it."
    )


def run_command(options: Namespace) -> int:
    from arclog.cli.exits import Usage
    from arclog.cli.files import in_catalog, playbook_text, workload_of
    from arclog.cli.home import server_of, settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.loop import run

    settings = settings_of(options)
    if options.file == "-" and options.workload == "-":
        raise Usage("the playbook and the workload cannot both come from standard input")
    if options.detach and not server_of(settings):
        hint = "name one with --server or ARCLOG_SERVER; `arclog up` starts one"
        raise Usage("--detach needs a server: nobody else would run it", hint)
    text, name = ("", options.file) if in_catalog(options.file) else playbook_text(options.file, settings)
    workload = workload_of(options.workload, options.assignments, settings)
    work = _run(settings, text, name, workload, out_of(options), detach=options.detach, priority=options.priority)
    return run(work, briefly=not settings.text("store.url"))


async def _run(
    settings: Any,
    text: str,
    file: str,
    workload: dict[str, Any],
    out: Out,
    *,
    detach: bool = False,
    priority: int | None = None,
) -> int:
    from arclog.cli.files import called_playbooks, path_and_version
    from arclog.cli.home import opened, server_of
    from arclog.cli.interrupts import Interrupts
    from arclog.ports.api import ExecuteRequest

    out.outlives_reader = True
    interrupts = Interrupts(out)
    _hear_errors(out)
    try:
        with interrupts:
            async with opened(settings) as here:
                if text:
                    files = called_playbooks(text, file, settings)
                    request = ExecuteRequest(text, file, workload, files, priority=priority)
                else:
                    path, version = path_and_version(file)
                    pinned = await here.api.registered(path, version)
                    text, file = pinned.source, ""
                    request = ExecuteRequest(path=path, version=pinned.version, workload=workload, priority=priority)
                here.open_tools(text)
                started = await here.api.execute(request)
                if detach:
                    return _detached(started, out)
                interrupts.started(here.api, started.execution_id, server_of(settings))
                await here.start_worker(started.execution_id)
                return await _while_working(here, _to_the_end(here.api, started.execution_id, out))
    except BaseException:
        if interrupts.left:
            return interrupts.left
        raise


def _detached(started: Started, out: Out) -> int:
    if out.as_json:
        out.data(started)
    elif out.quiet:
        out.say(started.execution_id)
    else:
        out.say(f"started execution {started.execution_id}")
        out.say(out.paint(f"  arclog events {started.execution_id} --follow", "dim"))
    return OK


def resume_arguments(parser: Parser) -> None:
    from arclog.cli.signals import signal_id_argument

    parser.add_argument("id", metavar="ID", help="execution id, or last")
    parser.add_argument("--reason", metavar="TEXT", default="", help="kept in the log, when the run was paused")
    signal_id_argument(parser)
    parser.epilog = (
        "A paused run goes on: here, or in the process that waits for it. So does one whose process died.\n"
        "Finished tasks are not done again; the task that was in flight is. A run that ended is only shown."
    )


def resume_command(options: Namespace) -> int:
    return _go_on(options, again=False)


def again_command(options: Namespace) -> int:
    """`arclog retry ID`: run an ended run again."""
    return _go_on(options, again=True)


def _go_on(options: Namespace, *, again: bool) -> int:
    from arclog.cli.home import require, settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.loop import run

    settings = settings_of(options)
    require(settings, options.id)
    work = _resume(settings, options, out_of(options), again=again)
    return run(work, briefly=not settings.text("store.url"))


async def _resume(settings: Any, options: Namespace, out: Out, *, again: bool) -> int:
    from arclog.cli.home import opened, resolve, server_of
    from arclog.cli.interrupts import Interrupts
    from arclog.cli.signals import request_of, told
    from arclog.model.errors import RequestRejected

    out.outlives_reader = True
    interrupts = Interrupts(out)
    _hear_errors(out)
    try:
        with interrupts:
            async with opened(settings) as here:
                execution_id = await resolve(here.api, options.id)
                if again:
                    answer = await here.api.signal(execution_id, request_of(options, "RETRY_RUN"))
                    if answer.started is None:
                        return told(answer, "", out)
                    execution_id = answer.started
                status = await here.api.status(execution_id)
                # A server may have run it to its end by now; it is shown all the same, as nobody has seen it.
                if status.ended_at is not None and not (again and server_of(settings)):
                    return await _already_over(here.api, execution_id, out)
                if await here.api.pausing(execution_id):
                    answer = await here.api.signal(execution_id, request_of(options, "RESUME"))
                    elsewhere = here.served_by(execution_id)
                    if elsewhere or not answer.accepted:
                        return told(answer, f"resumed; worker {elsewhere} goes on with it", out)
                held = await here.take_over(execution_id)
                if held:
                    raise RequestRejected(f"run {execution_id} cannot be resumed: {held}")
                interrupts.started(here.api, execution_id, server_of(settings))
                await here.start_worker(execution_id)
                return await _while_working(here, _to_the_end(here.api, execution_id, out, resumed=not again))
    except BaseException:
        if interrupts.left:
            return interrupts.left
        raise


async def _while_working(here: Any, rest: Coroutine[Any, Any, int]) -> int:
    """Go on to the end of the run, but not without a worker: what stopped it is raised here."""
    import asyncio

    showing = asyncio.ensure_future(rest)
    try:
        await asyncio.wait({showing, here.worker}, return_when=asyncio.FIRST_COMPLETED)
        if not showing.done():
            here.worker.result()  # raises
            raise InvariantBroken("the worker stopped before the run ended")
        return await showing
    finally:
        if not showing.done():
            showing.cancel()
            await asyncio.wait({showing})


async def _already_over(api: Api, execution_id: str, out: Out) -> int:
    summary = await api.summary(execution_id)
    if out.as_json:
        out.data(summary)
    elif not out.quiet:
        out.say(
            f"run {execution_id} is over already: {out.state(summary.state)}; `arclog show {execution_id}` tells more"
        )
    return BY_STATE.get(summary.state, FAILED)


async def _to_the_end(api: Api, execution_id: str, out: Out, *, resumed: bool = False) -> int:
    if out.as_json or out.quiet:
        await api.ended(execution_id)
    else:
        from arclog.cli.watch import watch

        await watch(api, execution_id, out, resumed=resumed)
    summary = await api.summary(execution_id)
    if out.as_json:
        out.data(summary)
    else:
        _verdict(summary, out)
    return BY_STATE.get(summary.state, FAILED)


def _verdict(summary: Summary, out: Out) -> None:
    """The last lines of a run that was shown."""
    from arclog.cli.account import account, next_lines
    from arclog.cli.render import MARKS, STATE_MARKS, between, pretty, stored

    completed = summary.state == "COMPLETED"
    if summary.result is not None and completed:
        whole = f"arclog show {summary.execution_id} --json"
        out.say(pretty(summary.result, rest=whole))
    if summary.result_ref is not None and completed:
        out.say(stored(summary.result_ref))
    if completed and out.quiet:
        return
    glyph, _, colour = MARKS[STATE_MARKS.get(summary.state, "open")]
    took = between(summary.started_at, summary.ended_at)
    line = f"{glyph} {summary.name} {summary.state.lower()}{f' in {took}' if took else ''}"
    out.say(f"{out.paint(line, colour, 'bold')} {out.paint(f'· execution {summary.execution_id}', 'dim')}")
    told = account(summary, out)
    if told:
        out.say(told)
    if not completed and not out.quiet:
        out.say(next_lines([f"arclog why {summary.execution_id}", *summary.next], out))


def _hear_errors(out: Out) -> None:
    """What engine and worker log as errors is said as a notice; their warnings are for ARCLOG_DEBUG=1."""
    import logging
    import os

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            out.notice(record.getMessage())

    log = logging.getLogger("arclog")
    log.handlers = [Notices(logging.DEBUG if os.environ.get("ARCLOG_DEBUG") == "1" else logging.ERROR)]
    log.propagate = False
