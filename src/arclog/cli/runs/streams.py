"""Prints a run's records in order and follows them; the command `events`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.dialects.rendering import Reader, Rendered
    from arclog.ports.views.api import Api

# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PAGE = 1000
#: as in `dialects.names`, which is imported only by commands that render events
_DIALECTS = ("canonical", "lifecycle", "run", "wire", "legacy")
#: polling interval of a followed run that another process runs
_FOLLOW_S = 0.25


def events_arguments(parser: Parser) -> None:

    parser.add_argument(
        "id", metavar="ID", nargs="?", help="execution id, its first digits, or last; without ID, all runs"
    )
    parser.add_argument(
        "--type",
        dest="types",
        metavar="TYPE",
        action="append",
        default=[],
        help="only events of this type, e.g. step.done; a name of any dialect (repeatable)",
    )
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        choices=_DIALECTS,
        default=_DIALECTS[0],
        help=f"dialect of the events: {', '.join(_DIALECTS)} (default: {_DIALECTS[0]})",
    )
    parser.add_argument("--after", metavar="SEQ", type=_seq, default=0, help="only events after this seq")
    parser.add_argument("--follow", "-f", action="store_true", help="keep printing until the run ends")
    search_arguments(parser)
    parser.epilog = (
        "Without ID, the events of all runs, oldest first:\n"
        "  arclog events --type step.failed --since 1d --where \"'timeout' in payload.error.kind\"\n\n"
        "With --json, each line is one complete record in seq order: an event envelope, or the record of the dialect."
    )


def events_command(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of
    from arclog.dialects.names import MEANINGS, asked_for, canonical_types
    from arclog.model.data.suggestions import did_you_mean

    for name in options.types:
        if name not in MEANINGS:
            raise Usage(f"there is no event type {name!r}{did_you_mean(name, MEANINGS) or '; see docs/events.md'}")
    if options.id is None:
        return search_command(options)
    from arclog.engine.views.event_search import matches_of

    if options.since is not None or options.limit is not None:
        raise Usage("--since and --limit search all runs; omit the ID")
    out, matches = out_of(options), matches_of(options.entity, options.where)

    async def work(api: Api, execution_id: str) -> int:
        reader = await _dialect_reader(api, execution_id, options.dialect)
        # How a dialect renders an event can depend on earlier events; the reader gets those, too, but they are not
        # shown.
        stateless = reader.needs == frozenset()
        types = canonical_types(options.types) if stateless else tuple(reader.needs or ())

        async def read(after: int) -> list[dict[str, Any]]:
            return await api.events(execution_id, after=after, limit=PAGE, types=types)

        def show(records: list[Rendered]) -> None:
            shown = [
                record
                for record in records
                if record.seq > options.after and (matches is None or matches(record.source))
            ]
            if options.types:
                shown = [record for record in shown if asked_for(record, options.types)]
            if out.as_json:
                out.lines([record.record for record in shown])
            elif shown:
                out.print("\n".join(event_line(_as_event(record), out) for record in shown))

        def print_page(page: list[dict[str, Any]]) -> None:
            show([record for envelope in page for record in reader.render(envelope)])

        begin = options.after if stateless else 0
        sent = sent_events(api, execution_id, types)
        await stream(api, execution_id, read, print_page, "seq", begin, follow=options.follow, sent=sent)
        show(reader.held_back())
        return OK

    return with_run(options, work)


async def _dialect_reader(api: Api, execution_id: str, dialect: str) -> Reader:
    from arclog.dialects.names import reader_of
    from arclog.dialects.run_record import RunSubject

    listed = await api.list(before=str(int(execution_id) + 1), limit=1) if dialect == "run" else []
    if listed and listed[0].execution_id == execution_id:
        return reader_of(dialect, RunSubject(listed[0].run_id, listed[0].path, listed[0].version))
    return reader_of(dialect, RunSubject("", "", ""))


#: how the Run Events Contract's names end → the status that is shown with them
_RUN_STATUSES = {"Completed": "success", "Failed": "error", "Cancelled": "error", "Paused": "paused"}


def _as_event(rendered: Rendered) -> dict[str, Any]:
    """The fields of a record that `event_line` shows, for every dialect."""
    shown = {
        **rendered.source,
        "event_type": rendered.name,
        "status": rendered.record.get("status", rendered.source["status"]),
    }
    bare = {**shown, "task": "", "attempt": 1, "iteration_id": ""}
    if rendered.derived:
        return {**bare, "duration_ms": None, "payload": {}}
    if "runSeq" not in rendered.record:
        return shown
    record, payload = rendered.record, rendered.record.get("payload", {})
    again = f" @{record['logicalAttemptId']}" if record["logicalAttemptId"] > 1 else ""
    detail: dict[str, Any] = {key: payload[key] for key in ("result", "reason") if key in payload}
    if "errorMessage" in payload:
        detail = {"error": {"kind": payload["errorCode"], "message": payload["errorMessage"]}}
    status = next((word for end, word in _RUN_STATUSES.items() if rendered.name.endswith(end)), "in_progress")
    return {
        **bare,
        "status": status,
        "step": record.get("stepId", "") + again,
        "payload": detail,
        "duration_ms": payload.get("durationMs"),
    }


def _seq(text: str) -> int:
    from argparse import ArgumentTypeError

    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ArgumentTypeError(f"{text!r} is not a seq (a whole number)")
    return int(text)


def event_line(event: dict[str, Any], out: Out) -> str:
    """seq, time, type, step/task, status, duration, detail."""
    from arclog.cli.render import bare, clip, clock_time, duration, one_line, width_of

    where = event.get("step", "")
    if event.get("iteration_id"):
        where += f"[{event['iteration_id'].rpartition(':')[2]}]"
    if event.get("task"):
        where += f"/{event['task']}"
    if event.get("attempt", 1) > 1:
        where += f"#{event['attempt']}"
    status = event["status"]
    colours = {
        "success": "green",
        "error": "red",
        "skipped": "dim",
        "paused": "yellow",
        "COMPLETED": "green",
        "FAILED": "red",
        "CANCELLED": "red",
        "PAUSED": "yellow",
    }
    took = duration(event["duration_ms"] / 1000) if event.get("duration_ms") is not None else ""
    columns = (
        out.paint(f"{event['seq']:>6}", "dim"),
        out.paint(clock_time(event["timestamp"]), "dim"),
        f"{event['event_type']:<28}",
        where + " " * max(0, 24 - width_of(where)),
        out.paint(f"{status:<11}", colours[status]) if status in colours else f"{status:<11}",
        f"{took:>8}",
    )
    line = " ".join(columns)
    detail = one_line(_detail(event))
    if event.get("informative"):
        detail = f"(informative) {detail}"  # informative: it must not look like a part of the run
    room = out.size()[0] - width_of(bare(line)) - 2 if out.tty else 200
    return f"{line}  {clip(detail, max(room, 20))}".rstrip()


def _detail(event: dict[str, Any]) -> str:
    """The important part of a payload, in a few words."""
    payload = event.get("payload") or {}
    outcome = payload.get("outcome") or {}
    error = payload.get("error") or outcome.get("error")
    if error:
        return f"{error.get('kind', 'error')}: {error.get('message', '')}"
    kind = event["event_type"]
    if kind == "next.evaluated":
        steps = [arc.get("step", "?") for arc in payload.get("selected") or []]
        return "→ " + ", ".join(steps) if steps else "no arc"
    if kind == "policy.task.evaluated":
        action = payload.get("action") or {}
        words = [str(action.get("do", "")), str(action.get("to", ""))]
        words += [f"{key} {_short(payload[key])}" for key in ("set_iter", "set_ctx") if payload.get(key)]
        return " ".join(word for word in words if word)
    if kind == "policy.admit.evaluated":
        return "allowed" if payload.get("allow") else "denied"
    ref = outcome.get("result_ref") or payload.get("result_ref")
    if ref:
        from arclog.cli.render import stored

        return stored(ref)
    if "result" in outcome:
        return "" if outcome["result"] is None else f"result {_short(outcome['result'])}"
    for key in ("ctx", "inputs", "args", "result", "reason", "total", "workload"):
        if payload.get(key) not in (None, {}, [], ""):
            return f"{key} {_short(payload[key])}"
    return ""


def _short(value: Any) -> str:
    from arclog.cli.render import json_text
    from arclog.model.errors import shortened

    return shortened(json_text(value), 300)


#: the source of a followed run's new records, after the last one that was shown
Source = Callable[[int], AsyncIterator[dict[str, Any]]]


async def stream(
    api: Api,
    execution_id: str,
    read: Callable[[int], Awaitable[list[dict[str, Any]]]],
    show: Callable[[list[dict[str, Any]]], None],
    key: str,
    after: int,
    *,
    follow: bool,
    sent: Source | None = None,
) -> None:
    """Print all records; when following, until the run has ended and the rest is printed, too.

    If new records are `sent`, there is no polling; `sent` ends with the run.
    """
    head = (await api.wait(execution_id, timeout_s=0)) if follow else 0
    if not follow:
        await api.status(execution_id)  # raises for an unknown id, instead of printing nothing
    while True:
        over = follow and (await api.status(execution_id)).ended_at is not None
        while page := await read(after):
            show(page)
            after = page[-1][key]
            if len(page) < PAGE:
                break
        if over or not follow:
            return
        if sent is None:
            head = await api.wait(execution_id, after=head, timeout_s=_FOLLOW_S)
            continue
        async for record in sent(after):
            show([record])
            after = record[key]


def sent_events(api: Api, execution_id: str, types: Sequence[str]) -> Source | None:
    """A run's events as a server sends them, to its terminal one; None without a server."""
    from arclog.model.events import TERMINAL
    from arclog.ports.views.api import Following

    if not isinstance(api, Following):
        return None
    requested_types = (*types, *TERMINAL) if types else ()

    async def source(after: int) -> AsyncIterator[dict[str, Any]]:
        # Events after the end (for example of a webhook that is retried for hours) are not waited for.
        async with aclosing(api.follow(execution_id, after=after, types=requested_types)) as events:
            async for event in events:
                if not types or event["event_type"] in types:
                    yield event
                if event["event_type"] in TERMINAL and not event.get("informative"):
                    return

    return source


# ── search ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `arclog events` without an id: events of all runs, by type, entity, time and a condition.

_PAGE = 1000


def search_arguments(parser: Parser) -> None:
    from arclog.cli.options import since

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
    filters = {"types": canonical_types(names), "since": since, "entity": options.entity, "where": options.where}

    async def go(api: Api) -> int:
        cursor, remaining = "", limit
        while remaining:
            page = await api.search(**filters, cursor=cursor, limit=min(remaining, _PAGE))
            # A name can represent a type with some of its statuses only.
            records = [
                event
                for event in page.events
                if not names or asked_for(Rendered(event["event_type"], event, event), names)
            ]
            remaining -= len(records)
            if out.as_json:
                out.lines(records)
            elif records:
                out.print("\n".join(f"{event['execution_id']} {event_line(event, out)}" for event in records))
            if not page.more:
                break
            cursor = page.next
        return OK

    async def work() -> int:
        async with opened(settings, read_only=True) as runtime:
            return await go(runtime.api)

    return asyncio.run(work())
