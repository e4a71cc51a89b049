"""What the templates of one decision may cost together, and where those decisions are made that cost much."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arclog.engine.commits import turns as turns_module
from arclog.engine.commits.turns import MAX_REST_S, Stopped, Turns
from arclog.model.config.settings import Settings
from arclog.ports.views.api import ExecuteRequest
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually
from arclog.wiring.embedded import embedded
from bench.playbooks import chain

MIB = 1024 * 1024
MANY = ", ".join(f"a{n}: \"{{{{ 'x' * 100000 }}}}\"" for n in range(30))
HOARD = f"""
metadata: {{name: hoard}}
workflow:
  - {{step: start, tool: {{kind: noop}}, next: {{arcs: [{{step: last, args: {{{MANY}}}}}]}}}}
  - {{step: last, tool: {{kind: noop}}}}
"""
SUM = "{{ range(3000) | sum }}"
WIDE = "\n".join((
    "metadata: {name: wide}",
    "executor: {spec: {result: '{{ s7.data }}'}}",
    "workflow:",
    "  - step: start",
    "    tool: {kind: noop}",
    "    next: {spec: {mode: inclusive}, arcs: [" + ", ".join(f"{{step: s{n}}}" for n in range(8)) + "]}",
    *(f"  - {{step: s{n}, args: {{sum: '{SUM}'}}, tool: {{kind: noop, data: '{{{{ args.sum }}}}'}}}}" for n in range(8)),
))  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [("decision.max_bytes", 2 * MIB), ("decision.max_work", 1500)])
def test_the_templates_of_a_decision_are_bounded_together(name: str, value: int) -> None:
    async def main() -> None:
        async with World(HOARD, settings=Settings({name: value})) as world:
            state = await world.run()
            assert (state.status, (state.error or {})["kind"]) == ("FAILED", "template")
            assert (
                f"the templates {'build' if 'bytes' in name else 'do'} more than {value}"
                in (state.error or {})["message"]
            )
            assert f"setting {name}" in (state.error or {})["message"]

    run_virtually(main())


def test_steps_that_together_cost_too_much_are_left_to_further_decisions() -> None:
    async def main() -> None:
        async with World(WIDE, settings=Settings({"decision.max_work": 20_000})) as world:
            state = await world.run()
            assert (state.status, state.error) == ("COMPLETED", None)

    run_virtually(main())


async def test_a_heavy_decision_is_made_in_a_thread_and_comes_to_the_same(tmp_path: Path) -> None:
    results = []
    for turn in (100, 1_000_000):
        settings = Settings({"home": str(tmp_path / str(turn)), "decision.turn_work": turn})
        async with embedded(settings) as runtime, asyncio.timeout(60):
            await runtime.start_worker()
            started = await runtime.api.execute(ExecuteRequest(playbook=WIDE))
            await runtime.api.ended(started.execution_id)
            live = await runtime.engine.seen(int(started.execution_id))
            assert runtime.engine.deciding.is_heavy(live.program) == (turn == 100)
            summary = await runtime.api.summary(started.execution_id)
            results.append((summary.state, summary.result, live.state.runs))
    assert results[0] == results[1]
    assert results[0][:2] == ("COMPLETED", sum(range(3000)))


@pytest.mark.parametrize("turn", [100, 1_000_000])
async def test_every_decision_belongs_to_its_tenant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, turn: int) -> None:
    tenants: set[str] = set()
    notice, run = Turns.notice, Turns.run

    def noticed(turns: Turns, tenant: str) -> None:
        tenants.add(tenant)
        notice(turns, tenant)

    async def ran(turns: Turns, tenant: str, compute: Callable[[], Any]) -> Any:
        tenants.add(tenant)
        return await run(turns, tenant, compute)

    monkeypatch.setattr(Turns, "notice", noticed)
    monkeypatch.setattr(Turns, "run", ran)
    settings = Settings({"home": str(tmp_path), "decision.turn_work": turn, "scope.tenant": "acme"})
    async with embedded(settings) as runtime, asyncio.timeout(60):
        await runtime.start_worker()
        for _ in range(2):  # the second one is heavy from its start
            started = await runtime.api.execute(ExecuteRequest(playbook=WIDE))
            await runtime.api.ended(started.execution_id)
    assert tenants == {"acme"}, "also of the first decision, before the run's first event"


async def test_a_thread_stops_at_its_next_pause_when_the_engine_closes() -> None:
    turns = Turns()
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def compute() -> None:
        loop.call_soon_threadsafe(began.set)
        while True:
            turns.pause()

    running = asyncio.ensure_future(turns.run("acme", compute))
    await began.wait()
    turns.close()
    with pytest.raises(Stopped):
        await running


class Watch:
    """A clock that moves by what is slept and computed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        patch.setattr(turns_module, "monotonic", lambda: self.now)
        patch.setattr(turns_module, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))
        self.now += seconds

    def compute(self, seconds: float) -> Callable[[], None]:
        """A computation that cannot be interrupted."""

        def compute() -> None:
            self.now += seconds

        return compute


