"""A worker of several processes behind one address: which of them gets its claims, reports and requests for revocations."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from arclog.client.control import _REPORTS_AT_A_TIME, RemoteControl
from arclog.client.transport import Placed, Transport
from arclog.model.commands import Captured, Command, Report, ReportAnswer, Revocation
from arclog.model.errors import StoreError
from arclog.operations import workers as ops
from arclog.operations.operation import Operation
from arclog.ports import work
from arclog.ports.control import WorkerInfo

WORKER = WorkerInfo("far", ("noop",))
WAIT_S = 20.0


class Processes:
    """Stands in for a transport to several processes: answers come from the preferred one, or from `elsewhere`."""

    def __init__(self) -> None:
        #: (operation, process that was preferred, body) of every request
        self.requests: list[tuple[str, str, Any]] = []
        #: process that answers requests without a preference, and those to a process that is gone
        self.elsewhere = "a"
        self.gone: set[str] = set()
        #: processes that a report reached before the preferred one
        self.others: tuple[str, ...] = ()
        #: set while reports are answered
        self.answer = asyncio.Event()
        self.answer.set()
        #: answers to claims and to requests for revocations that wait, by process
        self.claims: dict[str, asyncio.Future[list[Command]]] = {}
        self.revocations: dict[str, asyncio.Future[list[Revocation]]] = {}

    async def call_at(self, server: str, operation: Operation[Any], body: Any, **_: Any) -> Placed[Any]:
        body = body(0) if callable(body) else body
        self.requests.append((operation.name, server, body))
        process = self.elsewhere if not server or server in self.gone else server
        if operation is ops.REPORT:
            await self.answer.wait()
            return Placed(ReportAnswer(body.n, []), process, self.others)
        loop = asyncio.get_running_loop()
        if operation is ops.CLAIM:
            self.claims[process] = loop.create_future()
            return Placed(work.Claimed(await self.claims[process]), process)
        self.revocations[process] = loop.create_future()
        return Placed(work.Revoked(await self.revocations[process]), process)

    async def call(self, operation: Operation[Any], *, body: Any) -> None:
        self.requests.append((operation.name, "", body))

    def servers_of(self, operation: Operation[Any]) -> list[str]:
        return [server for name, server, _ in self.requests if name == operation.name]


def command(execution_id: int, waited_ms: int = 0) -> Command:
    return Command(execution_id + 1000, 1, execution_id, "p", "s", 1, 0, {}, Captured(), waited_ms=waited_ms)


def report(execution_id: int) -> Report:
    return Report("far", execution_id, execution_id + 1000, 1, 1, [])


async def a_turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def processes() -> Processes:
    return Processes()


@pytest.fixture
async def control(processes: Processes) -> RemoteControl:
    """Both processes are known, and nothing waits."""
    made = RemoteControl(cast(Transport, processes))
    await made.report(report(1))
    processes.elsewhere = "b"
    await made.report(report(2))
    processes.requests.clear()
    return made


async def test_reports_go_to_the_process_that_granted_the_command(control: RemoteControl, processes: Processes) -> None:
    claiming = asyncio.ensure_future(control.claim(WORKER, 10, WAIT_S))
    await a_turn()
    processes.claims["b"].set_result([command(7)])
    assert [run.execution_id for run in await claiming] == [7]
    processes.elsewhere = "a"
    await control.report(report(7))
    await control.report(report(8))
    await control.report(report(8))
    assert processes.servers_of(ops.REPORT) == ["b", "", "a"]


async def test_processes_that_a_report_reached_first_are_asked_for_work(processes: Processes) -> None:
    control = RemoteControl(cast(Transport, processes))
    processes.others = ("b", "c")
    await control.report(report(1))
    claiming = asyncio.ensure_future(control.claim(WORKER, 6, WAIT_S))
    await a_turn()
    assert sorted(processes.servers_of(ops.CLAIM)) == ["a", "b", "c"]
    claiming.cancel()


async def test_a_process_that_answers_a_report_is_asked_for_work_again(
    control: RemoteControl, processes: Processes
) -> None:
    processes.gone, processes.elsewhere = {"a"}, "c"
    claiming = asyncio.ensure_future(control.claim(WORKER, 3, WAIT_S))
    await a_turn()
    processes.claims["c"].set_result([])
    await claiming
    processes.gone = set()
    await control.report(report(1))
    claiming = asyncio.ensure_future(control.claim(WORKER, 3, WAIT_S))
    await a_turn()
    assert processes.servers_of(ops.CLAIM) == ["a", "b", "c", "a"]
    claiming.cancel()


async def test_reports_are_limited_for_each_process(control: RemoteControl, processes: Processes) -> None:
    processes.answer.clear()
    reports = [asyncio.ensure_future(control.report(report(1))) for _ in range(_REPORTS_AT_A_TIME + 5)]
    await a_turn()
    assert len(processes.requests) == _REPORTS_AT_A_TIME
    reports.append(asyncio.ensure_future(control.report(report(2))))
    await a_turn()
    assert len(processes.requests) == _REPORTS_AT_A_TIME + 1
    processes.answer.set()
    await asyncio.gather(*reports)


async def test_reports_follow_a_run_to_another_process(control: RemoteControl, processes: Processes) -> None:
    processes.gone, processes.elsewhere = {"a"}, "b"
    await control.report(report(1))
    await control.report(report(1))
    assert processes.servers_of(ops.REPORT) == ["a", "b"]


async def test_a_claim_waits_at_each_process(control: RemoteControl, processes: Processes) -> None:
    claiming = asyncio.ensure_future(control.claim(WORKER, 5, WAIT_S))
    await a_turn()
    assert [(server, body.limit) for _, server, body in processes.requests] == [("a", 3), ("b", 2)]
    processes.claims["a"].set_result([command(1), command(2), command(3)])
    assert len(await claiming) == 3
    # Two slots are free, and the claim at the other process has both.
    claiming = asyncio.ensure_future(control.claim(WORKER, 2, WAIT_S))
    await a_turn()
    assert len(processes.requests) == 2
    processes.claims["b"].set_result([command(4)])
    assert len(await claiming) == 1
    claiming = asyncio.ensure_future(control.claim(WORKER, 4, WAIT_S))
    await a_turn()
    assert [(server, body.limit) for _, server, body in processes.requests[2:]] == [("a", 2), ("b", 2)]
    assert len({body.n for _, _, body in processes.requests}) == 4
    claiming.cancel()


async def test_a_wait_counts_from_the_call(control: RemoteControl, processes: Processes) -> None:
    """The claim at the other process is older than the call that returns its commands."""
    called_at = time.monotonic()
    claiming = asyncio.ensure_future(control.claim(WORKER, 10, WAIT_S))
    await a_turn()
    processes.claims["a"].set_result([command(1, waited_ms=30)])
    [granted] = await claiming
    assert 30 <= granted.waited_ms <= 31 + (time.monotonic() - called_at) * 1000, "the request began after the call"
    await asyncio.sleep(0.05)
    claiming = asyncio.ensure_future(control.claim(WORKER, 9, WAIT_S))
    await a_turn()
    processes.claims["b"].set_result([command(2, waited_ms=60)])
    [granted] = await claiming
    assert granted.waited_ms <= 60 - 50


async def test_commands_that_no_claim_takes_are_returned(
    control: RemoteControl, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has filled its slots with the commands of one process when another grants some."""
    monkeypatch.setattr("arclog.client.control._UNCOLLECTED_S", 0.0)
    claiming = asyncio.ensure_future(control.claim(WORKER, 2, WAIT_S))
    await a_turn()
    processes.claims["a"].set_result([command(1)])
    assert len(await claiming) == 1
    processes.claims["b"].set_result([command(2)])
    while control._claiming.limit:
        await a_turn()
    await a_turn()
    [returned] = [body for name, _, body in processes.requests if name == ops.GIVE_BACK.name]
    assert (returned.execution_id, returned.command_id) == (2, 1002)


