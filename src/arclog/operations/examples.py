"""Examples in the OpenAPI document: one run of a small playbook, as every route shows it."""

from __future__ import annotations

from typing import Any

from arclog.model.commands import Captured, Command, Report, ReportAnswer, Revocation
from arclog.model.events import Event
from arclog.ports import work
from arclog.ports.control import LoopItem, LoopPage, WorkerInfo
from arclog.ports.results import Content, StoredBlob
from arclog.ports.secrets import SealedSecret, SecretInfo
from arclog.ports.storage.task_logs import LogLine
from arclog.ports.views import api, insight

# ── examples ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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
LISTED = api.ListedRun(ID, RUN, "hello", "examples/hello", "1", "RUNNING", "start", AT, AT, None, None)
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


# ── work examples ─────────────────────────────────────────────────────────────────────────────────────────────────────
# Examples of the worker protocol, for the OpenAPI document.


_RUN = 380_512_950_038_827_008
_ID = 380_512_950_038_827_012
_AT = 1_800_000_000_000_000
_SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_WORKER = WorkerInfo("remote_host-4242-a1b2c3", ("http", "noop", "python"), ("gpu",))
_COMMAND = Command(_ID, 1, _RUN, _SHA, "start", 1, _AT + 30_000_000, {}, Captured(), "default/default/local")

HELLO = work.RegisterWorkerBody(_WORKER)
WELCOME = work.WorkerSettings(30.0, "files", 17_179_869_184)
CLAIM = work.ClaimBody(_WORKER, 4, 20.0, 1)
CLAIMED = work.Claimed([_COMMAND])
REPORT = Report(_WORKER.worker_id, _RUN, _ID, 1, 1, [Event("step.started", _AT, step="start", run=1)], 1)
ANSWER = ReportAnswer(1)
HEARTBEAT = work.HeartbeatBody(_WORKER.worker_id, [(_ID, 1)])
GIVE_BACK = work.GiveBackBody(_WORKER.worker_id, _RUN, _ID, 1)
REVOKED_ASKED = work.RevokedBody(_WORKER.worker_id, 20.0, 1)
REVOKED = work.Revoked([Revocation(_ID)])
LOOP = work.LoopResultsBody(_RUN, "each", 1, 0, 2000)
LOOP_PAGE = LoopPage([LoopItem((0,), 5)])
LINES = work.Lines([LogLine(_RUN, _AT, "start", 1, "start_task", 1, 1, "stdout", "hello")])
CONTENT = Content(_SHA, 4, 30, "text/plain", "zstd", None, "test")
BLOB = StoredBlob("default", _SHA, 30, _AT)
SECRET_ASKED = work.SecretBody("crm", "acme/shop/live")
_INFO = SecretInfo("crm", "acme/shop", (), "2026-01-02T03:04:05.000000Z")
SECRET = work.SecretAnswer(SealedSecret(_INFO, "5f3a0c6b1d2e4f78", b"twelve bytes", b"sealed, and not to be read"))
