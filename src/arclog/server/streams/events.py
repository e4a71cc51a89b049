"""A run's events in any dialect: a page of them, or a stream that follows the run to its end.

How a dialect renders an event may depend on earlier events. Then the reader gets those again, and records at or before
the cursor are left out. Several records of one seq are never split, neither between pages nor by a resumed stream.
"""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import msgspec

from arclog.dialects.names import DIALECTS, MEANINGS, asked_for, canonical_types, reader_of
from arclog.dialects.rendering import Reader, Rendered
from arclog.dialects.run_record import RunSubject
from arclog.engine.views.event_search import types_about
from arclog.model.errors import ArclogError, NotAllowed, RequestRejected, Unauthenticated
from arclog.operations.events import EventPage
from arclog.ports.storage.task_logs import LogFilter
from arclog.ports.views.api import Api
from arclog.server.call import Call
from arclog.server.services import ReaderPositions, Services, position_of
from arclog.server.streams.waiting import unless_stopping

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────────


_PAGE = 500
#: The last event of a log: all follow-up work of the run's end is done.
_LAST = "playbook.processed"
#: Pause before the next check of a run that has ended but whose log is incomplete.
_LOOK_AGAIN_S = 0.25
KEEP_ALIVE = b": keep-alive\n\n"


#: The type and the id of an entity; '' = any.
Entity = tuple[str, str]


