"""The replay check over the logs of many runs: the code that wrote them finds no difference, changed code finds the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.history.replay import Checked, check
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
