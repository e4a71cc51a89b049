"""Renders the reference pages that are drawn from tables in the code."""

from __future__ import annotations

from arclog.model.events import REGISTRY
from arclog.model.settings import TABLE
from arclog.model.status import TRANSITIONS
from tests.docs.conformance import conformance_page
from tests.docs.dialects import dialects_page
from tests.docs.seeds import seeds_page

_HEAD = "<!-- Drawn from {source} by tests/docs; change that, then run `./x pytest tests/docs --redraw`. -->\n\n"


def settings_page() -> str:
    lines = [
        _HEAD.format(source="src/arclog/model/settings.py"),
        "# Settings\n\n",
        "Each setting has a name, an environment variable and a place in `arclog.toml`, where dots are tables: ",
        "`leases.seconds` is `seconds` in `[leases]`. A later source wins: default, `arclog.toml` in the working ",
        "directory, environment, flag. An unknown name is an error. A variable with `_FILE` behind it ",
        "(`ARCLOG_STORE_URL_FILE=/run/secrets/store_url`) names a file that holds the value.\n\n",
        "| setting | variable | default | unit | what it is |\n| --- | --- | --- | --- | --- |\n",
    ]
    lines += [f"| `{row.name}` | `{row.variable}` | `{row.default}` | {row.unit} | {row.help} |\n" for row in TABLE]
    return "".join(lines)


def events_page() -> str:
    lines = [
        _HEAD.format(source="src/arclog/model/events.py"),
        "# Events\n\n",
        "The closed list of event types. `arclog events ID --json` prints the full envelope of each event, one a line, ",
        "in seq order.\n\n",
        "| event type | alias | entity | who emits it | statuses | what it says | payload |\n",
        "| --- | --- | --- | --- | --- | --- | --- |\n",
    ]
    for row in REGISTRY.values():
        payload = ", ".join(f"`{field.name}`" for field in row.payload)
        cells = (
            f"`{row.name}`",
            row.alias,
            row.entity,
            ", ".join(row.emitters),
            ", ".join(row.statuses),
            row.doc,
            payload,
        )
        lines.append(f"| {' | '.join(cells)} |\n")
    terminal = " and ".join(f"`{row.name}`" for row in REGISTRY.values() if row.terminal)
    lines.append(f"\n{terminal} are the only events that end an execution; the store accepts one per execution.\n")
    return "".join(lines)


def status_page() -> str:
    lines = [
        _HEAD.format(source="src/arclog/model/status.py"),
        "# Status layers\n\n",
        "Each layer has its own states. Only the playbook layer says what state an execution is in.\n",
    ]
    for layer, table in TRANSITIONS.items():
        lines.append(f"\n## {layer}\n\n```mermaid\nstateDiagram-v2\n")
        for before, exits in table.items():
            lines += [f"    {before} --> {after}: {event}\n" for after, event in exits.items()]
        lines.append("```\n")
    return "".join(lines)


PAGES = {
    "settings.md": settings_page,
    "events.md": events_page,
    "status.md": status_page,
    "dialects.md": dialects_page,
    "seeds.md": seeds_page,
    "conformance.md": conformance_page,
}
