"""Events and logs: those of one run, in pages or as a stream; those of all runs; and events of outside producers."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from arclog.operations import examples
from arclog.operations.operation import EVENT_STREAM, PRODUCE, VIEW, Count, ExecutionId, Limit, Operation, Types
from arclog.ports.ingest import RecordedEvent
from arclog.ports.views.api import EventSearchPage

_TAG = "events and logs"
_NOTHING_MORE = {204: "The run has ended; there are no events after Last-Event-ID."}

Dialect = Annotated[str, Meta(description="Dialect of the events: canonical, lifecycle, run, wire or legacy")]
After = Annotated[Count, Meta(description="Only events after this seq")]
Position = Annotated[Count, Meta(description="Only lines after this position")]


class EventPage(Struct, frozen=True):
    """A page of the events of a run, in seq order."""

    events: list[dict[str, Any]]
    #: the `after` of the next page
    next: int
    #: whether there are more events now
    more: bool


class LogPage(Struct, frozen=True):
    """A page of the log lines of a run's tasks."""

    lines: list[dict[str, Any]]
    #: the `after` of the next page
    next: int


class Head(Struct, frozen=True):
    """The last event of a run, and whether the run has ended or is paused."""

    #: seq of its last event
    head: int
    ended: bool
    #: whether it is paused, or will be when running tasks have ended
    pausing: bool


class ListEvents(Struct, frozen=True, omit_defaults=True, rename={"types": "type"}):
    execution_id: ExecutionId
    after: After = 0
    limit: Limit = 1000
    dialect: Dialect = "canonical"
    types: Types = []
    entity_type: Annotated[
        str, Meta(description="Only events about this type of entity, such as step, task or command", max_length=64)
    ] = ""
    entity_id: Annotated[
        str, Meta(description="Only events about this entity; requires `entity_type`", max_length=600)
    ] = ""


class FollowEvents(Struct, frozen=True, omit_defaults=True, rename={"types": "type"}):
    execution_id: ExecutionId
    after: After = 0
    dialect: Dialect = "canonical"
    types: Types = []


class FollowOutline(Struct, frozen=True, omit_defaults=True):
    execution_id: ExecutionId
    after: After = 0


class WaitForHead(Struct, frozen=True, omit_defaults=True):
    execution_id: ExecutionId
    after: Annotated[
        Count | None, Meta(description="Wait until there is an event after this seq, or the run has ended")
    ] = None
    until: Annotated[str, Meta(description="`ended`: wait for the run's end", pattern="^(ended)?$")] = ""
    timeout_s: Annotated[float, Meta(description="Maximum time to wait, in seconds", ge=0, le=86_400)] = 0


class LogLines(Struct, frozen=True, omit_defaults=True, rename={"streams": "stream"}):
    """Filters for log lines."""

    execution_id: ExecutionId
    step: Annotated[str, Meta(description="Only lines of this step", max_length=200)] = ""
    task: Annotated[str, Meta(description="Only lines of this task", max_length=200)] = ""
    iteration: Annotated[
        str, Meta(description="Only lines of this iteration: `3`, or `3.1` in a nested loop", max_length=200)
    ] = ""
    streams: Annotated[
        list[str],
        Meta(description="Only lines of these streams: stdout, stderr, log, progress. Default: all except progress"),
    ] = []
    text: Annotated[str, Meta(description="Only lines that contain this text", max_length=1000)] = ""
    since: Annotated[
        str, Meta(description="Only lines since this time (RFC 3339, or microseconds since 1970)", max_length=64)
    ] = ""
    after: Position = 0


class ListLogs(LogLines, frozen=True, omit_defaults=True):
    limit: Limit = 1000


