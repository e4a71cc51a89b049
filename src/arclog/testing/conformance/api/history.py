"""Rules of recorded runs: a new run keeps successful work and shares its results, records its origin, and is checked and
compared like any other.
"""

from __future__ import annotations

import hashlib
import json
from io import BytesIO
from zipfile import ZipFile

import pytest

from arclog.model.errors import Conflict, DoesNotFit, NotFound, PlaybookError, RequestRejected
from arclog.ports.views.api import Api, ForkRequest
from arclog.ports.views.history import SimulateRequest
from arclog.ports.views.overview import ListedOrigin, RunQuery
from arclog.testing.conformance.api.base import HELLO, UNKNOWN, WAITING, Rules, ended, ended_run, started, until_event

_BROKEN = """\
metadata: {name: broken}
workload: {by: 0}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'rows': list(range(20_000))}"}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(10) }}", iterator: n, spec: {mode: parallel, max_in_flight: 3}}
    spec: {policy: {failure: {mode: best_effort}}}
    tool: {kind: noop, data: "{{ iter.n // (workload.by if iter.n == 7 else 1) }}"}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: {count: "{{ start.rows | length }}", items: "{{ each.results }}"}}
"""
#: A task that succeeds, and a rule that fails its item. Items in progress at that moment are cancelled.
_RULED = """\
metadata: {name: ruled}
workflow:
  - step: each
    loop: {in: "{{ range(40) }}", iterator: n, spec: {mode: parallel, max_in_flight: 8}}
    tool:
      name: take
      kind: noop
      data: "{{ iter.n }}"
      spec:
        policy:
          rules:
            - when: "{{ iter.n == 19 }}"
              then: {do: fail, message: "item 19 has no total"}
            - else: {then: {do: continue}}
"""


