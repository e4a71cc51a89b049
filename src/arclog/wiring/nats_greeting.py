"""How a NATS server introduces itself: before anybody logs in it says its version and whether it has JetStream."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

from msgspec import Struct

_MAX_BYTES = 64 * 1024


class Greeting(Struct, frozen=True):
    version: str
    jetstream: bool


async def greeting(url: str) -> Greeting:
    """`url` is one of `Address.servers`. Raises OSError (out of reach) or ValueError (something else answers)."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=_MAX_BYTES)
    try:
        line = await reader.readline()
    finally:
        writer.close()
    word, _, body = line.partition(b" ")
    if word != b"INFO":
        raise ValueError("it does not begin with INFO")
    told = json.loads(body)
    return Greeting(str(told.get("version", "?")), bool(told.get("jetstream")))
