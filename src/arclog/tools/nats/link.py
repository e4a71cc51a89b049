"""One connection to a NATS server, shared by tasks.

Law: whoever waits on a connection is told when it ends or when the server denies what was asked. Nothing is sent again
behind a task's back: a connection that broke is not mended, the next task makes a new one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import (
    BadHeaderError,
    ConnectionClosedError,
    ConnectionDrainingError,
    Error,
    MaxPayloadError,
    NoRespondersError,
    NoServersError,
    OutboundBufferLimitError,
    SecureConnWantedError,
)

from arclog.model.outcome import TaskError, error
from arclog.tools.http.guard import Guard
from arclog.tools.nats.failure import Failure, broken, denial, no_connection, of_api, refused, said_no, too_late
from arclog.tools.nats.where import Login, Server, Target

Given = TypeVar("Given")
#: subject, payload, headers
Outgoing = tuple[str, bytes, Mapping[str, str]]
#: whose certificates are trusted
Trust = Callable[[], ssl.SSLContext]

#: A server that says nothing for twice as long is gone.
_PING_S = 20
#: Older servers know neither headers nor "nobody listens", which everything here is built on.
_OLDEST = (2, 2, 0)
#: A cancellation that the client swallowed is repeated this often.
_AGAIN_S = 0.05
_CLOSE_S = 5.0
#: After a failed TLS handshake the client's close never ends, though its socket is closed by then.
_HANG_UP_S = 0.1


class _OneServer(Client):
    """The client for one server: it never goes to others that the server tells of, nor says anything in the clear."""

    def __init__(self, *, encrypted: bool, trust: Trust) -> None:
        super().__init__()
        self._encrypted = encrypted
        self._trust = trust

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Made when it is needed: to read all authorities takes longer than to connect."""
        return self._trust()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        info.pop("connect_urls", None)
        if initial_connection and self._encrypted and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise SecureConnWantedError
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


