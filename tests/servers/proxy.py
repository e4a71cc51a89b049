"""A network for tests that can be cut: a TCP proxy before one port, whose mode changes while connections are open.

What is not let through is held, not lost, as TCP holds it: it arrives when the network is whole again, however late.
Each proxy has a thread of its own; every method may be called from any other, and has taken effect when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any

_PIECE = 65536
#: How long a slow network takes for each piece, in seconds.
LATENCY_S = (0.02, 0.08)


class Mode(Enum):
    """What the network does."""

    PASS = "pass"
    #: each piece takes its time
    SLOW = "slow"
    #: every connection is reset, and so is each new one
    RESET = "reset"
    #: connections stand, or are taken, and nothing passes
    BLACK_HOLE = "black hole"
    #: what is sent to the server arrives, its answers do not
    ONLY_THERE = "only there"
    #: what the server says arrives, what is said to it does not
    ONLY_BACK = "only back"


_THERE = frozenset({Mode.PASS, Mode.SLOW, Mode.ONLY_THERE})
_BACK = frozenset({Mode.PASS, Mode.SLOW, Mode.ONLY_BACK})


class Proxy:
    """Listens on a free loopback port until `close`."""

    def __init__(self, port: int, seed: int = 0) -> None:
        """`port`: of the server behind it."""
        self._target = port
        self._random = Random(seed)
        self._mode = Mode.PASS
        #: words on the way to the server that change the mode, and to which
        self._watched: tuple[bytes, Mode] | None = None
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._listen)

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def connections(self) -> int:
        """Those that are open now."""
        return len(self._links)

    def be(self, mode: Mode) -> None:
        """From now on; also for the connections that are open."""

        async def change() -> None:
            self._change(mode)

        self._call(change)

    def cut_at(self, words: bytes, mode: Mode) -> None:
        """Be so from the moment at which these words are on their way to the server: whether they arrive is
        for the mode to say, their answer fares by it in any case. Whoever changes the mode calls this off.
        """

        async def watch() -> None:
            self._watched = words, mode

        self._call(watch)

    def drop(self) -> None:
        """Reset the connections that are open, with what was held; new ones fare as the mode says."""

        async def reset() -> None:
            self._reset()

        self._call(reset)

    def close(self) -> None:
        async def end() -> None:
            if self._server is not None:
                self._server.close()
            self._reset()
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

    def _call(self, what: Callable[[], Any]) -> None:
        asyncio.run_coroutine_threadsafe(what(), self._loop).result()

    # -- in the proxy's thread -----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._taken, sock=self._listener)

    def _change(self, mode: Mode) -> None:
        self._mode, self._watched = mode, None
        if mode is Mode.RESET:
            self._reset()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _reset(self) -> None:
        for link in self._links:
            link.reset()
        self._links.clear()

    def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        if self._mode is Mode.RESET:
            link.reset()
            return
        self._links.add(link)
        try:
            await self._let(_THERE)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            link.ends.append(far_writer)
            if link.over:
                link.reset()
                return
            await asyncio.gather(self._carry(reader, far_writer, _THERE), self._carry(far_reader, writer, _BACK))
        except OSError:  # one end is gone: the other hears of it
            link.reset()
        except asyncio.CancelledError:
            link.reset()
            raise
        finally:
            self._links.discard(link)
            for end in link.ends:
                end.close()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, passing: frozenset[Mode]
    ) -> None:
        before = b""
        while data := await source.read(_PIECE):
            if passing is _THERE and self._watched is not None:
                words, mode = self._watched
                if words in before + data:  # pieces may part them
                    self._change(mode)
                before = data[-len(words) :]
            if self._mode is Mode.SLOW:
                await asyncio.sleep(self._random.uniform(*LATENCY_S))
            await self._let(passing)
            target.write(data)
            await target.drain()
        await self._let(passing)
        if target.can_write_eof():
            target.write_eof()

    async def _let(self, passing: frozenset[Mode]) -> None:
        """Wait until the network lets this way through."""
        while self._mode not in passing:
            await self._changed.wait()


class _Link:
    """The two ends of a connection."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self.ends = [near]
        self.over = False

    def reset(self) -> None:
        """End both without a goodbye: who reads or writes there hears that it was reset."""
        self.over = True
        for end in self.ends:
            raw = end.get_extra_info("socket")
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.transport.abort()
