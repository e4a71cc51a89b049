"""One connection to a NATS server, shared by tasks.

Invariants: a task that waits on a connection gets an error if the connection ends or the server denies the request.
Nothing is sent again implicitly: a broken connection is not repaired, and the next task opens a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import (
    BadHeaderError,
    ConnectionClosedError,
    ConnectionDrainingError,
    Error,
    MaxPayloadError,
    NoRespondersError,
    OutboundBufferLimitError,
)

from arclog.drivers.nats.connect import Connection, Version
from arclog.model.outcome import TaskError, error
from arclog.tools.nats.failure import Failure, broken, denial, of_api, refused, too_late

Given = TypeVar("Given")
#: subject, payload, headers
Outgoing = tuple[str, bytes, Mapping[str, str]]

#: The interval at which a cancellation that the client swallowed is repeated.
_AGAIN_S = 0.05


class SharedConnection:
    """An open connection."""

    def __init__(self, client: Connection, where: str, answer_s: float) -> None:
        """`where` is the server's name in errors."""
        self._client = client
        self.where = where
        self.answer_s = answer_s
        self.max_payload = int(client.max_payload)
        #: a request timed out; the connection is checked before its next use
        self.doubted = False
        #: whether its inbox exists; until then, concurrent requests may be sent out of order
        self.attuned = False
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: waiting tasks, with the subjects that they publish to and whether they use an inbox
        self._waiting: dict[asyncio.Future[TaskError], tuple[frozenset[str], bool]] = {}
        self._echoes: set[asyncio.Task[float]] = set()
        #: why replies cannot be received; None if they can
        self._deaf: TaskError | None = None
        client.on_error, client.on_over = self.trouble, self.ended

    @property
    def usable(self) -> bool:
        return self._client.is_connected and not self._broken.done()

    @property
    def version(self) -> Version:
        return self._client.version

    # -- called by tasks

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Publish messages in order. Returns when the server has received all of them and denied none of their
        subjects.
        """

        async def sending() -> None:
            for subject, body, headers in messages:
                await self._client.publish(subject, body, headers=dict(headers) or None)
            # Shielded from cancellation: the client fails on a pong that nothing waits for. Its `flush` is not used,
            # since it succeeds even if the client is closed.
            echo = asyncio.ensure_future(self._client.rtt(timeout=max(1, round(self.answer_s))))
            self._echoes.add(echo)
            echo.add_done_callback(self._echo_ended)
            await asyncio.shield(echo)

        subjects = frozenset(message[0] for message in messages)
        await self.during(sending(), f"publishing to {self.where}", subjects, listens=False)

    async def ask(self, subject: str, body: bytes, reply: str) -> None:
        """Publish a message whose replies come to an inbox."""
        await self.during(self._client.publish(subject, body, reply), f"asking {self.where}", frozenset())

    async def request(
        self, subject: str, body: bytes, headers: Mapping[str, str] | None = None, *, wait_s: float | None = None,
        operation: str = "", by: str = "setting nats.request_timeout_s",
    ) -> Msg:  # fmt: skip
        """Send a request and return the reply. Raises NoRespondersError if there is no subscriber."""
        wait_s = self.answer_s if wait_s is None else wait_s
        asking = self._client.request(subject, body, timeout=wait_s, headers=dict(headers or {}) or None)
        answer = await self.during(
            asking, operation or f"{subject} at {self.where}", frozenset({subject}), wait_s=wait_s, by=by
        )
        self.attuned = True
        return answer

    async def api(self, subject: str, body: Any, operation: str) -> dict[str, Any]:
        """Return the response of JetStream's API."""
        try:
            answer = await self.request(
                f"$JS.API.{subject}", msgspec.json.encode(body) if body else b"", operation=operation
            )
        except NoRespondersError:
            message = f"{operation}: {self.where} has no JetStream (nats-server -js)"
            raise Failure(error("config", message, code="NO_JETSTREAM")) from None
        return json_of(answer, operation)

    async def during(
        self, work: Coroutine[Any, Any, Given], operation: str, subjects: frozenset[str], *, listens: bool = True,
        wait_s: float | None = None, by: str = "setting nats.request_timeout_s",
    ) -> Given:  # fmt: skip
        """Await work that needs the connection. Fails if the connection ends or the server denies the request."""
        if listens and self._deaf is not None:
            work.close()
            raise Failure(self._deaf)
        denied: asyncio.Future[TaskError] = asyncio.get_running_loop().create_future()
        self._waiting[denied] = (frozenset(subject.lower() for subject in subjects), listens)
        task = asyncio.ensure_future(work)
        try:
            ends: set[asyncio.Future[Any]] = {task, denied, self._broken}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if denied.done():
                raise Failure(denied.result())
            if not task.done() or task.cancelled():  # a client that is closed cancels its waiting requests
                raise broken(self.where)
            return task.result()
        except TimeoutError:
            self.doubted = True
            raise too_late(operation, self.answer_s if wait_s is None else wait_s, by) from None
        except NoRespondersError:
            raise
        except Error as problem:
            raise self._failure_of(problem) from None
        finally:
            del self._waiting[denied]
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_AGAIN_S)
            if not task.cancelled():
                task.exception()  # marks the exception as retrieved; something else ended the wait

    async def listen(self, hear: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Subscribe to a new inbox with subjects `inbox.*`."""
        subscribing = self._client.subscribe(f"{self._client.new_inbox()}.*", cb=hear, pending_bytes_limit=0)
        return await self.during(subscribing, f"listening at {self.where}", frozenset())

    async def leave(self, inbox: Subscription) -> None:
        with suppress(Failure):
            await self.during(inbox.unsubscribe(), f"leaving {self.where}", frozenset(), listens=False)

    async def proved(self, within_s: float) -> bool:
        """Return whether the server still responds."""
        try:
            async with asyncio.timeout(within_s):
                await self.send(())
        except (Failure, TimeoutError):
            return False
        self.doubted = False
        return True

    async def close(self) -> None:
        self.ended()
        for echo in list(self._echoes):
            echo.cancel()
        await self._client.close()

    # -- called by the client

    def ended(self) -> None:
        if not self._broken.done():
            self._broken.set_result(None)

    def trouble(self, problem: Exception) -> None:
        """Handle an error that the server sends outside of any reply."""
        denied = denial(str(problem))
        if denied is None:
            return
        verb, subject = denied
        if verb == "publish":
            for waiting, (subjects, _) in self._waiting.items():
                if subject in subjects and not waiting.done():
                    message = f"{self.where}: this login is not allowed to publish to a subject of the task"
                    waiting.set_result(error("auth", message, code="PERMISSION"))
            return
        message = f"{self.where}: this login is not allowed to subscribe to replies; set an allowed prefix with `inbox_prefix`"
        self._deaf = error("auth", message, code="PERMISSION")
        for waiting, (_, listens) in self._waiting.items():
            if listens and not waiting.done():
                waiting.set_result(self._deaf)

    def _echo_ended(self, echo: asyncio.Task[float]) -> None:
        self._echoes.discard(echo)
        if not echo.cancelled() and echo.exception() is not None:
            self.ended()

    def _failure_of(self, problem: Error) -> Failure:
        if isinstance(problem, BadHeaderError):
            return refused("the name of a header contains a character that NATS does not accept")
        if isinstance(problem, MaxPayloadError):
            return Failure(error("limit", f"{self.where}: the message is too large", code="MAX_PAYLOAD"))
        if isinstance(problem, ConnectionClosedError | ConnectionDrainingError | OutboundBufferLimitError):
            return broken(self.where)
        return Failure(error("server_error", f"{self.where}: {problem}", code=type(problem).__name__))


def json_of(answer: Msg, operation: str) -> dict[str, Any]:
    """Return the JSON response of JetStream. Raises Failure."""
    try:
        body = msgspec.json.decode(answer.data)
    except msgspec.DecodeError:
        body = None
    if not isinstance(body, dict):
        message = f"{operation}: the response is not from a stream; without `stream` the message is published to all current subscribers"
        raise Failure(error("server_error", message, code="NO_STREAM", retryable=False))
    if body.get("error"):
        raise of_api(body["error"], operation)
    return body


def too_old(connection: SharedConnection, operation: str, least: Version) -> Failure:
    return version_failure(connection.where, operation, ".".join(map(str, connection.version)), least)


def version_failure(where: str, operation: str, version: str, least: Version) -> Failure:
    need = ".".join(map(str, least))
    message = f"{where}: {operation} needs a server from {need} on, and this is {version}"
    return Failure(error("config", message, code="SERVER_VERSION"))
