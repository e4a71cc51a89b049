"""Signals: what each one does to a run, when it is refused, and that it happens once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from arclog.core.boundary.inputs import Signal
from arclog.core.boundary.reports import WORKER_TYPES
from arclog.core.flow import waits
from arclog.core.transitions.decide import decide
from arclog.core.transitions.state import State, Wait
from arclog.model.config.settings import Settings
from arclog.model.errors import RequestRejected
from arclog.model.events import Event
from arclog.model.outcome import Outcome
from arclog.ports.storage.store import Append, ExecutionFilter
from arclog.ports.tool import TaskContext
from arclog.ports.views.api import SignalAnswer, SignalRequest
from arclog.testing.harness import Life, World
from arclog.testing.laws import check_log
from arclog.testing.scripted import Call
from arclog.testing.virtual import run_virtually

THREE_TASKS = """
metadata: {name: three}
workflow:
  - step: start
    tool:
      - {name: a, kind: act, takes: 10, returns: 1}
      - {name: b, kind: act, takes: 10, returns: 2}
      - {name: c, kind: act, takes: 10, returns: 3}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: act, takes: 10, returns: over}
"""
LOOP = """
metadata: {name: loop}
workflow:
  - step: start
    loop: {in: "{{ range(5) }}", iterator: i}
    tool: {kind: act, takes: 10, returns: "{{ iter.i }}"}
    next: {arcs: [{step: end, when: "{{ event.name == 'loop.done' }}"}]}
  - {step: end, tool: {kind: noop, data: over}}
"""
FAN = """
metadata: {name: fan}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}, {step: d}]}
  - {step: a, tool: {kind: act, takes: 10}}
  - {step: b, tool: {kind: act, takes: 10}}
  - {step: c, tool: {kind: act, takes: 10}}
  - {step: d, tool: {kind: act, takes: 10}}
"""
RETRIES = """
metadata: {name: retries}
workflow:
  - step: start
    tool:
      name: flaky
      kind: act
      fail_attempts: 1
      spec:
        policy:
          rules:
            - when: "{{ outcome.status == 'error' }}"
              then: {do: retry, attempts: 3, delay: 100}
            - else: {then: {do: continue}}
"""
APPROVAL = """
metadata: {name: careful}
executor: {spec: {policy: {approval: required}}}
workflow:
  - {step: start, tool: {kind: noop, data: "{{ ctx.who | default('nobody') }}"}}
"""
BEST_EFFORT = """
metadata: {name: best}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: bad, args: {n: 7}}, {step: slow}]}
  - step: bad
    spec: {policy: {failure: {mode: best_effort}}}
    tool: {kind: act, returns: "{{ args.n }}", fail_attempts: "{{ 0 if ctx.fixed | default(false) else 1 }}"}
  - {step: slow, tool: {kind: act, takes: 100}}
