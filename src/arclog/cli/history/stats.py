"""`arclog stats`: success rates and durations of a playbook's latest runs."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import OK

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import PlaybookStats

#: Days that are shown in the text output; --json has all of them.
_MOST_DAYS = 14


def stats_arguments(parser: Parser) -> None:
    from arclog.cli.options import since

    parser.add_argument("path", metavar="PLAYBOOK", help="path in the catalog, as shown by `arclog list --json`")
    parser.add_argument(
        "--since", metavar="TIME", type=since, help="only runs requested since then (30s, 10m, 2h, 1d ago, or a date)"
    )
    parser.add_argument(
        "--last", metavar="N", type=int, default=200, help="maximum number of runs, 1 to 1000 (default: 200)"
    )
    parser.epilog = "example: arclog stats reports/daily --since 30d"


def stats_command(options: Namespace) -> int:
    import asyncio

    from arclog.cli.exits import Usage
    from arclog.cli.home import exists, nothing_yet, opened, settings_of
    from arclog.cli.render import out_of
    from arclog.model.errors import NotFound
    from arclog.model.ids import timestamp

    if not 1 <= options.last <= 1000:
        raise Usage(f"--last {options.last} is not between 1 and 1000")
    out, settings = out_of(options), settings_of(options)
    if not exists(settings):
        raise NotFound(nothing_yet(settings))
    since = timestamp(options.since) if options.since is not None else ""

    async def go() -> int:
        async with opened(settings, read_only=True) as runtime:
            stats = await runtime.api.stats(options.path, since=since, limit=options.last)
        if out.as_json:
            out.data(stats)
        else:
            out.print(_page(stats, out))
        return OK

    return asyncio.run(go())


def _page(stats: PlaybookStats, out: Out) -> str:
    from arclog.cli.render import counted, indented, milliseconds, one_line, table

    states = ", ".join(f"{count:,} {state.lower()}" for state, count in stats.states.items())
    facts = [
        ("runs", f"{counted(stats.runs, 'run')}: {states}"),
        (
            "success",
            "–" if stats.success_rate is None else f"{stats.success_rate:.1%} of those that completed or failed",
        ),
        ("took", f"p50 {milliseconds(stats.p50_ms)}, p95 {milliseconds(stats.p95_ms)}"),
    ]
    parts = [out.paint(one_line(stats.path), "bold"), *(f"  {label:<10}{value}" for label, value in facts)]
    width = out.size()[0] - 2
    if stats.steps:
        rows = [
            (
                step["step"],
                f"{step['runs']:,}",
                f"{step['failed']:,}",
                milliseconds(step["p50_ms"]),
                milliseconds(step["p95_ms"]),
                milliseconds(step["slowest_ms"]),
                step["slowest_in"],
            )
            for step in stats.steps
        ]
        head = ("STEP", "RUNS", "FAILED", "P50", "P95", "SLOWEST", "IN")
        parts += ["", out.paint("steps", "bold"), indented(table(head, rows, width, out, right=(1, 2, 3, 4, 5)))]
    if len(stats.days) > 1:
        days = [
            (day["day"], f"{day['runs']:,}", f"{day['failed']:,}", milliseconds(day["p50_ms"]))
            for day in stats.days[:_MOST_DAYS]
        ]
        drawn = table(("DAY", "RUNS", "FAILED", "P50"), days, width, out, right=(1, 2, 3))
        parts += ["", out.paint("days", "bold"), indented(drawn)]
    return "\n".join(parts)
