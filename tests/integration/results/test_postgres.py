"""Results in PostgreSQL when its server, a process or somebody else does something to them."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable, SettingsError
from arclog.results.blobs.postgres import PgConnection, PostgresBlobs
from arclog.results.store import BlobResults
from arclog.testing.conformance.results import TENANT, everything, listed, read, stored
from tests.integration.results.support import (
    LONG,
    NOISE,
    ROWS,
    growth_mib,
    is_readable,
    killed_writer,
    read_around,
    stored_around,
)
from tests.servers.postgres import PASSWORD, Database, PostgresServer, running_postgres


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[Database]:
    made = postgres_server.create()
    yield made
    postgres_server.drop(made)


def results_in(dsn: str, settings: Settings) -> BlobResults:
    return BlobResults(PostgresBlobs(dsn, settings), settings)


@pytest.fixture
def schema() -> str:
    return f"s{os.urandom(4).hex()}"


@pytest.fixture
async def results(database: Database, schema: str) -> AsyncIterator[BlobResults]:
    made = results_in(database.dsn, Settings({"store.schema": schema}))
    yield made
    await made.close()


# -- damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what",
    [
        "UPDATE result_parts SET frame = overlay(frame PLACING '\\x00' FROM 100) WHERE number = 1",
        "UPDATE result_parts SET frame = substring(frame FOR 1000) WHERE number = 1",
        "DELETE FROM result_parts WHERE number = 1",
        "UPDATE result_blobs SET parts_index = set_byte(parts_index, 20, get_byte(parts_index, 20) # 255)",
        "UPDATE result_blobs SET parts_index = ''",
        "UPDATE result_blobs SET (parts_index, stored_bytes) = (SELECT parts_index, stored_bytes FROM result_blobs WHERE tenant = 'other')",
    ],
)
async def test_damage_is_noticed_and_healed_by_storing_again(results, database, schema, what):
    await stored(results, b"other", "other")
    sha256 = (await listed(results, ROWS)).sha256
    with database.connect() as connection:
        connection.execute(f"SET search_path TO {schema}")
        connection.execute(what)
    with pytest.raises(ResultUnavailable, match="damaged"):
        await read(results, sha256)
    assert (await listed(results, ROWS)).sha256 == sha256
    assert await results.items(TENANT, sha256, 0, 60_000) == ROWS
    assert (await results.find(TENANT, sha256)) is not None


# -- writers that are gone --------------------------------------------------------------------------------------------------


async def test_a_killed_writer_leaves_nothing_to_read(results, database, schema):
    await killed_writer(Settings({"results.url": database.dsn, "store.schema": schema}))
    assert await everything(results) == []
    assert await results.leftovers(1) == 0  # too young
    assert await results.leftovers(1 << 62) == 1
    assert database.rows(f"SELECT count(*) FROM {schema}.result_parts") == [(0,)]


async def test_a_writer_whose_parts_were_swept_says_so(results):
    async def sweep() -> None:
        while not await results.leftovers(1 << 62):  # noqa: ASYNC110 - its first part is on its way
            await asyncio.sleep(0)

    with pytest.raises(ResultUnavailable, match="ARCLOG_RESULTS_ORPHAN_GRACE_S"):
        await stored_around(results, sweep)
    assert await everything(results) == []


async def test_an_answer_that_got_lost_is_no_second_storing(results):
    """What a lost connection makes the store do: the same again."""
    (blob,) = (await results.blobs.ask("begin", ("acme",)))[0]
    done = await stored(results, b"x", "other")
    end = (await results.blobs.ask("open", ([], "other", done.sha256)))[0][1]
    for _ in range(2):
        assert await results.blobs.name_blob(blob, "acme", done.sha256, bytes(end), done.stored_bytes)
    assert [result.tenant for result in await everything(results)] == ["acme", "other"]


# -- servers that are away --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """Durable: it is killed."""
    with running_postgres() as server:
        yield server


async def test_a_server_that_is_killed_and_comes_back_costs_time_only(own_server):
    database = own_server.create()
    results = results_in(database.dsn, Settings({"results.patience_s": 60}))

    async def restart() -> None:
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)

    done = await stored_around(results, restart)

    async def cut() -> None:
        gone = database.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'arclog'")
        assert gone

    assert await read_around(results, done.sha256, cut) == LONG
    await results.close()


async def test_a_server_that_stays_away(own_server):
    results = results_in(own_server.create().dsn, Settings({"results.patience_s": 0}))
    sha256 = (await stored(results, b"kept")).sha256

    async def kill() -> None:
        await asyncio.to_thread(own_server.kill)

    with pytest.raises(ResultStoreAway, match=r"PostgreSQL 127\.0\.0\.1/test_\d+ cannot be reached") as raised:
        await stored_around(results, kill)
    assert PASSWORD not in str(raised.value)
    with pytest.raises(ResultStoreAway):
        await read(results, sha256)
    await asyncio.to_thread(own_server.start)
    assert await read(results, sha256) == b"kept"
    assert len(await everything(results)) == 1
    assert await results.leftovers(1 << 62) == 1
    await results.close()


async def test_a_server_that_hangs(own_server):
    results = results_in(own_server.create().dsn, Settings({"results.patience_s": 0, "results.timeout_s": 0.3}))
    sha256 = (await stored(results, b"kept")).sha256
    own_server.freeze()
    try:
        with pytest.raises(ResultStoreAway, match=r"did not answer within 0\.3 s.*results\.timeout_s"):
            await read(results, sha256)
    finally:
        own_server.thaw()
    assert await read(results, sha256) == b"kept"
    await results.close()


async def test_a_wrong_password_is_told_at_once_and_never_shown(database):
    results = BlobResults(PostgresBlobs(database.dsn.replace("correct", "s3cr3t")))
    with pytest.raises(ResultUnavailable, match="authentication failed") as raised:
        await stored(results, b"x")
    assert not isinstance(raised.value, ResultStoreAway)
    assert "s3cr3t" not in str(raised.value)
    await results.close()


@pytest.mark.parametrize(
    "url", ["postgresql://u:s3cr3t@h:port/db", "postgresql://u:s3cr3t@[h/db", "postgresql://h/d?s3cr3t=1"]
)
async def test_an_address_that_is_none_is_not_repeated(url):
    with pytest.raises(SettingsError, match="ARCLOG_") as raised:
        PostgresBlobs(url)
    assert "s3cr3t" not in str(raised.value)


def test_a_full_disk_says_so(database):
    link = PgConnection(database.dsn, Settings())
    assert "disk full" in str(link._translated(psycopg.errors.DiskFull("could not extend file")))
    assert not isinstance(link._translated(psycopg.errors.DiskFull("")), ResultStoreAway)
    assert isinstance(link._translated(psycopg.errors.TooManyConnections("")), ResultStoreAway)


async def test_a_user_who_may_not_make_tables(database, schema):
    with database.connect() as connection:
        connection.execute("DROP ROLE IF EXISTS visitor")
        connection.execute("CREATE ROLE visitor LOGIN PASSWORD 'v'")
    results = results_in(
        f"postgresql://visitor:v@{database.host}:{database.port}/{database.dbname}", Settings({"store.schema": schema})
    )
    with pytest.raises(ResultUnavailable, match=r"permission denied.*the permissions of its user"):
        await stored(results, b"x")
    with database.connect() as connection:  # a schema of its own is all that it needs
        connection.execute(f"CREATE SCHEMA {schema} AUTHORIZATION visitor")
    assert await read(results, (await stored(results, b"x")).sha256) == b"x"
    await results.close()


async def test_a_database_that_forgets_commits_does_not_forget_results(database, schema):
    """synchronous_commit may be off there: naming a result turns it on for its own transaction."""
    with database.connect() as connection:
        connection.execute(f"ALTER DATABASE {database.dbname} SET synchronous_commit TO off")
    settings = Settings({"store.schema": schema})
    blobs = PostgresBlobs(database.dsn, settings)
    results = BlobResults(blobs, settings)
    try:
        assert await blobs.ask("durable") == [("on",)]
        assert await is_readable(results, (await stored(results, NOISE)).sha256)
    finally:
        await results.close()
        with database.connect() as connection:
            connection.execute(f"ALTER DATABASE {database.dbname} RESET synchronous_commit")


async def test_memory_does_not_grow_with_the_content(database, schema):
    assert await growth_mib(Settings({"results.url": database.dsn, "store.schema": schema})) < 32
