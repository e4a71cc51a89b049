"""A stream lasts no longer than its caller's right to it: every `auth.cache_s` the caller is asked for again.

A store that cannot be asked just now ends nothing; a key that was revoked, a token that has expired, or a role or tenant
that is another now does, and the stream's last message says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

import msgspec

from arclog.model.errors import ArclogError, NotAllowed, Unauthenticated
from arclog.server.call import Call

#: Shorter than this is asked for no more often.
_SHORTEST_S = 0.05


async def while_allowed(call: Call, roles: frozenset[str], frames: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    """The frames, as long as the caller may have them."""
    lost = asyncio.ensure_future(_lost(call, roles))
    try:
        while True:
            coming = asyncio.ensure_future(anext(frames, None))
            try:
                await asyncio.wait((coming, lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
            if lost.done():
                yield _denied_frame(lost.result())
                return
            frame = coming.result()
            if frame is None:
                return
            yield frame
    finally:
        lost.cancel()
        with suppress(asyncio.CancelledError):
            await lost
        await frames.aclose()


async def _lost(call: Call, roles: frozenset[str]) -> ArclogError:
    """Return once the caller may not continue, with the reason."""
    services, before = call.services, call.principal
    pause = max(_SHORTEST_S, services.settings.number("auth.cache_s"))
    while True:
        await services.clock.sleep(pause)
        try:
            now = await services.authenticate(call.headers, call.address)
        except (Unauthenticated, NotAllowed) as problem:
            return problem
        except ArclogError:
            continue
        if (now.subject, now.tenant) != (before.subject, before.tenant) or not now.may(roles):
            return NotAllowed(f"{before.name} is no longer allowed to follow this")


def _denied_frame(problem: ArclogError) -> bytes:
    said = msgspec.json.encode({"title": type(problem).__name__, "detail": str(problem)})
    return b": the stream ends here\n\nevent: denied\ndata: " + said + b"\n\n"
