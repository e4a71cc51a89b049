"""Rules of events from outside: an id of their own is in an execution once, and what it said is known with its append."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arclog.model.errors import Conflict, InvariantBroken
from arclog.model.events import Event
from arclog.model.ids import compose
from arclog.ports.storage.store import EventIdTaken, Ingested
from arclog.testing.conformance.store.base import DONE, Rules, World, event

SAID = {name: f"{number:x}" * 64 for number, name in enumerate("abc", 1)}


def told(own_id: int) -> Event:
    return event("batch.completed", informative=True, own_id=own_id)


class IngestedRules(Rules):
    async def test_an_id_from_outside_is_known_with_its_append(self, world: World) -> None:
        execution_id, other = await world.create(), await world.create()
        assert await world.store.ingested(execution_id, [7]) == []
        await world.add(
            execution_id, 1, event("playbook.started"), told(7), told(9), digests={7: SAID["a"], 9: SAID["b"]}
        )
        seven, nine = Ingested(7, SAID["a"], 3), Ingested(9, SAID["b"], 4)
        assert await world.store.ingested(execution_id, [9, 8, 7]) == [seven, nine]
        assert await world.store.ingested(execution_id, [9]) == [nine]
        assert await world.store.ingested(execution_id, []) == []
        assert await world.store.ingested(other, [7]) == []
        assert [each.event_id for each in await world.store.events(execution_id, after=2)] == [7, 9]

    async def test_an_id_of_our_own_is_known_for_one(self, world: World) -> None:
        now = world.clock.now()
        node = await world.store.lease_node("a server", now, now + 1)
        base = compose(now // 1000, node, 5)
        execution_id, other = await world.create(), await world.create()
        first = [event("playbook.started"), event("workflow.started"), event("step.scheduled", step="a", run=1)]
        await world.store.append(replace(world.change(execution_id, 1, *first), base_id=base))
        asked = [base - 1, base, base + 2, base + 3, base + 4096]
        assert await world.store.ingested(execution_id, asked) == [Ingested(base, "", 2), Ingested(base + 2, "", 4)]
        assert await world.store.ingested(other, asked) == []

    async def test_an_id_is_in_an_execution_once(self, world: World) -> None:
        execution_id, other = await world.create(), await world.create()
        await world.add(execution_id, 1, told(7), digests={7: SAID["a"]})
        before = await world.everything(execution_id)
        for said in "ab":
            with pytest.raises(EventIdTaken):
                await world.add(execution_id, 2, told(8), told(7), digests={8: SAID["c"], 7: SAID[said]})
        assert await world.everything(execution_id) == before
        assert await world.store.ingested(execution_id, [8]) == []
        await world.add(other, 1, told(7), digests={7: SAID["b"]})
        assert await world.store.ingested(other, [7]) == [Ingested(7, SAID["b"], 2)]

    async def test_a_refused_append_makes_no_id_known(self, world: World) -> None:
        execution_id = await world.create()
        with pytest.raises(Conflict):
            await world.add(execution_id, 5, told(7), digests={7: SAID["a"]})
        assert await world.store.ingested(execution_id, [7]) == []

    async def test_after_the_terminal_event_too(self, world: World) -> None:
        execution_id = await world.create(event("playbook.finished"), now=DONE)
        await world.add(execution_id, 1, told(7), now=DONE, digests={7: SAID["a"]})
        assert await world.store.ingested(execution_id, [7]) == [Ingested(7, SAID["a"], 2)]

    async def test_a_digest_without_its_event_is_refused(self, world: World) -> None:
        execution_id = await world.create()
        for events in ((told(8),), (told(7), told(7))):
            with pytest.raises(InvariantBroken):
                await world.add(execution_id, 1, *events, digests={7: SAID["a"]})
        assert await world.head(execution_id) == 1

    async def test_many_ids_at_once(self, world: World) -> None:
        execution_id = await world.create()
        many = range(1, 3001)
        await world.add(execution_id, 1, *map(told, many), digests=dict.fromkeys(many, SAID["a"]))
        found = await world.store.ingested(execution_id, [*many, 5000])
        assert [(each.event_id, each.seq) for each in found] == [(number, number + 1) for number in many]

    async def test_an_execution_is_found_by_its_run_id(self, world: World) -> None:
        first = await world.create(new=replace(world.new(), run_id="a-1"))
        second = await world.create(new=replace(world.new(), run_id="a-2"))
        found = [await world.store.by_run_id(run_id) for run_id in ("a-1", "a-2", "a", "")]
        assert [each and each.execution_id for each in found] == [first, second, None, None]
