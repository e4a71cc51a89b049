"""A family of runs in one world: watched at every commit, answered when it waits for somebody, and checked at its end."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from hashlib import sha256
from random import Random
from typing import Any

import msgspec

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State, Wait
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError
from arclog.model.events import TERMINAL
from arclog.ports.storage.store import Append, Appended, ExecutionFilter, ExecutionRecord
from arclog.ports.views.api import SignalRequest
from arclog.testing.families import Family
from arclog.testing.faults import forever
from arclog.testing.harness import Life, World
from arclog.testing.laws import check_log

#: How often somebody looks whether a run waits for an answer, and how long all of them may take; virtual seconds.
LOOK_S = 7.0
PATIENCE_S = 7_000.0
_LIVE = ExecutionFilter(states=("PENDING", "RUNNING"))
_STATE = msgspec.json.Decoder(State)
#: Events that a restart itself writes: dying after those again and again would be no progress.
_OF_RESTARTS = frozenset({"command.claimed", "command.issued"})
#: What depends on when things happened, and on ids.
_FLEETING = frozenset({"waited_ms", "execution_id", "meta", "timestamp", "duration_ms"})
_ID = re.compile(r"\d{15,}")


def encoded(state: State) -> bytes:
    # In the order of its maps: which token or step run is the oldest matters to decisions.
    return msgspec.json.encode(state)


def lasting(value: Any) -> Any:
    """Without times and ids."""
    if isinstance(value, dict):
        return {key: lasting(part) for key, part in value.items() if key not in _FLEETING}
    if isinstance(value, list):
        return [lasting(part) for part in value]
    return _ID.sub("<id>", value) if isinstance(value, str) else value


class Relatives:
    """One run of a family."""

    def __init__(self, family: Family, settings: Settings, *, workers: int = 1, watch: bool = True) -> None:
        self.family = family
        self.world = World(
            family.text, settings=settings, before=self.before, after=self.after, hook=None, workers=workers
        )
        self.watch = watch
        self.replicas: dict[int, State] = {}
        self.commits = self.deaths = 0
        self.die_before = self.die_after = 0
        self.die_after_every_commit = False
        #: runs and waits whose answer was given, with how often
        self.answers: Counter[str] = Counter()
        self.over = False
        self.one_process = True

    # -- at every commit ----------------------------------------------------------------------------------------------

    async def before(self, _: int, append: Append) -> None:
        self.commits += 1
        if self.commits == self.die_before and not self.over:
            await self.die()

    async def after(self, _: int, append: Append, done: Appended) -> None:
        if self.watch:
            await self.compare(append.execution_id, done.last_seq)
        progress = any(event.type not in _OF_RESTARTS for event in append.events)
        if not self.over and (self.commits == self.die_after or (self.die_after_every_commit and progress)):
            await self.die()

    async def die(self) -> None:
        self.deaths += 1
        self.world.crash_now()
        await forever()

    async def compare(self, execution_id: int, head: int) -> None:
        """What a reader of the log has is what the engine has; and whoever asks is told what the run waits for."""
        engine, store = self.world.current_life.engine, self.world.store
        record = await store.execution(execution_id)
        assert record is not None
        program = await engine.live.program(record.new.plan)
        replica = self.replicas.setdefault(execution_id, State(execution_id=execution_id))
        for entry in await store.events(execution_id, after=replica.head):
            apply(program, replica, entry.event)
        assert replica.head >= head
        if replica.head == head:
            again = encoded(replica)
            live = engine.live.kept(execution_id)
            if live is not None:
                assert encoded(live.state) == again, "live state and replay differ"
            assert _STATE.decode(again) == replica, "a snapshot does not give the state back"
            due = {timer for timer, _ in replica.timers.items()}
            assert due == await timers_of(self.world, execution_id), "timers of the state and of the store differ"
        if replica.terminal is None:
            why = await self.world.current_life.api.why(str(execution_id))
            assert why.waits, "a run that has not ended waits for something"
            assert why.waits[0].what != "none", why

    # -- somebody who answers -----------------------------------------------------------------------------------------

    async def live(self) -> list[ExecutionRecord]:
        return await self.world.store.executions(_LIVE, limit=1000)

    async def answer_all(self) -> None:
        """Give every run what it waits for, again and again, until all have ended."""
        waited = 0.0
        while True:
            await asyncio.sleep(LOOK_S)
            waited += LOOK_S
            left = await self.live()
            if not left and self.world.execution_id:
                return
            assert waited < PATIENCE_S, await self.reasons(left)
            for record in left:
                await self.answer(record)

    async def reasons(self, left: list[ExecutionRecord]) -> list[str]:
        api = self.world.current_life.api
        return [str((await api.why(str(record.execution_id))).waits) for record in left]

    async def answer(self, record: ExecutionRecord) -> None:
        if self.world.life is None:
            return
        engine = self.world.current_life.engine
        try:
            state = (await engine.live.folded(record.execution_id)).state
            kinds = {wait.what for wait in (await self.world.current_life.api.why(str(record.execution_id))).waits}
        except ArclogError:
            return
        if state.pause is not None:
            assert "pause" in kinds
            await self.send(record.execution_id, SignalRequest("RESUME", f"resume {state.pause.signal_id}"[:200]))
        elif state.pending_for == "approval":
            assert "approval" in kinds
            await self.send(record.execution_id, self.verdict("start", record.new.name))
        for wait in list(state.waits.values()):
            name = wait.config.get("signal")
            if "timeout_s" in wait.config:
                continue  # nobody answers: it must end by itself
            if wait.kind == "approval":
                assert "approval" in kinds
                await self.send(record.execution_id, self.verdict(wait.key, record.new.name, wait))
            elif name:
                assert "signal" in kinds
                request = SignalRequest(name, f"{name} {wait.key} {self.answers[wait.key]}"[:200], data={"n": 3})
                self.answers[wait.key] += 1
                await self.send(record.execution_id, request)

    def verdict(self, key: str, playbook: str, wait: Wait | None = None) -> SignalRequest:
        """Yes, or now and then no; the same for the same question, whenever it is asked."""
        question = f"{self.family.seed} {playbook} {key}"
        signal = "REJECT" if sha256(question.encode()).digest()[0] < 40 else "APPROVE"
        self.answers[question] += 1
        step = "" if wait is None else wait.key
        return SignalRequest(signal, f"{question} {self.answers[question]}"[:200], "thought about it", step, by="judge")

    async def send(self, execution_id: int, request: SignalRequest) -> None:
        """The process may die before it answers; then somebody asks again later."""
        if self.world.life is None:
            return
        try:
            async with asyncio.timeout(3):
                await self.world.current_life.api.signal(str(execution_id), request)
        except (ArclogError, TimeoutError):
            return

    async def tell_from_elsewhere(self, execution_id: int, request: SignalRequest, number: int) -> None:
        """As `arclog pause` in another terminal: a process of its own on the same store."""
        self.one_process = False
        other = Life(self.world, number, None, None)
        await other.api.signal(str(execution_id), request)
        await other.children.settle(1000.0)
        await other.end()

    # -- the whole ----------------------------------------------------------------------------------------------------

    async def run(self, trouble: Random | None = None) -> dict[str, Any]:
        """Run to the end of all; what they came to."""
        async with self.world as world:
            for child in self.family.children:
                await world.register(child.text)
            answering = asyncio.ensure_future(self._answering(trouble))
            going = asyncio.ensure_future(self._go())
            try:
                await asyncio.wait((answering, going), return_when=asyncio.FIRST_EXCEPTION)
                for task in (answering, going):
                    if task.done():
                        task.result()
            finally:
                for task in (answering, going):
                    task.cancel()
                await asyncio.gather(answering, going, return_exceptions=True)
            await world.current_life.children.settle(1000.0)
            await self.check_end()
            return await self.endings()

    async def _go(self) -> None:
        """Until the first run has ended. What it leaves behind goes on, in a process that nobody kills any more."""
        world = self.world
        await world.run()
        self.over = True
        if world.life is None or world.current_life._wrapper._dead:
            await world.crash()
            life = world.begin_life()
            await world.free(life)
            life.start_sweeper()
            life.start_worker()

    async def _answering(self, trouble: Random | None) -> None:
        if trouble is not None:
            await self.disturb(trouble)
        await self.answer_all()

    async def disturb(self, draw: Random) -> None:
        """Signals of every kind to any of the runs at any moment, and a death now and then."""
        for number in range(draw.randint(2, 12)):
            await asyncio.sleep(draw.choice((0, 0, 0.01, 0.3, 1, 4, 20)))
            runs = await self.live()
            if not runs or self.world.life is None:
                continue
            if draw.random() < 0.08 and not self.over:
                self.deaths += 1
                self.world.crash_now()
                continue
            record = draw.choice(runs)
            request = self.signal(draw, number, self.replicas.get(record.execution_id))
            if draw.random() < 0.3:
                await self.tell_from_elsewhere(record.execution_id, request, 800 + number)
            else:
                await self.send(record.execution_id, request)

    def signal(self, draw: Random, number: int, state: State | None) -> SignalRequest:
        """Any signal, most often one that can do something."""
        if draw.random() < 0.15:
            name = draw.choice(("CANCEL", "EMERGENCY_STOP", "REJECT", "APPROVE", "mine", "PAUSE", "RESUME"))
        else:
            of_now = ("PAUSE",) * 3 if state is None or state.pause is None else ("RESUME",) * 2
            name = draw.choice((*of_now, "RETRY_STEP", "SKIP_STEP", "UPDATE_PARAMS"))
        step = ""
        if name.endswith("_STEP"):
            steps = [] if state is None else [*state.open, *state.failures]
            step = draw.choice(steps or ["s0"]).split("#")[0]
        data = {"told": number} if name in ("UPDATE_PARAMS", "mine") else None
        return SignalRequest(name, f"trouble {number}", "because", step=step, data=data)

    async def check_end(self) -> None:
        """Each run ended once, its log keeps the laws and replays, and nothing of it is left open."""
        world = self.world
        for record in await self.everybody():
            stored = await world.store.events(record.execution_id, limit=1_000_000)
            assert sum(entry.event.type in TERMINAL for entry in stored) == 1
            check_log(stored, record.new.name, one_process=self.one_process)
            live = await world.current_life.engine.live.folded(record.execution_id)
            state = live.state
            again = State(execution_id=record.execution_id)
            for stored_event in stored:
                apply(live.program, again, stored_event.event)
            assert encoded(again) == encoded(state)
            if self.watch:
                for stored_event in stored[self.replicas[record.execution_id].head :]:
                    apply(live.program, self.replicas[record.execution_id], stored_event.event)
                assert encoded(self.replicas[record.execution_id]) == encoded(again)
            assert (record.now.state, record.now.terminal_event) == (state.status, state.terminal)
            left = [state.tokens, state.waiting, state.open, state.commands, state.waits, state.timers, state.stopped]
            assert not any(left), f"left in the state: {left}"
            assert not await world.store.commands(record.execution_id), "commands are left in the store"
            assert (await world.current_life.api.why(str(record.execution_id))).waits == []
        assert await world.store.next_due() is None, "a timer is left in the store"
        assert not world.current_life.children._calls, "calls are left"
        assert not world.current_life.children._pending

    async def everybody(self) -> list[ExecutionRecord]:
        """Oldest first."""
        return list(reversed(await self.world.store.executions(limit=10_000)))

    async def endings(self) -> dict[str, Any]:
        """What the first run came to, without times and ids; and how often each playbook ran, with what end."""
        first = await self.world.state()
        ends: Counter[Any] = Counter()
        for event in await self.world.events():
            if event.type in {"step.done", "step.failed", "task.done", "task.failed", "loop.done", "next.evaluated"}:
                outcome = event.payload.get("outcome") or {}
                error = event.payload.get("error") or outcome.get("error") or {}
                where = (event.type, event.step, event.iteration, event.task, event.task_run, error.get("kind"))
                ends[(*where, repr(lasting(outcome.get("result"))))] += 1
        runs = Counter((record.new.name, record.now.state) for record in await self.everybody())
        return {
            "status": first.status,
            "ctx": lasting(first.ctx),
            "result": lasting(first.result),
            "error": lasting(first.error),
            "runs": first.runs,
            "ends": ends,
            "family": runs,
        }


async def timers_of(world: World, execution_id: int) -> set[str]:
    """Ids of the timers that the store has for a run."""
    timers = await world.store.due_timers(2**62, 100_000)
    return {timer.timer_id for timer in timers if timer.execution_id == execution_id}
