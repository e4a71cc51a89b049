"""Runs that nothing moves are searched some at a time, however many runs wait."""

from types import SimpleNamespace
from typing import Any

import pytest

from arclog.core.boundary.inputs import Continue
from arclog.engine.duties.doctor import WorkDoctor
from arclog.engine.duties.recovery import Recovery
from arclog.model.config.settings import Settings
from arclog.ports.boundary import Boundary
from arclog.ports.storage.store import ExecutionRecord, ExecutionState, IdlePage, NewExecution, Scope
from arclog.testing.virtual import FakeClock


def record(execution_id: int) -> ExecutionRecord:
    new = NewExecution("r", "n", "p", 1, "d", Scope("acme", "p", "e"), 1)
    return ExecutionRecord(execution_id, 1, new, ExecutionState("RUNNING"))


class Waiting:
    """A store in which runs 1 to `live` have not ended, and `idle` of them are idle."""

    def __init__(self, live: int, *idle: int) -> None:
        self.live = live
        self.idle_runs = idle
        self.looks: list[int] = []

    async def idle(self, before: int, *, after: int = 0, limit: int = 1000) -> IdlePage:
        assert before > 0
        self.looks.append(after)
        last = min(after + limit, self.live)
        records = [record(number) for number in self.idle_runs if after < number <= last]
        return IdlePage(records, last if last - after == limit else 0)


class Api:
    async def why(self, _: str) -> Any:
        return SimpleNamespace(waits=[])


async def runs_of(store: Waiting) -> Any:
    engine: Any = SimpleNamespace(store=store, clock=FakeClock(10**15), wall=FakeClock(), settings=Settings())
    api: Any = Api()
    (check,) = await WorkDoctor(engine, api, Boundary.owner(Settings())).runs()
    return check


@pytest.mark.parametrize(("live", "looks"), [(0, 1), (999, 1), (1500, 2), (100_000, 2)])
async def test_the_doctor_looks_at_so_many_and_says_so(live: int, looks: int) -> None:
    store = Waiting(live)
    check = await runs_of(store)
    assert len(store.looks) == looks
    assert check.detail.startswith("each of the 2000 oldest" if live > 2000 else "every run")


async def test_the_doctor_finds_a_run_behind_many_that_wait() -> None:
    check = await runs_of(Waiting(100_000, 1700))
    assert check.status == "fail"
    assert "(1700)" in check.detail


async def test_recovery_goes_on_where_the_last_look_stopped() -> None:
    store, continued = Waiting(2500, 10, 1010, 2400), []

    async def put(execution_id: int, given: Any) -> Any:
        assert isinstance(given, Continue)
        continued.append(execution_id)
        return SimpleNamespace(events=0)

    async def nothing(*_: Any) -> None:
        pass

    async def has() -> bool:
        return True

    live = SimpleNamespace(kept=lambda _: None, head=lambda _: 0)
    engine: Any = SimpleNamespace(store=store, clock=FakeClock(10**15), settings=Settings(), put=put, live=live)
    children: Any = SimpleNamespace(look_after=nothing)
    duty: Any = SimpleNamespace(has=has)
    recovery = Recovery(engine, children, duty)
    assert [await recovery._look_at_idle(5) for _ in range(4)] == [True, True, False, True]
    assert store.looks == [0, 1000, 2000, 0]
    assert continued == [10, 1010, 2400]  # at the same head they are continued once
