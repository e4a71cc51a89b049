"""Templates in SQL: a value is bound, so it stands alone; a name is quoted by a filter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from arclog.authoring.migration.conditions import SQL
from arclog.authoring.migration.source import Change, Source, Undecided
from arclog.authoring.spans import Edit, column_of, end, entries, entry, is_flow, is_map, items, scalar, start, tag_of

_NAME = re.compile(
    r"\b((?:TABLE|INTO|UPDATE|FROM|JOIN)(?:\s+IF(?:\s+NOT)?\s+EXISTS)?\s+)\{\{\s*([\w.]+)\s*\}\}(?![.\w])",
    re.IGNORECASE,
)
#: What a statement is made of, as far as templates in it are concerned.
_PIECES = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<dollar>\$(\w*)\$.*?\$\3\$)
      | (?P<name>"(?:\{\{.*?\}\}|[^"])*")
      | (?P<text>'(?:\{\{.*?\}\}|''|[^'])*')
      | (?P<template>\{\{.*?\}\})""",
    re.DOTALL | re.VERBOSE,
)
_PART = re.compile(r"\{\{.*?\}\}")


def statements(source: Source) -> Iterator[Change]:
    for task in source.all_tasks():
        kind = source.kind_of(task)
        for key in kind.sql if kind is not None else ():
            node = entry(task, key)
            # In quotes of YAML, a quote of SQL may be written in two ways.
            if scalar(node) is None or "{{" not in node.value or node.style in ("'", '"'):
                continue
            first, last = start(node), end(source.text, node)
            for match in _NAME.finditer(source.text, first, last):
                at = match.end(2)
                source.notes.append((source.text.count("\n", 0, at) + 1, f"{match[2]} → {match[2]} | identifier"))
                yield Edit(at, at, " | identifier")
            for match in _PIECES.finditer(source.text, first, last):
                joined = _joined(match["text"][1:-1]) if match["text"] else ""
                if joined:
                    source.notes.append((source.text.count("\n", 0, match.start()) + 1, "text around a template → ||"))
                    yield Edit(match.start(), match.end(), joined)


def _joined(text: str) -> str:
    """A text with templates in it as values that are joined; '' when a template is all of it, which is bound as it is."""
    parts: list[str] = []
    at = 0
    for match in _PART.finditer(text):
        if text[at : match.start()]:
            parts.append(f"'{text[at : match.start()]}'")
        parts.append(match[0])
        at = match.end()
    if not at:
        return ""
    if text[at:]:
        parts.append(f"'{text[at:]}'")
    return f"({' || '.join(parts)})" if len(parts) > 1 else ""


# --- tables ---------------------------------------------------------------------------------------------------------------

_TABLE = "command: INSERT INTO … VALUES ({{ … }}, {{ … }})"
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def tables(source: Source) -> Iterator[Change]:
    """`table` with `args` or `data` of an SQL task: the row that it writes, as a statement."""
    for task in source.all_tasks():
        key = next((key for name, key, _ in entries(task) if name == "table"), None)
        kind = source.kind_of(task)
        if key is None or kind is None or kind.name not in SQL or is_flow(task) or entry(task, "command") is not None:
            continue
        try:
            yield _row(source, task, key)
        except Undecided as why:
            source.leave(why.node, why.message, why.hint)


def _row(source: Source, task: Any, key: Any) -> Change:
    row_key, row = next(
        ((k, v) for name, k, v in entries(task) if name in ("args", "data") and is_map(v) and v.value), (None, None)
    )
    mode = scalar(entry(task, "mode")) or "insert"
    if row_key is None or mode not in ("insert", "upsert", "append"):
        raise Undecided(key, f"table: a row of which the columns are not said, or mode {mode}", _TABLE)
    keys_node = entry(task, "key")
    keys = [scalar(node) or "" for node in items(keys_node)] or [
        part.strip() for part in (scalar(keys_node) or "").split(",")
    ]
    keys = [name for name in keys if name]
    columns = [name for name, _, _ in entries(row)]
    if (mode == "upsert") != bool(keys) or not all(_IDENTIFIER.fullmatch(name) for name in [*columns, *keys]):
        raise Undecided(key, "table: mode upsert needs a key, and columns are names", _TABLE)
    values = [_value(value) for _, _, value in entries(row)]
    room = " " * (column_of(key) + 2)
    lines = [f"INSERT INTO {_table(entry(task, 'table'))} ({', '.join(columns)})", f"VALUES ({', '.join(values)})"]
    if keys:
        rest = [name for name in columns if name not in keys]
        sets = ", ".join(f"{name} = EXCLUDED.{name}" for name in rest)
        lines.append(f"ON CONFLICT ({', '.join(keys)}) DO {'UPDATE SET ' + sets if rest else 'NOTHING'}")
    gone = [(k, v) for name, k, v in entries(task) if name in ("table", "mode", "key") or k is row_key]
    if not all(source.has_own_lines(k) for k, _ in gone):
        raise Undecided(key, "table: it stands on a line with other keys", _TABLE)
    edits = [source.removal(k, v) for k, v in gone]
    text = f"{' ' * column_of(key)}command: |\n" + "".join(f"{room}{line}\n" for line in lines)
    at = next(number for number, (k, _) in enumerate(gone) if k is key)
    edits[at] = edits[at]._replace(text=edits[at].text + text)
    source.note(key, "table, args → command")
    return tuple(edits)


def _table(node: Any) -> str:
    name = scalar(node) or ""
    match = re.fullmatch(r"\{\{\s*(.+?)\s*\}\}", name)
    if match is None and not _IDENTIFIER.fullmatch(name):
        raise Undecided(node, f"table: {name!r} is not a valid name", _TABLE)
    return f"{{{{ {match[1]} | identifier }}}}" if match else name


def _value(node: Any) -> str:
    """A value of a row in SQL: a template is bound, a text is quoted."""
    text = scalar(node)
    if text is None or "{%" in text or "\n" in text:
        raise Undecided(node, "table: a value that is not a plain value or template", _TABLE)
    tag = tag_of(node)
    if tag.endswith(":null"):
        return "NULL"
    if tag.endswith((":int", ":float", ":bool")):
        return text.upper() if tag.endswith(":bool") else text
    if re.fullmatch(r"\{\{(?:(?!\}\}).)*\}\}", text):
        return text
    quoted = text.replace("'", "''") if "{{" not in text else text
    return _joined(text) or f"'{quoted}'"