"""


class Story:
    """A run in a world of its own, told what to do at moments of virtual time."""

    def __init__(self, world: World, life: Life) -> None:
        self.world = world
        self.life = life
        self.ids = 0

    async def run_story(
        self, signal: str, *, reason: str = "because", signal_id: str = "", **more: Any
    ) -> SignalAnswer:
        self.ids += 1
        request = SignalRequest(signal, signal_id or f"sig-{self.ids}", reason, **more)
        return await self.life.api.signal(str(self.world.execution_id), request)

    async def ok(self, signal: str, **more: Any) -> SignalAnswer:
        answer = await self.run_story(signal, **more)
        assert answer.accepted, answer.message
        return answer

    async def refused(self, signal: str, about: str, **more: Any) -> None:
        before = len(await self.of_server())
        answer = await self.run_story(signal, **more)
        assert not answer.accepted
        assert about in answer.message
        (recorded,) = (await self.of_server())[before:]
        assert (recorded.type, recorded.status) == ("signal.received", "error"), "recorded, and nothing else"

    async def of_server(self) -> list[Event]:
        """Everything but what workers say and do."""
        return [
            event
            for event in await self.world.events()
            if event.type not in WORKER_TYPES | {"command.claimed", "command.issued"}
        ]

    async def why(self) -> str:
        return (await self.life.api.why(str(self.world.execution_id))).summary

    async def types(self) -> list[str]:
        return [event.type for event in await self.world.events()]

    async def until_ended(self) -> State:
        await self.life.api.ended(str(self.world.execution_id), timeout_s=5000)
        return await self.checked()

    async def checked(self, *, one_process: bool = True) -> State:
        state = await self.world.state()
        assert state.terminal is not None, await self.why()
        check_log(await self.world.stored(), "test", one_process=one_process)
        return state

    @property
    def calls(self) -> list[tuple[str, int]]:
        return [(call.task, call.attempt) for call in self.world.ledger.calls]


def run_story(text: str, script: Callable[[Story], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with World(text, **options) as world:
            life = world.begin_life()
            await world.start()
            life.start_sweeper()
            life.start_worker()
            await script(Story(world, life))
            state = await world.state()
            assert (await life.engine.live.folded(world.execution_id)).state == state, "replay is not live"

    run_virtually(main())


# -- pause ------------------------------------------------------------------------------------------------------------


def test_a_pause_takes_effect_at_the_next_task_boundary() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        answer = await story.ok("PAUSE", by="ada")
        assert (answer.state, answer.paused) == ("RUNNING", False)
        assert "is pausing" in await story.why()
        assert "start (run 1)" in await story.why()
        assert "playbook.paused" not in await story.types()
        await asyncio.sleep(100)
        assert story.calls == [("a", 1)], "b must not start"
        assert "has been paused since" in await story.why()
        assert "by ada, signal sig-1" in await story.why()
        record = await story.world.store.execution(story.world.execution_id)
        assert record is not None
        assert record.now.paused
        assert record.now.state == "RUNNING"
        await asyncio.sleep(1000)
        await story.ok("RESUME")
        state = await story.until_ended()
        assert state.status == "COMPLETED"
        assert story.calls == [("a", 1), ("b", 1), ("c", 1), ("end_task", 1)], "each task runs exactly once"
        types = await story.types()
        assert (types.count("playbook.paused"), types.count("playbook.resumed")) == (1, 1)

    run_story(THREE_TASKS, script)


def test_a_pause_between_steps_leaves_the_token_ready() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(25)
        await story.ok("PAUSE")
        await asyncio.sleep(100)
        state = await story.world.state()
        assert state.paused_at is not None
        assert [token.step for token in state.tokens.values()] == ["end"]
        assert not state.open
        await story.ok("RESUME")
        assert (await story.until_ended()).result == "over"

    run_story(THREE_TASKS, script)


def test_no_new_iteration_starts() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(15)
        await story.ok("PAUSE")
        await asyncio.sleep(100)
        assert len(story.calls) == 2
        state = await story.world.state()
        assert state.open["start#1"].loop is not None
        assert state.open["start#1"].loop.ok == 2
        await story.ok("RESUME")
        assert (await story.until_ended()).status == "COMPLETED"
        assert len(story.calls) == 5

    run_story(LOOP, script)


def test_a_pause_interrupts_the_wait_for_a_retry() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(10)
        await story.ok("PAUSE")
        await asyncio.sleep(1)
        assert "has been paused since" in await story.why()
        await story.ok("RESUME")
        state = await story.until_ended()
        assert state.status == "COMPLETED"
        assert story.calls == [("flaky", 1), ("flaky", 2)]

    run_story(RETRIES, script)


def test_what_nobody_has_claimed_is_held_at_once() -> None:
    """Without a worker there is nothing to drain."""

    async def main() -> None:
        async with World(FAN) as world:
            life = world.begin_life()
            await world.start()
            story = Story(world, life)
            await story.ok("PAUSE")
            assert "has been paused since" in await story.why()
            (held,) = await world.store.commands(world.execution_id)
            assert held.state == "held"
            life.start_worker()
            await asyncio.sleep(100)
            assert (await world.state()).runs == {"start": 1}
            await story.ok("RESUME")
            assert (await story.until_ended()).status == "COMPLETED"

    run_virtually(main())


def test_resume_while_draining_withdraws_the_pause_without_events() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.ok("PAUSE")
        await story.ok("RESUME")
        assert (await story.until_ended()).status == "COMPLETED"
        assert not {"playbook.paused", "playbook.resumed"} & set(await story.types())
        assert story.calls == [("a", 1), ("b", 1), ("c", 1), ("end_task", 1)]

    run_story(THREE_TASKS, script)


def test_pauses_are_counted_and_can_come_again() -> None:
    async def script(story: Story) -> None:
        for cycle in (1, 2, 3):
            await asyncio.sleep(5)
            await story.ok("PAUSE")
            await asyncio.sleep(50)
            assert (await story.world.state()).pauses == cycle
            await story.ok("RESUME")
        assert (await story.until_ended()).status == "COMPLETED"
        cycles = [e.payload["cycle"] for e in await story.world.events() if e.type == "playbook.paused"]
        assert cycles == [1, 2, 3]
        assert story.calls == [("a", 1), ("b", 1), ("c", 1), ("end_task", 1)]

    run_story(THREE_TASKS, script)


def test_a_worker_that_dies_while_the_run_drains_does_not_hold_it_for_ever() -> None:
    async def main() -> None:
        async with World(THREE_TASKS) as world:
            first = world.begin_life()
            await world.start()
            first.start_worker()
            await asyncio.sleep(5)
            await Story(world, first).ok("PAUSE")
            await world.crash()
            life = world.begin_life()
            life.start_sweeper()
            life.start_worker()
            story = Story(world, life)
            await asyncio.sleep(100)
            assert "has been paused since" in await story.why()
            await story.ok("RESUME", signal_id="again")
            assert (await story.until_ended()).status == "COMPLETED"

    run_virtually(main())


def test_a_run_that_ends_while_it_drains_is_not_paused() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(35)
        await story.ok("PAUSE")
        assert (await story.until_ended()).status == "COMPLETED"
        assert "playbook.paused" not in await story.types()

    run_story(THREE_TASKS, script)


def test_pause_and_resume_out_of_order() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.refused("RESUME", "is not paused")
        await story.ok("PAUSE")
        await story.refused("PAUSE", "being paused already")
        await asyncio.sleep(50)
        await story.refused("PAUSE", "is paused already")
        await story.ok("RESUME")
        await story.refused("RESUME", "is not paused")
        assert (await story.until_ended()).status == "COMPLETED"

    run_story(THREE_TASKS, script)


# -- once -------------------------------------------------------------------------------------------------------------


def test_the_same_signal_again_is_answered_as_before() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.ok("PAUSE", signal_id="p")
        await asyncio.sleep(50)
        await story.ok("RESUME", signal_id="r")
        head = len(await story.of_server())
        await story.ok("PAUSE", signal_id="p")
        await story.ok("RESUME", signal_id="r")
        refused = await story.run_story("RESUME", signal_id="p")
        assert "was used for PAUSE" in refused.message
        assert len(await story.of_server()) == head
        bad = await story.run_story("RESUME", signal_id="x")
        assert await story.run_story("RESUME", signal_id="x") == bad
        await story.ok("CANCEL", signal_id="c")
        head = len(await story.world.events())
        await story.ok("CANCEL", signal_id="c")
        late = await story.run_story("CANCEL", signal_id="d")
        assert "has ended (CANCELLED)" in late.message
        assert len(await story.world.events()) == head
        assert (await story.checked()).status == "CANCELLED"

    run_story(THREE_TASKS, script)


@pytest.mark.parametrize("signal", ["CANCEL", "EMERGENCY_STOP", "SKIP_STEP", "REJECT"])
def test_destructive_signals_need_a_reason(signal: str) -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.refused(signal, "needs a reason", reason=" ", step="start")
        await story.ok("CANCEL")

    run_story(THREE_TASKS, script)


def test_what_is_no_signal_is_not_recorded() -> None:
    async def script(story: Story) -> None:
        head = len(await story.world.events())
        for request in (
            SignalRequest("", "a"),
            SignalRequest("no spaces", "b"),
            SignalRequest("X", "i" * 300),
            SignalRequest("X", "c", data="x" * 10**6),
        ):
            with pytest.raises(RequestRejected):
                await story.life.api.signal(str(story.world.execution_id), request)
        assert len(await story.world.events()) == head

    run_story(THREE_TASKS, script)


# -- cancel -----------------------------------------------------------------------------------------------------------


def test_cancel_is_terminal_at_once_and_names_its_signal() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.ok("CANCEL", reason="enough")
        types = await story.types()
        assert types[-7:] == [
            "signal.received",
            "command.cancelled",
            "task.failed",
            "step.failed",
            "workflow.finished",
            "execution.cancelled",
            "playbook.processed",
        ]
        await asyncio.sleep(100)
        assert story.calls == [("a", 1)]
        assert not story.world.ledger.calls[0].answered, "the task was stopped"
        assert (await story.checked()).error == {
            "kind": "cancelled",
            "message": "enough",
            "code": None,
            "retryable": False,
        }

    run_story(THREE_TASKS, script)


def test_a_paused_run_can_be_cancelled() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.ok("PAUSE")
        await asyncio.sleep(50)
        await story.ok("CANCEL")
        state = await story.checked()
        assert (state.status, state.pause, state.paused_at) == ("CANCELLED", None, None)
        assert await story.world.store.commands(story.world.execution_id) == []

    run_story(THREE_TASKS, script)


def test_an_emergency_stop_leaves_tasks_no_grace() -> None:
    cancelled: list[float] = []

    async def stubborn(call: Call, context: TaskContext) -> Outcome | None:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(loop.time())
        raise asyncio.CancelledError

    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.ok("EMERGENCY_STOP")
        await asyncio.sleep(1)
        assert len(cancelled) == 2, "a second word, at once"
        state = await story.checked()
        assert (state.status, (state.error or {})["code"]) == ("CANCELLED", "EMERGENCY_STOP")

    run_story(THREE_TASKS, script, hook=stubborn)


# -- steps ------------------------------------------------------------------------------------------------------------


def test_retry_restarts_the_attempt_that_is_under_way() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(15)
        await story.ok("RETRY_STEP", step="start")
        state = await story.until_ended()
        assert state.status == "COMPLETED"
        assert story.calls == [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("end_task", 1)]
        assert [call.answered for call in story.world.ledger.calls][:3] == [True, False, True]

    run_story(THREE_TASKS, script)


def test_retry_does_not_wait_for_a_delay() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(10)
        await story.ok("RETRY_STEP", step="start")
        await asyncio.sleep(1)
        assert (await story.checked()).status == "COMPLETED"
        assert story.calls == [("flaky", 1), ("flaky", 2)]

    run_story(RETRIES, script)


ASKS = """
metadata: {name: asks}
workflow:
  - step: start
    tool:
      - {name: before, kind: act, returns: 1}
      - {name: ask, kind: KIND}
      - {name: after, kind: act, returns: 2}
