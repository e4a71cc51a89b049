"""The command `schedule`: runs playbooks of the catalog at times. A server (`arclog up`, `arclog server`) fires
them.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.cli.render import Out
    from arclog.model.config.settings import Settings
    from arclog.ports.storage.schedules import ScheduleApi, ScheduleView

_ACTIONS = ("add", "list", "show", "pause", "resume", "rm", "backfill")
#: option → the action that it belongs to
_OPTIONS = {
    "cron": "add",
    "tz": "add",
    "path": "add",
    "version": "add",
    "assignments": "add",
    "workload": "add",
    "catch_up": "add",
    "overlap": "add",
    "first": "backfill",
    "last": "backfill",
}


def schedule_arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help="action")
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the schedule (not with list)")
    parser.add_argument("--cron", metavar="FIELDS", help="add: minute hour day month weekday, e.g. '0 6 * * 1-5'")
    parser.add_argument("--tz", metavar="ZONE", help="add: time zone of the fields, e.g. Europe/Berlin (default UTC)")
    parser.add_argument("--path", metavar="PATH", help="add: playbook in the catalog")
    parser.add_argument(
        "--version",
        metavar="N",
        type=int,
        help="add: version of the playbook (default: the newest when the run starts)",
    )
    parser.add_argument(
        "--set",
        dest="assignments",
        metavar="PATH=VALUE",
        action="append",
        help="add: a value of the workload; VALUE is JSON, otherwise text (repeatable)",
    )
    parser.add_argument("--workload", metavar="FILE", help="add: JSON or YAML file with the workload")
    parser.add_argument(
        "--catch-up",
        choices=("none", "last", "all"),
        help="add: what to do about times missed while no server was running (default: last)",
    )
    parser.add_argument(
        "--overlap",
        choices=("skip", "queue", "cancel"),
        help="add: what to do when the previous run has not ended (default: skip)",
    )
    parser.add_argument(
        "--from", dest="first", metavar="TIME", help="backfill: start of the period, e.g. 2026-01-31T00:00:00Z"
    )
    parser.add_argument("--to", dest="last", metavar="TIME", help="backfill: end of the period")
    parser.epilog = (
        "`arclog up` and `arclog server` start scheduled runs. A run reads its time from {{ workload.schedule.due }}.\n\n"
        "examples: arclog schedule add nightly --cron '0 6 * * *' --tz Europe/Berlin --path examples/hello\n"
        "          arclog schedule backfill nightly --from 2026-01-01T00:00:00Z --to 2026-01-08T00:00:00Z"
    )


def schedule_command(options: Namespace) -> int:
    import asyncio

    from arclog.cli import home
    from arclog.cli.render import out_of

    settings = home.settings_of(options)
    _check(options)
    out = out_of(options)
    if options.action == "list" and not home.exists(settings):
        _list([], out)
        return OK

    async def go() -> int:
        async with home.opened(settings, read_only=options.action in ("list", "show")) as runtime:
            return await _do(runtime.schedules(), options, settings, out)

    return asyncio.run(go())


def _check(options: Namespace) -> None:
    action = options.action
    for option, owner in _OPTIONS.items():
        if getattr(options, option) is not None and action != owner:
            word = {"assignments": "set", "first": "from", "last": "to"}.get(option, option.replace("_", "-"))
            raise Usage(
                f"schedule {action}: --{word} is an option of `schedule {owner}`", "see `arclog schedule --help`"
            )
    if action == "list":
        if options.name is not None:
            raise Usage("schedule list takes no name", "arclog schedule show NAME shows one schedule")
    elif not options.name:
        raise Usage(f"schedule {action}: a NAME is required", f"arclog schedule {action} NAME")
    if action == "add" and not (options.cron and options.path):
        raise Usage(
            "schedule add: --cron and --path are required", "arclog schedule add NAME --cron '0 6 * * *' --path PATH"
        )
    if action == "backfill" and not (options.first and options.last):
        raise Usage(
            "schedule backfill: --from and --to are required",
            "arclog schedule backfill NAME --from 2026-01-01T00:00:00Z --to 2026-01-08T00:00:00Z",
        )


async def _do(schedules: ScheduleApi, options: Namespace, settings: Settings, out: Out) -> int:
    from arclog.cli.render import counted

    name = options.name
    match options.action:
        case "add":
            _print_schedule(await schedules.add(_new(options, settings)), out)
        case "show":
            _print_schedule(await schedules.show(name), out)
        case "pause":
            _print_schedule(await schedules.pause(name), out)
        case "resume":
            _print_schedule(await schedules.resume(name), out)
        case "list":
            views: list[ScheduleView] = []
            while page := await schedules.list(after=views[-1].name if views else ""):
                views += page
            _list(views, out)
        case "rm":
            await schedules.remove(name)
            _print_outcome({"name": name, "removed": True}, f"removed {name}; its runs are kept", out)
        case "backfill":
            due = await schedules.backfill(name, options.first, options.last)
            text = f"{counted(len(due), 'run')} of {name} queued; a server starts them one after the other"
            _print_outcome(
                {"name": name, "queued": due}, text if due else f"{name} has no scheduled time in that period", out
            )
    return OK


def _new(options: Namespace, settings: Settings) -> Any:
    from arclog.cli.playbooks.files import workload_of
    from arclog.ports.storage.schedules import NewSchedule

    chosen = {
        key: value
        for key, value in (
            ("tz", options.tz),
            ("version", options.version),
            ("catch_up", options.catch_up),
            ("overlap", options.overlap),
        )
        if value is not None
    }
    workload = workload_of(options.workload, options.assignments or [], settings)
    return NewSchedule(options.name, options.cron, options.path, workload=workload, **chosen)


def _print_outcome(data: Any, text: str, out: Out) -> None:
    from arclog.cli.render import clean

    if out.as_json:
        out.data(data)
    elif not out.quiet:
        out.print(clean(text))


def _print_schedule(schedule: ScheduleView, out: Out) -> None:
    from arclog.cli.render import clean

    if out.as_json:
        out.data(schedule)
    elif not out.quiet:
        for line in _lines(schedule):
            out.print(clean(line))


def _list(schedules: list[ScheduleView], out: Out) -> None:
    from arclog.cli.render import clean

    if out.as_json:
        out.data(schedules)
        return
    for schedule in schedules:
        out.print(clean(_first_line(schedule)))
    if not schedules and not out.quiet:
        out.print("no schedules; `arclog schedule add NAME --cron '0 6 * * *' --path PATH` adds one")


def _first_line(schedule: ScheduleView) -> str:
    coming = "paused" if schedule.paused else f"next {schedule.next_due}" if schedule.next_due else "over"
    return f"{schedule.name}  {schedule.cron} {schedule.tz}  {schedule.path}  {coming}"


def _lines(schedule: ScheduleView) -> list[str]:
    lines = [_first_line(schedule), f"  catch up {schedule.catch_up}, overlap {schedule.overlap}"]
    if schedule.last_execution:
        lines.append(f"  last {schedule.last_due}: run {schedule.last_execution}")
    if schedule.queued:
        lines.append(f"  {len(schedule.queued)} waiting, from {schedule.queued[0]} to {schedule.queued[-1]}")
    if schedule.skipped:
        lines.append(f"  {schedule.skipped} skipped")
    if schedule.note:
        lines.append(f"  {schedule.note}")
    return lines
