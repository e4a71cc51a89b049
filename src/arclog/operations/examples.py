"""Examples that the OpenAPI document shows: one run of a small playbook, told by every route."""

from __future__ import annotations

from typing import Any

from arclog.ports.views import api, insight

ID = "7392145190625280001"
RUN = "6f1c2b7e-3a52-4c1e-9a0b-2f6f7f1f0d11"
AT = "2026-01-02T03:04:05.000000Z"
PLAYBOOK = "metadata: {name: hello, path: examples/hello}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"
REF = f"noetl://execution/{ID}/result/fetch/{'0f' * 32}"
STATUS = api.Status(ID, "RUNNING", "start", AT, None, None)
SUMMARY = api.Summary(
    execution_id=ID,
    run_id=RUN,
    state="COMPLETED",
    terminal_event="playbook.completed",
    started_at=AT,
    ended_at=AT,
    steps={"start": insight.StepSummary("done", 1)},
    ctx={},
    result=None,
    error=None,
)
LISTED = api.Listed(ID, RUN, "hello", "examples/hello", "1", "RUNNING", "start", AT, AT, None, None)
OPENLINEAGE: dict[str, Any] = {
    "eventType": "START",
    "eventTime": AT,
    "run": {"runId": RUN, "facets": {}},
    "job": {"namespace": "arclog", "name": "examples/hello", "facets": {}},
    "inputs": [],
    "outputs": [],
    "producer": "urn:arclog:1.0.0",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
}
EVENT: dict[str, Any] = {
    "execution_id": ID,
    "seq": 1,
    "event_id": "7392145190625280002",
    "event_type": "playbook.execution.requested",
    "event_alias": "PlaybookExecutionRequested",
    "timestamp": AT,
    "status": "in_progress",
    "payload": {"path": "examples/hello", "version": 1},
}
LINE: dict[str, Any] = {
    "position": 1,
    "timestamp": AT,
    "step": "start",
    "step_run": 1,
    "task": "start_task",
    "task_run": 1,
    "attempt": 1,
    "iteration": None,
    "stream": "stdout",
    "text": "hello",
}
WHY = insight.Why(
    ID, "RUNNING", "waits for a worker", [insight.Wait("worker", "step start waits for a worker", "start")]
)
STATE = insight.StateView(
    execution_id=ID,
    at=1,
    head=12,
    event_type="playbook.execution.requested",
    timestamp=AT,
    state="PENDING",
    tokens=[],
    step_runs=[],
    commands=[],
    steps={},
    ctx={},
    result=None,
    error=None,
)
SIGNALLED = api.SignalAnswer(ID, "PAUSE", "maintenance-1", accepted=True, message="", state="RUNNING", paused=True)
STORED = api.StoredResult(
    ref=REF,
    execution_id=ID,
    name="fetch",
    step="fetch",
    run=1,
    task="fetch_task",
    kind="list",
    content_type="application/x-ndjson",
    bytes=120_000,
    rows=1_000,
    sha256="0f" * 32,
    scope="execution",
    stored_at=AT,
    expires_at=None,
    removed_at=None,
    seq=9,
)
ENTRY = api.CatalogEntry("examples/hello", 1, "ab" * 32, AT)
VERSION = api.CatalogVersion("examples/hello", 1, "ab" * 32, AT, created=True)
