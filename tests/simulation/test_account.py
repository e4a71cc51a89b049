"""The account of a run, on real runs: what failed, the root cause and its place, and that asking for it stays cheap."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound
from arclog.model.outcome import Outcome, error, failed
from arclog.ports.tool import TaskContext
from arclog.ports.views.api import ExecuteRequest, ListedRun, SignalRequest, Summary
from arclog.ports.views.insight import Why
from arclog.testing.harness import World
from arclog.testing.scripted import Call
from arclog.testing.virtual import run_virtually


class Ended:
    """A run that has ended, as each reader sees it."""

    def __init__(self, summary: Summary, why: Why, listed: ListedRun) -> None:
        self.summary = summary
        self.why = why
        self.listed = listed
        assert summary.cause == why.cause
        assert summary.problems == why.problems


async def _ended(world: World) -> Ended:
    api, name = world.current_life.api, str(world.execution_id)
    (listed,) = await api.list(before=str(world.execution_id + 1), limit=1)
    return Ended(await api.summary(name), await api.why(name), listed)


def run(text: str, *children: str, hook: Any = None, file: str = "", **more: Any) -> Ended:
    async def main() -> Ended:
        async with World(text, hook=hook, **more) as world:
            for child in children:
                await world.register(child)
            if file:
                life = world.begin_life()
                started = await life.api.execute(ExecuteRequest(text, file))
                world.execution_id = int(started.execution_id)
            await world.run()
            return await _ended(world)

    return run_virtually(main())


async def fails_in_item_five(call: Call, context: TaskContext) -> Outcome | None:
    """Item 5 fails with a traceback; the others are still at work then."""
    if call.key.split(":")[3] == "5":
        text = 'Traceback (most recent call last):\n  File "<start.work>", line 2, in main\n    boom()\nValueError: 5\n'
        return failed(error("exception", "ValueError: 5", code="ValueError"), py={"traceback": text})
    return None


PARALLEL = """
metadata: {name: many}
workflow:
  - step: start
    loop: {in: "{{ range(20) }}", iterator: n, spec: {mode: parallel, max_in_flight: 8, policy: {exec: EXEC}}}
    tool:
      - {name: work, kind: act, takes: 30}
"""


@pytest.mark.parametrize("where", ["local", "distributed"])
def test_in_a_parallel_loop_the_item_that_failed_is_blamed_and_not_one_that_was_cancelled(where: str) -> None:
    ended = run(PARALLEL.replace("EXEC", where), hook=fails_in_item_five, workers=3)
    cause = ended.summary.cause
    assert cause is not None
    assert (cause.step, cause.task, cause.iteration) == ("start", "work", "5")
    assert (cause.kind, cause.message, cause.code) == ("exception", "ValueError: 5", "ValueError")
    assert "ValueError: 5" in cause.traceback
    assert ended.summary.error == {
        "kind": "exception",
        "message": "iteration 5: ValueError: 5",
        "code": "ValueError",
        "retryable": False,
        "step": "start",
        "task": "work",
        "item": "5",
        "traceback": cause.traceback,
        "cause": None,
    }
    assert "step start, item 5, task work" in ended.why.summary
    assert ended.listed.error == "step start, item 5, task work: exception: ValueError: 5"
    items = ended.summary.steps["start"].items
    assert items is not None
    assert (items.total, items.ok, items.failed) == (20, 0, 1)


BEST_EFFORT = """
metadata: {name: some}
workflow:
  - step: start
    spec: {policy: {failure: {mode: best_effort}}}
    loop: {in: "{{ range(1000) }}", iterator: n}
    tool: {kind: act, fail_attempts: "{{ 9 if iter.n in [5, 50, 700] else 0 }}"}
    next: {arcs: [{step: gated}]}
  - step: gated
    spec: {policy: {admit: {rules: [{when: "{{ false }}", then: {allow: true}}, {else: {then: {allow: false}}}]}}}
    tool: {kind: noop}
