"""The engine's side of `ports.ingest`: writes an external event to the log, once.

Invariant: an id that is being written in this process is waited for. Then the event is appended. If the store refuses
the id because it is known, the recorded event is compared. So of several senders with the same id one writes, and all
get its seq.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from arclog.core.boundary.inputs import GaveUp, Observed, WorkReported
from arclog.core.boundary.reports import WORKER_TYPES
from arclog.core.boundary.wire_reports import next_task, pipeline_error, wire_command
from arclog.dialects.wire import PRODUCER, REF, WORKER
from arclog.dialects.wire_incoming import Incoming, names_a_command, parse_batch, parse_event
from arclog.engine.commits import batch
from arclog.engine.commits.engine import MAX_CONFLICTS, Engine
from arclog.engine.dispatch.refusals import Refusals, ended_command
from arclog.model.commands import Command, WireCommand
from arclog.model.data.lru import LruCache
from arclog.model.errors import (
    ArclogError,
    Conflict,
    EventDiffers,
    NotAllowed,
    NotFound,
    NotHolder,
    RequestRejected,
    StaleFence,
)
from arclog.model.events import Event
from arclog.model.ids import MICROS, moved
from arclog.model.refs import parse_ref
from arclog.ports.boundary import Boundary
from arclog.ports.ingest import RecordedEvent
from arclog.ports.storage.store import EventIdTaken, Ingested, Scope
from arclog.ports.work import WORKER_ID

Answer = RecordedEvent | ArclogError

#: Maximum number of events of one execution that share a commit.
_TOGETHER = 1000
#: Roles with which a caller acts as a worker, and as a producer.
_WORK, _PRODUCE = frozenset({WORKER}), frozenset({PRODUCER})
#: Fields that result.stored and the end of its task share.
_REFERENCE = ("result_ref", "extracted")


class EngineIngest:
    """Implements `ports.ingest.Ingest`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        settings = engine.settings
        self._most_in_batch = settings.integer("ingest.max_batch_events")
        self._most_in_run = settings.integer("ingest.max_events")
        self._largest = settings.integer("limits.max_payload_bytes")
        self._lease_us = round(settings.number("leases.seconds") * MICROS)
        self._max_losses = settings.integer("leases.max_losses")
        self._refusals = Refusals(engine)
        #: the scope of an execution, which never changes
        self._scopes: LruCache[int, Scope] = LruCache(settings.integer("engine.cache_executions"))
        #: (execution_id, event_id) pairs that this process is writing
        self._under_way: dict[tuple[int, int], asyncio.Future[None]] = {}

    async def event(self, body: Any, caller: Boundary) -> RecordedEvent:
        incoming = parse_event(body, _role(caller, body), self._engine.clock.now(), sender=caller.name)
        execution_id = incoming.execution_id
        scope = self._scopes.get(execution_id) or await self._scope(execution_id)
        if scope is not None and not incoming.grant.needs_lease and caller.sees(scope):
            answer = await self._observed_alone(execution_id, incoming)
        else:
            (answer,) = await self._take(caller, execution_id, [incoming])
        if isinstance(answer, ArclogError):
            raise answer
        return answer

    async def batch(self, body: Any, caller: Boundary) -> list[Answer]:
        now = self._engine.clock.now()
        parsed = parse_batch(body, lambda item: _role(caller, item), now, self._most_in_batch, caller.name)
        understood = [incoming for incoming in parsed if isinstance(incoming, Incoming)]
        taken = iter(await self._take_all(caller, understood))
        return [
            next(taken)
            if isinstance(incoming, Incoming)
            else (NotAllowed if incoming.status == 403 else RequestRejected)(incoming.message)
            for incoming in parsed
        ]

    async def commands(self, claimed: Sequence[Command]) -> list[WireCommand]:
        commands: list[WireCommand] = []
        for body in claimed:
            live = await self._engine.seen(body.execution_id)
            command = live.state.commands.get(body.command_id)
            if command is not None and command.fence == body.fence:
                commands.append(wire_command(live.program, live.state, command, body))
        return commands

    # -- one after the other ------------------------------------------------------------------------------------------

    async def _take_all(self, caller: Boundary, items: Sequence[Incoming]) -> list[Answer]:
        """Return the answer to each item. Executions do not wait for each other; the items of one keep their order."""
        by_execution: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            by_execution.setdefault(item.execution_id, []).append(index)
        answers: dict[int, Answer] = {}

        async def take(execution_id: int, mine: list[int]) -> None:
            results = await self._take(caller, execution_id, [items[index] for index in mine])
            answers.update(zip(mine, results, strict=True))

        if len(by_execution) == 1:
            await take(*next(iter(by_execution.items())))
        else:
            await asyncio.gather(*(take(execution_id, mine) for execution_id, mine in by_execution.items()))
        return [answers[index] for index in range(len(items))]

    async def _take(self, caller: Boundary, execution_id: int, items: Sequence[Incoming]) -> list[Answer]:
        scope = self._scopes.get(execution_id) or await self._scope(execution_id)
        answers: list[Answer] = []
        for group in _groups(items):
            leased = group[0].grant.needs_lease
            if scope is None or not (caller.serves(scope) if leased else caller.sees(scope)):
                answers += [NotFound(f"there is no execution {execution_id}")] * len(group)
            elif leased:
                answers += [await self._reported(item, caller) for item in group]
            else:
                answers += await self._observed(execution_id, group)
        return answers

    async def _scope(self, execution_id: int) -> Scope | None:
        """Return the scope of an execution, or None if it does not exist."""
        record = await self._engine.store.execution(execution_id)
        return None if record is None else self._scopes.put(execution_id, record.new.scope)

    # -- facts ---------------------------------------------------------------------------------------------------------

    async def _observed(self, execution_id: int, items: Sequence[Incoming]) -> list[Answer]:
        """Record the new items in one commit."""
        refusals = [self._too_large(item) for item in items]
        fitting = [item for item, refusal in zip(items, refusals, strict=True) if refusal is None]
        own = {item.event.own_id for item in fitting} - {0}
        keys = [(execution_id, event_id) for event_id in own]
        done = await self._begin(keys)
        try:
            answers = iter(await self._once(execution_id, fitting, own))
        finally:
            self._end(keys, done)
        return [refusal or next(answers) for refusal in refusals]

    async def _observed_alone(self, execution_id: int, item: Incoming) -> Answer:
        """Record one item, as `_observed` would, without its lists."""
        if refusal := self._too_large(item):
            return refusal
        own_id = item.event.own_id
        keys = ((execution_id, own_id),) if own_id else ()
        done = await self._begin(keys)
        try:
            for _ in range(MAX_CONFLICTS):
                answer: Answer | None = None
                try:
                    (answer,) = await self._write(execution_id, (item,))
                except EventIdTaken:
                    pass
                if isinstance(answer, RecordedEvent):
                    return answer
                # A run that accepts no more events still answers for recorded ones.
                earlier = (await self._ingested(execution_id, {own_id})).get(own_id) if own_id else None
                if earlier is not None:
                    return _again(item, earlier)
                if answer is not None:
                    return answer
        finally:
            self._end(keys, done)
        raise _contended(execution_id)

    async def _once(self, execution_id: int, items: Sequence[Incoming], own: set[int]) -> list[Answer]:
        accepted: dict[int, Ingested] = {}
        for _ in range(MAX_CONFLICTS):
            fresh = _fresh(items, accepted)
            try:
                written = await self._write(execution_id, list(fresh.values()))
            except EventIdTaken:
                accepted = await self._ingested(execution_id, own)
                continue
            answers = dict(zip(fresh, written, strict=True))
            refusal = next((result for result in written if isinstance(result, ArclogError)), None)
            if refusal is not None and own and not accepted:
                # A run that accepts no more events still answers for recorded ones.
                accepted = await self._ingested(execution_id, own)
                if accepted:
                    continue
            for index, item in fresh.items():
                answer = answers[index]
                if isinstance(answer, RecordedEvent):
                    accepted[item.event.own_id] = Ingested(item.event.own_id, item.digest, answer.seq)
            return [answers.get(index) or _answer_again(item, accepted, refusal) for index, item in enumerate(items)]
        raise _contended(execution_id)

    async def _write(self, execution_id: int, items: Sequence[Incoming]) -> list[Answer]:
        if not items:
            return []
        events = [item.event for item in items]
        digests = {item.event.own_id: item.digest for item in items if item.event.own_id}
        answer = await self._engine.put(execution_id, Observed(events, digests, self._most_in_run))
        if answer.refused is not None:
            refusal = RequestRejected(f"{answer.refused.message} (ingest.max_events)")
            return [refusal] * len(items)
        return _taken(items, answer)

    def _too_large(self, item: Incoming) -> RequestRejected | None:
        size = len(msgspec.json.encode(item.event.payload))
        if size <= self._largest:
            return None
        return RequestRejected(
            f"the event's payload takes {size} bytes; an event holds {self._largest} (limits.max_payload_bytes): "
            "store the data elsewhere and send `result_kind: ref` with its `result_uri`"
        )

    # -- reports ------------------------------------------------------------------------------------------------------

    async def _reported(self, item: Incoming, caller: Boundary) -> Answer:
        """Process a worker's event about a command that it holds; it continues the command's report."""
        event = item.event
        own = {event.own_id} - {0}
        if refusal := self._too_large(item):
            return refusal
        try:
            _check_names(event)
            keys = [(item.execution_id, event_id) for event_id in own]
            done = await self._begin(keys)
            try:
                for _ in range(MAX_CONFLICTS):
                    # Checked first: a repeated report of an ended command gets the same answer as before.
                    accepted = await self._ingested(item.execution_id, own)
                    if accepted:
                        return _again(item, accepted[event.own_id])
                    try:
                        return await self._report(item, caller)
                    except EventIdTaken:
                        continue
            finally:
                self._end(keys, done)
            raise Conflict(f"execution {item.execution_id}: other callers keep writing events with the same id")
        except ArclogError as problem:
            return problem

    async def _report(self, item: Incoming, caller: Boundary) -> Answer:
        engine, event = self._engine, item.event
        commands = await engine.store.commands(item.execution_id)
        record = next((command for command in commands if command.command_id == event.command_id), None)
        if record is None:
            return await self._late(item, caller)
        holder = record.worker_id if record.state == "claimed" else ""
        if not caller.is_holder(holder, event.worker_id):
            raise NotHolder(f"command {event.command_id} is not held by this worker; stop the work")
        if record.fence != event.fence:
            raise StaleFence(f"command {event.command_id} is held with fence {record.fence}, not {event.fence}")
        digests = {event.own_id: item.digest} if event.own_id else {}
        if event.type == "command.failed":
            report: WorkReported | GaveUp = GaveUp(
                event.command_id, event.fence, holder, self._max_losses, event, digests
            )
            return await self._applied(item, caller, holder, report)
        if event.type not in WORKER_TYPES:
            # An event of a layer that the engine derives itself (command.started, loop.done …): nothing waits for it.
            event.run, event.worker_id = event.run or record.run, holder
            return (await self._write(item.execution_id, [item]))[0]
        await self._resolve_uri(item)
        report = WorkReported(event.command_id, event.fence, 0, holder, [event], digests, from_wire=True)
        return await self._applied(item, caller, holder, report)

    async def _applied(self, item: Incoming, caller: Boundary, holder: str, report: WorkReported | GaveUp) -> Answer:
        """Put a report to its execution."""
        engine, event = self._engine, item.event
        extend = (event.command_id, event.fence, engine.clock.now() + self._lease_us)
        answer = await engine.put(item.execution_id, report, extend=extend)
        if answer.refused is None:
            # Its effects come after the event itself.
            led_to = answer.events - 1 - answer.spoken_at
            event_id, seq = event.own_id or moved(answer.last_id, -led_to), answer.last_seq - led_to
            return await self._progress(item, answer.spoken, event_id, seq)
        match answer.refused.reason:
            case "closed" | "ended":
                return await self._late(item, caller, holder)
            case "stale":
                raise StaleFence(answer.refused.message)
            case _:
                claim = (item.execution_id, event.command_id, event.fence)
                await self._refusals.note(claim, holder, answer.refused)
                raise RequestRejected(answer.refused.message)

    async def _progress(self, item: Incoming, event_type: str, event_id: int, seq: int) -> RecordedEvent:
        """Return the answer to a report, with the position of the command after it."""
        live = await self._engine.seen(item.execution_id)
        command = live.state.commands.get(item.event.command_id)
        is_held = command is not None and command.fence == item.event.fence
        following, error = None, None
        if command is not None and is_held:
            following = next_task(live.program, live.state, command, item.event.iteration)
            error = pipeline_error(live.program, live.state, command, item.event.iteration)
        return RecordedEvent(
            str(item.execution_id),
            str(event_id),
            event_type,
            seq,
            informative=False,
            warnings=item.warnings,
            closed=not is_held,
            next=following,
            error=error,
        )

    async def _resolve_uri(self, item: Incoming) -> None:
        """Replace `result_uri` of a task's end by the complete reference, which the outcome carries."""
        event = item.event
        outcome = event.payload.get("outcome")
        uri = event.sent.get("result_uri") if event.sent.get("result_kind") == REF else None
        if outcome is None or uri is None or "result_ref" in outcome:
            return
        parsed = parse_ref(uri)
        record = await self._engine.store.result(parsed.execution_id, parsed.name, parsed.sha256)
        if record is None or parsed.execution_id != item.execution_id:
            raise RequestRejected(
                f"`result_uri` {uri} is not a stored result of this run; store it (POST /api/worker/results) and "
                "report result.stored first"
            )
        events = await self._engine.store.events(record.execution_id, after=record.seq - 1, limit=1)
        stored = events[0].event.payload
        event.payload = {"outcome": {**outcome, **{key: stored[key] for key in _REFERENCE if key in stored}}}

    async def _late(self, item: Incoming, caller: Boundary, holder: str = "") -> Answer:
        """Record an event of the last holder of an ended command; refuse any other."""
        event = item.event
        ended = await ended_command(self._engine.store, item.execution_id, event.command_id)
        if ended.fence != event.fence:
            raise StaleFence(
                f"command {event.command_id} has ended, or was never held by this worker (fence {event.fence})"
            )
        if not holder and ended.holder and not caller.is_holder(ended.holder, event.worker_id):
            raise NotHolder(f"command {event.command_id} has ended, and another worker held it last")
        event.worker_id = holder or ended.holder or caller.worker_name(event.worker_id)
        event.run = event.run or ended.run
        answer = (await self._write(item.execution_id, [item]))[0]
        return replace(answer, closed=True) if isinstance(answer, RecordedEvent) else answer

    # -- ids ----------------------------------------------------------------------------------------------------------

    async def _ingested(self, execution_id: int, own: set[int]) -> dict[int, Ingested]:
        if not own:
            return {}
        return {event.event_id: event for event in await self._engine.store.ingested(execution_id, sorted(own))}

    async def _begin(self, keys: Sequence[tuple[int, int]]) -> asyncio.Future[None]:
        """Prevent other tasks of this process from writing events with these ids, until `_end` is called."""
        under_way = self._under_way
        while not under_way.keys().isdisjoint(keys):
            busy = next(under_way[key] for key in keys if key in under_way)
            await asyncio.shield(busy)  # no locks are held, so no deadlock is possible
        done = asyncio.get_running_loop().create_future()
        for key in keys:
            under_way[key] = done
        return done

    def _end(self, keys: Sequence[tuple[int, int]], done: asyncio.Future[None]) -> None:
        for key in keys:
            del self._under_way[key]
        done.set_result(None)


