"""Crashes are counted, and taken back, whatever number the work has."""

import pytest


@pytest.mark.parametrize("work", [1, 7 | 5 << 8, (1 << 55) | 3])
async def test_work_that_is_done_takes_its_crashes_back(postgres, opened, work):
    store = await opened(postgres)
    await store.add_crashes([(5, work), (5, 9), (6, work)], 100, 0)
    await store.forget_crash(5, work)
    known = await store.add_crashes([], 100, 0)
    assert {(one.execution_id, one.work) for one in known} == {(5, 9), (6, work)}
    await store.forget_crash(5)
    assert [one.execution_id for one in await store.add_crashes([], 100, 0)] == [6]


async def test_servers_that_find_the_same_count_it_once_and_one_of_them_pauses_the_run(postgres, opened):
    store = await opened(postgres)
    for _ in range(2):
        await store.set_crash(5, 3, 2, 100)
    (crash,) = await store.add_crashes([], 100, 0)
    assert (crash.count, crash.paused_at) == (2, 0)
    assert await store.pause_crash(crash, 7)
    assert not await store.pause_crash(crash, 8), "another server was first"
    await store.set_crash(5, 3, 1, 100)
    (crash,) = await store.add_crashes([], 100, 0)
    assert (crash.count, crash.paused_at) == (2, 7)
