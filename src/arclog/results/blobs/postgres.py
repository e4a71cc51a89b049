"""Blobs in PostgreSQL: one row for each blob, and one row for each of its frames, in separate tables.

A blob gets its name, and so becomes readable, in one transaction at the end; frames of dead uploads belong to rows
without a name. No session state is needed, so it works through a pooler.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib.resources import files
from typing import Any, LiteralString, TypeVar, cast

import psycopg
from psycopg import AsyncConnection, sql

from arclog.drivers.backoff import retry
from arclog.drivers.postgres.address import configured_address
from arclog.drivers.postgres.connect import Pool, connect, timeout_of
from arclog.drivers.postgres.refusals import DISK_FULL, Meaning, refusal_of, state_of, text_of
from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable
from arclog.ports.results import StoredBlob
from arclog.results.blobs.port import Blob, Blobs, Known, Replaced, Upload
from arclog.results.parts import Index, folder_of, read_index, tenant_of

# The few connections of a PostgreSQL result store, and the meaning of their errors.
#
# Work must be safe to repeat: if the server fails in the middle, the work is repeated, until `results.patience_s` has
# passed. Messages name the server and the database, never a password.


R = TypeVar("R")
Work = Callable[[AsyncConnection[Any]], Awaitable[R]]

_PASSING = (Meaning.AWAY, Meaning.CONFLICT, Meaning.SHORT)


class PgConnection:
    def __init__(self, url: str, settings: Settings) -> None:
        #: the setting that has the address
        self._setting = "ARCLOG_STORE_URL" if settings.text("results.url") == "postgres" else "ARCLOG_RESULTS_URL"
        self._address = address = configured_address(url, self._setting)
        #: for messages
        self.place = f"PostgreSQL {address.parts.get('host', 'localhost')}/{address.parts.get('dbname', '')}"
        self._timeout_s = settings.number("results.timeout_s")
        self._patience_s = settings.number("results.patience_s")
        self._pool = Pool(self._connect, settings.integer("results.connections"))

    async def run(self, work: Work[R]) -> R:
        """Do work and return its result. It may be done twice."""
        return await retry(lambda: self._attempt(work), on=ResultStoreAway, patience_s=self._patience_s)

    async def close(self) -> None:
        await self._pool.close()

    async def _attempt(self, work: Work[R]) -> R:
        try:
            connection = await self._pool.take()
            done = False
            try:
                async with asyncio.timeout(self._timeout_s):
                    result = await work(connection)
                done = True
                return result
            finally:
                await self._pool.give(connection, keep=done)
        except (psycopg.Error, OSError, TimeoutError) as problem:
            raise self._translated(problem) from problem

    async def _connect(self) -> AsyncConnection[Any]:
        async with asyncio.timeout(self._timeout_s):
            return await connect(self._address, connect_timeout=timeout_of(self._timeout_s), application_name="arclog")

    def _translated(self, problem: BaseException) -> ResultUnavailable:
        """Return the error for an exception, with the remedy."""
        if state_of(problem) == DISK_FULL:
            return ResultUnavailable(
                f"disk full: a result could not be stored in {self.place}, and nothing of it is kept; free space there "
                "(`arclog gc` removes results that are no longer needed), then run it again"
            )
        if isinstance(problem, TimeoutError):
            return ResultStoreAway(
                f"the result store {self.place} did not answer within {self._timeout_s:g} s; check whether it is overloaded "
                "or its machine hangs (setting results.timeout_s)"
            )
        if refusal_of(problem).meaning in _PASSING:
            return ResultStoreAway(
                f"the result store {self.place} cannot be reached ({text_of(problem)}); check whether the server is running and "
                "accepts more connections"
            )
        return ResultUnavailable(
            f"the result store {self.place} refuses ({text_of(problem)}); check {self._setting} and the permissions of its user"
        )


_PAGE = 1000
#: the key of an advisory lock: one process creates the tables while others wait
_LOCK = 0x61726372_6573756C
_NOW = sql.SQL("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


class PostgresBlobs(Blobs):
    """See `blobs.port.Blobs`."""

    name = "postgres"

    def __init__(self, url: str, settings: Settings | None = None) -> None:
        super().__init__()
        settings = settings or Settings()
        self._schema = settings.text("store.schema")
        self._connection = PgConnection(url, settings)
        self.place = self._connection.place
        self._queries = _statements(self._schema)
        self._prepared = False

    def put(self, tenant: str, *, listed: bool) -> PostgresUpload:
        return PostgresUpload(self, tenant, listed=listed)

    async def get(self, tenant: str, sha256: str, indexes: Known = (), *, listed: bool = False) -> PostgresBlob | None:  # noqa: ARG002 - there is one form at a time
        rows = await self.ask("open", ([*indexes], folder_of(tenant), sha256))
        return PostgresBlob(self, *rows[0]) if rows else None

    async def stat(self, tenant: str, sha256: str) -> StoredBlob | None:
        rows = await self.ask("find", (folder_of(tenant), sha256))
        return StoredBlob(tenant, sha256, *rows[0]) if rows else None

    async def delete(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        return bool(await self.ask("remove", (folder_of(tenant), sha256, stored_at, stored_at)))

    async def list_all(self) -> AsyncIterator[StoredBlob]:
        after = 0
        while rows := await self.ask("all", (after, _PAGE)):
            for after, folder, *about in rows:  # noqa: B007 - the last one is where the next page begins
                tenant = tenant_of(folder)
                if tenant is not None:
                    yield StoredBlob(tenant, *about)

    async def sweep(self, older_than: int) -> int:
        return len(await self.ask("leftovers", (older_than,)))

    async def close(self) -> None:
        await super().close()
        await self._connection.close()

    async def ask(self, query: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a named query, which may be run twice."""

        async def work(connection: AsyncConnection[Any]) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(self._queries[query], params, binary=True)
            return await cursor.fetchall() if cursor.description else []

        await self._prepare()
        return await self._connection.run(work)

    async def name_blob(self, blob: int, tenant: str, sha256: str, end: bytes, stored_bytes: int) -> bool:
        """Make a complete blob readable under its name, durably. Return False if its row no longer exists."""

        async def work(connection: AsyncConnection[Any]) -> bool:
            async with connection.transaction():
                await self._lock(connection, tenant, sha256)
                old = await (await connection.execute(self._queries["open"], ([], tenant, sha256))).fetchone()
                if old is not None and old[0] == blob:  # it was done, but the response was lost
                    return True
                since = 0
                if old is not None:
                    since = old[2]
                    await connection.execute(self._queries["drop"], (old[0],))
                renamed = await connection.execute(self._queries["name"], (sha256, end, stored_bytes, since, blob))
                return bool(renamed.rowcount)

        return await self._connection.run(work)

    async def renew(self, kept: int, blob: int, tenant: str, sha256: str) -> bool:
        """Keep the blob `kept` instead of `blob`, and reset its age. Return False if it no longer exists."""

        async def work(connection: AsyncConnection[Any]) -> bool:
            async with connection.transaction():
                await self._lock(connection, tenant, sha256)
                renewed = await connection.execute(self._queries["renew"], (kept,))
                if renewed.rowcount:
                    await connection.execute(self._queries["forget"], (blob,))
                return bool(renewed.rowcount)

        return await self._connection.run(work)

    async def _lock(self, connection: AsyncConnection[Any], tenant: str, sha256: str) -> None:
        await connection.execute(self._queries["durable"])
        await connection.execute(self._queries["lock"], (f"{tenant}/{sha256}",))

    async def _prepare(self) -> None:
        if not self._prepared:
            await self._connection.run(self._make_tables)
            self._prepared = True

    async def _make_tables(self, connection: AsyncConnection[Any]) -> None:
        """Create the tables if they do not exist."""
        if await self._is_there(connection, "are_tables_there"):
            return
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            # An existing schema is not created again, since that requires a permission that its owner may not have.
            for asked, wanted in (("is_schema_there", "schema"), ("are_tables_there", "tables")):
                if not await self._is_there(connection, asked):
                    await connection.execute(self._queries[wanted])

    async def _is_there(self, connection: AsyncConnection[Any], asked: str) -> bool:
        return await (await connection.execute(self._queries[asked], (self._schema,))).fetchone() is not None


