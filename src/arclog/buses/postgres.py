"""The bus over PostgreSQL's LISTEN and NOTIFY, for clusters without NATS. It has two connections: one listens, one
notifies.

Notices are never part of an append: a transaction that notifies locks the whole database when it commits, so that all
appends would wait for each other. They are sent afterwards, merged: while one is being sent, the next ones are
collected, and for longer while no other process listens.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

import msgspec
import psycopg
from psycopg import sql

from arclog.buses.hints import Pending, name_of
from arclog.drivers.backoff import Backoff
from arclog.drivers.postgres.address import configured_address
from arclog.drivers.postgres.connect import connect, timeout_of
from arclog.drivers.postgres.refusals import Meaning, refusal_of, text_of
from arclog.model.config.settings import Settings, row_of
from arclog.model.errors import SettingsError
from arclog.ports.bus import Figures, Notice, Topic

log = logging.getLogger("arclog.bus")

#: A notice must have less than 8,000 bytes; a run takes at most 40, a pool 80.
_RUNS = 120
_POOLS = 20
_FIRST_PAUSE_S = 0.1
#: A listener that received nothing for this long checks whether the connection still works.
_QUIET_S = 15.0
#: A process is alive if it sent a notice within this time: each sends one at least every `_QUIET_S`.
_COMPANY_S = 3 * _QUIET_S
#: While PostgreSQL is slow, notices are collected for this many times as long as the last one took, up to a limit.
_REST = 10
_LONGEST_GATHER_S = 0.1
#: How long notices are collected while no other process listens. A new process announces itself and then receives them
#: at once.
_ALONE_S = 1.0
_LAST_WORDS_S = 1.0
#: With these keepalives, a lost server is noticed within a minute.
_KEEPALIVES = {
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "arclog bus",
}


class _Payload(msgspec.Struct, omit_defaults=True):
    """The payload of a notice of PostgreSQL."""

    #: the sender, since every process receives all notices, including its own
    by: str
    notice: Notice
    #: the sender has just started, and asks which other processes exist
    new: bool = False


_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(_Payload).decode


class PostgresBus:
    """Implements `ports.bus.Bus`."""

    topic: Topic | None = None

    def __init__(self, settings: Settings) -> None:
        name = "store.listen_url" if settings.text("store.listen_url") else "store.url"
        #: the setting that has the address
        self._setting = row_of(name).variable
        self._address = configured_address(settings.text(name), self._setting)
        self._channel = f"{name_of(settings, 'bus.prefix')}_notices"
        self._timeout_s = settings.number("bus.connect_timeout_s")
        self._longest_pause_s = settings.number("bus.max_retry_s")
        self._gather_s = settings.number("bus.gather_ms") / 1000
        self._pending = Pending(settings.integer("bus.max_pending"))
        self._me = os.urandom(8).hex()
        self._on_notice: Callable[[Notice], None] | None = None
        self._running: asyncio.Task[None] | None = None
        #: set when the first session is set up, or failed
        self._settled = asyncio.Event()
        self._pools: frozenset[str] = frozenset()
        self._notifier: psycopg.AsyncConnection[tuple[object, ...]] | None = None
        self._sent = self._received_count = self._lost = 0
        #: set when a new process has announced itself
        self._company = asyncio.Event()
        self._company_until = 0.0
        self._problem = ""
        #: whether the server rejects the login, so that a setting has to be changed
        self._denied = False

    async def open(self, on_notice: Callable[[Notice], None]) -> None:
        self._on_notice = on_notice
        self._running = asyncio.ensure_future(self._run())
        await self._settled.wait()
        if self._notifier is None and self._denied:
            await self.close()
            raise SettingsError(f"{self._setting}: {self._problem}")

    def notify(self, notice: Notice) -> None:
        self._pending.add(notice)

    def waiting(self, pools: Collection[str]) -> None:
        self._pools = frozenset(pools)

    def figures(self) -> Figures:
        connected = self._notifier is not None
        return Figures(connected, self._sent, self._received_count, self._pending.dropped, self._lost)

    async def close(self) -> None:
        notifier = self._notifier
        if notifier is not None:
            try:
                async with asyncio.timeout(_LAST_WORDS_S):
                    while self._pending:
                        await self._send(notifier)
            except (psycopg.Error, TimeoutError):
                pass
        running, self._running, self._on_notice = self._running, None, None
        # psycopg turns a cancellation into a request to the server, and waits for its response unless it is cancelled
        # again.
        while running is not None and not running.done():
            running.cancel()
            await asyncio.wait((running,), timeout=_LAST_WORDS_S)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, self._longest_pause_s)
        while True:
            try:
                await self._serve()
            except (psycopg.Error, OSError) as problem:
                if self._notifier is not None:
                    backoff.reset()
                    self._lost += 1
                    self._notifier = None
                self._denied = refusal_of(problem).meaning is Meaning.DENIED
                self._log_problem(text_of(problem))
            except Exception:  # a later session may work
                log.exception("the bus failed and will be tried again")
                self._notifier = None
            self._settled.set()
            await asyncio.sleep(backoff.pause_s())

    def _log_problem(self, problem: str) -> None:
        """Log a problem once until the bus is available again, however often it is tried."""
        if not self._problem:
            self._problem = problem
            log.warning(
                "PostgreSQL notifications: %s; polling for changes of other servers until they work again",
                problem,
            )

    async def _serve(self) -> None:
        """Listen and notify until a connection is lost, which raises."""
        async with await self._connected() as listener, await self._connected() as notifier:
            await self._answer(listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel))))
            # Losing a notice costs less than waiting for the disk for each.
            await self._answer(notifier.execute("SET synchronous_commit = off"))
            await self._greet(notifier, new=True)
            self._notifier = notifier
            self._settled.set()
            if self._problem:
                self._problem = ""
                log.info("PostgreSQL notifications work again")
            tasks = [
                asyncio.ensure_future(coroutine) for coroutine in (self._listen(listener), self._send_all(notifier))
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self) -> psycopg.AsyncConnection[tuple[object, ...]]:
        return await connect(self._address, {**_KEEPALIVES, "connect_timeout": timeout_of(self._timeout_s)})

    async def _answer(self, response: Awaitable[object]) -> None:
        """Await a response. A connection that does not respond is treated like a lost one."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await response
        except TimeoutError:
            raise psycopg.OperationalError(f"no answer within {self._timeout_s:g} s") from None

    # -- sending and receiving -----------------------------------------------------------------------------------------

    async def _listen(self, listener: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        while True:
            async for notification in listener.notifies(timeout=_QUIET_S):
                if self._received(notification.payload) and self._notifier is not None:
                    await self._greet(self._notifier)
            await self._greet(listener)

    async def _greet(self, connection: psycopg.AsyncConnection[tuple[object, ...]], *, new: bool = False) -> None:
        """Send an empty notice to show that this process listens, and to check the connection."""
        await self._notify(connection, Notice(), new=new)

    def _heard_others(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._company_until <= now:
            self._company.set()
        self._company_until = now + _COMPANY_S

    def _received(self, payload: str) -> bool:
        """Process a notice. Return whether it must be answered."""
        try:
            decoded = _decode(payload)
        except msgspec.DecodeError as problem:
            log.warning("a message on the channel %s is not a notification: %s", self._channel, problem)
            return False
        if decoded.by == self._me or self._on_notice is None:
            return False
        self._heard_others()
        notice = decoded.notice
        if notice.offered and "" not in self._pools:
            offers = tuple(offer for offer in notice.offered if offer[0] in self._pools)
            notice = msgspec.structs.replace(notice, offered=offers)
        if notice != Notice():
            self._received_count += 1
            self._on_notice(notice)
        return decoded.new

    async def _send_all(self, notifier: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await self._pending.some()
            began = clock()
            await self._send(notifier)
            if not self._pending:  # otherwise there is more than one notice can hold
                await self._gather(clock() - began)

    async def _gather(self, took_s: float) -> None:
        """Wait before the next notice. The last one took `took_s`."""
        if asyncio.get_running_loop().time() < self._company_until:
            await asyncio.sleep(gather_s(self._gather_s, took_s))
            return
        self._company.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ALONE_S):
                await self._company.wait()

    async def _send(self, notifier: psycopg.AsyncConnection[tuple[object, ...]]) -> None:
        notice = self._pending.take(_RUNS, _POOLS)
        try:
            await self._notify(notifier, notice)
        except BaseException:
            self._pending.give_up(notice)
            raise
        self._sent += 1

    async def _notify(
        self, connection: psycopg.AsyncConnection[tuple[object, ...]], notice: Notice, *, new: bool = False
    ) -> None:
        payload = _encode(_Payload(self._me, notice, new)).decode()
        await self._answer(connection.execute("SELECT pg_notify(%s, %s)", (self._channel, payload)))


def gather_s(least_s: float, took_s: float) -> float:
    """Return how long notices are collected while other processes listen. 0 if they are not to be collected at all."""
    return max(least_s, min(_REST * took_s, _LONGEST_GATHER_S)) if least_s else 0.0
