"""Rules of reading: pages join without a gap, filters hold together, and any moment of a run can be seen again."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from arclog.model.errors import NotFound, RequestRejected
from arclog.ports.storage.task_logs import LogFilter
from arclog.ports.views.api import Api, ExecuteRequest
from arclog.testing.conformance.api.base import HELLO, WAITING, Rules, ended, ended_run, started, until_event

# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_TALKING = """\
metadata: {name: talking}
workflow:
  - step: start
    tool:
      - {name: first, kind: shell, command: 'echo one; echo two; echo "a&b=ü c" 1>&2'}
      - {name: second, kind: shell, command: echo three}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: [a, b], iterator: item}
    tool: {kind: shell, command: [echo, "{{ iter.item }}"]}
"""
_LOOPING = """\
metadata: {name: looping}
workflow:
  - step: start
    loop: {in: [0, 3, 0], iterator: n}
    tool:
      - {name: work, kind: shell, command: 'exit {{ iter.n }}'}
"""
_FAILING = """\
metadata: {name: failing}
workflow:
  - step: start
    tool: {kind: shell, command: exit 3}
"""


class ReadingRules(Rules):
    async def test_pages_of_events_join_to_the_whole_log(self, api: Api) -> None:
        execution_id = await ended_run(api)
        # The event after the end (playbook.processed) is written separately.
        await until_event(api, execution_id, "playbook.processed")
        whole = await api.events(execution_id)
        assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))
        assert {event["execution_id"] for event in whole} == {execution_id}
        pages, after = [], 0
        while page := await api.events(execution_id, after=after, limit=3):
            assert len(page) <= 3
            pages += page
            after = page[-1]["seq"]
        assert pages == whole
        some = await api.events(execution_id, types=("step.done", "playbook.started"))
        assert some == [event for event in whole if event["event_type"] in ("step.done", "playbook.started")]
        assert await api.events(execution_id, after=len(whole)) == []

    async def test_events_of_an_entity(self, api: Api) -> None:
        execution_id = await ended_run(api, _TALKING)
        await until_event(api, execution_id, "playbook.processed")
        whole = await api.events(execution_id)
        for about in {(event["entity_type"], event["entity_id"]) for event in whole}:
            own = [event for event in whole if (event["entity_type"], event["entity_id"]) == about]
            assert await api.entity_events(execution_id, *about) == own
            assert await api.entity_events(execution_id, *about, after=own[0]["seq"]) == own[1:]
            assert await api.entity_events(execution_id, *about, limit=1) == own[:1]
        steps = [event for event in whole if event["entity_type"] == "step"]
        assert await api.entity_events(execution_id, "step") == steps
        assert await api.entity_events(execution_id, "step", "nowhere") == []
        for kind, name in (("stepp", ""), ("", "start")):
            with pytest.raises(RequestRejected, match="entity"):
                await api.entity_events(execution_id, kind, name)

    async def test_events_are_searched_across_runs(self, api: Api) -> None:
        runs = [await ended_run(api), await ended_run(api, _FAILING), await ended_run(api)]
        for execution_id in runs:
            await until_event(api, execution_id, "playbook.processed")
        logs = [event for execution_id in runs for event in await api.events(execution_id)]

        async def positions(limit: int = 2, **which: Any) -> list[tuple[str, int]]:
            places: list[tuple[str, int]] = []
            cursor, more = "", True
            while more:
                page = await api.search(**which, cursor=cursor, limit=limit)
                assert len(page.events) <= limit
                assert all(event in logs for event in page.events)
                places += [(event["execution_id"], event["seq"]) for event in page.events]
                cursor, more = page.next, page.more
            return places

        def expected(*types: str) -> list[tuple[str, int]]:
            return [(event["execution_id"], event["seq"]) for event in logs if event["event_type"] in types]

        assert await positions(types=("playbook.finished",)) == expected("playbook.finished")
        assert await positions(types=("step.failed", "playbook.finished")) == expected(
            "step.failed", "playbook.finished"
        )
        assert await positions(types=("task.started", "step.done")) == expected("task.started", "step.done")
        assert sorted(await positions(100)) == sorted((event["execution_id"], event["seq"]) for event in logs)
        ends = [event for event in logs if event["event_type"] == "playbook.finished"]
        since, until = ends[1]["persisted_at"], ends[2]["persisted_at"]
        for types in (("playbook.finished",), ("task.done", "playbook.finished")):
            some = [
                (event["execution_id"], event["seq"])
                for event in logs
                if event["event_type"] in types and since <= event["persisted_at"] < until
            ]
            assert await positions(types=types, since=since, until=until) == some
        filters: list[tuple[str, str, tuple[str, ...]]] = [
            ("step", "", ()),
            ("step:start", "", ()),
            ("step:nowhere", "", ()),
            ("", "event_type == 'playbook.finished' and status == 'failed'", ()),
            ("playbook", "execution_id != '" + runs[0] + "'", ("playbook.finished",)),
            ("step", "", ("playbook.finished",)),
            ("", "payload.nowhere.at_all > 3", ()),
        ]
        for entity, where, only in filters:
            kind, _, name = entity.partition(":")
            some = [
                (event["execution_id"], event["seq"])
                for event in logs
                if (not kind or event["entity_type"] == kind)
                and (not name or event["entity_id"] == name)
                and (not only or event["event_type"] in only)
                and (
                    "finished" not in where or (event["event_type"], event["status"]) == ("playbook.finished", "failed")
                )
                and ("execution_id" not in where or event["execution_id"] != runs[0])
                and "nowhere" not in where
            ]
            assert sorted(await positions(entity=entity, where=where, types=only)) == sorted(some)
        refused: list[dict[str, Any]] = [{"since": "yesterday"}, {"until": "2026-01-01"}, {"cursor": "x"}]
        refused += [{"entity": "stepp"}, {"entity": ":start"}, {"where": "1 +"}]
        for odd in refused:
            with pytest.raises(RequestRejected):
                await api.search(**odd)

    async def test_runs_are_listed_newest_first_by_state_and_path_in_pages(self, api: Api) -> None:
        made = [await ended_run(api), await ended_run(api, _FAILING), await ended_run(api), await started(api, WAITING)]
        newest = [run.execution_id for run in await api.list()]
        assert newest == made[::-1]
        assert [run.execution_id for run in await api.list(states=("COMPLETED",))] == [made[2], made[0]]
        assert [run.execution_id for run in await api.list(states=("FAILED", "RUNNING"))] == [made[3], made[1]]
        assert [run.execution_id for run in await api.list(path="hello")] == [made[2], made[0]]
        assert await api.list(path="no/such") == []
        first = await api.list(limit=3)
        assert [run.execution_id for run in first] == newest[:3]
        assert [run.execution_id for run in await api.list(before=first[-1].execution_id)] == newest[3:]
        with pytest.raises(RequestRejected):
            await api.list(before="x")
        await api.cancel(made[3], "enough")

    async def test_log_lines_are_filtered_and_paged(self, api: Api) -> None:
        execution_id = await ended_run(api, _TALKING)

        async def texts(**filters: Any) -> list[str]:
            return [line["text"].strip() for line in await api.logs(execution_id, where=LogFilter(**filters))]

        whole = await api.logs(execution_id)
        assert sorted(line["text"].strip() for line in whole) == ["a", "a&b=ü c", "b", "one", "three", "two"]
        assert await texts(task="second") == ["three"]
        assert await texts(step="each") == ["a", "b"]
        assert await texts(step="each", iteration=(1,)) == ["b"]
        assert await texts(streams=("stderr",)) == ["a&b=ü c"]
        assert await texts(text="&b=ü ") == ["a&b=ü c"]
        assert await texts(text="no such") == []
        assert await texts(since=4_000_000_000_000_000) == []
        pages, after = [], 0
        while page := await api.logs(execution_id, after=after, limit=2):
            pages += page
            after = page[-1]["position"]
        assert pages == whole
        with pytest.raises(RequestRejected):
            await api.logs(execution_id, where=LogFilter(step="nosuch"))

    async def test_a_run_can_be_seen_after_any_event(self, api: Api) -> None:
        execution_id = await ended_run(api)
        await until_event(api, execution_id, "playbook.processed")
        head = (await api.events(execution_id))[-1]["seq"]
        nothing, newest = await api.state(execution_id, 0), await api.state(execution_id)
        assert (nothing.at, nothing.event_type, nothing.steps) == (0, None, {})
        assert (newest.at, newest.head, newest.state, newest.result) == (head, head, "COMPLETED", "hello world")
        assert await api.state(execution_id, head + 100) == newest
        middle = next(
            event["seq"] for event in await api.events(execution_id) if event["event_type"] == "step.scheduled"
        )
        then = await api.state(execution_id, middle)
        assert (then.at, then.event_type, [run.step for run in then.step_runs]) == (middle, "step.scheduled", ["start"])
        with pytest.raises(RequestRejected):
            await api.state(execution_id, -1)

    async def test_why_explains_what_a_run_waits_for_and_why_it_failed(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        await until_event(api, execution_id, "task.started")
        answer = await api.why(execution_id)
        assert (answer.state, [wait.what for wait in answer.waits]) == ("RUNNING", ["signal"])
        await api.cancel(execution_id, "enough")
        cause = (await api.why(await ended_run(api, _FAILING))).cause
        assert cause is not None
        assert (cause.step, cause.kind, cause.at) == ("start", "exception", "4:11")

    async def test_all_readers_get_the_same_account_of_a_failed_run(self, api: Api) -> None:
        execution_id = (await api.execute(ExecuteRequest(_LOOPING, "flows/looping.yaml"))).execution_id
        await ended(api, execution_id)
        summary, why = await api.summary(execution_id), await api.why(execution_id)
        (listed,) = await api.list(name="looping")
        assert summary.cause is not None
        assert (summary.cause, summary.problems) == (why.cause, why.problems)
        cause = summary.cause
        assert (cause.step, cause.iteration, cause.task, cause.kind) == ("start", "1", "work", "exception")
        assert (cause.file, cause.line, cause.source) == (
            "flows/looping.yaml",
            6,
            "- {name: work, kind: shell, command: 'exit {{ iter.n }}'}",
        )
        assert summary.error is not None
        assert (summary.error["step"], summary.error["task"], summary.error["item"]) == ("start", "work", "1")
        assert set(summary.error) >= {"kind", "message", "step", "task", "item", "traceback", "cause"}
        items = summary.steps["start"].items
        assert items is not None
        assert (items.total, items.ok, items.failed) == (3, 1, 1)
        assert listed.error == f"step start, item 1, task work: exception: {cause.message}"
        assert cause.message in why.summary
        assert summary.next == why.next

    async def test_runs_are_listed_by_name_time_and_caller(self, api: Api) -> None:
        first, second = await ended_run(api), await ended_run(api, _TALKING)
        assert [run.execution_id for run in await api.list(name="alk")] == [second]
        assert await api.list(name="%") == []
        created = (await api.list(limit=1))[0].created_at
        assert [run.execution_id for run in await api.list(since=created)] in ([second], [second, first])
        assert len(await api.list(since="2020-01-01T00:00:00Z")) == 2
        assert await api.list(since="2100-01-01T00:00:00Z") == []
        assert await api.list(parent=first) == []
        for wrong in ("soon", "2026-01-01T00:00:00"):
            with pytest.raises(RequestRejected):
                await api.list(since=wrong)
        with pytest.raises(RequestRejected):
            await api.list(parent="x")

    async def test_the_plan_is_drawn(self, api: Api) -> None:
        execution_id = await ended_run(api)
        assert isinstance(await api.graph(execution_id), dict)
        assert (await api.graph(execution_id, "mermaid")).startswith(("graph", "flowchart"))
        assert "start" in await api.graph(execution_id, "text")
        with pytest.raises(RequestRejected):
            await api.graph(execution_id, "crayon")

    async def test_the_source_is_what_was_sent(self, api: Api) -> None:
        text = f"# ü\n{HELLO}\n\n"
        assert await api.source(await ended_run(api, text)) == text


# ── stored ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of stored results: listed by the run that made them, read whole or in part, removed only by gc.

_STORING = """\
metadata: {name: storing}
workflow:
  - step: start
    tool:
      - {name: many, kind: python, code: "result = list(range(20_000))"}
      - {name: more, kind: python, code: "result = {'text': 'x' * 200_000}"}
