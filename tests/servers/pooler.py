"""A pooler in front of PostgreSQL that hands out server connections by transaction, as pgbouncer does in that mode.

It is strict where pgbouncer is lenient by chance: each transaction of a client gets another server connection than the one
before. Like pgbouncer below 1.21 it knows nothing of prepared statements. Clients are let in without a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from typing import Self

from tests.servers.postgres import USER, Database, PostgresServer

_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_PATIENCE_S = 30


class _Server:
    """A connection to PostgreSQL, by its socket in the server's folder, where nobody is asked for a password."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.greeting = b""
        self.name = ""

    @classmethod
    async def connect(cls, path: str, dbname: str) -> Self:
        server = cls(*await asyncio.open_unix_connection(path))
        body = struct.pack("!I", 196608) + f"user\0{USER}\0database\0{dbname}\0\0".encode()
        server.writer.write(struct.pack("!I", len(body) + 4) + body)
        while True:
            kind, message = await server.message()
            assert kind != b"E", message
            server.greeting += message if kind == b"S" else b""
            if kind == b"Z":
                return server

    async def message(self) -> tuple[bytes, bytes]:
        head = await self.reader.readexactly(5)
        return head[:1], head + await self.reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)

    async def call_itself(self, name: str) -> None:
        """As the client whose turn it is (pgbouncer does so, too)."""
        if name == self.name:
            return
        text = f"SET application_name = '{name}'\0".encode()
        self.writer.write(b"Q" + struct.pack("!I", len(text) + 4) + text)
        while (await self.message())[0] != b"Z":
            pass
        self.name = name


class Pooler:
    """A context manager; `dsn` is where clients go."""

    def __init__(self, server: PostgresServer, database: Database, servers: int = 3) -> None:
        self._path = f"{server.folder}/.s.PGSQL.{server.port}"
        self._database = database
        self._count = servers
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stop = asyncio.Event()
        self.port = 0
        #: transactions that were carried out
        self.transactions = 0

    @property
    def dsn(self) -> str:
        return f"postgresql://{USER}:none@127.0.0.1:{self.port}/{self._database.dbname}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_PATIENCE_S), "the pooler did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), "the pooler did not stop"

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._free: asyncio.Queue[_Server] = asyncio.Queue()
        self._servers: list[_Server] = []
        for _ in range(self._count):
            self._free.put_nowait(await self._connect())
        clients: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            clients.add(task)
            task.add_done_callback(clients.discard)
            try:
                await self._client(reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        listener = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        listener.close()
        for task in [*clients]:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        for server in self._servers:
            server.writer.close()
            with contextlib.suppress(OSError):
                await server.writer.wait_closed()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = await self._let_in(reader, writer)
        if name is None:
            return
        upcoming: asyncio.Future[bytes | None] = asyncio.ensure_future(self._read(reader))
        try:
            while (first := await upcoming) is not None and first[:1] != b"X":
                server = await self._free.get()
                finished = False
                try:
                    await server.call_itself(name)
                    upcoming = await self._transaction(reader, writer, server, first)
                    finished = True
                finally:
                    if not finished:  # in the middle of something: nobody else may have it
                        server.writer.close()
                        server = await self._connect()
                    self._free.put_nowait(server)
        finally:
            upcoming.cancel()

    async def _connect(self) -> _Server:
        server = await _Server.connect(self._path, self._database.dbname)
        self._servers.append(server)
        return server

    async def _transaction(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: _Server, first: bytes
    ) -> asyncio.Future[bytes | None]:
        """Until the server is idle and the client has asked for nothing more; gives the client's next message to come."""
        owed = 0
        upcoming: asyncio.Future[bytes | None] | None = None
        message: bytes | None = first
        while True:
            if message is not None:
                server.writer.write(message)
                owed += message[:1] in b"QS"
                message = None
            if upcoming is None:
                upcoming = asyncio.ensure_future(self._read(reader))
            while owed and not upcoming.done():
                kind, answer = await server.message()
                writer.write(answer)
                if kind == b"Z":
                    owed -= 1
                    if not owed and answer[5:] == b"I":
                        self.transactions += 1
                        return upcoming
            message, upcoming = await upcoming, None
            if message is None or message[:1] == b"X":
                raise ConnectionResetError

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
        while True:
            size, code = struct.unpack("!II", await reader.readexactly(8))
            body = await reader.readexactly(size - 8)
            if code in (_SSL, _GSS):
                writer.write(b"N")
                continue
            if code == _CANCEL:
                return None
            words = body.decode().split("\0")
            parameters = dict(zip(words[::2], words[1::2], strict=False))
            writer.write(b"R" + struct.pack("!II", 8, 0) + self._servers[0].greeting)
            writer.write(b"K" + struct.pack("!III", 12, 0, 0) + b"Z" + struct.pack("!I", 5) + b"I")
            return parameters.get("application_name", "")

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes | None:
        try:
            head = await reader.readexactly(5)
            return head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
        except (OSError, asyncio.IncompleteReadError):
            return None