"""


def test_failed_items_of_a_run_that_completed_are_told_everywhere() -> None:
    ended = run(BEST_EFFORT)
    summary = ended.summary
    assert (summary.state, summary.error, summary.cause) == ("COMPLETED", None, None)
    step = summary.steps["start"]
    assert step.items is not None
    assert (step.items.total, step.items.ok, step.items.failed) == (1000, 997, 3)
    assert [(error.item, error.task, error.kind) for error in step.errors] == [
        ("5", "start_task", "exception"),
        ("50", "start_task", "exception"),
        ("700", "start_task", "exception"),
    ]
    items, denied = summary.problems
    assert (items.what, items.text, items.errors) == ("items", "step start: 997 ok, 3 failed", step.errors)
    assert ended.why.summary == "the run has ended: COMPLETED; step start: 997 ok, 3 failed"
    assert (ended.listed.error, ended.listed.warning) == (None, "step start: 997 ok, 3 failed")
    # A step that no token got into is there, too.
    assert (summary.steps["gated"].status, summary.steps["gated"].runs, summary.steps["gated"].denied) == (
        "skipped",
        0,
        1,
    )
    assert (denied.what, denied.step) == ("denied", "gated")
    assert denied.text.startswith("step gated was not admitted: rule 2 at 10:")


def test_all_items_failed() -> None:
    ended = run(BEST_EFFORT.replace("range(1000)", "range(30)").replace("9 if iter.n in [5, 50, 700] else 0", "9"))
    assert ended.summary.state == "COMPLETED"
    assert ended.summary.problems[0].text == "step start: 0 ok, 30 failed"
    assert len(ended.summary.steps["start"].errors) == 10, "the first ones"


POLICY = """
metadata: {name: policed}
workflow:
  - step: start
    tool:
      - name: picky
        kind: act
        fail_attempts: FAILS
        returns: 1
        spec: {policy: {rules: [{when: "{{ WHEN }}", then: {do: fail}}]}}
"""


def policed(when: str, fails: int) -> Ended:
    return run(POLICY.replace("WHEN", when).replace("FAILS", str(fails)))


def test_an_unevaluable_policy_keeps_the_tasks_own_error() -> None:
    ended = policed("outcome.nope.x > 3", 9)
    problem, cause = ended.summary.error, ended.summary.cause
    assert problem is not None
    assert cause is not None
    assert (problem["kind"], problem["task"]) == ("template", "picky")
    assert problem["cause"]["message"] == "attempt 1 of picky fails as scripted"
    assert (cause.kind, cause.message) == ("exception", "attempt 1 of picky fails as scripted")
    assert cause.rule.startswith("its policy could not be evaluated: 'outcome.nope.x' is undefined")


def test_an_unevaluable_policy_of_an_ok_outcome_is_the_cause_itself() -> None:
    ended = policed("outcome.nope.x > 3", 0)
    assert ended.summary.cause is not None
    assert ended.summary.error is not None
    assert (ended.summary.cause.kind, ended.summary.error["cause"]) == ("template", None)
    assert ended.summary.cause.line == 10, "where the template stands"


def test_a_policy_that_fails_keeps_the_tasks_own_error() -> None:
    ended = policed("outcome.status == 'error'", 9)
    assert ended.summary.error is not None
    assert ended.summary.error["message"] == "attempt 1 of picky fails as scripted"
    assert ended.summary.cause is not None
    assert ended.summary.cause.rule.endswith("(when {{ outcome.status == 'error' }}) chose fail")


def test_a_policy_that_fails_an_ok_outcome_names_the_rule() -> None:
    ended = policed("outcome.data == 1", 0)
    assert ended.summary.error is not None
    assert ended.summary.error["message"] == (
        "task picky ended ok, but rule 1 of its policy at 10:33 (when {{ outcome.data == 1 }}) says fail"
    )


def test_a_routing_error_of_a_loop_step_blames_no_item() -> None:
    ended = run("""
metadata: {name: routed}
workflow:
  - step: start
    loop: {in: [1, 2], iterator: n}
    tool: {kind: act}
    next: {arcs: [{step: end, when: "{{ nowhere.to > 1 }}"}]}
  - {step: end, tool: {kind: noop}}
""")
    cause = ended.summary.cause
    assert cause is not None
    assert (cause.kind, cause.step, cause.iteration, cause.task) == ("template", "start", "", "")
    assert cause.line == 7


def test_a_routing_error_after_a_failure_keeps_the_failure() -> None:
    ended = run("""
metadata: {name: routed}
workflow:
  - step: start
    tool: {kind: act, fail_attempts: 9}
    next: {arcs: [{step: end, when: "{{ event.nowhere.to > 1 }}"}]}
  - {step: end, tool: {kind: noop}}
""")
    cause, problem = ended.summary.cause, ended.summary.error
    assert cause is not None
    assert problem is not None
    assert (problem["kind"], problem["cause"]["kind"]) == ("template", "exception")
    assert (cause.kind, cause.task) == ("exception", "start_task")
    assert cause.rule.startswith("routing after step start: ")


LATE = """
metadata: {name: late}
workflow:
  - step: start
    spec: {policy: {failure: {mode: best_effort}, lifecycle: {timeout_s: 18}}}
    loop: {in: "{{ range(9) }}", iterator: n}
    tool: {kind: act, takes: 4, fail_attempts: "{{ 9 if iter.n == 1 else 0 }}"}
