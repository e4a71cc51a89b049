"""Events published to a JetStream stream: a message is kept once its acknowledgement is here."""

from __future__ import annotations

import asyncio
import logging

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext, api

from arclog.buses.names import name_of, subject_of
from arclog.buses.nats_offers import make_stream
from arclog.drivers.nats.connect import FAULTS, text_of
from arclog.model.config.settings import Settings
from arclog.model.errors import BusUnavailable
from arclog.ports.bus import Message

log = logging.getLogger("arclog.bus")


class NatsTopic:
    """Implements `ports.bus.Topic` for as long as there is a session."""

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
            # A window may not be longer than what is kept.
            duplicate_window=min(settings.number("bus.events_duplicates_s"), settings.number("bus.events_max_age_s")),
            num_replicas=settings.integer("bus.replicas"),
        )
        self._stream: JetStreamContext | None = None
        #: in this session the stream was found, or made
        self._is_there = False
        self._was_there = False
        self._making = asyncio.Lock()

    async def begin(self, stream: JetStreamContext) -> None:
        """There is a session. Consumers may come before the first event: the stream is made at once, if it can be."""
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
            what = str(problem) or "no acknowledgement came"
            raise BusUnavailable(
                f"event {message.message_id} was not taken by the stream {self._name}: {what}"
            ) from None

    async def _make(self, stream: JetStreamContext) -> None:
        try:
            made = await make_stream(stream, self._config)
        except nats.js.errors.BadRequestError as problem:
            # 10065: another stream has these subjects.
            if problem.err_code == 10065:
                raise BusUnavailable(
                    f"another stream than {self._name} has the subjects {self._subject}.>; name it in "
                    "ARCLOG_BUS_EVENTS_STREAM, or give this cluster subjects of its own (ARCLOG_BUS_EVENTS_SUBJECT)"
                ) from None
            raise
        if made and self._was_there:
            log.warning(
                "the stream %s was created again: events that were published before are no longer in it", self._name
            )
        self._is_there = self._was_there = True
