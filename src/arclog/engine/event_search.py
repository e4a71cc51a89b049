"""Events across runs as readers see them: full envelopes, each with the name and the scope of its run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from arclog.model.envelope import Subject, widen
from arclog.model.errors import RequestRejected
from arclog.model.events import REGISTRY
from arclog.ports.event_search import EventQuery, StoredEvent
from arclog.ports.store import ExecutionRecord, Store

#: Events that are read at a time while one entity's are looked for.
_PAGE = 1000


def subject_of(record: ExecutionRecord) -> Subject:
    """What all envelopes of a run have in common."""
    scope = record.new.scope
    tenancy = {"tenant_id": scope.tenant, "project_id": scope.project, "environment_id": scope.environment}
    return Subject(record.execution_id, record.new.name, tenancy)


def widened(stored: StoredEvent, subject: Subject) -> dict[str, Any]:
    return widen(stored.event, subject, stored.seq, stored.event_id, stored.persisted_at)


def types_about(entity_type: str, types: Sequence[str]) -> tuple[str, ...]:
    """Those of the types, or of all, that are about a kind of entity. Raises RequestRejected."""
    if not entity_type:
        raise RequestRejected("`entity_id` needs `entity_type`: an id is one of its kind")
    known = {row.entity for row in REGISTRY.values()}
    if entity_type not in known:
        raise RequestRejected(f"there is no entity_type {entity_type[:60]!r}; there are {', '.join(sorted(known))}")
    own = tuple(name for name, row in REGISTRY.items() if row.entity == entity_type and (not types or name in types))
    return own or ("",)  # nothing fits both: no event has that type


async def entity_events(
    store: Store, record: ExecutionRecord, types: Sequence[str], entity_id: str, after: int, limit: int
) -> list[dict[str, Any]]:
    """Envelopes of some types that are about one entity; '' is any."""
    subject = subject_of(record)
    found: list[dict[str, Any]] = []
    while len(found) < limit:
        stored = await store.events(record.execution_id, after=after, limit=_PAGE, types=types)
        envelopes = [widened(one, subject) for one in stored]
        found += [one for one in envelopes if entity_id in ("", one["entity_id"])]
        if len(stored) < _PAGE:
            break
        after = stored[-1].seq
    return found[:limit]


async def search(store: Store, query: EventQuery, cursor: str, limit: int) -> tuple[list[dict[str, Any]], str, bool]:
    """A page of envelopes, its cursor, and whether there may be more."""
    page = await store.search(query, cursor=cursor, limit=limit)
    subjects = await _subjects(store, (one.execution_id for one in page.events))
    found = [widened(one, subjects[one.execution_id]) for one in page.events if one.execution_id in subjects]
    return found, page.cursor, page.more


async def _subjects(store: Store, execution_ids: Iterable[int]) -> dict[int, Subject]:
    found: dict[int, Subject] = {}
    for execution_id in dict.fromkeys(execution_ids):
        record = await store.execution(execution_id)
        if record is not None:  # else it was removed meanwhile
            found[execution_id] = subject_of(record)
    return found
