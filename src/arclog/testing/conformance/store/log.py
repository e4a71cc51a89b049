"""Rules of `append`: compare-and-set, atomicity, gapless seq, one terminal event, idempotency keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arclog.model.errors import Conflict, EventTooLarge, InvariantBroken, RequestRejected, StoreUnavailable
from arclog.model.events import Event
from arclog.model.ids import compose
from arclog.ports.storage.marks import Crash
from arclog.ports.storage.store import (
    Append,
    Appended,
    EventIdTaken,
    ExecutionState,
    Grant,
    Ingested,
    Scope,
    TerminalExists,
    Timer,
)
from arclog.testing.conformance.store.base import DONE, RUNNING, SCOPE, Rules, World, command, event, seqs

# ── log ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Marks:
    """Records marks instead of keeping them."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.slots: set[int] = set()

    def begin(self, slot: int, *marks: tuple[int, int]) -> None:
        self.begun += marks
        self.slots.add(slot)

    def end(self, slot: int) -> None:
        self.slots.discard(slot)

    def crashes(self) -> list[Crash]:
        return []

    def left(self) -> list[tuple[int, int]]:
        return []

    def dead(self) -> list[str]:
        return []

    def judged(self) -> None: ...
    def save(self, crashes: Sequence[Crash]) -> None: ...


