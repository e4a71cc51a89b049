"""Results in PostgreSQL: a row for each content, and a row for each of its parts, in tables of their own.

Content is named, and so can be read, by one transaction at the end; parts of writers that are gone belong to rows without
a name. Nothing needs a session: it works behind a pooler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Sequence
from typing import Any

from psycopg import AsyncConnection

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable
from arclog.ports.results import StoredBlob
from arclog.results.names import folder_of, is_sha256, tenant_of
from arclog.results.opened import Known, Replaced, damaged, is_whole_list, missing, unpacked
from arclog.results.parted import PartedResults
from arclog.results.parts import Damaged, Index, read_index
from arclog.results.postgres.connections import PgLink
from arclog.results.postgres.tables import prepare, statements

_PAGE = 1000


class PostgresResults(PartedResults):
    """See `ports.results.Results`."""

    def __init__(self, url: str, settings: Settings | None = None, name: str = "postgres") -> None:
        settings = settings or Settings()
        super().__init__(settings)
        self.name = name
        self._schema = settings.text("store.schema")
        self._link = PgLink(url, settings)
        self._queries = statements(self._schema)
        self._prepared = False

    async def ask(self, query: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a named query, which may be asked twice."""

        async def work(connection: AsyncConnection[Any]) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(self._queries[query], params, binary=True)
            return await cursor.fetchall() if cursor.description else []

        await self._prepare()
        return await self._link.run(work)

    async def name_it(self, blob: int, tenant: str, sha256: str, end: bytes, stored_bytes: int, renewed: int) -> None:
        """Let content that is whole be read under its name, durably. `renewed`: a blob of the same content that is to be
        kept in its stead, if it is still there.
        """

        async def work(connection: AsyncConnection[Any]) -> bool:
            async with connection.transaction():
                await connection.execute(self._queries["durable"])
                await connection.execute(self._queries["lock"], (f"{tenant}/{sha256}",))
                if renewed:
                    kept = await connection.execute(self._queries["renew"], (renewed,))
                    if kept.rowcount:
                        await connection.execute(self._queries["forget"], (blob,))
                        return True
                old = await (await connection.execute(self._queries["open"], ([], tenant, sha256))).fetchone()
                if old is not None and old[0] == blob:  # it was done, and the answer got lost
                    return True
                since = 0
                if old is not None:
                    since = old[2]
                    await connection.execute(self._queries["drop"], (old[0],))
                named = await connection.execute(self._queries["name"], (sha256, end, stored_bytes, since, blob))
                return bool(named.rowcount)

        await self._prepare()
        if not await self._link.run(work):
            raise swept(self._link.place)

    async def _prepare(self) -> None:
        if not self._prepared:
            await self._link.run(lambda connection: prepare(connection, self._schema, self._queries))
            self._prepared = True

    def path(self, tenant: str, sha256: str) -> str:
        """For messages."""
        return f"{self._link.place} {folder_of(tenant)}/{sha256[:100]!r}"

    def _sink(self, tenant: str, *, listed: bool) -> PostgresSink:
        return PostgresSink(self, self._link.place, tenant, listed=listed)

    async def _open(self, tenant: str, sha256: str, known: Known) -> OpenedRows:
        path = self.path(tenant, sha256)
        at_hand = {key[1]: index for key, index in known.items() if isinstance(key, tuple)}
        rows = await self.ask("open", ([*at_hand], folder_of(tenant), sha256)) if is_sha256(sha256) else []
        if not rows:
            raise missing(path)
        blob, end, _, size = rows[0]
        try:
            index = at_hand[blob] if end is None else read_index(bytes(end), size)
            if index.sha256 != sha256:
                raise Damaged("it is another result under this name")
        except Damaged as problem:
            raise damaged(path, problem) from problem
        return OpenedRows(self, blob, index, path)

    async def frame(self, blob: int, number: int) -> bytes | None:
        rows = await self.ask("part", (blob, number))
        return bytes(rows[0][0]) if rows else None

    async def unpack(self, packed: bytes, index: Index, number: int, path: str, whole: Any) -> bytes:
        return await self._threads.run(unpacked, packed, index.parts[number], path, whole)

    async def whole_list(self, tenant: str, sha256: str) -> int:
        """The blob that holds the content as a list, every part as it was written; 0 when there is none."""
        try:
            opened = await self._open(tenant, sha256, {})
        except ResultStoreAway:
            raise
        except ResultUnavailable:
            return 0
        return opened.blob if await is_whole_list(opened, sha256) else 0

    async def find(self, tenant: str, sha256: str) -> StoredBlob | None:
        if not is_sha256(sha256):
            return None
        rows = await self.ask("find", (folder_of(tenant), sha256))
        return StoredBlob(tenant, sha256, *rows[0]) if rows else None

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        if not is_sha256(sha256):
            return False
        return bool(await self.ask("remove", (folder_of(tenant), sha256, stored_at, stored_at)))

    async def all(self) -> AsyncIterator[StoredBlob]:
        after = 0
        while rows := await self.ask("all", (after, _PAGE)):
            for after, folder, *about in rows:  # noqa: B007 - the last one is where the next page begins
                tenant = tenant_of(folder)
                if tenant is not None:
                    yield StoredBlob(tenant, *about)

    async def leftovers(self, older_than: int) -> int:
        return len(await self.ask("leftovers", (older_than,)))

    async def close(self) -> None:
        await super().close()
        await self._link.close()


class OpenedRows:
    """See `results.opened.Opened`."""

    def __init__(self, results: PostgresResults, blob: int, index: Index, path: str) -> None:
        self.index = index
        self.path = path
        self.blob = blob
        self.identity: Hashable = ("blob", blob)
        self._results = results

    async def part(self, number: int, whole: Any = None) -> bytes:
        packed = await self._results.frame(self.blob, number)
        if packed is None:
            raise Replaced
        return await self._results.unpack(packed, self.index, number, self.path, whole)

    def close(self) -> None:
        """Nothing is held open."""


class PostgresSink:
    """See `results.packing.Sink`. The blob's row comes with the first part, and has no name until the end."""

    def __init__(self, results: PostgresResults, place: str, tenant: str, *, listed: bool) -> None:
        self._results = results
        self._place = place
        self._tenant = tenant
        self._listed = listed
        self._blob = 0
        self._count = 0
        self._bytes = 0

    async def put(self, frame: bytes) -> None:
        await self._begin()
        if not await self._results.ask("put", (self._blob, self._count, frame)):
            raise swept(self._place)
        self._count += 1
        self._bytes += len(frame)

    async def finish(self, end: bytes, sha256: str) -> None:
        await self._begin()
        # Of two forms of the same bytes the list is kept: it can be read both ways.
        renewed = 0 if self._listed else await self._results.whole_list(self._tenant, sha256)
        stored_bytes = self._bytes + len(end)
        await self._results.name_it(self._blob, folder_of(self._tenant), sha256, end, stored_bytes, renewed)

    async def discard(self) -> None:
        if self._blob:
            await self._results.ask("forget", (self._blob,))

    async def _begin(self) -> None:
        if not self._blob:
            self._blob = (await self._results.ask("begin", (folder_of(self._tenant),)))[0][0]


def swept(place: str) -> ResultUnavailable:
    return ResultUnavailable(
        f"what was written of a result to {place} is gone: gc took it for the leftover of a writer that died, or somebody "
        "removed it; raise ARCLOG_RESULTS_ORPHAN_GRACE_S above the time that your longest task takes, and run it again"
    )
