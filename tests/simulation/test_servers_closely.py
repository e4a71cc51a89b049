"""Two servers on one store, looked at closely: what one has in hand and the other one is asked for; what a dead one left;
clocks that are an hour off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from arclog.engine.dispatch.scoped_control import ScopedControl
from arclog.engine.duties import recovery
from arclog.model.commands import Command, Report, Revocation
from arclog.model.config.settings import Settings
from arclog.model.errors import StaleFence
from arclog.model.events import Event
from arclog.model.ids import MICROS
from arclog.model.principal import Principal
from arclog.ports.boundary import Boundary
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.store import Append
from arclog.ports.views.api import ExecuteRequest, RegisterRequest, SignalRequest
from arclog.testing.virtual import run_virtually
from tests.simulation.cluster import Cluster, Server

ONE_STEP = """\
metadata: {name: one}
workflow:
  - step: s
    tool: {name: t, kind: act, returns: 1}
"""
PARENT = """\
metadata: {name: parent}
workflow:
  - step: call
    spec: {policy: {lifecycle: {timeout_s: 90000}}}
    tool: {kind: playbook, path: child}
"""
#: without a timer, the parent is idle while it waits
PLAIN_PARENT = PARENT.replace("    spec: {policy: {lifecycle: {timeout_s: 90000}}}\n", "")
DETACHING = PLAIN_PARENT.replace("path: child", "path: child, wait: false")
CHILD = """\
metadata: {name: child, path: child}
workflow:
  - step: s
    tool: {kind: act, returns: 7}
"""
W = WorkerInfo("w", ("act", "noop", "peek"))
V = WorkerInfo("v", ("act", "noop", "peek"))


def boundary(subject: str = "") -> Boundary:
    """Of a worker's credential in the tenant of the runs."""
    return Boundary.of(Principal("w", "default", frozenset({"worker"}), subject=subject), Settings())


def on_two(test: Callable[[Cluster, Server, Server], Awaitable[None]], *, workers: int = 0, **settings: Any) -> None:
    """Run it in virtual time on two servers that are well."""

    async def main() -> None:
        cluster = Cluster(Settings(settings), Random(1), workers=workers)
        cluster.calm = True
        await cluster.start()
        try:
            async with asyncio.timeout(5000):
                await test(cluster, *cluster.servers)
        finally:
            await cluster.stop()

    run_virtually(main())


async def run_of(server: Server, text: str = ONE_STEP) -> int:
    return int((await server.api.execute(ExecuteRequest(playbook=text))).execution_id)


async def claimed(server: Server, worker: WorkerInfo = W) -> Command:
    (command,) = await server.control.claim(worker, 1)
    return command


def report(command: Command, n: int, *types: str, worker: str = "w", wants: int = 0) -> Report:
    def event(name: str) -> Event:
        task: dict[str, Any] = {"task": "t", "task_run": 1, "attempt": 1} if name.startswith("task.") else {}
        outcome = {"outcome": {"status": "ok", "result": 1, "meta": {"duration_ms": 1}}} if name == "task.done" else {}
        return Event(name, command.lease_until, step=command.step, run=command.run, payload=outcome, **task)

    return Report(
        command_id=command.command_id,
        fence=command.fence,
        execution_id=command.execution_id,
        worker_id=worker,
        n=n,
        events=[event(name) for name in types],
        wants=wants,
    )


WHOLE = ("step.started", "task.started", "task.done", "step.done")


async def ended(server: Server, execution_id: int) -> str:
    assert await server.api.ended(str(execution_id), timeout_s=1000)
    return (await server.api.summary(str(execution_id))).state


# -- workers that speak to both ----------------------------------------------------------------------------------------


def test_a_command_claimed_at_one_is_reported_at_the_other() -> None:
    async def test(_: Cluster, a: Server, b: Server) -> None:
        execution_id = await run_of(a)
        command = await claimed(a)
        await b.control.report(report(command, 1, *WHOLE[:2]))
        # A repeats what it does not know; a gap is a gap to it, too.
        again = await a.control.report(report(command, 1, *WHOLE[:2]))
        assert not again.closed
        await a.control.report(report(command, 2, *WHOLE[2:]))
        assert (await b.control.report(report(command, 2, *WHOLE[2:]))).closed
        assert await ended(b, execution_id) == "COMPLETED"

    on_two(test)


def test_what_one_server_gave_to_another_worker_is_known_to_both() -> None:
    """Server A still believes that W holds the command, and has its state under the old fence."""

    async def test(_: Cluster, a: Server, b: Server) -> None:
        execution_id = await run_of(a)
        old = await claimed(a)
        (record,) = await b.engine.store.commands(execution_id)
        await b.control.end_lease(record)
        new = await claimed(b, V)
        assert (new.command_id, new.fence) == (old.command_id, old.fence + 1)
        scoped = ScopedControl(a.control, a.engine.store, a.clock, boundary())
        await scoped.report(report(new, 1, *WHOLE[:2], worker="v"))
        with pytest.raises(StaleFence):
            await scoped.report(report(old, 1, *WHOLE))
        await scoped.report(report(new, 2, *WHOLE[2:], worker="v"))
        assert await ended(a, execution_id) == "COMPLETED"

    on_two(test)