class LogRules(Rules):
    async def test_an_append_has_its_mark_while_it_is_encoded(self, world: World) -> None:
        marks = _Marks()
        await world.store.keep_marks(marks)
        first = await world.create(marks=[(-5, 11), (-5, 12)])
        await world.add(first, 1, event("step.scheduled", "a", 1))
        assert set(marks.begun) == {(-5, 11), (-5, 12)}, "an append without a mark writes none"
        second = await world.create()
        await world.store.append_all(
            [
                world.change(run, head, event("workflow.started"), marks=[(run, 3)])
                for run, head in ((first, 2), (second, 1))
            ]
        )
        assert set(marks.begun) == {(-5, 11), (-5, 12), (first, 3), (second, 3)}
        large = event("step.scheduled", "b", 1, payload={"args": {"a": "x" * 9000}})
        with pytest.raises(EventTooLarge):
            await world.store.append(world.change(first, 3, large, marks=[(first, 4)], max_event_bytes=1000))
        assert marks.begun[-1] == (first, 4)
        assert marks.slots == set(), "no mark is left"

    async def test_an_append_answers_with_its_seqs_and_the_stores_time(self, world: World) -> None:
        execution_id = await world.create(event("playbook.started"), event("workflow.started"))
        world.clock.advance(5)
        appended = await world.add(execution_id, 2, event("step.scheduled", "a", 1))
        assert appended == Appended(3, 3, world.clock.now(), appended.decoded_bytes)
        assert [event.persisted_at for event in await world.store.events(execution_id, after=2)] == [world.clock.now()]
        larger = await world.add(execution_id, 3, event("step.scheduled", "b", 1, payload={"args": {"a": "x" * 9000}}))
        assert larger.decoded_bytes - appended.decoded_bytes >= 9000, "it says what its events take in memory"

    async def test_the_record_holds_what_was_handed_in(self, world: World) -> None:
        new = world.new(key="k")
        now = ExecutionState("RUNNING", "a", 5, 6, "playbook.finished", True, "böse: \x00 \U0001f600")
        execution_id = await world.create(new=new, now=now)
        record = await world.store.execution(execution_id)
        assert record is not None
        assert (record.execution_id, record.head, record.new, record.now) == (execution_id, 1, new, now)
        await world.add(execution_id, 1, event("playbook.started"), now=ExecutionState("PENDING"))
        record = await world.store.execution(execution_id)
        assert record is not None
        assert (record.head, record.new, record.now) == (2, new, ExecutionState("PENDING"))

    async def test_an_unknown_execution_has_no_record(self, world: World) -> None:
        assert await world.store.execution(5) is None
        assert await world.store.events(5) == []
        assert await world.store.step_runs(5) == []
        assert await world.store.commands(5) == []

    @pytest.mark.parametrize("expected", [1, 2, 4, 100])
    async def test_a_wrong_head_is_a_conflict(self, world: World, expected: int) -> None:
        execution_id = await world.create(event("playbook.started"), event("workflow.started"), event("loop.started"))
        with pytest.raises(Conflict):
            await world.add(execution_id, expected, event("step.scheduled", "a", 1))
        assert await world.head(execution_id) == 3

    async def test_an_execution_is_created_once(self, world: World) -> None:
        execution_id = await world.create()
        again = Append(execution_id, 0, [event("playbook.started")], world.ids(), RUNNING, world.new())
        with pytest.raises(Conflict):
            await world.store.append(again)
        assert await world.head(execution_id) == 1

    async def test_an_append_to_nothing_is_a_conflict(self, world: World) -> None:
        with pytest.raises(Conflict):
            await world.add(world.ids(), 3, event("playbook.started"))

    async def test_the_first_append_and_no_other_brings_the_record(self, world: World) -> None:
        execution_id = await world.create()
        with pytest.raises(InvariantBroken):
            await world.add(execution_id, 1, event("playbook.started"), new=world.new())
        with pytest.raises(InvariantBroken):
            await world.add(world.ids(), 0, event("playbook.started"))

    async def test_an_event_above_the_limit_of_its_append_is_refused(self, world: World) -> None:
        execution_id = await world.create()
        before = await world.everything(execution_id)
        small, large = (event("signal.received", payload={"data": "x" * size}) for size in (3_000, 5_000))
        with pytest.raises(EventTooLarge, match=r"signal.received takes 5\d\d\d bytes; an event holds 4096"):
            await world.add(execution_id, 1, small, large, max_event_bytes=4096)
        assert await world.everything(execution_id) == before
        await world.add(execution_id, 1, small, small, max_event_bytes=4096)
        await world.add(execution_id, 3, large)
        assert await world.head(execution_id) == 4

    async def test_a_type_outside_the_registry_is_refused(self, world: World) -> None:
        execution_id = await world.create()
        with pytest.raises(RequestRejected):
            await world.add(execution_id, 1, event("step.exploded"))
        assert await world.head(execution_id) == 1

    async def test_a_refused_append_changes_nothing(self, world: World) -> None:
        held = world.ids()
        execution_id = await world.create(
            event("step.scheduled", "a", 1),
            issue=[command(held, grant=Grant("w", 50, (1, 1, 1)))],
            set_timers=[Timer(0, "t", 5)],
        )
        before = await world.everything(execution_id)
        for expected in (2, 9):
            with pytest.raises(Conflict):
                await world.add(
                    execution_id,
                    expected,
                    event("playbook.started"),
                    event("step.done", "a", 1),
                    event("playbook.finished"),
                    now=DONE,
                    issue=[command(world.ids())],
                    close=[held],
                    release=[held],
                    extend=[(held, 1, 99)],
                    set_timers=[Timer(execution_id, "u", 1)],
                    clear_timers=["t"],
                )
        assert await world.everything(execution_id) == before

    async def test_an_append_that_cannot_be_stored_changes_nothing(self, world: World) -> None:
        taken = world.ids()
        execution_id = await world.create(event("playbook.started"), issue=[command(taken)])
        before = await world.everything(execution_id)
        with pytest.raises(InvariantBroken):
            await world.add(execution_id, 1, event("playbook.started"), issue=[command(world.ids()), command(taken)])
        with pytest.raises(RequestRejected):
            await world.add(execution_id, 1, event("task.done", "a", 1, payload={"x": object()}))
        with pytest.raises(RequestRejected):
            await world.add(
                execution_id, 1, event("timer.fired"), set_timers=[Timer(execution_id, "t", 1, {"x": object()})]
            )
        assert await world.everything(execution_id) == before

    async def test_others_of_the_same_moment_stand_when_one_cannot_be_stored(self, world: World) -> None:
        taken = world.ids()
        first = await world.create(issue=[command(taken)])
        others = [await world.create() for _ in range(3)]
        bad = world.change(first, 1, event("playbook.started"), issue=[command(taken)])
        good = [world.change(other, 1, event("playbook.started")) for other in others]
        results = await asyncio.gather(
            *(world.store.append(new) for new in [good[0], bad, *good[1:]]), return_exceptions=True
        )
        assert [type(result) for result in results] == [Appended, InvariantBroken, Appended, Appended]
        assert [await world.head(execution_id) for execution_id in [first, *others]] == [1, 2, 2, 2]

    async def test_an_append_without_events_checks_the_head_and_keeps_it(self, world: World) -> None:
        execution_id = await world.create()
        work = world.ids()
        assert (await world.add(execution_id, 1, issue=[command(work)])).last_seq == 1
        with pytest.raises(Conflict):
            await world.add(execution_id, 2, close=[work])
        assert [command.command_id for command in await world.store.commands(execution_id)] == [work]

    async def test_appends_handed_in_without_waiting_keep_their_order(self, world: World) -> None:
        execution_id = await world.create()
        appends = [world.change(execution_id, 1 + i, event("task.started", "a", 1, attempt=i)) for i in range(50)]
        answers = await asyncio.gather(*(world.store.append(new) for new in appends))
        assert [answer.first_seq for answer in answers] == list(range(2, 52))
        stored = await world.store.events(execution_id, after=1)
        assert [stored_event.event.attempt for stored_event in stored] == list(range(50))

    async def test_appends_after_a_failed_append_fail_as_well(self, world: World) -> None:
        execution_id = await world.create()
        appends = [
            world.change(execution_id, 1, event("playbook.started")),
            world.change(execution_id, 1, event("workflow.started"), event("task.started")),  # lost the race
            world.change(execution_id, 3, event("task.started")),
            world.change(execution_id, 4, event("task.done")),
        ]
        answers = await asyncio.gather(*(world.store.append(new) for new in appends), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Appended, Conflict, Conflict, Conflict]
        assert await world.head(execution_id) == 2

    # -- terminal -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("second", ["playbook.finished", "execution.cancelled"])
    async def test_a_second_terminal_event_is_refused_whatever_the_head(self, world: World, second: str) -> None:
        execution_id = await world.create(event("playbook.started"))
        await world.add(execution_id, 1, event("playbook.finished"), now=DONE)
        before = await world.everything(execution_id)
        for expected in (2, 1, 7):
            with pytest.raises(TerminalExists):
                await world.add(execution_id, expected, event(second))
        assert await world.everything(execution_id) == before

    async def test_two_terminal_events_in_one_append_are_refused(self, world: World) -> None:
        execution_id = await world.create()
        with pytest.raises(InvariantBroken):
            await world.add(execution_id, 1, event("execution.cancelled"), event("playbook.finished"))
        assert await world.head(execution_id) == 1

    async def test_an_execution_may_end_with_its_first_append(self, world: World) -> None:
        execution_id = await world.create(event("playbook.execution.requested"), event("playbook.finished"), now=DONE)
        with pytest.raises(TerminalExists):
            await world.add(execution_id, 2, event("playbook.finished"))

    async def test_other_events_may_follow_the_terminal_one(self, world: World) -> None:
        execution_id = await world.create(event("playbook.finished"), now=DONE)
        await world.add(execution_id, 1, event("playbook.processed"), now=DONE)
        await world.add(execution_id, 2, event("playbook.finished", informative=True), now=DONE)
        assert seqs(await world.store.events(execution_id)) == [1, 2, 3]

    async def test_an_informative_terminal_event_ends_nothing(self, world: World) -> None:
        work = world.ids()
        execution_id = await world.create(issue=[command(work)])
        await world.add(execution_id, 1, event("playbook.finished", informative=True))
        assert [command.command_id for command in await world.store.commands(execution_id)] == [work]
        await world.add(execution_id, 2, event("playbook.finished"), now=DONE)
        assert await world.head(execution_id) == 3

    async def test_the_terminal_event_removes_open_work(self, world: World) -> None:
        execution_id = await world.create(
            issue=[command(world.ids()), command(world.ids())], set_timers=[Timer(0, "t", 5)]
        )
        other = await world.create(issue=[command(world.ids())], set_timers=[Timer(0, "t", 6)])
        await world.add(execution_id, 1, event("execution.cancelled"), now=DONE, issue=[command(world.ids())])
        assert await world.store.commands(execution_id) == []
        assert len(await world.store.commands(other)) == 1
        assert await world.store.next_due() == 6

    # -- idempotency keys ---------------------------------------------------------------------------------------------

    async def test_a_key_starts_one_execution_per_scope(self, world: World) -> None:
        first = await world.create(new=world.new("k"))
        with pytest.raises(Conflict):
            await world.create(new=world.new("k"))
        other = await world.create(new=world.new("k", Scope("acme", "shop", "live")))
        records = [await world.store.by_idempotency_key(scope, "k") for scope in (SCOPE, Scope("acme", "shop", "live"))]
        assert [record and record.execution_id for record in records] == [first, other]
        assert await world.store.by_idempotency_key(SCOPE, "unknown") is None

    async def test_no_key_is_no_key(self, world: World) -> None:
        await world.create()
        await world.create()
        assert await world.store.by_idempotency_key(SCOPE, "") is None

    # -- life ---------------------------------------------------------------------------------------------------------

    async def test_what_was_committed_is_there_after_a_restart(self, world: World) -> None:
        execution_id = await world.create(
            event("playbook.started"), issue=[command(world.ids())], set_timers=[Timer(0, "t", 5)]
        )
        before = await world.everything(execution_id)
        await world.store.close()
        await world.store.open()
        assert await world.everything(execution_id) == before
        await world.add(execution_id, 1, event("workflow.started"))

    async def test_closing_finishes_what_was_handed_in(self, world: World) -> None:
        execution_id = await world.create()
        handed_in = [
            asyncio.ensure_future(world.add(execution_id, 1 + i, event("task.started", "a", 1))) for i in range(20)
        ]
        await asyncio.sleep(0)
        await world.store.close()
        assert [appended.last_seq for appended in await asyncio.gather(*handed_in)] == list(range(2, 22))
        await world.store.open()
        assert await world.head(execution_id) == 21

    async def test_a_closed_store_raises(self, world: World) -> None:
        execution_id = await world.create()
        await world.store.close()
        calls: list[Any] = [
            world.add(execution_id, 1, event("playbook.started")),
            world.store.execution(execution_id),
            world.store.events(execution_id),
        ]
        for call in calls:
            with pytest.raises(StoreUnavailable):
                await call
        await world.store.close()  # twice is fine
        await world.store.open()

    async def test_a_cancelled_caller_leaves_the_store_in_order(self, world: World) -> None:
        execution_id = await world.create()
        task = asyncio.ensure_future(world.add(execution_id, 1, event("playbook.started")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.create()  # every earlier append has now been written completely, or not at all
        head = await world.head(execution_id)
        assert seqs(await world.store.events(execution_id)) == list(range(1, head + 1))
        await world.add(execution_id, head, event("workflow.started"))


# ── ingested ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of events from outside: an execution has an id of theirs at most once, and their digest is stored with the append.

DIGESTS = {name: f"{number:x}" * 64 for number, name in enumerate("abc", 1)}


def ingested_event(own_id: int) -> Event:
    return event("batch.completed", informative=True, own_id=own_id)


class IngestedRules(Rules):
    async def test_an_id_from_outside_is_known_with_its_append(self, world: World) -> None:
        execution_id, other = await world.create(), await world.create()
        assert await world.store.ingested(execution_id, [7]) == []
        await world.add(
            execution_id,
            1,
            event("playbook.started"),
            ingested_event(7),
            ingested_event(9),
            digests={7: DIGESTS["a"], 9: DIGESTS["b"]},
        )
        seven, nine = Ingested(7, DIGESTS["a"], 3), Ingested(9, DIGESTS["b"], 4)
        assert await world.store.ingested(execution_id, [9, 8, 7]) == [seven, nine]
        assert await world.store.ingested(execution_id, [9]) == [nine]
        assert await world.store.ingested(execution_id, []) == []
        assert await world.store.ingested(other, [7]) == []
        assert [event.event_id for event in await world.store.events(execution_id, after=2)] == [7, 9]

    async def test_an_id_of_our_own_is_known_for_one(self, world: World) -> None:
        now = world.clock.now()
        node = await world.store.lease_node("a server", now, now + 1)
        base = compose(now // 1000, node, 5)
        execution_id, other = await world.create(), await world.create()
        first = [event("playbook.started"), event("workflow.started"), event("step.scheduled", step="a", run=1)]
        await world.store.append(replace(world.change(execution_id, 1, *first), base_id=base))
        ids = [base - 1, base, base + 2, base + 3, base + 4096]
        assert await world.store.ingested(execution_id, ids) == [Ingested(base, "", 2), Ingested(base + 2, "", 4)]
        assert await world.store.ingested(other, ids) == []

    async def test_an_id_is_in_an_execution_once(self, world: World) -> None:
        execution_id, other = await world.create(), await world.create()
        await world.add(execution_id, 1, ingested_event(7), digests={7: DIGESTS["a"]})
        before = await world.everything(execution_id)
        for label in "ab":
            with pytest.raises(EventIdTaken):
                await world.add(
                    execution_id, 2, ingested_event(8), ingested_event(7), digests={8: DIGESTS["c"], 7: DIGESTS[label]}
                )
        assert await world.everything(execution_id) == before
        assert await world.store.ingested(execution_id, [8]) == []
        await world.add(other, 1, ingested_event(7), digests={7: DIGESTS["b"]})
        assert await world.store.ingested(other, [7]) == [Ingested(7, DIGESTS["b"], 2)]

    async def test_a_refused_append_makes_no_id_known(self, world: World) -> None:
        execution_id = await world.create()
        with pytest.raises(Conflict):
            await world.add(execution_id, 5, ingested_event(7), digests={7: DIGESTS["a"]})
        assert await world.store.ingested(execution_id, [7]) == []

    async def test_after_the_terminal_event_too(self, world: World) -> None:
        execution_id = await world.create(event("playbook.finished"), now=DONE)
        await world.add(execution_id, 1, ingested_event(7), now=DONE, digests={7: DIGESTS["a"]})
        assert await world.store.ingested(execution_id, [7]) == [Ingested(7, DIGESTS["a"], 2)]

    async def test_a_digest_without_its_event_is_refused(self, world: World) -> None:
        execution_id = await world.create()
        for events in ((ingested_event(8),), (ingested_event(7), ingested_event(7))):
            with pytest.raises(InvariantBroken):
                await world.add(execution_id, 1, *events, digests={7: DIGESTS["a"]})
        assert await world.head(execution_id) == 1

    async def test_many_ids_at_once(self, world: World) -> None:
        execution_id = await world.create()
        many = range(1, 3001)
        await world.add(execution_id, 1, *map(ingested_event, many), digests=dict.fromkeys(many, DIGESTS["a"]))
        ingested = await world.store.ingested(execution_id, [*many, 5000])
        assert [(record.event_id, record.seq) for record in ingested] == [(number, number + 1) for number in many]

    async def test_an_execution_is_found_by_its_run_id(self, world: World) -> None:
        first = await world.create(new=replace(world.new(), run_id="a-1"))
        second = await world.create(new=replace(world.new(), run_id="a-2"))
        records = [await world.store.by_run_id(run_id) for run_id in ("a-1", "a-2", "a", "")]
        assert [record and record.execution_id for record in records] == [first, second, None, None]


# ── payloads ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of content: any JSON is read back unchanged.

_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
_LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
_JSON = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXT, inner, max_size=5))

#: the rules are inherited by each store's own class, and the store lives through all examples: both are meant
_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]