class RunEvents:
    """One run, one dialect, one filter by names of any dialect."""

    def __init__(
        self,
        api: Api,
        execution_id: str,
        dialect: str,
        names: Sequence[str],
        positions: ReaderPositions | None = None,
        entity: Entity = ("", ""),
    ) -> None:
        if dialect not in DIALECTS:
            raise RequestRejected(f"there is no dialect {dialect!r}; there are {', '.join(DIALECTS)}")
        check_names(names)
        if any(entity):
            types_about(entity[0], ())  # raises for an unknown type
        self._entity = entity
        self._api = api
        self._id = execution_id
        self._dialect = dialect
        self._names = names
        #: positions of readers are kept by the filter
        self._shown = (*names, *entity) if any(entity) else names
        self._positions = positions or ReaderPositions()

    async def _begun(self, after: int) -> tuple[Reader, int, tuple[str, ...]]:
        """A reader, the position where it begins, and the canonical types that it reads."""
        subject = RunSubject("", "", "")
        if self._dialect == "run":  # only the Run Events Contract names the run and its plan in every record
            (run,) = await self._api.list(before=str(int(self._id) + 1), limit=1)
            subject = RunSubject(run.run_id, run.path, run.version)
        position = self._positions.best(self._id, self._dialect, self._shown, after)
        reader = reader_of(self._dialect, subject, None if position is None else position.state)
        if reader.needs == frozenset():
            types = canonical_types(self._names)
            return reader, after, types_about(self._entity[0], types) if any(self._entity) else types
        return reader, 0 if position is None else position.at, tuple(reader.needs or ())

    def _keep(self, reader: Reader, at: int, rendered: int) -> None:
        """Keep the position of a reader, unless it can begin anywhere."""
        if reader.needs != frozenset():
            self._positions.keep(self._id, self._dialect, self._shown, position_of(reader, at, rendered))

    def _filtered(self, records: Sequence[Rendered], after: int) -> list[Rendered]:
        return [
            record
            for record in records
            if record.seq > after
            and (not self._names or asked_for(record, self._names))
            and _is_about(record, self._entity)
        ]

    async def page(self, after: int, limit: int) -> EventPage:
        """Records after a seq: `limit` of them, or a few more if one seq has several."""
        over = await self._ended()
        reader, at, types = await self._begun(after)
        records: list[Rendered] = []
        # If each event is rendered on its own, no more events are read than requested.
        size = min(_PAGE, limit + 1) if reader.needs == frozenset() else _PAGE
        while len(records) <= limit:
            page = await self._api.events(self._id, after=at, limit=size, types=types)
            records += self._filtered([record for envelope in page for record in reader.render(envelope)], after)
            if page:
                at = page[-1]["seq"]
            # Keep the position only if this page has everything up to it: the rest would be missing from the next page.
            if len(records) <= limit and at + 2 * _PAGE >= after:
                self._keep(reader, at, records[-1].seq if records else after)
            if len(page) < size:
                # Records that a dialect holds back until it sees more events are added at the end of the log.
                records += self._filtered(reader.held_back(), after) if over else []
                break
        cut = limit
        while 0 < cut < len(records) and records[cut].seq == records[cut - 1].seq:
            cut += 1
        shown = records[:cut]
        last = shown[-1].seq if shown else after
        return EventPage([record.record for record in shown], last, more=cut < len(records))

    async def stream(
        self,
        services: Services,
        after: int,
        frames: Callable[[Sequence[Rendered]], bytes] | None = None,
        pace_s: float = 0,
    ) -> AsyncGenerator[bytes, None]:
        """Server-sent events after a seq, to the end of the log or until the server stops. `frames` writes records in
        another form; with `pace_s`, events within that time are sent together.
        """
        frames = frames or _frames
        reader, at, types = await self._begun(after)
        sent_to = noted = after
        if types:
            types = (*types, _LAST)  # not sent unless requested, but needed to see the end
        clock, keep_alive_s = services.clock, services.settings.number("server.keep_alive_s")
        # Send headers and a first byte at once, so that the client knows that the stream is open.
        yield KEEP_ALIVE
        sent_at = clock.monotonic()
        head = 0
        over = await self._ended()
        while not services.draining():
            while page := await self._api.events(self._id, after=at, limit=_PAGE, types=types):
                at = page[-1]["seq"]
                over = over or any(map(_ends_the_log, page))
                records = self._filtered([record for envelope in page for record in reader.render(envelope)], after)
                if records:
                    sent_to = records[-1].seq
                    yield frames(records)
                    sent_at = clock.monotonic()
                if at - noted >= _PAGE:
                    noted = at
                    self._keep(reader, at, sent_to)
                if len(page) < _PAGE or services.draining():
                    break
            if services.draining():
                return
            if over:
                rest = self._filtered(reader.held_back(), after)
                if rest:
                    yield frames(rest)
                return
            # The run may continue for long without a matching event, so keep-alives depend on the time of the last
            # frame.
            left_s = sent_at + keep_alive_s - clock.monotonic()
            if left_s <= 0:
                yield KEEP_ALIVE
                sent_at, left_s = clock.monotonic(), keep_alive_s
            head = await unless_stopping(services, self._news(max(head, at), left_s)) or head
            if pace_s:
                await unless_stopping(services, sleep(pace_s))

    async def _news(self, head: int, timeout_s: float) -> int:
        """The head when it has moved, or after the time-out."""
        now = await self._api.wait(self._id, after=head, timeout_s=timeout_s)
        if now <= head and (await self._api.status(self._id)).ended_at is not None:
            await sleep(_LOOK_AGAIN_S)
            now = await self._api.wait(self._id, timeout_s=0)
        return now

    async def is_over(self, after: int) -> bool:
        """Return whether no event will ever follow this seq."""
        return await self._ended() and not await self._api.events(self._id, after=after, limit=1)

    async def _ended(self) -> bool:
        after = 0
        while page := await self._api.events(self._id, after=after, limit=_PAGE, types=(_LAST,)):
            if any(map(_ends_the_log, page)):
                return True
            after = page[-1]["seq"]
        return False


def check_names(names: Sequence[str]) -> None:
    """Refuse names of event types that no dialect has."""
    for name in names:
        if name not in MEANINGS:
            near = get_close_matches(name, MEANINGS, n=1)
            hint = f"did you mean {near[0]}?" if near else "see docs/events.md"
            raise RequestRejected(f"no dialect has an event type {name!r}; {hint}")


def _ends_the_log(envelope: dict[str, Any]) -> bool:
    """An end that an outside producer reports is not the end of the log."""
    return envelope["event_type"] == _LAST and not envelope.get("informative")


