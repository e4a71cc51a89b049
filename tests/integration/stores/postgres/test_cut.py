"""The network between the store and PostgreSQL is cut: nobody hangs, and what was asked for happened once or not at all."""

import asyncio
import os
import socket
from dataclasses import replace

import pytest

from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.store import Append, OutcomeUnknown
from arclog.stores.postgres.connection import connect
from tests.servers.proxy import Mode, Proxy
from tests.unit.stores.support import RUNNING, change, creation

#: Far above the timeouts here, and below the default of store.timeout_s: whoever takes so long hangs.
FOR_EVER_S = 50
SHORT = {"store__timeout_s": 0.3, "store__patience_s": 0.3, "store__connect_timeout_s": 1}
#: One that ends connections, one that ends nothing, and one of which the server knows nothing.
CUTS = [Mode.RESET, Mode.BLACK_HOLE, Mode.ONLY_THERE]


@pytest.fixture
def proxy(postgres):
    proxy = Proxy(postgres.port)
    yield proxy
    proxy.close()


@pytest.fixture
def far(postgres, proxy):
    """The database, over the network."""
    return replace(postgres, port=proxy.port)


async def committed(database, seq):
    """As seen from outside."""
    while not await asyncio.to_thread(database.rows, f"SELECT 1 FROM arclog.executions WHERE head = {seq}"):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


async def is_whole(store, least):
    """The log is as long as its head says, and can be written."""
    head = (await store.execution(1)).head
    assert head >= least
    assert [event.seq for event in await store.events(1)] == list(range(1, head + 1))
    assert (await store.append(change(1, head))).last_seq == head + 1


async def test_a_commit_whose_answer_is_cut_off_is_answered_as_done(postgres, far, proxy, opened):
    store = await opened(far)
    await store.append(creation(1))
    proxy.be(Mode.ONLY_THERE)
    appending = asyncio.ensure_future(store.append(change(1, 1)))
    await committed(postgres, 2)
    proxy.drop()
    proxy.be(Mode.PASS)
    assert (await asyncio.wait_for(appending, FOR_EVER_S)).last_seq == 2
    assert len(await store.events(1)) == 2


async def test_a_commit_that_never_arrived_is_carried_out_once(far, proxy, opened):
    store = await opened(far)
    await store.append(creation(1))
    proxy.be(Mode.BLACK_HOLE)
    appending = asyncio.ensure_future(store.append(change(1, 1)))
    await asyncio.sleep(0)  # it is handed in
    await asyncio.sleep(0)  # it is under way
    assert store._writer._under_way
    proxy.drop()
    proxy.be(Mode.PASS)
    assert (await asyncio.wait_for(appending, FOR_EVER_S)).last_seq == 2
    assert len(await store.events(1)) == 2


@pytest.mark.parametrize("mode", CUTS, ids=lambda mode: mode.value)
async def test_a_cut_ends_in_an_error_and_what_arrives_late_changes_nothing_twice(far, proxy, opened, mode):
    store = await opened(far, **SHORT)
    await store.append(creation(1))
    proxy.be(mode)
    async with asyncio.timeout(FOR_EVER_S):
        with pytest.raises((OutcomeUnknown, StoreUnavailable)):
            await store.append(change(1, 1))
        with pytest.raises(StoreUnavailable):
            await store.execution(1)
        # What the network held reaches PostgreSQL now, after everybody has given it up.
        proxy.be(Mode.PASS)
        await is_whole(store, 1)


def cut_behind_the_greeting(monkeypatch, proxy):
    greeted = connect.connect

    async def cut_off(*args):
        try:
            return await greeted(*args)
        finally:
            proxy.be(Mode.BLACK_HOLE)

    monkeypatch.setattr(connect, "connect", cut_off)


async def test_a_network_that_is_cut_behind_the_greeting_of_a_new_connection(far, proxy, opened, monkeypatch):
    """The connection stands, and nothing has been asked yet: the first question is never answered."""
    store = await opened(far, **SHORT)
    await store.append(creation(1))
    proxy.drop()
    cut_behind_the_greeting(monkeypatch, proxy)
    async with asyncio.timeout(FOR_EVER_S):
        with pytest.raises(StoreUnavailable):
            await store.execution(1)
        with pytest.raises(StoreUnavailable):
            await store.append(change(1, 1))
    monkeypatch.undo()
    proxy.be(Mode.PASS)
    await is_whole(store, 1)


async def test_a_store_is_opened_over_a_network_that_is_cut_behind_the_greeting(far, proxy, opened, monkeypatch):
    cut_behind_the_greeting(monkeypatch, proxy)
    async with asyncio.timeout(FOR_EVER_S):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await opened(far, **SHORT)


async def test_a_slow_network_is_slow_and_right(far, proxy, opened):
    store = await opened(far)
    proxy.be(Mode.SLOW)
    await asyncio.gather(*(store.append(creation(number)) for number in range(1, 6)))
    await is_whole(store, 1)


async def test_a_lost_connection_that_nothing_needs_to_be_looked_up_for(far, proxy, opened):
    """An append without events and commands: carrying it out again changes nothing."""
    store = await opened(far)
    await store.append(creation(1))
    proxy.be(Mode.BLACK_HOLE)
    appending = asyncio.ensure_future(store.append(Append(1, 1, (), 1001, RUNNING)))
    await asyncio.sleep(0)  # it is handed in
    await asyncio.sleep(0)  # it is under way
    proxy.drop()
    proxy.be(Mode.PASS)
    assert (await asyncio.wait_for(appending, FOR_EVER_S)).last_seq == 1
    await is_whole(store, 1)


async def test_both_ends_notice_a_machine_that_vanished_within_the_timeout(postgres, opened):
    """It could be seen by pulling a plug only: what both kernels were told."""
    store = await opened(postgres, store__timeout_s=12)
    names = "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"
    [settings] = await store._pool.read(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")
    assert settings == ("6", "2", "3", "12000")
    link = store._pool.best()
    with socket.socket(fileno=os.dup(link._socket)) as ours:
        own = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT
        assert [ours.getsockopt(socket.IPPROTO_TCP, name) for name in own] == [6, 2, 3, 12_000]