"""


def test_retry_of_an_approval_asks_again() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(10)
        await story.ok("RETRY_STEP", step="start", reason="asked the wrong person")
        await asyncio.sleep(10)
        assert "waits for an approval" in await story.why()
        ended = [event for event in await story.world.events() if event.type == "task.attempt.failed"]
        assert [(event.task, event.attempt, event.payload["reason"]) for event in ended] == [("ask", 1, "step_retried")]
        await story.ok("APPROVE")
        state = await story.until_ended()
        assert state.status == "COMPLETED"
        assert story.calls == [("before", 1), ("after", 1)]
        done = next(event for event in await story.world.events() if event.type == "task.done" and event.task == "ask")
        assert done.payload["outcome"]["meta"]["attempt"] == 2

    run_story(ASKS.replace("KIND", "approval"), script)


def test_retry_of_a_wait_waits_from_the_beginning() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(60)
        await story.ok("RETRY_STEP", step="start")
        await asyncio.sleep(60)
        assert (await story.world.state()).terminal is None, "the first wait would be over"
        await asyncio.sleep(60)
        assert (await story.checked()).status == "COMPLETED"
        fired = [event.payload["timer"] for event in await story.world.events() if event.type == "timer.fired"]
        assert fired == ["wait:start#1:ask#1"]

    run_story(ASKS.replace("kind: KIND", "kind: wait, for_s: 100"), script)


def test_retry_of_a_call_starts_another_child_and_cancels_the_first() -> None:
    async def script(story: Story) -> None:
        await story.world.register(THREE_TASKS)
        await asyncio.sleep(5)
        await story.ok("RETRY_STEP", step="start")
        state = await story.until_ended()
        assert state.status == "COMPLETED"
        children = await story.world.store.executions(ExecutionFilter(parent=story.world.execution_id))
        assert sorted(child.now.state for child in children) == ["CANCELLED", "COMPLETED"]
        for child in children:
            check_log(await story.world.store.events(child.execution_id, limit=1000), "three")

    run_story(ASKS.replace("kind: KIND", "kind: playbook, path: three"), script)


def test_retry_restarts_every_item_that_waits() -> None:
    text = """
