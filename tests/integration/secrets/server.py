"""A token server on this machine, that answers as it is told and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TokenServer:
    def __init__(self) -> None:
        self.url = ""
        #: raw requests, heads and bodies
        self.requests: list[bytes] = []
        self.answer: tuple[int, bytes] = (200, b"{}")
        self.location = ""
        #: answers wait for this
        self.go = asyncio.Event()
        self.go.set()
        self.came = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            )
            self.requests.append(head + await reader.readexactly(length))
            self.came.set()
            await self.go.wait()
            status, body = self.answer
            more = f"Location: {self.location}\r\n".encode() if self.location else b""
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n" % (status, len(body)))
            writer.write(more + b"\r\n" + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the client had enough
        finally:
            writer.close()


@asynccontextmanager
async def token_server() -> AsyncIterator[TokenServer]:
    made = TokenServer()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/token"
    try:
        yield made
    finally:
        made.go.set()
        listening.close()
        await listening.wait_closed()