EVENTS = Operation(
    name="events.events",
    method="GET",
    path="/api/executions/{execution_id}/events",
    access=VIEW,
    tag=_TAG,
    text="List events in seq order, in the requested dialect. `next` is the cursor for `after`.",
    params=ListEvents,
    answer=EventPage,
    example=EventPage([examples.EVENT], 1, more=False),
)
STREAM: Operation[None] = Operation(
    name="events.stream",
    method="GET",
    path="/api/executions/{execution_id}/events/stream",
    access=VIEW,
    tag=_TAG,
    text="Stream the events of a run: each event once, in order, from `after` or Last-Event-ID until the run ends.\n\nAfter a lost connection, reconnect with the id of the last event (an EventSource does this itself).",
    params=FollowEvents,
    example='id: 1\ndata: {"seq": 1, "event_type": "playbook.execution.requested"}\n\n',
    media=EVENT_STREAM,
    outcome="Server-sent events; the id is the seq.",
    also=_NOTHING_MORE,
)
OUTLINE_STREAM: Operation[None] = Operation(
    name="events.outline_stream",
    method="GET",
    path="/api/executions/{execution_id}/outline/stream",
    access=VIEW,
    tag=_TAG,
    text="Stream an outline of the run for charts: the type and subject of each event, in columns and without payloads. It has about\na fiftieth of the size of the events.",
    params=FollowOutline,
    example='id: 1\ndata: {"first": 1, "kinds": [["playbook.execution.requested", "", "", 0]], "what": [0]}\n\n',
    media=EVENT_STREAM,
    outcome="Server-sent events: parts of the outline; the id is the last seq of a part.",
    also=_NOTHING_MORE,
)
HEAD = Operation(
    name="events.head",
    method="GET",
    path="/api/executions/{execution_id}/head",
    access=VIEW,
    tag=_TAG,
    text="Get the seq of the last event of a run and whether the run has ended. With `after` or `until`, wait for it (a long\npoll of at most `server.long_poll_s`).",
    params=WaitForHead,
    answer=Head,
    example=Head(12, ended=False, pausing=False),
)
LOGS = Operation(
    name="events.logs",
    method="GET",
    path="/api/executions/{execution_id}/logs",
    access=VIEW,
    tag=_TAG,
    text="List the log lines of the run's tasks: their output and progress.",
    params=ListLogs,
    answer=LogPage,
    example=LogPage([examples.LINE], 1),
)
LOG_STREAM: Operation[None] = Operation(
    name="events.log_lines",
    method="GET",
    path="/api/executions/{execution_id}/logs/stream",
    access=VIEW,
    tag=_TAG,
    text="Stream the log lines of the run's tasks, from `after` or Last-Event-ID until the run ends.",
    params=LogLines,
    example='id: 1\ndata: {"position": 1, "text": "hello"}\n\n',
    media=EVENT_STREAM,
    outcome="Server-sent events; the id is the line's position.",
)

# -- of all runs -------------------------------------------------------------------------------------------------------


class Item(Struct, frozen=True, omit_defaults=True):
    """The result for one event of a batch."""

    index: int
    #: HTTP status: 200 if the event was recorded
    status: int
    event: RecordedEvent | None = None
    title: str = ""
    detail: str = ""


class BatchAnswer(Struct, frozen=True):
    """The results of a batch."""

    accepted: int
    refused: int
    #: in the order of the batch
    results: list[Item]


class SearchEvents(Struct, frozen=True, omit_defaults=True, rename={"types": "type"}):
    types: Types = []
    since: Annotated[str, Meta(description="Only events stored at or after this time (RFC 3339)", max_length=64)] = ""
    until: Annotated[str, Meta(description="Only events stored before this time (RFC 3339)", max_length=64)] = ""
    entity: Annotated[
        str,
        Meta(
            description="Only events about this type of entity, or about one entity: `step`, `step:load`",
            max_length=700,
        ),
    ] = ""
    where: Annotated[
        str, Meta(description="Only events that match this expression over the envelope's fields", max_length=4000)
    ] = ""
    informative: Annotated[bool, Meta(description="Include informative events")] = False
    cursor: Annotated[str, Meta(description="`next` of the previous page", max_length=100)] = ""
    limit: Limit = 100


_SENT = {
    "execution_id": "320816801799016448",
    "event_id": "320816801799016900",
    "event_type": "call.done",
    "step": "load",
}
_TAKEN = RecordedEvent("320816801799016448", "320816801799016900", "task.done", 12, informative=True)


def published(name: str) -> dict[str, Any]:
    """A published schema, as a part of the OpenAPI document."""
    from arclog.dialects.schemas import SCHEMAS  # it knows every event: clients need none of that

    return {key: value for key, value in SCHEMAS[name][1]().items() if key != "$schema"}


POST_EVENT = Operation(
    name="ingest.post_event",
    method="POST",
    path="/api/events",
    access=PRODUCE,
    tag="events",
    text="Record an event. Accepts names of any dialect, ids as integers or strings, and the fields `name`, `node_name`\nand `context`.",
    takes=Any,
    takes_schema=lambda: published("wire-request"),
    takes_example=_SENT,
    answer=RecordedEvent,
    example=_TAKEN,
    outcome="The event is recorded. Sending the same event again returns its first seq.",
    errors=(404, 409),
)
POST_BATCH = Operation(
    name="ingest.post_batch",
    method="POST",
    path="/api/events/batch",
    access=PRODUCE,
    tag="events",
    text="Record several events. `execution_id` and `worker_id` are defaults for events without their own.",
    takes=Any,
    takes_schema=lambda: published("wire-batch"),
    takes_example={"execution_id": _SENT["execution_id"], "events": [{"event_type": "batch.completed"}]},
    answer=BatchAnswer,
    example=BatchAnswer(1, 0, [Item(0, 200, _TAKEN)]),
    outcome="One result for each event, in order.",
    errors=(),
)
SEARCH = Operation(
    name="ingest.search",
    method="GET",
    path="/api/events",
    access=VIEW,
    tag="events",
    text="Search the events of all runs that the caller can see, oldest first. While `more` is true, a page may have\nfewer events than `limit`, or none: repeat the request with `next` as the `cursor`.",
    params=SearchEvents,
    answer=EventSearchPage,
    example=EventSearchPage([examples.EVENT], "m1765000000000000-1-9", more=False),
    errors=(),
)