@pytest.mark.parametrize("signal", ["CANCEL", "EMERGENCY_STOP", "PAUSE"])
@pytest.mark.parametrize("at_b_before", [False, True])
def test_a_worker_asks_either_server_for_news_of_its_commands(signal: str, at_b_before: bool) -> None:
    async def test(_: Cluster, a: Server, b: Server) -> None:
        execution_id = await run_of(a)
        command = await claimed(a)
        held = [(execution_id, command.command_id, command.fence)]
        asking = b.control.revoked("w", 60.0, held)
        expected = Revocation(command.command_id, pause=signal == "PAUSE", kill=signal == "EMERGENCY_STOP")
        if at_b_before:
            waiting = asyncio.ensure_future(asking)
            await asyncio.sleep(5.0)
            assert not waiting.done()
            await a.api.signal(str(execution_id), SignalRequest(signal, reason="why not"))
            assert await waiting == [expected]
        else:
            await a.api.signal(str(execution_id), SignalRequest(signal, reason="why not"))
            assert await asking == [expected]

    on_two(test)


def test_nobody_gets_hold_of_anothers_command_by_asking_for_news_of_it() -> None:
    async def test(_: Cluster, a: Server, b: Server) -> None:
        execution_id = await run_of(a)
        command = await claimed(a)
        stranger = ScopedControl(b.control, b.engine.store, b.clock, boundary("stranger"))
        held = [(execution_id, command.command_id, command.fence)]
        assert await stranger.revoked("w", 0.0, held) == [Revocation(command.command_id)]
        with pytest.raises(StaleFence):
            await stranger.report(report(command, 1, *WHOLE))
        owner = ScopedControl(b.control, b.engine.store, b.clock, boundary())
        await owner.report(report(command, 1, *WHOLE))
        assert await ended(a, execution_id) == "COMPLETED"

    on_two(test)


def test_the_state_that_one_keeps_is_caught_up_with_what_the_other_did() -> None:
    async def test(_: Cluster, a: Server, b: Server) -> None:
        execution_id = await run_of(a)
        assert (await b.api.signal(str(execution_id), SignalRequest("PAUSE", "p"))).accepted
        # A has the run in memory as it was before.
        for server in (a, b):
            assert (await server.api.status(str(execution_id))).state == "RUNNING"
            assert await server.api.pausing(str(execution_id))
            assert (await server.api.why(str(execution_id))).waits[0].what == "pause"
        assert (await a.api.signal(str(execution_id), SignalRequest("RESUME", "r"))).accepted
        assert not await b.api.pausing(str(execution_id))
        await b.control.report(report(await claimed(b), 1, *WHOLE))
        assert (await a.api.summary(str(execution_id))).state == "COMPLETED"

    on_two(test)


def test_the_same_request_at_both_is_one_run() -> None:
    async def test(_: Cluster, a: Server, b: Server) -> None:
        request = ExecuteRequest(playbook=ONE_STEP, idempotency_key="once")
        started = await asyncio.gather(*(server.api.execute(request) for server in (a, b, a, b)))
        assert len({run.execution_id for run in started}) == 1
        assert sum(answer.created for answer in started) == 1

    on_two(test)


# -- what a dead server left -------------------------------------------------------------------------------------------


def out_of_reach(cluster: Cluster, server: Server) -> None:
    """It stands still, and the balancer knows."""
    cluster.servers.remove(server)
    server.reach.going.clear()


def back(cluster: Cluster, server: Server) -> None:
    cluster.servers.append(server)
    server.reach.going.set()


def dies_behind(cluster: Cluster, server: Server, event_type: str, execution_id: int = 0) -> asyncio.Future[int]:
    """Let a server die right behind the commit of such an event (of that run). The result is the run."""
    died: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def committed(caller: Server, append: Append) -> None:
        wanted = any(event.type == event_type for event in append.events)
        if caller is server and wanted and execution_id in (0, append.execution_id) and not died.done():
            server.reach.die()
            died.set_result(append.execution_id)

    cluster.on_commit = committed
    return died


@pytest.mark.parametrize("text", [PARENT, PLAIN_PARENT], ids=["with a timer", "idle"])
def test_a_call_that_only_the_dead_one_knew_is_made(text: str) -> None:
    async def test(cluster: Cluster, a: Server, b: Server) -> None:
        await b.api.register(RegisterRequest(playbook=CHILD))
        out_of_reach(cluster, b)  # only A hears of the call
        died = dies_behind(cluster, a, "command.completed")
        starting = asyncio.ensure_future(run_of(a, text))
        execution_id = await died
        await asyncio.wait([starting])  # its answer may be lost
        starting.exception()
        await cluster.remove(a, kill=True)
        back(cluster, b)
        assert await ended(b, execution_id) == "COMPLETED"
        assert await b.engine.store.position("sweeper") > 0

    on_two(test, workers=1)


