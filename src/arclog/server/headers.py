"""Headers of every answer: browsers neither guess types, nor keep answers, nor run or frame anything of ours.

No other origin is let in (no CORS): a page elsewhere can read nothing. The console's own files say for themselves what they may
(`server.console`).
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NOTHING = "default-src 'none'; frame-ancestors 'none'"

#: The type of content of which nothing is known.
OCTETS = "application/octet-stream"
_LONGEST_TYPE = 200


def media_type(said: str) -> str:
    """A content type as somebody else said it, if it can stand in a header: what cannot would end it, and begin another."""
    return said if said.isascii() and said.isprintable() and 0 < len(said) <= _LONGEST_TYPE else OCTETS


class SecurityHeaders:
    """Plain ASGI: adds what an answer does not say itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Cache-Control", "no-store")
                headers.setdefault("Referrer-Policy", "no-referrer")
                headers.setdefault("Content-Security-Policy", _NOTHING)
            await send(message)

        await self._app(scope, receive, guarded)