metadata: {name: many}
workflow:
  - step: start
    loop: {in: [a, b, c], iterator: x, spec: {mode: parallel, max_in_flight: 2}}
    tool: [{name: ask, kind: approval}, {name: then, kind: act}]
"""

    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.ok("RETRY_STEP", step="start")
        await asyncio.sleep(5)
        assert sorted((await story.world.state()).waits) == ["start#1[0]:ask#1", "start#1[1]:ask#1"]
        for item in range(3):
            await story.ok("APPROVE", step=f"start#1[{item}]:ask#1")
            await asyncio.sleep(5)
        assert (await story.checked()).status == "COMPLETED"

    run_story(text, script)


def test_retry_fires_a_failed_step_again_with_its_args() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(10)
        assert (await story.world.state()).error is not None
        await story.ok("UPDATE_PARAMS", data={"fixed": True})
        await story.ok("RETRY_STEP", step="bad")
        state = await story.until_ended()
        assert (state.status, state.error) == ("COMPLETED", None), "the failure was made good"
        assert state.runs["bad"] == 2
        assert state.results["bad"]["result"] == 7

    run_story(BEST_EFFORT, script)


def test_retry_of_a_step_whose_own_args_could_not_be_read_keeps_those_that_it_was_given() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(10)
        await story.ok("UPDATE_PARAMS", data={"fixed": True})
        await story.ok("RETRY_STEP", step="bad")
        state = await story.until_ended()
        assert (state.status, state.runs["bad"]) == ("COMPLETED", 2)
        assert state.results["bad"]["result"] == 7

    run_story(
        BEST_EFFORT.replace(
            "tool: {kind: act, returns", 'args: {is: "{{ ctx.fixed }}"}\n    tool: {kind: act, returns'
        ),
        script,
    )


def test_a_failure_that_nobody_retries_still_fails_the_run() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(10)
        await story.ok("RETRY_STEP", step="bad")
        state = await story.until_ended()
        assert (state.status, state.runs["bad"]) == ("FAILED", 2)

    run_story(BEST_EFFORT, script)


def test_retry_in_a_paused_run_waits_for_its_end() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(15)
        await story.ok("PAUSE")
        await story.ok("RETRY_STEP", step="start")
        await asyncio.sleep(1)
        assert "has been paused since" in await story.why(), "what was taken back is held"
        await asyncio.sleep(100)
        assert story.calls == [("a", 1), ("b", 1)]
        await story.ok("RETRY_STEP", step="start")
        await story.ok("RESUME")
        assert (await story.until_ended()).status == "COMPLETED"
        assert story.calls == [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("end_task", 1)]

    run_story(THREE_TASKS, script)


def test_skip_ends_a_step_and_routes_it_as_a_success() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(15)
        await story.ok("SKIP_STEP", step="start")
        state = await story.until_ended()
        assert (state.status, state.result, state.latest["start"]) == ("COMPLETED", "over", "skipped")
        assert story.calls == [("a", 1), ("b", 1), ("end_task", 1)]
        (step_run, _) = await story.world.store.step_runs(story.world.execution_id)
        assert step_run.status == "skipped"

    run_story(THREE_TASKS, script)


def test_skip_ends_a_loop_with_its_counts() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(25)
        await story.ok("SKIP_STEP", step="start")
        state = await story.until_ended()
        assert (state.status, state.result) == ("COMPLETED", "over")
        (done,) = [event for event in await story.world.events() if event.type == "loop.done"]
        assert done.payload == {"total": 5, "ok": 2, "failed": 0, "skipped": 3, "cancelled": 1}

    run_story(LOOP, script)


def test_steps_that_cannot_be_retried_or_skipped() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(15)
        for signal in ("RETRY_STEP", "SKIP_STEP"):
            await story.refused(signal, "needs the name of a step")
            await story.refused(signal, "has no step 'nowhere'", step="nowhere")
            await story.refused(signal, "has not run yet", step="end")
        await asyncio.sleep(20)
        await story.refused("RETRY_STEP", "has not failed and is not open", step="start")
        await story.refused("SKIP_STEP", "has no open run", step="start")
        assert (await story.until_ended()).status == "COMPLETED"

    run_story(THREE_TASKS, script)


def test_params_are_ctx_for_what_is_scheduled_afterwards() -> None:
    async def script(story: Story) -> None:
        await story.refused("UPDATE_PARAMS", "needs data")
        await story.refused("UPDATE_PARAMS", "needs data", data=[1])
        await story.ok("UPDATE_PARAMS", data={"who": "Ada"})
        await story.ok("APPROVE")
        assert (await story.until_ended()).result == "Ada"

    run_story(APPROVAL, script)


# -- approval ---------------------------------------------------------------------------------------------------------


def test_a_run_that_needs_an_approval_waits_for_it() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(100)
        state = await story.world.state()
        assert (state.status, state.pending_for, await story.types()) == (
            "PENDING",
            "approval",
            ["playbook.execution.requested", "playbook.request.evaluated"],
        )
        assert "waits for an approval" in await story.why()
        await story.refused("PAUSE", "has not started yet")
        await story.refused("SKIP_STEP", "has not started yet", step="start")
        await story.ok("APPROVE", by="ada")
        assert (await story.until_ended()).status == "COMPLETED"
        await story.run_story("APPROVE")

    run_story(APPROVAL, script)


def test_a_rejected_request_is_a_failed_run() -> None:
    async def script(story: Story) -> None:
        await story.ok("REJECT", reason="not today")
        state = await story.world.state()
        assert state.status == "FAILED"
        assert state.error == {
            "kind": "cancelled",
            "code": "REJECTED",
            "message": "rejected: not today",
            "retryable": False,
        }
        assert (await story.types())[2:] == ["signal.received", "playbook.finished", "playbook.processed"]
        assert not (await story.run_story("APPROVE")).accepted

    run_story(APPROVAL, script)


def test_a_pending_run_can_be_cancelled() -> None:
    async def script(story: Story) -> None:
        await story.ok("CANCEL")
        assert (await story.types())[2:] == ["signal.received", "execution.cancelled", "playbook.processed"]

    run_story(APPROVAL, script)


def test_approvals_that_nobody_waits_for() -> None:
    async def script(story: Story) -> None:
        await asyncio.sleep(5)
        await story.refused("APPROVE", "nothing waits for an approval")
        await story.refused("REJECT", "in step start", step="start")
        await story.ok("my.own-signal", data={"n": 1})
        assert (await story.until_ended()).status == "COMPLETED"

    run_story(THREE_TASKS, script)


def test_signals_find_what_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[tuple[str, str, Any]] = []
    monkeypatch.setattr(
        waits, "resolve", lambda _, key, record, __: resolved.append((key, record["status"], record["result"]))
    )

    async def answer_to(world: World, signal: str, **more: Any) -> str:
        state = await world.state()
        for key, kind, step in (
            ("k1", "approval", "a"),
            ("k2", "approval", "b"),
            ("k3", "wait", "c"),
            ("k4", "wait", "d"),
        ):
            config = {"signal": "go" if key == "k3" else "other"}
            state.waits[key] = Wait(key, kind, step, 1, None, "t", 1, config, world.clock.now())
        resolved.clear()
        txn = decide(
            world.program, state, Signal(signal, "s", "because", most_kept=1, **more), world.clock.now(), 1 << 50
        )
        return "" if txn.refused is None else txn.refused.message

    async def script(story: Story) -> None:
        world = story.world
        assert "2 tasks wait for an approval (a, b); name the step" in await answer_to(world, "APPROVE")
        assert not await answer_to(world, "APPROVE", step="b", by="ada")
        assert resolved == [("k2", "ok", {"approved": True, "by": "ada", "comment": "because", "data": None})]
        assert not await answer_to(world, "REJECT", step="a")
        assert [(key, status) for key, status, _ in resolved] == [("k1", "error")]
        assert not await answer_to(world, "go", data=[1])
        assert resolved == [("k3", "ok", {"waited_ms": 0, "signal": "go", "data": [1]})]
        assert not await answer_to(world, "nobody")
        assert resolved == []

    run_story(THREE_TASKS, script)


# -- RETRY_RUN --------------------------------------------------------------------------------------------------------


def test_a_run_that_has_ended_can_be_run_again() -> None:
    async def script(story: Story) -> None:
        api, execution_id = story.life.api, str(story.world.execution_id)
        assert "has not ended" in (await story.run_story("RETRY_RUN")).message
        await story.until_ended()
        again = await api.signal(execution_id, SignalRequest("RETRY_RUN", "r"))
        assert again.started is not None
        assert again == await api.signal(execution_id, SignalRequest("RETRY_RUN", "r"))
        await api.ended(again.started)
        first = (await api.events(again.started, limit=1))[0]["payload"]
        summary = await api.summary(execution_id)
        assert first["original_run_id"] == summary.run_id
        assert (await api.summary(again.started)).result == "over"

    run_story(THREE_TASKS, script)


# -- another process --------------------------------------------------------------------------------------------------


def test_signals_of_another_process_are_noticed() -> None:
    """Two engines on one store: one works, the other is told."""

    async def main() -> None:
        # No bus is between them, and a store in memory cannot tell that somebody else wrote.
        async with World(THREE_TASKS, settings=Settings({"engine.idle_look_s": 1.0})) as world:
            working = world.begin_life()
            await world.start()
            working.start_sweeper()
            working.start_worker()
            other = Life(world, 99, None, None)
            other.engine.live.keep(world.program)
            story = Story(world, other)
            await asyncio.sleep(5)
            await story.ok("PAUSE")
            await asyncio.sleep(100)
            assert "has been paused since" in await story.why()
            assert story.calls == [("a", 1)]
            await story.ok("RESUME")
            await asyncio.sleep(5)
            await story.ok("RETRY_STEP", step="start")
            await asyncio.sleep(2)
            assert story.calls == [("a", 1), ("b", 1), ("b", 2)]
            await story.ok("CANCEL")
            await asyncio.sleep(2)
            assert not world.ledger.calls[-1].answered
            assert (await story.checked(one_process=False)).status == "CANCELLED"

    run_virtually(main())


@pytest.mark.parametrize("signal", ["CANCEL", "PAUSE", "SKIP_STEP", "RETRY_STEP"])
@pytest.mark.parametrize("after_s", [9.9, 10.0, 10.1, 10.3, 10.5, 10.7])
def test_a_signal_of_another_process_races_the_end(signal: str, after_s: float) -> None:
    """The last report and the signal are decided on the same head: one of them wins, the other is decided again."""
    text = "metadata: {name: one}\nworkflow:\n  - {step: start, tool: {kind: act, takes: 10}}\n"

    async def main() -> None:
        async def slow(_: int, append: Append) -> None:
            await asyncio.sleep(0.3)

        async with World(text, before=slow) as world:
            working = world.begin_life()
            await world.start()
            working.start_sweeper()
            working.start_worker()
            other = Life(world, 99, slow, None)
            other.engine.live.keep(world.program)
            story = Story(world, other)
            await asyncio.sleep(after_s - asyncio.get_running_loop().time())
            answer = await story.run_story(signal, step="start")
            if not (await world.state()).terminal:
                await story.run_story("RESUME")
            state = await story.until_ended()
            assert state.status == ("CANCELLED" if signal == "CANCEL" and answer.accepted else "COMPLETED")
            if answer.accepted:
                assert answer.signal_id in state.signals

    run_virtually(main())


def test_items_that_wait_for_approvals_side_by_side_are_decided_one_by_one() -> None:
    text = """
