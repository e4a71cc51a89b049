"""Document 004, the canonical step spec: what playbooks do when they run."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from arclog.model.outcome import Outcome, error, failed
from arclog.ports.tool import TaskContext
from arclog.testing.scripted import Call
from tests.seeds.support import Ran, Record, ran

# -- 1, 4: who evaluates what -----------------------------------------------------------------------------------------


def one_step(tool: Any, *, executor: Any = None, workload: Any = None, **step: Any) -> str:
    """A playbook whose step `start` runs these tasks."""
    made = {"metadata": {"name": "p"}, "workflow": [{"step": "start", "tool": tool, **step}]}
    made |= {"executor": {"spec": executor}} if executor else {}
    made |= {"workload": workload} if workload else {}
    return json.dumps(made)


def policy(*rules: Record, **more: Any) -> Record:
    return {"policy": {"rules": list(rules), **more}}


def when(condition: str, **then: Any) -> Record:
    return {"when": f"{{{{ {condition} }}}}", "then": then}


def otherwise(**then: Any) -> Record:
    return {"else": {"then": then}}


def tasks_of(run: Ran) -> list[str]:
    return [event["task"] for event in run.of("task.started")]


def test_admission_sees_ctx_workload_and_the_tokens_event() -> None:
    text = """
metadata: {name: p}
workload: {open: true}
workflow:
  - step: start
    tool: {kind: noop, spec: {policy: {rules: [{else: {then: {set_ctx: {n: 3}}}}]}}}
    next: {spec: {mode: inclusive}, arcs: [{step: allowed}, {step: denied}]}
  - step: allowed
    spec: {policy: {admit: {rules: [{when: "{{ ctx.n == 3 and workload.open and event.name == 'step.done' and event.step == 'start' }}", then: {allow: true}}]}}}
    tool: {kind: act}
  - step: denied
    spec: {policy: {admit: {rules: [{when: "{{ ctx.n == 4 }}", then: {allow: true}}, {else: {then: {allow: false}}}]}}}
    tool: {kind: act}
"""
    run = ran(text)
    assert run.state.status == "COMPLETED"
    assert [call.step for call in run.calls] == ["allowed"]
    decided = {event["entity_id"]: event["payload"]["allow"] for event in run.of("policy.admit.evaluated")}
    assert decided == {"step:allowed": True, "step:denied": False}


def test_a_step_is_not_scheduled_before_it_was_admitted() -> None:
    run = ran(one_step({"kind": "act"}, spec={"policy": {"admit": {"rules": [otherwise(allow=True)]}}}))
    assert run.types.index("policy.admit.evaluated") < run.types.index("step.scheduled")


def test_without_admission_rules_a_step_is_allowed_and_nothing_is_evaluated() -> None:
    run = ran(one_step({"kind": "act"}))
    assert [call.step for call in run.calls] == ["start"]
    assert not run.of("policy.admit.evaluated")


@pytest.mark.parametrize("mode", ["exclusive", "inclusive"])
def test_admission_is_a_gate_whatever_its_mode(mode: str) -> None:
    rules = [when("false", allow=False), when("true", allow=True), otherwise(allow=False)]
    run = ran(one_step({"kind": "act"}, spec={"policy": {"admit": {"mode": mode, "rules": rules}}}))
    assert run.only("policy.admit.evaluated")["payload"]["matched_rule_index"] == 1
    assert len(run.calls) == 1


def test_a_task_policy_sees_outcome_iter_ctx_the_task_before_and_the_task_itself() -> None:
    seen = {
        "status": "{{ outcome.status }}",
        "n": "{{ iter.n }}",
        "m": "{{ ctx.m }}",
        "before": "{{ _prev.x }}",
        "task": "{{ _task.name ~ '/' ~ _task.kind }}",
    }
    tools = [
        {
            "name": "a",
            "kind": "act",
            "returns": {"x": 7},
            "spec": policy(otherwise(set_iter={"n": 1}, set_ctx={"m": 2})),
        },
        {"name": "b", "kind": "act", "spec": policy(otherwise(set_ctx={"seen": seen}))},
    ]
    run = ran(one_step(tools))
    assert run.state.ctx["seen"] == {"status": "ok", "n": 1, "m": 2, "before": 7, "task": "b/act"}


def test_a_task_policy_is_evaluated_after_each_task_by_the_worker() -> None:
    tools = [{"name": name, "kind": "act", "spec": policy(otherwise(do="continue"))} for name in ("a", "b")]
    run = ran(one_step(tools))
    own = [(event["event_type"], event["task"]) for event in run.log if event.get("task")]
    assert own == [
        ("task.started", "a"), ("task.done", "a"), ("policy.task.evaluated", "a"),
        ("task.started", "b"), ("task.done", "b"), ("policy.task.evaluated", "b"),
    ]  # fmt: skip
    assert {event["source"] for event in run.of("policy.task.evaluated")} == {"worker"}


def test_arcs_see_event_ctx_and_workload_on_the_boundary_of_a_step() -> None:
    text = """
