"""The command `logs`: the output of a run's tasks, searched by the store and printed as it is read."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK
from arclog.cli.options import since

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.storage.task_logs import LogFilter
    from arclog.ports.views.api import Api, Following

_STREAMS = ("stdout", "stderr", "log", "progress")


def logs_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument("--follow", "-f", action="store_true", help="keep printing until the run ends")
    parser.add_argument("--step", metavar="STEP", default="", help="only output of this step's tasks")
    parser.add_argument("--task", metavar="TASK", default="", help="only output of this task")
    parser.add_argument(
        "--iteration",
        metavar="I[.J]",
        type=_iteration,
        help="only this iteration of a loop, including nested iterations",
    )
    parser.add_argument(
        "--stream",
        dest="streams",
        metavar="STREAM",
        choices=_STREAMS,
        action="append",
        default=[],
        help="stdout, stderr, log (messages of arclog about a task) or progress (repeatable; default: all but progress)",
    )
    parser.add_argument("--grep", metavar="TEXT", default="", help="only lines that contain this text exactly")
    parser.add_argument("--regex", metavar="REGEX", type=_regex, help="only lines that match this regular expression")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=since,
        default=0,
        help="only lines since then: 30s, 10m, 2h, 1d or 2026-01-31T12:00",
    )
    parser.epilog = "With --json each line is one object."


def logs_command(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of
    from arclog.cli.runs.streams import PAGE, stream
    from arclog.ports.storage.task_logs import LogFilter
    from arclog.ports.views.api import Following

    out = out_of(options)
    where = LogFilter(
        step=options.step,
        task=options.task,
        iteration=options.iteration,
        streams=tuple(options.streams),
        text=options.grep,
        since=options.since,
    )

    async def work(api: Api, execution_id: str) -> int:
        async def read(after: int) -> list[dict[str, Any]]:
            return await api.logs(execution_id, after=after, limit=PAGE, where=where)

        def show(page: list[dict[str, Any]]) -> None:
            lines = [line for line in page if options.regex is None or options.regex.search(line["text"])]
            if out.as_json:
                out.lines(lines)
            elif lines:
                out.print("\n".join(_log_line(line, out) for line in lines))

        sent = partial(_sent, api, execution_id, where) if isinstance(api, Following) else None
        await stream(api, execution_id, read, show, "position", 0, follow=options.follow, sent=sent)
        return OK

    return with_run(options, work)


def _sent(api: Following, execution_id: str, where: LogFilter, after: int) -> AsyncIterator[dict[str, Any]]:
    return api.follow_logs(execution_id, after=after, where=where)


def _log_line(line: dict[str, Any], out: Out) -> str:
    from arclog.cli.render import clean, clock_time
    from arclog.cli.runs.progress import reported_text

    where = line["step"]
    if line.get("iteration") is not None:
        where += f"[{line['iteration']}]"
    if line.get("task"):
        where += f"/{line['task']}"
    if (line.get("attempt") or 1) > 1:
        where += f"#{line['attempt']}"
    prefix = out.paint(f"{clock_time(line['timestamp'])} {where} │", "dim")
    text = reported_text(line["text"]) if line.get("stream") == "progress" else line["text"]
    return "\n".join(
        f"{prefix} {out.paint(part, 'yellow') if line.get('stream') == 'stderr' else part}"
        for part in clean(text).rstrip("\n").split("\n")
    )


def _iteration(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 18 for part in parts):
        raise ArgumentTypeError(
            f"{text!r} is not an iteration; write its index from 0, nested ones with dots: 3 or 3.1"
        )
    return tuple(map(int, parts))


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ArgumentTypeError(f"{text!r} is not a regular expression: {problem}; --grep takes plain text") from None
