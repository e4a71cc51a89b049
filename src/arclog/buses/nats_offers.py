"""Offers over NATS: a work queue in memory, one pull consumer a pool. A process in which workers wait for a pool keeps one
fetch open for it; of all that do, an offer wakes one.

An offer that reaches a process whose workers have got something to do meanwhile is handed back, for another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from arclog.buses.names import token_of
from arclog.buses.nats_connect import FAULTS, Connection
from arclog.model.settings import Settings

log = logging.getLogger("arclog.bus")

#: Stands for every pool.
_ANY = ""
#: How long one fetch stays open; then the next one is.
_FETCH_S = 30.0
#: Processes that take an offer and hand it back, before it is left to their own looking.
_DELIVERIES = 5
#: A consumer that nobody used for so long is removed.
_UNUSED_S = 600.0
#: After a fetch that failed although the connection stands: somebody removed the stream, or the consumer.
_PAUSE_S = 1.0


class Offers:
    """What this process's workers wait for."""

    def __init__(self, settings: Settings, prefix: str, heard: Callable[[str], None]) -> None:
        self._heard = heard
        self._prefix = prefix
        self._stream = f"{prefix}-offers"
        self._max_age_s = settings.number("bus.offer_max_age_s")
        self._max_messages = settings.integer("bus.offer_max_messages")
        self._replicas = settings.integer("bus.replicas")
        self._pools: frozenset[str] = frozenset()
        #: one for each pool that was ever waited for: set when a fetch is wanted
        self._wanted: dict[str, asyncio.Event] = {}
        self._new = asyncio.Event()

    def waiting(self, pools: Collection[str]) -> None:
        self._pools = frozenset(pools)
        for pool in pools:
            wanted = self._wanted.get(pool)
            if wanted is None:
                wanted = self._wanted[pool] = asyncio.Event()
                self._new.set()
            wanted.set()

    async def set_up(self, stream: JetStreamContext) -> None:
        config = api.StreamConfig(
            name=self._stream,
            description="arclog: commands that wait for workers. Hints only; may be lost.",
            subjects=[f"{self._prefix}.offered.*"],
            retention=api.RetentionPolicy.WORK_QUEUE,
            storage=api.StorageType.MEMORY,
            discard=api.DiscardPolicy.OLD,
            max_age=self._max_age_s,
            max_msgs=self._max_messages,
            num_replicas=self._replicas,
        )
        await make_stream(stream, config)

    async def run(self, client: Connection, stream: JetStreamContext) -> None:
        """Fetch for every pool that is waited for, as long as the connection lasts."""
        fetching: dict[str, asyncio.Task[None]] = {}
        try:
            while not client.over.is_set():
                self._new.clear()
                for pool in self._wanted.keys() - fetching.keys():
                    work = self._hear_all(client) if pool == _ANY else self._fetch_all(client, stream, pool)
                    fetching[pool] = asyncio.create_task(work)
                new: asyncio.Task[Any] = asyncio.create_task(self._new.wait())
                try:
                    done, _ = await asyncio.wait((new, *fetching.values()), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    new.cancel()
                for task in done:
                    task.result()
        finally:
            for task in fetching.values():
                task.cancel()
            await asyncio.gather(*fetching.values(), return_exceptions=True)

    async def _hear_all(self, client: Connection) -> None:
        """Workers of any pool: a consumer of all would take the offers from those of one pool, so this one overhears."""

        async def overheard(message: Any) -> None:
            if _ANY in self._pools:
                self._heard(message.data.decode())

        await client.subscribe(f"{self._prefix}.offered.*", cb=overheard)
        await client.over.wait()

    async def _fetch_all(self, client: Connection, stream: JetStreamContext, pool: str) -> None:
        wanted = self._wanted[pool]
        subscription = None
        while not client.over.is_set():
            await wanted.wait()
            try:
                if subscription is None:
                    subscription = await self._subscribed(stream, pool)
                (message,) = await subscription.fetch(1, timeout=_FETCH_S)
                if pool not in self._pools:
                    wanted.clear()
                    await message.nak()
                    continue
                # The next fetch is made when somebody waits again: one process must not take what several could do.
                wanted.clear()
                self._heard(pool)
                await message.ack()
            except nats.errors.TimeoutError:
                if pool not in self._pools:
                    wanted.clear()
            except FAULTS as problem:
                if client.over.is_set():
                    return
                log.warning("NATS: offers to pool %s cannot be fetched: %s; trying again", pool, problem)
                if subscription is not None:
                    await _let_go(subscription)
                    subscription = None
                await asyncio.sleep(_PAUSE_S)

    async def _subscribed(self, stream: JetStreamContext, pool: str) -> JetStreamContext.PullSubscription:
        token = token_of(pool)
        config = api.ConsumerConfig(
            durable_name=token,
            filter_subject=f"{self._prefix}.offered.{token}",
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=self._max_age_s,
            max_deliver=_DELIVERIES,
            inactive_threshold=_UNUSED_S,
        )
        try:
            await stream.add_consumer(self._stream, config)
        except nats.js.errors.NotFoundError:
            await self.set_up(stream)
            await stream.add_consumer(self._stream, config)
        return await stream.pull_subscribe_bind(consumer=token, stream=self._stream)


async def _let_go(subscription: JetStreamContext.PullSubscription) -> None:
    try:
        await subscription.unsubscribe()
    except FAULTS:
        return


async def make_stream(stream: JetStreamContext, config: api.StreamConfig) -> bool:
    """Make a stream unless it is there; whether it was made. One that is there stays as its owner wants it."""
    try:
        await stream.stream_info(str(config.name))
    except nats.js.errors.NotFoundError:
        try:
            await stream.add_stream(config)
        except nats.js.errors.BadRequestError as problem:
            # 10058: another server made it meanwhile, in its own way.
            if problem.err_code != 10058:
                raise
        return True
    return False
