"""PostgreSQL restarted, killed, frozen, full: nothing that was answered is lost, nothing is written twice, nobody hangs."""

import asyncio
import contextlib
import os
import pwd
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from arclog.model.errors import Conflict, StoreUnavailable
from arclog.model.events import Event
from arclog.ports.storage.store import Appended, OutcomeUnknown
from arclog.stores.postgres.connection.pipeline import Lost, Pipeline
from tests.servers.arclog import running
from tests.servers.postgres import running_postgres
from tests.unit.stores.support import change, creation

#: Far above the timeouts here, and below the default of store.timeout_s: whoever takes so long hangs.
FOR_EVER_S = 50


@pytest.fixture(scope="module")
def own_server():
    """One that tests stop, kill and freeze; durable, since that is what they look at."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def own(own_server):
    database = own_server.create()
    yield database
    own_server.drop(database)


class Answers(dict):
    """The last seq of each execution that was answered; wakes who waits for them to grow."""

    def __init__(self):
        self._grown = asyncio.Event()

    def note(self, execution_id, head):
        self[execution_id] = head
        self._grown.set()

    async def until(self, enough):
        while not enough(self):
            self._grown.clear()
            await self._grown.wait()


async def write(store, execution_id, answers, stop):
    """Append one event after another until told to stop; notes every answer, and carries on after a refusal."""
    head = 0
    while not stop.is_set():
        try:
            appended = await store.append(creation(execution_id) if head == 0 else change(execution_id, head))
        except StoreUnavailable:
            record = None
            with contextlib.suppress(StoreUnavailable):
                record = await store.execution(execution_id)
            head = head if record is None else record.head
            continue
        head = appended.last_seq
        answers.note(execution_id, head)


async def under_load(store, harm, executions=8):
    """Does harm to the server while appends come; what was answered is there, without a gap."""
    answers, stop = Answers(), asyncio.Event()
    writers = [asyncio.ensure_future(write(store, n, answers, stop)) for n in range(1, executions + 1)]
    await answers.until(lambda now: len(now) == executions)
    before = dict(answers)
    await asyncio.to_thread(harm)
    await answers.until(lambda now: all(now[n] > before[n] + 3 for n in before))
    stop.set()
    await asyncio.gather(*writers)
    for execution_id, head in answers.items():
        stored = await store.events(execution_id, limit=100_000)
        assert [entry.seq for entry in stored] == list(range(1, len(stored) + 1))
        assert len(stored) == head == (await store.execution(execution_id)).head


async def test_a_server_that_is_killed_under_load(own_server, own, opened):
    def harm():
        own_server.kill()
        own_server.start()

    await under_load(await opened(own), harm)


async def test_a_server_that_is_restarted_under_load(own_server, own, opened):
    def harm():
        own_server.stop()
        own_server.start()

    await under_load(await opened(own), harm)


async def test_connections_that_are_ended_under_load(own, opened):
    def harm():
        own.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'arclog %'")

    await under_load(await opened(own), harm)


async def test_an_answer_that_got_lost_is_found_in_the_log(own, opened, monkeypatch):
    store = await opened(own)
    await store.append(creation(1))
    lose_after_commit(monkeypatch)
    appended = await store.append(change(1, 1))
    at = (await store.events(1))[-1].persisted_at
    assert appended == Appended(2, 2, at, appended.decoded_bytes)
    assert appended.decoded_bytes > 0
    assert (await store.execution(1)).head == 2
    assert len(await store.events(1)) == 2


async def test_a_request_that_got_lost_is_carried_out_again(own, opened, monkeypatch):
    store = await opened(own)
    await store.append(creation(1))
    lose_before_sending(monkeypatch)
    appended = await store.append(change(1, 1))
    assert appended.last_seq == 2
    assert len(await store.events(1)) == 2


async def test_a_refusal_that_got_lost_is_a_refusal(own, opened, monkeypatch):
    store = await opened(own)
    await store.append(creation(1))
    lose_after_commit(monkeypatch)
    results = await asyncio.gather(store.append(change(1, 5)), store.append(creation(2)), return_exceptions=True)
    assert [type(result) for result in results] == [Conflict, Appended]


def lose_after_commit(monkeypatch):
    """The next append's connection is lost after its commit and before its answer."""
    send = Pipeline.send
    lost: list[Pipeline] = []

    def lose(pipeline, calls, answered):
        def answered_by_nobody(outcome):
            if lost or not isinstance(outcome, list):
                answered(outcome)
                return
            lost.append(pipeline)
            pipeline.close("the network was cut")
            error = Lost("the network was cut")
            error.pipeline = pipeline.name
            answered(error)

        ours = calls[-1][0].startswith("WITH") and "won AS" in calls[-1][0]
        send(pipeline, calls, answered_by_nobody if ours else answered)

    monkeypatch.setattr(Pipeline, "send", lose)


