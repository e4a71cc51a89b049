"""Rules of runs: a start is durable when it is answered, and a signal is recorded before it is answered."""

from __future__ import annotations

import asyncio

import pytest

from arclog.model.errors import Conflict, NotFound, PlaybookError, RequestRejected
from arclog.ports.views.api import Api, ExecuteRequest, Origin, SignalRequest
from arclog.ports.views.overview import ListedOrigin, RunQuery
from arclog.testing.conformance.api.base import (
    HELLO,
    PATIENCE_S,
    UNKNOWN,
    WAITING,
    Rules,
    ended,
    ended_run,
    started,
    until_event,
)

# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of a start: it is durable when it is answered, a refusal lists all problems, and a caller can wait for the end.

_BAD = "metadata: {name: bad}\nworkflow:\n  - step: start\n    tool: {kind: nosuch}\n    colour: red\n"
_CALLER = "metadata: {name: caller}\nworkflow: [{step: start, tool: {kind: playbook, file: child.yaml}}]\n"
_CHILD = "metadata: {name: child}\nworkflow: [{step: start, tool: {kind: noop, data: 7}}]\n"


class StartingRules(Rules):
    async def test_a_run_is_there_as_soon_as_it_is_answered_and_ends(self, api: Api) -> None:
        answer = await api.execute(ExecuteRequest(playbook=HELLO, workload={"name": "Ada"}))
        assert (await api.status(answer.execution_id)).execution_id == answer.execution_id
        assert (await ended(api, answer.execution_id)).terminal_event == "playbook.completed"
        summary = await api.summary(answer.execution_id)
        assert (summary.run_id, summary.state, summary.result) == (answer.run_id, "COMPLETED", "hello Ada")
        assert {name: (step.status, step.runs) for name, step in summary.steps.items()} == {
            "start": ("done", 1),
            "end": ("done", 1),
        }

    async def test_a_playbook_that_cannot_run_is_refused_with_every_finding_and_its_source(self, api: Api) -> None:
        with pytest.raises(PlaybookError) as caught:
            await api.execute(ExecuteRequest(playbook=_BAD, file="bad.yaml"))
        places = {(finding.at.line, finding.severity) for finding in caught.value.findings}
        assert {(4, "error"), (5, "error")} <= places
        assert (caught.value.source, caught.value.file) == (_BAD, "bad.yaml")

    async def test_called_files_come_with_the_request(self, api: Api) -> None:
        request = ExecuteRequest(playbook=_CALLER, file="a/caller.yaml", files={"a/child.yaml": _CHILD})
        answer = await api.execute(request)
        await ended(api, answer.execution_id)
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

    async def test_unknown_ids_are_not_found_and_invalid_ids_are_refused(self, api: Api) -> None:
        await ended_run(api)
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


# ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of signals: recorded before they are answered, idempotent by their id, refused as data where a run cannot follow.

_APPROVED = """\
metadata: {name: approved}
workflow:
  - step: start
    tool: {kind: approval}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: 1}
"""


class SignalRules(Rules):
    async def test_a_run_gets_the_signal_that_it_waits_for(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        await until_event(api, execution_id, "task.started")
        answer = await api.signal(execution_id, SignalRequest("go", data={"n": 1}, by="Ada", reason="why not"))
        assert (answer.accepted, answer.execution_id, answer.signal) == (True, execution_id, "go")
        assert answer.waiting
        assert (await ended(api, execution_id)).state == "COMPLETED"
        (received,) = await api.events(execution_id, types=("signal.received",))
        assert received["payload"]["reason"] == "why not"

    async def test_the_same_signal_id_again_does_nothing_more(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        await until_event(api, execution_id, "task.started")
        request = SignalRequest("UPDATE_PARAMS", signal_id="s1", data={"a": 1})
        assert (await api.signal(execution_id, request)).accepted
        assert (await api.signal(execution_id, request)).accepted
        assert len(await api.events(execution_id, types=("signal.received",))) == 1
        assert (await api.summary(execution_id)).ctx == {"a": 1}
        await api.cancel(execution_id, "enough")

    async def test_a_signal_that_nothing_waits_for_is_kept(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        await until_event(api, execution_id, "task.started")
        answer = await api.signal(execution_id, SignalRequest("later", signal_id="s2"))
        assert (answer.accepted, answer.waiting) == (True, False)
        assert await api.signal(execution_id, SignalRequest("later", signal_id="s2")) == answer
        await api.cancel(execution_id, "enough")

    async def test_a_paused_run_stands_still_until_it_is_resumed(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        await until_event(api, execution_id, "task.started")
        assert not await api.pausing(execution_id)
        assert (await api.signal(execution_id, SignalRequest("PAUSE"))).accepted
        assert await api.pausing(execution_id)
        await api.signal(execution_id, SignalRequest("go"))
        assert not await api.ended(execution_id, timeout_s=0)
        assert (await api.signal(execution_id, SignalRequest("RESUME"))).accepted
        assert not await api.pausing(execution_id)
        assert (await ended(api, execution_id)).state == "COMPLETED"

    async def test_an_approval_is_given(self, api: Api) -> None:
        execution_id = await started(api, _APPROVED)
        await until_event(api, execution_id, "task.started")
        assert (await api.signal(execution_id, SignalRequest("APPROVE", by="Ada"))).accepted
        assert (await ended(api, execution_id)).state == "COMPLETED"

    async def test_what_a_run_cannot_do_is_an_answer_and_what_nobody_can_is_refused(self, api: Api) -> None:
        execution_id = await ended_run(api)
        answer = await api.signal(execution_id, SignalRequest("PAUSE"))
        assert (answer.accepted, answer.state) == (False, "COMPLETED")
        assert answer.message == "the execution has ended (COMPLETED)"
        live = await started(api, WAITING)
        without_reason = await api.signal(live, SignalRequest("SKIP_STEP", step="start"))
        assert (without_reason.accepted, without_reason.message) == (False, "SKIP_STEP needs a reason")
        with pytest.raises(RequestRejected):
            await api.signal(live, SignalRequest("no name!"))
        await api.cancel(live, "enough")

    async def test_a_repeated_cancel_returns_the_same_answer(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        first = await api.cancel(execution_id, "changed my mind")
        assert (first.state, first.terminal_event) == ("CANCELLED", "execution.cancelled")
        assert await api.cancel(execution_id, "again") == first
        error = (await api.summary(execution_id)).error
        assert error is not None
        assert error["message"] == "changed my mind"

    async def test_a_run_that_has_ended_is_run_again_once_for_each_signal(self, api: Api) -> None:
        execution_id = await ended_run(api)
        request = SignalRequest("RETRY_RUN", signal_id="r1")
        first, second = await api.signal(execution_id, request), await api.signal(execution_id, request)
        assert first.started is not None
        assert first.started == second.started != execution_id
        assert (await ended(api, first.started)).state == "COMPLETED"
        head = (await api.state(execution_id)).head
        assert (await api.summary(first.started)).origin == Origin(execution_id, head, "retry", events=0)
        (listed,) = (await api.find(RunQuery(origin=execution_id))).runs
        assert (listed.execution_id, listed.origin) == (first.started, ListedOrigin(execution_id, head, "retry"))
        assert (await api.replay(first.started)).ok