def _contended(execution_id: int) -> Conflict:
    return Conflict(f"execution {execution_id}: other callers keep writing events with the same ids")


def _groups(items: Sequence[Incoming]) -> Iterator[Sequence[Incoming]]:
    """Yield consecutive items that are handled in the same way; of informative events, as many as share a commit."""
    if len(items) == 1:
        yield items
        return
    for leased, run in groupby(items, lambda item: item.grant.needs_lease):
        group = list(run)
        size = len(group) if leased else _TOGETHER
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _role(caller: Boundary, item: Any) -> str:
    """Return whether the sender acts as a worker or a producer. With both roles, an event with command and fence is a
    worker's.
    """
    principal = caller.principal
    if names_a_command(item):
        return WORKER if principal is None or principal.may(_WORK) else PRODUCER
    return PRODUCER if principal is None or principal.may(_PRODUCE) or not principal.may(_WORK) else WORKER


def _check_names(event: Event) -> None:
    """Check that a worker's event names its command and fence; the worker itself may be left out."""
    if not event.command_id or not event.fence:
        raise RequestRejected("a worker's event names its `command_id` and `fence`, as the claim gave them")
    if event.worker_id and WORKER_ID.fullmatch(event.worker_id) is None:
        raise RequestRejected(
            f"worker_id: {event.worker_id[:80]!r} is not a valid worker name (letters, digits, `_`, `.`, `-`; at most 128)"
        )


