"""`arclog replay`: check recorded runs against the decisions of this version."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from arclog.cli.exits import FAILED, OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api, ListedRun, ReplayCheck

_PAGE = 200


def replay_arguments(parser: Parser) -> None:
    from arclog.cli.options import since

    parser.add_argument("id", metavar="ID", nargs="?", default="", help="execution id, its first digits, or last")
    parser.add_argument("--all", action="store_true", help="check every run")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=since,
        help="with --all: only runs requested since then (30s, 10m, 2h, 1d ago, or a date)",
    )
    parser.epilog = (
        "Repeats every recorded decision with this version of arclog and compares it with the log. No task runs and nothing is\n"
        "written. A difference means that this version would have continued the run differently: run `replay --all` before an\n"
        "upgrade.\n\n"
        "examples:\n"
        "  arclog replay last\n"
        "  arclog replay --all --since 7d --json\n\n"
        "exit codes: 0 no difference, 1 a difference"
    )


def replay_command(options: Namespace) -> int:
    if bool(options.id) == options.all:
        raise Usage("name a run, or use --all", "arclog replay last")
    if options.since is not None and not options.all:
        raise Usage("--since requires --all")
    return _replay_all(options) if options.all else _replay_one(options)


def _replay_one(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        check = await api.replay(execution_id)
        if out.as_json:
            out.data(check)
        else:
            _print_check(check, out)
        return OK if check.ok else FAILED

    return with_run(options, work)


def _replay_all(options: Namespace) -> int:
    import asyncio

    from arclog.cli.home import exists, nothing_yet, opened, settings_of
    from arclog.cli.render import counted, out_of
    from arclog.model.ids import timestamp

    out, settings = out_of(options), settings_of(options)
    since = timestamp(options.since) if options.since is not None else ""
    if not exists(settings):
        out.notice(nothing_yet(settings))
        return OK

    async def go() -> int:
        runs = events = different = 0
        async with opened(settings, read_only=True) as runtime:
            async for run in _all_runs(runtime.api, since):
                check = await runtime.api.replay(run.execution_id)
                runs, events = runs + 1, events + check.events
                different += not check.ok
                if out.as_json:
                    out.data(check)
                elif not check.ok:
                    out.print(out.paint(f"{run.name} {run.execution_id}", "bold"))
                    _print_check(check, out)
        if not out.as_json and not out.quiet:
            summary = f"{counted(runs, 'run')} checked, {counted(events, 'event')}: "
            out.print(summary + (f"{counted(different, 'difference')}" if different else "no difference"))
        return FAILED if different else OK

    return asyncio.run(go())


async def _all_runs(api: Api, since: str) -> AsyncIterator[ListedRun]:
    before = ""
    while page := await api.list(before=before, since=since, limit=_PAGE):
        for run in page:
            yield run
        if len(page) < _PAGE:
            return
        before = page[-1].execution_id


def _print_check(check: ReplayCheck, out: Out) -> None:
    from arclog.cli.render import clean, counted, indented, json_text

    if check.difference is None:
        folded = f", {check.folded:,} of them not compared" if check.folded else ""
        if not out.quiet:
            out.print(
                f"{counted(check.events, 'event')}{folded}, {counted(check.decisions, 'decision')}: no difference"
            )
        return
    first = check.difference
    out.print(out.paint(f"event {first.seq} differs: {', '.join(first.fields)}", "red"))
    for label, event in (("recorded", first.recorded), ("decided today", first.decided)):
        text = "nothing" if event is None else json_text(event)
        if event is None and first.problem:
            text = f"nothing: {first.problem}" if label == "decided today" else text
        out.print(indented(f"{label:<14}{clean(text)}"))
