"""A network that delivers twice and out of order: before one HTTP server, each POST is sent there once more, some time later.

The caller gets the answer to its own request; that to the copy goes nowhere, as with a caller that gave up and asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

#: Copies come up to so many seconds after what they copy.
LATEST_S = 1.0


class Replay:
    """Listens on a free loopback port until `close`. One request a connection, each with a length."""

    def __init__(self, port: int, seed: int = 0) -> None:
        """`port`: of the server behind it."""
        self._target = port
        self._random = Random(seed)
        #: answers to copies, by path and status
        self.answers: Counter[tuple[str, int]] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server = self._call(lambda: asyncio.start_server(self._taken, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            while self._tasks:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await asyncio.sleep(0)  # their ends are noted
            await asyncio.sleep(0)  # sockets are closed

        self._call(end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, what: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        return asyncio.run_coroutine_threadsafe(what(), self._loop).result()

    # -- in its own thread ---------------------------------------------------------------------------------------------

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._go(self._serve(reader, writer))

    def _go(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.lower().splitlines() if line[:15] == b"content-length:"), 0)
            request = _alone(head) + await reader.readexactly(length)
            method, path, _ = head.decode().split(" ", 2)
            if method == "POST":
                self._go(self._again(path, request))
            writer.write(await self._answer_to(reader, request))
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the caller is gone, or the server
        finally:
            writer.transport.abort()

    async def _answer_to(self, caller: asyncio.StreamReader, request: bytes) -> bytes:
        """A caller that leaves ends its request; the copy knows nothing of that."""
        ways = [asyncio.ensure_future(each) for each in (self._answer(request), caller.read(1))]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _again(self, path: str, request: bytes) -> None:
        await asyncio.sleep(self._random.uniform(0.0, LATEST_S))
        with contextlib.suppress(OSError):
            answer = await self._answer(request)
            self.answers[path, int(answer[9:12] or b"0")] += 1

    async def _answer(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.transport.abort()


def _alone(head: bytes) -> bytes:
    """A request after whose answer the connection ends."""
    lines = [line for line in head.split(b"\r\n")[:-2] if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])