def _fresh(items: Sequence[Incoming], accepted: Mapping[int, Ingested]) -> dict[int, Incoming]:
    """Return the items to write by their index: the first of those with the same id, unless it was accepted before."""
    fresh: dict[int, Incoming] = {}
    seen: set[int] = set()
    for index, item in enumerate(items):
        own_id = item.event.own_id
        if not own_id or not (own_id in accepted or own_id in seen):
            fresh[index] = item
            seen.add(own_id)
    return fresh


def _answer_again(item: Incoming, accepted: Mapping[int, Ingested], refusal: ArclogError | None) -> Answer:
    """Return the answer to an item that repeats another one."""
    record = accepted.get(item.event.own_id)
    if record is None and refusal is not None:
        return refusal
    return _again(item, accepted[item.event.own_id])


def _again(item: Incoming, earlier: Ingested) -> Answer:
    if item.digest != earlier.digest:
        return EventDiffers(
            f"event {earlier.event_id} of execution {item.execution_id} was accepted as seq {earlier.seq} with other content; "
            "use a different id for each event"
        )
    return _accepted(item, earlier.event_id, earlier.seq, duplicate=True)


def _taken(items: Sequence[Incoming], answer: batch.Answer) -> list[Answer]:
    """Return the answers to the items of one input, whose events are the last ones of its decision."""
    before = len(items) - 1
    return [
        _accepted(item, item.event.own_id or moved(answer.last_id, index - before), answer.last_seq - before + index)
        for index, item in enumerate(items)
    ]


def _accepted(item: Incoming, event_id: int, seq: int, *, duplicate: bool = False) -> RecordedEvent:
    return RecordedEvent(
        str(item.execution_id), str(event_id), item.event.type, seq, item.event.informative, duplicate, item.warnings
    )
