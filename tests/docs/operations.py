"""Renders the reference of the HTTP API from the table of operations."""

from __future__ import annotations

from typing import Any

import msgspec

from arclog.operations.operation import NoParams, Operation
from arclog.operations.table import OPERATIONS

_HEAD = """\
<!-- Drawn from src/arclog/operations by tests/docs; change that, then run `./x pytest tests/docs --redraw`. -->

# HTTP API

Every operation of a server, by group. [server.md](server.md) explains how to use them; `/api/docs` of a running server has the same with
types and examples, `/api/openapi.json` is the OpenAPI document. *Access* lists the roles of which a caller needs one; an admin has every
role. Parameters in brackets can be left out.
"""


def operations_page() -> str:
    lines = [_HEAD]
    group = ""
    for operation in sorted(OPERATIONS, key=lambda row: _order().index(row.tag)):
        if not operation.tag:
            continue
        if operation.tag != group:
            group = operation.tag
            lines.append(f"\n## {group.capitalize()}\n\n")
            lines.append("| operation | body | answer | access | |\n| --- | --- | --- | --- | --- |\n")
        lines.append(_row(operation))
    return "".join(lines)


def _order() -> list[str]:
    return list(dict.fromkeys(operation.tag for operation in OPERATIONS))


def _row(operation: Operation[Any]) -> str:
    access = "everybody" if operation.access is None else ", ".join(sorted(operation.access))
    body = "" if operation.takes is None else f"`{_name(operation.takes)}`"
    answer = f"{operation.status}" + (f" `{_name(operation.answer)}`" if operation.answer is not None else "")
    text = operation.text.replace("\n\n", " ").replace("\n", " ").replace("|", "\\|")
    return f"| `{operation.method} {operation.path}`{_query(operation)} | {body} | {answer} | {access} | {text} |\n"


def _query(operation: Operation[Any]) -> str:
    if operation.params is NoParams:
        return ""
    names = [
        f"`{field.encode_name}`" if field.required else f"[`{field.encode_name}`]"
        for field in msgspec.structs.fields(operation.params)
        if field.encode_name not in operation.path_names
    ]
    return f" ? {' '.join(names)}" if names else ""


def _name(kind: Any) -> str:
    if kind is Any:
        return "object"
    if not isinstance(kind, type) or hasattr(kind, "__args__"):
        return "object" if "dict" in str(kind) else str(kind).rpartition(".")[2].split(" ")[0]
    return kind.__name__
