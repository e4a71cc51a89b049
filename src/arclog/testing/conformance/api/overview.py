"""Rules of views of many runs: searches, activity, failing playbooks, and runs that wait for a person."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.model.errors import NotFound, PlaybookError, RequestRejected
from arclog.ports.views.api import Api, ExecuteRequest, RegisterRequest, SignalRequest
from arclog.ports.views.overview import RunQuery
from arclog.testing.conformance.api.base import HELLO, UNKNOWN, WAITING, Rules, ended, ended_run, started, until_event

# ── overview ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_FAILING = """\
metadata: {name: orders, path: shop/orders}
workload: {fail: true}
workflow:
  - step: start
    tool: {kind: shell, command: "{{ 'echo Disk FULL >&2; exit 3' if workload.fail else 'true' }}"}
"""
_APPROVAL = """\
metadata: {name: asking}
workflow:
  - step: ship
    tool: {name: ask, kind: approval, prompt: "Ship it?", timeout_s: 600}
"""
_GUARDED = """\
metadata: {name: guarded}
executor: {spec: {policy: {approval: required}}}
workflow:
  - step: start
    tool: {kind: noop}
"""
_CALLING = """\
metadata: {name: calling}
workflow:
  - step: call
    tool: {kind: playbook, path: hello}
"""


async def execution_ids(api: Api, **query: Any) -> list[str]:
    return [run.execution_id for run in (await api.find(RunQuery(**query))).runs]


class OverviewRules(Rules):
    async def test_runs_are_found_by_text_and_by_id(self, api: Api) -> None:
        hello = await ended_run(api)
        failed = await ended_run(api, _FAILING)
        waiting = await started(api, WAITING)
        await until_event(api, waiting, "command.completed")
        assert await execution_ids(api) == [waiting, failed, hello]
        assert await execution_ids(api, text="SHOP/ord") == [failed]
        assert await execution_ids(api, text="exit", states=("FAILED",)) == [failed]
        assert await execution_ids(api, text="wait") == [waiting]
        assert await execution_ids(api, text="no such text") == []
        run = (await api.find(RunQuery(text=hello))).runs[0]
        assert run.execution_id == hello
        assert await execution_ids(api, text=run.run_id) == [hello]
        assert await execution_ids(api, text=hello, states=("FAILED",)) == []
        assert await execution_ids(api, text=UNKNOWN) == []

    async def test_a_page_of_a_search_goes_on_where_the_last_one_ended(self, api: Api) -> None:
        made = [await ended_run(api) for _ in range(5)]
        listed: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await api.find(RunQuery(text="hello", before=cursor, limit=2))
            listed += [run.execution_id for run in page.runs]
            cursor = page.next
        assert listed == made[::-1]
        first = await api.find(RunQuery(limit=2))
        assert [run.execution_id for run in first.runs] == made[:2:-1]
        assert first.next == made[3]

    async def test_runs_are_found_by_when_they_were_created(self, api: Api) -> None:
        first, second = await ended_run(api), await ended_run(api)
        created = {run.execution_id: run.created_at for run in (await api.find(RunQuery())).runs}
        assert await execution_ids(api, since=created[first]) == [second, first]
        assert await execution_ids(api, until=created[first]) == []
        assert await execution_ids(api, since="2100-01-01T00:00:00Z") == []
        assert await execution_ids(api, until="2100-01-01T00:00:00Z") == [second, first]
        with pytest.raises(RequestRejected, match="is not a time"):
            await api.find(RunQuery(since="yesterday"))

    async def test_called_runs_are_distinguished_from_top_level_runs(self, api: Api) -> None:
        await ended_run(api)
        caller = await ended_run(api, _CALLING)
        (child,) = await execution_ids(api, level="called")
        assert await execution_ids(api, parent=caller) == [child]
        top = await execution_ids(api, level="top")
        assert caller in top
        assert child not in top

    async def test_ended_runs_are_counted_by_the_hour(self, api: Api) -> None:
        await ended_run(api)
        await ended_run(api, _FAILING)
        cancelled = await started(api, WAITING)
        await api.cancel(cancelled, "enough")
        activity = await api.activity(hours=24)
        sums = [sum(getattr(hour, name) for hour in activity.hours) for name in ("completed", "failed", "cancelled")]
        assert sums == [1, 1, 1]
        assert activity.since < activity.hours[0].at <= activity.until
        with pytest.raises(RequestRejected):
            await api.activity(hours=0)

    async def test_a_playbook_fails_until_a_run_of_it_completes(self, api: Api) -> None:
        await ended_run(api)
        assert await api.failing() == []
        await ended_run(api, _FAILING)
        last = await ended_run(api, _FAILING)
        (failing_path,) = await api.failing()
        assert (failing_path.path, failing_path.failures, failing_path.last.execution_id) == ("shop/orders", 2, last)
        assert failing_path.since is not None
        assert failing_path.last.error
        await ended_run(api, _FAILING, fail=False)
        assert await api.failing() == []
        await ended_run(api, _FAILING)
        assert [path.failures for path in await api.failing()] == [1]

    async def test_what_waits_for_an_approval_is_listed_until_it_is_decided(self, api: Api) -> None:
        await started(api, WAITING)
        assert (await api.approvals()).approvals == []
        waiting, guarded = await started(api, _APPROVAL), await started(api, _GUARDED)
        await until_event(api, waiting, "command.completed")
        first, second = (await api.approvals()).approvals
        assert (first.run.execution_id, first.step, first.task, first.prompt) == (waiting, "ship", "ask", "Ship it?")
        assert first.until is not None
        assert first.run.approvals == 1
        assert (second.run.execution_id, second.key, second.step) == (guarded, "", "")
        page = await api.approvals(limit=1)
        assert [approval.run.execution_id for approval in page.approvals] == [waiting]
        assert [approval.run.execution_id for approval in (await api.approvals(after=page.next or "")).approvals] == [
            guarded
        ]
        assert (await api.signal(waiting, SignalRequest("APPROVE", step=first.key))).accepted
        assert (await api.signal(guarded, SignalRequest("REJECT", reason="no"))).accepted
        assert (await ended(api, waiting)).state == "COMPLETED"
        assert (await ended(api, guarded)).state == "FAILED"
        assert (await api.approvals()).approvals == []

    async def test_nothing_is_stuck_while_workers_take_what_is_offered(self, api: Api) -> None:
        await ended_run(api, HELLO)
        assert await api.stuck() == []
        assert await api.leases() == []


# ── catalog ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of the catalog: a version has fixed content and stays; a run is bound to one version; an archived playbook starts no
# run.


def _playbook(result: int, path: str = "team/answer") -> str:
    return (
        f"metadata: {{name: answer, path: {path}}}\nworkflow: [{{step: start, tool: {{kind: noop, data: {result}}}}}]\n"
    )


async def _register(api: Api, result: int, path: str = "team/answer") -> int:
    return (await api.register(RegisterRequest(_playbook(result, path)))).version


class CatalogRules(Rules):
    async def test_new_content_is_the_next_version_and_known_content_the_one_that_it_was(self, api: Api) -> None:
        first = await api.register(RegisterRequest(_playbook(1), file="answer.yaml"))
        assert (first.path, first.version, first.created) == ("team/answer", 1, True)
        again = await api.register(RegisterRequest(_playbook(1)))
        assert (again.version, again.created) == (1, False)
        assert await _register(api, 2) == 2
        assert [entry.version for entry in await api.versions("team/answer")] == [2, 1]
        assert [entry.version for entry in await api.versions("team/answer", before=2)] == [1]
        assert [entry.version for entry in await api.versions("team/answer", limit=1)] == [2]
        assert (await api.registered("team/answer")).source == _playbook(2)
        assert (await api.registered("team/answer", 1)).source == _playbook(1)

    async def test_a_path_is_run_in_its_newest_or_a_named_version(self, api: Api) -> None:
        for result in (10, 20):
            await _register(api, result)
        for version, result in ((0, 20), (1, 10), (2, 20)):
            started = await api.execute(ExecuteRequest(path="team/answer", version=version))
            await ended(api, started.execution_id)
            assert (await api.summary(started.execution_id)).result == result
        assert {run.version for run in await api.list(path="team/answer")} == {"1", "2"}

    async def test_paths_are_listed_in_order_and_in_pages(self, api: Api) -> None:
        for path in ("b/one", "a/two", "a/one", "odd path/ü&?=%2F#"):
            await _register(api, 1, path)
        assert [entry.path for entry in await api.catalog()] == ["a/one", "a/two", "b/one", "odd path/ü&?=%2F#"]
        assert [entry.path for entry in await api.catalog(prefix="a/")] == ["a/one", "a/two"]
        assert [entry.path for entry in await api.catalog(after="a/one", limit=2)] == ["a/two", "b/one"]
        assert (await api.registered("odd path/ü&?=%2F#")).version == 1

    async def test_two_versions_are_compared(self, api: Api) -> None:
        for result in (1, 2):
            await _register(api, result)
        compared = await api.difference("team/answer", 1)
        assert (compared.path, compared.older, compared.newer) == ("team/answer", 1, 2)
        changed = [line for line in compared.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        assert [line[0] for line in changed] == ["-", "+"]
        assert (await api.difference("team/answer", 2, 2)).diff == ""
        with pytest.raises(NotFound):
            await api.difference("team/answer", 7)

    async def test_an_archived_path_is_not_listed_and_starts_no_run_until_it_is_restored(self, api: Api) -> None:
        await _register(api, 1)
        assert (await api.archive("team/answer")).archived_at is not None
        assert await api.catalog() == []
        assert [entry.path for entry in await api.catalog(archived=True)] == ["team/answer"]
        with pytest.raises(RequestRejected):
            await api.execute(ExecuteRequest(path="team/answer"))
        assert (await api.archive("team/answer", archived=False)).archived_at is None
        started = await api.execute(ExecuteRequest(path="team/answer"))
        assert (await ended(api, started.execution_id)).state == "COMPLETED"

    async def test_unknown_paths_are_not_found_and_invalid_playbooks_are_not_registered(self, api: Api) -> None:
        for call in (
            api.registered("no/such"),
            api.versions("no/such"),
            api.difference("no/such", 1),
            api.archive("no/such"),
            api.execute(ExecuteRequest(path="no/such")),
        ):
            with pytest.raises(NotFound):
                await call
        bad = "metadata: {name: bad}\nworkflow: [{step: start, tool: {kind: nosuch}}]\n"
        with pytest.raises(PlaybookError) as caught:
            await api.register(RegisterRequest(bad, file="bad.yaml"))
        assert (caught.value.source, caught.value.file) == (bad, "bad.yaml")
        assert await api.catalog() == []
