"""The bus over NATS. Notices of changed runs are published to all processes on a plain subject. Offers go through a
JetStream work queue, where each one wakes one process that waits for its pool.

A connection is a session. When it is lost, all its state is discarded, and a new session sets up subjects, streams and
consumers again, so the bus also recovers if NATS lost its data.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from arclog.buses.hints import Pending, name_of, subject_of, token_of
from arclog.buses.nats_offers import Offers, make_stream
from arclog.drivers.backoff import Backoff
from arclog.drivers.nats.cluster import Cluster
from arclog.drivers.nats.connect import FAULTS, Connection, text_of
from arclog.model.config.settings import Settings
from arclog.model.errors import BusUnavailable, SettingsError
from arclog.ports.bus import Figures, Message, Notice, Topic

# ── nats topic ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Publishes events to a JetStream stream: a message is stored once it is acknowledged.

log = logging.getLogger("arclog.bus")


class NatsTopic:
    """Implements `ports.bus.Topic` while there is a session."""

    def __init__(self, settings: Settings, prefix: str) -> None:
        own = settings.text("bus.events_stream")
        self._name = name_of(settings, "bus.events_stream") if own else f"{prefix}-events"
        self._subject = subject_of(settings, "bus.events_subject")
        self._timeout_s = settings.number("bus.connect_timeout_s")
        self._config = api.StreamConfig(
            name=self._name,
            description="arclog: events of runs, from their logs, in order per run.",
            subjects=[f"{self._subject}.>"],
            retention=api.RetentionPolicy.LIMITS,
            storage=api.StorageType.FILE,
            discard=api.DiscardPolicy.OLD,
            max_age=settings.number("bus.events_max_age_s"),
            max_bytes=settings.integer("bus.events_max_bytes"),
            # The duplicate window must not be longer than the retention.
            duplicate_window=min(settings.number("bus.events_duplicates_s"), settings.number("bus.events_max_age_s")),
            num_replicas=settings.integer("bus.replicas"),
        )
        self._stream: JetStreamContext | None = None
        #: whether the stream was found, or created, in this session
        self._is_there = False
        self._was_there = False
        self._making = asyncio.Lock()

    async def begin(self, stream: JetStreamContext) -> None:
        """Begin a session. The stream is created at once, if possible, since consumers may come before the
        first event.
        """
        self._stream, self._is_there = stream, False
        try:
            async with self._making:
                await self._make(stream)
        except (BusUnavailable, *FAULTS) as problem:
            log.warning("events cannot be published: %s", text_of(problem))

    def end(self) -> None:
        self._stream = None

    async def publish(self, message: Message) -> None:
        stream = self._stream
        if stream is None:
            raise BusUnavailable("NATS is unavailable")
        headers = {**message.headers, api.Header.MSG_ID.value: message.message_id}
        try:
            async with self._making:
                if not self._is_there:
                    await self._make(stream)
            await stream.publish(message.subject, message.body, timeout=self._timeout_s, headers=headers)
        except nats.js.errors.NoStreamResponseError:
            self._is_there = False
            raise BusUnavailable(
                f"no stream takes {self._subject}.>: {self._name} is gone, or does not have these subjects"
            ) from None
        except nats.errors.MaxPayloadError:
            raise BusUnavailable(
                f"event {message.message_id} has {len(message.body)} bytes, more than NATS takes; raise its max_payload"
            ) from None
        except FAULTS as problem:
            reason = str(problem) or "no acknowledgement came"
            raise BusUnavailable(
                f"event {message.message_id} was not taken by the stream {self._name}: {reason}"
            ) from None

    async def _make(self, stream: JetStreamContext) -> None:
        try:
            made = await make_stream(stream, self._config)
        except nats.js.errors.BadRequestError as problem:
            # 10065: another stream has these subjects.
            if problem.err_code == 10065:
                raise BusUnavailable(
                    f"another stream than {self._name} has the subjects {self._subject}.>; name it in "
                    "ARCLOG_BUS_EVENTS_STREAM, or use other subjects for this cluster (ARCLOG_BUS_EVENTS_SUBJECT)"
                ) from None
            raise
        if made and self._was_there:
            log.warning(
                "the stream %s was created again: events that were published before are no longer in it", self._name
            )
        self._is_there = self._was_there = True


# ── nats ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Maximum number of runs in one message: about 30 bytes each, far below the limit of a server.
_RUNS = 2_000
_POOLS = 100
#: Maximum number of messages for one pool at a time: each wakes one process.
_OFFERS = 32
_FIRST_PAUSE_S = 0.1
#: Time limit for sending the rest when the program exits.
_LAST_WORDS_S = 1.0

_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Notice).decode


class NatsBus:
    """Implements `ports.bus.Bus`."""

    def __init__(self, settings: Settings) -> None:
        self._cluster = Cluster(settings)
        self._prefix = name_of(settings, "bus.prefix")
        self._timeout_s = settings.number("bus.connect_timeout_s")
        self._longest_pause_s = settings.number("bus.max_retry_s")
        self._pending = Pending(settings.integer("bus.max_pending"))
        self._offers = Offers(settings, self._prefix, self._on_offer)
        self._topic = NatsTopic(settings, self._prefix) if settings["bus.publish_events"] else None
        self.topic: Topic | None = self._topic
        self._on_notice: Callable[[Notice], None] | None = None
        self._running: asyncio.Task[None] | None = None
        #: the connection, while it is connected and set up
        self._session: Connection | None = None
        #: set when the first session is set up, or failed
        self._settled = asyncio.Event()
        self._closing = False
        self._sent = self._received_count = self._lost = 0
        self._problem = ""

    async def open(self, on_notice: Callable[[Notice], None]) -> None:
        self._on_notice = on_notice
        made: tuple[Connection, JetStreamContext] | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                made = await self._cluster.connect(self._timeout_s)
        except BusUnavailable as problem:
            self._log_problem(str(problem))
        except TimeoutError:
            self._log_problem(f"NATS does not answer at {self._cluster}")
        self._running = asyncio.ensure_future(self._run(made))
        if made is not None:
            await self._settled.wait()

    def notify(self, notice: Notice) -> None:
        self._pending.add(notice)

    def waiting(self, pools: Collection[str]) -> None:
        self._offers.waiting(pools)

    def figures(self) -> Figures:
        connected = self._session is not None
        return Figures(connected, self._sent, self._received_count, self._pending.dropped, self._lost)

    async def close(self) -> None:
        self._closing = True
        session, running = self._session, self._running
        if session is not None:
            with suppress(*FAULTS):
                async with asyncio.timeout(_LAST_WORDS_S):
                    while self._pending:
                        await self._send(session)
                    await session.flush()
                    await session.flush()
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        self._running = self._on_notice = None

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _run(self, made: tuple[Connection, JetStreamContext] | None) -> None:
        backoff = Backoff(_FIRST_PAUSE_S, self._longest_pause_s)
        while not self._closing:
            lost = self._lost
            try:
                if made is None:
                    made = await self._cluster.connect(self._timeout_s)
                await self._serve(*made)
                self._log_problem("the connection to NATS was lost")
            except SettingsError as problem:
                # It worked before, or it may be repaired at the server, so it is logged for operators.
                self._log_problem(str(problem), logging.ERROR)
            except BusUnavailable as problem:
                self._log_problem(str(problem))
            except FAULTS as problem:
                self._log_problem(f"NATS: {text_of(problem)}")
            except Exception:  # a later session may work
                log.exception("the bus failed; NATS will be tried again")
            made = None
            self._settled.set()
            if self._lost > lost:
                backoff.reset()
            await asyncio.sleep(backoff.pause_s())

    def _log_problem(self, problem: str, level: int = logging.WARNING) -> None:
        """Log a problem once until the bus is available again, however often it is tried. Errors that need an operator
        are always logged.
        """
        if not self._problem or (level == logging.ERROR and problem != self._problem):
            self._problem = problem
            log.log(level, "%s; polling for changes of other servers until NATS is reachable again", problem)

    async def _serve(self, client: Connection, stream: JetStreamContext) -> None:
        """Set up the session, and serve until the connection is lost."""
        tasks: list[asyncio.Future[Any]] = []
        try:
            await self._offers.set_up(stream)
            if self._topic is not None:
                await self._topic.begin(stream)
            await client.subscribe(f"{self._prefix}.notices", cb=self._received)
            # Twice: nats-py writes its ping before pending data, so the first pong may be older than our subscriptions.
            await client.flush()
            await client.flush()
            self._session = client
            self._settled.set()
            if self._problem:
                self._problem = ""
                log.info("NATS is available again: %s", self._cluster)
            endless: list[Awaitable[None]] = [self._send_all(client), self._offers.run(client, stream)]
            tasks = [asyncio.ensure_future(coroutine) for coroutine in (*endless, client.over.wait())]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._lost += self._session is not None and not self._closing
            self._session = None
            if self._topic is not None:
                self._topic.end()
            # nats-py may swallow a cancellation, or turn it into another error, so the loop must check for the end.
            client.over.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

    # -- sending and receiving -----------------------------------------------------------------------------------------

    async def _send_all(self, client: Connection) -> None:
        while not client.over.is_set():
            await self._pending.some()
            await self._send(client)

    async def _send(self, client: Connection) -> None:
        """Send some of the pending notices."""
        notice = self._pending.take(_RUNS, _POOLS)
        try:
            if notice.moved or notice.timer or notice.ended or notice.room:
                plain = Notice(notice.moved, notice.ended, (), notice.timer, notice.room)
                await client.publish(f"{self._prefix}.notices", _encode(plain))
            for pool, count in notice.offered:
                for _ in range(min(count, _OFFERS)):
                    await client.publish(f"{self._prefix}.offered.{token_of(pool)}", pool.encode())
        except BaseException:
            self._pending.give_up(notice)
            raise
        self._sent += 1

    async def _received(self, message: Any) -> None:
        try:
            notice = _decode(message.data)
        except msgspec.DecodeError as problem:
            log.warning(
                "NATS: a message on %s is not a notification: %s; does another program use the subject?",
                message.subject,
                problem,
            )
            return
        self._hear(notice)

    def _on_offer(self, pool: str) -> None:
        self._hear(Notice(offered=((pool, 1),)))

    def _hear(self, notice: Notice) -> None:
        if self._on_notice is not None:
            self._received_count += 1
            self._on_notice(notice)
