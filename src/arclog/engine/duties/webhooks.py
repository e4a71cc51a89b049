"""Delivers webhooks from the outbox: at least once, signed, retried with increasing pauses, and logged when given up.

Invariants: a delivery is recorded as done only after the receiver has accepted it. A run's log has `playbook.processed`
once all of its deliveries are done or given up, and its parent has its result.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from arclog import __version__
from arclog.core.boundary.inputs import ParentNotified
from arclog.core.transitions.state import State
from arclog.drivers.backoff import pause_after
from arclog.engine.commits.batch import end_event_name
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.hints import either
from arclog.engine.runs.children import Children
from arclog.model.config import webhooks as signing
from arclog.model.errors import ArclogError, NotFound, SecretUnavailable
from arclog.model.events import Event
from arclog.model.ids import MICROS
from arclog.ports.secrets import Secrets
from arclog.ports.storage.outbox import DEAD, DELIVERED, Delivery, receiver_of

log = logging.getLogger("arclog.engine")

#: Sends a body with headers to an address. Returns '' if it was accepted, else the problem. Raises only CancelledError.
Send = Callable[[str, bytes, Mapping[str, str]], Awaitable[str]]


#: Time in addition to two attempts in the lease of a delivery; after it, the deliveries of a dead process are sent
#: again.
_SLACK_S = 5.0


class Outbox:
    """The duty: one per engine."""

    def __init__(self, engine: Engine, children: Children, secrets: Secrets, send: Send) -> None:
        self._engine = engine
        self._children = children
        self._secrets = secrets
        self._send = send
        settings = engine.settings
        self._at_once = settings.integer("webhooks.max_concurrent")
        self._per_receiver = settings.integer("webhooks.max_per_receiver")
        self._max_attempts = settings.integer("webhooks.max_attempts")
        self._first_pause_s = settings.number("webhooks.first_retry_s")
        self._longest_pause_s = settings.number("webhooks.max_retry_s")
        # An attempt has its time limit; the rest is for the secret and the store. If it takes longer, it is sent twice.
        self._lease = round((2 * settings.number("webhooks.timeout_s") + _SLACK_S) * MICROS)
        self._wake_up = asyncio.Event()
        #: deliveries in progress, with their receivers
        self._under_way: dict[asyncio.Task[None], str] = {}
        #: held while deliveries are taken
        self._taking = asyncio.Lock()
        engine.hints.on_committed.append(self._on_committed)

    def _on_committed(self, state: State, _: Sequence[Event]) -> None:
        if state.terminal is not None and not state.processed:
            self._wake_up.set()

    async def run(self) -> None:
        """Send due webhooks continuously: when one is done, another starts, so that a slow receiver delays no others."""
        pause = self._engine.settings.number("engine.sweep_s")
        try:
            while True:
                self._wake_up.clear()
                try:
                    await self._take()
                except ArclogError as problem:
                    log.warning("webhooks: %s; retrying in %g s", problem, pause)
                await either(self._engine.clock.sleep(pause), self._wake_up.wait())
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def deliver(self) -> None:
        """Attempt all due deliveries, and record which runs have none left."""
        await self._take()
        while self._under_way:
            done, _ = await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await self._take()

    async def _take(self) -> None:
        """Begin as many deliveries as may be in progress, then record which runs have none left."""
        store, clock = self._engine.store, self._engine.clock
        async with self._taking:
            while len(self._under_way) < self._at_once:
                in_progress = Counter(self._under_way.values())
                full = [receiver for receiver, count in in_progress.items() if count >= self._per_receiver]
                # All deliveries of a page may be for one receiver, which must not get too many.
                most = self._per_receiver - max(
                    (count for receiver_name, count in in_progress.items() if receiver_name not in full), default=0
                )
                room = min(most, self._at_once - len(self._under_way))
                due = await store.lease_deliveries(clock.now(), clock.now() + self._lease, room, but=full)
                for delivery in due:
                    task = asyncio.ensure_future(self._attempt(delivery))
                    self._under_way[task] = receiver_of(delivery.url)
                    task.add_done_callback(self._ended)
                if not due:
                    break
            while to_settle := await store.executions_to_settle():
                for execution_id in to_settle:
                    await self._settle(execution_id)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._wake_up.set()
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            # It may have been sent, but that is not recorded. When its lease ends, it is sent again.
            log.warning("webhooks: %s: %s", type(problem).__name__, problem)

    async def settle(self, timeout_s: float) -> None:
        """Before the program exits: finish deliveries in progress, and try those that are due; the rest is left to a
        later process.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.deliver()
        except TimeoutError:
            log.warning("webhooks: not all were delivered; the next arclog process in this home continues")
        except ArclogError as problem:
            log.warning("webhooks: %s; the next arclog process in this home continues", problem)

    async def _attempt(self, delivery: Delivery) -> None:
        problem = await self._sent(delivery)
        tries, now = delivery.attempts + 1, self._engine.clock.now()
        which = delivery.n, delivery.execution_id
        if not problem:
            after = replace(delivery, state=DELIVERED, attempts=tries, problem="")
            log.info("webhook %d of run %s: delivered at attempt %d", *which, tries)
        elif tries >= self._max_attempts:
            after = replace(delivery, state=DEAD, attempts=tries, problem=problem)
            log.error(
                "webhook %d of run %s: abandoned after %d attempts (webhooks.max_attempts): %s", *which, tries, problem
            )
        else:
            pause = pause_after(tries, self._first_pause_s, self._longest_pause_s)
            after = replace(delivery, attempts=tries, problem=problem, due=now + round(pause * MICROS))
            log.warning("webhook %d of run %s: attempt %d: %s; retrying in %g s", *which, tries, problem, pause)
        await self._engine.store.attempted(after)

    async def _sent(self, delivery: Delivery) -> str:
        """Send a delivery. Return '' or the problem."""
        try:
            secret = await self._secret(delivery) if delivery.secret else ""
        except ArclogError as problem:
            return str(problem)
        number = f"{delivery.execution_id}-{delivery.n}"
        sent = str(self._engine.clock.now() // MICROS)
        headers = {
            "content-type": "application/json",
            "user-agent": f"arclog/{__version__}",
            signing.TIMESTAMP: sent,
            signing.DELIVERY: number,
            signing.EVENT: end_event_name(delivery.event),
        }
        if secret:
            headers[signing.SIGNATURE] = signing.signature(secret, sent, number, delivery.body)
        return await self._send(delivery.url, delivery.body, headers)

    async def _secret(self, delivery: Delivery) -> str:
        record = await self._engine.store.execution(delivery.execution_id)
        if record is None:
            raise NotFound(f"run {delivery.execution_id} is not in the store")
        plan = (await self._engine.live.program(record.new.plan)).plan
        entry = next((candidate for candidate in plan.keychain if candidate.get("name") == delivery.secret), None)
        if entry is None:
            raise SecretUnavailable(f"the keychain has no entry {delivery.secret!r}")
        value = (await self._secrets.resolve(entry, record.new.scope.label)).fields.get("value")
        if not isinstance(value, str) or not value:
            raise SecretUnavailable(f"the keychain entry {delivery.secret!r} is not a single text to sign with")
        return value

    async def _settle(self, execution_id: int) -> None:
        """Record in a run's log that all its webhooks are delivered or given up."""
        engine = self._engine
        try:
            live = await engine.live.folded(execution_id)
            if not live.state.processed:
                if live.state.parent is not None:
                    await self._children.notify_parent(execution_id)
                else:
                    await engine.put(execution_id, ParentNotified())
        except NotFound:
            log.warning("webhooks: run %s is not in the store", execution_id)
        await engine.store.settle_deliveries(execution_id)