"""


def test_a_step_that_took_too_long_is_not_blamed_on_an_item_that_failed_before() -> None:
    ended = run(LATE)
    cause, step = ended.summary.cause, ended.summary.steps["start"]
    assert cause is not None
    assert (cause.kind, cause.iteration) == ("timeout", "")
    assert step.items is not None
    assert (step.items.total, step.items.ok, step.items.failed) == (9, 3, 1)
    assert ended.summary.problems[-1].text == "step start: 3 ok, 1 failed, 5 of 9 items not run"


def test_where_a_task_was_when_its_step_took_too_long_is_in_the_log() -> None:
    async def hangs(_call: Call, context: TaskContext) -> Outcome | None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            context.stopped["py"] = {"traceback": "in the middle of it"}
            raise
        return None

    async def main() -> list[str]:
        text = LATE[: LATE.index("    loop:")] + "    tool: {kind: act}\n"
        async with World(text, hook=hangs) as world:
            await world.run()
            await asyncio.sleep(10)
            return [line.text for _, line in await world.store.logs(world.execution_id)]

    assert run_virtually(main()) == ["in the middle of it"]


def test_items_that_do_not_go_together_are_not_blamed_on_an_item_that_failed() -> None:
    ended = run("""
metadata: {name: conflict}
workflow:
  - step: start
    spec: {policy: {failure: {mode: best_effort}}}
    loop: {in: [0, 1, 2], iterator: n, spec: {mode: parallel}}
    tool:
      - name: work
        kind: act
        fail_attempts: "{{ 9 if iter.n == 0 else 0 }}"
        takes: 1
        spec:
          policy:
            rules:
              - {when: "{{ outcome.status == 'error' }}", then: {do: fail}}
              - {else: {then: {do: continue, set_ctx: {x: "{{ iter.n }}"}}}}
""")
    assert ended.summary.cause is not None
    assert (ended.summary.cause.kind, ended.summary.cause.code) == ("conflict", "CTX_CONFLICT")


def test_a_handled_failure_is_a_problem_and_no_cause() -> None:
    ended = run("""
metadata: {name: handled}
workflow:
  - step: start
    tool: {kind: act, fail_attempts: 9}
    next: {arcs: [{step: repair, when: "{{ event.name == 'step.failed' }}"}]}
  - {step: repair, tool: {kind: noop}}
""")
    assert (ended.summary.state, ended.summary.cause) == ("COMPLETED", None)
    (problem,) = ended.summary.problems
    assert problem.text.startswith("step start failed; an arc handled the failure: exception: attempt 1 of start_task")
    assert ended.listed.error is None


def test_a_rejected_approval_is_a_cause() -> None:
    async def main() -> Ended:
        text = "metadata: {name: asks}\nworkflow: [{step: start, tool: {kind: approval}}]\n"
        async with World(text) as world:
            life = world.begin_life()
            await world.start()
            life.start_worker("w1")
            await life.api.wait(str(world.execution_id), after=7)
            answer = await life.api.signal(str(world.execution_id), SignalRequest("REJECT", reason="not today"))
            assert answer.accepted
            await world.run()
            return await _ended(world)

    ended = run_virtually(main())
    assert ended.summary.cause is not None
    assert (ended.summary.cause.kind, ended.summary.cause.code) == ("cancelled", "REJECTED")
    assert ended.summary.cause.message == "rejected: not today"


# ── children ─────────────────────────────────────────────────────────────────────────────────────────────────────────

LEAF = """
metadata: {name: leaf, path: leaf}
workflow:
  - step: inner
    loop: {in: [1, 2, 3], iterator: n}
    tool: [{name: calc, kind: act, fail_attempts: "{{ 9 if iter.n == 2 else 0 }}"}]
"""
MIDDLE = """
metadata: {name: middle, path: middle}
workflow: [{step: call, tool: {kind: playbook, path: leaf}}]
"""
TOP = """
metadata: {name: top, path: top}
workflow: [{step: begin, tool: {kind: playbook, path: middle}}]
"""


def test_the_root_cause_of_a_child_is_that_of_its_callers_at_any_depth() -> None:
    ended = run(TOP, MIDDLE, LEAF)
    cause, problem = ended.summary.cause, ended.summary.error
    assert cause is not None
    assert problem is not None
    assert (cause.step, cause.task, cause.iteration, cause.at) == ("inner", "calc", "1", "6:12")
    assert cause.message == "attempt 1 of calc fails as scripted"
    assert cause.via == ["step begin, task begin_task", "step call, task call_task"]
    assert cause.execution_id != ended.summary.execution_id
    assert (problem["kind"], problem["step"], problem["task"]) == ("child", "begin", "begin_task")
    assert problem["cause"]["cause"]["item"] == "1"
    assert problem["cause"]["cause"]["execution_id"] == cause.execution_id
    assert ended.listed.error is not None
    assert cause.message in ended.listed.error
    assert ended.summary.next[0] == f"arclog logs {cause.execution_id} --step inner"


def test_the_log_of_the_caller_is_enough_when_the_child_is_gone() -> None:
    async def main() -> Ended:
        async with World(TOP) as world:
            await world.register(MIDDLE)
            await world.register(LEAF)
            await world.run()
            live = world.current_life.engine.live

            async def gone(execution_id: int, at: int | None = None) -> Any:
                if execution_id != world.execution_id:
                    raise NotFound("it was retired")
                return await type(live).folded(live, execution_id, at)

            live.folded = gone  # type: ignore[method-assign]  # as after its retention
            return await _ended(world)

    ended = run_virtually(main())
    cause = ended.summary.cause
    assert cause is not None
    assert (cause.step, cause.task, cause.iteration) == ("inner", "calc", "1")
    assert cause.message == "attempt 1 of calc fails as scripted"
    assert cause.via == ["step begin, task begin_task"]


# ── places ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def traced(line: int) -> Any:
    async def hook(_call: Call, context: TaskContext) -> Outcome | None:
        name = f"<{context.step}.{context.task}>"
        text = f'Traceback (most recent call last):\n  File "{name}", line {line}, in main\n    x\nKeyError: 1\n'
        return failed(error("exception", "KeyError: 1"), py={"traceback": text})

    return hook


CODE = """metadata: {name: placed}
workbook:
  - name: shared
    kind: act
    code: |
      one
      two
