"""`arclog lineage`: what data a run read and wrote, as lines or as OpenLineage events."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser
    from arclog.ports.views.api import Api

_ENDS = ("COMPLETE", "FAIL", "ABORT")


def lineage_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument(
        "--openlineage",
        metavar="FILE",
        help="write OpenLineage events to this file, one per line; - is standard output",
    )
    parser.epilog = (
        "Lists tables, files and addresses that SQL, transfer, object and http tasks read and wrote. Tables of SQL tasks need\n"
        "the extra lineage: pip install 'arclog[lineage]'.\n\n"
        "example: arclog lineage last --openlineage events.jsonl"
    )


def lineage_command(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        events = await api.lineage(execution_id)
        if options.openlineage == "-" or out.as_json:
            out.lines(events)
            return OK
        if options.openlineage:
            _write(options.openlineage, events)
            out.notice(f"wrote {len(events)} OpenLineage events to {options.openlineage}")
            return OK
        lines = [line for event in events for line in _lines(event)]
        out.say("\n".join(lines) if lines else "no task of this run read or wrote named data")
        return OK

    return with_run(options, work)


def _write(name: str, events: list[dict[str, Any]]) -> None:
    from pathlib import Path

    import msgspec

    try:
        Path(name).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    except OSError as problem:
        raise Usage(f"--openlineage {name}: {problem.strerror}") from None


def _lines(event: dict[str, Any]) -> list[str]:
    """A task's datasets, from the event that ends it."""
    from arclog.cli.render import clean

    if event["eventType"] not in _ENDS:
        return []
    ending = "" if event["eventType"] == "COMPLETE" else f" ({event['eventType'].lower()})"
    sides = (("reads", event["inputs"]), ("writes", event["outputs"]))
    return [
        clean(f"{event['job']['name']}{ending} {verb} {one['namespace']} {one['name']}")
        for verb, datasets in sides
        for one in datasets
    ]