metadata: {name: p}
workload: {limit: 5}
workflow:
  - step: start
    tool: {kind: noop, spec: {policy: {rules: [{else: {then: {set_ctx: {n: 3}}}}]}}}
    next:
      arcs:
        - {step: wrong, when: "{{ ctx.n > workload.limit }}"}
        - {step: right, when: "{{ event.name == 'step.done' and event.status == 'success' and ctx.n < workload.limit }}"}
  - {step: wrong, tool: {kind: act}}
  - {step: right, tool: {kind: act}}
"""
    run = ran(text)
    assert [call.step for call in run.calls] == ["right"]
    routed = run.of("next.evaluated")[0]
    assert (routed["source"], run.log[routed["seq"] - 2]["event_type"]) == ("server", "step.done")


# -- 2: root ----------------------------------------------------------------------------------------------------------


def test_a_workbook_entry_is_used_by_several_steps() -> None:
    text = """
metadata: {name: p}
workbook: [{name: shared, kind: noop, data: "{{ args.n }}"}]
workflow:
  - {step: start, args: {n: 1}, tool: {kind: workbook, name: shared}, next: {arcs: [{step: end}]}}
  - {step: end, args: {n: "{{ start.data + 1 }}"}, tool: [{kind: workbook, name: shared}]}
"""
    run = ran(text)
    assert (run.state.status, run.state.result) == ("COMPLETED", 2)
    assert tasks_of(run) == ["shared", "shared"]


# -- 5.2: lifecycle and failure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["timeout_s", "deadline_s"])
def test_a_step_that_is_late_fails(key: str) -> None:
    run = ran(one_step({"kind": "act", "takes": 100}, spec={"policy": {"lifecycle": {key: 5}}}))
    error_of = run.only("step.failed")["payload"]["error"]
    assert (run.state.status, error_of["kind"]) == ("FAILED", "timeout")


def test_a_deadline_counts_from_the_start_of_the_execution() -> None:
    text = """
metadata: {name: p}
workflow:
  - {step: start, tool: {kind: act, takes: 10}, next: {arcs: [{step: end}]}}
  - {step: end, spec: {policy: {lifecycle: {%s: 15}}}, tool: {kind: act, takes: 10}}
"""
    assert ran(text % "deadline_s").state.status == "FAILED"
    assert ran(text % "timeout_s").state.status == "COMPLETED"


FAN = """
metadata: {name: fan}
workflow:
  - {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: slow}, {step: bad}]}}
  - {step: slow, tool: {kind: act, takes: 100}}
  - {step: bad, spec: {policy: {failure: {mode: %s}}}, tool: {kind: act, takes: 1, fail_attempts: 9}}
