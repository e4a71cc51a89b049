"""Crashes are counted, and taken back, whatever number the work has."""

import pytest

from arclog.ports.storage.marks import ATTEMPT


@pytest.mark.parametrize("work", [1, 7 | 5 << 8, (1 << 55) | 3])
async def test_work_that_is_done_takes_its_crashes_back(postgres, opened, work):
    store = await opened(postgres)
    await store.add_crashes([(5, work), (5, 9), (6, work)], 100, 0)
    await store.forget_crash(5, work)
    crashes = await store.add_crashes([], 100, 0)
    assert {(run.execution_id, run.work) for run in crashes} == {(5, 9), (6, work)}
    await store.forget_crash(5)
    assert [run.execution_id for run in await store.add_crashes([], 100, 0)] == [6]


async def the_crash(store):
    (crash,) = await store.add_crashes([], 100, 0)
    return crash.work, crash.count, crash.presumed, crash.paused_at


async def test_servers_that_find_the_same_record_count_it_once_and_one_of_them_pauses_the_run(postgres, opened):
    store = await opened(postgres)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    for _ in range(2):
        await store.count_attempt(5, 3 | ATTEMPT, 1, 100, 2)
    (crash,) = await store.add_crashes([], 100, 0)
    assert (crash.work, crash.count, crash.presumed, crash.paused_at) == (3, 2, 1, 0)
    assert await store.pause_crash(crash, 7, 2)
    assert not await store.pause_crash(crash, 8, 2), "another server was first"
    assert await the_crash(store) == (3, 2, 1, 7)


async def test_a_record_that_was_renewed_is_not_counted(postgres, opened):
    store = await opened(postgres)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 1, 100, 2)
    assert await the_crash(store) == (3 | ATTEMPT, 2, 0, 0)


async def test_nothing_is_presumed_of_work_that_killed_a_server_before(postgres, opened):
    store = await opened(postgres)
    await store.add_crashes([(5, 3)], 100, 0)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 0, 100, 2)
    assert await the_crash(store) == (3, 2, 0, 0)


async def test_the_marks_of_the_first_server_confirm_what_was_presumed(postgres, opened):
    store = await opened(postgres)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 0, 100, 2)
    await store.add_crashes([(5, 3)], 100, 0)
    assert await the_crash(store) == (3, 2, 0, 0)
    await store.excuse_attempt(5, 3 | ATTEMPT, 100)
    assert await the_crash(store) == (3, 2, 0, 0), "nothing is presumed that could be withdrawn"


async def test_a_record_is_excused_before_and_after_it_is_counted(postgres, opened):
    store = await opened(postgres)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.excuse_attempt(5, 3 | ATTEMPT, 100)
    assert await the_crash(store) == (3, 1, 0, 0)
    await store.forget_crash(5)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 0, 100, 2)
    await store.excuse_attempt(5, 3 | ATTEMPT, 100)
    assert await the_crash(store) == (3, 1, 0, 0)


async def test_nothing_is_withdrawn_if_other_work_on_the_run_killed_a_server(postgres, opened):
    store = await opened(postgres)
    await store.add_crashes([(5, 1)], 100, 0)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 0, 100, 2)
    await store.excuse_attempt(5, 3 | ATTEMPT, 100)
    crashes = await store.add_crashes([], 100, 0)
    assert {(crash.work, crash.count, crash.presumed) for crash in crashes} == {(1, 1, 0), (3, 2, 1)}


async def test_a_crash_of_a_server_that_is_alive_is_withdrawn(postgres, opened):
    store = await opened(postgres)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 0, 100, 2)
    (crash,) = await store.add_crashes([], 100, 0)
    assert await store.pause_crash(crash, 7, 2)
    await store.end_attempt(5, 3 | ATTEMPT, "lost", withdraw=True)
    (crash,) = await store.add_crashes([], 100, 0)
    assert (crash.count, crash.presumed, crash.paused_at) == (0, 0, 7)
    assert not await store.pause_crash(crash, 8, 2), "there is no reason left"
    await store.resume_crash(crash)
    assert await store.add_crashes([], 100, 0) == []