async def test_a_claim_takes_what_was_granted_before_it(control: RemoteControl, processes: Processes) -> None:
    claiming = asyncio.ensure_future(control.claim(WORKER, 2, WAIT_S))
    await a_turn()
    processes.claims["a"].set_result([command(1)])
    assert len(await claiming) == 1
    processes.claims["b"].set_result([command(2)])
    await a_turn()
    assert [granted.execution_id for granted in await control.claim(WORKER, 1, WAIT_S)] == [2]
    assert ops.GIVE_BACK.name not in {name for name, _, _ in processes.requests}


async def test_a_cancelled_claim_ends_at_every_process(control: RemoteControl, processes: Processes) -> None:
    claiming = asyncio.ensure_future(control.claim(WORKER, 10, WAIT_S))
    await a_turn()
    claiming.cancel()
    await asyncio.wait([claiming])
    assert processes.claims["a"].cancelled()
    assert processes.claims["b"].cancelled()


async def test_commands_of_one_process_survive_the_failure_of_another(
    control: RemoteControl, processes: Processes
) -> None:
    claim = asyncio.ensure_future(control.claim(WORKER, 4, WAIT_S))
    await a_turn()
    processes.claims["a"].set_result([command(7)])
    processes.claims["b"].set_exception(StoreError("away"))
    assert [granted.execution_id for granted in await claim] == [7]
    claim = asyncio.ensure_future(control.claim(WORKER, 4, WAIT_S))
    await a_turn()
    processes.claims["b"].set_exception(StoreError("away"))
    with pytest.raises(StoreError):
        await claim


async def test_a_process_that_is_gone_is_asked_no_more(control: RemoteControl, processes: Processes) -> None:
    processes.gone, processes.elsewhere = {"a"}, "c"
    claiming = asyncio.ensure_future(control.claim(WORKER, 10, WAIT_S))
    await a_turn()
    processes.claims["c"].set_result([])
    await claiming
    claiming = asyncio.ensure_future(control.claim(WORKER, 10, WAIT_S))
    await a_turn()
    assert processes.servers_of(ops.CLAIM) == ["a", "b", "c"]
    claiming.cancel()


async def test_each_process_learns_what_it_granted(control: RemoteControl, processes: Processes) -> None:
    held = [(1, 1001, 1), (2, 1002, 1), (3, 1003, 1)]
    watching = asyncio.ensure_future(control.revoked("far", WAIT_S, held))
    await a_turn()
    sent = {server: body.held for name, server, body in processes.requests if name == ops.REVOKED.name}
    assert sent == {"a": [held[0], held[2]], "b": [held[1], held[2]]}
    processes.revocations["b"].set_result([Revocation(1002)])
    assert await watching == [Revocation(1002)]
    watching = asyncio.ensure_future(control.revoked("far", WAIT_S, held[:1]))
    await a_turn()
    assert processes.servers_of(ops.REVOKED) == ["a", "b", "b"]
    watching.cancel()
