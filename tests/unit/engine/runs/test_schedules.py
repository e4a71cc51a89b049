"""Schedules as a server fires them: once, never early, through crashes and in company."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.runs.schedules import EngineSchedules, Scheduler
from arclog.engine.views.api import EngineApi
from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, NotFound, RequestRejected, StoreUnavailable
from arclog.model.ids import micros
from arclog.ports.boundary import Boundary
from arclog.ports.storage.schedules import NewSchedule
from arclog.ports.views.api import ExecuteRequest
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from arclog.tools import noop

PLAYBOOK = """
metadata: {name: tidy, path: flows/tidy}
workload: {depth: 1}
workflow: [{step: start, tool: {kind: noop}}]
"""
NEW = NewSchedule("hourly", "0 * * * *", "flows/tidy")
HOUR = 3600.0


class Server:
    """One engine with its scheduler on a shared store."""

    def __init__(self, store: MemoryStore, clock: FakeClock, number: int, **settings: Any) -> None:
        self.settings = Settings(settings)
        self.store = store
        self.engine = Engine(store, clock, self.settings, Minter(clock, number))
        self.api = EngineApi(self.engine, {"noop": noop.KIND.spec}, MemoryResults())
        self.schedules = EngineSchedules(self.engine, Boundary.owner(self.engine.settings, "default"))
        self.scheduler = Scheduler(self.engine, f"server-{number}")

    async def fired(self) -> list[str]:
        """Times whose runs were started, oldest run first."""
        times = []
        for run in reversed(await self.api.list(path="flows/tidy", limit=100)):
            (first,) = await self.api.events(run.execution_id, limit=1)
            if "schedule" in first["payload"].get("workload", {}):
                times.append(first["payload"]["workload"]["schedule"]["due"][11:16])
        return times

    async def end_last(self) -> None:
        last = (await self.schedules.show("hourly")).last_execution
        assert last is not None
        await self.api.cancel(last, "the test says so")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(micros("2026-03-02T11:30:00Z"))


@pytest.fixture
async def store(clock: FakeClock) -> AsyncIterator[MemoryStore]:
    store = MemoryStore(clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def server(store: MemoryStore, clock: FakeClock) -> AsyncIterator[Server]:
    server = Server(store, clock, 1)
    await server.api.execute(ExecuteRequest(PLAYBOOK))
    yield server
    await server.engine.close()


async def test_a_schedule_fires_at_its_time_and_says_so_in_the_run(server: Server, clock: FakeClock) -> None:
    added = await server.schedules.add(NewSchedule("hourly", "0 * * * *", "flows/tidy", workload={"depth": 3}))
    assert (added.next_due, added.last_execution) == ("2026-03-02T12:00:00.000000Z", None)
    clock.advance(HOUR / 2 - 0.000001)
    await server.scheduler.fire()
    assert await server.fired() == []
    clock.advance(0.000001)
    await server.scheduler.fire()
    await server.scheduler.fire()
    assert await server.fired() == ["12:00"]
    shown = await server.schedules.show("hourly")
    assert (shown.next_due, shown.last_due) == ("2026-03-02T13:00:00.000000Z", "2026-03-02T12:00:00.000000Z")
    assert shown.last_execution is not None
    (first,) = await server.api.events(shown.last_execution, limit=1)
    assert first["payload"]["workload"] == {
        "schedule": {"name": "hourly", "due": "2026-03-02T12:00:00.000000Z"},
        "depth": 3,
    }


async def test_many_servers_fire_once(server: Server, store: MemoryStore, clock: FakeClock) -> None:
    await server.schedules.add(NEW)
    others = [Server(store, clock, number) for number in range(2, 6)]
    clock.advance(HOUR / 2)
    await asyncio.gather(*(member.scheduler.fire() for member in (server, *others)))
    assert await server.fired() == ["12:00"]
    for member in others:
        await member.engine.close()


@pytest.mark.parametrize("call", ["change_schedule", "append", "by_idempotency_key"])
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_crash_anywhere_neither_loses_nor_repeats_a_run(
    server: Server,
    store: MemoryStore,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    nth: int,
    moment: str,
) -> None:
    await server.schedules.add(NEW)
    clock.advance(HOUR / 2)
    real, calls = getattr(store, call), 0

    async def crashing(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and moment == "before":
            raise asyncio.CancelledError
        answer = await real(*args, **more)
        if calls == nth:
            raise asyncio.CancelledError
        return answer

    monkeypatch.setattr(store, call, crashing)
    try:
        await server.scheduler.fire()
    except asyncio.CancelledError:
        pass
    monkeypatch.undo()
    clock.advance(31)  # its lease is over
    after = Server(store, clock, 2)
    await after.scheduler.fire()
    await after.scheduler.fire()
    assert await after.fired() == ["12:00"]
    shown = await after.schedules.show("hourly")
    assert shown.last_execution is not None
    assert shown.last_due == "2026-03-02T12:00:00.000000Z"
    await after.engine.close()


async def test_more_schedules_than_a_page_and_those_that_are_blocked_hold_up_nobody(
    server: Server, clock: FakeClock, store: MemoryStore
) -> None:
    for number in range(105):
        new = NewSchedule(f"a{number:03}", "0 12 * * *", "flows/tidy", overlap="queue")
        await server.schedules.add(new)
    clock.advance(HOUR / 2)
    await server.scheduler.fire()
    clock.advance(24 * HOUR)
    await server.scheduler.fire()  # all are blocked by their runs of yesterday
    assert all(len(schedule.queued) == 1 for schedule in await server.schedules.list())
    await server.schedules.add(NewSchedule("z", "1 12 * * *", "flows/tidy"))
    clock.advance(60)
    await server.scheduler.fire()
    assert (await server.schedules.show("z")).last_execution is not None


async def test_missed_times_after_a_restart(server: Server, store: MemoryStore, clock: FakeClock) -> None:
    for name, policy in (("a", "none"), ("b", "last"), ("c", "all")):
        await server.schedules.add(NewSchedule(name, "0 * * * *", "flows/tidy", catch_up=policy))
    clock.advance(3 * HOUR)  # 14:30
    after = Server(store, clock, 2)
    await after.scheduler.fire()
    a, b, c = await after.schedules.list()
    assert (a.last_due, a.skipped) == (None, 3)
    assert (b.last_due, b.skipped) == ("2026-03-02T14:00:00.000000Z", 2)
    assert (c.last_due, [due[11:16] for due in c.queued]) == ("2026-03-02T12:00:00.000000Z", ["13:00", "14:00"])
    await after.engine.close()


async def test_catching_up_has_a_limit_that_is_loud(
    store: MemoryStore,
    clock: FakeClock,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("WARNING", "arclog")
    monkeypatch.setattr(logging.getLogger("arclog"), "propagate", True)  # a command may have been run here
    await server.schedules.add(NewSchedule("hourly", "0 * * * *", "flows/tidy", catch_up="all"))
    clock.advance(10 * HOUR)
    after = Server(store, clock, 2, **{"schedules.max_catch_up": 2})
    await after.scheduler.fire()
    shown = await after.schedules.show("hourly")
    assert [due[11:16] for due in shown.queued] == ["21:00"]
    assert await after.fired() == ["20:00"]
    assert "schedules.max_catch_up" in caplog.text
    assert shown.skipped == 8
    await after.engine.close()


async def test_a_run_that_has_not_ended_by_policy(server: Server, clock: FakeClock) -> None:
    await server.schedules.add(NewSchedule("hourly", "0 * * * *", "flows/tidy", overlap="queue"))
    clock.advance(HOUR / 2)
    await server.scheduler.fire()
    clock.advance(HOUR)
    await server.scheduler.fire()
    assert await server.fired() == ["12:00"]
    await server.end_last()
    clock.advance(5)  # one that is blocked is looked at now and then
    await server.scheduler.fire()
    assert await server.fired() == ["12:00", "13:00"]


async def test_overlap_skip_and_cancel(server: Server, clock: FakeClock) -> None:
    await server.schedules.add(NEW)
    await server.schedules.add(NewSchedule("other", "0 * * * *", "flows/tidy", overlap="cancel"))
    clock.advance(HOUR / 2)
    await server.scheduler.fire()
    before = await server.schedules.show("other")
    clock.advance(HOUR)
    await server.scheduler.fire()
    hourly, other = await server.schedules.list()
    assert (hourly.last_due, hourly.skipped) == ("2026-03-02T12:00:00.000000Z", 1)
    assert "overlap: skip" in hourly.note
    assert other.last_due == "2026-03-02T13:00:00.000000Z"
    assert before.last_execution is not None
    assert (await server.api.status(before.last_execution)).state == "CANCELLED"
    assert "schedule other" in str((await server.api.summary(before.last_execution)).error)


async def test_paused_it_does_not_fire(server: Server, clock: FakeClock) -> None:
    await server.schedules.add(NEW)
    paused = await server.schedules.pause("hourly")
    assert (paused.paused, paused.next_due) == (True, None)
    clock.advance(5 * HOUR)
    await server.scheduler.fire()
    assert await server.fired() == []
    assert (await server.schedules.resume("hourly")).next_due == "2026-03-02T17:00:00.000000Z"
    await server.scheduler.fire()
    assert await server.fired() == []


async def test_backfill_runs_each_time_once_one_after_the_other(server: Server, clock: FakeClock) -> None:
    await server.schedules.add(NEW)
    clock.advance(HOUR / 2)
    await server.scheduler.fire()  # 12:00
    due = await server.schedules.backfill("hourly", "2026-03-02T10:00:00Z", "2026-03-02T12:00:00Z")
    assert [moment[11:16] for moment in due] == ["10:00", "11:00", "12:00"]
    for _ in range(5):
        await server.end_last()
        clock.advance(5)
        await server.scheduler.fire()
    assert await server.fired() == ["12:00", "10:00", "11:00"]
    assert (await server.schedules.show("hourly")).queued == []


async def test_a_queue_goes_on_as_soon_as_its_last_run_has_ended(server: Server, clock: FakeClock) -> None:
    """Nobody waits until a schedule is looked at again: a backfill takes as long as its runs do."""
    await server.schedules.add(NewSchedule("hourly", "0 * * * *", "flows/tidy"))
    first, last = "2026-02-01T00:00:00Z", "2026-02-01T03:00:00Z"
    queued = await server.schedules.backfill("hourly", first, last)
    assert len(queued) == 4
    for number in range(1, 5):
        await server.scheduler.fire()
        assert len(await server.fired()) == number
        if number == 2:
            await server.schedules.pause("hourly")
        await server.end_last()
        if number == 2:
            await server.scheduler.fire()
            assert len(await server.fired()) == number, "paused is paused, also for what waits"
            await server.schedules.resume("hourly")
            clock.advance(60)


async def test_what_backfill_refuses(server: Server) -> None:
    await server.schedules.add(NEW)
    backfill = server.schedules.backfill
    with pytest.raises(RequestRejected, match="before"):
        await backfill("hourly", "2026-03-02T10:00:00Z", "2026-03-02T09:00:00Z")
    with pytest.raises(RequestRejected, match="is in the future"):
        await backfill("hourly", "2026-03-02T10:00:00Z", "2027-03-02T09:00:00Z")
    with pytest.raises(RequestRejected, match="calendar"):
        await backfill("hourly", "0001-01-01T00:00:00Z", "2026-03-02T09:00:00Z")
    with pytest.raises(RequestRejected, match="is not a time"):
        await backfill("hourly", "yesterday", "2026-03-02T09:00:00Z")
    with pytest.raises(RequestRejected, match="time zone"):
        await backfill("hourly", "2026-03-02T10:00:00", "2026-03-02T11:00:00Z")
    with pytest.raises(NotFound):
        await backfill("daily", "2026-03-02T10:00:00Z", "2026-03-02T11:00:00Z")
    with pytest.raises(RequestRejected, match="max_catch_up"):
        await backfill("hourly", "2020-03-02T10:00:00Z", "2026-03-02T11:00:00Z")


async def test_what_add_refuses(server: Server) -> None:
    await server.schedules.add(NEW)
    with pytest.raises(Conflict):
        await server.schedules.add(NEW)
    with pytest.raises(NotFound):
        await server.schedules.add(NewSchedule("x", "0 * * * *", "flows/unknown"))
    for version in (2, -1, 1 << 70):
        with pytest.raises(NotFound):
            await server.schedules.add(NewSchedule("x", "0 * * * *", "flows/tidy", version=version))
    with pytest.raises(RequestRejected, match="cron"):
        await server.schedules.add(NewSchedule("x", "whenever", "flows/tidy"))
    with pytest.raises(RequestRejected, match="bytes"):
        await server.schedules.add(NewSchedule("x", "0 * * * *", "flows/tidy", workload={"a": "b" * 300_000}))


async def test_an_archived_playbook_starts_no_run(server: Server, clock: FakeClock, store: MemoryStore) -> None:
    await server.schedules.add(NEW)
    await store.archive("flows/tidy", 1, tenant="default")
    with pytest.raises(RequestRejected, match="archived"):
        await server.schedules.add(NewSchedule("x", "0 * * * *", "flows/tidy"))
    clock.advance(HOUR / 2)
    await server.scheduler.fire()
    shown = await server.schedules.show("hourly")
    assert (shown.last_execution, shown.skipped) == (None, 1)
    assert "archived" in shown.note


async def test_a_schedule_is_not_another_tenants(server: Server) -> None:
    await server.schedules.add(NEW)
    other = EngineSchedules(server.engine, Boundary.owner(server.engine.settings, "acme"))
    assert await other.list() == []
    for call in (other.show, other.pause, other.resume, other.remove):
        with pytest.raises(NotFound):
            await call("hourly")
    await server.schedules.remove("hourly")
    with pytest.raises(NotFound):
        await server.schedules.remove("hourly")


async def test_a_store_that_cannot_be_used_for_a_moment_is_asked_again(
    server: Server, clock: FakeClock, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.schedules.add(NEW)
    clock.advance(HOUR / 2)
    duty = asyncio.ensure_future(server.scheduler.run())

    async def broken(*_: Any) -> Any:
        raise StoreUnavailable("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "lease_schedules", broken)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    for _ in range(50):
        clock.advance(1)
        await asyncio.sleep(0)
    assert await server.fired() == ["12:00"]
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)


async def test_a_schedule_that_is_paused_while_it_fires_stays_paused(
    server: Server, clock: FakeClock, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.schedules.add(NEW)
    clock.advance(HOUR / 2)
    real = store.append

    async def meanwhile(append: Any) -> Any:
        monkeypatch.undo()
        await server.schedules.pause("hourly")
        return await real(append)

    monkeypatch.setattr(store, "append", meanwhile)
    await server.scheduler.fire()
    shown = await server.schedules.show("hourly")
    assert shown.paused
    assert shown.last_execution is not None
    assert await server.fired() == ["12:00"]


async def test_a_tenant_has_a_bounded_number_of_schedules(store: MemoryStore, clock: FakeClock) -> None:
    server = Server(store, clock, 1, **{"schedules.max_per_tenant": 3})
    await server.api.execute(ExecuteRequest(PLAYBOOK))
    names = ["a", "b", "c"]
    for name in names:
        await server.schedules.add(replace(NEW, name=name))
    with pytest.raises(RequestRejected, match=r"has 3 schedules .* schedules.max_per_tenant is 3.*schedule rm"):
        await server.schedules.add(replace(NEW, name="d"))
    other = Server(store, clock, 2, **{"schedules.max_per_tenant": 3})
    with pytest.raises(RequestRejected, match=r"schedules\.max_per_tenant"):
        await other.schedules.add(replace(NEW, name="d"))
    await server.schedules.remove("b")
    await server.schedules.add(replace(NEW, name="d"))
    assert [schedule.name for schedule in await server.schedules.list()] == ["a", "c", "d"]


async def test_schedules_are_not_counted_each_time(
    store: MemoryStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, counts = Server(store, clock, 1), []
    await server.api.execute(ExecuteRequest(PLAYBOOK))
    count = store.count_schedules

    async def counted(tenant: str) -> int:
        counts.append(tenant)
        return await count(tenant)

    monkeypatch.setattr(store, "count_schedules", counted)
    for number in range(150):
        await server.schedules.add(replace(NEW, name=f"s{number}"))
    assert len(counts) == 2
