"""Small HTTP requests that this process makes for itself: tokens, secrets, keys of a token issuer, traces, webhooks.

Invariants: a request goes only to addresses that the guard permits, follows no redirect and has a time limit. The size
of a response is limited. Messages contain scheme, host and port of an address, and nothing else of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import NamedTuple

import httpcore2

from arclog.drivers.addresses import shown
from arclog.drivers.failure import Failure
from arclog.drivers.http.client import Client, Message, Payload, Timeouts, pieces, target_of
from arclog.drivers.http.guard import Guard
from arclog.model.config.settings import Settings

_TROUBLE = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError, OSError)


class Answer(NamedTuple):
    status: int
    #: lower-case name → value
    headers: dict[str, str]
    body: bytes


class NoAnswer(Exception):
    """There is no response, or none that can be used. The text has the reason and no part of the request."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class Late(NoAnswer):
    """The time limit was reached."""


class TooLarge(NoAnswer):
    """The response is larger than `max_bytes`."""


class Fetcher:
    """Makes requests of one purpose, over the connections of its own client."""

    def __init__(
        self, settings: Settings, guard: Guard, *, timeout_s: float, max_bytes: int, proxies: bool | None = None
    ) -> None:
        """`proxies`: whether to use the proxies of the environment. The default is the setting `http.trust_env`."""
        self._client = Client(settings, guard, proxies=proxies)
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        read: bool = True,
    ) -> Answer:
        """Return the response, whatever its status. The body is left empty if `read` is false. Raises NoAnswer."""
        try:
            message = _message(method, url, headers or {}, body)
            async with asyncio.timeout(self._timeout_s):
                return await self._answer(message, read=read)
        except Failure as failure:
            raise NoAnswer(failure.problem.message, retryable=bool(failure.problem.retryable)) from None
        except (TimeoutError, httpcore2.TimeoutException):
            raise Late(f"{shown(url)} did not answer within {self._timeout_s:g} s") from None
        except _TROUBLE as trouble:
            raise NoAnswer(f"{shown(url)} cannot be reached: {type(trouble).__name__}") from None

    async def _answer(self, message: Message, *, read: bool) -> Answer:
        response = await self._client.send(message, Timeouts(self._timeout_s, self._timeout_s), verify=True)
        try:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            body = bytearray()
            if not read:
                return Answer(response.status, headers, b"")
            async with aclosing(pieces(response, self._timeout_s)) as parts:
                async for piece in parts:
                    body += piece
                    if len(body) > self._max_bytes:
                        where = shown(message.target.text)
                        raise TooLarge(f"{where} answered more than {self._max_bytes} bytes", retryable=False)
            return Answer(response.status, headers, bytes(body))
        finally:
            await response.aclose()

    async def close(self) -> None:
        await self._client.close()


def _message(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Message:
    target = target_of(url)
    by_name = {name.lower(): value for name, value in headers.items()}
    sent = {"host": target.authority, "accept-encoding": "identity", **by_name}
    if body is None:
        return Message(method, target, sent, None)
    sent["content-length"] = str(len(body))
    return Message(method, target, sent, Payload(body, len(body), by_name.get("content-type", "")))
