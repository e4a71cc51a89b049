"""`arclog trace`: where a value of a run came from."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import OK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arclog.cli.args import Parser
    from arclog.ports.views.api import Api
    from arclog.ports.views.history import TraceNode

_LONGEST = 60


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
        found = await api.trace(execution_id, options.value)
        if out.as_json:
            out.data(found)
            return OK
        out.say("\n".join(_lines(found.node, "", "")))
        if found.is_cut:
            out.notice("the value has more sources than history.trace_max_nodes; trace a part of it with --value")
        return OK

    return with_run(options, work)


def _lines(node: TraceNode, first: str, rest: str) -> Iterator[str]:
    yield first + _line(node)
    for index, source in enumerate(node.sources):
        last = index == len(node.sources) - 1
        yield from _lines(source, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


def _line(node: TraceNode) -> str:
    from arclog.cli.render import clean, clip, json_text, one_line

    item = f" item {'.'.join(map(str, node.item))}" if node.item else ""
    parts = [f"{node.name}{item} = {clip(one_line(json_text(node.value)), _LONGEST)}"]
    what = {"workload": "the request", "default": "the playbook's default", "keychain": "a secret", "run": "the run"}
    if node.what in what:
        parts.append(what[node.what])
    if node.kind:
        parts.append(node.kind)
    parts += [
        f"{key} {clip(one_line(json_text(value)).strip(chr(34)), _LONGEST)}" for key, value in node.origin.items()
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