class PostgresBlob(Blob):
    """A row, with its index unless that was known."""

    identity: int

    def __init__(self, blobs: PostgresBlobs, blob: int, end: bytes | None, stored_at: int, size: int) -> None:  # noqa: ARG002 - as the row has them
        self.identity = blob
        self._blobs = blobs
        self._end = end
        self._size = size

    async def read_index(self) -> Index:
        return read_index(bytes(self._end or b""), self._size)

    async def read_frame(self, index: Index, number: int) -> bytes:  # noqa: ARG002 - rows have the numbers of frames
        rows = await self._blobs.ask("part", (self.identity, number))
        if not rows:
            raise Replaced
        return bytes(rows[0][0])


class PostgresUpload(Upload):
    """A blob's row. It is created with the first frame and has no name until the end."""

    def __init__(self, blobs: PostgresBlobs, tenant: str, *, listed: bool) -> None:
        self._blobs = blobs
        self._tenant = tenant
        self._listed = listed
        self._blob = 0
        #: the blob that `stored` opened
        self._kept = 0
        self._count = 0
        self._bytes = 0

    async def put(self, frame: bytes) -> None:
        await self._begin()
        if not await self._blobs.ask("put", (self._blob, self._count, frame)):
            raise self._swept()
        self._count += 1
        self._bytes += len(frame)

    async def stored(self, sha256: str) -> PostgresBlob | None:
        stored = None if self._listed else await self._blobs.get(self._tenant, sha256)
        self._kept = 0 if stored is None else stored.identity
        return stored

    async def finish(self, end: bytes, sha256: str) -> bool:
        await self._begin()
        size = self._bytes + len(end)
        if not await self._blobs.name_blob(self._blob, folder_of(self._tenant), sha256, end, size):
            raise self._swept()
        return True

    async def renew(self, sha256: str) -> bool:
        return await self._blobs.renew(self._kept, self._blob, folder_of(self._tenant), sha256)

    async def discard(self) -> None:
        if self._blob:
            await self._blobs.ask("forget", (self._blob,))

    async def _begin(self) -> None:
        if not self._blob:
            self._blob = (await self._blobs.ask("begin", (folder_of(self._tenant),)))[0][0]

    def _swept(self) -> ResultUnavailable:
        return ResultUnavailable(
            f"the unfinished result in {self._blobs.place} is gone: gc removed it as a leftover of a dead writer, or "
            "it was removed by hand; raise ARCLOG_RESULTS_ORPHAN_GRACE_S above the time that your longest task "
            "takes, and run it again"
        )


def _statements(schema: str) -> dict[str, sql.Composed]:
    """Return the statements of `postgres.sql` by name."""
    text = files("arclog.results.blobs").joinpath("postgres.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {
        # Effectively literal: it is a file of this package.
        name: sql.SQL(cast(LiteralString, body.strip())).format(s=sql.Identifier(schema), now=_NOW)
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
