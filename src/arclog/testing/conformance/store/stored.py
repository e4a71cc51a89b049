"""Rules of results stored outside the log: known with the append that says so, found, listed, let go."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from arclog.model.errors import Conflict, RequestRejected
from arclog.model.events import Event
from arclog.model.refs import ref_text
from arclog.ports.storage.store import Scope
from arclog.ports.storage.stored_results import ResultRecord
from arclog.testing.conformance.store.base import DONE, SECOND, Rules, World, event

SHA = {name: f"{number:x}" * 64 for number, name in enumerate("abcdef", 1)}


def saying(execution_id: int, name: str, content: str, **more: Any) -> Event:
    """An event that says that content was stored."""
    kind = more.pop("kind", "result.stored")
    informative = more.pop("informative", False)
    meta = {"bytes": 70_000, "sha256": SHA[content], "rows": more.pop("rows", None)}
    ref = {"kind": "data", "store": "files", "ref": ref_text(execution_id, name, SHA[content]), "meta": meta}
    payload = {"result_ref": ref, "preview": "…", **more}
    return Event(kind, 1_000, "s", 2, task="t", informative=informative, payload=payload)


def names(records: list[ResultRecord]) -> list[tuple[int, str, str]]:
    return [(each.execution_id, each.name, next(key for key in SHA if SHA[key] == each.sha256)) for each in records]


class StoredRules(Rules):
    async def test_a_stored_result_is_known_with_its_append(self, world: World) -> None:
        execution_id = await world.create()
        world.clock.advance(5)
        done = await world.add(
            execution_id, 1, event("task.started"), saying(execution_id, "s.t", "a", rows=3, ttl_s=60)
        )
        found = await world.store.result(execution_id, "s.t", SHA["a"])
        at = done.persisted_at
        assert found == ResultRecord(
            execution_id, "s.t", SHA["a"], 70_000, 3, "application/json", "acme", "execution", at, at + 60 * SECOND,
            "s", 2, "t", 3,
        )  # fmt: skip
        assert await world.store.results(execution_id) == [found]
        assert await world.store.result(execution_id, "s.t", SHA["b"]) is None
        assert await world.store.result(execution_id, "s.u", SHA["a"]) is None
        assert await world.store.result(execution_id + 1, "s.t", SHA["a"]) is None

    async def test_with_the_first_append_too(self, world: World) -> None:
        execution_id = world.ids() + 1
        await world.create(event("playbook.execution.requested"), saying(execution_id, "s.t", "a"))
        assert names(await world.store.results(execution_id)) == [(execution_id, "s.t", "a")]

    async def test_a_refused_append_leaves_nothing(self, world: World) -> None:
        execution_id = await world.create()
        with pytest.raises(Conflict):
            await world.add(execution_id, 7, saying(execution_id, "s.t", "a"))
        assert await world.store.results(execution_id) == []

    async def test_informative_events_do_not_count(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(
            execution_id,
            1,
            saying(execution_id, "s.results", "a"),
            saying(execution_id, "s.t", "b", informative=True),
        )
        assert names(await world.store.results(execution_id)) == [(execution_id, "s.results", "a")]

    async def test_what_is_not_its_own_is_refused(self, world: World) -> None:
        execution_id = await world.create()
        other = await world.create()
        lying = saying(execution_id, "s.t", "a")
        lying.payload["result_ref"]["meta"]["sha256"] = SHA["b"]
        nowhere = saying(execution_id, "s.t", "a")
        nowhere.payload["result_ref"]["ref"] = "noetl://execution/../../etc/passwd"
        for odd in (
            saying(other, "s.t", "a"),
            lying,
            nowhere,
            saying(execution_id, "s.t", "a", scope="galaxy"),
            saying(execution_id, "s.t", "a", ttl_s="soon"),
            saying(execution_id, "s.t", "a", ttl_s=-1),
            saying(execution_id, "s.t", "a", ttl_s=float("inf")),
            event("result.stored", payload={}),
        ):
            with pytest.raises(RequestRejected):
                await world.add(execution_id, 1, odd)
        assert await world.head(execution_id) == 1
        assert await world.store.results(execution_id) == []

    async def test_results_are_listed_in_order_of_their_events(self, world: World) -> None:
        execution_id = await world.create()
        for head, (name, content) in enumerate([("z", "a"), ("a", "b"), ("m", "a"), ("a", "c")], 1):
            await world.add(execution_id, head, saying(execution_id, name, content))
        listed = await world.store.results(execution_id)
        assert [each.name for each in listed] == ["z", "a", "m", "a"]
        assert await world.store.results(execution_id, after=listed[0].seq, limit=2) == listed[1:3]

    async def test_the_same_content_again_is_one_record_with_the_longer_life(self, world: World) -> None:
        execution_id = await world.create()
        head = 1
        lives: list[tuple[str, int | None]] = []
        for scope, ttl in (("workflow", 100), ("step", 20), ("step", 500), ("permanent", None), ("execution", 1)):
            more = {} if ttl is None else {"ttl_s": ttl}
            at = (
                await world.add(execution_id, head, saying(execution_id, "s.t", "a", scope=scope, **more))
            ).persisted_at
            head += 1
            (found,) = await world.store.results(execution_id)
            assert (found.stored_at, found.seq) == (at, head)
            lives.append((found.scope, None if found.expires_at is None else (found.expires_at - at) // SECOND))
            world.clock.advance(1)
        # the first ttl still counts from when it was stored first
        assert lives == [
            ("workflow", 100),
            ("workflow", 99),
            ("workflow", 500),
            ("permanent", None),
            ("permanent", None),
        ]

    async def test_all_that_is_kept_is_paged(self, world: World) -> None:
        first, second = await world.create(), await world.create()
        await world.add(first, 1, saying(first, "b", "b"), saying(first, "b", "a"), saying(first, "a", "c"))
        await world.add(second, 1, saying(second, "a", "a"))
        everything = [(first, "a", "c"), (first, "b", "a"), (first, "b", "b"), (second, "a", "a")]
        assert names(await world.store.kept_results()) == everything
        seen: list[tuple[int, str, str]] = []
        after = (0, "", "")
        while page := await world.store.kept_results(after=after, limit=2):
            seen += names(page)
            after = (page[-1].execution_id, page[-1].name, page[-1].sha256)
        assert seen == everything

    async def test_who_keeps_some_content(self, world: World) -> None:
        first, second = await world.create(), await world.create()
        foreign = await world.create(new=world.new(scope=Scope("other", "p", "e")))
        for each in (first, second, foreign):
            await world.add(each, 1, saying(each, "x", "a"), saying(each, "y", "a"), saying(each, "y", "b"))
        found = await world.store.keepers("acme", SHA["a"])
        assert names(found) == [(first, "x", "a"), (first, "y", "a"), (second, "x", "a"), (second, "y", "a")]
        assert await world.store.keepers("acme", SHA["a"], after=(first, "y"), limit=1) == found[2:3]
        assert names(await world.store.keepers("other", SHA["b"])) == [(foreign, "y", "b")]
        assert await world.store.keepers("nobody", SHA["a"]) == []
        assert await world.store.keepers("acme", SHA["c"]) == []

    async def test_what_is_removed_is_known_and_no_longer_kept(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, saying(execution_id, "x", "a"), saying(execution_id, "y", "a"))
        x, y = await world.store.results(execution_id)
        assert await world.store.remove_results([x], 77) == 1
        assert await world.store.remove_results([x], 99) == 0
        assert await world.store.results(execution_id) == [replace(x, removed_at=77), y]
        assert await world.store.kept_results() == [y]
        assert await world.store.keepers("acme", SHA["a"]) == [y]
        assert await world.store.remove_results([], 99) == 0

    async def test_what_was_stored_again_meanwhile_is_not_removed(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, saying(execution_id, "x", "a", scope="permanent"))
        (seen,) = await world.store.results(execution_id)
        await world.add(execution_id, 2, saying(execution_id, "x", "a"))
        assert await world.store.remove_results([seen], 77) == 0
        (now,) = await world.store.results(execution_id)
        assert await world.store.remove_results([now], 77) == 1
        # stored once more after its removal, it lives the life that it is given now
        await world.add(execution_id, 3, saying(execution_id, "x", "a", scope="step", ttl_s=1))
        (again,) = await world.store.results(execution_id)
        assert (again.removed_at, again.scope) == (None, "step")
        assert again.expires_at is not None

    async def test_results_outlive_their_execution(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, saying(execution_id, "x", "a"), event("playbook.finished"), now=DONE)
        assert names(await world.store.kept_results()) == [(execution_id, "x", "a")]