async def test_what_is_presumed_is_withdrawn_when_every_registered_process_has_a_voucher(postgres, opened):
    store = await opened(postgres)
    for owner, until in (("first", 200), ("second", 200), ("third", 200), ("long gone", 100)):
        await store.lease_node(owner, 50, until)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.begin_attempt(6, 3 | ATTEMPT, "lost", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 0, 100, 2)
    await store.vouch(["first"], (), 100)
    await store.count_attempt(6, 3 | ATTEMPT, 0, 100, 2)
    await store.vouch(["second"], (), 100)
    await store.vouch(["third"], (), 100)
    counts = {crash.execution_id: (crash.count, crash.presumed) for crash in await store.add_crashes([], 100, 0)}
    assert counts == {5: (1, 0), 6: (2, 1)}
    await store.vouch(["first"], (), 100)
    counts = {crash.execution_id: (crash.count, crash.presumed) for crash in await store.add_crashes([], 100, 0)}
    assert counts == {5: (1, 0), 6: (1, 0)}


async def test_the_suspects_of_a_run_that_was_released_are_forgotten(postgres, opened):
    store = await opened(postgres)
    await store.lease_node("first", 50, 200)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 0, 100, 2)
    await store.forget_crash(5)
    await store.vouch(["another"], (), 100)
    assert postgres.rows("SELECT count(*) FROM arclog.crash_suspects") == [(0,)]


async def test_deaths_while_the_work_was_waiting_do_not_keep_another_one_from_being_withdrawn(postgres, opened):
    store = await opened(postgres)
    await store.begin_attempt(5, 3 | ATTEMPT, "lost", 100)
    await store.begin_attempt(5, 1 | ATTEMPT, "lost", 100)
    await store.excuse_attempt(5, 3 | ATTEMPT, 100)
    await store.count_attempt(5, 1 | ATTEMPT, 0, 100, 2)
    await store.excuse_attempt(5, 1 | ATTEMPT, 100)
    crashes = await store.add_crashes([], 100, 0)
    assert {(crash.work, crash.count, crash.presumed) for crash in crashes} == {(1, 1, 0), (3, 1, 0)}


async def test_a_record_belongs_to_the_process_that_wrote_it(postgres, opened):
    store = await opened(postgres)
    await store.begin_attempt(5, 3 | ATTEMPT, "first", 100)
    await store.begin_attempt(5, 3 | ATTEMPT, "second", 100)
    await store.renew_attempts([(5, 3 | ATTEMPT)], "second", 100, 0)
    await store.end_attempt(5, 3 | ATTEMPT, "second", withdraw=False)
    await store.forget_crash(5)
    (record,) = await store.add_crashes([], 100, 0)
    assert (record.work, record.count, record.owner) == (3 | ATTEMPT, 1, "first")
    await store.end_attempt(5, 3 | ATTEMPT, "first", withdraw=True)
    assert await store.add_crashes([], 100, 0) == []


async def test_a_server_that_renews_a_record_which_was_counted_withdraws_the_crash(postgres, opened):
    store = await opened(postgres)
    await store.begin_attempt(5, 3 | ATTEMPT, "slow", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 1, 100, 2)
    (crash,) = await store.add_crashes([], 100, 0)
    assert (crash.work, crash.count, crash.presumed, crash.owner) == (3, 2, 1, "slow")
    crashes = await store.renew_attempts([(5, 3 | ATTEMPT)], "slow", 100, 0)
    assert {(row.work, row.count, row.presumed) for row in crashes} == {(3, 0, 0), (3 | ATTEMPT, 1, 0)}


async def test_the_marks_of_dead_processes_are_counted_with_their_vouchers(postgres, opened):
    store = await opened(postgres)
    for owner in ("first", "second"):
        await store.lease_node(owner, 50, 200)
    await store.begin_attempt(5, 3 | ATTEMPT, "second", 100)
    await store.count_attempt(5, 3 | ATTEMPT, 0, 100, 2)
    await store.vouch(["first", "second"], [(5, 3)], 100)
    assert await the_crash(store) == (3, 2, 0, 0), "a mark of the same work confirms what was presumed"


async def test_a_run_that_is_not_begun_stays_known(postgres, opened):
    store = await opened(postgres)
    await store.add_crashes([(-5, 11), (-5, 11), (-6, 11), (7, 3), (7, 3)], 100, 0)
    known = await store.add_crashes([], 300, 200)
    assert [(crash.execution_id, crash.count) for crash in known] == [(-5, 2)]
    await store.forget_crash(-5)
    assert await store.add_crashes([], 300, 200) == []
