"""Renders the reference pages that are drawn from tables in the code."""

from __future__ import annotations

import json

from arclog.expr.filters.reference import FILTERS, FUNCTIONS, TESTS
from arclog.model.config.settings import TABLE
from arclog.model.events import CLOSING_REASONS, REGISTRY
from arclog.model.status import TRANSITIONS
from tests.docs.conformance import conformance_page
from tests.docs.dialects import dialects_page
from tests.docs.operations import operations_page
from tests.docs.playbook_keys import playbook_page
from tests.docs.seeds import seeds_page

_HEAD = "<!-- Drawn from {source} by tests/docs; change that, then run `./x pytest tests/docs --redraw`. -->\n\n"


def settings_page() -> str:
    lines = [
        _HEAD.format(source="src/arclog/model/config/settings.py"),
        "# Settings\n\n",
        "Each setting has a name, an environment variable and a place in `arclog.toml`, where dots are tables: ",
        "`leases.seconds` is `seconds` in `[leases]`. A later source wins: default, `arclog.toml` in the working ",
        "directory, environment, flag. An unknown name is an error. A variable with the suffix `_FILE` ",
        "(`ARCLOG_STORE_URL_FILE=/run/secrets/store_url`) names a file that contains the value.\n\n",
        "| setting | variable | default | unit | description |\n| --- | --- | --- | --- | --- |\n",
    ]
    lines += [f"| `{row.name}` | `{row.variable}` | `{row.default}` | {row.unit} | {row.help} |\n" for row in TABLE]
    return "".join(lines)


_CLOSED = """
## Closed logs

However a run ends, its log closes everything that it opened exactly once, before `workflow.finished` and in the same
transaction. Inner scopes are closed before the scopes that contain them.

| opened by | closed by |
| --- | --- |
| `playbook.started` | `playbook.finished` or `execution.cancelled` |
| `workflow.started` | `workflow.finished` |
| `step.scheduled` | `step.done` or `step.failed` |
| `loop.started` | `loop.done`. A loop that fails has none: the `step.failed` of its step run closes it and has its counts in `payload.loop`; an inner loop is closed by the `loop.iteration.failed` of the iteration that it runs in |
| `loop.iteration.started` | `loop.iteration.done` or `loop.iteration.failed` |
| `task.started` | `task.done` or `task.failed` |
| `task.attempt.started` | `task.attempt.done` or `task.attempt.failed`, else the end of its task run |
| a command, by `step.scheduled` or `command.issued` | `command.completed`, `command.failed` or `command.cancelled`; else the end of the items or of the step run that it covers |
| a token, by `workflow.started`, `next.evaluated` or RETRY_STEP | the `step.scheduled` or the denying `policy.admit.evaluated` that names it in `tokens`; its own `next.evaluated`, when a counted join absorbs it; else `workflow.finished`, which names the tokens that are left |

The server closes everything that is still open with `task.attempt.failed`, `task.failed`, `loop.iteration.failed` and `step.failed`
events that have error kind `cancelled` and the `reason` in the payload. These events have no other effect: they are never the cause of a
failure, templates do not see them as outcomes, they write no ctx, and they are not routed. A step run has exactly one `next.evaluated`,
unless the end of the run closed it. A step without a loop that exceeds its time limit is different: its task fails with kind `timeout`.

| `reason` | why |
| --- | --- |
"""
_NUMBERS = """
## Numbers, sources and causes

- `duration_ms` is a whole number. The events that end attempts, tasks, iterations and step runs have it.
- `attempt` is on every task event and starts at 1.
- `task.attempt.done` and `task.attempt.failed` have the attempt's outcome: its status, error and meta. The data of the last
  attempt is on the event that ends the task.
- `cause_id` is the id of the event that caused this one, in the same transaction. For `step.scheduled` it is the event that created its
  token or, if the token had to wait, the input that ended the wait. It is missing if the engine continued a long decision in a further
  transaction.
- `source` is the component that wrote the event. The server writes the `step.*` events of a step run that no single worker starts or
  ends: a loop whose items are in several commands, a time limit, or a wait that was the last task.
- The ids of one transaction are consecutive. If a millisecond has too few ids for a transaction, the ids continue in the next one.
"""


def events_page() -> str:
    lines = [
        _HEAD.format(source="src/arclog/model/events.py"),
        "# Events\n\n",
        "The closed list of event types. `arclog events ID --json` prints the full envelope of each event, one per line, ",
        "in seq order.\n\n",
        "| event type | alias | entity | emitted by | statuses | meaning | payload |\n",
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
    lines.append(
        "\nAn outside producer may send every type ([ingest](ingest.md)); its events are `informative`, have the source `producer`\n"
        "and its name in `meta.producer`. Other fields of the request (`meta`, `result_kind`, `result_uri`, `event_ids`)\n"
        "are kept in the envelope unchanged.\n"
    )
    lines.append(_CLOSED)
    lines += [f"| `{name}` | {text} |\n" for name, text in CLOSING_REASONS.items()]
    lines.append(_NUMBERS)
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


def templates_page() -> str:
    lines = [
        _HEAD.format(source="src/arclog/expr/reference.py"),
        "# Filters, tests and functions\n\n",
        "Templates can use filters (`{{ value | filter }}`), tests (`{{ value is test }}`) and functions (`{{ function() }}`). All ",
        "are pure: the same values give the same result, on every machine and in every replay. Their work is limited by ",
        "`expr.max_work`. [playbook.md](playbook.md#names-in-scope) lists the names in scope, and [values.md](values.md) describes ",
        "their values.\n\n",
        "A **moment** is ISO 8601 text (UTC if it has no offset) or seconds since 1970. No filter reads the current time; ",
        "`run.started_at` is the time at which the run started. **Regular expressions** have Python's syntax without ",
        "back-references, look-ahead and look-behind, so that every search takes linear time. Double each backslash in a string of a ",
        "template, and double it again in a double-quoted YAML string; a YAML block (`|`) needs only the first doubling.\n",
    ]
    for heading, entries in {**FILTERS, "Tests": TESTS, "Functions": FUNCTIONS}.items():
        lines.append(f"\n## {heading}\n\n| | result | example | value |\n| --- | --- | --- | --- |\n")
        for entry in entries:
            cells = (
                entry.call,
                entry.summary,
                f"{{{{ {entry.example} }}}}",
                json.dumps(entry.value, ensure_ascii=False),
            )
            call, summary, example, value = (cell.replace("|", "\\|") for cell in cells)
            lines.append(f"| `{call}` | {summary} | `{example}` | `{value}` |\n")
    return "".join(lines)


PAGES = {
    "templates.md": templates_page,
    "settings.md": settings_page,
    "events.md": events_page,
    "status.md": status_page,
    "dialects.md": dialects_page,
    "seeds.md": seeds_page,
    "conformance.md": conformance_page,
    "api.md": operations_page,
    "playbook.md": playbook_page,
}