class HistoryRules(Rules):
    async def test_a_retry_runs_what_failed_and_shares_the_rest(self, api: Api) -> None:
        execution_id = await ended_run(api, _BROKEN)
        head = len(await api.events(execution_id, limit=10_000))
        new = await api.fork(execution_id, ForkRequest(failed=True, workload={"by": 1}))
        assert (await ended(api, new.execution_id)).state == "COMPLETED"
        summary = await api.summary(new.execution_id)
        assert summary.result == {"count": 20_000, "items": list(range(10))}
        assert summary.origin is not None
        assert (summary.origin.execution_id, summary.origin.seq, summary.origin.how) == (execution_id, head, "retry")
        assert summary.origin == new.origin
        (listed,) = await api.list(origin=execution_id)
        assert listed.execution_id == new.execution_id
        assert listed.origin == ListedOrigin(execution_id, head, "retry")
        assert [run.origin for run in (await api.find(RunQuery(text=execution_id))).runs] == [None]
        log = await api.events(new.execution_id, after=new.origin.events, limit=10_000)
        ran = [(event["step"], event.get("iteration")) for event in log if event["event_type"] == "task.started"]
        assert ran == [("each", 7), ("end", None)]
        (mine,), (shared,) = await api.results(execution_id), await api.results(new.execution_id)
        assert mine.sha256 == shared.sha256
        assert shared.execution_id == new.execution_id
        body = b"".join([chunk async for chunk in api.content(shared.ref)])
        assert len(body) == shared.bytes
        assert (await api.replay(new.execution_id)).ok

    async def test_a_fork_goes_on_from_an_event_with_another_playbook(self, api: Api) -> None:
        execution_id = await ended_run(api)
        (routed, _) = await api.events(execution_id, types=("next.evaluated",))
        changed = HELLO.replace('data: "{{ start.text }}"', 'data: "{{ start.text | upper }}"')
        new = await api.fork(execution_id, ForkRequest(at=routed["seq"], playbook=changed))
        assert (await ended(api, new.execution_id)).state == "COMPLETED"
        assert (await api.summary(new.execution_id)).result == "HELLO WORLD"
        assert await api.source(new.execution_id) == changed
        again = await api.fork(new.execution_id, ForkRequest(at=new.origin.events, playbook=HELLO))
        assert (await ended(api, again.execution_id)).state == "COMPLETED"
        assert (await api.summary(again.execution_id)).result == "hello world"
        for source, made, at in ((execution_id, new, routed["seq"]), (new.execution_id, again, new.origin.events)):
            (listed,) = (await api.find(RunQuery(origin=source))).runs
            assert (listed.execution_id, listed.origin) == (made.execution_id, ListedOrigin(source, at, "fork"))
        assert (await api.find(RunQuery(origin=execution_id, text=again.execution_id))).runs == []
        assert (await api.find(RunQuery(origin=execution_id, states=("FAILED",)))).runs == []
        with pytest.raises(RequestRejected):
            await api.find(RunQuery(origin="x"))

    async def test_a_playbook_that_the_state_does_not_fit_is_refused_with_what_has_no_place(self, api: Api) -> None:
        execution_id = await ended_run(api)
        (routed, _) = await api.events(execution_id, types=("next.evaluated",))
        renamed = HELLO.replace("step: end", "step: finish")
        message = (
            rf"event {routed['seq']}: the token that step start .* has no arc.*fits up to event {routed['seq'] - 1}"
        )
        with pytest.raises(DoesNotFit, match=message):
            await api.fork(execution_id, ForkRequest(at=routed["seq"], playbook=renamed))
        new = await api.fork(execution_id, ForkRequest(at=routed["seq"], playbook=renamed, map={"end": "finish"}))
        assert (await ended(api, new.execution_id)).state == "COMPLETED"
        earlier = await api.fork(execution_id, ForkRequest(at=routed["seq"] - 1, playbook=renamed))
        assert (await ended(api, earlier.execution_id)).state == "COMPLETED"

    async def test_the_same_key_again_is_the_same_run(self, api: Api) -> None:
        execution_id = await ended_run(api)
        request = ForkRequest(step="end", idempotency_key="once")
        new = await api.fork(execution_id, request)
        again = await api.fork(execution_id, request)
        assert (again.execution_id, again.origin) == (new.execution_id, new.origin)
        assert (new.created, again.created) == (True, False)
        await ended(api, new.execution_id)

    async def test_what_cannot_be_gone_on_from_is_refused(self, api: Api) -> None:
        execution_id = await ended_run(api)
        for request, message in (
            (ForkRequest(failed=True), "nothing in the run failed"),
            (ForkRequest(step="nowhere"), "has not run"),
            (ForkRequest(at=10_000), "has events 1 to"),
            (ForkRequest(at=1), "had not started by event 1"),
        ):
            with pytest.raises(RequestRejected, match=message):
                await api.fork(execution_id, request)
        with pytest.raises(PlaybookError):
            await api.fork(execution_id, ForkRequest(at=5, playbook="metadata: {name: x}\nworkflow: []\n"))
        with pytest.raises(NotFound):
            await api.fork(UNKNOWN, ForkRequest(at=5))
        with pytest.raises(NotFound):
            await api.replay(UNKNOWN)
        with pytest.raises(NotFound):
            await api.diff(execution_id, UNKNOWN)

    async def test_a_run_that_goes_on_can_be_forked_and_not_retried(self, api: Api) -> None:
        execution_id = await started(api, WAITING)
        waiting = await until_event(api, execution_id, "command.completed")
        with pytest.raises(Conflict, match="has not ended"):
            await api.fork(execution_id, ForkRequest(failed=True))
        new = await api.fork(execution_id, ForkRequest(at=waiting["seq"]))
        await until_event(api, new.execution_id, "command.completed")
        for run_id in (execution_id, new.execution_id):
            await api.cancel(run_id, "enough")
        retried = await api.fork(new.execution_id, ForkRequest(failed=True))
        await until_event(api, retried.execution_id, "command.completed")
        await api.cancel(retried.execution_id, "enough")

    async def test_a_recorded_run_is_decided_again_as_it_was(self, api: Api) -> None:
        execution_id = await ended_run(api, _BROKEN)
        report = await api.replay(execution_id)
        assert (report.ok, report.difference, report.folded) == (True, None, 0)
        assert report.events == len(await api.events(execution_id, limit=10_000))
        assert report.decisions > 2

    async def test_two_runs_are_compared(self, api: Api) -> None:
        first, two = await ended_run(api), await ended_run(api, name="Ada")
        alike = await api.diff(first, await ended_run(api))
        assert (alike.divergence, alike.steps, alike.values, alike.net) == (None, [], [], None)
        difference = await api.diff(first, two)
        assert difference.divergence is not None
        assert (difference.divergence["what"], difference.divergence["cause"]) == ("request", "workload.name differs")
        assert {"path": "result", "a": "hello world", "b": "hello Ada"} in difference.values
        assert [duration["step"] for duration in difference.durations] == ["start", "end"]

    async def test_the_item_whose_rule_failed_is_the_difference_and_not_those_that_were_cut_short(
        self, api: Api
    ) -> None:
        changed = _RULED.replace("iter.n == 19", "iter.n == 99")
        failed, good = await ended_run(api, _RULED), await ended_run(api, changed)
        for a, b, which in ((failed, good, "first"), (good, failed, "second")):
            where = (await api.diff(a, b)).divergence
            assert where is not None
            assert (where["step"], where["what"]) == ("each", "item")
            assert where["cause"] == f"item 19 of step each failed in the {which} run only"
            shown = await api.events(a, after=where["a_seq"] - 1, limit=1)
            assert shown[0]["event_type"] == f"loop.iteration.{'failed' if a == failed else 'done'}"

    async def test_a_changed_playbook_is_simulated_and_nothing_is_written(self, api: Api) -> None:
        text = _BROKEN.replace("name: broken", "name: simulated")
        runs = [await ended_run(api, text, by=by) for by in (0, 1)]
        before = await api.list(limit=100)
        same = await api.simulate(SimulateRequest(text))
        assert (same.ok, same.verdicts) == (True, {"same": 2})
        assert {run.execution_id for run in same.runs} == set(runs)
        # A new condition reads a part of a stored result.
        routed = text.replace("arcs: [{step: each}]", "arcs: [{step: each, when: '{{ start.rows[3] == 4 }}'}]")
        outcome = await api.simulate(SimulateRequest(routed, runs=runs[:1]))
        (run,) = outcome.runs
        assert (outcome.ok, run.verdict, run.recorded, run.simulated) == (False, "path", "COMPLETED", "COMPLETED")
        assert run.divergence is not None
        assert run.divergence["cause"] == "after step start the run went to each; it would go to no step"
        called = text.replace("kind: noop, data: {count", "kind: python, code: 'result = 1', args: {count")
        (run,) = (await api.simulate(SimulateRequest(called, runs=runs[1:]))).runs
        assert [(call.step, call.kind, call.reason) for call in run.assumed] == [
            ("end", "python", "its kind was noop then")
        ]
        assert await api.list(limit=100) == before
        with pytest.raises(NotFound):
            await api.simulate(SimulateRequest(text, runs=[UNKNOWN]))
        with pytest.raises(NotFound, match="no run of 'elsewhere'"):
            await api.simulate(SimulateRequest(text.replace("name: simulated", "name: elsewhere")))
        with pytest.raises(PlaybookError):
            await api.simulate(SimulateRequest("metadata: {name: x}\nworkflow: []\n", runs=runs))
        with pytest.raises(RequestRejected, match="does not have: nowhere"):
            await api.simulate(SimulateRequest(text, runs=runs, map={"each": "nowhere"}))

    async def test_a_run_is_exported_with_the_checksums_of_its_parts(self, api: Api) -> None:
        execution_id = await ended_run(api, _BROKEN)
        body = b"".join([chunk async for chunk in api.export(execution_id)])
        with ZipFile(BytesIO(body)) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            parts = {part["name"]: part["sha256"] for part in manifest["parts"]}
            assert {name: hashlib.sha256(archive.read(name)).hexdigest() for name in parts} == parts
            (stored,) = await api.results(execution_id)
            assert set(parts) == {"log.jsonl", "plan.json", "playbook.yaml", f"results/{stored.sha256}"}
            assert archive.read("playbook.yaml").decode() == _BROKEN
        with pytest.raises(Conflict, match="in this store already"):
            await api.import_run(BytesIO(body))
        with pytest.raises(RequestRejected, match="not an exported run"):
            await api.import_run(BytesIO(body[:-100]))
        with pytest.raises(NotFound):
            _ = [chunk async for chunk in api.export(UNKNOWN)]

    async def test_the_lineage_of_a_run_is_openlineage_events(self, api: Api) -> None:
        execution_id = await ended_run(api, name="Ada")
        first, last = await api.lineage(execution_id)
        assert (first["eventType"], last["eventType"]) == ("START", "COMPLETE")
        run_id = (await api.summary(execution_id)).run_id
        assert first["run"]["runId"] == last["run"]["runId"] == run_id
        assert first["schemaURL"].startswith("https://openlineage.io/spec/2-0-2/")
        with pytest.raises(NotFound):
            await api.lineage(UNKNOWN)

    async def test_a_value_is_followed_back_to_the_request(self, api: Api) -> None:
        execution_id = await ended_run(api, name="Ada")
        traced = await api.trace(execution_id, "result")
        assert (traced.execution_id, traced.path, traced.node.value, traced.is_cut) == (
            execution_id,
            "result",
            "hello Ada",
            False,
        )
        node = traced.node
        while node.sources:
            node = node.sources[0]
        assert (node.what, node.name, node.value, node.seq) == ("workload", "workload.name", "Ada", 1)
        with pytest.raises(RequestRejected, match="has no value"):
            await api.trace(execution_id, "nowhere")
        with pytest.raises(NotFound):
            await api.trace(UNKNOWN, "result")

    async def test_the_runs_of_a_playbook_are_counted_and_timed(self, api: Api) -> None:
        text = _BROKEN.replace("name: broken", "name: counted").replace("best_effort", "fail_fast")
        runs = [await ended_run(api, text, by=by) for by in (1, 1, 0)]
        step_stats = await api.stats("counted")
        assert (step_stats.runs, step_stats.states, step_stats.success_rate) == (
            3,
            {"FAILED": 1, "COMPLETED": 2},
            0.6667,
        )
        assert step_stats.p50_ms is not None
        assert step_stats.p95_ms is not None
        assert step_stats.p50_ms <= step_stats.p95_ms
        steps = {step["step"]: step for step in step_stats.steps}
        assert {name: (step["runs"], step["failed"]) for name, step in steps.items()} == {
            "start": (3, 0),
            "each": (3, 1),
            "end": (2, 0),
        }
        assert all(step["slowest_in"] in runs for step in step_stats.steps)
        assert sum(day["runs"] for day in step_stats.days) == 3
        assert (await api.stats("counted", limit=1)).runs == 1
        with pytest.raises(NotFound, match="no run of 'nowhere'"):
            await api.stats("nowhere")
