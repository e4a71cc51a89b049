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

A dialect is an outside spelling of the same facts. Stored is only the canonical one ([events](events.md)); every other is
told from it when somebody reads. `arclog events ID --dialect NAME` tells a run in a dialect, and `--type` takes names of any
of them: `--type StepFailed`, `--type call.error` and `--type task.failed` all work, whatever the dialect of the output.

"""
_CURSORS = """\

`seq` is the cursor in all of them (`runSeq` is the same number). One stored event can become several records,
or none; records of one seq belong together, and a page never parts them. What an event is told as can depend on events before
it, so a reader that begins in the middle either kept the dialect's state with its cursor (it is plain data), or lets the
dialect read from the beginning and drops what is told up to the cursor, as `arclog events --after` does. Both give exactly
what a reader from the beginning gets behind that cursor.
"""
_LIFECYCLE = """\

## lifecycle

The names of the [status layers](status.md). `status` is the state that the event's layer is in afterwards. Types outside the
table pass through as they are stored. The table works both ways: name and status lead back to the canonical event.

"""
_LIFECYCLE_MORE = """\

- `call.done` and `call.error` say the tool's state as `payload.state`: `OK`, `ERROR`, `BREAK` (the task's policy broke off) or
  `NOOP` (it jumped, as pagination does). To know that, a `call.done` is told together with the event behind it.
- `step.exit` is `CASE_HANDLED` when the step succeeded although its last outcome was an error. A loop step is `COMPLETED`; its
  `loop.done` has the counts. A skipped step is `COMPLETED` with `payload.skipped_step`. One that was open when the run ended
  is `FAILED`, its error has kind `cancelled`.
- Every `command.*` fact is told. Where the log does not store one because another event carries it, the record has
  `derived: true`, the seq of that event, its id as `cause_id`, and an `event_id` of the form `<id>:<fact>:<n>`.
- `playbook.paused` has status `PAUSED`; the state of the execution is `RUNNING` all the same.
- An informative event gets its name from the table and keeps its canonical status: no layer changes with it.
"""
_RUN = """\

## run

The Run Events Contract: RunEventRecords. Types outside the table are left out, so `runSeq` has gaps.

"""
_RUN_MORE = """\

- `stepId` is the step's name; `name#2`, `name#3` … when an arc enters it again. Run-level records have none.
- `logicalAttemptId` is 1 + the retries of the step run, by its policies or by `RETRY_STEP`; a failed step that `RETRY_STEP`
  fires again keeps its `stepId` and goes on counting. `RunPaused` and `RunResumed` have the pause's ordinal. Else it is 1.
- `engineAttemptId` is 1 + lost leases: of the step run, or of the whole run on run-level records.
- Every `StepStarted` has its `StepCompleted` or `StepFailed`, before the next attempt and before the run's end. Steps that are
  open when the run ends are `StepFailed` with `errorCode: CANCELLED`; one that nobody had begun is left out. A step that fails or
  is skipped before anybody began it is told as started and ended, both with the seq of its end.
- An attempt that `RETRY_STEP` restarts is `StepFailed` with `errorCode: CANCELLED` and `retryable: true`.
- A loop step is one pair; `payload.iterations` counts those of its outermost loop: `total`, `ok`, `failed`, and `cancelled` if
  some were under way when the step ended. Retries inside it are not told.
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

The shape of `POST /api/events`, in lifecycle names. Ids are strings. What the shape has no field for stands in `meta`, beside
what the sender said there, which goes before; `seq` and `source` are at the top, too. What is told can be posted and means the
same event, except for derived facts, which are no events. A cancelled run or command has status CANCELLED.

A body that is taken in:

- `{required}` are required, and `step` for events of steps, tasks and loops; null is the same as absent.
- Aliases: {aliases}.
- `execution_id` and `event_id` are integers or their decimal strings. Anything else is refused (422).
- These may stand at the top or in `meta`: `{either}`.
- Without `event_id` the server mints one, without `created_at` its clock counts, without `status` the name says it.
- `result_kind` is {kinds}; `ref` needs `result_uri`, `refs` needs `event_ids`. All three come back as they were sent. The result
  is `{{status, context}}` of data and `{{status, reference}}` of references; an error stands at `result.context.error`.
- Payload keys that [events](events.md) describes have the type that it says, null is the same as absent, and an error in plain
  text becomes an error's message; other keys are the sender's own. A worker's `payload.source` goes to `meta`.
- From a worker, the payload of `call.done` and `call.error` is a result or an error, or a whole `outcome`
  ([foreign workers](foreign-workers.md)).
- Unknown keys are ignored with a warning. `actionable` and `informative` count from the server only.
- Items of a batch inherit {inherited} and are answered one by one.
- The same `event_id` with the same content is a repetition. Content is all but `created_at` and what else `meta` holds.

| status on the wire, in any case | canonical |
| --- | --- |
"""
_AUTHORITY = """\

Who may send what; everything else is refused (403). A *worker* speaks only for a command that it holds, with its fence. What a
*producer* (an outside program) says is stored as informative: a fact for readers that changes nothing. It may use every name
of this page, in any spelling (`step.done`, `StepDone`, `step_done`).

"""
_LEGACY = """\

## legacy

Names of older executors. They are taken from outside producers only and stored under their canonical type, with the old name
in `meta.legacy_type`; arclog's own components may not send them. Of `sink.*` and `case.*` every verb is taken, also one that
is not listed. Outwards, the types marked below are told under their old name, everything else as it is stored.

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
        _table(("dialect", "what it is"), ((f"`{one.name}`", one.doc) for one in DIALECTS.values())),
        _CURSORS,
    ]
    parts += [
        _LIFECYCLE,
        _table(
            ("canonical", "lifecycle", "status", "layer"),
            (
                (_canonical(one.canonical, one.statuses), f"`{one.name}`", one.state, one.layer)
                for one in lifecycle.TABLE
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
        _table(("legacy", "canonical", "told so"), (_legacy_row(row) for row in legacy.TABLE)),
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
