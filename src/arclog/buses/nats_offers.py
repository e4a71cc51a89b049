"""Offers over NATS: a work queue in memory, with one pull consumer for each pool. A process with workers that wait for
a pool keeps one fetch open for it; an offer wakes one such process.

An offer that reaches a process whose workers are busy by now is returned, for another process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import msgspec
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext, api

from arclog.buses.hints import token_of
from arclog.drivers.nats.connect import FAULTS, Connection, text_of
from arclog.model.config.settings import Settings
from arclog.model.errors import BusUnavailable

log = logging.getLogger("arclog.bus")

#: Stands for every pool.
_ANY = ""
#: The duration of one fetch, after which the next one is opened.
_FETCH_S = 30.0
#: Maximum delay of the server's message that a fetch has ended.
_PATIENCE_S = 5.0
#: Number of times that an offer is returned before it is dropped; processes then find the work by polling.
_DELIVERIES = 20
#: A consumer is removed after being unused for this long.
_UNUSED_S = 600.0
#: Pause after a fetch that failed although the connection works: the stream or the consumer was removed.
_PAUSE_S = 1.0


class Offers:
    """The pools for which this process's workers wait."""

    def __init__(self, settings: Settings, prefix: str, on_offer: Callable[[str], None]) -> None:
        self._on_offer = on_offer
        self._prefix = prefix
        self._stream = f"{prefix}-offers"
        self._max_age_s = settings.number("bus.offer_max_age_s")
        self._max_messages = settings.integer("bus.offer_max_messages")
        self._replicas = settings.integer("bus.replicas")
        self._pools: frozenset[str] = frozenset()
        #: by pool: set when a fetch is wanted
        self._demand: dict[str, asyncio.Event] = {}
        self._new = asyncio.Event()

    def waiting(self, pools: Collection[str]) -> None:
        self._pools = frozenset(pools)
        for pool in pools:
            demand = self._demand.get(pool)
            if demand is None:
                demand = self._demand[pool] = asyncio.Event()
                self._new.set()
            demand.set()

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
        """Fetch for every pool with waiting workers, while the connection lasts."""
        fetching: dict[str, asyncio.Task[None]] = {}
        try:
            while not client.over.is_set():
                self._new.clear()
                for pool in self._demand.keys() - fetching.keys():
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
        """Listen for offers to workers of any pool. A consumer of all pools would take offers away from workers of one
        pool, so this one only listens.
        """

        async def overheard(message: Any) -> None:
            if _ANY in self._pools:
                self._on_offer(message.data.decode())

        await client.subscribe(f"{self._prefix}.offered.*", cb=overheard)
        await client.over.wait()

    async def _fetch_all(self, client: Connection, stream: JetStreamContext, pool: str) -> None:
        demand = self._demand[pool]
        fetches: _Fetches | None = None
        while not client.over.is_set():
            await demand.wait()
            try:
                if fetches is None:
                    await self._make_consumer(stream, pool)
                    fetches = await _Fetches.begun(client, self._stream, token_of(pool))
                message = await fetches.next()
                if pool in self._pools:
                    if message is not None:
                        # The next fetch is made when a worker waits again, so that one process does not take work that
                        # several could do.
                        demand.clear()
                        self._on_offer(pool)
                        await message.ack()
                else:
                    demand.clear()
                    if message is not None:
                        await message.nak()
            except (BusUnavailable, *FAULTS) as problem:
                if client.over.is_set() or client.is_closed:
                    return
                log.warning("NATS: offers to pool %s cannot be fetched: %s; trying again", pool, text_of(problem))
                if fetches is not None:
                    await fetches.end()
                    fetches = None
                await asyncio.sleep(_PAUSE_S)

    async def _make_consumer(self, stream: JetStreamContext, pool: str) -> None:
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


class _Fetches:
    """Fetches of one message from one consumer. nats-py's own would keep waiting if the consumer is removed."""

    def __init__(self, client: Connection, subject: str, inbox: str, subscription: Subscription) -> None:
        self._client = client
        self._subject = subject
        self._inbox = inbox
        self._subscription = subscription

    @classmethod
    async def begun(cls, client: Connection, stream: str, consumer: str) -> _Fetches:
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        return cls(client, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", inbox, subscription)

    async def next(self) -> Msg | None:
        """Return the next message; None if there was none for a while."""
        request = {"batch": 1, "expires": round(_FETCH_S * 1_000_000_000)}
        await self._client.publish(self._subject, msgspec.json.encode(request), reply=self._inbox)
        try:
            async with asyncio.timeout(_FETCH_S + _PATIENCE_S):
                message = await self._subscription.next_msg(timeout=None)
        except TimeoutError:
            return None
        headers = message.headers or {}
        match headers.get(api.Header.STATUS.value):
            case None:
                return message
            case api.StatusCode.NO_MESSAGES.value | api.StatusCode.REQUEST_TIMEOUT.value:
                return None
            case api.StatusCode.SERVICE_UNAVAILABLE.value:
                raise BusUnavailable("the consumer is gone")
            case status:
                raise BusUnavailable(f"{status} {headers.get(api.Header.DESCRIPTION.value, '')}".strip())

    async def end(self) -> None:
        with suppress(*FAULTS):
            await self._subscription.unsubscribe()


async def make_stream(stream: JetStreamContext, config: api.StreamConfig) -> bool:
    """Create a stream unless it exists. Return whether it was created. An existing stream keeps its configuration."""
    try:
        await stream.stream_info(str(config.name))
    except nats.js.errors.NotFoundError:
        try:
            await stream.add_stream(config)
        except nats.js.errors.BadRequestError as problem:
            # 10058: another server created it meanwhile, with another configuration.
            if problem.err_code != 10058:
                raise
        return True
    return False
