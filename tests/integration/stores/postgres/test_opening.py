"""What a server must be like, and what is said when it is not."""

import asyncio

import psycopg
import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError, StoreUnavailable
from arclog.ports.storage.pools import WorkerRecord
from arclog.ports.storage.store import NewCommand
from arclog.stores.postgres import PostgresStore
from arclog.stores.postgres.connection import connect
from arclog.stores.postgres.connection.connect import SCHEMA
from arclog.stores.postgres.queries import load_migrations
from arclog.testing.virtual import FakeClock
from arclog.wiring.backends import choose_store
from tests.conformance.test_store_postgres import MIGRATE
from tests.unit.stores.support import change, creation

IMPATIENT = {"store__patience_s": 0, "store__connect_timeout_s": 1}


def store_at(url: str, **settings) -> PostgresStore:
    return PostgresStore(url, clock=FakeClock(), settings=Settings().replaced(**{**IMPATIENT, **settings}))


async def refused(url: str, **settings) -> str:
    with pytest.raises(StoreUnavailable) as raised:
        await store_at(url, **settings).open()
    assert "correct horse" not in str(raised.value)
    assert "correct%20horse" not in str(raised.value)
    return str(raised.value)


async def test_a_setting_that_loses_data_is_refused_unless_it_is_meant(postgres, opened):
    name = "synchronous_commit"
    postgres.rows(f"ALTER DATABASE {postgres.dbname} SET {name} = off")
    refusal = await refused(postgres.dsn)
    assert f"{name} = off" in refusal
    assert "ARCLOG_STORE_UNSAFE=true" in refusal
    await opened(postgres, store__unsafe=True)


async def test_a_server_that_may_damage_data_is_refused(postgres, monkeypatch):

    look = connect._LOOK
    for name in ("fsync", "full_page_writes"):
        monkeypatch.setattr(connect, "_LOOK", look.replace(f"current_setting('{name}')", "'off'"))
        assert f"{name} = off" in await refused(postgres.dsn)
    monkeypatch.setattr(connect, "_LOOK", look.replace("current_setting('server_version_num')::int8", "130011"))
    assert "PostgreSQL 13; arclog needs 14" in await refused(postgres.dsn)
    monkeypatch.setattr(connect, "_LOOK", look.replace("pg_is_in_recovery()", "true"))
    assert "standby" in await refused(postgres.dsn, store__unsafe=True)


async def test_a_database_that_takes_no_writes_is_refused(postgres):
    postgres.rows(f"ALTER DATABASE {postgres.dbname} SET default_transaction_read_only = on")
    assert "does not accept writes" in await refused(postgres.dsn)


async def test_mistakes_in_the_address_are_named(postgres):
    wrong = postgres.dsn.replace("correct%20horse", "secret-word")
    refusal = await refused(wrong)
    assert "the password is wrong" in refusal
    assert "secret-word" not in refusal
    assert "no such database" in await refused(postgres.dsn.replace(postgres.dbname, "nowhere"))
    assert "cannot be reached" in await refused("postgresql://u:secret-word@127.0.0.1:1/x")
    with pytest.raises(SettingsError, match="ARCLOG_STORE_URL") as raised:
        store_at("postgresql://u:secret-word@127.0.0.1:x y/x")
    assert "secret-word" not in str(raised.value)
    with pytest.raises(SettingsError, match="ARCLOG_STORE_SCHEMA"):
        store_at(postgres.dsn, store__schema='x"; DROP')


async def test_a_user_without_rights_is_told_so(postgres):
    postgres.rows("CREATE ROLE poor LOGIN PASSWORD 'correct horse'")
    try:
        assert "lacks a permission" in await refused(postgres.dsn.replace("postgres:correct", "poor:correct"))
    finally:
        postgres.rows("DROP ROLE poor")


async def test_another_programs_schema_is_left_alone(postgres):
    postgres.rows("CREATE SCHEMA arclog")
    postgres.rows("CREATE TABLE arclog.theirs (a int)")
    assert "another program's tables (theirs)" in await refused(postgres.dsn)


async def test_two_stores_share_a_database_by_their_schemas(postgres, opened):
    first, second = await opened(postgres), await opened(postgres, store__schema="other")
    await first.append(creation(1))
    assert await second.execution(1) is None
    assert (await first.execution(1)).head == 1


async def test_many_who_open_at_once_create_one_schema(postgres, opened):
    stores = await asyncio.gather(*(opened(postgres) for _ in range(5)))
    await asyncio.gather(*(store.append(creation(n)) for n, store in enumerate(stores, 1)))
    assert len(await stores[0].executions()) == 5
    assert postgres.rows("SELECT version FROM arclog.schema_version") == [(SCHEMA,)]


