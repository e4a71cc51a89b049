"""Several servers on one store, in virtual time: they die, stand still past their leases and are woken, their clocks are
off, workers reach any of them and lose answers. Every run ends once, every log keeps the laws.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any, cast

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.engine.duties.duty import Duty, always
from arclog.model.errors import ArclogError
from arclog.model.events import TERMINAL
from arclog.plan import net
from arclog.ports.views.api import ExecuteRequest, SignalRequest
from arclog.testing.families import Family, family
from arclog.testing.harness import World, _prepared
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually
from tests.simulation.cluster import Cluster
from tests.simulation.relatives import Relatives, encoded
from tests.simulation.support import EAGER, seeds

#: Virtual seconds in which things go wrong, at most; then all must come to its end.
TROUBLE_S = 120.0


class Peers(Relatives):
    """A family of runs on several servers. Whoever answers what they wait for speaks to one that is well."""

    def __init__(self, drawn: Family, draw: Random, servers: int) -> None:
        self.family = drawn
        self.draw = draw
        self.cluster = Cluster(EAGER, draw, servers=servers)
        self.answers = Counter()
        self.replicas = {}
        self.world = cast("World", self)  # what the base looks at is all here
        self.execution_id = 0
        self.happened: Counter[str] = Counter()
        self.stopped: set[asyncio.Task[None]] = set()

    @property
    def store(self) -> Any:
        return self.cluster.store

    @property
    def life(self) -> Any:
        return self.cluster.well()

    @property
    def current_life(self) -> Any:
        life = self.cluster.well()
        assert life is not None
        return life

    async def play(self) -> None:
        cluster = self.cluster
        await cluster.start()
        try:
            for child in self.family.children:
                await self.register(child.text)
            self.execution_id = await self.ask_for_a_run()
            trouble = asyncio.ensure_future(self.trouble())
            answering = asyncio.ensure_future(self.answer_all())
            try:
                await asyncio.gather(trouble, answering)
            finally:
                for task in (trouble, answering):
                    task.cancel()
                await asyncio.gather(trouble, answering, return_exceptions=True)
            # What was let go of is forgotten at the next sweeps.
            await asyncio.sleep(100.0)
            await self.check_end()
        finally:
            await cluster.stop()

    async def ask_for_a_run(self) -> int:
        """As often as need be: the key makes it one."""
        while True:
            try:
                request = ExecuteRequest(playbook=self.family.text, idempotency_key="once")
                return int((await self.current_life.api.execute(request)).execution_id)
            except (ArclogError, AssertionError):
                await asyncio.sleep(1.0)

    async def register(self, text: str) -> None:
        program, body = _prepared(text, EAGER)
        path = program.plan.path or program.plan.name
        await self.store.register_plan(program.digest, path, body, text, 0, tenant="default")
        assert net.digest(body) == program.digest

    async def trouble(self) -> None:
        draw, cluster = self.draw, self.cluster
        loop = asyncio.get_running_loop()
        until = loop.time() + draw.choice((10.0, 30.0, TROUBLE_S))
        number = 0
        while loop.time() < until:
            await asyncio.sleep(draw.choice((0.001, 0.01, 0.2, 1.5, 9.0)))
            if not cluster.servers:
                await cluster.add()
                continue
            server = draw.choice(cluster.servers)
            trouble = draw.choice(("kill", "kill", "leave", "stop", "stop", "stop", "signal"))
            self.happened[trouble] += 1
            if trouble == "signal":
                number += 1
                await self.disturb_one(number)
            elif trouble == "stop":
                self.stopped.add(asyncio.ensure_future(self.stand_still(server, draw.choice((0.5, 4.0, 8.0, 40.0)))))
            else:
                await cluster.remove(server, kill=trouble == "kill")
                if draw.random() < 0.8:
                    await cluster.add()
        cluster.calm = True
        while len(cluster.servers) < 2:
            await cluster.add()

    async def stand_still(self, server: Any, seconds: float) -> None:
        server.reach.going.clear()
        await asyncio.sleep(seconds)
        server.reach.going.set()

    async def disturb_one(self, number: int) -> None:
        runs = await self.live()
        if runs and self.life is not None:
            record = self.draw.choice(runs)
            name = self.draw.choice(("PAUSE", "RESUME", "PAUSE", "CANCEL"))
            await self.send(record.execution_id, SignalRequest(name, f"trouble {number}", "because"))

    async def reasons(self, left: list[Any]) -> list[str]:
        """Why runs never end, for whoever reads the failure."""
        reasons = []
        for record in left:
            try:
                why = await self.current_life.api.why(str(record.execution_id))
            except ArclogError as problem:
                reasons.append(f"{record.new.name}: {problem}")
            else:
                reasons.append(f"{record.new.name} {record.execution_id}: {why.waits}")
        return reasons

    async def check_end(self) -> None:
        for record in await self.everybody():
            stored = await self.store.events(record.execution_id, limit=1_000_000)
            assert sum(entry.event.type in TERMINAL for entry in stored) == 1
            check_log(stored, record.new.name, one_process=False)
            live = await self.current_life.engine.live.folded(record.execution_id)
            again = State(execution_id=record.execution_id)
            for stored_event in stored:
                apply(live.program, again, stored_event.event)
            assert encoded(again) == encoded(live.state)
            assert again.processed or again.parent is None, "its parent was not told"
            assert (record.now.state, record.now.terminal_event) == (again.status, again.terminal)
            left = [again.tokens, again.waiting, again.open, again.commands, again.waits, again.timers, again.stopped]
            assert not any(left), f"left in the state: {left}"
            assert not await self.store.commands(record.execution_id), "commands are left in the store"
        assert await self.store.next_due() is None, "a timer is left in the store"
        for server in self.cluster.servers:
            assert not server.children._calls, "calls are left"
            assert not server.children._pending


def play(seed: int) -> Peers:
    drawn = family(seed)

    async def main() -> Peers:
        peers = Peers(drawn, Random(seed), servers=2 + seed % 2)
        await peers.play()
        return peers

    try:
        return run_virtually(main())
    except BaseException as problem:
        problem.add_note(f"SIMULATION_SEED={seed} reproduces it: {drawn!r}")
        raise


@pytest.mark.parametrize("group", seeds(16, 1, first=70_020), ids=str)
def test_runs_end_once_whatever_becomes_of_the_servers(group: range) -> None:
    happened: Counter[str] = Counter()
    for seed in group:
        peers = play(seed)
        happened += peers.happened
        happened["died behind a commit"] += peers.cluster.deaths
    if len(group) > 1:
        assert {"kill", "stop", "died behind a commit"} <= (+happened).keys()


@pytest.mark.parametrize("group", seeds(4, 2, first=71_000), ids=str)
def test_servers_that_all_act_at_once_do_no_harm(group: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases only spare work: what two servers do at the same time is a compare-and-set that one of them wins."""
    monkeypatch.setattr(Duty, "has", lambda _: always())
    for seed in group:
        play(seed)
