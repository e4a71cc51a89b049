"""The engine's side of `ports.ingest`: from a body on the wire to the log, once.

Law: an id that is under way in this process is waited for, one that the store knows is compared, and only then is an event
new. So of any number of senders with the same id one writes, and all get its seq.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

import msgspec

from arclog.core.inputs import Observed, WorkReported
from arclog.core.reports import WORKER_TYPES
from arclog.dialects.authority import PRODUCER, WORKER
from arclog.dialects.wire_incoming import Incoming, names_a_command, parse_batch, parse_event
from arclog.engine import batch
from arclog.engine.engine import MAX_CONFLICTS, Engine
from arclog.engine.past_commands import fence_of_ended
from arclog.model.errors import ArclogError, Conflict, EventDiffers, NotAllowed, NotFound, RequestRejected, StaleFence
from arclog.model.ids import MICROS, moved
from arclog.model.kept import Kept
from arclog.model.principal import Principal
from arclog.ports.ingest import Taken
from arclog.ports.store import EventIdTaken, Ingested

Answer = Taken | ArclogError

#: Events of one execution that share a commit.
_TOGETHER = 1000


class EngineIngest:
    """Implements `ports.ingest.Ingest`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        settings = engine.settings
        self._most_in_batch = settings.integer("ingest.max_batch_events")
        self._most_in_run = settings.integer("ingest.max_events")
        self._largest = settings.integer("limits.max_payload_bytes")
        self._lease_us = round(settings.number("leases.seconds") * MICROS)
        #: whose an execution is: that never changes
        self._tenants: Kept[int, str] = Kept(settings.integer("engine.cache_executions"))
        #: (execution_id, event_id) that this process is about to write
        self._under_way: dict[tuple[int, int], asyncio.Event] = {}

    async def event(self, body: Any, speaker: Principal) -> Taken:
        principal = _role(speaker, body)
        incoming = parse_event(body, principal, self._engine.clock.now())
        (answer,) = await self._take_all(speaker, [incoming])
        if isinstance(answer, ArclogError):
            raise answer
        return answer

    async def batch(self, body: Any, speaker: Principal) -> list[Answer]:
        now = self._engine.clock.now()
        parsed = parse_batch(body, lambda item: _role(speaker, item), now, self._most_in_batch)
        understood = [one for one in parsed if isinstance(one, Incoming)]
        taken = iter(await self._take_all(speaker, understood))
        return [
            next(taken)
            if isinstance(one, Incoming)
            else (NotAllowed if one.status == 403 else RequestRejected)(one.message)
            for one in parsed
        ]

    # -- one after the other ------------------------------------------------------------------------------------------

    async def _take_all(self, speaker: Principal, items: Sequence[Incoming]) -> list[Answer]:
        """Each item's answer. Executions do not wait for each other; the items of one keep their order."""
        by_execution: dict[int, list[int]] = {}
        for index, item in enumerate(items):
            by_execution.setdefault(item.execution_id, []).append(index)
        answers: dict[int, Answer] = {}

        async def take(execution_id: int, mine: list[int]) -> None:
            found = await self._take(speaker, execution_id, [items[index] for index in mine])
            answers.update(zip(mine, found, strict=True))

        if len(by_execution) == 1:
            await take(*next(iter(by_execution.items())))
        else:
            await asyncio.gather(*(take(execution_id, mine) for execution_id, mine in by_execution.items()))
        return [answers[index] for index in range(len(items))]

    async def _take(self, speaker: Principal, execution_id: int, items: Sequence[Incoming]) -> list[Answer]:
        try:
            await self._check_tenant(speaker, execution_id)
        except NotFound as problem:
            return [problem] * len(items)
        answers: list[Answer] = []
        for leased, run in groupby(items, lambda item: item.grant.needs_lease):
            group = list(run)
            if leased:
                answers += [await self._reported(item) for item in group]
            else:
                for start in range(0, len(group), _TOGETHER):
                    answers += await self._observed(execution_id, group[start : start + _TOGETHER])
        return answers

    async def _check_tenant(self, speaker: Principal, execution_id: int) -> None:
        tenant = self._tenants.get(execution_id)
        if tenant is None:
            record = await self._engine.store.execution(execution_id)
            if record is not None:
                tenant = self._tenants.put(execution_id, record.new.scope.tenant)
        if tenant is None or tenant != speaker.tenant:
            raise NotFound(f"there is no execution {execution_id}")

    # -- facts ---------------------------------------------------------------------------------------------------------

    async def _observed(self, execution_id: int, items: Sequence[Incoming]) -> list[Answer]:
        """Record what has not been recorded yet, in one commit."""
        refusals = [self._too_large(item) for item in items]
        fitting = [item for item, refusal in zip(items, refusals, strict=True) if refusal is None]
        own = {item.event.own_id for item in fitting} - {0}
        async with self._alone(execution_id, own):
            answers = iter(await self._once(execution_id, fitting, own))
        return [refusal or next(answers) for refusal in refusals]

    async def _once(self, execution_id: int, items: Sequence[Incoming], own: set[int]) -> list[Answer]:
        for _ in range(MAX_CONFLICTS):
            known = await self._known(execution_id, own)
            fresh = _fresh(items, known)
            try:
                written = await self._write(execution_id, list(fresh.values()))
            except EventIdTaken:
                continue  # another process was faster: look at what it wrote
            answers = dict(zip(fresh, written, strict=True))
            refusal = next((one for one in written if isinstance(one, ArclogError)), None)
            for index, item in fresh.items():
                answer = answers[index]
                if isinstance(answer, Taken):
                    known[item.event.own_id] = Ingested(item.event.own_id, item.digest, answer.seq)
            return [answers.get(index) or _answer_again(item, known, refusal) for index, item in enumerate(items)]
        raise Conflict(f"execution {execution_id}: others kept writing events with the same ids")

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

    async def _reported(self, item: Incoming) -> Answer:
        """What a worker says of a command that it holds; the command's report goes on with it."""
        event = item.event
        own = {event.own_id} - {0}
        if refusal := self._too_large(item):
            return refusal
        try:
            if not event.command_id or not event.fence or not event.worker_id:
                raise RequestRejected("a worker's event names its `command_id`, `fence` and `worker_id`")
            async with self._alone(item.execution_id, own):
                for _ in range(MAX_CONFLICTS):
                    known = await self._known(item.execution_id, own)
                    if known:
                        return _again(item, known[event.own_id])
                    try:
                        return await self._report(item)
                    except EventIdTaken:
                        continue
            raise Conflict(f"execution {item.execution_id}: others kept writing events with the same id")
        except ArclogError as problem:
            return problem

    async def _report(self, item: Incoming) -> Answer:
        engine, event = self._engine, item.event
        commands = await engine.store.commands(item.execution_id)
        held = next((one for one in commands if one.command_id == event.command_id), None)
        if held is None:
            return await self._late(item)
        if (held.state, held.worker_id, held.fence) != ("claimed", event.worker_id, event.fence):
            raise StaleFence(
                f"command {event.command_id} is not held by worker {event.worker_id} with fence {event.fence}"
            )
        event.run = event.run or held.run
        if event.type not in WORKER_TYPES:
            # A fact of a layer that the engine derives itself (command.started, loop.done …): nothing waits for it.
            return (await self._write(item.execution_id, [item]))[0]
        digests = {event.own_id: item.digest} if event.own_id else {}
        given = WorkReported(event.command_id, event.fence, 0, event.worker_id, [event], digests)
        extend = (event.command_id, event.fence, engine.clock.now() + self._lease_us)
        answer = await engine.put(item.execution_id, given, extend=extend)
        if answer.refused is None:
            # Its own events come first, what they led to behind them.
            led_to = answer.events - 1
            return _taken(
                [item], batch.Answer(last_seq=answer.last_seq - led_to, last_id=moved(answer.last_id, -led_to))
            )[0]
        match answer.refused.reason:
            case "closed" | "ended":
                return await self._late(item)
            case "stale":
                raise StaleFence(answer.refused.message)
            case _:
                raise RequestRejected(answer.refused.message)

    async def _late(self, item: Incoming) -> Answer:
        """The command is over: its last holder's word is recorded, anybody else's is refused."""
        event = item.event
        fence = await fence_of_ended(self._engine.store, item.execution_id, event.command_id)
        if fence != event.fence:
            raise StaleFence(f"command {event.command_id} is over, or was never this worker's (fence {event.fence})")
        return (await self._write(item.execution_id, [item]))[0]

    # -- ids ----------------------------------------------------------------------------------------------------------

    async def _known(self, execution_id: int, own: set[int]) -> dict[int, Ingested]:
        if not own:
            return {}
        return {one.event_id: one for one in await self._engine.store.ingested(execution_id, sorted(own))}

    @asynccontextmanager
    async def _alone(self, execution_id: int, own: set[int]) -> AsyncIterator[None]:
        """Nobody else in this process writes events with these ids meanwhile."""
        keys = [(execution_id, event_id) for event_id in own]
        while busy := next((self._under_way[key] for key in keys if key in self._under_way), None):
            await busy.wait()  # holding nothing: nobody can wait for us in turn
        done = asyncio.Event()
        self._under_way.update(dict.fromkeys(keys, done))
        try:
            yield
        finally:
            for key in keys:
                del self._under_way[key]
            done.set()


