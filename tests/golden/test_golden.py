"""Golden logs: the exact events of small playbooks. UPDATE_GOLDEN=1 writes them anew; read the diff before committing.

A line is: seq, type, place (step#run[iteration] task#run @attempt), status if it is not the type's first, what the
event is caused by, and the payload. What differs between machines and times is left out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually
from tests.golden.lines import line, tidied

HERE = Path(__file__).parent
CASES = sorted(path.stem for path in (HERE / "playbooks").glob("*.yaml"))
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))


async def rendered_run(name: str) -> str:
    async with World((HERE / "playbooks" / f"{name}.yaml").read_text(encoding="utf-8")) as world:
        state = await world.run()
        stored = await world.stored()
        check_log(stored, state.scope)
        lines = [line(entry.seq, entry.event) for entry in stored]
        lines += [
            "",
            f"state {state.status}",
            f"ctx {json.dumps(state.ctx)}",
            f"result {json.dumps(tidied(state.result, 0))}",
        ]
        lines += [f"error {json.dumps(state.error)}"] if state.error else []
        return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_the_log_is_as_it_was(name: str) -> None:
    path = HERE / "logs" / f"{name}.txt"
    outcome = run_virtually(rendered_run(name))
    if UPDATE:
        path.write_text(outcome, encoding="utf-8")
    assert outcome == path.read_text(encoding="utf-8"), "UPDATE_GOLDEN=1 writes it anew"


def test_every_golden_log_has_its_playbook() -> None:
    logs = sorted(path.stem for path in (HERE / "logs").glob("*.txt"))
    assert logs == CASES


def test_a_run_is_the_same_every_time() -> None:
    assert run_virtually(rendered_run("inclusive")) == run_virtually(rendered_run("inclusive"))


def test_every_prefix_of_a_golden_log_replays() -> None:
    """Time travel: the state after n events is the state after n events, however one gets there."""

    async def main() -> None:
        async with World((HERE / "playbooks" / "loop_best_effort.yaml").read_text(encoding="utf-8")) as world:
            await world.run()
            state = State(execution_id=world.execution_id)
            for entry in await world.stored():
                apply(world.program, state, entry.event)
                assert await world.state(entry.seq) == state
                assert (await world.current_life.engine.live.folded(world.execution_id, entry.seq)).state == state

    run_virtually(main())