metadata: {name: many}
executor: {spec: {result: "{{ start.results }}"}}
workflow:
  - step: start
    loop: {in: [a, b], iterator: x, spec: {mode: parallel}}
    spec: {policy: {failure: {mode: best_effort}}}
    tool: [{name: ask, kind: approval}, {name: then, kind: act, returns: "{{ iter.x }}"}]
"""

    async def main() -> None:
        async with World(text) as world:
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(5)
            api, execution_id = world.current_life.api, str(world.execution_id)
            for step in ("", "start"):
                refused = await api.signal(execution_id, SignalRequest("APPROVE", f"all {step}", step=step))
                assert not refused.accepted
                assert "start#1[0]:ask#1, start#1[1]:ask#1); name one" in refused.message
            await api.signal(execution_id, SignalRequest("REJECT", "no", "not this", step="start#1[0]:ask#1"))
            await api.signal(execution_id, SignalRequest("APPROVE", "yes", step="start#1[1]:ask#1"))
            state = await going
            assert state.result[1] == "b"
            assert [call.task for call in world.ledger.calls] == ["then"]
            check_log(await world.stored(), "many")

    run_virtually(main())


def test_a_step_that_was_open_when_its_run_was_cancelled_is_told_as_cancelled() -> None:
    async def main() -> None:
        async with World(FAN) as world:
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(5)
            await world.current_life.api.cancel(str(world.execution_id), "enough")
            await going
            summary = await world.current_life.api.summary(str(world.execution_id))
            assert {name: step.status for name, step in summary.steps.items()} == {
                "start": "done", "a": "cancelled", "b": "cancelled", "c": "cancelled", "d": "cancelled",
            }  # fmt: skip

    run_virtually(main())


def test_a_run_that_waits_for_hundreds_is_ended_in_one_transaction() -> None:
    start = {"step": "start", "tool": {"kind": "noop"}}
    start["next"] = {"spec": {"mode": "inclusive"}, "arcs": [{"step": "ask"}] * 700}
    text = json.dumps(
        {"metadata": {"name": "many"}, "workflow": [start, {"step": "ask", "tool": {"kind": "approval"}}]}
    )
    commits: list[int] = []

    async def main() -> None:
        async def count(_: int, append: Append) -> None:
            commits.append(len(append.events))

        async with World(text, before=count) as world:
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(5)
            assert len((await world.state()).waits) == 700
            await world.current_life.api.cancel(str(world.execution_id), "enough")
            await going
            assert commits[-1] == 1404, "the signal, 700 tasks and step runs, the workflow, the run, and processed"
            check_log(await world.stored(), "many")

    run_virtually(main())
