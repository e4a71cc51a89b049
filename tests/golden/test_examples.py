"""Golden logs of the examples: the exact events of a run of each, and of the runs that it calls.

UPDATE_GOLDEN=1 writes them anew; read the diff before committing. An example whose tools need a server or a secret is
left to its own tests.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.plan.build import build_or_raise
from arclog.playbook.engine_kinds import ENGINE_KINDS
from arclog.ports.views.api import ExecuteRequest, SignalRequest
from arclog.testing.harness import SPECS, World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually
from arclog.wiring.kinds import KindSpecs, tool_kinds
from tests.golden.inline import KINDS
from tests.golden.lines import line, tidied, without_ids

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))
#: What has to be there in any case.
PROMISED = {
    "branch", "fork_join", "parallel_loop", "nested_loops", "subplaybook", "approval", "saga", "quantum", "hello", "loop",
    "pagination", "retry", "shell", "wait",
}  # fmt: skip
#: Examples that need a secret.
SECRET = {"secrets"}
#: Examples whose tasks need folders, which only real processes have.
FOLDERS = {"files"}
#: Examples that wait for somebody, and what they are told.
SIGNALS = {"approval": SignalRequest("APPROVE", "yes", "looks right", by="ann")}


def runs_here(path: Path) -> bool:
    """Whether an example needs nothing but kinds that run in this process: no server."""
    plan = build_or_raise(path.read_text(encoding="utf-8"), path.name, KindSpecs(tool_kinds()))
    kinds = {task.kind for step in plan.steps for task in step.tasks}
    return kinds <= {*SPECS, *KINDS, *ENGINE_KINDS}


def cases() -> list[str]:
    return sorted(
        path.stem for path in EXAMPLES.glob("*.yaml") if runs_here(path) and path.stem not in SECRET | FOLDERS
    )


CASES = cases()


async def rendered_run(name: str, scratch: Path) -> str:
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    files = {f"examples/parts/{path.name}": path.read_text(encoding="utf-8") for path in (EXAMPLES / "parts").iterdir()}
    async with World(text, kinds=KINDS) as world:
        world.scratch = scratch
        life = world.begin_life()
        started = await life.api.execute(ExecuteRequest(text, f"examples/{name}.yaml", files=files))
        world.execution_id = int(started.execution_id)
        going = asyncio.ensure_future(world.run())
        if name in SIGNALS:
            await asyncio.sleep(5)
            assert (await life.api.why(started.execution_id)).waits[0].what == "approval"
            await life.api.signal(started.execution_id, SIGNALS[name])
        assert (await going).status == "COMPLETED"
        await life.children.settle(1000.0)
        lines: list[str] = []
        for record in reversed(await world.store.executions(limit=1000)):
            stored = await world.store.events(record.execution_id, limit=100_000)
            check_log(stored, record.new.name)
            program = await life.engine.live.program(record.new.plan)
            state = State(execution_id=record.execution_id)
            for stored_event in stored:
                apply(program, state, stored_event.event)
            assert (await life.engine.live.folded(record.execution_id)).state == state
            lines += [
                f"run of {record.new.path} {record.new.version}",
                *(line(entry.seq, entry.event) for entry in stored),
            ]
            lines += [f"    state {state.status}", f"    ctx {json.dumps(state.ctx)}"]
            lines += [f"    result {json.dumps(tidied(state.result, 0))}", ""]
        return without_ids("\n".join(lines))


@pytest.mark.parametrize("name", CASES)
def test_the_log_of_an_example_is_as_it_was(name: str, tmp_path: Path) -> None:
    path = HERE / "examples" / f"{name}.txt"
    outcome = run_virtually(rendered_run(name, tmp_path))
    if UPDATE:
        path.write_text(outcome, encoding="utf-8")
    assert outcome == path.read_text(encoding="utf-8"), "UPDATE_GOLDEN=1 writes it anew"


def test_what_was_promised_is_here_and_nothing_is_left_over() -> None:
    assert set(CASES) >= PROMISED
    assert sorted(path.stem for path in (HERE / "examples").glob("*.txt")) == CASES