def lose_before_sending(monkeypatch):
    """The next append's connection is lost before anything of it reaches the server."""
    flush = Pipeline._flush
    lost: list[Pipeline] = []

    def lose(self):
        if not lost and self._requests:
            lost.append(self)
            self.close("the network was cut")
            return
        flush(self)

    monkeypatch.setattr(Pipeline, "_flush", lose)


async def test_a_server_that_hangs_does_not_hang_us(own_server, own, opened):
    store = await opened(own, store__timeout_s=0.3, store__patience_s=0.5, store__connect_timeout_s=1)
    await store.append(creation(1))
    lanes = [lane for lane in store._writer._lanes if lane is not None]
    await asyncio.to_thread(own_server.freeze)
    try:
        reading = store.execution(1)
        with pytest.raises(StoreUnavailable, match=r"no answer within|cannot be reached"):
            await reading
        with pytest.raises(OutcomeUnknown, match="may or may not have taken place"):
            await store.append(change(1, 1))
    finally:
        await asyncio.to_thread(own_server.thaw)
    # The append may still be carried out: the server has received it.
    lost = [lane.name for lane in lanes if lane.lost is not None]
    assert lost
    async with asyncio.timeout(FOR_EVER_S):
        session = f"SELECT FROM pg_stat_activity WHERE application_name IN ({str(lost)[1:-1]})"
        while own.rows(session):  # noqa: ASYNC110 - another process's doing
            await asyncio.sleep(0.01)
    head = (await store.execution(1)).head
    assert len(await store.events(1)) == head
    assert (await store.append(change(1, head))).last_seq == head + 1


async def test_an_append_that_waits_for_a_lock_for_too_long_ends_in_an_error_and_writes_nothing(own, opened):
    store = await opened(own, store__timeout_s=0.3, store__patience_s=0.3)
    await store.append(creation(1))
    with own.connect() as other, other.transaction():
        other.execute("LOCK TABLE arclog.executions IN EXCLUSIVE MODE")
        async with asyncio.timeout(FOR_EVER_S):
            with pytest.raises(StoreUnavailable, match=r"no answer within 0\.3 s"):
                await store.append(change(1, 1))
    assert len(await store.events(1)) == 1
    assert (await store.append(change(1, 1))).last_seq == 2


async def test_a_server_without_free_connections(own, opened):
    own.rows("CREATE ROLE few LOGIN PASSWORD 'correct horse' CONNECTION LIMIT 2")
    own.rows(f"GRANT CREATE ON DATABASE {own.dbname} TO few")
    few = replace(own, user="few")
    store = await opened(few)
    assert await store.execution(1) is None  # one connection for requests, and one is left for appends
    # What is open serves everybody.
    await asyncio.gather(*(store.append(creation(number)) for number in range(1, 21)))
    results = await asyncio.gather(*(store.execution(number) for number in range(1, 21)))
    assert {record.head for record in results} == {1}
    with pytest.raises(StoreUnavailable, match=r"accepts no more connections.*ARCLOG_STORE_CONNECTIONS"):
        await opened(few, store__patience_s=0)
    await store.close()
    own.rows("DROP OWNED BY few CASCADE")
    own.rows("DROP ROLE few")


async def test_a_primary_that_becomes_a_standby_is_left_for_the_one_that_takes_writes(own, opened):
    store = await opened(own)
    await store.append(creation(1))
    own.rows(f"ALTER DATABASE {own.dbname} SET default_transaction_read_only = on")
    own.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'arclog %'")
    with pytest.raises(StoreUnavailable, match="does not accept writes"):
        await store.append(change(1, 1))
    replace(own, dbname="postgres").rows(f"ALTER DATABASE {own.dbname} RESET default_transaction_read_only")
    assert (await store.append(change(1, 1))).last_seq == 2