workflow:
  - step: start
    tool:
      - name: work
        kind: act
        code: |

          import this
          this.fails()
"""


@pytest.fixture(autouse=True)
def act_has_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted kind takes a `code`, as python does, so that its place can be ended without a process."""
    from msgspec.structs import replace

    from arclog.model.data.shapes import Field
    from arclog.testing import harness, scripted

    spec = replace(scripted.ACT, fields=(*scripted.ACT.fields, Field("code", "string", "Code.")), verbatim=("code",))
    monkeypatch.setattr(scripted, "ACT", spec)
    monkeypatch.setitem(harness.SPECS, "act", spec)
    harness._prepared.cache_clear()


def test_a_traceback_counts_the_lines_of_the_file() -> None:
    ended = run(CODE, hook=traced(3), file="flows/placed.yaml")
    cause = ended.summary.cause
    assert cause is not None
    assert (cause.file, cause.line, cause.source) == ("flows/placed.yaml", 16, "this.fails()")
    assert 'File "flows/placed.yaml", line 16, in main' in cause.traceback
    assert ended.summary.error is not None
    assert ended.summary.error["traceback"] == cause.traceback


def test_code_on_one_line_and_code_that_yaml_folds() -> None:
    plain = CODE[: CODE.index("        code: |\n\n")]
    ended = run(plain + "        code: this.fails()\n", hook=traced(1), file="f.yaml")
    assert ended.summary.cause is not None
    assert (ended.summary.cause.line, ended.summary.cause.source) == (13, "code: this.fails()")
    ended = run(plain + "        code: >\n          a\n\n          b\n", hook=traced(2), file="f.yaml")
    assert ended.summary.cause is not None
    assert ended.summary.cause.line == 11, "the task: which line of the file it is cannot be ended"
    assert 'File "f.yaml, code of start.work", line 2' in ended.summary.cause.traceback


def test_code_of_a_workbook_entry_has_the_entrys_lines() -> None:
    text = CODE[: CODE.index("      - name: work")] + "      - {name: shared, kind: workbook}\n"
    ended = run(text, hook=traced(2), file="f.yaml")
    assert ended.summary.cause is not None
    assert (ended.summary.cause.line, ended.summary.cause.source) == (7, "two")


def test_a_run_of_the_catalog_names_path_and_version() -> None:
    ended = run(CODE, hook=traced(3))
    assert ended.summary.cause is not None
    assert (ended.summary.cause.file, ended.summary.cause.line) == ("placed@1", 16)


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_account_of_a_long_run_is_read_with_few_reads() -> None:
    """The log behind the newest snapshot, and nothing that grows with the run."""

    async def main() -> tuple[int, int]:
        text = BEST_EFFORT.replace("range(1000)", "range(3000)")
        async with World(text, settings=Settings({"engine.snapshot_events": 1000})) as world:
            await world.run()
            store, reads = world.store, {"events": 0, "rows": 0}
            plain = store.events

            async def counted(*args: Any, **how: Any) -> Any:
                result = await plain(*args, **how)
                reads["events"] += 1
                reads["rows"] += len(result)
                return result

            store.events = counted  # type: ignore[method-assign]  # counts what the account reads
            ended = await _ended(world)
            assert ended.summary.steps["start"].items is not None
            assert ended.summary.steps["start"].items.failed == 3
            assert len(await plain(world.execution_id, limit=1_000_000)) > 9000
            return reads["events"], reads["rows"]

    reads, rows = run_virtually(main())
    assert reads <= 6, "a fold for `show`, and one for `why`"
    assert rows <= 2 * 1500, "what is behind the newest snapshot"