"""


def test_fail_fast_stops_what_runs_beside_it_and_best_effort_lets_it_finish() -> None:
    fast, best = ran(FAN % "fail_fast"), ran(FAN % "best_effort")
    assert (fast.state.status, best.state.status) == ("FAILED", "FAILED")
    assert {call.step: call.answered for call in fast.calls} == {"slow": False, "bad": True}
    assert {call.step: call.answered for call in best.calls} == {"slow": True, "bad": True}


def test_emit_asks_for_more_events() -> None:
    plain = ran(one_step({"kind": "act"}))
    more = ran(one_step({"kind": "act"}, spec={"policy": {"emit": {"events": ["task.attempt.started"]}}}))
    assert "task.attempt.started" not in plain.types
    assert "task.attempt.started" in more.types
    assert "task.attempt.done" not in more.types


# -- 5.4: what task policies do ---------------------------------------------------------------------------------------


def test_the_first_rule_that_matches_decides() -> None:
    rules = (
        when("false", do="fail"),
        when("outcome.status == 'ok'", do="break"),
        when("true", do="fail"),
        otherwise(do="fail"),
    )
    run = ran(one_step([{"name": "a", "kind": "act", "spec": policy(*rules)}, {"name": "b", "kind": "act"}]))
    assert (run.state.status, tasks_of(run)) == ("COMPLETED", ["a"])


@pytest.mark.parametrize(
    ("action", "tasks", "status"),
    [
        ({"do": "continue"}, ["a", "b", "c"], "COMPLETED"),
        ({"do": "jump", "to": "c"}, ["a", "c"], "COMPLETED"),
        ({"do": "break"}, ["a"], "COMPLETED"),
        ({"do": "fail"}, ["a"], "FAILED"),
    ],
)
def test_continue_jump_break_and_fail(action: Record, tasks: list[str], status: str) -> None:
    tools: list[Record] = [{"name": name, "kind": "act"} for name in "abc"]
    tools[0]["spec"] = policy(otherwise(**action))
    run = ran(one_step(tools))
    assert (tasks_of(run), run.state.status) == (tasks, status)


def test_retry_tries_the_whole_task_again_up_to_so_many_attempts() -> None:
    def flaky(failures: int) -> Ran:
        rules = policy(when("outcome.status == 'error'", do="retry", attempts=3, delay=2.0, backoff="exponential"))
        return ran(one_step({"kind": "act", "fail_attempts": failures, "spec": rules}))

    good, bad = flaky(2), flaky(3)
    assert (good.state.status, [call.attempt for call in good.calls]) == ("COMPLETED", [1, 2, 3])
    assert (bad.state.status, [call.attempt for call in bad.calls]) == ("FAILED", [1, 2, 3])


@pytest.mark.parametrize(
    ("backoff", "delays"), [("none", [2, 2, 2]), ("linear", [2, 4, 6]), ("exponential", [2, 4, 8])]
)
def test_a_retry_waits_its_delay_and_backs_off(backoff: str, delays: list[int]) -> None:
    began: list[float] = []

    async def note(_: Call, __: TaskContext) -> Outcome:
        began.append(asyncio.get_running_loop().time())
        return failed(error("connection", "gone"))

    rules = policy(when("outcome.status == 'error'", do="retry", attempts=4, delay=2, backoff=backoff))
    ran(one_step({"kind": "act", "spec": rules}), hook=note)
    assert [round(after - before) for before, after in pairwise(began)] == delays


@pytest.mark.parametrize(("failures", "status"), [(0, "COMPLETED"), (1, "COMPLETED")])
def test_without_a_match_a_policy_continues(failures: int, status: str) -> None:
    tools = [{"name": "a", "kind": "act", "fail_attempts": failures, "spec": policy(when("false", do="fail"))}]
    run = ran(one_step([*tools, {"name": "b", "kind": "act"}]))
    assert (tasks_of(run), run.state.status) == (["a", "b"], status)
    assert run.only("policy.task.evaluated")["payload"]["matched_rule_index"] is None


def test_on_unmatched_can_fail_instead() -> None:
    rules = policy(when("false", do="continue"), on_unmatched="fail")
    assert ran(one_step({"kind": "act", "fail_attempts": 1, "spec": rules})).state.status == "FAILED"


def test_a_task_without_a_policy_continues_when_ok_and_fails_on_an_error() -> None:
    run = ran(
        one_step(
            [
                {"name": "a", "kind": "act"},
                {"name": "b", "kind": "act", "fail_attempts": 1},
                {"name": "c", "kind": "act"},
            ]
        )
    )
    assert (tasks_of(run), run.state.status) == (["a", "b"], "FAILED")


def test_hooks_do_not_run() -> None:
    hooks = {key: [{"kind": "act", "name": key}] for key in ("before", "after", "finally")}
    run = ran(one_step({"name": "a", "kind": "act", "spec": policy(otherwise(do="continue"), **hooks)}))
    assert [call.task for call in run.calls] == ["a"]


def test_set_iter_and_set_ctx_work_with_every_action() -> None:
    for do in ("continue", "break", "fail"):
        run = ran(one_step({"kind": "act", "spec": policy(otherwise(do=do, set_ctx={"n": 1}, set_iter={"m": 2}))}))
        assert run.state.ctx == {"n": 1}
        assert run.only("policy.task.evaluated")["payload"]["set_iter"] == {"m": 2}


# -- 5.5: routing -----------------------------------------------------------------------------------------------------

ARCS = """
metadata: {name: arcs}
workflow:
  - step: start
    tool: {kind: noop}
    next:
      spec: {mode: %s}
      arcs: [{step: a, when: "{{ false }}"}, {step: b, when: "{{ 1 < 2 }}", args: {n: 1}}, {step: c, args: {n: 2}}]
  - {step: a, tool: {kind: act, returns: "{{ args.n }}"}}
  - {step: b, tool: {kind: act, returns: "{{ args.n }}"}}
  - {step: c, tool: {kind: act, returns: "{{ args.n }}"}}
