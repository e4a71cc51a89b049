"""Connections: pools of HTTP/1.1 and HTTP/2 connections, each made to an address that the guard let through.

Law: every connection of a direct pool is made by `_Guarded.connect_tcp`. Names go to TLS and the Host header as they are
written; the socket goes to the address that was checked. Nothing but connections is shared between tasks: no cookies,
no credentials.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, cast

import httpcore2
import httpx2

from arclog.drivers.failure import Failure, refused, shortened
from arclog.drivers.http.guard import Guard
from arclog.drivers.http.stream import connect
from arclog.model.config.settings import Settings

# ── target ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A web address, taken apart as requests use it.


class Target(NamedTuple):
    """A web address, taken apart as it is used; only `target_of` makes one."""

    scheme: str
    host: str
    port: int | None
    #: path and query, encoded
    path: bytes
    #: host and port as the Host header names them
    authority: str
    text: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port or (443 if self.scheme == "https" else 80)


@lru_cache(maxsize=256)
def target_of(text: str) -> Target:
    """A web address, as the client reads it."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, UnicodeError) as problem:
        if "@" in text:
            raise refused(
                "url: it is not a web address; put credentials into a keychain entry and name it in auth"
            ) from None
        raise refused(f"url: {shortened(text)!r} is not a web address: {problem}") from None
    if url.scheme not in ("http", "https"):
        raise refused(f"url: {shortened(text)!r} starts with neither http:// nor https://")
    if url.userinfo:
        raise refused("url: it holds a user name or password; declare a keychain entry and name it in auth")
    if not url.host or "%" in url.host:
        raise refused(f"url: {shortened(text)!r} names no host")
    if url.port is not None and not 0 < url.port < 65536:
        raise refused(f"url: {shortened(text)!r} names a port that does not exist")
    whole = str(url).partition("#")[0]
    host, authority = url.raw_host.decode("ascii"), url.netloc.decode("ascii")
    return Target(url.scheme, host, url.port, url.raw_path, authority, whole)


# ── protocols ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# What the client's connections do beside speaking HTTP: a request that ends early must not harm those around it.
#
# Law: bytes behind an HTTP/1.1 answer are never taken for the next one; an HTTP/2 request that is abandoned is reset, and what
# came for it is given back to the connection's window; what breaks HTTP/2 is an error of the client's at any time. The base
# classes do none of it, and have no public place for it: the names with an underscore here are theirs, and tests fail when
# they change.

#: A connection that cannot even take a reset for so long is about to be found out by others.
_RESET_S = 1.0


class Http11(httpcore2.AsyncHTTP11Connection):
    """One request at a time."""

    def has_expired(self) -> bool:
        return bool(self._h11_state.trailing_data[0]) or super().has_expired()


class Http2(httpcore2.AsyncHTTP2Connection):
    """Many requests at a time, of many tasks."""

    async def _read_incoming_data(self, request: httpcore2.Request) -> list[Any]:
        """The base translates what breaks the protocol only until an answer's head has come."""
        from h2.exceptions import ProtocolError

        try:
            return await super()._read_incoming_data(request)
        except ProtocolError as broken:
            self._connection_error = True
            raise httpcore2.RemoteProtocolError(str(broken)) from None

    async def _response_closed(self, stream_id: int) -> None:
        self._give_up(stream_id)
        data = self._h2_state.data_to_send()
        if data and not self.is_closed():
            try:
                await self._network_stream.write(data, _RESET_S)
            except (httpcore2.WriteError, httpcore2.WriteTimeout):
                self._connection_error = True
        await super()._response_closed(stream_id)

    def _give_up(self, stream_id: int) -> None:
        """Reset a stream that has not ended."""
        from h2.errors import ErrorCodes
        from h2.events import DataReceived
        from h2.exceptions import ProtocolError

        try:
            for event in self._events.get(stream_id, ()):
                if isinstance(event, DataReceived):
                    self._h2_state.acknowledge_received_data(event.flow_controlled_length or 0, stream_id)
            self._h2_state.reset_stream(stream_id, ErrorCodes.CANCEL)
        except ProtocolError:
            pass  # it has ended, or the connection has


