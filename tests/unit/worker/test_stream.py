"""Before an effect: whose command it is, by the worker's own clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from arclog.model.commands import Captured, Command, Report, ReportAnswer
from arclog.model.config.settings import Settings
from arclog.model.errors import LeaseLost, RequestTooLarge, StoreUnavailable
from arclog.model.events import Event
from arclog.testing.virtual import LoopClock, run_virtually
from arclog.worker.stream import ReportStream, Timing

LEASE_S = 30.0


class Server:
    """Answers heartbeats, as slowly as a test wants."""

    def __init__(self) -> None:
        self.requests = 0
        self.takes_s = 0.0
        self.lost: list[int] = []
        self.away = False

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        self.requests += 1
        await asyncio.sleep(self.takes_s)
        if self.away:
            raise StoreUnavailable("nobody answers")
        return self.lost


def stream(server: Any, proved_at: float = 0.0) -> ReportStream:
    command = Command(7, 2, 1, "p", "s", 1, 0, {}, Captured())
    return ReportStream(server, LoopClock(), command, "w", Timing.of(Settings({"leases.seconds": LEASE_S})), proved_at)


def test_a_command_that_was_given_a_moment_ago_costs_no_question() -> None:
    async def go() -> int:
        server = Server()
        await asyncio.sleep(0.9)
        await stream(server).prove()
        return server.requests

    assert run_virtually(go()) == 0


@pytest.mark.parametrize("late_s", [1.1, LEASE_S + 1, 3600.0])
def test_an_answer_that_lay_in_a_buffer_is_confirmed_first(late_s: float) -> None:
    async def go() -> int:
        server = Server()
        await asyncio.sleep(late_s)
        await stream(server).prove()
        server.lost = [7]
        await asyncio.sleep(late_s)
        with pytest.raises(LeaseLost, match="is not started"):
            await stream(server).prove()
        return server.requests

    assert run_virtually(go()) == 2


def test_parallel_iterations_share_one_question() -> None:
    async def go() -> int:
        server = Server()
        server.takes_s = 0.01
        await asyncio.sleep(5)
        shared_stream = stream(server)
        await asyncio.gather(*(shared_stream.prove() for _ in range(50)))
        return server.requests

    assert run_virtually(go()) == 1


def test_nothing_is_begun_while_nobody_answers_and_the_lease_may_be_over() -> None:
    async def go() -> float:
        server = Server()
        server.away = True
        await asyncio.sleep(5)
        with pytest.raises(LeaseLost, match="its lease may have expired"):
            await stream(server).prove()
        return asyncio.get_running_loop().time()

    assert LEASE_S <= run_virtually(go()) < LEASE_S + 1


def test_a_slow_server_is_enough_up_to_a_third_of_the_lease() -> None:
    async def go(takes_s: float) -> None:
        server = Server()
        server.takes_s = takes_s
        await asyncio.sleep(5)
        await stream(server).prove()

    run_virtually(go(LEASE_S / 3 - 1))
    with pytest.raises(LeaseLost, match="within a third"):
        run_virtually(go(LEASE_S / 3 + 1))


class Narrow:
    """Takes reports of so many events at most."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: list[tuple[int, int]] = []

    async def report(self, report: Report) -> ReportAnswer:
        if len(report.events) > self.most:
            raise RequestTooLarge("the body has more than 33554432 bytes (server.max_events_bytes)")
        self.taken.append((report.n, len(report.events)))
        return ReportAnswer(report.n)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_report_that_is_too_large_is_sent_in_parts(most: int) -> None:
    async def go() -> Narrow:
        server = Narrow(most)
        reports = stream(server)
        for _ in range(40):
            reports.add(Event("task.started", 1))
        await reports.flush()
        return server

    taken = run_virtually(go()).taken
    assert [n for n, _ in taken] == list(range(1, len(taken) + 1))
    assert sum(count for _, count in taken) == 40


def test_one_event_that_is_too_large_is_an_error() -> None:
    async def go() -> None:
        reports = stream(Narrow(0))
        reports.add(Event("task.started", 1))
        with pytest.raises(RequestTooLarge):
            await reports.flush()

    run_virtually(go())
