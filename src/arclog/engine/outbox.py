"""Delivers webhooks from the outbox: at least once, signed, tried again with growing pauses, given up loudly.

Law: a delivery is noted as done only after the other side has taken it. A run's log says `playbook.processed` once each
of its deliveries is done or given up, and its parent has its result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec.structs import replace

from arclog import __version__
from arclog.core.inputs import ParentTold
from arclog.core.state import State
from arclog.engine.children import Children
from arclog.engine.engine import Engine
from arclog.engine.telling import event_name
from arclog.model import webhooks as signing
from arclog.model.errors import ArclogError, NotFound, SecretUnavailable
from arclog.model.events import Event
from arclog.model.ids import MICROS
from arclog.ports.outbox import DEAD, DELIVERED, Delivery
from arclog.ports.secrets import Secrets

log = logging.getLogger("arclog.engine")

#: Sends a body with headers to an address; '' when it was taken, else what went wrong. Never raises but CancelledError.
Send = Callable[[str, bytes, Mapping[str, str]], Awaitable[str]]


class Outbox:
    """The duty: one per engine."""

    def __init__(self, engine: Engine, children: Children, secrets: Secrets, send: Send) -> None:
        self._engine = engine
        self._children = children
        self._secrets = secrets
        self._send = send
        settings = engine.settings
        self._at_once = settings.integer("webhooks.max_concurrent")
        self._max_attempts = settings.integer("webhooks.max_attempts")
        self._first_pause_s = settings.number("webhooks.first_retry_s")
        self._longest_pause_s = settings.number("webhooks.max_retry_s")
        # An attempt has its time limit; the rest is for the store.
        self._lease = round((settings.number("webhooks.timeout_s") + 30.0) * MICROS)
        self._news = asyncio.Event()
        #: held while deliveries are under way
        self._busy = asyncio.Lock()
        engine.hints.on_committed.append(self._on_committed)

    def _on_committed(self, state: State, _: Sequence[Event]) -> None:
        if state.terminal is not None and not state.processed:
            self._news.set()

    async def run(self) -> None:
        pause = self._engine.settings.number("engine.sweep_s")
        while True:
            self._news.clear()
            try:
                await self.deliver()
            except ArclogError as problem:
                log.warning("webhooks: %s; looking again in %g s", problem, pause)
            await self._rest(pause)

    async def _rest(self, pause: float) -> None:
        either = [asyncio.ensure_future(self._engine.clock.sleep(pause)), asyncio.ensure_future(self._news.wait())]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in either:
                one.cancel()
            await asyncio.gather(*either, return_exceptions=True)

    async def deliver(self) -> None:
        """Try everything that is due, then say of which runs all was taken care of."""
        async with self._busy:
            await self._deliver()

    async def _deliver(self) -> None:
        store, clock = self._engine.store, self._engine.clock
        while due := await store.lease_deliveries(clock.now(), clock.now() + self._lease, self._at_once):
            await asyncio.gather(*(self._attempt(each) for each in due))
        for execution_id in await store.told_executions():
            await self._settle(execution_id)

    async def settle(self, timeout_s: float) -> None:
        """Before the program leaves: finish what is under way, and try what is due; the rest is left to a later process."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.deliver()
        except TimeoutError:
            log.warning("webhooks: not all were delivered; the next arclog that works in this home goes on with them")
        except ArclogError as problem:
            log.warning("webhooks: %s; the next arclog that works in this home goes on with them", problem)

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
                "webhook %d of run %s: given up after %d attempts (webhooks.max_attempts): %s", *which, tries, problem
            )
        else:
            pause = min(self._first_pause_s * 2 ** (tries - 1), self._longest_pause_s)
            after = replace(delivery, attempts=tries, problem=problem, due=now + round(pause * MICROS))
            log.warning("webhook %d of run %s: attempt %d: %s; trying again in %g s", *which, tries, problem, pause)
        await self._engine.store.attempted(after)

    async def _sent(self, delivery: Delivery) -> str:
        """Send it; '' or what went wrong."""
        try:
            secret = await self._secret(delivery)
        except ArclogError as problem:
            return str(problem)
        number = f"{delivery.execution_id}-{delivery.n}"
        sent = str(self._engine.clock.now() // MICROS)
        headers = {
            "content-type": "application/json",
            "user-agent": f"arclog/{__version__}",
            signing.TIMESTAMP: sent,
            signing.DELIVERY: number,
            signing.EVENT: event_name(delivery.event),
            signing.SIGNATURE: signing.signature(secret, sent, number, delivery.body),
        }
        return await self._send(delivery.url, delivery.body, headers)

    async def _secret(self, delivery: Delivery) -> str:
        record = await self._engine.store.execution(delivery.execution_id)
        if record is None:
            raise NotFound(f"run {delivery.execution_id} is not in the store")
        plan = (await self._engine.live.program(record.new.plan)).plan
        entry = next((one for one in plan.keychain if one.get("name") == delivery.secret), None)
        if entry is None:
            raise SecretUnavailable(f"the keychain has no entry {delivery.secret!r}")
        value = (await self._secrets.resolve(entry, record.new.scope.label)).fields.get("value")
        if not isinstance(value, str) or not value:
            raise SecretUnavailable(f"the keychain entry {delivery.secret!r} is no single text to sign with")
        return value

    async def _settle(self, execution_id: int) -> None:
        """Nobody is left to be told by webhook: say so in the log."""
        engine = self._engine
        try:
            live = await engine.live.folded(execution_id)
            if not live.state.processed:
                if live.state.parent is not None:
                    await self._children.tell_parent(execution_id)
                else:
                    await engine.put(execution_id, ParentTold())
        except NotFound:
            log.warning("webhooks: run %s is not in the store", execution_id)
        await engine.store.settle_deliveries(execution_id)