class Connection(httpcore2.AsyncHTTPConnection):
    """Connects, and speaks what the server chose."""

    async def handle_async_request(self, request: httpcore2.Request) -> httpcore2.Response:
        try:
            async with self._request_lock:
                if self._connection is None:
                    stream = await self._connect(request)
                    tls = stream.get_extra_info("ssl_object")
                    chosen = Http2 if tls is not None and tls.selected_alpn_protocol() == "h2" else Http11
                    self._connection = chosen(
                        origin=self._origin, stream=stream, keepalive_expiry=self._keepalive_expiry
                    )
        except BaseException:
            self._connect_failed = True
            raise
        return await self._connection.handle_async_request(request)


class Pool(httpcore2.AsyncConnectionPool):
    """Connections of the kind above; those through a proxy are the base's."""

    def create_connection(self, origin: httpcore2.Origin) -> httpcore2.AsyncConnectionInterface:
        if self._proxy is not None:
            return super().create_connection(origin)
        return Connection(
            origin=origin,
            ssl_context=self._ssl_context,
            keepalive_expiry=self._keepalive_expiry,
            http2=True,
            network_backend=self._network_backend,
        )


# ── client ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_PROXY_SCHEMES = ("http", "https")


class Timeouts(NamedTuple):
    """Seconds; the whole attempt is timed by the worker."""

    connect: float
    read: float


class Payload(NamedTuple):
    """The body of a request."""

    #: the bytes, or what begins to give them: a redirect may need them again
    content: bytes | Callable[[], AsyncIterable[bytes]]
    length: int
    content_type: str


class Message(NamedTuple):
    """One request as it is sent."""

    method: str
    target: Target
    #: lower-case name → value
    headers: dict[str, str]
    payload: Payload | None


class _Guarded(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the client's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 - the client's signature; we give none
    ) -> httpcore2.AsyncNetworkStream:
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._guard.addresses(host, port)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"resolving {host}") from None
        for left in range(len(addresses) - 1, -1, -1):
            remaining = None if deadline is None else max(0.001, deadline - time.monotonic())
            # A dead address must leave time for those behind it.
            share = None if remaining is None else remaining / (left + 1)
            try:
                return await connect(addresses[-1 - left], port, share, local_address)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if not left:
                    raise
        raise AssertionError("the guard answers with an address, or fails")