"""


def test_exclusive_fires_the_first_match_and_inclusive_all() -> None:
    exclusive, inclusive = ran(ARCS % "exclusive"), ran(ARCS % "inclusive")
    assert [call.step for call in exclusive.calls] == ["b"]
    assert sorted(call.step for call in inclusive.calls) == ["b", "c"]
    results = {event["step"]: event["payload"]["outcome"]["data"] for event in inclusive.of("task.done")}
    assert (results["b"], results["c"]) == (1, 2)


def test_an_arc_can_take_on_a_failure_and_a_plain_one_does_not() -> None:
    text = """
metadata: {name: p}
workflow:
  - step: start
    tool: {kind: act, fail_attempts: 9}
    next: {arcs: [{step: usual}, {step: cleanup, when: "{{ event.name == 'step.failed' }}"}]}
  - {step: usual, tool: {kind: act}}
  - {step: cleanup, tool: {kind: act}}
"""
    run = ran(text)
    assert (run.state.status, [call.step for call in run.calls]) == ("COMPLETED", ["start", "cleanup"])


# -- 6: workload, ctx, iter -------------------------------------------------------------------------------------------


def test_workload_is_defaults_merged_with_the_request_and_is_not_rendered() -> None:
    text = one_step(
        {"kind": "act", "returns": "{{ workload }}"}, workload={"a": {"x": 1, "y": 2}, "b": [1, 2], "c": "{{ 1 + 1 }}"}
    )
    run = ran(text, workload={"a": {"y": 3}, "b": [9]})
    assert run.state.result == {"a": {"x": 1, "y": 3}, "b": [9], "c": "{{ 1 + 1 }}"}


def test_a_bare_name_is_a_key_of_the_workload() -> None:
    text = one_step({"kind": "act", "returns": "{{ api_url }}"}, workload={"api_url": "http://localhost"})
    assert ran(text).state.result == "http://localhost"


def test_nothing_can_write_to_the_workload() -> None:
    text = """
metadata: {name: p}
workload: {n: 1}
workflow:
  - step: start
    tool: {kind: act, spec: {policy: {rules: [{else: {then: {set_ctx: {n: 2, workload: 3}, set_iter: {n: 4}}}}]}}}
    next: {arcs: [{step: end, args: {n: 5}}]}
  - {step: end, tool: {kind: act, returns: "{{ workload }}"}}
"""
    assert ran(text).state.result == {"n": 1}


def test_ctx_is_written_by_set_ctx_and_seen_by_later_steps() -> None:
    text = """
metadata: {name: p}
workflow:
  - step: start
    tool: {kind: act, returns: 4, spec: {policy: {rules: [{else: {then: {set_ctx: {n: "{{ outcome.data }}"}}}}]}}}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: act, returns: "{{ ctx.n + 1 }}"}}
"""
    assert ran(text).state.result == 5


def loop(items: Any, tool: Any, *, executor: Any = None, failure: str = "", **spec: Any) -> str:
    more = {"spec": {"policy": {"failure": {"mode": failure}}}} if failure else {}
    return one_step(tool, executor=executor, loop={"in": items, "iterator": "n", "spec": spec}, **more)


def test_conflicting_writes_of_parallel_iterations_are_refused_and_equal_ones_are_not() -> None:
    def writing(value: str) -> Ran:
        tool = {"kind": "act", "spec": policy(otherwise(set_ctx={"key": value}))}
        return ran(loop([1, 2, 3], tool, mode="parallel"))

    same, different = writing("same"), writing("{{ iter.n }}")
    assert (same.state.status, same.state.ctx) == ("COMPLETED", {"key": "same"})
    assert different.state.status == "FAILED"
    assert (different.state.error or {})["kind"] == "conflict"


def test_a_key_with_a_reducer_takes_writes_of_all_iterations() -> None:
    tool = {"kind": "act", "spec": policy(otherwise(set_ctx={"total": "{{ iter.n }}"}))}
    run = ran(loop([1, 2, 3], tool, executor={"ctx": {"total": {"reducer": "sum", "initial": 10}}}, mode="parallel"))
    assert run.state.ctx == {"total": 16}


def test_outside_of_parallel_loops_the_last_write_to_ctx_stands() -> None:
    tool = {"kind": "act", "spec": policy(otherwise(set_ctx={"key": "{{ iter.n }}"}))}
    run = ran(loop([1, 2, 3], tool, mode="sequential"))
    assert (run.state.status, run.state.ctx) == ("COMPLETED", {"key": 3})


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_iter_is_each_iterations_own(mode: str) -> None:
    tools = [
        {"name": "a", "kind": "act", "returns": "{{ iter.own | default('fresh') }}", "spec": policy(otherwise(set_iter={"own": "{{ iter.n }}"}))},
        {"name": "b", "kind": "act", "takes": 1, "returns": "{{ [a.data, iter.own, iter.index, iter.total] }}"},
    ]  # fmt: skip
    run = ran(loop([7, 8, 9], tools, executor={"result": "{{ start.results }}"}, mode=mode))
    assert run.state.result == [["fresh", 7, 0, 3], ["fresh", 8, 1, 3], ["fresh", 9, 2, 3]]


NESTED = """
metadata: {name: nested}
executor: {spec: {result: "{{ start.results }}"}}
workflow:
  - step: start
    loop:
      in: [a, b]
      iterator: city
      spec: {mode: parallel}
      loop:
        in: [1, 2]
        iterator: hotel
        spec: {mode: parallel}
        loop: {in: [x], iterator: room}
    tool: {kind: act, returns: "{{ iter.parent.parent.city ~ iter.parent.hotel ~ iter.room }}"}
