"""Events from outside on the engine itself: who speaks, what others make of what was only said, and faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.engine.runs.ingest import EngineIngest
from arclog.model.config.settings import Settings
from arclog.model.errors import EventDiffers, NotAllowed, NotFound, RequestRejected, StaleFence, StoreUnavailable
from arclog.model.principal import Principal
from arclog.ports.boundary import Boundary
from arclog.ports.ingest import RecordedEvent
from arclog.ports.storage.store import Append, Appended
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import Embedded, embedded

WAITS = "metadata: {name: waits}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"
LOOP = """
metadata: {name: loop}
workflow:
  - step: start
    loop: {in: "{{ [1, 2] }}", iterator: n}
    tool: {kind: python, code: "result = n * 10", args: {n: "{{ iter.n }}"}}
"""
FAILS = """
metadata: {name: fails}
workflow:
  - step: start
    tool: {kind: python, code: "raise ValueError('the cause')"}
"""


def speaker(*roles: str, tenant: str = "default") -> Principal:
    return Principal("somebody", tenant, frozenset(roles))


PRODUCER, WORKER = speaker("producer"), speaker("worker")


class Sender:
    def __init__(self, arclog: Embedded, execution_id: str) -> None:
        self.arclog = arclog
        self.id = execution_id
        self.ingest = EngineIngest(arclog.engine)

    async def send(self, name: str, caller: Principal = PRODUCER, **more: Any) -> RecordedEvent:
        body = {"execution_id": self.id, "event_type": name, "step": "start", **more}
        return await self.ingest.event(body, self.within(caller))

    def within(self, caller: Principal) -> Boundary:
        return Boundary.of(caller, self.arclog.engine.settings)

    async def log(self) -> list[dict[str, Any]]:
        return await self.arclog.api.events(self.id)


@pytest.fixture
async def arclog(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(Settings({"home": str(tmp_path)})) as runtime:
        yield runtime


async def started(arclog: Embedded, playbook: str = WAITS) -> Sender:
    return Sender(arclog, (await arclog.api.execute(ExecuteRequest(playbook))).execution_id)


@pytest.fixture
async def sender(arclog: Embedded) -> Sender:
    return await started(arclog)


# -- who speaks -------------------------------------------------------------------------------------------------------


async def test_a_producer_that_names_a_command_is_a_producer_still(sender: Sender) -> None:
    taken = await sender.send("step.exit", command_id=5, fence=1, worker_id="w")
    assert taken.informative


async def test_a_worker_has_nothing_to_say_without_a_command(sender: Sender) -> None:
    before = await sender.log()
    for held in ({}, {"command_id": 5}, {"fence": 1}, {"command_id": 5, "worker_id": "w"}):
        with pytest.raises(RequestRejected, match="command_id"):
            await sender.send("step.exit", WORKER, **held)
    with pytest.raises(RequestRejected, match="worker_id"):
        await sender.send("step.exit", WORKER, command_id=5, fence=1, worker_id="w@default/key-other")
    with pytest.raises(StaleFence):
        await sender.send("step.exit", WORKER, command_id=5, fence=1, worker_id="w")
    for name in ("step_completed", "playbook.completed", "step.scheduled", "batch.completed"):
        with pytest.raises(NotAllowed):
            await sender.send(name, WORKER)
    assert await sender.log() == before


async def test_an_id_that_is_known_concerns_its_sender_alone(sender: Sender) -> None:
    first = await sender.send("step.exit", event_id="7")
    others = [sender.send("step.exit", event_id=str(number)) for number in range(100, 120)]
    again, other_content, *taken = await asyncio.gather(
        sender.send("step.exit", event_id="7"),
        sender.send("step.exit", event_id="7", payload={"other": True}),
        *others,
        return_exceptions=True,
    )
    assert isinstance(again, RecordedEvent)
    assert (again.seq, again.duplicate) == (first.seq, True)
    assert isinstance(other_content, EventDiffers)
    assert all(isinstance(answer, RecordedEvent) and not answer.duplicate for answer in taken)
    assert len({answer.seq for answer in taken if isinstance(answer, RecordedEvent)}) == 20


async def test_a_run_of_another_tenant_is_not_there(sender: Sender) -> None:
    for caller in (
        speaker("producer", tenant="other"),
        speaker("admin", tenant="other"),
        speaker("worker", tenant="other"),
    ):
        with pytest.raises(NotFound):
            await sender.send("step.exit", caller, command_id=5, fence=1, worker_id="w")
    assert isinstance(await sender.send("step.exit"), RecordedEvent)
    with pytest.raises(NotFound):
        await sender.send("step.exit", speaker("producer", tenant="other"))


# -- what others make of it -------------------------------------------------------------------------------------------


async def test_results_of_a_loop_are_those_of_its_tasks(arclog: Embedded) -> None:
    sender = await started(arclog, LOOP)
    await arclog.start_worker()
    assert await arclog.api.ended(sender.id, timeout_s=60)
    outcome = {"status": "ok", "result": "a lie"}
    for payload in ({"outcome": outcome}, {}):
        meta = {"step_run_id": "step:start:run:1", "iteration": 1, "task": "start_task"}
        await sender.send("task.done", payload=payload, meta=meta)
    page = await arclog.control.loop_results(int(sender.id), "start", 1, 0, 1000)
    assert [item.data for item in page.items] == [10, 20]


async def test_the_cause_of_a_failure_is_what_failed(arclog: Embedded) -> None:
    sender = await started(arclog, FAILS)
    for _ in range(3):
        await sender.send(
            "task.failed", meta={"step_run_id": "step:start:run:1", "task": "nowhere"}, payload={"error": "a lie"}
        )
    await arclog.start_worker()
    assert await arclog.api.ended(sender.id, timeout_s=60)
    await sender.send("step.failed", meta={"step_run_id": "step:start:run:1"}, payload={"error": "a lie"})
    cause = (await arclog.api.why(sender.id)).cause
    assert cause is not None
    assert (cause.task, "the cause" in cause.message) == ("start_task", True)


async def test_a_run_may_have_more_events_from_outside_than_of_its_own(arclog: Embedded) -> None:
    limited = WAITS.replace("workflow:", "executor: {spec: {policy: {limits: {max_events: 20}}}}\nworkflow:")
    sender = await started(arclog, limited)
    answers = await sender.ingest.batch(
        {"execution_id": sender.id, "events": [{"event_type": "batch.completed"}] * 50}, sender.within(PRODUCER)
    )
    assert all(isinstance(answer, RecordedEvent) for answer in answers)
    await arclog.start_worker()
    assert await arclog.api.ended(sender.id, timeout_s=60)
    assert (await arclog.api.status(sender.id)).state == "COMPLETED"


# -- faults -----------------------------------------------------------------------------------------------------------


async def test_what_could_not_be_written_can_be_sent_again(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sender.arclog.engine.store
    append, failures = store.append, [StoreUnavailable("the disk is full")]

    async def failing(what: Append) -> Appended:
        if failures:
            raise failures.pop()
        return await append(what)

    monkeypatch.setattr(store, "append", failing)
    before = len(await sender.log())
    with pytest.raises(StoreUnavailable):
        await sender.send("call.done", event_id=7)
    assert len(await sender.log()) == before
    taken = await sender.send("call.done", event_id=7)
    assert (taken.seq, taken.duplicate) == (before + 1, False)


async def test_an_answer_that_got_lost_is_given_again(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sender.arclog.engine.store
    append, failures = store.append, [StoreUnavailable("gone just after the commit")]

    async def losing(what: Append) -> Appended:
        done = await append(what)
        if failures:
            raise failures.pop()
        return done

    monkeypatch.setattr(store, "append", losing)
    with pytest.raises(StoreUnavailable):
        await sender.send("call.done", event_id=7)
    written = await sender.log()
    taken = await sender.send("call.done", event_id=7)
    assert (taken.seq, taken.duplicate) == (written[-1]["seq"], True)
    assert await sender.log() == written


async def test_ids_are_known_after_a_restart(tmp_path: Path) -> None:
    settings = Settings({"home": str(tmp_path)})
    async with embedded(settings) as arclog:
        first = await started(arclog)
        taken = await first.send("call.done", event_id=7, payload={"a": 1})
    async with embedded(settings) as arclog:
        again = Sender(arclog, first.id)
        answer = await again.send("call.done", event_id=7, payload={"a": 1})
        assert (answer.seq, answer.duplicate) == (taken.seq, True)
        with pytest.raises(EventDiffers):
            await again.send("call.done", event_id=7, payload={"a": 2})
        # The count of events from outside is part of what is folded.
        assert (await arclog.engine.live.folded(int(first.id))).state.informative == 1
