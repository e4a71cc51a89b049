"""A run whose process dies, anywhere, ends like one that was left alone, and finished tasks are not done again."""

from __future__ import annotations

import json
from collections import Counter
from random import Random

import pytest

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.plan.net import StepPlan
from arclog.ports.storage.store import Append, Appended
from arclog.ports.tool import TaskContext
from arclog.testing.faults import forever
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.playbooks import Drawn, by_seed
from arclog.testing.scripted import Call
from tests.simulation.support import EAGER, LEAN, Ending, assert_same, ending, run, seeds

#: Places to die that are tried per playbook; all of them when there are fewer.
TRIES = 6


class Mortal:
    """A run that dies at chosen places."""

    def __init__(self, drawn: Drawn, with_settings: Settings) -> None:
        self.drawn = drawn
        self.world = World(drawn.text, settings=with_settings, before=self.before, after=self.after, hook=self.hook)
        self.commits = self.calls = self.deaths = 0
        self.die_before = self.die_after = self.die_in = self.die_late_in = 0
        self.die_after_every_report = False
        #: what the log said was finished when each life ended
        self.finished: list[set[tuple[str, int]]] = []
        #: how many pipelines the commands that were open then may have been running
        self.under_way: list[int] = []
        self.at_a_time = {step.name: _at_a_time(step) for step in self.world.program.plan.steps}

    async def before(self, _: int, append: Append) -> None:
        self.commits += 1
        if self.commits == self.die_before:
            await self.die()

    async def after(self, _: int, append: Append, done: Appended) -> None:
        if self.commits == self.die_after or (self.die_after_every_report and any(e.report for e in append.events)):
            await self.die()

    async def hook(self, call: Call, context: TaskContext) -> Outcome | None:
        self.calls += 1
        if self.calls == self.die_in:
            await self.die()
        if self.calls == self.die_late_in:
            # Long enough for the task's start to be in the log.
            await self.world.clock.sleep(1.0)
            await self.die()
        return None

    async def die(self) -> None:
        world = self.world
        self.deaths += 1
        execution = world.execution_id or next(
            (execution.execution_id for execution in await world.store.executions()), 0
        )
        done = set()
        for entry in await world.store.events(execution, limit=1_000_000):
            event = entry.event
            where = "" if event.iteration is None else ".".join(map(str, event.iteration))
            key = f"{execution}:{event.step}:{event.run}:{where}:{event.task}:{event.task_run}"
            if event.type in {"task.attempt.done", "task.attempt.failed"}:
                done.add((key, event.attempt))
            elif event.type in {"task.done", "task.failed"}:
                done.add((key, event.payload["outcome"]["meta"]["attempt"]))
        self.finished.append(done)
        self.under_way.append(sum([self.at_a_time[command.step] for command in await world.store.commands(execution)]))
        world.crash_now()
        await forever()

    async def run(self) -> Ending:
        async with self.world as world:
            state = await world.run()
            check_log(await world.stored(), "random")
            self.check_ledger()
            return await ending(world, state)

    def check_ledger(self) -> None:
        """Only what was under way when a process died was done again: at most one effect for each pipeline of an open command."""
        by_life: list[Counter[tuple[str, int]]] = [Counter() for _ in range(self.world.lives + 1)]
        effects = {(call.key, call.attempt) for call in self.world.ledger.calls if call.effectful}
        for call in self.world.ledger.calls:
            by_life[call.life][call.key, call.attempt] += 1
        seen: set[tuple[str, int]] = set()
        for life, done in enumerate(by_life):
            assert all(times == 1 for times in done.values()), f"done twice in one life: {done}"
            again = seen & done.keys()
            if again:
                finished = self.finished[life - 2]
                assert not again & finished, f"finished before the crash, and done again: {again & finished}"
                assert len(again & effects) <= self.under_way[life - 2], f"more than what was under way: {again}"
            seen |= done.keys()
        assert self.world.lives == self.deaths + 1


def _at_a_time(step: StepPlan) -> int:
    loop = step.loop
    while loop is not None and loop.inner is not None:
        loop = loop.inner
    return loop.max_in_flight if loop is not None and loop.mode == "parallel" and loop.exec == "local" else 1


def plain(drawn: Drawn, with_settings: Settings) -> tuple[Ending, Mortal]:
    it = Mortal(drawn, with_settings)
    return run(drawn, it.run()), it


def compare(drawn: Drawn, expected: Ending, it: Mortal) -> None:
    outcome = run(drawn, it.run())
    if "at_most_once" not in drawn.text:
        assert_same(drawn, expected, outcome)
    else:
        for (key, attempt), times in it.world.ledger.times().items():
            if _at_most_once(drawn, key.split(":")[-2]):
                assert times == 1, f"{key} attempt {attempt} is at_most_once and was done {times} times"


def _at_most_once(drawn: Drawn, task: str) -> bool:
    tasks = [task for step in json.loads(drawn.text)["workflow"] for task in step["tool"]]
    return any(tool["name"] == task and (tool.get("spec") or {}).get("delivery") == "at_most_once" for tool in tasks)


@pytest.mark.parametrize("group", seeds(64, 8, first=10_000), ids=str)
def test_dying_once_anywhere_changes_nothing(group: range) -> None:
    for seed in group:
        drawn = by_seed(seed)
        for with_settings in (EAGER, LEAN):
            expected, undisturbed = plain(drawn, with_settings)
            places = [("die_before", n) for n in range(1, undisturbed.commits + 1)]
            places += [("die_after", n) for n in range(1, undisturbed.commits + 1)]
            places += [(kind, n) for kind in ("die_in", "die_late_in") for n in range(1, undisturbed.calls + 1)]
            for kind, n in Random(seed).sample(places, min(TRIES, len(places))):
                it = Mortal(drawn, with_settings)
                setattr(it, kind, n)
                try:
                    compare(drawn, expected, it)
                except BaseException as problem:
                    problem.add_note(f"{kind} = {n}, {'eager' if with_settings is EAGER else 'lean'}")
                    raise
                # A branch may be cancelled by another one while it waits to die.
                assert it.deaths == 1 or ((drawn.branching or drawn.racing) and kind == "die_late_in"), (
                    f"{kind} {n} did not happen"
                )


@pytest.mark.parametrize("group", seeds(96, 8, first=20_000), ids=str)
def test_dying_after_every_report_changes_nothing(group: range) -> None:
    for seed in group:
        drawn = by_seed(seed)
        for with_settings in (EAGER, LEAN):
            expected, _ = plain(drawn, with_settings)
            it = Mortal(drawn, with_settings)
            it.die_after_every_report = True
            compare(drawn, expected, it)
