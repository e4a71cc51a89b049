"""Turns a tool's outcome into the record for events: large data goes to the result store, and the log keeps a ref."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from msgspec.json import encode
from msgspec.structs import replace

from arclog.core.flow.pipeline import Frame, Run
from arclog.expr import MISSING, path_of_text, path_text
from arclog.expr.stored import is_json
from arclog.model.errors import ResultUnavailable
from arclog.model.events import Event
from arclog.model.outcome import Outcome, TaskError, data_of, error, failed, result_error
from arclog.model.refs import DATA, LIST, RefMeta, ResultRef, parse_ref, ref_text
from arclog.plan.net import Limits, TaskPlan, event_room
from arclog.plan.reads import Path, payload_paths, value_at
from arclog.ports.clock import Clock
from arclog.ports.results import Content, Results, ResultWriter
from arclog.worker.reading import Fetching, StoredReader

#: Types of values that can be large.
_MEASURED = (str, list, dict)
_ITEMS_AT_A_TIME = 1000
#: Maximum length of an error message in events.
_LONGEST_MESSAGE = 8192
_HINTS: dict[type, str] = {list: "list", dict: "map", str: "text"}
_JSON_HINTS = {"{": "map", "[": "list", '"': "text", "t": "boolean", "f": "boolean", "n": "null"}
_DIGITS = frozenset("-0123456789")


class Storing:
    """Stores the outcomes of one command."""

    def __init__(
        self,
        reader: StoredReader,
        store: str,
        demand: frozenset[Path],
        limits: Limits,
        extracted_max_bytes: int,
    ) -> None:
        self._reader = reader
        self._store = store
        self._demand = demand
        self._limits = limits
        self._extracted_max_bytes = extracted_max_bytes

    async def outcome(
        self, move: Run, frame: Frame, outcome: Outcome, results: TaskResults, clock: Clock
    ) -> tuple[dict[str, Any], list[Event]]:
        """Return the record of an outcome, and the events of stored data.

        An outcome that cannot be stored becomes an error outcome.
        """
        plan = move.task.plan
        if outcome.error is not None:
            outcome = self._shortened(outcome, outcome.error)
        record = outcome.as_record()
        if outcome.result is None and outcome.stored is None and not outcome.helper and not outcome.files:
            return record, []
        try:
            return await self._kept(move, frame, outcome, record, results, clock.now())
        except ResultUnavailable as problem:
            return _refused(plan, result_error(problem)), []
        except (TypeError, ValueError) as problem:
            # A mistake of the tool must not end the worker's other commands.
            message = f"the {plan.kind} tool returned a value that is not JSON: {problem}"
            return _refused(plan, error("internal", message)), []

    async def _kept(
        self, move: Run, frame: Frame, outcome: Outcome, record: dict[str, Any], results: TaskResults, now: int
    ) -> tuple[dict[str, Any], list[Event]]:
        plan = move.task.plan
        wanted = plan.spec.get("result") or {}
        payload = data_of(record)
        content = outcome.stored or await self._stored(payload, wanted, results)
        events = self._files(move, frame, outcome, record, now)
        if content is not None:
            ref = self._ref(frame, plan.name, content, payload)
            record = _without_payload(record)
            record["result_ref"] = ref.as_dict()
        if content is not None or "select" in wanted:
            parts = Payload(payload) if outcome.stored is None else Payload(None, record["result_ref"], self._reader)
            await extract(record, parts, plan, self._demand, self._extracted_max_bytes)
            if content is not None:
                extracted = record.get("extracted")
                events.append(_stored_event(ref, content, wanted, frame, now, move, extracted))
        elif not outcome.data_at and not outcome.helper and not outcome.files:
            return record, []  # its size is checked already
        problem = self._oversized(record, plan)
        if problem is None:
            return record, events
        if outcome.error is not None:
            # The error is more important than the tool's additional data.
            return _refused(plan, outcome.error), []
        return _refused(plan, problem), []

    def _files(self, move: Run, frame: Frame, outcome: Outcome, record: dict[str, Any], now: int) -> list[Event]:
        """Add the refs of the task's files to the record. Returns the events that record the files."""
        plan = move.task.plan
        refs: dict[str, Any] = {}
        events: list[Event] = []
        for name, file in outcome.files.items():
            ref = self._ref(frame, f"{plan.name}.{name}", file.content, None)
            ref = replace(ref, meta=replace(ref.meta, file=file.name))
            refs[name] = ref.as_dict()
            event = _stored_event(ref, file.content, plan.spec.get("result") or {}, frame, now, move)
            event.payload["file"] = name
            events.append(event)
        if refs:
            record["files"] = refs
        return events

    async def set_iter(
        self, move: Run, frame: Frame, values: dict[str, Any], results: TaskResults, now: int, room: int
    ) -> tuple[dict[str, Any], dict[str, Any], list[Event]]:
        """Split the values that a rule sets in iter: small ones, up to `room` bytes, and refs with their events."""
        small: dict[str, Any] = {}
        refs: dict[str, Any] = {}
        events: list[Event] = []
        for name, value in values.items():
            body = encode(value) if isinstance(value, _MEASURED) and value else b""
            if len(body) <= min(self._limits.inline_max_bytes, room):
                small[name] = value
                room -= len(body)
                continue
            content = await _written(value, body, results)
            ref = self._ref(frame, move.task.plan.name, content, value)
            refs[name] = ref.as_dict()
            events.append(_stored_event(ref, content, {"scope": "step"}, frame, now, move))
        return small, refs, events

    async def items(
        self, frame: Frame, items: list[Any], results: TaskResults, now: int
    ) -> tuple[dict[str, Any], Event]:
        """Store the items of a loop. Returns their ref and the event that records it."""
        content = await _written(items, b"", results)
        ref = self._ref(frame, "items", content, items)
        return ref.as_dict(), _stored_event(ref, content, {"scope": "step"}, frame, now)

    async def _stored(self, payload: Any, wanted: Mapping[str, Any], results: TaskResults) -> Content | None:
        """Store the payload if it is too large for the log, or if the task stores every result."""
        always = wanted.get("store") == "always" and payload is not None
        if not always and not isinstance(payload, _MEASURED):
            return None
        body = encode(payload)
        most = min(self._limits.inline_max_bytes, wanted.get("inline_max_bytes", self._limits.inline_max_bytes))
        return await _written(payload, body, results) if always or len(body) > most else None

    def _ref(self, frame: Frame, task: str, content: Content, payload: Any) -> ResultRef:
        kind = DATA if content.rows is None else LIST
        hint = (_HINTS.get(type(payload)) or _hint_of(content)) if kind == DATA else "list"
        meta = RefMeta(content.bytes, content.sha256, content.content_type, content.compression, hint, content.rows)
        return ResultRef(kind, self._store, ref_text(frame.execution_id, f"{frame.step}.{task}", content.sha256), meta)

    def _shortened(self, outcome: Outcome, problem: TaskError) -> Outcome:
        """Shorten an error's message: several events contain it, and each needs room for other fields."""
        most = min(_LONGEST_MESSAGE, event_room(self._limits) // 8)
        if len(problem.message) <= most:
            return outcome
        left_out = len(problem.message) - most
        message = f"{problem.message[:most]} … ({left_out} more characters)"
        return replace(outcome, error=replace(problem, message=message))

    def _oversized(self, record: dict[str, Any], plan: TaskPlan) -> TaskError | None:
        cap = event_room(self._limits)
        size = len(encode(record))
        if size <= cap:
            return None
        message = f"the outcome of task {plan.name} takes {size} bytes; an event holds {cap} (limits.max_payload_bytes)"
        return error("limit", message, code="MAX_PAYLOAD_BYTES")


def _hint_of(content: Content) -> str:
    """Return the type of streamed content: from its content type, or for JSON from its first character."""
    kind = content.content_type.partition(";")[0].strip().lower()
    if kind.startswith("text/"):
        return "text"
    if not is_json(content.content_type):
        return "bytes"
    first = content.preview.lstrip("\ufeff \t\r\n")[:1]
    return _JSON_HINTS.get(first, "number" if first in _DIGITS else "")


async def _written(payload: Any, body: bytes, results: TaskResults) -> Content:
    """Store a value: a list item by item, text as it is, anything else as the JSON in `body`."""
    listed, text = isinstance(payload, list), isinstance(payload, str)
    kind = "text/plain; charset=utf-8" if text else "application/json"
    writer = results.writer(listed=listed, content_type=kind)
    try:
        if listed:
            for at in range(0, len(payload), _ITEMS_AT_A_TIME):
                await writer.add(payload[at : at + _ITEMS_AT_A_TIME])
        else:
            await writer.write(payload.encode() if text else body)
        return await writer.commit()
    except BaseException:
        await writer.abandon()
        raise


def _without_payload(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record without the stored part of its result."""
    where = record.get("data_at")
    result = record.get("result")
    kept = {key: value for key, value in record.items() if key != "result"}
    if where and isinstance(result, dict):
        kept["result"] = {key: value for key, value in result.items() if key != where}
    return kept


def _stored_event(
    ref: ResultRef,
    content: Content,
    wanted: Mapping[str, Any],
    frame: Frame,
    now: int,
    move: Run | None = None,
    extracted: Mapping[str, Any] | None = None,
) -> Event:
    payload: dict[str, Any] = {"result_ref": ref.as_dict(), "scope": wanted.get("scope", "execution")}
    if extracted:
        payload["extracted"] = extracted
    if "ttl" in wanted:
        payload["ttl_s"] = wanted["ttl"]
    if content.preview:
        payload["preview"] = content.preview
    event = Event("result.stored", now, step=frame.step, run=frame.run, iteration=frame.iteration, payload=payload)
    if move is not None:
        event.task, event.task_run = move.task.plan.name, move.task_run
    return event


def _refused(plan: TaskPlan, problem: TaskError) -> dict[str, Any]:
    return {**failed(problem).as_record(), **plan.helper}


# The parts of a stored payload that stay in the log: those that routing reads, and those that the task's `select`
# names.


class Payload:
    """A payload with readable parts, in memory or in the result store."""

    def __init__(self, value: Any, ref: Mapping[str, Any] | None = None, reader: StoredReader | None = None) -> None:
        self._value = value
        self._ref = ref
        self._reader = reader

    async def part(self, path: Path, most: int) -> tuple[Any, int]:
        """Return the value at a path, or MISSING, and its size in bytes. Above `most`, only the size is valid."""
        if self._reader is None or self._ref is None:
            value = value_at(self._value, path, MISSING)
        elif not path or not self._reader.can_look_into(self._ref):
            return MISSING, max(int(self._ref["meta"]["bytes"]), most + 1)
        else:
            value = await self._reader.at(self._ref, path)
        return value, len(encode(value)) if isinstance(value, _MEASURED) else 0

    async def measured(self, path: Path, size: int) -> dict[str, int]:
        """Return the size of the value at a path: bytes, and items of a list or map."""
        if self._reader is None or self._ref is None:
            value = value_at(self._value, path, MISSING)
            items = len(value) if isinstance(value, list | dict) else None
        else:
            items = self._ref["meta"].get("rows") if not path else None
        return {"bytes": size} if items is None else {"bytes": size, "items": items}


async def extract(record: dict[str, Any], payload: Payload, plan: TaskPlan, demand: frozenset[Path], most: int) -> None:
    """Add the parts to the record. Parts that are too large are listed with their size, missing ones with null.

    A part that `select` names must fit: the author asked for it.
    """
    selected = {part["as"]: path_of_text(part["path"]) for part in (plan.spec.get("result") or {}).get("select") or ()}
    stored = "result_ref" in record
    wanted = {path_text(path): path for path in payload_paths(plan, demand)} if stored else {}
    extracted: dict[str, Any] = {}
    left_out: dict[str, Any] = {}
    for name, path in {**wanted, **selected}.items():
        if name not in selected and any(path_text(path[:length]) in extracted for length in range(len(path))):
            continue  # a larger part contains it
        value, size = await payload.part(path, most)
        if size > most:
            if name in selected:
                raise ResultUnavailable(
                    f"task {plan.name}: the part that `select` names {name} takes {size} bytes; "
                    f"at most {most} are kept in the log (results.extracted_max_bytes)"
                )
            left_out[name] = await payload.measured(path, size)
        elif value is MISSING:
            left_out[name] = None
        else:
            extracted[name] = value
    if extracted:
        record["extracted"] = extracted
    if left_out and stored:
        record["left_out"] = left_out


class TaskResults:
    """The result sink of one task attempt."""

    def __init__(self, results: Results, tenant: str, inline_max_bytes: int) -> None:
        self.inline_max_bytes = inline_max_bytes
        self._results = results
        self._tenant = tenant
        self._fetching = Fetching(results, tenant)

    def writer(self, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        return self._results.writer(self._tenant, listed=listed, content_type=content_type)

    def read(self, ref: ResultRef) -> AsyncIterator[bytes]:
        return self._fetching.chunks(ref.as_dict(), parse_ref(ref.ref).sha256)

    async def read_items(self, ref: ResultRef) -> AsyncIterator[list[Any]]:
        if ref.kind != LIST:
            raise TypeError(f"{ref.ref} is not a list")
        known, sha256 = ref.as_dict(), parse_ref(ref.ref).sha256
        at = 0
        while at < (ref.meta.rows or 0):
            yield await self._fetching.items(known, sha256, at, at + _ITEMS_AT_A_TIME)
            at += _ITEMS_AT_A_TIME