def test_without_its_mark_an_idle_parent_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a store of a release that left no marks of calls."""
    monkeypatch.setattr(recovery, "_TYPES", ())
    test_a_call_that_only_the_dead_one_knew_is_made(PLAIN_PARENT)


@pytest.mark.parametrize("text", [PARENT, DETACHING], ids=["waits", "detached"])
def test_an_end_that_only_the_dead_one_knew_is_told(text: str) -> None:
    async def test(cluster: Cluster, a: Server, b: Server) -> None:
        await b.api.register(RegisterRequest(playbook=CHILD))
        out_of_reach(cluster, b)
        # Of a child that nobody waits for, its start is what the parent has to hear.
        last = "playbook.finished" if text is PARENT else "playbook.started"
        execution_id = 0
        died = asyncio.Event()

        def committed(caller: Server, append: Append) -> None:
            child = append.new is not None and append.new.parent_execution_id
            of_child = child or (execution_id and append.execution_id != execution_id)
            if caller is a and of_child and any(event.type == last for event in append.events) and not died.is_set():
                died.set()
                a.reach.die()
                cluster.fire_all()  # nor does anybody ask again

        cluster.on_commit = committed
        execution_id = await run_of(a, text)
        await died.wait()
        await cluster.remove(a, kill=True)
        back(cluster, b)
        cluster.hire("another")
        assert await ended(b, execution_id) == "COMPLETED"

    on_two(test, workers=1)


def test_what_the_dead_one_should_have_cancelled_is_cancelled() -> None:
    async def test(cluster: Cluster, a: Server, b: Server) -> None:
        slow = CHILD.replace("returns: 7", "returns: 7, takes: 3000")
        await b.api.register(RegisterRequest(playbook=slow))
        execution_id = await run_of(a, PARENT)
        head = 0
        while len(runs := await cluster.store.executions()) < 2:
            head = await a.api.wait(str(execution_id), after=head, timeout_s=10)
        child = runs[0].execution_id
        died = dies_behind(cluster, a, "execution.cancelled", execution_id)
        cancelling = asyncio.ensure_future(a.api.signal(str(execution_id), SignalRequest("CANCEL", reason="enough")))
        await died
        await cluster.remove(a, kill=True)
        cancelling.cancel()
        assert await ended(b, child) == "CANCELLED"

    on_two(test, workers=2)


def test_a_run_that_waits_rightly_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: Cluster, a: Server, b: Server) -> None:
        text = "metadata: {name: ask}\nworkflow:\n  - step: s\n    tool: {kind: approval, prompt: yes?}\n"
        execution_id = await run_of(a, text)
        await asyncio.sleep(100.0)
        read: list[int] = []
        events = cluster.store.events

        async def counted(execution_id: int, **options: Any) -> Any:
            read.append(execution_id)
            return await events(execution_id, **options)

        monkeypatch.setattr(cluster.store, "events", counted)
        await asyncio.sleep(1000.0)
        assert read == []
        assert (await b.api.signal(str(execution_id), SignalRequest("APPROVE", "yes"))).accepted
        assert await ended(a, execution_id) == "COMPLETED"

    on_two(test, workers=1)


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_clocks_that_are_off_fire_nothing_early_and_take_nobodys_lease(seed: int) -> None:
    """Servers whose own clocks are an hour apart: a wait of 60 s takes 60 s, and a command is held once."""

    async def main() -> None:
        cluster = Cluster(Settings(), Random(seed), servers=3, workers=1)
        cluster.calm = True
        await cluster.start()
        try:
            text = (
                "metadata: {name: waits}\nworkflow:\n  - step: s\n    tool:\n"
                "      - {name: w, kind: wait, for_s: 60}\n      - {name: a, kind: act, returns: 1, takes: 100}\n"
            )
            loop = asyncio.get_running_loop()
            began = loop.time()
            runs = [await run_of(server, text) for server in cluster.servers]
            for execution_id in runs:
                assert await ended(cluster.servers[0], execution_id) == "COMPLETED"
                events = await cluster.store.events(execution_id)
                fired = [entry for entry in events if entry.event.type == "timer.fired"]
                assert [entry.persisted_at >= entry.event.payload["due"] for entry in fired] == [True]
                assert "lease_lost" not in [entry.event.payload.get("reason") for entry in events]
            # 60 s of waiting, 100 s of work, and at worst a look of a worker whose server heard nothing of it.
            assert 160 <= loop.time() - began < 165 + Settings().number("engine.idle_look_s")
            now = await cluster.store.time()
            assert all(0 <= now - server.clock.now() < MICROS for server in cluster.servers)
        finally:
            await cluster.stop()

    run_virtually(main())