class Link:
    """A connection that is there."""

    def __init__(self, client: Client, server: Server, answer_s: float) -> None:
        self._client = client
        self.where = server.shown
        self.answer_s = answer_s
        self.max_payload = int(client.max_payload)
        #: something was not answered in time: to be proved before it is used again
        self.doubted = False
        #: its inbox is there; until then requests that begin together may be sent in another order
        self.attuned = False
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: those who wait, with the subjects that they publish to and whether they listen to an inbox
        self._waiting: dict[asyncio.Future[TaskError], tuple[frozenset[str], bool]] = {}
        self._flushes: set[asyncio.Task[None]] = set()
        #: why no answer can ever be received
        self._deaf: TaskError | None = None

    @property
    def usable(self) -> bool:
        return self._client.is_connected and not self._broken.done()

    @property
    def version(self) -> tuple[int, int, int]:
        found = self._client.connected_server_version
        return found.major, found.minor, found.patch

    # -- what tasks do

    async def send(self, messages: Sequence[Outgoing]) -> None:
        """Messages to whoever listens, in order; the server has them all, and said no to none of their subjects."""

        async def sending() -> None:
            for subject, body, headers in messages:
                await self._client.publish(subject, body, headers=dict(headers) or None)
            # Waited for by itself: the client dies of an answer to a ping that nobody waits for any more.
            flushing = asyncio.ensure_future(self._client.flush(timeout=max(1, round(self.answer_s))))
            self._flushes.add(flushing)
            flushing.add_done_callback(self._flushed)
            await asyncio.shield(flushing)

        subjects = frozenset(message[0] for message in messages)
        await self.during(sending(), f"publishing to {self.where}", subjects, listens=False)

    async def ask(self, subject: str, body: bytes, reply: str) -> None:
        """A message whose answers come to an inbox."""
        await self.during(self._client.publish(subject, body, reply), f"asking {self.where}", frozenset())

    async def request(
        self, subject: str, body: bytes, headers: Mapping[str, str] | None = None, *, wait_s: float | None = None,
        what: str = "", by: str = "setting nats.request_timeout_s",
    ) -> Msg:  # fmt: skip
        """The answer to a message. Raises NoRespondersError when nobody listens."""
        wait_s = self.answer_s if wait_s is None else wait_s
        asking = self._client.request(subject, body, timeout=wait_s, headers=dict(headers or {}) or None)
        answer = await self.during(
            asking, what or f"{subject} at {self.where}", frozenset({subject}), wait_s=wait_s, by=by
        )
        self.attuned = True
        return answer

    async def api(self, subject: str, body: Any, what: str) -> dict[str, Any]:
        """The answer of JetStream's own API."""
        try:
            answer = await self.request(f"$JS.API.{subject}", msgspec.json.encode(body) if body else b"", what=what)
        except NoRespondersError:
            message = f"{what}: {self.where} has no JetStream (nats-server -js)"
            raise Failure(error("config", message, code="NO_JETSTREAM")) from None
        return answered(answer, what)

    async def during(
        self, work: Coroutine[Any, Any, Given], what: str, subjects: frozenset[str], *, listens: bool = True,
        wait_s: float | None = None, by: str = "setting nats.request_timeout_s",
    ) -> Given:  # fmt: skip
        """Await work that needs the connection; it ends at the latest when that does, or when the server denies it."""
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
            if not task.done() or task.cancelled():  # a client that closes cancels what waits in it
                raise broken(self.where)
            return task.result()
        except TimeoutError:
            self.doubted = True
            raise too_late(what, self.answer_s if wait_s is None else wait_s, by) from None
        except NoRespondersError:
            raise
        except Error as problem:
            raise self._told(problem) from None
        finally:
            del self._waiting[denied]
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_AGAIN_S)
            if not task.cancelled():
                task.exception()  # taken note of: something else ended the wait

    async def listen(self, hear: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """An inbox of one's own, with subjects `inbox.*`; whoever makes one leaves it."""
        subscribing = self._client.subscribe(f"{self._client.new_inbox()}.*", cb=hear, pending_bytes_limit=0)
        return await self.during(subscribing, f"listening at {self.where}", frozenset())

    async def leave(self, inbox: Subscription) -> None:
        with suppress(Failure):
            await self.during(inbox.unsubscribe(), f"leaving {self.where}", frozenset(), listens=False)

    async def proved(self, within_s: float) -> bool:
        """Whether the server still answers."""
        try:
            async with asyncio.timeout(within_s):
                await self.send(())
        except (Failure, TimeoutError):
            return False
        self.doubted = False
        return True

    async def close(self) -> None:
        self.ended()
        for flushing in list(self._flushes):
            flushing.cancel()
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await self._client.close()

    # -- what the client tells

    def ended(self) -> None:
        if not self._broken.done():
            self._broken.set_result(None)

    def trouble(self, problem: Exception) -> None:
        """Something that the server says outside of any answer."""
        found = denial(str(problem))
        if found is None:
            return
        verb, subject = found
        if verb == "publish":
            for waiting, (subjects, _) in self._waiting.items():
                if subject in subjects and not waiting.done():
                    message = f"{self.where}: this login may not publish to a subject of the task"
                    waiting.set_result(error("auth", message, code="PERMISSION"))
            return
        message = (
            f"{self.where}: this login may not listen for answers; a prefix that it may use is set by `inbox_prefix`"
        )
        self._deaf = error("auth", message, code="PERMISSION")
        for waiting, (_, listens) in self._waiting.items():
            if listens and not waiting.done():
                waiting.set_result(self._deaf)

    def _flushed(self, flushing: asyncio.Task[None]) -> None:
        self._flushes.discard(flushing)
        if not flushing.cancelled():
            flushing.exception()

    def _told(self, problem: Error) -> Failure:
        if isinstance(problem, BadHeaderError):
            return refused("the name of a header holds a character that NATS does not take")
        if isinstance(problem, MaxPayloadError):
            return Failure(error("limit", f"{self.where}: the message is larger than it takes", code="MAX_PAYLOAD"))
        if isinstance(problem, ConnectionClosedError | ConnectionDrainingError | OutboundBufferLimitError):
            return broken(self.where)
        return Failure(error("server_error", f"{self.where}: {problem}", code=type(problem).__name__))


def answered(answer: Msg, what: str) -> dict[str, Any]:
    """What JetStream said, which is JSON."""
    try:
        said = msgspec.json.decode(answer.data)
    except msgspec.DecodeError:
        said = None
    if not isinstance(said, dict):
        message = f"{what}: who answered is no stream; without `stream` the message is published to whoever listens"
        raise Failure(error("server_error", message, code="NO_STREAM", retryable=False))
    if said.get("error"):
        raise of_api(said["error"], what)
    return said


async def connected(
    target: Target, guard: Guard, trust: Trust, connect_s: float, answer_s: float
) -> Link:  # fmt: skip
    """A connection to the first of the target's servers that takes one."""
    failure = refused("there is no server to connect to")
    for server in target.servers:
        try:
            addresses = await guard.addresses(server.host, server.port)
        except Failure as problem:
            failure = _unnamed(problem, server)
            continue
        for address in addresses:
            try:
                return await _connected(server, address, target, trust, connect_s, answer_s)
            except Failure as problem:
                failure = problem
                if problem.problem.kind in ("auth", "config"):
                    raise  # all servers of a cluster know the same logins
    raise failure


async def _connected(
    server: Server, address: str, target: Target, trust: Trust, connect_s: float, answer_s: float
) -> Link:
    client = _OneServer(encrypted=server.encrypted, trust=trust)
    link: Link | None = None
    last: list[Exception] = []

    async def told(problem: Exception) -> None:
        last[:] = [problem]
        if link is not None:
            link.trouble(problem)

    async def closed() -> None:
        if link is not None:
            link.ended()

    host = f"[{address}]" if ":" in address else address
    try:
        async with asyncio.timeout(connect_s):
            await client.connect(
                servers=[f"nats://{host}:{server.port}"],
                error_cb=told,
                closed_cb=closed,
                name="arclog",
                allow_reconnect=False,
                # Each server is tried so often and once more; 0 would mean for ever.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=round(connect_s) + 1,
                ping_interval=_PING_S,
                # Each command is written before the next begins; else the client lets its pings overtake messages.
                pending_size=1,
                tls_hostname=server.host,
                inbox_prefix=target.inbox_prefix or "_INBOX",
                **_login(target.login),
            )
        link = Link(client, server, answer_s)
        if not link.usable:
            raise no_connection(None, server.shown, connect_s)
        if link.version < _OLDEST:
            raise too_old(link, "NATS with headers", _OLDEST)
        return link
    except BaseException as problem:
        with suppress(Exception):
            async with asyncio.timeout(_HANG_UP_S):
                await client.close()
        if isinstance(problem, SecureConnWantedError):
            message = f"{server.shown}: the server does not encrypt (tls:// was asked for)"
            raise Failure(error("connection", message, code="TLS", retryable=False)) from None
        if isinstance(problem, NoServersError):
            raise no_connection(last[0] if last else None, server.shown, connect_s) from None
        if isinstance(problem, OSError):  # a TimeoutError is one
            raise no_connection(problem, server.shown, connect_s) from None
        if isinstance(problem, Error):
            raise said_no(str(problem), server.shown, auth=target.login != Login()) from None
        raise


def too_old(link: Link, what: str, least: tuple[int, int, int]) -> Failure:
    have, need = (".".join(map(str, version)) for version in (link.version, least))
    message = f"{link.where}: {what} needs a server from {need} on, and this is {have}"
    return Failure(error("config", message, code="SERVER_VERSION"))


def _login(login: Login) -> dict[str, Any]:
    """The client's words for a login; a seed never leaves this process, it signs what the server asks to be signed."""
    if login.seed:
        import base64

        import nkeys  # type: ignore[import-untyped]  # it has no types

        try:
            pair = nkeys.from_seed(bytearray(login.seed.encode()))
            pair.public_key.decode()
        except Exception:  # noqa: BLE001 - each sort of bad seed raises something of its own
            raise refused("the seed of this auth is no NKEY of a user (SU…)") from None
        if not login.jwt:
            return {"nkeys_seed_str": login.seed, **({"token": login.token} if login.token else {})}
        return {
            "user_jwt_cb": lambda: bytearray(login.jwt.encode()),
            "signature_cb": lambda nonce: base64.b64encode(pair.sign(nonce.encode())),
        }
    if login.user:
        return {"user": login.user, "password": login.password}
    return {"token": login.token} if login.token else {}


def _unnamed(problem: Failure, server: Server) -> Failure:
    """The guard names a host; one that came out of a credential is not to be shown."""
    if server.host in server.shown:
        return problem
    told = problem.problem
    return Failure(error(told.kind, f"{server.shown} cannot be reached: {told.code}", code=told.code))