@pytest.fixture
def small_disk():
    """A tablespace of a few megabytes."""
    folder = Path(tempfile.mkdtemp(prefix="arclog-small-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=777", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


async def test_a_full_disk_writes_nothing_and_is_not_the_end(own, opened, small_disk):
    os.chown(small_disk, pwd.getpwnam("nobody").pw_uid, -1)
    own.rows(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    store = await opened(own)
    await store.append(creation(1))
    [(part,)] = own.rows("SELECT tableoid::regclass::text FROM arclog.log")
    own.rows(f"ALTER TABLE {part} SET TABLESPACE small")
    big = Event("task.done", 1, payload={"x": os.urandom(1 << 20).hex()})
    head = 1

    async def fill():
        nonlocal head
        while True:
            head = (await store.append(change(1, head, big))).last_seq

    with pytest.raises(StoreUnavailable, match="disk is full, nothing was written"):
        await fill()
    assert (await store.execution(1)).head == head
    assert len(await store.events(1)) == head
    own.rows(f"ALTER TABLE {part} SET TABLESPACE pg_default")
    assert (await store.append(change(1, head, big))).last_seq == head + 1
    own.rows("DROP TABLESPACE small")


async def test_a_statement_that_takes_too_long_says_so(own, opened):
    store = await opened(own)
    impatient = "SELECT set_config('statement_timeout', '20', true)"
    with pytest.raises(StoreUnavailable, match="statement_timeout"):
        await store._pool.run([(impatient, ()), ("SELECT pg_sleep(10)", ())])
    await store.append(creation(1))


async def test_values_that_cannot_be_stored_leave_the_others_alone(own, opened):
    from arclog.model.errors import RequestRejected

    store = await opened(own)
    for number in (1, 2, 3):
        await store.append(creation(number))
    odd = Event("step.scheduled", 1, "nul\x00", 1), Event("step.scheduled", 1, "half\ud800", 1)
    results = await asyncio.gather(
        store.append(change(1, 1, odd[0])),
        store.append(change(2, 1, odd[1])),
        store.append(change(3, 1)),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [RequestRejected, RequestRejected, Appended]
    assert [(await store.execution(n)).head for n in (1, 2, 3)] == [1, 1, 2]


@pytest.mark.parametrize(("away", "back"), [("kill", "start"), ("freeze", "thaw")])
async def test_a_server_that_is_stopped_meanwhile_leaves_in_good_order(
    own_server, own, tmp_path, caplog, monkeypatch, away, back
):
    monkeypatch.setattr("arclog.wiring.embedded._SETTLE_S", 0.2)
    before = asyncio.all_tasks()
    settings = {
        "store.url": own.dsn,
        "server.drain_s": 1,
        "store.timeout_s": 600,
        "store.connect_timeout_s": 600,
        "store.patience_s": 600,
    }
    async with running(tmp_path / "home", worker=True, **settings) as server, server.client() as client:
        assert (await client.get("/api/executions")).status_code == 200
        getattr(own_server, away)()
        try:
            async with asyncio.timeout(30):
                await server.stop()
        finally:
            getattr(own_server, back)()
    messages = [
        record.getMessage()
        for record in caplog.records
        if "stopping although the store is unavailable" in record.getMessage()
    ]
    assert len(messages) == 1
    assert not [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"]
    assert asyncio.all_tasks() == before


async def test_a_server_outlasts_a_store_that_is_away_with_the_worker_inside_it(own_server, own, tmp_path, caplog):
    settings = {"store.url": own.dsn, "store.patience_s": 0.1, "leases.seconds": 1, "engine.duty_lease_s": 1}
    async with running(tmp_path / "home", worker=True, **settings) as server, server.client() as client:
        own_server.kill()
        try:
            async with asyncio.timeout(30):
                while not any("cannot claim" in record.getMessage() for record in caplog.records):  # noqa: ASYNC110 - of a log
                    await asyncio.sleep(0.01)
        finally:
            own_server.start()
        playbook = "metadata: {name: after}\nworkflow: [{step: start, tool: {kind: noop}}]"
        async with asyncio.timeout(30):
            while (started := await client.post("/api/execute", json={"playbook": playbook})).status_code == 503:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            url = f"/api/executions/{started.json()['execution_id']}/status"
            while (await client.get(url)).json()["state"] != "COMPLETED":  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_a_store_that_is_closed_meanwhile_waits_for_nobody(own_server, own, opened, monkeypatch):
    monkeypatch.setattr("arclog.stores.postgres.store._CLOSE_S", 0.1)
    store = await opened(own, store__timeout_s=600, store__patience_s=600)
    await store.append(creation(1))
    before = asyncio.all_tasks()
    own_server.freeze()
    try:
        appending, reading = asyncio.ensure_future(store.append(creation(2))), asyncio.ensure_future(store.execution(1))
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await store.close()
            for task in (appending, reading):
                with pytest.raises(StoreUnavailable):
                    await task
    finally:
        own_server.thaw()
    assert asyncio.all_tasks() == before
    await store.open()
    assert (await store.execution(1)).head == 1