def _role(speaker: Principal, item: Any) -> str:
    """Whose word an event is. Who may be both speaks as a worker where it names a command and its fence."""
    works = speaker.may(frozenset({WORKER}))
    if works and (not speaker.may(frozenset({PRODUCER})) or names_a_command(item)):
        return WORKER
    return PRODUCER


def _fresh(items: Sequence[Incoming], known: Mapping[int, Ingested]) -> dict[int, Incoming]:
    """Items that are to be written, by their place: of those with one id the first, unless it is known."""
    fresh: dict[int, Incoming] = {}
    seen: set[int] = set()
    for index, item in enumerate(items):
        own_id = item.event.own_id
        if not own_id or not (own_id in known or own_id in seen):
            fresh[index] = item
            seen.add(own_id)
    return fresh


def _answer_again(item: Incoming, known: Mapping[int, Ingested], refusal: ArclogError | None) -> Answer:
    """Of an item that repeats another: what became of that one."""
    found = known.get(item.event.own_id)
    if found is None and refusal is not None:
        return refusal
    return _again(item, known[item.event.own_id])


def _again(item: Incoming, known: Ingested) -> Answer:
    if item.digest != known.digest:
        return EventDiffers(
            f"event {known.event_id} of execution {item.execution_id} was accepted as seq {known.seq} with other content; "
            "give each event an id of its own"
        )
    return _told(item, known.event_id, known.seq, duplicate=True)


def _taken(items: Sequence[Incoming], answer: batch.Answer) -> list[Answer]:
    """The seqs of one input's events are the last ones of its decision."""
    before = len(items) - 1
    return [
        _told(item, item.event.own_id or moved(answer.last_id, index - before), answer.last_seq - before + index)
        for index, item in enumerate(items)
    ]


def _told(item: Incoming, event_id: int, seq: int, *, duplicate: bool = False) -> Taken:
    return Taken(
        str(item.execution_id), str(event_id), item.event.type, seq, item.event.informative, duplicate, item.warnings
    )
