"""Whatever ends a run, everything that its log has opened is closed: the exact logs, their laws, and their replay.

UPDATE_GOLDEN=1 writes them anew; read the diff before committing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.testing.laws import check_dialects, check_log, closed, rendered_log
from arclog.testing.virtual import run_virtually
from tests.golden.endings import ENDINGS, run
from tests.golden.lines import line, without_ids

HERE = Path(__file__).parent / "endings"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))


async def ended(name: str) -> str:
    world = await run(ENDINGS[name])
    async with world:
        lines: list[str] = []
        for record in reversed(await world.store.executions(limit=100)):
            stored = await world.store.events(record.execution_id, limit=100_000)
            check_log(stored, record.new.name)
            closed(stored, record.new.name)
            program = await world.current_life.engine.live.program(record.new.plan)
            state = State(execution_id=record.execution_id)
            for stored_event in stored:
                apply(program, state, stored_event.event)
            assert not any((state.open, state.commands, state.waits, state.timers, state.tokens))
            assert (await world.current_life.engine.live.folded(record.execution_id)).state == state, (
                "replay is not live"
            )
            assert await world.store.commands(record.execution_id) == []
            log = await world.current_life.api.events(str(record.execution_id), limit=100_000)
            check_dialects(log, len(log) // 2)
            lines += [f"run of {record.new.path}", *(line(entry.seq, entry.event) for entry in stored)]
            lines += [
                f"    state {state.status}",
                f"    steps {json.dumps(state.latest)}",
                f"    ctx {json.dumps(state.ctx)}",
            ]
            lines += [f"    result {json.dumps(state.result)}", "    as run events"]
            for event in rendered_log("run", log):
                record_of = event.record
                payload = {key: value for key, value in record_of.get("payload", {}).items() if key != "durationMs"}
                place = f" {record_of['stepId']}({record_of['logicalAttemptId']})" if "stepId" in record_of else ""
                lines.append(f"    {event.seq:3} {event.name}{place} {json.dumps(payload)}")
            lines.append("")
        assert await world.store.next_due() is None, "a timer outlives its run"
        return without_ids("\n".join(lines))


@pytest.mark.parametrize("name", ENDINGS)
def test_the_log_is_closed(name: str) -> None:
    path = HERE / f"{name}.txt"
    outcome = run_virtually(ended(name))
    if UPDATE:
        path.write_text(outcome, encoding="utf-8")
    assert outcome == path.read_text(encoding="utf-8"), "UPDATE_GOLDEN=1 writes it anew"


def test_every_log_has_its_run() -> None:
    assert sorted(path.stem for path in HERE.glob("*.txt")) == sorted(ENDINGS)
