"""Security headers of every response: browsers must not guess types, cache responses, or run or frame them.

There is no CORS: pages of other origins can read nothing. The console's files have their own policy (`server.console`).
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arclog.operations.operation import OCTETS

_LONGEST_TYPE = 200

#: Default headers of a response.
SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


def media_type(text: str) -> str:
    """A content type from outside, if it is valid in a header; a line end in it could add another header."""
    return text if text.isascii() and text.isprintable() and 0 < len(text) <= _LONGEST_TYPE else OCTETS


async def respond(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a response, with the security headers that it does not set itself."""
    present = {name for name, _ in response.raw_headers}
    response.raw_headers.extend(header for header in SECURITY if header[0] not in present)
    await response(scope, receive, send)