"""


def test_iter_is_the_innermost_iteration_and_parent_the_one_around_it() -> None:
    assert ran(NESTED).state.result == ["a1x", "a2x", "b1x", "b2x"]


# -- 7.5: names of tasks ----------------------------------------------------------------------------------------------


def test_results_of_tasks_are_read_by_their_names() -> None:
    tools = [{"name": "fetch", "kind": "act", "returns": {"rows": [1, 2]}}, {"kind": "act", "returns": "{{ fetch.data.rows | sum }}"},
             {"kind": "act", "returns": "{{ task_1.data + 1 }}"}]  # fmt: skip
    assert ran(one_step(tools)).state.result == 4


def test_the_single_task_of_a_step_is_named_after_it_in_events() -> None:
    assert tasks_of(ran(one_step({"kind": "act"}))) == ["start_task"]
    assert tasks_of(ran(one_step([{"kind": "act"}, {"kind": "act"}]))) == ["task_0", "task_1"]


# -- 8, 9: loops and retries ------------------------------------------------------------------------------------------


def test_a_loop_records_its_start_its_iterations_and_its_end() -> None:
    run = ran(loop([0, 1], {"kind": "act", "fail_attempts": "{{ iter.n }}"}, failure="best_effort"))
    kinds = [event["event_type"] for event in run.log if event["event_type"].startswith("loop.")]
    assert kinds == [
        "loop.started",
        "loop.iteration.started",
        "loop.iteration.done",
        "loop.iteration.started",
        "loop.iteration.failed",
        "loop.done",
    ]
    assert {event["source"] for event in run.of("loop.started", "loop.done")} == {"server"}


def test_break_ends_the_pipeline_of_its_iteration_alone() -> None:
    tools = [
        {"name": "a", "kind": "act", "spec": policy(when("iter.n == 1", do="break"), otherwise(do="continue"))},
        {"name": "b", "kind": "act"},
    ]
    run = ran(loop([0, 1, 2], tools))
    assert tasks_of(run) == ["a", "b", "a", "a", "b"]
    assert run.only("loop.done")["payload"] == {"total": 3, "ok": 3, "failed": 0}


PAGES = """
metadata: {name: pages}
workflow:
  - step: start
    loop: {in: [2, 3], iterator: pages, spec: {mode: %s}}
    tool:
      - {name: init, kind: noop, spec: {policy: {rules: [{else: {then: {set_iter: {page: 1}}}}]}}}
      - name: fetch_page
        kind: act
        returns: {page: "{{ iter.page }}", has_more: "{{ iter.page < iter.pages }}", status: "{{ 404 if iter.page == 2 else 200 }}"}
      - name: route
        kind: noop
        spec: {policy: {rules: [{when: "{{ fetch_page.data.status == 404 }}", then: {do: jump, to: store_404}}, {else: {then: {do: jump, to: store_200}}}]}}
      - {name: store_200, kind: act, spec: {policy: {rules: [{else: {then: {do: jump, to: paginate}}}]}}}
      - {name: store_404, kind: act, spec: {policy: {rules: [{else: {then: {do: jump, to: paginate}}}]}}}
      - name: paginate
        kind: noop
        spec:
          policy:
            rules:
              - {when: "{{ fetch_page.data.has_more == true }}", then: {do: jump, to: fetch_page, set_iter: {page: "{{ (iter.page | int) + 1 }}"}}}
              - {else: {then: {do: break}}}
