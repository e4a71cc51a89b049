"""Signals in any order, at any moment, with processes that die in between: a state machine against one run.

The model is small: which pauses were accepted and not taken back, and whether the run was cancelled. What must hold
after every step are the laws: a paused run begins nothing, one terminal event, and replay is live.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arclog.core.boundary.signals import RULES
from arclog.model.events import TERMINAL
from arclog.ports.views.api import SignalAnswer, SignalRequest
from arclog.testing.harness import World
from arclog.testing.laws import check_dialects, check_log
from arclog.testing.playbooks import by_seed
from arclog.testing.virtual import VirtualLoop
from tests.simulation.support import EAGER, FACTOR, LEAN

STEPS = st.sampled_from(["", "s0", "s1", "s2", "nowhere"])
MOMENTS = st.sampled_from([0, 0.01, 0.2, 1, 7, 45, 300])


class Signals(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.world: World | None = None
        self.count = 0
        self.answers: dict[str, tuple[SignalRequest, SignalAnswer]] = {}
        self.killed = False
        self.retried = False

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    @property
    def simulated(self) -> World:
        assert self.world is not None
        return self.world

    @initialize(seed=st.integers(0, 400), eager=st.booleans(), workers=st.integers(1, 3))
    def start(self, seed: int, eager: bool, workers: int) -> None:
        async def go() -> None:
            self.world = World(by_seed(seed).text, settings=EAGER if eager else LEAN)
            await self.world.store.open()
            life = self.world.begin_life()
            await self.world.start()
            self.live(life, workers)

        self.do(go())

    def live(self, life: Any, workers: int) -> None:
        life.start_sweeper()
        for number in range(workers):
            life.start_worker(f"worker-{life.number}-{number}")

    def send(self, request: SignalRequest) -> SignalAnswer:
        answer: SignalAnswer = self.do(
            self.simulated.current_life.api.signal(str(self.simulated.execution_id), request)
        )
        return answer

    @rule(signal=st.sampled_from(["PAUSE", "RESUME", "PAUSE", "RESUME", "APPROVE", "UPDATE_PARAMS", "mine"]))
    def signal(self, signal: str) -> None:
        self.give(SignalRequest(signal, f"s{self.count}", "because", data={"told": 1}))

    @rule(signal=st.sampled_from(["RETRY_STEP", "SKIP_STEP"]), step=STEPS)
    def about_a_step(self, signal: str, step: str) -> None:
        self.retried = self.retried or signal == "RETRY_STEP"
        self.give(SignalRequest(signal, f"s{self.count}", "because", step))

    @precondition(lambda self: self.count > 4)
    @rule(signal=st.sampled_from(["CANCEL", "EMERGENCY_STOP"]))
    def end(self, signal: str) -> None:
        self.give(SignalRequest(signal, f"s{self.count}", "enough"))

    def give(self, request: SignalRequest) -> None:
        self.count += 1
        before = self.do(self.simulated.state())
        answer = self.send(request)
        self.answers[request.signal_id] = (request, answer)
        if before.terminal is not None or "has ended" in answer.message:
            # It may end just before the signal: one of the two wins.
            assert not answer.accepted
            assert self.do(self.simulated.state()).terminal is not None
        elif request.signal == "PAUSE":
            assert answer.accepted == (before.pause is None)
        elif request.signal == "RESUME":
            assert answer.accepted == (before.pause is not None)
        elif request.signal in {"CANCEL", "EMERGENCY_STOP"}:
            assert answer.accepted
            assert answer.state == "CANCELLED"

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def again(self, data: st.DataObject) -> None:
        request, answer = self.answers[data.draw(st.sampled_from(sorted(self.answers)))]
        heads = self.do(self.simulated.stored())
        repeated = self.send(request)
        recorded = [entry for entry in self.do(self.simulated.stored()) if entry.event.type == "signal.received"]
        if any(entry.event.payload["signal_id"] == request.signal_id for entry in recorded):
            assert (repeated.accepted, repeated.message) == (answer.accepted, answer.message)
        assert len(recorded) == sum(head.event.type == "signal.received" for head in heads)

    @rule(seconds=MOMENTS)
    def wait(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @rule(workers=st.integers(1, 2))
    def die(self, workers: int) -> None:
        self.killed = True

        async def go() -> None:
            await self.simulated.crash()
            life = self.simulated.begin_life()
            await self.simulated.free(life)
            self.live(life, workers)

        self.do(go())

    @invariant()
    def one_end_and_the_same_state_twice(self) -> None:
        if self.world is None:
            return

        async def look() -> None:
            events = await self.simulated.events()
            assert sum(event.type in TERMINAL for event in events) <= 1
            state = await self.simulated.state()
            life = self.simulated.current_life
            assert (await life.engine.live.folded(self.simulated.execution_id)).state == state
            if state.paused_at is not None:
                commands = await self.simulated.store.commands(self.simulated.execution_id)
                assert all(command.state == "held" for command in commands), "somebody works on a paused run"
            if state.terminal is None:
                assert (await life.api.why(str(self.simulated.execution_id))).waits

        self.do(look())

    def teardown(self) -> None:
        if self.world is None:
            self.runner.close()
            return

        async def finish() -> None:
            api, execution_id = self.simulated.current_life.api, str(self.simulated.execution_id)
            await api.signal(execution_id, SignalRequest("RESUME", "last"))
            assert await api.ended(execution_id, timeout_s=7200), str(await api.why(execution_id))
            check_log(await self.simulated.stored(), "test")
            log = await api.events(execution_id, limit=1_000_000)
            check_dialects(log, len(log) // 2)
            if not self.killed and not self.retried:
                assert all(times == 1 for times in self.simulated.ledger.times().values()), "a pause repeated a task"
            await self.simulated.__aexit__(None, None, None)

        try:
            self.do(finish())
        finally:
            self.runner.close()


TestSignals = Signals.TestCase
TestSignals.settings = settings(
    max_examples=round(80 * FACTOR),
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=FACTOR == 1,
)


def test_every_known_signal_is_played_with() -> None:
    assert set(RULES) - {"REJECT"} == {
        "PAUSE", "RESUME", "APPROVE", "UPDATE_PARAMS", "RETRY_STEP", "SKIP_STEP", "CANCEL", "EMERGENCY_STOP",
    }  # fmt: skip
