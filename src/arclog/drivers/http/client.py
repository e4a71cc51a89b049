"""Pools of HTTP/1.1 and HTTP/2 connections. Each connection goes to an address that the guard permitted.

Invariants: `_Guarded.connect_tcp` opens every connection of a direct pool. TLS and the Host header use the name as
written; the socket uses the checked address. Tasks share connections only, never cookies or credentials.
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


class Target(NamedTuple):
    """A parsed web address. Only `target_of` creates them."""

    scheme: str
    host: str
    port: int | None
    #: path and query, encoded
    path: bytes
    #: host and port, as in the Host header
    authority: str
    text: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port or (443 if self.scheme == "https" else 80)


@lru_cache(maxsize=256)
def target_of(text: str) -> Target:
    """Parse a web address the same way as the client does. Raises Failure."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, UnicodeError) as problem:
        if "@" in text:
            raise refused(
                "url: it is not a web address; put credentials in a keychain entry and name it in auth"
            ) from None
        raise refused(f"url: {shortened(text)!r} is not a web address: {problem}") from None
    if url.scheme not in ("http", "https"):
        raise refused(f"url: {shortened(text)!r} starts with neither http:// nor https://")
    if url.userinfo:
        raise refused("url: it contains a user name or password; declare a keychain entry and name it in auth")
    if not url.host or "%" in url.host:
        raise refused(f"url: {shortened(text)!r} names no host")
    if url.port is not None and not 0 < url.port < 65536:
        raise refused(f"url: {shortened(text)!r} names a port that does not exist")
    whole = str(url).partition("#")[0]
    host, authority = url.raw_host.decode("ascii"), url.netloc.decode("ascii")
    return Target(url.scheme, host, url.port, url.raw_path, authority, whole)


# ── protocols ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Additions to the client's connections, so that a request that ends early does not affect other requests.
#
# Invariants: bytes after an HTTP/1.1 response are never read as the next response. An abandoned HTTP/2 request is
# reset, and its unread data is returned to the connection's flow-control window. A violation of HTTP/2 always raises a
# client error. The base classes do none of this and have no public hook for it: the underscored names are theirs, and
# tests fail if they change.

#: Time limit for sending a reset. A connection that cannot send one is broken, and other requests will notice.
_RESET_S = 1.0


class Http11(httpcore2.AsyncHTTP11Connection):
    """A connection with one request at a time."""

    def has_expired(self) -> bool:
        return bool(self._h11_state.trailing_data[0]) or super().has_expired()


class Http2(httpcore2.AsyncHTTP2Connection):
    """A connection that many requests of many tasks share."""

    async def _read_incoming_data(self, request: httpcore2.Request) -> list[Any]:
        """Translate protocol errors. The base class does so only until the head of a response was received."""
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
            pass  # the stream or the connection has ended already


class Connection(httpcore2.AsyncHTTPConnection):
    """Connects, and uses the protocol that the server selected."""

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
    """A pool of the connections above. Connections through a proxy are those of the base class."""

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
    """Time limits in seconds. The worker limits the whole attempt."""

    connect: float
    read: float


class Payload(NamedTuple):
    """The body of a request."""

    #: the bytes, or a function that returns them from the start; a redirect may need them a second time
    content: bytes | Callable[[], AsyncIterable[bytes]]
    length: int
    content_type: str


class Message(NamedTuple):
    """A request, ready to send."""

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
        for others in range(len(addresses) - 1, -1, -1):
            remaining = None if deadline is None else max(0.001, deadline - time.monotonic())
            # Leave time for the remaining addresses if this one does not respond.
            share = None if remaining is None else remaining / (others + 1)
            try:
                return await connect(addresses[-1 - others], port, share, local_address)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if not others:
                    raise
        raise AssertionError("the guard answers with an address, or fails")


class Client:
    """The connection pools of one component: a tool, the webhooks, the secrets."""

    def __init__(self, settings: Settings, guard: Guard, *, proxies: bool | None = None) -> None:
        """`proxies`: whether to use the proxies of the environment. The default is the setting `http.trust_env`."""
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
        """Send a request. The caller reads the body of the response and closes the response."""
        target = message.target
        host = target.host
        # The client's own read time-out would fail the whole connection, which other requests may share.
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
            # Connecting has its own time limit, and the time to send a body is unknown.
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
        """Check the destination of a proxied request as far as possible. Names that only the proxy can resolve are
        permitted.
        """
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
    """Return whether requests use a proxy of the environment. Such a proxy has to guard private networks itself."""
    return bool(settings["http.trust_env"]) and bool(proxies_of_environment())


def proxies_of_environment() -> dict[str, str]:
    """Return the proxies that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name, by scheme."""
    from urllib.request import getproxies  # a slow import that few processes need

    return getproxies()


async def pieces(response: httpcore2.Response, limit_s: float) -> AsyncGenerator[bytes, None]:
    """Yield the body of a response. `limit_s` limits the wait for each piece."""
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
    """Return a proxy of the environment, with its credentials."""
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
