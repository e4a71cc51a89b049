"""Examples of the worker protocol, for the OpenAPI document."""

from __future__ import annotations

from arclog.model.commands import Captured, Command, Report, ReportAnswer, Revocation
from arclog.model.events import Event
from arclog.ports import work
from arclog.ports.control import LoopItem, LoopPage, WorkerInfo
from arclog.ports.results import Content, StoredBlob
from arclog.ports.secrets import SealedSecret, SecretInfo
from arclog.ports.storage.task_logs import LogLine

_RUN = 380_512_950_038_827_008
_ID = 380_512_950_038_827_012
_AT = 1_800_000_000_000_000
_SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_WORKER = WorkerInfo("remote_host-4242-a1b2c3", ("http", "noop", "python"), ("gpu",))
_COMMAND = Command(_ID, 1, _RUN, _SHA, "start", 1, _AT + 30_000_000, {}, Captured(), "default/default/local")

HELLO = work.Hello(_WORKER)
WELCOME = work.Welcome(30.0, "files", 17_179_869_184)
CLAIM = work.ClaimAsked(_WORKER, 4, 20.0, 1)
CLAIMED = work.Claimed([_COMMAND])
REPORT = Report(_WORKER.worker_id, _RUN, _ID, 1, 1, [Event("step.started", _AT, step="start", run=1)], 1)
ANSWER = ReportAnswer(1)
HEARTBEAT = work.HeartbeatAsked(_WORKER.worker_id, [(_ID, 1)])
GIVE_BACK = work.GiveBackAsked(_WORKER.worker_id, _RUN, _ID, 1)
REVOKED_ASKED = work.RevokedAsked(_WORKER.worker_id, 20.0, 1)
REVOKED = work.Revoked([Revocation(_ID)])
LOOP = work.LoopResultsAsked(_RUN, "each", 1, 0, 2000)
LOOP_PAGE = LoopPage([LoopItem((0,), 5)])
LINES = work.Lines([LogLine(_RUN, _AT, "start", 1, "start_task", 1, 1, "stdout", "hello")])
CONTENT = Content(_SHA, 4, 30, "text/plain", "zstd", None, "test")
BLOB = StoredBlob("default", _SHA, 30, _AT)
SECRET_ASKED = work.SecretAsked("crm", "acme/shop/live")
_INFO = SecretInfo("crm", "acme/shop", (), "2026-01-02T03:04:05.000000Z")
SECRET = work.SecretFound(SealedSecret(_INFO, "5f3a0c6b1d2e4f78", b"twelve bytes", b"sealed, and not to be read"))
