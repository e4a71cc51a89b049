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

Whatever ends a run, its log closes everything that it has opened, exactly once, before `workflow.finished` and in the same
transaction. What is inside closes before what it is in.

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

What did not end by itself is ended by the server: `task.attempt.failed`, `task.failed`, `loop.iteration.failed` and `step.failed`
with error kind `cancelled` and the `reason` in the payload. Such an end says that something is over and nothing else. It is
never the cause of a failure, no template sees it as an outcome, it writes no ctx, and it is not routed: a step run has exactly
one `next.evaluated`, unless the end of the run closed it. A step without a loop that is late is no such case: its task has
failed with kind `timeout`.

| `reason` | why |
| --- | --- |
"""
_NUMBERS = """
## Numbers, sources and causes

- `duration_ms` is a whole number. It stands on the ends of attempts, tasks, iterations and step runs.
- `attempt` stands on every task event, from 1.
- `task.attempt.done` and `task.attempt.failed` have the attempt's outcome: its status, error and meta. The data of the last
  attempt stands on the task's own end.
- `cause_id` names the event that led to this one, in the same transaction. That of `step.scheduled` is the event that made its
  token or, when the token had to wait, the input that let it go on. It is left out when the engine went on by itself, with
  what a long decision had left.
- `source` is who wrote the event. The server writes the `step.*` events of a step run that no single worker begins or ends: of a
  loop whose items go to several commands, of a time limit, of a wait that was the last task.
- The ids of one transaction follow each other; a transaction of more events than a millisecond has ids goes on in the next.
"""


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
    lines.append(
        "\nAn outside producer may send every type ([ingest](ingest.md)); its events are `informative`, have the source `producer`\n"
        "and its name in `meta.producer`. What came over the wire beside an event (`meta`, `result_kind`, `result_uri`, `event_ids`)\n"
        "stands in the envelope as it was sent.\n"
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
        "What templates can do with a value: `{{ value | filter }}`, `{{ value is test }}`, `{{ function() }}`. All are pure: the ",
        "same values give the same result, on every machine and in every replay; what they do is counted (`expr.max_work`). ",
        "Which names there are is in [playbook.md](playbook.md#names-in-scope), what they hold in [values.md](values.md).\n\n",
        "A **moment** is ISO 8601 text (UTC where it names no offset) or seconds since 1970. No filter knows what time it is; ",
        "`run.started_at` is when the run began. **Regular expressions** have Python's syntax without back-references and ",
        "looking ahead or behind, which leaves a search in linear time, whatever the text. In a YAML text in double quotes and ",
        "in a string of a template a backslash is doubled; in a YAML block (`|`) only the template's doubling is left.\n",
    ]
    for heading, entries in {**FILTERS, "Tests": TESTS, "Functions": FUNCTIONS}.items():
        lines.append(f"\n## {heading}\n\n| | what it gives | example | value |\n| --- | --- | --- | --- |\n")
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
}
