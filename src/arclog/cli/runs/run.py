"""Commands that run a playbook to its end: run, resume, and those that start a run from another one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import BY_STATE, FAILED, OK
from arclog.model.errors import InvariantBroken

if TYPE_CHECKING:
    from arclog.authoring.playbook_files import FilesBeside
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.plan.net import Plan
    from arclog.ports.views.api import Api, ForkRequest, Started


def run_arguments(parser: Parser) -> None:
    parser.add_argument("file", metavar="FILE|PATH", help="playbook file, or PATH[@VERSION] in the catalog; - is stdin")
    parser.add_set("set a value of the workload, e.g. user.name=Ada")
    parser.add_argument(
        "--workload", metavar="FILE", help="JSON or YAML file with the workload; --set takes precedence over it"
    )
    parser.add_argument(
        "--priority",
        type=int,
        metavar="N",
        help="-100 to 100, overrides executor.spec.priority: commands with a higher priority are served first",
    )
    parser.add_argument(
        "--detach", "-d", action="store_true", help="with a server: print the run's id and do not wait for the run"
    )
    parser.epilog = (
        "examples:\n"
        "  arclog run examples/hello.yaml\n"
        "  arclog run flow.yaml --workload input.json --set 'ids=[1, 2]' --json\n"
        "  arclog run reports/daily@3\n\n"
        "exit codes: 0 completed, 1 failed, 2 invalid playbook or usage, 3 cancelled\n"
        "Ctrl-C stops the command without cancelling the run: `arclog resume ID` continues it, `arclog cancel ID` ends it. On a\n"
        "server the run continues. The command also waits for runs that were started with `wait: false`."
    )


def run_command(options: Namespace) -> int:
    from arclog.cli.exits import Usage
    from arclog.cli.home import server_of, settings_of
    from arclog.cli.playbooks.files import in_catalog, playbook_text
    from arclog.cli.render import out_of
    from arclog.wiring.process import run

    settings = settings_of(options)
    if options.file == "-" and options.workload == "-":
        raise Usage("the playbook and the workload cannot both come from standard input")
    if options.detach and not server_of(settings):
        hint = "name one with --server or ARCLOG_SERVER; `arclog up` starts one"
        raise Usage("--detach requires a server", hint)
    text, name = ("", options.file) if in_catalog(options.file) else playbook_text(options.file, settings)
    return run(_run(settings, options, text, name, out_of(options)), briefly=not settings.text("store.url"))


async def _run(settings: Any, options: Namespace, text: str, file: str, out: Out) -> int:
    from arclog.authoring.playbook_files import FilesBeside
    from arclog.cli.home import opened, server_of
    from arclog.cli.playbooks.files import called_playbooks, path_and_version, workload_of
    from arclog.cli.runs.attached import AttachedRun, Interrupts
    from arclog.ports.views.api import ExecuteRequest

    out.outlives_reader = True
    interrupts = Interrupts(out)
    _print_logged_errors(out)
    workload, priority = workload_of(options.workload, options.assignments, settings), options.priority
    try:
        with interrupts:
            async with opened(settings) as runtime:
                if text:
                    runtime.open_tools(text)
                    beside = FilesBeside(settings).of(file)
                    plan = _compile(runtime, settings, options, text, file, out, beside)
                    workload = _typed(plan, workload, options)
                    files = called_playbooks(text, file, settings, beside) | beside.taken
                    request = ExecuteRequest(text, file, workload, files, priority=priority)
                else:
                    path, version = path_and_version(file)
                    pinned = await runtime.api.registered(path, version)
                    text = pinned.source
                    runtime.open_tools(text)
                    pinned_path = f"{path}@{pinned.version}"
                    plan = _compile(runtime, settings, options, text, pinned_path, out, FilesBeside(settings))
                    workload = _typed(plan, workload, options)
                    request = ExecuteRequest(path=path, version=pinned.version, workload=workload, priority=priority)
                started = await runtime.api.execute(request)
                if options.detach:
                    return _detached(started, out)
                interrupts.started(started.execution_id, server_of(settings))
                await runtime.start_worker(started.execution_id)
                shown = AttachedRun(runtime, out, interrupts, settings, serves=not server_of(settings), text=text)
                return await _while_working(runtime, shown.to_the_end(started.execution_id))
    except BaseException:
        if interrupts.exit_code:
            return interrupts.exit_code
        raise


def _compile(
    runtime: Any, settings: Any, options: Namespace, text: str, file: str, out: Out, beside: FilesBeside
) -> Plan | None:
    """Compile the playbook, print the warnings of `check`, and refuse assignments that it has no key for. Returns its plan."""
    from arclog.cli.playbooks.files import assigned
    from arclog.cli.playbooks.findings import warn
    from arclog.plan.build import build
    from arclog.wiring.kinds import KindSpecs, tool_kinds

    built = build(text, file, KindSpecs(tool_kinds()), settings, beside)
    if built.plan is None:
        return None  # starting it reports the errors; a server may have kinds that are not installed here
    if options.assignments:
        from arclog.cli.playbooks.assignments import check_assignments

        check_assignments(built.plan, assigned(options.assignments))
    runtime.keep_plan(text, built.plan)
    if not out.quiet:
        warn(built.findings, built.source, file, as_json=out.as_json)
    return built.plan


def _typed(plan: Plan | None, workload: dict[str, Any], options: Namespace) -> dict[str, Any]:
    if plan is None or not plan.inputs or not options.assignments:
        return workload
    from arclog.cli.playbooks.assignments import typed

    return typed(plan, workload, options.assignments)


def _detached(started: Started, out: Out) -> int:
    if out.as_json:
        out.data(started)
    elif out.quiet:
        out.print(started.execution_id)
    else:
        out.print(f"started execution {started.execution_id}")
        out.print(out.paint(f"  arclog events {started.execution_id} --follow", "dim"))
    return OK


def resume_arguments(parser: Parser) -> None:
    from arclog.cli.runs.signals import signal_id_argument

    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded in the log if the run was paused")
    signal_id_argument(parser)
    parser.epilog = (
        "Continues a paused run, here or in the process that is waiting for it, or a run whose process died. Finished tasks do\n"
        "not run again; a task that was in flight does. For a run that has ended, the command shows its outcome."
    )


def resume_command(options: Namespace) -> int:
    return _continue(options, again=False)


def again_command(options: Namespace) -> int:
    """`arclog retry ID`: run an ended run again."""
    return _continue(options, again=True)


def forked_command(options: Namespace, request: ForkRequest) -> int:
    """`arclog fork`, and `arclog retry` of a part of a run: start the new run and show it to its end."""
    return _continue(options, again=True, request=request)


def _continue(options: Namespace, *, again: bool, request: ForkRequest | None = None) -> int:
    from arclog.cli.home import require, settings_of
    from arclog.cli.render import out_of
    from arclog.wiring.process import run

    settings = settings_of(options)
    require(settings, options.id)
    work = _resume(settings, options, out_of(options), again=again, request=request)
    return run(work, briefly=not settings.text("store.url"))


async def _forked(runtime: Any, execution_id: str, request: ForkRequest, out: Out) -> str:
    """The id of a new run that continues from another."""
    fork = await runtime.api.fork(execution_id, request)
    if not out.as_json and not out.quiet:
        origin = fork.origin
        start = f"event {origin.seq} of" if origin.how == "fork" else f"step {origin.step} of" if origin.step else ""
        out.notice(
            f"execution {fork.execution_id} continues from {start + ' ' if start else ''}{execution_id}: "
            f"{origin.events:,} events kept"
        )
    new: str = fork.execution_id
    return new


async def _resume(
    settings: Any, options: Namespace, out: Out, *, again: bool, request: ForkRequest | None = None
) -> int:
    from arclog.cli.home import opened, resolve, server_of
    from arclog.cli.runs.attached import AttachedRun, Interrupts, unfinished_below
    from arclog.cli.runs.signals import print_answer, request_of
    from arclog.model.errors import RequestRejected

    out.outlives_reader = True
    interrupts = Interrupts(out)
    _print_logged_errors(out)
    try:
        with interrupts:
            async with opened(settings) as runtime:
                execution_id = await resolve(runtime.api, options.id)
                if request is not None:
                    execution_id = await _forked(runtime, execution_id, request, out)
                elif again:
                    answer = await runtime.api.signal(execution_id, request_of(options, "RETRY_RUN"))
                    if answer.started is None:
                        return print_answer(answer, "", out)
                    execution_id = answer.started
                serves = not server_of(settings)
                shown = AttachedRun(runtime, out, interrupts, settings, serves=serves)
                status = await runtime.api.status(execution_id)
                # A server may have finished the new run already; it is shown anyway, since it was not shown before.
                if status.ended_at is not None and (serves or not again):
                    unfinished = await unfinished_below(runtime.api, execution_id) if serves else []
                    if not unfinished:
                        return await _already_over(runtime.api, execution_id, out)
                    interrupts.ended(execution_id, unfinished)
                    await runtime.start_worker(execution_id)
                    for child in unfinished:
                        await runtime.take_over(child)
                    return await _while_working(runtime, shown.after_its_end(execution_id))
                if await runtime.api.pausing(execution_id):
                    answer = await runtime.api.signal(execution_id, request_of(options, "RESUME"))
                    elsewhere = runtime.served_by(execution_id)
                    if elsewhere or not answer.accepted:
                        return print_answer(answer, f"resumed on worker {elsewhere}", out)
                held = await runtime.take_over(execution_id)
                if held:
                    raise RequestRejected(f"run {execution_id} cannot be resumed: {held}")
                interrupts.started(execution_id, server_of(settings))
                await runtime.start_worker(execution_id)
                return await _while_working(runtime, shown.to_the_end(execution_id, resumed=not again))
    except BaseException:
        if interrupts.exit_code:
            return interrupts.exit_code
        raise


async def _while_working(runtime: Any, work: Coroutine[Any, Any, int]) -> int:
    """Show the run to its end. If the worker stops before that, raise its error."""
    import asyncio

    showing = asyncio.ensure_future(work)
    try:
        await asyncio.wait({showing, runtime.worker}, return_when=asyncio.FIRST_COMPLETED)
        if not showing.done():
            runtime.worker.result()  # raises
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
        out.print(f"run {execution_id} has already ended: {out.state(summary.state)}; see `arclog show {execution_id}`")
    return BY_STATE.get(summary.state, FAILED)


def _print_logged_errors(out: Out) -> None:
    """Print errors that the engine and the worker log as notices; with ARCLOG_DEBUG=1, all log messages."""
    import logging
    import os

    class Notices(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            out.notice(record.getMessage())

    log = logging.getLogger("arclog")
    log.handlers = [Notices(logging.DEBUG if os.environ.get("ARCLOG_DEBUG") == "1" else logging.ERROR)]
    log.propagate = False
