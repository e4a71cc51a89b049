"""Renders docs/dialects.md from the dialects' tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from arclog.dialects import legacy, lifecycle, run, wire
from arclog.dialects import run_record as contract
from arclog.dialects.names import DIALECTS
from arclog.dialects.schemas import SCHEMAS
from arclog.dialects.wire import GRANTS
from arclog.dialects.wire_incoming import ALIASES, EITHER_PLACE, INHERITED
from arclog.model.events import REGISTRY

_HEAD = """\
<!-- Drawn from src/arclog/dialects by tests/docs; change that, then run `./x pytest tests/docs --redraw`. -->

# Dialects

A dialect presents the same events under other names and in other shapes. The log stores only the canonical dialect
([events](events.md)); the others are derived from it when events are read. `arclog events ID --dialect NAME` prints the events of a
run in a dialect, and `--type` accepts the names of all dialects: `--type StepFailed`, `--type call.error` and `--type task.failed`
work with every `--dialect`.

"""
_CURSORS = """\

`seq` is the cursor in every dialect (`runSeq` is the same number). One stored event can become several records, or none. Records
with the same seq belong together, and a page never splits them. The records of an event can depend on earlier events. A reader that
starts in the middle therefore keeps the dialect's state (plain data) with its cursor, or reads from the beginning and drops the records
up to the cursor, as `arclog events --after` does. Both return the same records after the cursor as a reader that started at the
beginning.
"""
_LIFECYCLE = """\

## lifecycle

The names of the [status layers](status.md). `status` is the state of the event's layer after the event. Types that are not
in the table are returned as stored. The table works in both directions: name and status identify the canonical event.

"""
_LIFECYCLE_MORE = """\

- `call.done` and `call.error` have the state of the tool in `payload.state`: `OK`, `ERROR`, `BREAK` (the task's policy ended the
  pipeline) or `NOOP` (it jumped, as pagination does). Since the next event determines this state, a `call.done` is returned together
  with that event.
- `step.exit` is `CASE_HANDLED` when the step succeeded although its last outcome was an error. A loop step is `COMPLETED`; its
  `loop.done` has the counts. A skipped step is `COMPLETED` with `payload.skipped_step`. A step that was open when the run
  ended is `FAILED`, and its error has kind `cancelled`.
- Every `command.*` change has a record. If the log does not store it, because another event implies it, the record has
  `derived: true`, the seq of that event, its id as `cause_id`, and an `event_id` of the form `<id>:<fact>:<n>`.
- `playbook.paused` has status `PAUSED`, although the state of the execution is `RUNNING`.
- An informative event gets its name from the table and keeps its canonical status, because it changes no layer.
"""
_RUN = """\

## run

The Run Events Contract: RunEventRecords. Types outside the table are left out, so `runSeq` has gaps.

"""
_RUN_MORE = """\

- `stepId` is the step's name; `name#2`, `name#3` … when an arc enters it again. Run-level records have none.
- `logicalAttemptId` is 1 + the retries of the step run, by its policies or by `RETRY_STEP`; a failed step that `RETRY_STEP`
  fires again keeps its `stepId` and goes on counting. `RunPaused` and `RunResumed` have the pause's ordinal. Otherwise it is 1.
- `engineAttemptId` is 1 + lost leases: of the step run, or of the whole run on run-level records.
- Every `StepStarted` has its `StepCompleted` or `StepFailed`, before the next attempt and before the run's end. Steps that are
  open when the run ends are `StepFailed` with `errorCode: CANCELLED`; steps that had not started are left out. A step that fails or
  is skipped before it started has a started and an ended record, both with the seq of its end.
- An attempt that `RETRY_STEP` restarts is `StepFailed` with `errorCode: CANCELLED` and `retryable: true`.
- A loop step is one pair; `payload.iterations` counts those of its outermost loop: `total`, `ok`, `failed`, and `cancelled` if
  some were under way when the step ended. Retries inside the loop have no records.
