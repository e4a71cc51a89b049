"""Rules of searching: events across executions by type, time and scope, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from arclog.model.config.settings import Settings
from arclog.model.errors import RequestRejected
from arclog.ports.storage.store import EventQuery, Scope
from arclog.ports.storage.task_logs import ANY_LINE, LOG_CUT, PROGRESS_KEPT, LogFilter, LogLine, log_size
from arclog.testing.conformance.store.base import DONE, MakeStore, Rules, World, event
from arclog.testing.virtual import FakeClock

# ── searching ─────────────────────────────────────────────────────────────────────────────────────────────────────────

#: types with marks, types without, and both
TYPES = [
    ("task.failed",),
    ("step.failed", "task.failed", "playbook.finished"),
    ("task.done",),
    ("task.done", "task.failed"),
]

Place = tuple[int, int]


async def pages(world: World, query: EventQuery, limit: int, cursor: str = "") -> list[list[Place]]:
    """Return (execution_id, seq) of the events on all pages."""
    places: list[list[Place]] = []
    while True:
        page = await world.store.search(query, cursor=cursor, limit=limit)
        assert len(page.events) <= limit
        places.append([(event.execution_id, event.seq) for event in page.events])
        if not page.more:
            return places
        assert page.cursor != cursor, "a page that leads nowhere"
        cursor = page.cursor


async def all_of(world: World, limit: int = 7, **which: Any) -> list[Place]:
    return [place for page in await pages(world, EventQuery(**which), limit) for place in page]


async def _filled(world: World, runs: int = 5) -> tuple[dict[str, list[Place]], list[int]]:
    """Create concurrent runs. Return the places of the events of each type, in the order in which they were persisted,
    and the times.
    """
    ids = [await world.create(event("playbook.execution.requested")) for _ in range(runs)]
    where: dict[str, list[Place]] = {}
    times: list[int] = []
    names = ("task.started", "task.done", "task.failed", "step.failed", "task.done")
    for turn in range(4):
        for execution_id in ids:
            world.clock.advance(1)
            head = await world.head(execution_id)
            events = [event(name, "a", 1) for name in names[: 2 + turn]]
            appended = await world.add(execution_id, head, *events)
            times.append(appended.persisted_at)
            for index, new_event in enumerate(events, head + 1):
                where.setdefault(new_event.type, []).append((execution_id, index))
    for execution_id in ids[:2]:
        world.clock.advance(1)
        head = await world.head(execution_id)
        times.append((await world.add(execution_id, head, event("playbook.finished"), now=DONE)).persisted_at)
        where.setdefault("playbook.finished", []).append((execution_id, head + 1))
    return where, times


class SearchRules(Rules):
    @pytest.mark.parametrize("types", TYPES, ids=" ".join)
    @pytest.mark.parametrize("limit", [1, 3, 100])
    async def test_events_of_types_are_found_once_and_in_order(
        self, world: World, types: tuple[str, ...], limit: int
    ) -> None:
        where, _ = await _filled(world)
        places = await all_of(world, limit, types=types)
        assert sorted(places) == sorted(place for name in types for place in where[name])
        moments = [await _persisted(world, place) for place in places]
        assert moments == sorted(moments)
        if len(types) == 1:
            assert places == where[types[0]]

    async def test_without_types_everything_is_found(self, world: World) -> None:
        where, _ = await _filled(world)
        places = await all_of(world)
        assert len(places) == 5 + sum(map(len, where.values()))
        assert len(set(places)) == len(places)
        assert await all_of(world, types=("step.exploded",)) == []

    @pytest.mark.parametrize("types", TYPES, ids=" ".join)
    async def test_since_is_included_and_until_is_not(self, world: World, types: tuple[str, ...]) -> None:
        _, times = await _filled(world)
        everything = await all_of(world, types=types)
        moments = {place: await _persisted(world, place) for place in everything}
        for since, until in ((times[3], times[-3]), (times[0], times[0]), (times[-1], times[-1] + 1), (0, times[5])):
            places = await all_of(world, types=types, since=since, until=until)
            assert places == [place for place in everything if since <= moments[place] < until]
        assert await all_of(world, types=types, since=times[-1] + 1) == []

    @pytest.mark.parametrize("types", TYPES, ids=" ".join)
    async def test_a_search_keeps_to_its_scope(self, world: World, types: tuple[str, ...]) -> None:
        scopes = [Scope(*parts) for parts in (("t1", "p", "e"), ("t1", "p", "f"), ("t1", "q", "e"), ("t2", "p", "e"))]
        runs = {scope: await world.create(new=world.new(scope=scope)) for scope in scopes}
        for run in runs.values():
            await world.add(run, 1, *[event(name, "a", 1) for name in types if name != "playbook.finished"])

        async def owners(**where: Any) -> set[int]:
            return {execution_id for execution_id, _ in await all_of(world, types=types, **where)}

        assert await owners(tenant="t1") == {runs[scope] for scope in scopes[:3]}
        assert await owners(tenant="t1", project="p") == {runs[scopes[0]], runs[scopes[1]]}
        assert await owners(tenant="t1", environment="e") == {runs[scopes[0]], runs[scopes[2]]}
        assert await owners(tenant="t1", project="p", environment="f") == {runs[scopes[1]]}
        assert await owners(tenant="nobody") == set()
        assert len(await owners()) == 4

    async def test_informative_events_are_found_when_they_are_asked_for(self, world: World) -> None:
        execution_id = await world.create()
        mine = event("task.failed", "a", 1)
        await world.add(
            execution_id, 1, mine, event("task.failed", "a", 1, informative=True), event("task.done", "a", 1)
        )
        assert await all_of(world, types=("task.failed",)) == [(execution_id, 2)]
        assert await all_of(world, types=("task.failed",), informative=True) == [(execution_id, 2), (execution_id, 3)]
        assert (execution_id, 3) not in await all_of(world)

    async def test_a_long_row_is_cut_by_the_limit(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(execution_id, 1, *[event(("task.done", "task.failed")[n % 2], "a", 1) for n in range(100)])
        for types, first in ((("task.done",), 2), (("task.failed",), 3)):
            expected = [(execution_id, seq) for seq in range(first, 102, 2)]
            assert await all_of(world, 3, types=types) == expected

    async def test_the_cursor_of_the_last_page_goes_on_with_what_comes_later(self, world: World) -> None:
        execution_id = await world.create()
        for types in (("task.failed",), ("task.done",)):
            head = await world.head(execution_id)
            await world.add(execution_id, head, event(types[0], "a", 1))
            page = await world.store.search(EventQuery(types=types))
            world.clock.advance(1)
            await world.add(execution_id, head + 1, event(types[0], "a", 1))
            (later,) = await pages(world, EventQuery(types=types), 10, page.cursor)
            assert later == [(execution_id, head + 2)]

    @pytest.mark.parametrize(
        "cursor", ["x", "m1", "m1-2", "r1-2-3", "m-1-2-3", "m1-2-99999999999999999999", "r1-2;", "m1-2-3-4"]
    )
    async def test_a_cursor_that_is_none_is_refused(self, world: World, cursor: str) -> None:
        for types in (("task.failed",), ("task.done",)):
            with pytest.raises(RequestRejected, match="cursor"):
                await world.store.search(EventQuery(types=types), cursor=cursor)

    async def test_a_cursor_of_another_kind_of_search_is_refused(self, world: World) -> None:
        await _filled(world, 1)
        first = await world.store.search(EventQuery(types=("task.failed",)), limit=1)
        with pytest.raises(RequestRejected, match="other types"):
            await world.store.search(EventQuery(types=("task.done",)), cursor=first.cursor)

    @pytest.mark.parametrize("types", TYPES, ids=" ".join)
    async def test_a_page_looks_at_so_many_rows(self, make_store: MakeStore, types: tuple[str, ...]) -> None:
        clock = FakeClock()
        store = make_store(clock, Settings({"events.search_rows": 3}))
        await store.open()
        world = World(store, clock)
        where, times = await _filled(world)
        rare = await world.create(new=world.new(scope=Scope("rare", "p", "e")))
        await world.add(rare, 1, *[event(name, "a", 1) for name in types if name != "playbook.finished"])
        every = await pages(world, EventQuery(types=types), 100)
        assert len(every) > 3
        places = [place for page in every for place in page if place[0] != rare]
        assert sorted(places) == sorted(place for name in types for place in where[name])
        hits = await pages(world, EventQuery(types=types, tenant="rare"), 100)
        assert hits[0] == []
        assert {execution_id for page in hits for execution_id, _ in page} == {rare}
        late = await pages(world, EventQuery(types=types, since=times[-1]), 100)
        assert len(late) < len(every), "what was before is not looked at"
        await store.close()


async def _persisted(world: World, place: Place) -> int:
    (stored,) = await world.store.events(place[0], after=place[1] - 1, limit=1)
    return stored.persisted_at


# ── task logs ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of task logs: read in pages, searched, capped per execution, with one line of progress per attempt.


def line(text: str, **fields: Any) -> LogLine:
    values: dict[str, Any] = {
        "execution_id": 1,
        "at": 100,
        "step": "s",
        "run": 1,
        "task": "t",
        "task_run": 1,
        "attempt": 1,
        "stream": "stdout",
        "text": text,
    }
    return LogLine(**{**values, **fields})


def progress(done: int, **fields: Any) -> LogLine:
    return line(f'{{"done":{done},"total":null,"unit":""}}', stream="progress", **fields)


ALL = LogFilter(streams=("stdout", "stderr", "log", "progress"))


async def texts(world: World, where: LogFilter = ANY_LINE, execution_id: int = 1) -> list[str]:
    return [line.text for _, line in await world.store.logs(execution_id, where=where)]


class TaskLogRules(Rules):
    async def test_log_lines_are_read_by_position(self, world: World) -> None:
        lines = [
            line(f"line {n}\x00\udc80 ü", execution_id=1 + n % 2, at=n, iteration=(n, 0) if n % 2 else None)
            for n in range(20)
        ]
        await world.store.append_logs(lines[:10])
        await world.store.append_logs([])
        await world.store.append_logs(lines[10:])
        numbered = await world.store.logs(1)
        assert [line for _, line in numbered] == lines[::2]
        assert [line for _, line in await world.store.logs(2)] == lines[1::2]
        assert await world.store.logs(1, after=numbered[2][0], limit=3) == numbered[3:6]
        assert await world.store.logs(3) == []

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            (LogFilter(), [0, 1, 2, 3, 4, 5]),
            (LogFilter(step="b"), [2, 3]),
            (LogFilter(task="u"), [1, 3]),
            (LogFilter(step="b", task="u"), [3]),
            (LogFilter(streams=("stderr", "log")), [1, 3]),
            (LogFilter(streams=("progress",)), [6]),
            (LogFilter(iteration=(1,)), [4]),
            (LogFilter(iteration=(11,)), [5]),
            (LogFilter(iteration=(1, 0)), [4]),
            (LogFilter(iteration=(1, 1)), []),
            (LogFilter(text="rr"), [1, 2]),
            (LogFilter(text="RR"), []),
            (LogFilter(text="%_"), [3]),
            (LogFilter(text="\x00"), [4]),
            (LogFilter(text="\udc80"), [5]),
            (LogFilter(text="ü"), [0]),
            (LogFilter(since=103), [3, 4, 5]),
            (LogFilter(text="nowhere"), []),
        ],
    )
    async def test_lines_are_searched(self, world: World, where: LogFilter, expected: list[int]) -> None:
        lines = [
            line("für", at=100),
            line("error", at=101, task="u", stream="stderr"),
            line("an error", at=102, step="b"),
            line("100%_", at=103, step="b", task="u", stream="log"),
            line("nul \x00 here", at=104, iteration=(1, 0)),
            line("half \udc80", at=105, iteration=(11,)),
            progress(3, at=99),
        ]
        await world.store.append_logs([*lines, line("another's error", execution_id=2)])
        lines_read = [line for _, line in await world.store.logs(1, where=where)]
        assert lines_read == [lines[index] for index in expected]

    async def test_a_search_is_paged(self, world: World) -> None:
        await world.store.append_logs([line(f"{'yes' if n % 3 == 0 else 'no'} {n}") for n in range(100)])
        where = LogFilter(text="yes")
        after, texts = 0, []
        while page := await world.store.logs(1, after=after, limit=7, where=where):
            assert len(page) <= 7
            texts += [line.text for _, line in page]
            after = page[-1][0]
        assert texts == [f"yes {n}" for n in range(0, 100, 3)]

    async def test_only_the_newest_progress_of_an_attempt_is_kept_and_seen_as_new(self, world: World) -> None:
        store = world.store
        await store.append_logs([progress(1), line("between"), progress(2)])
        first = await store.logs(1, where=ALL)
        assert [line.text for _, line in first] == ["between", progress(2).text]
        await store.append_logs([progress(3)])
        [(position, newest)] = await store.logs(1, after=first[-1][0], where=ALL)
        assert newest == progress(3)
        await store.append_logs([progress(4)])  # it was the last line of all: its position is not used again
        [(after, newest)] = await store.logs(1, after=position, where=ALL)
        assert newest == progress(4)
        assert after > position
        assert len(await store.logs(1, where=ALL)) == 2
        assert await texts(world) == ["between"]

    async def test_each_attempt_has_its_own_progress(self, world: World) -> None:
        others: list[dict[str, Any]] = [
            {"execution_id": 2}, {"step": "b"}, {"run": 2}, {"task": "u"}, {"task_run": 2}, {"attempt": 2},
            {"iteration": (0,)}, {"iteration": (0, 1)},
        ]  # fmt: skip
        for fields in [{}, *others]:
            await world.store.append_logs([progress(1, **fields), progress(2, **fields)])
        assert len(await world.store.logs(1, where=ALL)) == len(others)
        assert len(await world.store.logs(2, where=ALL)) == 1

    async def test_the_log_of_an_execution_is_cut_at_its_limit_with_a_mark(self, world: World) -> None:
        store = world.store
        cap = 10 * log_size(line("x" * 9))
        lines = [line(f"{n:09d}") for n in range(15)]
        await store.append_logs(lines[:8], cap)
        await store.append_logs([*lines[8:], line("other", execution_id=2)], cap)
        await store.append_logs([line("late")], cap)
        cut = replace(lines[10], stream="log", text=LOG_CUT.format(max_bytes=cap))
        assert [line for _, line in await store.logs(1)] == [*lines[:10], cut]
        assert await texts(world, execution_id=2) == ["other"]

    async def test_progress_does_not_count_and_goes_on_after_the_cut(self, world: World) -> None:
        store = world.store
        cap = 2 * log_size(line("x" * 100))
        for n in range(9):
            await store.append_logs([progress(n)], cap)
        await store.append_logs([line("x" * 100), line("y" * 100), line("z")], cap)
        await store.append_logs([progress(10), progress(1, attempt=2)], cap)
        assert await texts(world, LogFilter(streams=("progress",))) == [progress(10).text, progress(1).text]
        assert [text[:3] for text in await texts(world)] == ["xxx", "yyy", "log"]

    async def test_an_execution_keeps_its_newest_progress(self, world: World) -> None:
        store = world.store
        await store.append_logs([line("printed"), progress(7, execution_id=2)])
        lines = [progress(n, iteration=(n,)) for n in range(PROGRESS_KEPT + 50)]
        await store.append_logs(lines)
        await store.append_logs([progress(0, iteration=(60,))])
        lines_read = [line for _, line in await store.logs(1, limit=2 * PROGRESS_KEPT, where=ALL)]
        assert lines_read == [line("printed"), *lines[50:60], *lines[61:], progress(0, iteration=(60,))]
        assert len(await store.logs(2, where=ALL)) == 1