async def test_a_long_slice_delays_the_next_computation_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    turns = Turns()
    await turns.run("acme", watch.compute(100.0))
    await turns.run("globex", lambda: None)
    turns.close()
    assert watch.slept == [MAX_REST_S]


@pytest.mark.parametrize(
    ("before", "others", "rest"),
    [
        ("acme", ["acme"], 0.012),
        ("acme", ["acme", "globex"], 0.087),
        ("acme", ["globex", "acme"], 0.087),
        ("globex", ["acme"], 0.012),
        ("globex", ["globex"], 0.087),
    ],
)
async def test_a_tenant_that_computes_much_beside_others_rests_longer(
    monkeypatch: pytest.MonkeyPatch, before: str, others: list[str], rest: float
) -> None:
    watch = Watch(monkeypatch)
    turns = Turns()
    turns.notice(before)
    watch.now = 10.0
    for tenant in others:
        turns.notice(tenant)
    for _ in range(9):
        await turns.run("acme", watch.compute(0.003))
    assert watch.slept == [0.012] * 6 + [rest] * 2, "from 20 ms on"
    await turns.run("globex", lambda: None)
    assert watch.slept[8:] == [0.012], "only the one that computes much"
    watch.now += 1
    await turns.run("acme", watch.compute(0.003))
    await turns.run("acme", watch.compute(0.003))
    assert watch.slept[9:] == [0.012], "in the next second it has as much as others"
    turns.close()


@pytest.mark.parametrize(
    ("decided", "passed_s", "is_ahead"),
    [
        (["acme"], 0.0, False),
        (["acme", "acme"], 0.0, False),
        (["globex", "acme"], 0.0, True),
        (["acme", "globex"], 0.0, False),
        (["globex", "acme", "acme"], 0.9, True),
        (["globex", "acme", "acme"], 1.1, False),
    ],
)
def test_a_tenant_is_ahead_if_it_decided_last_and_others_decide_too(
    monkeypatch: pytest.MonkeyPatch, decided: list[str], passed_s: float, is_ahead: bool
) -> None:
    watch = Watch(monkeypatch)
    turns = Turns()
    for tenant in decided:
        turns.notice(tenant)
    watch.now += passed_s
    assert turns.is_ahead("acme") == is_ahead


async def test_a_busy_tenant_lets_others_go_first_before_each_decision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Watch(monkeypatch)
    steps = 20
    given_way = 0
    let_others_go_first = Turns.let_others_go_first

    async def count() -> None:
        nonlocal given_way
        given_way += 1
        await let_others_go_first()

    monkeypatch.setattr(Turns, "let_others_go_first", staticmethod(count))
    taken: list[int] = []
    async with embedded(Settings({"home": str(tmp_path)})) as runtime:
        turns = runtime.engine.deciding.turns
        assert turns is not None
        await runtime.start_worker()
        for other in ("", "globex"):
            if other:
                turns.notice(other)
            run = await runtime.api.execute(ExecuteRequest(chain(steps)))
            await runtime.api.ended(run.execution_id)
            taken.append(given_way)
    assert taken == [0, steps]


async def test_callbacks_that_lead_to_others_go_first() -> None:
    """A request is a chain of callbacks, of which each round of the event loop carries out one."""
    loop, order = asyncio.get_running_loop(), []

    def callback(left: int) -> None:
        if left:
            loop.call_soon(callback, left - 1)
        else:
            order.append("other")

    loop.call_soon(callback, 5)
    await Turns.let_others_go_first()
    order.append("busy")
    assert order == ["other", "busy"]


async def test_repeated_decisions_give_way_to_other_tenants() -> None:
    turns = Turns()
    was_other_tenant_served = threading.Event()
    began = asyncio.Event()
    loop = asyncio.get_running_loop()

    def check() -> None:
        loop.call_soon_threadsafe(began.set)
        while not was_other_tenant_served.is_set():
            turns.give_way()

    async with asyncio.timeout(60):
        checked = asyncio.ensure_future(turns.run("acme", check))
        await began.wait()
        await turns.run("globex", was_other_tenant_served.set)
        await checked
    turns.close()