"""


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_pages_are_fetched_in_order_within_an_item_and_stored_by_their_status(mode: str) -> None:
    run = ran(PAGES % mode)
    for item, expected in ((0, ["store_200", "store_404"]), (1, ["store_200", "store_404", "store_200"])):
        own = [event["task"] for event in run.of("task.started") if event["iteration"] == item]
        assert [task for task in own if task.startswith("store")] == expected
        assert own.count("fetch_page") == len(expected)
    runs = [
        event["task_run_id"]
        for event in run.of("task.started")
        if (event["task"], event["iteration"]) == ("fetch_page", 1)
    ]
    assert runs == [f"task:fetch_page:run:{n}" for n in (1, 2, 3)]


def test_a_policy_looks_at_the_final_outcome_of_each_attempt() -> None:
    async def inner_retries(_: Call, context: TaskContext) -> Outcome:
        # The tool tried three times by itself before it gave up; the policy sees the end of that alone.
        return failed(error("connection", "gone")) if context.attempt == 1 else Outcome(result="ok")

    rules = policy(when("outcome.status == 'error'", do="retry", attempts=3, delay=0), otherwise(do="continue"))
    run = ran(one_step({"kind": "act", "spec": rules}), hook=inner_retries)
    assert [event["payload"]["action"]["do"] for event in run.of("policy.task.evaluated")] == ["retry", "continue"]
    assert [event["attempt"] for event in run.of("task.attempt.failed")] == [1]


# -- 10: results ------------------------------------------------------------------------------------------------------


def test_a_large_payload_is_stored_outside_and_described_in_the_log() -> None:
    run = ran(one_step({"name": "fetch", "kind": "act", "returns": {"rows": ["x" * 1000] * 100}}))
    ref = run.only("result.stored")["payload"]["result_ref"]
    # Where, under which name, its checksum, size and shape.
    assert ref["store"] == "memory"
    assert ref["ref"].startswith("noetl://execution/")
    assert len(ref["meta"]["sha256"]) == 64
    assert ref["meta"]["bytes"] > 100_000
    assert ref["meta"]["schema_hint"] == "map"
    assert all(len(json.dumps(event)) < 10_000 for event in run.log)


def test_reference_first_can_be_turned_off_up_to_the_limit_of_an_event() -> None:
    tool = {"name": "fetch", "kind": "act", "returns": {"rows": ["x" * 1000] * 100}}
    run = ran(one_step(tool, executor={"policy": {"results": {"reference_first": False}}}))
    assert not run.of("result.stored")
    assert len(run.only("task.done")["payload"]["outcome"]["result"]["rows"]) == 100


# -- 11: where iterations run -----------------------------------------------------------------------------------------


def workers_of(text: str) -> set[str]:
    """Who worked on it, when two workers are there."""

    async def slowly(_: Call, __: TaskContext) -> None:
        await asyncio.sleep(1)

    async def another(world: Any) -> None:
        world.current_life.start_worker("worker-b")

    run = ran(text, another, hook=slowly, settings={"worker.slots": 1})
    return {event["worker_id"] for event in run.of("step.started", "loop.iteration.started") if "worker_id" in event}


def test_distributed_iterations_are_shared_and_local_ones_stay_with_one_worker() -> None:
    items, tool = list(range(8)), {"kind": "act"}
    assert workers_of(loop(items, tool, mode="parallel", max_in_flight=4)) == {"worker-a", "worker-b"}
    assert len(workers_of(loop(items, tool, mode="parallel", max_in_flight=4, policy={"exec": "local"}))) == 1


def test_the_tasks_of_one_iteration_stay_with_one_worker() -> None:
    tools = [{"name": name, "kind": "act"} for name in ("fetch_page", "transform", "store")]

    async def another(world: Any) -> None:
        world.current_life.start_worker("worker-b")

    run = ran(loop(list(range(4)), tools, mode="parallel", max_in_flight=4), another)
    for item in range(4):
        own = [event for event in run.log if event.get("iteration") == item]
        commands = {event["command_id"] for event in own if "command_id" in event}
        assert len(commands) <= 1
        assert [event["task"] for event in own if event["event_type"] == "task.done"] == [
            "fetch_page",
            "transform",
            "store",
        ]
