"""Rules of task logs: read in pages, searched, capped per execution, with one line of progress per attempt."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from arclog.ports.storage.task_logs import ANY_LINE, LOG_CUT, PROGRESS_KEPT, LogFilter, LogLine, log_size
from arclog.testing.conformance.store.base import Rules, World


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
    return [each.text for _, each in await world.store.logs(execution_id, where=where)]


class TaskLogRules(Rules):
    async def test_log_lines_are_read_by_position(self, world: World) -> None:
        lines = [
            line(f"line {n}\x00\udc80 ü", execution_id=1 + n % 2, at=n, iteration=(n, 0) if n % 2 else None)
            for n in range(20)
        ]
        await world.store.append_logs(lines[:10])
        await world.store.append_logs([])
        await world.store.append_logs(lines[10:])
        found = await world.store.logs(1)
        assert [each for _, each in found] == lines[::2]
        assert [each for _, each in await world.store.logs(2)] == lines[1::2]
        assert await world.store.logs(1, after=found[2][0], limit=3) == found[3:6]
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
        found = [each for _, each in await world.store.logs(1, where=where)]
        assert found == [lines[index] for index in expected]

    async def test_a_search_is_paged(self, world: World) -> None:
        await world.store.append_logs([line(f"{'yes' if n % 3 == 0 else 'no'} {n}") for n in range(100)])
        where = LogFilter(text="yes")
        after, found = 0, []
        while page := await world.store.logs(1, after=after, limit=7, where=where):
            assert len(page) <= 7
            found += [each.text for _, each in page]
            after = page[-1][0]
        assert found == [f"yes {n}" for n in range(0, 100, 3)]

    async def test_only_the_newest_progress_of_an_attempt_is_kept_and_seen_as_new(self, world: World) -> None:
        store = world.store
        await store.append_logs([progress(1), line("between"), progress(2)])
        first = await store.logs(1, where=ALL)
        assert [each.text for _, each in first] == ["between", progress(2).text]
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

    async def test_an_execution_keeps_so_many_bytes_and_says_when_it_is_cut(self, world: World) -> None:
        store = world.store
        cap = 10 * log_size(line("x" * 9))
        lines = [line(f"{n:09d}") for n in range(15)]
        await store.append_logs(lines[:8], cap)
        await store.append_logs([*lines[8:], line("other", execution_id=2)], cap)
        await store.append_logs([line("late")], cap)
        cut = replace(lines[10], stream="log", text=LOG_CUT.format(max_bytes=cap))
        assert [each for _, each in await store.logs(1)] == [*lines[:10], cut]
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
        found = [each for _, each in await store.logs(1, limit=2 * PROGRESS_KEPT, where=ALL)]
        assert found == [line("printed"), *lines[50:60], *lines[61:], progress(0, iteration=(60,))]
        assert len(await store.logs(2, where=ALL)) == 1