- `idempotencyKey` = sha256 of `runId|stepId or RUN|logicalAttemptId|eventType|planVersion`; no two records of a run share one.
- `payload`: `errorCode` (the error's code, else its kind in capitals), `errorMessage`, `retryable`, `stack` of failures;
  `result` or `resultRef`, and `durationMs`; `signalId` and `reason` of pauses. `step` is the step's name. `RunFailed` has the
  `stack` of the step that failed the run.
- `signalId` is a UUID. For a signal that was sent elsewhere under another kind of id (`arclog pause --signal-id nightly`) it is a
  UUID made from the run and that id, always the same one.

"""
_RUN_STATUS = """\

Before `RunStarted` a run is {pending} (until its request was evaluated, and while it waits for an approval) or {approved}.
From the PAUSE signal to `RunPaused` its substatus is {draining}.
"""
_WIRE = """\

## wire

The shape of `POST /api/events`, in lifecycle names. Ids are strings. Values without a field of this shape are in `meta`, together
with the sender's own `meta`, which takes precedence; `seq` and `source` are also at the top level. A record can be posted again and
means the same event, except for derived records. A cancelled run or command has status CANCELLED.

Rules for a request body:

- `{required}` are required, and `step` for events of steps, tasks and loops; null means absent.
- Aliases: {aliases}.
- `execution_id` and `event_id` are integers or their decimal strings. Other values are rejected (422).
- These keys are accepted at the top level or in `meta`: `{either}`.
- Defaults: the server generates `event_id`, uses its own time as `created_at`, and derives `status` from the event type.
- `result_kind` is {kinds}; `ref` needs `result_uri`, `refs` needs `event_ids`. All three are returned as they were sent. The result
  is `{{status, context}}` for data and `{{status, reference}}` for references; an error is in `result.context.error`.
- Payload keys that [events](events.md) describes must have the type described there; null means absent, and a plain-text
  error becomes the message of an error. Other keys are stored unchanged. A worker's `payload.source` is moved to `meta`.
- From a worker, the payload of `call.done` and `call.error` is a result or an error, or a whole `outcome`
  ([foreign workers](foreign-workers.md)).
- Unknown keys are ignored with a warning. `actionable` and `informative` are ignored unless the server sent them.
- Items of a batch inherit {inherited}, and each has its own result in the response.
- An event with a known `event_id` and the same content is a duplicate. `created_at` and other keys of `meta` are not compared.

| status on the wire, in any case | canonical |
| --- | --- |
"""
_AUTHORITY = """\

The table lists which sender may send which events; all others are rejected (403). A *worker* can only send events of a command that it
has claimed, with its fence. Events of a *producer* (an external program) are stored as informative: they can be read and change no
state. A producer can use every name on this page, in any spelling (`step.done`, `StepDone`, `step_done`).

"""
_LEGACY = """\

## legacy

Names of older executors. They are accepted only from external producers and stored under their canonical type, with the old name
in `meta.legacy_type`; arclog's own components must not send them. All verbs of `sink.*` and `case.*` are accepted, including those
that are not listed. When events are read in this dialect, the types marked below have their old name, and all others are returned as stored.

"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _canonical(name: str, statuses: Sequence[str]) -> str:
    return f"`{name}`" + (f" ({', '.join(statuses)})" if statuses else "")


def dialects_page() -> str:
    parts = [
        _HEAD,
        _table(("dialect", "description"), ((f"`{dialect.name}`", dialect.doc) for dialect in DIALECTS.values())),
        _CURSORS,
    ]
    parts += [
        _LIFECYCLE,
        _table(
            ("canonical", "lifecycle", "status", "layer"),
            (
                (_canonical(row.canonical, row.statuses), f"`{row.name}`", row.state, row.layer)
                for row in lifecycle.TABLE
            ),
        ),
        _LIFECYCLE_MORE,
        _RUN,
        _table(
            ("canonical", "run", "only"),
            ((_canonical(row.canonical, row.statuses), f"`{row.name}`", row.only) for row in run.TABLE),
        ),
        _RUN_MORE,
        _table(
            ("record", "status of the run"), ((f"`{name}`", after) for name, after in contract.STATUS_AFTER.items())
        ),
        _RUN_STATUS.format(pending=contract.PENDING, approved=contract.APPROVED, draining=contract.DRAINING),
        _WIRE.format(
            required="execution_id` and `event_type",
            aliases=", ".join(f"`{other}` for `{field}`" for field, other in ALIASES.items()),
            either="`, `".join(EITHER_PLACE),
            kinds=" | ".join(f"`{kind}`" for kind in wire.RESULT_KINDS),
            inherited=" and ".join(f"`{key}`" for key in INHERITED),
        ),
        "".join(f"| {word} | {status} |\n" for word, status in wire.STATUS_IN.items()),
        _AUTHORITY,
        _table(
            ("event type", *GRANTS),
            ((f"`{name}`", *("yes" if name in grants else "" for grants in GRANTS.values())) for name in REGISTRY),
        ),
        _LEGACY,
        _table(("legacy", "canonical", "used when read"), (_legacy_row(row) for row in legacy.TABLE)),
        "\n## Schemas\n\n`arclog schema NAME` prints a JSON Schema (draft 2020-12):\n\n",
        _table(
            ("name", "of what"),
            [
                ("`playbook`", "a playbook with the kinds that are installed"),
                *((f"`{name}`", doc) for name, (doc, _) in SCHEMAS.items()),
            ],
        ),
    ]
    return "".join(parts)


def _legacy_row(row: legacy.Row) -> tuple[str, str, str]:
    if "" in row.canonical:
        canonical = row.canonical[""]
        several = len(REGISTRY[canonical].statuses) > 1
        meant = _canonical(canonical, (row.status,) if several else ())
    elif "routed" in row.canonical:
        meant = f"`{legacy.ROUTED}` when its payload names routes, else `{legacy.DECIDED}`"
    else:
        meant = " / ".join(f"`{canonical}`" for canonical in row.canonical.values())
    return f"`{row.legacy}`", meant, "yes" if row.outwards else ""
