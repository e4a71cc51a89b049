"""How a NATS server introduces itself: before anybody logs in it says its version and whether it has JetStream."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlsplit

from msgspec import Struct

from arclog.model.errors import SettingsError

_PORT = 4222
_MAX_BYTES = 64 * 1024


class Greeting(Struct, frozen=True):
    version: str
    jetstream: bool


def shown(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _PORT}"


async def greeting(url: str) -> Greeting:
    """Raises OSError (out of reach), ValueError (something else answers) or SettingsError (no address)."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        host = None
    if not host or parts.scheme not in ("nats", "tls"):
        raise SettingsError("ARCLOG_BUS_URL has an address that is none of a NATS server")
    reader, writer = await asyncio.open_connection(host, port, limit=_MAX_BYTES)
    try:
        line = await reader.readline()
    finally:
        writer.close()
    word, _, body = line.partition(b" ")
    if word != b"INFO":
        raise ValueError("it does not begin with INFO")
    told = json.loads(body)
    return Greeting(str(told.get("version", "?")), bool(told.get("jetstream")))
