"""What the templates of one decision may cost together, and where those decisions are made that cost much."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from arclog.engine.commits import turns as turns_module
from arclog.engine.commits.turns import MAX_REST_S, Stopped, Turns
from arclog.model.config.settings import Settings
from arclog.ports.views.api import ExecuteRequest
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually
from arclog.wiring.embedded import embedded

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


async def test_a_long_slice_delays_the_next_computation_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    def compute() -> None:
        now[0] += 100.0  # nothing in it can be interrupted

    monkeypatch.setattr(turns_module, "monotonic", lambda: now[0])
    monkeypatch.setattr(turns_module, "sleep", sleep)
    turns = Turns()
    await turns.run("acme", compute)
    await turns.run("globex", lambda: None)
    turns.close()
    assert slept == [MAX_REST_S]


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