_LISTED: list[Any] = [
    {"nul": "a\x00b", "\x00": 1, "": None},
    {"lone": "\ud800", "\udfff": ["\udc80 ü"], "pair": "\U0001f600"},
    {"ints": [2**63 - 1, -(2**63), 2**63, 2**64, -(2**63) - 1, 10**300]},
    {"floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e22, 123456789.123456789]},
    {"long": "ü" * 300_000},
    {"text": '"\\/\b\f\n\r\t\u2028\u2029\x7f'},
    {"many": {str(n): n for n in range(5000)}},
]


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for n in range(levels):
        value = [value] if n % 2 else {"k": value}
    return value


class PayloadRules(Rules):
    @given(payload=st.dictionaries(_TEXT, _JSON, max_size=5))
    @settings(max_examples=60, deadline=None, suppress_health_check=_SHARED)
    async def test_any_payload_comes_back(self, world: World, payload: dict[str, Any]) -> None:
        await _check(world, payload)

    @pytest.mark.parametrize("payload", _LISTED, ids=lambda payload: next(iter(payload)))
    async def test_odd_payloads_come_back(self, world: World, payload: dict[str, Any]) -> None:
        await _check(world, payload)

    async def test_deep_payloads_come_back(self, world: World) -> None:
        await _check(world, {"deep": deep(200)})

    async def test_one_odd_payload_among_many_events(self, world: World) -> None:
        events = [event("task.done", "a", 1, payload={"n": n}) for n in range(600)]
        events[300] = event("task.done", "a", 1, payload={"x": "\ud800"})
        execution_id = await world.create(*events)
        assert [stored.event for stored in await world.store.events(execution_id)] == events


async def _check(world: World, payload: dict[str, Any]) -> None:
    execution_id = await world.create(event("task.done", payload=payload), set_timers=[Timer(0, "t", 1, payload)])
    (stored,) = await world.store.events(execution_id)
    assert repr(stored.event.payload) == repr(payload)  # distinguishes 1 from 1.0 and True, 0.0 from -0.0
    timers = await world.store.due_timers(1, limit=100_000)
    assert repr([timer.payload for timer in timers if timer.execution_id == execution_id]) == repr([payload])
