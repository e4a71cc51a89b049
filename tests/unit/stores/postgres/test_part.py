"""Requests that callers share: of which request each caller gets the result."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest

from arclog.model.errors import StoreUnavailable
from arclog.stores.postgres.executions import Catalog, kept_versions
from arclog.stores.postgres.part import Shared
from arclog.testing.virtual import FakeClock


class Requests:
    """Requests that end when the test answers them."""

    def __init__(self) -> None:
        self.made: list[asyncio.Future[int]] = []

    async def __call__(self) -> int:
        self.made.append(asyncio.get_running_loop().create_future())
        return await self.made[-1]

    async def answer(self, number: int, outcome: int | Exception) -> None:
        await _turns()
        if isinstance(outcome, Exception):
            self.made[number].set_exception(outcome)
        else:
            self.made[number].set_result(outcome)
        await _turns()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def _run(test: Callable[[Shared[str, int], Requests], Awaitable[None]]) -> None:
    async def run() -> None:
        shared: Shared[str, int] = Shared()
        await test(shared, Requests())
        await _turns()
        assert not shared._waiting

    asyncio.run(run())


def _callers(shared: Shared[str, int], requests: Requests, keys: Iterable[str]) -> list[asyncio.Future[int]]:
    return [asyncio.ensure_future(shared.get(key, requests)) for key in keys]


def test_callers_of_one_moment_share_a_request_for_each_key() -> None:
    async def test(shared: Shared[str, int], requests: Requests) -> None:
        callers = _callers(shared, requests, ["a", "b", "a", "a"])
        await requests.answer(0, 1)
        await requests.answer(1, 2)
        assert [caller.result() for caller in callers] == [1, 2, 1, 1]
        assert len(requests.made) == 2

    _run(test)


def test_a_caller_gets_the_result_of_a_request_that_began_after_its_call() -> None:
    async def test(shared: Shared[str, int], requests: Requests) -> None:
        [first] = _callers(shared, requests, ["a"])
        await _turns()
        later = _callers(shared, requests, ["a", "a"])
        await requests.answer(0, 1)
        assert first.result() == 1
        assert not any(caller.done() for caller in later)
        await requests.answer(1, 2)
        assert [caller.result() for caller in later] == [2, 2]

    _run(test)


def test_a_failure_reaches_each_caller_as_its_own_exception_and_no_later_caller() -> None:
    async def test(shared: Shared[str, int], requests: Requests) -> None:
        callers = _callers(shared, requests, ["a", "a"])
        await _turns()
        [later] = _callers(shared, requests, ["a"])
        await requests.answer(0, StoreUnavailable("away"))
        problems = [caller.exception() for caller in callers]
        assert [(type(problem), str(problem)) for problem in problems] == [(StoreUnavailable, "away")] * 2
        assert problems[0] is not problems[1]
        await requests.answer(1, 2)
        assert later.result() == 2

    _run(test)


def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async def test(shared: Shared[str, int], requests: Requests) -> None:
        first, second = _callers(shared, requests, ["a", "a"])
        await _turns()
        first.cancel()
        await requests.answer(0, 1)
        assert second.result() == 1
        with pytest.raises(asyncio.CancelledError):
            await first

    _run(test)


class _Catalog(Catalog):
    """A catalog that counts its transactions."""

    def __init__(self) -> None:
        self.clock = self._clock = FakeClock()
        self._registrations = Shared()
        self._versions = kept_versions()
        self.transactions: list[str] = []
        self.is_known = self.is_scoped = False

    async def time(self) -> int:
        return 0

    async def _read(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        self.transactions.append(name)
        return [(1, b"text", 5, self.is_scoped)] if self.is_known else []

    async def _write(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        self.transactions.append(name)
        return []

    async def _run(self, calls: Any, *, again: bool = False) -> list[Sequence[Sequence[Any]]]:
        self.transactions.append(calls[-2][0])
        self.is_known = True
        return [[(1, b"text", 5, False)] for _ in calls]


def test_runs_that_start_at_the_same_moment_register_their_playbook_once() -> None:
    async def run() -> None:
        catalog = _Catalog()
        register = catalog.register_plan
        records = await asyncio.gather(*(register("d1", "a", b"body", "text", 5, tenant="t") for _ in range(100)))
        assert {(record.version, record.source) for record in records} == {(1, "text")}
        assert catalog.transactions == ["version_of", "add_version"]
        catalog.transactions.clear()
        await asyncio.gather(*(register("d1", "a", b"body", "text", 5, tenant=tenant) for tenant in "uv"))
        assert catalog.transactions == ["version_of", "version_of"]

    asyncio.run(run())


def test_a_version_is_looked_up_once_a_second() -> None:
    async def run() -> None:
        catalog = _Catalog()
        for _ in range(3):
            await catalog.register_plan("d1", "a", b"body", "text", 5, tenant="t")
        assert catalog.transactions == ["version_of", "add_version"]
        catalog.clock.advance(1.0)
        record = await catalog.register_plan("d1", "a", b"body", "text", 5, tenant="t")
        assert (record.version, record.source) == (1, "text")
        assert catalog.transactions == ["version_of", "add_version", "version_of"]

    asyncio.run(run())


def test_a_version_of_a_project_is_looked_up_every_time() -> None:
    """Who registers it next may use it, too."""

    async def run() -> None:
        catalog = _Catalog()
        catalog.is_known = catalog.is_scoped = True
        for project in ("p", "q"):
            await catalog.register_plan("d1", "a", b"body", "text", 5, tenant="t", project=project)
        assert catalog.transactions == ["version_of", "add_scope"] * 2

    asyncio.run(run())
