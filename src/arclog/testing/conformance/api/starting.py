"""Rules of a start: durable when it is answered, refused with all that is wrong, and waited for to its end."""

from __future__ import annotations

import asyncio

import pytest

from arclog.model.errors import Conflict, NotFound, PlaybookError, RequestRejected
from arclog.ports.views.api import Api, ExecuteRequest
from arclog.testing.conformance.api.base import HELLO, PATIENCE_S, UNKNOWN, WAITING, Rules, done, over, started

_BAD = "metadata: {name: bad}\nworkflow:\n  - step: start\n    tool: {kind: nosuch}\n    colour: red\n"
_CALLER = "metadata: {name: caller}\nworkflow: [{step: start, tool: {kind: playbook, file: child.yaml}}]\n"
_CHILD = "metadata: {name: child}\nworkflow: [{step: start, tool: {kind: noop, data: 7}}]\n"


class StartingRules(Rules):
    async def test_a_run_is_there_as_soon_as_it_is_answered_and_ends(self, api: Api) -> None:
        answer = await api.execute(ExecuteRequest(playbook=HELLO, workload={"name": "Ada"}))
        assert (await api.status(answer.execution_id)).execution_id == answer.execution_id
        assert (await over(api, answer.execution_id)).terminal_event == "playbook.completed"
        summary = await api.summary(answer.execution_id)
        assert (summary.run_id, summary.state, summary.result) == (answer.run_id, "COMPLETED", "hello Ada")
        assert {name: (step.status, step.runs) for name, step in summary.steps.items()} == {
            "start": ("done", 1),
            "end": ("done", 1),
        }

    async def test_a_playbook_that_cannot_run_is_refused_with_every_finding_and_its_source(self, api: Api) -> None:
        with pytest.raises(PlaybookError) as caught:
            await api.execute(ExecuteRequest(playbook=_BAD, file="bad.yaml"))
        found = {(finding.at.line, finding.severity) for finding in caught.value.findings}
        assert {(4, "error"), (5, "error")} <= found
        assert (caught.value.source, caught.value.file) == (_BAD, "bad.yaml")

    async def test_called_files_come_with_the_request(self, api: Api) -> None:
        request = ExecuteRequest(playbook=_CALLER, file="a/caller.yaml", files={"a/child.yaml": _CHILD})
        answer = await api.execute(request)
        await over(api, answer.execution_id)
        assert (await api.summary(answer.execution_id)).result == 7

    async def test_a_called_file_that_cannot_run_is_named(self, api: Api) -> None:
        request = ExecuteRequest(playbook=_CALLER, file="a/caller.yaml", files={"a/child.yaml": _BAD})
        with pytest.raises(PlaybookError) as caught:
            await api.execute(request)
        assert (caught.value.source, caught.value.file) == (_BAD, "a/child.yaml")

    async def test_a_workload_that_no_event_holds_is_refused(self, api: Api) -> None:
        with pytest.raises(RequestRejected, match="max_payload_bytes"):
            await started(api, name="x" * 300_000)

    async def test_the_same_idempotency_key_is_the_same_run(self, api: Api) -> None:
        request = ExecuteRequest(playbook=HELLO, idempotency_key="once")
        first, second = await api.execute(request), await api.execute(request)
        assert (first.execution_id, first.run_id) == (second.execution_id, second.run_id)
        assert (first.created, second.created) == (True, False)
        with pytest.raises(Conflict):
            await api.execute(ExecuteRequest(playbook=HELLO, workload={"name": "Ada"}, idempotency_key="once"))
        other = await api.execute(ExecuteRequest(playbook=HELLO, idempotency_key="twice"))
        assert other.execution_id != first.execution_id

    async def test_a_wait_ends_with_news_or_the_run_or_its_time(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        head = await api.wait(execution_id, timeout_s=PATIENCE_S)
        assert head > 0
        assert not await api.ended(execution_id, timeout_s=0)
        assert not await api.ended(execution_id, timeout_s=0.01)
        waiting = asyncio.ensure_future(api.ended(execution_id))
        await api.cancel(execution_id, "enough")
        assert await waiting
        last = await api.wait(execution_id, timeout_s=0)
        assert last > head
        assert await api.wait(execution_id, after=last + 10) >= last, "an ended run has no more news to wait for"

    async def test_what_is_not_there_is_not_found_and_what_is_no_id_is_refused(self, api: Api) -> None:
        await done(api)
        for wrong, kind in (
            (UNKNOWN, NotFound),
            ("x", RequestRejected),
            ("1/../2", RequestRejected),
            ("-1", RequestRejected),
        ):
            for call in (
                api.status(wrong),
                api.summary(wrong),
                api.events(wrong),
                api.logs(wrong),
                api.results(wrong),
                api.why(wrong),
                api.state(wrong),
                api.pausing(wrong),
                api.source(wrong),
                api.wait(wrong, timeout_s=0),
                api.ended(wrong, timeout_s=0),
                api.cancel(wrong, "no"),
            ):
                with pytest.raises(kind):
                    await call
