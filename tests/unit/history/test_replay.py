"""The replay check over the logs of many runs: the code that wrote them finds no difference, changed code finds the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arclog.core.boundary import reports
from arclog.core.transitions import decide, items
from arclog.history import replay
from arclog.history.replay import Checked, check
from arclog.model.events import Event
from arclog.plan.program import Program
from arclog.ports.storage.store import StoredEvent
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually
from tests.golden.endings import ENDINGS, run

GOLDEN = Path(__file__).parents[2] / "golden" / "playbooks"
CASES = sorted(path.stem for path in GOLDEN.glob("*.yaml"))


def replayed(program: Program, stored: list[StoredEvent]) -> Checked:
    return check(
        program,
        stored[0].execution_id,
        [entry.event for entry in stored],
        [stored_event.event_id for stored_event in stored],
    )


async def checked(name: str) -> Checked:
    async with World((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")) as world:
        await world.run()
        return replayed(world.program, await world.stored())


@pytest.mark.parametrize("name", CASES)
def test_the_log_of_a_run_is_decided_again_as_it_was(name: str) -> None:
    outcome = run_virtually(checked(name))
    assert outcome.difference is None
    assert outcome.folded == 0


async def checked_ending(name: str) -> list[Checked]:
    async with await run(ENDINGS[name]) as world:
        checks: list[Checked] = []
        for record in await world.store.executions(limit=100):
            program = await world.current_life.engine.live.program(record.new.plan)
            checks.append(replayed(program, await world.store.events(record.execution_id, limit=100_000)))
        return checks


@pytest.mark.parametrize("name", ENDINGS)
def test_so_is_the_log_of_a_run_that_something_ended(name: str) -> None:
    for checked in run_virtually(checked_ending(name)):
        assert checked.difference is None
        assert checked.folded == 0


def test_it_gives_way_before_every_decision() -> None:
    async def main() -> tuple[Checked, int]:
        calls: list[None] = []
        async with World((GOLDEN / f"{CASES[0]}.yaml").read_text(encoding="utf-8")) as world:
            await world.run()
            stored = await world.stored()
            events, ids = [entry.event for entry in stored], [stored_event.event_id for stored_event in stored]
            findings = check(world.program, stored[0].execution_id, events, ids, give_way=lambda: calls.append(None))
        return findings, len(calls)

    checked, calls = run_virtually(main())
    assert checked.difference is None
    assert calls == checked.decisions > 1


LOOP = """
metadata: {name: loop}
workflow:
  - step: start
    loop: {in: "{{ range(30) }}", iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool: {name: a, kind: noop, data: "{{ iter.n }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop}}
"""
#: changes of one recorded event, by name
PLANTED: dict[str, Callable[[Event], Any]] = {
    "an item that took longer": lambda event: setattr(event, "duration_ms", 99),
    "another time": lambda event: setattr(event, "at", event.at + 5_000_000),
    "another task run": lambda event: setattr(event, "task_run", 2),
    "another item": lambda event: setattr(event, "iteration", (29,)),
    "a failure": lambda event: setattr(event, "type", event.type.replace("done", "failed")),
    "another payload": lambda event: event.payload.update(outcome={"status": "error"}, items=[[], 0, 9]),
    "a cause": lambda event: setattr(event, "cause", 3),
}


def planted(program: Program, stored: list[StoredEvent], index: int, change: str) -> Checked:
    events = [msgspec.convert(msgspec.to_builtins(entry.event), Event) for entry in stored]
    PLANTED[change](events[index])
    return check(program, stored[0].execution_id, events, [entry.event_id for entry in stored])


@pytest.mark.parametrize("change", PLANTED)
def test_a_planted_difference_is_found_in_a_loop_as_event_by_event(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> tuple[Program, list[StoredEvent]]:
        async with World(LOOP) as world:
            await world.run()
            return world.program, await world.stored()

    program, stored = run_virtually(main())
    at_once = [planted(program, stored, index, change) for index in range(len(stored))]
    for module in (replay, decide, reports, items):
        monkeypatch.setattr(module, "item_end", lambda _, at: at)
    assert at_once == [planted(program, stored, index, change) for index in range(len(stored))]
    different = {stored[index].event.type for index, checked in enumerate(at_once) if checked.difference is not None}
    assert {"loop.iteration.done", "command.issued"} & different
