"""Events across runs for readers: complete envelopes, each with the name and scope of its run."""

from __future__ import annotations

from asyncio import gather, to_thread
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from arclog.expr import DEFAULT_LIMITS, Limits, compile_condition
from arclog.model.envelope import Subject, widen
from arclog.model.errors import ExpressionError, RequestRejected
from arclog.model.events import REGISTRY
from arclog.ports.storage.store import EventQuery, ExecutionRecord, Store, StoredEvent

#: Number of events that are read at a time in the search for those of an entity or with a condition.
_PAGE = 1000

#: Matches no event.
NO_TYPE = ("",)

Matches = Callable[[dict[str, Any]], bool]


def subject_of(record: ExecutionRecord) -> Subject:
    """Return the fields that all envelopes of a run share."""
    scope = record.new.scope
    tenancy = {"tenant_id": scope.tenant, "project_id": scope.project, "environment_id": scope.environment}
    return Subject(record.execution_id, record.new.name, tenancy)


def widened(stored: StoredEvent, subject: Subject) -> dict[str, Any]:
    return widen(stored.event, subject, stored.seq, stored.event_id, stored.persisted_at)


def types_about(entity_type: str, types: Sequence[str]) -> tuple[str, ...]:
    """Return those of the types, or of all types, that are about a kind of entity. Raises RequestRejected."""
    if not entity_type:
        raise RequestRejected("`entity_id` requires `entity_type`")
    entity_types = {row.entity for row in REGISTRY.values()}
    if entity_type not in entity_types:
        raise RequestRejected(
            f"there is no entity_type {entity_type[:60]!r}; there are {', '.join(sorted(entity_types))}"
        )
    own = tuple(name for name, row in REGISTRY.items() if row.entity == entity_type and (not types or name in types))
    return own or NO_TYPE


async def entity_events(
    store: Store, record: ExecutionRecord, types: Sequence[str], entity_id: str, after: int, limit: int
) -> list[dict[str, Any]]:
    """Return envelopes of some types about one entity; '' means any."""
    subject = subject_of(record)
    found_events: list[dict[str, Any]] = []
    while len(found_events) < limit:
        stored = await store.events(record.execution_id, after=after, limit=_PAGE, types=types)
        envelopes = [widened(event, subject) for event in stored]
        found_events += [envelope for envelope in envelopes if entity_id in ("", envelope["entity_id"])]
        if len(stored) < _PAGE:
            break
        after = stored[-1].seq
    return found_events[:limit]


def matches_of(entity: str, where: str, limits: Limits = DEFAULT_LIMITS) -> Matches | None:
    """Return a function that tells whether an envelope is about an entity (`TYPE[:ID]`) and fulfils a condition over
    its fields; None if every envelope matches. An event without a field that the condition reads does not match. Raises
    RequestRejected.
    """
    kind, _, name = entity.partition(":")
    if entity:
        types_about(kind, ())  # raises for an unknown type
    try:
        condition = compile_condition(where, limits=limits) if where.strip() else None
    except ExpressionError as error:
        raise RequestRejected(f"`where` is not an expression: {error}") from error
    if condition is None and not entity:
        return None

    def matches(event: dict[str, Any]) -> bool:
        if kind and event["entity_type"] != kind:
            return False
        if name and event["entity_id"] != name:
            return False
        if condition is None:
            return True
        try:
            return bool(condition.evaluate({**event, "event": event}))
        except ExpressionError:
            return False

    return matches


async def search(
    store: Store, query: EventQuery, cursor: str, limit: int, matches: Matches | None = None
) -> tuple[list[dict[str, Any]], str, bool]:
    """Return a page of envelopes, its cursor, and whether there may be more. With `matches`, a page reads at most
    `_PAGE` events.
    """
    if matches is None:
        page = await store.search(query, cursor=cursor, limit=limit)
        return (
            [envelope for envelope in await _widened(store, page.events) if envelope is not None],
            page.cursor,
            page.more,
        )
    matching: list[dict[str, Any]] = []
    left, size = max(limit, _PAGE), limit
    while True:
        size = min(size, left)
        page = await store.search(query, cursor=cursor, limit=size)
        envelopes = await _widened(store, page.events)
        wanted = await to_thread(_wanted, envelopes, matches)  # conditions can be slow, and must not delay other work
        is_last = len(page.events) < size or not page.more or left == size
        if len(matching) + len(wanted) > limit:  # the cursor must be after the last returned event
            wanted = wanted[: limit - len(matching)]
            page = await store.search(query, cursor=cursor, limit=wanted[-1] + 1)
        matching += [envelope for index in wanted if (envelope := envelopes[index]) is not None]
        if is_last or len(matching) == limit:
            return matching, page.cursor, page.more
        # An estimate of the number that fills the page, if the others match as often as these did.
        left -= size
        read = max(limit, _PAGE) - left
        size = -(-(limit - len(matching)) * read // len(matching)) if matching else size * 4
        cursor = page.cursor


def _wanted(envelopes: Sequence[dict[str, Any] | None], matches: Matches) -> list[int]:
    return [index for index, envelope in enumerate(envelopes) if envelope is not None and matches(envelope)]


async def _widened(store: Store, events: Sequence[StoredEvent]) -> list[dict[str, Any] | None]:
    """Return the envelope of each event; None if its run has been removed."""
    subjects = await _subjects(store, (event.execution_id for event in events))
    return [
        widened(event, subjects[event.execution_id]) if event.execution_id in subjects else None for event in events
    ]


async def _subjects(store: Store, execution_ids: Iterable[int]) -> dict[int, Subject]:
    wanted = dict.fromkeys(execution_ids)
    records = await gather(*map(store.execution, wanted))  # PostgreSQL answers all of them in one request
    return {execution_id: subject_of(record) for execution_id, record in zip(wanted, records, strict=True) if record}
