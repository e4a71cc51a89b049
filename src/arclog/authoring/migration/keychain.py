"""Credentials that a playbook uses and does not declare."""

from __future__ import annotations

import re
from collections.abc import Iterator

from arclog.authoring.migration.source import Change, Source
from arclog.authoring.spans import Edit, column_of, entries, entry, is_flow, items, scalar, start


def _named(source: Source, auth: str | None) -> str | None:
    """The entry that a task's auth names; of `{{ workload.x }}` the one that it names unless a run says otherwise."""
    match = re.fullmatch(r"\{\{\s*workload\.(\w+)\s*\}\}", auth or "")
    if match is None:
        return auth
    default = scalar(entry(source.root, "workload", match[1]))
    return default if default and default.isidentifier() else auth


def undeclared(source: Source) -> Iterator[Change]:
    """`auth: name` of a tool that takes one kind of entry (postgres: its own)."""
    keychain = entry(source.root, "keychain")
    known = {scalar(entry(node, "name")) for node in items(keychain)}
    needed: dict[str, str] = {}
    for task in source.all_tasks():
        name, kind = _named(source, scalar(entry(task, "auth"))), source.kind_of(task)
        if not name or "{{" in name or kind is None or name in known:
            continue
        takes = kind.auth or ()
        wanted = "postgres_credential" if kind.name == "postgres" else takes[0] if len(takes) == 1 else ""
        if not wanted or needed.get(name, wanted) != wanted:
            return
        needed[name] = wanted
    place = next((key for name, key, _ in entries(source.root) if name in ("workflow", "workload", "executor")), None)
    if not needed or place is None:
        return
    entries_of = [f"- {{name: {name}, kind: {kind}}}\n" for name, kind in needed.items()]
    if keychain is None:
        source.note(place, "keychain declared")
        yield Edit(start(place), start(place), f"keychain:\n{''.join(f'  {line}' for line in entries_of)}\n")
    elif items(keychain) and not is_flow(keychain):
        source.note(keychain, "keychain entry declared")
        room = " " * column_of(keychain)
        yield source.put(keychain, "".join(f"{room}{line}" for line in entries_of))
