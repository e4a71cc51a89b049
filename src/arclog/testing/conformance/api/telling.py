"""Rules of signals: recorded before they are answered, idempotent by their id, refused as data where a run cannot follow."""

from __future__ import annotations

import pytest

from arclog.model.errors import RequestRejected
from arclog.ports.views.api import Api, SignalRequest
from arclog.testing.conformance.api.base import WAITING, Rules, done, over, started, until_event

_APPROVED = """\
metadata: {name: approved}
workflow:
  - step: start
    tool: {kind: approval}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: 1}
"""


class TellingRules(Rules):
    async def test_a_run_gets_the_signal_that_it_waits_for(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        await until_event(api, execution_id, "task.started")
        answer = await api.signal(execution_id, SignalRequest("go", data={"n": 1}, by="Ada", reason="why not"))
        assert (answer.accepted, answer.execution_id, answer.signal) == (True, execution_id, "go")
        assert answer.waiting
        assert (await over(api, execution_id)).state == "COMPLETED"
        (told,) = await api.events(execution_id, types=("signal.received",))
        assert told["payload"]["reason"] == "why not"

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
        assert (await over(api, execution_id)).state == "COMPLETED"

    async def test_an_approval_is_given(self, api: Api) -> None:
        execution_id = await started(api, _APPROVED)
        await until_event(api, execution_id, "task.started")
        assert (await api.signal(execution_id, SignalRequest("APPROVE", by="Ada"))).accepted
        assert (await over(api, execution_id)).state == "COMPLETED"

    async def test_what_a_run_cannot_do_is_an_answer_and_what_nobody_can_is_refused(self, api: Api) -> None:
        execution_id = await done(api)
        answer = await api.signal(execution_id, SignalRequest("PAUSE"))
        assert (answer.accepted, answer.state) == (False, "COMPLETED")
        assert answer.message == "the execution has ended (COMPLETED)"
        live = await started(api, WAITING)
        without_reason = await api.signal(live, SignalRequest("SKIP_STEP", step="start"))
        assert (without_reason.accepted, without_reason.message) == (False, "SKIP_STEP needs a reason")
        with pytest.raises(RequestRejected):
            await api.signal(live, SignalRequest("no name!"))
        await api.cancel(live, "enough")

    async def test_cancel_is_final_and_says_so_again(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        first = await api.cancel(execution_id, "changed my mind")
        assert (first.state, first.terminal_event) == ("CANCELLED", "execution.cancelled")
        assert await api.cancel(execution_id, "again") == first
        error = (await api.summary(execution_id)).error
        assert error is not None
        assert error["message"] == "changed my mind"

    async def test_a_run_that_has_ended_is_run_again_once_for_each_signal(self, api: Api) -> None:
        execution_id = await done(api)
        request = SignalRequest("RETRY_RUN", signal_id="r1")
        first, second = await api.signal(execution_id, request), await api.signal(execution_id, request)
        assert first.started is not None
        assert first.started == second.started != execution_id
        assert (await over(api, first.started)).state == "COMPLETED"
