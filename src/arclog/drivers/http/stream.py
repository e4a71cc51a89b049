"""A TCP or TLS stream directly on the event loop's transports. Before each request the pool asks every idle connection
whether it is still usable; this stream knows without waiting.

Invariants: reads and writes raise the client's own exceptions; the unread data is bounded; `aclose` releases
everything.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from typing import Any, cast

import httpcore2

#: The transport is paused while more than this is unread.
_AHEAD_BYTES = 256 * 1024


class Stream(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """A TCP or TLS connection."""

    #: always set: `connect` returns a stream only after it is connected
    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread = bytearray()
        self._ended = False
        self._problem: Exception | None = None
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._full = False
        self._paused = False
        self._poll = select.poll()
        self._watched = -1

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._watched = transport.get_extra_info("socket").fileno()
        self._poll.register(self._watched, select.POLLIN)

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > _AHEAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._reading)

    def eof_received(self) -> None:
        self._ended = True
        _wake(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._problem = exc
        self._watched = -1
        _wake(self._reading)
        _wake(self._writing)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writing)

    # Called by the client.

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the client's signature
        while not self._unread and not self._ended:
            self._reading = self._loop.create_future()
            await self._wait(self._reading, timeout, httpcore2.ReadTimeout)
        if self._unread:
            data = bytes(self._unread[:max_bytes])
            del self._unread[:max_bytes]
            if self._paused and not self._ended:
                self._paused = False
                self._transport.resume_reading()
            return data
        if self._problem is not None:
            raise httpcore2.ReadError(str(self._problem)) from self._problem
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the client's signature
        if not buffer:
            return
        self._check_open()
        self._transport.write(buffer)
        while self._full:
            self._writing = self._loop.create_future()
            await self._wait(self._writing, timeout, httpcore2.WriteTimeout)
            self._check_open()

    def _check_open(self) -> None:
        if self._watched == -1 or self._transport.is_closing():
            raise httpcore2.WriteError("the connection is closed") from self._problem

    async def _wait(self, waiter: asyncio.Future[None], limit_s: float | None, late: type[Exception]) -> None:
        timer = None if limit_s is None else self._loop.call_later(limit_s, _expire, waiter, late)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the client's signature
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                secured = await self._loop.start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as late:
            await self.aclose()
            raise httpcore2.ConnectTimeout(str(late)) from late
        except (OSError, ValueError) as problem:  # includes ssl.SSLError and CertificateError
            await self.aclose()
            raise httpcore2.ConnectError(str(problem)) from problem
        except BaseException:
            await self.aclose()
            raise
        if secured is None:
            raise httpcore2.ConnectError("the connection was closed while it was being secured")
        self._transport = secured
        return self

    async def aclose(self) -> None:
        self._transport.abort()
        await asyncio.sleep(0)  # the socket is closed in the next iteration of the loop

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # A server sends nothing on an idle connection, so any data means that the connection is ending or broken.
            return bool(self._unread) or self._ended or bool(self._poll.poll(0))
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(names.get(info, info))


async def connect(host: str, port: int, limit_s: float | None, local_address: str | None = None) -> Stream:
    """Connect to an address."""
    loop = asyncio.get_running_loop()
    local = None if local_address is None else (local_address, 0)
    try:
        async with asyncio.timeout(limit_s):
            _, stream = await loop.create_connection(Stream, host, port, local_addr=local)
    except TimeoutError as late:
        raise httpcore2.ConnectTimeout(str(late)) from late
    except OSError as problem:
        raise httpcore2.ConnectError(str(problem)) from problem
    return stream


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _expire(waiter: asyncio.Future[None], late: type[Exception]) -> None:
    if not waiter.done():
        waiter.set_exception(late())
