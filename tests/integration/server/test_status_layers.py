"""Status comes from the playbook's lifecycle alone: the seed's checklist, case by case, over a real server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import Embedded, embedded
from tests.servers.arclog import running

FIELDS = {
    "execution_id", "state", "current_step", "started_at", "ended_at", "terminal_event", "completion_inferred",
}  # fmt: skip
CHAIN = """
metadata: {name: chain}
workload: {secret_variable: 1}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: middle}]}
  - step: middle
    tool: {kind: noop}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop}
"""
#: many branches that end at the same time: whoever is last must complete the run, and nobody else
FAN = (
    "metadata: {name: fan}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n    next:\n      spec: {mode: inclusive}\n"
    "      arcs: [" + ", ".join(f"{{step: s{n}}}" for n in range(12)) + "]\n"
    + "".join(f"  - step: s{n}\n    tool: {{kind: noop}}\n" for n in range(12))
)  # fmt: skip
TERMINAL = ("playbook.finished", "execution.cancelled")


class Run:
    """A run whose worker is the test itself: it speaks on the wire, event by event."""

    def __init__(self, client: httpx2.AsyncClient, embedded_runtime: Embedded, execution_id: str) -> None:
        self.client = client
        self.embedded_runtime = embedded_runtime
        self.id = execution_id
        self.held: dict[str, Any] = {}

    async def status(self) -> dict[str, Any]:
        body: dict[str, Any] = (await self.client.get(f"/api/executions/{self.id}/status")).json()
        assert body.keys() == FIELDS
        assert body["completion_inferred"] is False
        ends = [event for event in await self.log() if event["event_type"] in TERMINAL and not event.get("informative")]
        # Whatever it says, the lifecycle in the log says the same.
        assert (body["terminal_event"] is None) == (not ends)
        assert (body["state"] in ("COMPLETED", "FAILED", "CANCELLED")) == bool(ends)
        return body

    async def log(self) -> list[dict[str, Any]]:
        return await self.embedded_runtime.api.events(self.id, limit=10_000)

    async def send(self, name: str, **more: Any) -> None:
        """As an outside producer."""
        answer = await self.client.post("/api/events", json={"execution_id": self.id, "event_type": name, **more})
        assert answer.status_code == 200, answer.text
        assert answer.json()["informative"] is True

    async def work(self, name: str, **more: Any) -> None:
        """As the worker that holds the step's command."""
        body = {"execution_id": self.id, "event_type": name, **self.held, **more}
        answer = await self.client.post("/api/events", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["informative"] is False

    async def claim(self) -> str:
        (command,) = await self.embedded_runtime.control.claim(WorkerInfo("w", ("noop",), execution_id=int(self.id)), 1)
        self.held = {
            "command_id": str(command.command_id),
            "fence": command.fence,
            "worker_id": "w",
            "step": command.step,
        }
        return command.step

    async def do(self, outcome: str = "ok") -> None:
        """The claimed step, up to its end and without it."""
        task = f"{self.held['step']}_task"
        record: dict[str, Any] = {"status": "ok", "result": None}
        if outcome == "error":
            record = {
                "status": "error",
                "error": {"kind": "exception", "message": "no", "code": None, "retryable": False},
            }
        await self.work("step.enter")
        await self.work("task.started", task=task)
        await self.work("call.done" if outcome == "ok" else "call.error", task=task, payload={"outcome": record})


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    home = tmp_path / "home"
    async with (
        running(home, worker=False) as server,
        server.client() as client,
        embedded(Settings({"home": str(home)})) as runtime,
    ):
        started = await runtime.api.execute(ExecuteRequest(CHAIN))
        yield Run(client, runtime, started.execution_id)


# -- positive ---------------------------------------------------------------------------------------------------------


async def test_execution_remains_running_while_commands_continue_to_be_issued(run: Run) -> None:
    for step in ("start", "middle"):
        assert await run.claim() == step
        await run.do()
        status = await run.status()
        assert (status["state"], status["current_step"], status["ended_at"]) == ("RUNNING", step, None)
        await run.work("step.exit")
        assert (await run.status())["state"] == "RUNNING"


async def test_execution_becomes_completed_only_after_playbook_completed(run: Run) -> None:
    for _ in range(2):
        await run.claim()
        await run.do()
        await run.work("step.exit")
    await run.claim()
    await run.do()
    assert (await run.status())["state"] == "RUNNING"  # its last tool has returned, its last step has not ended
    await run.work("step.exit")
    status = await run.status()
    assert (status["state"], status["terminal_event"], status["current_step"]) == (
        "COMPLETED",
        "playbook.completed",
        "end",
    )
    assert status["ended_at"] >= status["started_at"]


async def test_execution_becomes_failed_only_after_playbook_failed(run: Run) -> None:
    await run.claim()
    await run.do("error")
    assert (await run.status())["state"] == "RUNNING"
    await run.work("step.exit", status="FAILED", payload={"error": {"kind": "exception", "message": "no"}})
    status = await run.status()
    assert (status["state"], status["terminal_event"]) == ("FAILED", "playbook.failed")


async def test_execution_becomes_cancelled_only_after_execution_cancelled(run: Run) -> None:
    await run.claim()
    await run.work("step.enter")
    assert (await run.status())["state"] == "RUNNING"
    await run.embedded_runtime.api.cancel(run.id, "enough")
    status = await run.status()
    assert (status["state"], status["terminal_event"]) == ("CANCELLED", "execution.cancelled")


# -- negative ---------------------------------------------------------------------------------------------------------


async def test_command_completed_on_the_final_visible_step_does_not_force_completed(run: Run) -> None:
    before = await run.status()
    for name in ("command.started", "command.completed", "command.failed"):
        await run.send(name, step="end", command_id=5)
    for name in ("call.done", "step.exit", "task.done", "step.done"):
        await run.send(name, step="end", node_name="end")
    assert await run.status() == before


async def test_step_exit_on_a_loop_iteration_does_not_force_completed(run: Run) -> None:
    before = await run.status()
    for index in range(3):
        await run.send("step.exit", step="end", status="COMPLETED", meta={"iteration": index})
        await run.send("loop.iteration.done", step="end", iteration=index)
    await run.send("loop.done", step="end", payload={"total": 3, "ok": 3, "failed": 0})
    assert await run.status() == before


async def test_batch_completed_with_pending_count_0_does_not_force_completed(run: Run) -> None:
    before = await run.status()
    await run.send("batch.completed", payload={"pending_count": 0}, status="COMPLETED")
    assert await run.status() == before


@pytest.mark.parametrize("word", ["completed", "COMPLETED", "Completed", "failed", "FAILED", "running", "Started"])
async def test_mixed_case_step_status_values_do_not_change_execution_status(run: Run, word: str) -> None:
    before = await run.status()
    name = "step.enter" if word.lower() in ("running", "started") else "step.exit"
    await run.send(name, step="end", status=word)
    assert await run.status() == before


async def test_old_lifecycle_names_from_outside_do_not_close_an_execution(run: Run) -> None:
    before = await run.status()
    for name in ("playbook_completed", "playbook_failed", "execution_cancelled", "workflow_completed"):
        await run.send(name)
    assert await run.status() == before
    assert (await run.client.get(f"/api/executions/{run.id}/status")).json()["state"] == "RUNNING"


async def test_status_says_nothing_of_variables(run: Run) -> None:
    assert "secret_variable" not in (await run.client.get(f"/api/executions/{run.id}/status")).text


async def test_a_run_goes_on_after_all_that_was_said_from_outside(run: Run) -> None:
    """What was only said is in nobody's way, neither live nor folded again from the log by another process."""
    for name in ("step.started", "task.started", "task.done", "step.done", "step.failed"):
        await run.send(name, step="start", meta={"step_run_id": "step:start:run:1", "task": "start_task"})
    assert (await run.client.get(f"/api/executions/{run.id}/status")).json()["state"] == "RUNNING"
    for step in ("start", "middle", "end"):
        assert await run.claim() == step
        await run.do()
        await run.work("step.exit")
    assert (await run.status())["state"] == "COMPLETED"


# -- exactly once -----------------------------------------------------------------------------------------------------


async def test_completion_is_emitted_once_however_many_end_at_the_same_time(tmp_path: Path) -> None:
    """Two servers with a worker each, on one store; outsiders who say that all is over; and half of the runs cancelled."""
    home, count = tmp_path / "home", 24
    async with running(home) as a, running(home) as b, a.client() as first_client, b.client() as two:
        clients = (first_client, two)
        async with embedded(Settings({"home": str(home)})) as runtime:
            started = [
                (await runtime.api.execute(ExecuteRequest(FAN if n % 3 else CHAIN))).execution_id for n in range(count)
            ]

            async def outsider(n: int, execution_id: str) -> None:
                client = clients[n % 2]
                for name in ("playbook_completed", "command.completed", "step.exit", "batch.completed"):
                    body = {"execution_id": execution_id, "event_type": name, "step": "s1"}
                    assert (await client.post("/api/events", json=body)).status_code == 200

            async def operator(n: int, execution_id: str) -> None:
                if n % 2:
                    return
                run_id = next(
                    run.run_id for run in await runtime.api.list(limit=count) if run.execution_id == execution_id
                )
                answer = await clients[(n + 1) % 2].post(f"/api/runs/{run_id}/cancel", json={"reason": "race"})
                assert answer.status_code in (200, 409), answer.text

            everybody = [send(n, started_run) for n, started_run in enumerate(started) for send in (outsider, operator)]
            await asyncio.gather(*everybody)
            for started_run in started:
                assert await runtime.api.ended(started_run, timeout_s=120)
                log = await runtime.api.events(started_run, limit=10_000)
                counts = Counter(event["event_type"] for event in log if not event.get("informative"))
                assert counts["playbook.finished"] + counts["execution.cancelled"] == 1
                assert counts["playbook.started"] == counts["workflow.started"] == counts["workflow.finished"] == 1
                assert counts["playbook.processed"] == 1
                assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
                state = (await first_client.get(f"/api/executions/{started_run}/status")).json()["state"]
                assert state == ("CANCELLED" if counts["execution.cancelled"] else "COMPLETED")
                assert (await two.get(f"/api/executions/{started_run}/status")).json()["state"] == state
