"""`arclog events` without an id: events of all runs, by type, entity, time and a condition."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.ports.views.api import Api

_PAGE = 1000


def search_arguments(parser: Parser) -> None:
    from arclog.cli.times import since

    parser.add_argument(
        "--entity",
        metavar="TYPE[:ID]",
        default="",
        help="only events about this type of entity, or about one entity: step:load",
    )
    parser.add_argument(
        "--where", metavar="EXPR", default="", help='only events that match this expression, e.g. "duration_ms > 5000"'
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=since,
        help="without ID: only events stored since then (30s, 2h, 1d ago, or a date)",
    )
    parser.add_argument("--limit", metavar="N", type=int, help="without ID: maximum number of events (default: 100)")


def search_command(options: Namespace) -> int:
    import asyncio

    from arclog.cli.home import exists, nothing_yet, opened, settings_of
    from arclog.cli.render import out_of
    from arclog.cli.runs.streams import event_line
    from arclog.dialects.names import asked_for, canonical_types
    from arclog.dialects.rendering import Rendered
    from arclog.engine.views.event_search import matches_of
    from arclog.model.ids import timestamp

    if options.follow or options.after or options.dialect != "canonical":
        raise Usage("--follow, --after and --dialect require the ID of a run")
    limit = 100 if options.limit is None else options.limit
    if limit < 1:
        raise Usage(f"--limit {limit} is not a number of 1 or more")
    out, settings = out_of(options), settings_of(options)
    matches_of(options.entity, options.where)  # a mistake is reported before anything is read
    if not exists(settings):
        out.notice(nothing_yet(settings))
        return OK
    since = timestamp(options.since) if options.since is not None else ""
    names = options.types
    wanted = {"types": canonical_types(names), "since": since, "entity": options.entity, "where": options.where}

    async def go(api: Api) -> int:
        cursor, left = "", limit
        while left:
            page = await api.search(**wanted, cursor=cursor, limit=min(left, _PAGE))
            # A name can stand for a type with some of its statuses only.
            found = [
                event
                for event in page.events
                if not names or asked_for(Rendered(event["event_type"], event, event), names)
            ]
            left -= len(found)
            if out.as_json:
                out.lines(found)
            elif found:
                out.say("\n".join(f"{event['execution_id']} {event_line(event, out)}" for event in found))
            if not page.more:
                break
            cursor = page.next
        return OK

    async def work() -> int:
        async with opened(settings, read_only=True) as here:
            return await go(here.api)

    return asyncio.run(work())