def _is_about(record: Rendered, entity: Entity) -> bool:
    """Return whether a record is about an entity. Derived records are about commands."""
    kind, name = entity
    if not kind:
        return True
    if not record.derived:
        return kind == record.source["entity_type"] and name in ("", record.source["entity_id"])
    command = record.record.get("command_id") or record.record["meta"]["command_id"]
    return kind == "command" and name in ("", command)


def _frames(records: Sequence[Rendered]) -> bytes:
    """One frame a record. Only the last one of a seq has the id: a client that loses its connection in between gets
    all of them again.
    """
    frames: list[bytes] = []
    for index, record in enumerate(records):
        if index + 1 == len(records) or records[index + 1].seq != record.seq:
            frames.append(f"id: {record.seq}\n".encode())
        frames.append(b"data: " + msgspec.json.encode(record.record) + b"\n\n")
    return b"".join(frames)


# ── logs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Output of a run's tasks as server-sent events: every line once and in order, to the run's end.
#
# The id of a message is the line's position, from which a client continues after a lost connection.


#: New lines cause no notification, so they are polled at this interval.
_LOOK_S = 0.25


async def log_stream(
    services: Services, api: Api, execution_id: str, where: LogFilter, after: int
) -> AsyncGenerator[bytes, None]:
    """Lines after a position, until the run ends or the server stops."""
    clock, keep_alive_s = services.clock, services.settings.number("server.keep_alive_s")
    yield KEEP_ALIVE
    sent_at = clock.monotonic()
    head = 0
    while not services.draining():
        # Read before the lines: a run's output is stored before its end is.
        over = (await api.status(execution_id)).ended_at is not None
        while page := await api.logs(execution_id, after=after, limit=_PAGE, where=where):
            after = page[-1]["position"]
            yield b"".join(map(_frame, page))
            sent_at = clock.monotonic()
            if len(page) < _PAGE or services.draining():
                break
        if over:
            return
        if clock.monotonic() - sent_at >= keep_alive_s:
            yield KEEP_ALIVE
            sent_at = clock.monotonic()
        head = await unless_stopping(services, api.wait(execution_id, after=head, timeout_s=_LOOK_S)) or head


def _frame(line: dict[str, Any]) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (line["position"], msgspec.json.encode(line))


# ── permits ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# A stream ends when its caller loses the right to it: the caller is authenticated again every `auth.cache_s`.
#
# A store that is temporarily unavailable does not end the stream. A revoked key, an expired token, or another role or
# tenant does, and the last message says so.


#: The shortest interval between two checks.
_SHORTEST_S = 0.05


async def while_allowed(call: Call, roles: frozenset[str], frames: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """The frames, as long as the caller is allowed to read them."""
    lost = asyncio.ensure_future(_lost(call, roles))
    try:
        while True:
            coming = asyncio.ensure_future(anext(frames, None))
            try:
                await asyncio.wait((coming, lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
            if lost.done():
                yield _denied_frame(lost.result())
                return
            frame = coming.result()
            if frame is None:
                return
            yield frame
    finally:
        lost.cancel()
        with suppress(asyncio.CancelledError):
            await lost
        await frames.aclose()


async def _lost(call: Call, roles: frozenset[str]) -> ArclogError:
    """Return the reason once the caller is no longer allowed."""
    services, before = call.services, call.principal
    pause = max(_SHORTEST_S, services.settings.number("auth.cache_s"))
    while True:
        await services.clock.sleep(pause)
        try:
            now = await services.authenticate(call.headers, call.address)
        except (Unauthenticated, NotAllowed) as problem:
            return problem
        except ArclogError:
            continue
        if (now.subject, now.tenant) != (before.subject, before.tenant) or not now.may(roles):
            return NotAllowed(f"{before.name} is no longer allowed to follow this")


def _denied_frame(problem: ArclogError) -> bytes:
    problem_body = msgspec.json.encode({"title": type(problem).__name__, "detail": str(problem)})
    return b": the stream ends here\n\nevent: denied\ndata: " + problem_body + b"\n\n"
