"""`arclog lineage`: what data a run read and wrote, as lines or as OpenLineage events. `arclog trace`: where a value of a
run came from.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from arclog.cli.exits import OK, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arclog.cli.args import Parser
    from arclog.ports.views.api import Api
    from arclog.ports.views.history import TraceNode

# ── lineage ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# `arclog lineage`: what data a run read and wrote, as lines or as OpenLineage events.

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
        lines = [line for event in events for line in _lineage_lines(event)]
        out.print("\n".join(lines) if lines else "no task of this run read or wrote named data")
        return OK

    return with_run(options, work)


def _write(name: str, events: list[dict[str, Any]]) -> None:
    from pathlib import Path

    import msgspec

    try:
        Path(name).write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    except OSError as problem:
        raise Usage(f"--openlineage {name}: {problem.strerror}") from None


def _lineage_lines(event: dict[str, Any]) -> list[str]:
    """A task's datasets, from the event that ends it."""
    from arclog.cli.render import clean

    if event["eventType"] not in _ENDS:
        return []
    ending = "" if event["eventType"] == "COMPLETE" else f" ({event['eventType'].lower()})"
    sides = (("reads", event["inputs"]), ("writes", event["outputs"]))
    return [
        clean(f"{event['job']['name']}{ending} {verb} {dataset['namespace']} {dataset['name']}")
        for verb, datasets in sides
        for dataset in datasets
    ]


# ── trace ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# `arclog trace`: where a value of a run came from.

_LONGEST = 60
#: Names of facts in the text form, where they differ from those in JSON.
_FACTS = {"kept_from": "kept from run"}


def trace_arguments(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID", help="execution id, its first digits, or last")
    parser.add_argument(
        "--value",
        metavar="PATH",
        default="result",
        help="the value to trace: result.total, ctx.total, fetch.data.rows[0] (default: result)",
    )
    parser.epilog = (
        "Follows a value back through templates, outcomes, loop items and called runs to the request, the playbook, HTTP\n"
        "responses, files and queries. Each line has the event and the place in the playbook.\n\n"
        "example: arclog trace last --value result.total"
    )


def trace_command(options: Namespace) -> int:
    from arclog.cli.home import with_run
    from arclog.cli.render import out_of

    out = out_of(options)

    async def work(api: Api, execution_id: str) -> int:
        trace = await api.trace(execution_id, options.value)
        if out.as_json:
            out.data(trace)
            return OK
        out.print("\n".join(_trace_lines(trace.node, "", "")))
        if trace.is_cut:
            out.notice("the value has more sources than history.trace_max_nodes; trace a part of it with --value")
        return OK

    return with_run(options, work)


def _trace_lines(node: TraceNode, first: str, indent: str) -> Iterator[str]:
    yield first + _line(node)
    for index, source in enumerate(node.sources):
        last = index == len(node.sources) - 1
        yield from _trace_lines(source, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  "))


def _line(node: TraceNode) -> str:
    from arclog.cli.render import clean, clip, json_text, one_line

    item = f" item {'.'.join(map(str, node.item))}" if node.item else ""
    parts = [f"{node.name}{item} = {clip(one_line(json_text(node.value)), _LONGEST)}"]
    sources = {"workload": "the request", "default": "the playbook's default", "keychain": "a secret", "run": "the run"}
    if node.what in sources:
        parts.append(sources[node.what])
    if node.kind:
        parts.append(node.kind)
    parts += [
        f"{_FACTS.get(key, key)} {clip(one_line(json_text(value)).strip(chr(34)), _LONGEST)}"
        for key, value in node.origin.items()
    ]
    if node.template:
        parts.append(clip(one_line(node.template), _LONGEST))
    if node.is_repeated:
        parts.append("see above")
    if node.execution_id:
        parts.append(f"run {node.execution_id}")
    if node.seq:
        parts.append(f"event {node.seq}")
    if node.source:
        parts.append(node.source)
    return clean(" · ".join(parts))
