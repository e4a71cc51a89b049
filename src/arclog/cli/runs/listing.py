"""The command `list`: runs, newest first, narrowed by name, state, text and time. No line is wider than a terminal of 70 columns or more."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.ports.views.api import Api, ListedRun
    from arclog.ports.views.overview import RunQuery

_STATES = ("pending", "running", "completed", "failed", "cancelled")
_PAGE = 500
#: Minimum number of columns for which the error is on the run's line; otherwise it is on the next line.
_WIDE = 120
_NARROWEST_NAME = 8
_NARROWEST_DETAIL = 40


def list_arguments(parser: Parser) -> None:
    from arclog.cli.options import since

    parser.add_argument("--name", metavar="TEXT", default="", help="only runs whose playbook name contains this text")
    parser.add_argument(
        "--state",
        metavar="STATE",
        action="append",
        default=[],
        type=str.lower,
        choices=_STATES,
        help=f"only runs in this state: {', '.join(_STATES)} (repeatable)",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=since,
        default=0,
        help="only runs requested since then: 30s, 10m, 2h, 1d, 1w or 2026-01-31T12:00",
    )
    parser.add_argument("--until", metavar="TIME", type=since, default=0, help="only runs requested before then")
    parser.add_argument("--path", metavar="PATH", default="", help="only runs of this catalog path")
    parser.add_argument(
        "--search", metavar="TEXT", default="", help="only runs with this text in name, path, step, error or ids"
    )
    parser.add_argument(
        "--level",
        default="",
        choices=("top", "called"),
        help="top: only runs that were not called by another run; called: only runs that were",
    )
    parser.add_argument("--parent", metavar="ID", default="", help="only runs called by this run")
    parser.add_argument("--origin", metavar="ID", default="", help="only retries and forks of this run")
    parser.add_argument(
        "--where",
        metavar="EXPR",
        default="",
        help="only runs that match this expression over the fields of --json, e.g. \"version == '3' and error\"",
    )
    parser.add_argument("--limit", metavar="N", type=_positive, default=50, help="maximum number of runs (default: 50)")
    parser.epilog = "example: arclog list --name load --state failed --since 1d"


def _positive(text: str) -> int:
    from argparse import ArgumentTypeError

    if not text.isascii() or not text.isdigit() or len(text) > 9 or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def list_command(options: Namespace) -> int:
    import asyncio

    from msgspec.structs import replace

    from arclog.cli.home import exists, nothing_yet, opened, resolve, settings_of
    from arclog.cli.render import out_of
    from arclog.ports.views.overview import RunQuery

    out = out_of(options)
    settings = settings_of(options)
    query, matches = _query(options), _matches(options.where)

    async def read() -> list[ListedRun]:
        async with opened(settings, read_only=True) as runtime:
            parent, origin = [
                await resolve(runtime.api, raw_id) if raw_id else "" for raw_id in (query.parent, query.origin)
            ]
            scoped = replace(query, parent=parent, origin=origin)
            return await _listed(runtime.api, scoped, options.limit, matches)

    rows = asyncio.run(read()) if exists(settings) else []
    narrowed = query != RunQuery() or bool(options.where)
    if out.as_json:
        out.data(rows)
    elif rows:
        out.print(list_table(rows, out))
    elif not out.quiet:
        states = " or ".join(options.state)
        beyond_states = replace(query, states=()) != RunQuery() or bool(options.where)
        which = f"no {states + ' ' if states else ''}runs{' match' if beyond_states else ''}"
        out.print(which if narrowed and exists(settings) else nothing_yet(settings))
    return OK


def _query(options: Namespace) -> RunQuery:
    from arclog.model.ids import timestamp
    from arclog.ports.views.overview import RunQuery

    return RunQuery(
        states=tuple(state.upper() for state in options.state),
        path=options.path,
        name=options.name,
        text=options.search,
        since=timestamp(options.since) if options.since else "",
        until=timestamp(options.until) if options.until else "",
        level=options.level,
        parent=options.parent,
        origin=options.origin,
    )


def _matches(where: str) -> Callable[[ListedRun], bool] | None:
    """Return a function that evaluates --where for a run; None without --where."""
    from msgspec import to_builtins

    from arclog.expr import compile_condition
    from arclog.model.errors import ExpressionError

    if not where.strip():
        return None
    try:
        condition = compile_condition(where)
    except ExpressionError as error:
        raise Usage(f"--where is not an expression: {error}") from error

    def matches(run: ListedRun) -> bool:
        fields = to_builtins(run)
        try:
            return bool(condition.evaluate({**fields, "run": fields}))
        except ExpressionError:
            return False  # it refers to data that this run does not have

    return matches


async def _listed(
    api: Api, query: RunQuery, limit: int, matches: Callable[[ListedRun], bool] | None = None
) -> list[ListedRun]:
    """The requested number of runs, by as many requests as necessary."""
    from msgspec.structs import replace

    rows: list[ListedRun] = []
    before: str | None = ""
    while before is not None and len(rows) < limit:
        size = _PAGE if matches is not None else min(_PAGE, limit - len(rows))
        page = await api.find(replace(query, before=before, limit=size))
        rows += page.runs if matches is None else filter(matches, page.runs)
        before = page.next
    return rows[:limit]


def list_table(rows: list[ListedRun], out: Out) -> str:
    """The runs as lines that fit the terminal."""
    from arclog.cli.render import bare, clip, table, width_of

    columns = out.size()[0]
    wide = columns >= _WIDE
    cells = [_cells(row, out) for row in rows]
    head = ("EXECUTION", "STATE", "PLAYBOOK", "STARTED", "TOOK")
    taken = sum(
        max(width_of(bare(row[index])) for row in (head, *cells)) + 2 for index in range(len(head)) if index != 2
    )
    room = max(_NARROWEST_NAME, columns - taken - (_NARROWEST_DETAIL if wide else 0))
    cells = [(*row[:2], clip(row[2], room), *row[3:]) for row in cells]
    name_width = max(width_of(row[2]) for row in (head, *cells)) + 2
    details = [_with_origin(row, columns - taken - name_width if wide else columns - 2) for row in rows]
    if wide:
        full = [(*row, detail) for row, detail in zip(cells, details, strict=True)]
        return table((*head, "STEP OR ERROR"), full, columns, out, right=(4,))
    first, *lines = table(head, cells, columns, out).split("\n")
    shown = [first]
    for line, detail in zip(lines, details, strict=True):
        shown.append(line)
        if detail:
            shown.append(out.paint(f"  {clip(detail, columns - 2)}", "dim"))
    return "\n".join(shown)


def _cells(row: ListedRun, out: Out) -> tuple[str, ...]:
    from arclog.cli.render import between, moment, one_line

    started = moment(row.started_at or row.created_at)
    this_year = started[:4] == moment(_now())[:4]
    return (
        row.execution_id,
        _state(row, out),
        one_line(row.name),
        started[5:16] if this_year else started[:10],
        between(row.started_at, row.ended_at),
    )


def _state(row: ListedRun, out: Out) -> str:
    if row.paused:
        return out.paint("‖ paused", "yellow")
    return out.paint("‖ waiting", "yellow") if row.waiting else out.state(row.state)


def _waits_for(row: ListedRun) -> str:
    """Return the wait of a run, as text."""
    from arclog.cli.render import moment

    waiting = row.waiting
    if waiting is None:
        return ""
    until = moment(waiting.until)
    text = {
        "signal": f"for signal {waiting.name}" + (f" until {until}" if until else ""),
        "timer": f"until {until}",
        "approval": "for approval",
        "child": f"for run {waiting.name}",
        "retry": f"for the next attempt at {until}",
        "slot": "for a free slot",
    }.get(waiting.what, f"for {waiting.what}")
    more = f" and {waiting.count - 1} more" if waiting.count > 1 else ""
    return f"waiting {text}{more}"


def _detail(row: ListedRun) -> str:
    detail = row.error or row.warning or ""
    if row.waiting:
        where = f"step {row.waiting.step}: " if row.waiting.step else ""
        detail = f"{where}{_waits_for(row)}" + (f"; {detail}" if detail else "")
    if not detail and not row.ended_at and row.current_step:
        detail = f"at step {row.current_step}"
    if row.imported:
        return f"imported; {detail}" if detail else "imported"
    return detail


def _with_origin(row: ListedRun, room: int) -> str:
    """The detail of a run, and of a retry or fork where it comes from; a long detail leaves room for that."""
    from arclog.cli.render import clip, one_line

    detail, origin = one_line(_detail(row)), row.origin
    if origin is None:
        return detail
    source = f"{origin.how} of {origin.execution_id}" + (f" at {origin.seq:,}" if origin.how == "fork" else "")
    return f"{clip(detail, max(_NARROWEST_DETAIL // 2, room - len(source) - 2))}; {source}" if detail else source


def _now() -> str:
    import time

    from arclog.model.ids import timestamp

    return timestamp(time.time_ns() // 1000)