async def test_a_newer_schema_is_used_as_long_as_it_says_that_this_code_can(postgres, opened):
    await opened(postgres)
    postgres.rows(f"UPDATE arclog.schema_version SET version = {SCHEMA + 3}")
    store = await opened(postgres)
    await store.append(creation(1))
    postgres.rows(f"UPDATE arclog.schema_version SET oldest = {SCHEMA + 1}")
    refusal = await refused(postgres.dsn)
    assert "newer arclog" in refusal
    assert "update arclog" in refusal


def test_every_migration_says_which_code_it_leaves_working():
    migrations = load_migrations(0, "arclog")
    assert [number for number, _ in migrations] == list(range(1, SCHEMA + 1))
    assert all(script.startswith("-- oldest: ") for _, script in migrations)


async def test_no_statement_depends_on_the_search_path(postgres, opened):
    postgres.rows(f"ALTER DATABASE {postgres.dbname} SET search_path = pg_catalog")
    store = await opened(postgres)
    await store.append(creation(1))


async def test_settings_choose_it(postgres):
    for scheme in ("postgresql", "postgres"):
        url = postgres.dsn.replace("postgresql", scheme)
        store = choose_store(Settings().replaced(store__url=url), FakeClock())
        await store.open()
        await store.close()


def test_the_driver_is_named_when_it_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingsError, match=r"arclog\[postgres\]"):
        choose_store(Settings().replaced(store__url="postgresql://x/y"), FakeClock())


async def test_texts_must_be_utf_8(postgres_server, opened):
    with psycopg.connect(postgres_server._admin("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    try:
        url = f"postgresql://postgres:correct%20horse@127.0.0.1:{postgres_server.port}/latin"
        assert "ENCODING 'UTF8'" in await refused(url)
    finally:
        with psycopg.connect(postgres_server._admin("postgres"), autocommit=True) as connection:
            connection.execute("DROP DATABASE latin WITH (FORCE)")


async def test_servers_that_start_at_once_on_an_empty_database(postgres, opened, monkeypatch):
    """Both have found nothing before one of them makes the tables."""
    refused, plain = [asyncio.Event() for _ in range(2)], connect._carry_out
    left = iter(refused)

    async def carry_out(*given):
        done = await plain(*given)
        if not done and (waiting := next(left, None)):
            waiting.set()
        return done

    monkeypatch.setattr(connect, "_carry_out", carry_out)
    with postgres.connect(autocommit=False) as first:
        first.execute("SELECT pg_advisory_xact_lock(%s, hashtext('arclog'))", (connect._LOCK_CLASS,))
        opening = [asyncio.ensure_future(opened(postgres)) for _ in range(2)]
        async with asyncio.timeout(30):
            await asyncio.gather(*(event.wait() for event in refused))
        assert not any(event.done() for event in opening)
        first.rollback()
        one, other = await asyncio.gather(*opening)
    await one.append(creation(1))
    assert len(await other.events(1)) == 1


async def test_a_table_that_a_newer_server_changes_under_statements_that_are_prepared(postgres, opened, caplog):
    """A column more everywhere, as a migration adds it while this server goes on."""
    store = await opened(postgres)

    async def walk(execution_id: int) -> tuple[int, ...]:
        await store.append(creation(execution_id))
        await store.append(change(execution_id, 1, issue=[NewCommand(execution_id + 1, "s", 1, ("noop",))]))
        (command,) = await store.claim("w", limit=1, lease_until=1 << 50, kinds=("noop",))
        await store.see_worker(WorkerRecord("w", ("default",), ("noop",), "", "h", "1", 1, 1, 1, 1), 0)
        await store.lease_duty("d", "w", 0, execution_id)
        reads = (
            store.events(execution_id),
            store.commands(execution_id),
            store.workers(),
            store.duties(),
            store.live_in_path("t", "p", "RUNNING"),
        )
        assert command.step == "s"
        return ((await store.execution(execution_id)).head, *[len(await read) for read in reads])

    assert await walk(1) == (2, 2, 1, 1, 1, 1)
    postgres.rows(MIGRATE)
    assert await walk(10) == (2, 2, 1, 1, 1, 2)
    # What is prepared anew is another matter: a column that is read has another type.
    postgres.rows("ALTER TABLE arclog.executions ALTER COLUMN version TYPE int4")
    assert (await store.execution(1)).head == 2
    assert (await store.execution(1)).head == 2
    assert "does not support prepared statements" not in caplog.text


@pytest.mark.parametrize(("processes", "connections"), [(1, 2), (2, 1)])
async def test_each_of_several_server_processes_appends_over_one_connection(postgres, opened, processes, connections):
    store = await opened(postgres, server__processes=processes)
    first = asyncio.ensure_future(store.append(creation(1)))
    while not store._writer._under_way:  # noqa: ASYNC110 - the writer has no event for it
        await asyncio.sleep(0)
    await asyncio.gather(first, *(store.append(creation(n)) for n in range(2, 6)))
    used = [lane for lane in store._writer._lanes if lane is not None]
    assert len(used) == connections
