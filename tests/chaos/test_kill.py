"""`kill -9` of the real command line at random moments, then `arclog resume`: nothing is lost, and at most the task in
flight is done again. A ledger outside, written by the tasks, is compared with the log.

CHAOS_SEED and CHAOS_KILLS choose other moments and more of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.views.api import Summary
from arclog.wiring.embedded import embedded

PLAYBOOK = Path(__file__).with_name("ledger.yaml")
SEED = int(os.environ.get("CHAOS_SEED", "20261115"))
KILLS = int(os.environ.get("CHAOS_KILLS", "20"))
#: Longest wait before a kill, seconds; an undisturbed run takes longer.
LONGEST = 0.9


class Cli:
    """The command line on one home."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.home = folder / "home"
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.output = folder / "output"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
        self.environment = {**clean, "ARCLOG_HOME": str(self.home), "ARCLOG_LEASES_MAX_LOSSES": "1000"}

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "arclog.cli.main", *args]
        with self.output.open("ab") as output:
            return subprocess.Popen(command, env=self.environment, stdout=output, stderr=output, start_new_session=True)

    def run(self) -> list[str]:
        return ["run", str(PLAYBOOK), "--json", "--set", f"ledger={self.ledger}"]

    def ids(self) -> list[str]:
        """Runs on this home, newest first."""

        async def look() -> list[str]:
            async with embedded(Settings({"home": str(self.home)}), read_only=True) as runtime:
                return [run.execution_id for run in await runtime.api.list(limit=1000)]

        return asyncio.run(look()) if (self.home / "arclog.db").exists() else []

    def story(self, execution_id: str) -> tuple[Summary, list[dict[str, Any]]]:
        async def look() -> tuple[Summary, list[dict[str, Any]]]:
            async with embedded(Settings({"home": str(self.home)}), read_only=True) as runtime:
                return await runtime.api.summary(execution_id), await runtime.api.events(execution_id, limit=100_000)

        return asyncio.run(look())


def _checked(cli: Cli, execution_id: str, plain: Summary) -> int:
    """One run against its part of the ledger; how many entries were repeated."""
    summary, events = cli.story(execution_id)
    types = [event["event_type"] for event in events]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [kind for kind in types if kind in {"playbook.finished", "execution.cancelled"}] == ["playbook.finished"]
    assert summary.state == "COMPLETED", summary.error
    assert (summary.ctx, summary.result) == (plain.ctx, plain.result)
    assert {name: (step.status, step.runs) for name, step in summary.steps.items()} == {
        name: (step.status, step.runs) for name, step in plain.steps.items()
    }
    written = Counter(line for line in cli.ledger.read_text().split() if line.startswith(f"{execution_id}:"))
    losses: dict[str, int] = {}
    allowed: Counter[str] = Counter()
    for event in events:
        run = event.get("step_run_id", "")
        if event["event_type"] == "command.issued":
            losses[run] = losses.get(run, 0) + 1
        elif event["event_type"] in {"task.done", "task.attempt.failed"}:
            where = "" if "iteration" not in event else str(event["iteration"])
            number, task_run = run.rpartition(":")[2], event["task_run_id"].rpartition(":")[2]
            key = f"{execution_id}:{event['step']}:{number}:{where}:{event['task']}:{task_run}"
            # Once, and once more for each time that its process died since the task before it had ended.
            allowed[key] += 1 + losses.pop(run, 0)
            if event["step"] != "total":
                assert written[key] >= 1, f"{key} is done, says the log, but it is not in the ledger"
    for key, times in written.items():
        assert times <= allowed[key], f"{key} was done {times} times, {allowed[key]} can be explained"
    return sum(written.values()) - len(written)


@pytest.mark.slow
def test_kill_and_resume(tmp_path: Path) -> None:
    undisturbed = Cli(tmp_path / "plain")
    assert undisturbed.start(*undisturbed.run()).wait(60) == 0, undisturbed.output.read_text()
    (only,) = undisturbed.ids()
    plain, _ = undisturbed.story(only)
    assert _checked(undisturbed, only, plain) == 2, (
        "two failed attempts share a key with the third, nothing else repeats"
    )

    random = Random(SEED)
    print(f"CHAOS_SEED={SEED} CHAOS_KILLS={KILLS}")
    cli = Cli(tmp_path / "killed")
    kills, earlier, moments = 0, set[str](), []
    while kills < KILLS:
        todo = cli.run()
        while True:
            process = cli.start(*todo)
            try:
                moment = random.uniform(0.02, LONGEST) if kills < KILLS else 60.0
                code = process.wait(moment)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                kills += 1
                moments.append(round(moment, 3))
            new = set(cli.ids()) - earlier
            if new:
                todo = ["resume", *new, "--json"]
        assert code == 0, f"{todo} ended with {code} after {moments}: {cli.output.read_text()[-2000:]}"
        earlier |= set(cli.ids())
    repeated = [_checked(cli, run_id, plain) for run_id in earlier]
    print(f"{kills} kills at {moments}; {len(earlier)} runs; {sum(repeated)} entries repeated")
    stray = [line for line in cli.ledger.read_text().split() if line.split(":")[0] not in earlier]
    assert not stray, "the ledger has entries of runs that are not in the log"
