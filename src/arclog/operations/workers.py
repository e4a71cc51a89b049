"""The worker protocol: `ports.control`, `ports.results` and `ports.secrets` for workers on other machines."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from arclog.model.commands import Report, ReportAnswer
from arclog.model.ids import MAX_ID
from arclog.operations import examples
from arclog.operations.operation import ADMIN, BY_HANDLER, NDJSON, OCTETS, WORK, Operation
from arclog.ports import work
from arclog.ports.control import LoopPage
from arclog.ports.results import Content, StoredBlob

_TAG = "workers"
_ROOT = work.ROOT
_BYTES = {"type": "string", "format": "binary"}

#: Content is named by its hash, which cannot be mistaken for a path.
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Position = Annotated[int, Meta(ge=0, le=MAX_ID)]

REGISTER = Operation(
    name="workers.register",
    method="POST",
    path=f"{_ROOT}/register",
    access=WORK,
    tag=_TAG,
    text="Register a worker and return the server's settings for it.",
    takes=work.RegisterWorkerBody,
    takes_example=examples.HELLO,
    answer=work.WorkerSettings,
    example=examples.WELCOME,
    repeatable=True,
)
CLAIM = Operation(
    name="workers.claim",
    method="POST",
    path=f"{_ROOT}/claim",
    access=WORK,
    tag=_TAG,
    text="Claim up to `limit` commands. If there are none, wait up to `wait_s` seconds. With `form: wire`, commands have the\nform for workers that report with POST /api/events: ids are strings, and the config of the next task is rendered.",
    takes=work.ClaimBody,
    takes_example=examples.CLAIM,
    answer=work.Claimed,
    schema=(work.Claimed, work.WireClaimed),
    example=examples.CLAIMED,
    repeatable=True,
)
REPORT = Operation(
    name="workers.report",
    method="POST",
    path=f"{_ROOT}/report",
    access=WORK,
    tag=_TAG,
    text="Send the next part of a command's report. It is stored before the server responds.",
    takes=Report,
    takes_example=examples.REPORT,
    reading=BY_HANDLER,
    limit="server.max_events_bytes",
    answer=ReportAnswer,
    example=examples.ANSWER,
    errors=(404, 409),
    repeatable=True,
)
HEARTBEAT = Operation(
    name="workers.heartbeat",
    method="POST",
    path=f"{_ROOT}/heartbeat",
    access=WORK,
    tag=_TAG,
    text="Extend leases, and return the commands that the worker no longer holds.",
    takes=work.HeartbeatBody,
    takes_example=examples.HEARTBEAT,
    lax=True,
    answer=work.Lost,
    example=work.Lost([]),
    urgent=True,
    repeatable=True,
)
GIVE_BACK = Operation(
    name="workers.give_back",
    method="POST",
    path=f"{_ROOT}/give-back",
    access=WORK,
    tag=_TAG,
    text="Give back a command between two of its tasks, so that another worker can claim it.",
    takes=work.GiveBackBody,
    takes_example=examples.GIVE_BACK,
    lax=True,
    answer=work.Done,
    example=work.Done(),
    errors=(404, 409),
    urgent=True,
    repeatable=True,
)
REVOKED = Operation(
    name="workers.revoked",
    method="POST",
    path=f"{_ROOT}/revoked",
    access=WORK,
    tag=_TAG,
    text="List commands that were withdrawn from the worker or must pause. If there are none, wait up to `wait_s` seconds.",
    takes=work.RevokedBody,
    takes_example=examples.REVOKED_ASKED,
    answer=work.Revoked,
    example=examples.REVOKED,
    repeatable=True,
)


class ByDigest(Struct, frozen=True):
    digest: str


PLAN: Operation[None] = Operation(
    name="workers.plan",
    method="GET",
    path=f"{_ROOT}/plans/{{digest}}",
    access=WORK,
    tag=_TAG,
    text="Get the plan of a command.",
    params=ByDigest,
    schema={"type": "object"},
    example={"name": "hello", "entry": "start", "steps": []},
)
LOOP_RESULTS = Operation(
    name="workers.loop_results",
    method="POST",
    path=f"{_ROOT}/loop-results",
    access=WORK,
    tag=_TAG,
    text="List the outcomes of the tasks of a finished loop.",
    takes=work.LoopResultsBody,
    takes_example=examples.LOOP,
    answer=LoopPage,
    example=examples.LOOP_PAGE,
    repeatable=True,
)
WRITE_LOGS = Operation(
    name="workers.write_logs",
    method="POST",
    path=f"{_ROOT}/logs",
    access=WORK,
    tag=_TAG,
    text="Store log lines of tasks.",
    takes=work.Lines,
    takes_example=examples.LINES,
    limit="server.max_report_bytes",
    answer=work.Done,
    example=work.Done(),
    repeatable=True,
)
SECRET = Operation(
    name="workers.secret",
    method="POST",
    path=f"{_ROOT}/secret",
    access=WORK,
    tag=_TAG,
    text="Get the sealed (encrypted) secret with this name in the scope, or null if there is none.",
    takes=work.SecretBody,
    takes_example=examples.SECRET_ASKED,
    answer=work.SecretAnswer,
    example=examples.SECRET,
    repeatable=True,
)

# -- results -----------------------------------------------------------------------------------------------------------


class OfContent(Struct, frozen=True):
    tenant: str
    sha256: Sha256


class UploadContent(Struct, frozen=True, omit_defaults=True):
    tenant: str
    sha256: Sha256
    listed: bool = False
    content_type: str = "application/json"


class DownloadContent(Struct, frozen=True, omit_defaults=True):
    tenant: str
    sha256: Sha256
    start: Position = 0
    end: Position | None = None


class ItemsOf(Struct, frozen=True):
    tenant: str
    sha256: Sha256
    first: Position
    last: Position


class RemoveContent(Struct, frozen=True, omit_defaults=True):
    tenant: str
    sha256: Sha256
    stored_at: Position | None = None


class OlderThan(Struct, frozen=True):
    older_than: Position


UPLOAD = Operation(
    name="worker-results.upload",
    method="POST",
    path=f"{_ROOT}/results",
    access=WORK,
    tag=_TAG,
    text="Store content. The body of a list has one JSON value per line.",
    params=UploadContent,
    takes=bytes,
    takes_schema=_BYTES,
    takes_example="test",
    takes_media=OCTETS,
    reading=BY_HANDLER,
    answer=Content,
    example=examples.CONTENT,
    errors=(404, 413),
)
DOWNLOAD: Operation[None] = Operation(
    name="worker-results.download",
    method="GET",
    path=f"{_ROOT}/results",
    access=WORK,
    tag=_TAG,
    text="Get the bytes [start, end) of stored content.",
    params=DownloadContent,
    schema=_BYTES,
    example="test",
    media=OCTETS,
)
ITEMS = Operation(
    name="worker-results.items",
    method="GET",
    path=f"{_ROOT}/results/items",
    access=WORK,
    tag=_TAG,
    text="List the items of a stored list from `first` up to, but not including, `last`; as many as fit into one response.",
    params=ItemsOf,
    answer=work.Items,
    example=work.Items([1, 2]),
)
ABOUT: Operation[Any] = Operation(
    name="worker-results.about",
    method="GET",
    path=f"{_ROOT}/results/about",
    access=WORK,
    tag=_TAG,
    text="Describe stored content. Returns null if there is none.",
    params=OfContent,
    answer=StoredBlob | None,  # type: ignore[arg-type]  # msgspec takes a union where a type is expected
    example=examples.BLOB,
)
REMOVE = Operation(
    name="worker-results.remove",
    method="DELETE",
    path=f"{_ROOT}/results",
    access=ADMIN,
    tag=_TAG,
    text="Remove stored content; with `stored_at`, only if it has not been stored again since.",
    params=RemoveContent,
    answer=work.Removed,
    example=work.Removed(1),
    tenant_wide=True,
)
EVERYTHING = Operation(
    name="worker-results.everything",
    method="GET",
    path=f"{_ROOT}/results/all",
    access=ADMIN,
    tag=_TAG,
    text="List all stored content, one JSON value per line.",
    answer=StoredBlob,
    media=NDJSON,
    example=examples.BLOB,
    tenant_wide=True,
)
LEFTOVERS = Operation(
    name="worker-results.leftovers",
    method="DELETE",
    path=f"{_ROOT}/results/leftovers",
    access=ADMIN,
    tag=_TAG,
    text="Remove incomplete content of writers that failed before `older_than` (microseconds since 1970, at least an hour ago). "
    "Content that is being written is not removed.",
    params=OlderThan,
    answer=work.Removed,
    example=work.Removed(0),
    tenant_wide=True,
)