"""


async def _read(api: Api, ref: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in api.content(ref, start, end)])


class StoredRules(Rules):
    async def test_a_run_lists_what_it_stored_and_each_is_read_whole_or_in_part(self, api: Api) -> None:
        execution_id = await ended_run(api, _STORING)
        many, more = await api.results(execution_id)
        assert (many.name, many.rows, more.rows) == ("start.many", 20_000, None)
        assert await api.results(execution_id, limit=1) == [many]
        assert await api.results(execution_id, after=many.seq) == [more]
        whole = await _read(api, many.ref)
        assert (len(whole), hashlib.sha256(whole).hexdigest()) == (many.bytes, many.sha256)
        assert whole.split(b"\n")[:3] == [b"0", b"1", b"2"]
        size = len(whole)
        for start, end in ((0, 10), (5, None), (7, 8), (3, 3), (size - 1, None), (size - 5, size + 100), (0, size)):
            assert await _read(api, many.ref, start, end) == whole[start:end], (start, end)

    async def test_one_result_is_described(self, api: Api) -> None:
        execution_id = await ended_run(api, _STORING)
        many, _ = await api.results(execution_id)
        described = await api.result(many.ref)
        assert (described.ref, described.bytes, described.sha256) == (many.ref, many.bytes, many.sha256)
        assert described.stored_bytes
        assert described.preview

    async def test_a_ref_that_nobody_has_is_not_found_and_one_that_is_none_is_refused(self, api: Api) -> None:
        execution_id = await ended_run(api, _STORING)
        unknown = f"noetl://execution/{execution_id}/result/start.many/{'0' * 64}"
        for wrong, kind in ((unknown, NotFound), ("noetl://execution/../../etc/passwd", RequestRejected)):
            with pytest.raises(kind):
                await api.result(wrong)
            with pytest.raises(kind):
                await _read(api, wrong)
            with pytest.raises(kind):
                await _read(api, wrong, 1, 1)

    async def test_gc_removes_nothing_that_is_still_needed(self, api: Api) -> None:
        execution_id = await ended_run(api, _STORING)
        for dry_run in (True, False):
            did = await api.collect(dry_run=dry_run)
            assert (did.dry_run, did.results, did.contents) == (dry_run, 0, 0)
        assert len(await _read(api, (await api.results(execution_id))[0].ref)) > 0
