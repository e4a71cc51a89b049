"""`arclog state`: a run as it was after any of its events."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api
    from arclog.ports.views.insight import StateView, StepRunView


def state_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument(
        "--at",
        metavar="SEQ",
        type=seq,
        help="show the state after this event; 0 is before the first (default: the latest)",
    )
    parser.epilog = "example: arclog state last --at 12"


def seq(text: str) -> int:
    from argparse import ArgumentTypeError

    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ArgumentTypeError(f"{text[:40]!r} is not the seq of an event; `arclog events ID` shows them")
    return int(text)


def state_command(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import counted, out_of

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        view = await api.state(execution_id, options.at)
        if options.at is not None and options.at > view.head and not out.quiet:
            out.notice(f"the run has {counted(view.head, 'event')} so far; showing the state after the last one")
        if out.as_json:
            out.data(view)
        else:
            out.print(page(view, out))
        return OK

    return with_run(options, work)


def page(view: StateView, out: Out) -> str:
    """The state for people."""
    from arclog.cli.render import clock_time, indented, pretty, stored, table

    at = f"event {view.at:,} of {view.head:,}"
    if view.event_type is not None and view.timestamp is not None:
        at += f" · {view.event_type} · {clock_time(view.timestamp)}"
    parts = [f"{out.state(view.state)} at {at}"]
    whole = f"arclog state {view.execution_id} --at {view.at} --json"

    def section(title: str, text: str) -> None:
        parts.extend(("", out.paint(title, "bold"), indented(text)))

    width = out.size()[0] - 2
    if view.step_runs:
        head = ("STEP", "RUN", "STATUS", "ITEM", "TASK", "ARGS")
        section(
            "open step runs", table(head, [_run_row(step_run) for step_run in view.step_runs], width, out, right=(1,))
        )
    if view.tokens:
        rows = [(str(token.id), token.step, token.place, _short(token.args)) for token in view.tokens]
        section("tokens", table(("TOKEN", "TO STEP", "PLACE", "ARGS"), rows, width, out))
    if view.commands:
        rows = [
            (command.command_id, f"{command.step} (run {command.run})", str(command.fence), str(command.losses))
            for command in view.commands
        ]
        section("open commands", table(("COMMAND", "STEP", "FENCE", "LOSSES"), rows, width, out))
    if view.steps:
        steps = [
            (f"{out.mark(step.status)} {name}", step.status, f"{step.runs:,}") for name, step in view.steps.items()
        ]
        section("steps so far", table(("STEP", "LATEST", "RUNS"), steps, width, out))
    for label, value in (("ctx", view.ctx), ("result", view.result), ("error", view.error)):
        if value not in ({}, None):
            section(label, pretty(value, full_command=whole))
    if view.result_ref is not None:
        section("result", stored(view.result_ref))
    if len(parts) == 1:
        parts.append("  nothing has happened yet" if view.at == 0 else "  nothing is open")
    return "\n".join(parts)


def _run_row(step_run: StepRunView) -> tuple[str, ...]:
    loop = step_run.loop
    item = ""
    if loop is not None:
        item = f"{loop.ok + loop.failed:,}/{loop.total:,} ok {loop.ok:,} failed {loop.failed:,}"
    return step_run.step, str(step_run.run), step_run.status, item, _task(step_run), _short(step_run.args)


def _task(step_run: StepRunView) -> str:
    from arclog.cli.render import clock_time

    if not step_run.tasks:
        return ""
    task = step_run.tasks[0]
    if len(step_run.tasks) > 1:
        return f"{len(step_run.tasks)} iterations under way"
    if not task.task:
        return "all done"
    text = f"{task.task} (run {task.task_run})" if task.task_run > 1 else task.task
    if task.in_flight and task.since is not None:
        return f"{text}, attempt {task.attempt} since {clock_time(task.since)}"
    if task.due is not None:
        return f"{text}, attempt {task.attempt} due {clock_time(task.due)}"
    return f"{text} next"


def _short(value: Any) -> str:
    from arclog.cli.render import clip, json_text, one_line

    return clip(one_line(json_text(value)), 60) if value else ""