class Client:
    """The pools of one user of the network: a tool, the webhooks, the secrets."""

    def __init__(self, settings: Settings, guard: Guard, *, proxies: bool | None = None) -> None:
        """`proxies`: whether those of the environment are used; without it, as `http.trust_env` says."""
        self._settings = settings
        self._guard = guard
        self._pools: dict[tuple[bool, bool, str], httpcore2.AsyncConnectionPool] = {}
        if proxies is None:
            proxies = bool(settings["http.trust_env"])
        self._proxies = proxies_of_environment() if proxies else {}
        self._insecure = bool(settings["http.allow_insecure"])
        self._limits: dict[str, Any] = {
            "max_connections": settings.integer("http.max_connections"),
            "max_keepalive_connections": settings.integer("http.max_keepalive"),
            "keepalive_expiry": settings.number("http.keepalive_s"),
        }

    async def send(self, message: Message, timeouts: Timeouts, *, verify: bool) -> httpcore2.Response:
        """Send one request; the answer's body is still to be read, and the answer to be closed."""
        target = message.target
        host = target.host
        # A read that is late here would be an error of the whole connection, which others may share: we time it ourselves.
        extensions: dict[str, Any] = {"timeout": {"connect": timeouts.connect}}
        if host.endswith("."):
            extensions["sni_hostname"] = host.rstrip(".")
        request = httpcore2.Request(
            message.method,
            httpcore2.URL(scheme=target.scheme, host=host, port=target.port, target=target.path),
            headers=[(name.encode("ascii"), value.encode("utf-8")) for name, value in message.headers.items()],
            content=_content(message.payload),
            extensions=extensions,
        )
        proxy = self._proxy_for(target.scheme, host)
        if proxy:
            await self._check_target(host, target.origin[2])
        pool = self._pool(target.scheme == "https", verify, proxy)
        limit = asyncio.timeout(None)

        async def trace(event: str, _: object) -> None:
            # Connecting has a limit of its own, and nobody knows how long a body takes to send.
            if event.endswith("receive_response_headers.started"):
                limit.reschedule(asyncio.get_running_loop().time() + timeouts.read)

        extensions["trace"] = trace
        try:
            async with limit:
                return await pool.handle_async_request(request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise httpcore2.ReadTimeout from None

    async def _check_target(self, host: str, port: int) -> None:
        """What a proxy is asked for is checked as far as we can see; a name that only the proxy knows is its business."""
        try:
            await self._guard.addresses(host, port)
        except Failure as failure:
            if failure.problem.code != "DNS":
                raise

    def _proxy_for(self, scheme: str, host: str) -> str:
        if not self._proxies:
            return ""
        from urllib.request import proxy_bypass

        if proxy_bypass(host, self._proxies):
            return ""
        return self._proxies.get(scheme) or self._proxies.get("all") or ""

    def _pool(self, secure: bool, verify: bool, proxy: str) -> httpcore2.AsyncConnectionPool:
        key = secure, verify, proxy
        pool = self._pools.get(key)
        if pool is None:
            if not verify and not self._insecure:
                raise refused("verify: false is allowed only where the setting http.allow_insecure is on")
            context = self._tls(verify) if secure else None
            if proxy:
                made = Pool(ssl_context=context, proxy=_proxy(proxy), http2=True, **self._limits)
            else:
                made = Pool(ssl_context=context, network_backend=_Guarded(self._guard), http2=True, **self._limits)
            pool = self._pools[key] = made
        return pool

    def _tls(self, verify: bool) -> ssl.SSLContext:
        if not verify:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        context = httpcore2.default_ssl_context()
        file = self._settings.text("http.ca_file")
        if file:
            try:
                context.load_verify_locations(cafile=file)
            except (OSError, ssl.SSLError) as problem:
                raise refused(f"http.ca_file: {file} cannot be used: {problem}") from None
        return context

    async def close(self) -> None:
        pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            await pool.aclose()


def uses_proxies(settings: Settings) -> bool:
    """Whether requests go through a proxy of the environment, which must guard private networks itself."""
    return bool(settings["http.trust_env"]) and bool(proxies_of_environment())


def proxies_of_environment() -> dict[str, str]:
    """Scheme → address of the proxies that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name."""
    from urllib.request import getproxies  # brings much along; few need it

    return getproxies()


async def pieces(response: httpcore2.Response, limit_s: float) -> AsyncGenerator[bytes, None]:
    """The bytes of an answer's body, each piece within its time."""
    stream = aiter(cast("AsyncIterable[bytes]", response.stream))
    while True:
        try:
            async with asyncio.timeout(limit_s) as limit:
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            if not limit.expired():
                raise
            raise httpcore2.ReadTimeout from None
        yield piece


def _content(payload: Payload | None) -> bytes | AsyncIterable[bytes]:
    if payload is None:
        return b""
    return payload.content if isinstance(payload.content, bytes) else payload.content()


def _proxy(url: str) -> httpcore2.Proxy:
    """A proxy as the environment names it, with its credentials."""
    from urllib.parse import unquote_to_bytes, urlsplit

    wrong = refused(
        "the environment names a proxy that is not an http or https address; change it, or unset http.trust_env"
    )
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_valid = parts.scheme in _PROXY_SCHEMES and parts.hostname and (parts.port or True)
        user, password = (unquote_to_bytes(part or "") for part in (parts.username, parts.password))
    except (ValueError, UnicodeError):
        raise wrong from None
    if not is_valid or "@" in parts.path + parts.query + parts.fragment:
        raise wrong
    auth = (user, password) if user else None
    port = f":{parts.port}" if parts.port else ""
    return httpcore2.Proxy(url=f"{parts.scheme}://{parts.hostname}{port}", auth=auth)
