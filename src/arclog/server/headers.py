"""Headers of every answer: browsers neither guess types, nor keep answers, nor run or frame anything of ours.

No other origin is let in (no CORS): a page elsewhere can read nothing. The console's own files say for themselves what they may
(`server.console`).
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arclog.operations.operation import OCTETS

_LONGEST_TYPE = 200

#: What an answer carries unless it says otherwise itself.
SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


def media_type(said: str) -> str:
    """A content type as somebody else said it, if it can stand in a header: what cannot would end it, and begin another."""
    return said if said.isascii() and said.isprintable() and 0 < len(said) <= _LONGEST_TYPE else OCTETS


async def respond(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer, with the security headers that it does not set itself."""
    present = {name for name, _ in response.raw_headers}
    response.raw_headers.extend(header for header in SECURITY if header[0] not in present)
    await response(scope, receive, send)
