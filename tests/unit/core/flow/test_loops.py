"""Loops, decision by decision: what is handed out to whom, what an end leads to, and what a loop leaves behind."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest

from arclog.core.boundary.inputs import Continue, LeaseEnded, NewWork, Txn
from arclog.core.boundary.projection import command_of
from arclog.core.flow.loops import MAX_CHUNK
from arclog.core.transitions.decide import MAX_OPEN_COMMANDS
from arclog.engine.commits.ids import LONGEST_RUN
from arclog.model.commands import Command, LoopWork
from arclog.model.events import Event
from arclog.plan.program import MAX_SIDE_BY_SIDE
from tests.unit.core.support import NOW, Core, event

Path = tuple[int, ...]


class Looping(Core):
    """A core whose commands are carried out by hand; `t` is the only task."""

    def __init__(self, loop: Any, *, failure: str = "", ctx: Any = None, sets: Any = None, **more: Any) -> None:
        task: dict[str, Any] = {"name": "t", "kind": "act", "returns": "{{ iter }}"}
        if sets:
            task["spec"] = {
                "policy": {
                    "on_unmatched": "fail",
                    "rules": [{"when": "{{ outcome.status == 'ok' }}", "then": {"set_ctx": sets}}],
                }
            }
        step: dict[str, Any] = {"step": "start", "loop": loop, "tool": [task]}
        if failure:
            step["spec"] = {"policy": {"failure": {"mode": failure}}}
        step["next"] = {"arcs": [{"step": "rescue", "when": "{{ event.name == 'step.failed' }}"}]}
        spec: dict[str, Any] = {"ctx": ctx} if ctx else {}
        if more.pop("results", False):
            spec["result"] = "{{ start.results }}"
        if "limits" in more:
            spec["policy"] = {"limits": more.pop("limits")}
        made = {
            "metadata": {"name": "p"},
            "executor": {"spec": spec},
            "workflow": [step, {"step": "rescue", "tool": {"kind": "noop"}}],
        }
        super().__init__(json.dumps(made), **more)
        self.open: list[NewWork] = []
        self.issued: list[int] = []

    def follow(self, txn: Txn) -> Txn:
        """Keep the list of open commands, and put Continue where it is asked for."""
        while True:
            self.open += txn.issue
            self.issued += [command.command_id for command in txn.issue]
            self.open = [command for command in self.open if command.command_id not in txn.close]
            if not txn.more:
                return txn
            txn = self.put(Continue())

    def go(self, **workload: Any) -> Txn:
        return self.follow(self.begin(**workload))

    def work(self, work: NewWork) -> LoopWork:
        loop = self.command(work).loop
        assert loop is not None
        return loop

    def command(self, work: NewWork) -> Command:
        return command_of(self.program, self.state, self.state.commands[work.command_id], 0)

    def items(self, work: NewWork) -> list[Path]:
        it = self.work(work)
        return [(*it.path, index) for index in range(it.first, it.last)]

    def ran(self, work: NewWork, path: Path, *, fails: bool = False, ctx: Any = None, us: int = 0) -> list[Event]:
        """The events of one iteration."""
        at: dict[str, Any] = {"iteration": path}
        status = "error" if fails else "ok"
        error = {"kind": "exception", "message": f"no {path}", "code": None, "retryable": False}
        outcome = {
            "status": status,
            "result": list(path),
            **({"error": error} if fails else {}),
            "meta": {"attempt": 1},
        }
        events = [event("loop.iteration.started", work, **at), event("task.started", work, "t", **at)]
        events.append(event("task.failed" if fails else "task.done", work, "t", payload={"outcome": outcome}, **at))
        if self.program.steps["start"].tasks[0].plan.policy is not None:
            chosen = {"matched_rule_index": 0, "action": {"do": "fail" if fails else "continue"}, "set_ctx": ctx or {}}
            events.append(event("policy.task.evaluated", work, "t", payload=chosen, **at))
        end = event("loop.iteration.failed" if fails else "loop.iteration.done", work, **at)
        end.at = NOW + us
        if fails:
            end.payload = {"error": error}
        return [*events, end]

    def carry_out(self, work: NewWork, *, failing: Any = (), ctx: Any = None, us: int = 0) -> Txn:
        """Report everything that a command is to do."""
        events: list[Event] = [] if self.command(work).started else [event("step.started", work)]
        for path in self.items(work):
            events += self.ran(work, path, fails=path in failing, ctx=ctx(path) if ctx else None, us=us)
        return self.follow(self.report(work, *events))

    def finish(self, draw: Random | None = None, **how: Any) -> None:
        while self.open and self.open[0].step == "start":
            self.carry_out(self.open[draw.randrange(len(self.open)) if draw else 0], **how)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.type == kind]

    def ends(self) -> list[Path | None]:
        return [
            event.iteration
            for event in self.events
            if event.type.startswith("loop.iteration.") and event.type[-4:] in ("done", "iled")
        ]

    def same(self) -> None:
        assert msgspec.json.encode(self.replayed()) == msgspec.json.encode(self.state)


def parallel(items: Any, at_a_time: int = 4, **more: Any) -> dict[str, Any]:
    inner = {"loop": more.pop("loop")} if "loop" in more else {}
    policy = {"policy": {"exec": more.pop("exec")}} if "exec" in more else {}
    return {
        "in": items,
        "iterator": more.pop("iterator", "item"),
        "spec": {"mode": "parallel", "max_in_flight": at_a_time, **policy},
        **inner,
    }


# ── parallel, distributed ────────────────────────────────────────────────────────────────────────────────────────


def test_as_many_commands_as_may_be_in_flight_and_every_item_once() -> None:
    core = Looping(parallel("{{ range(1000) }}"))
    core.go()
    draw = Random(1)
    seen: list[Path] = []
    while core.open:
        assert len(core.open) <= 4
        assert len(core.state.commands) == len(core.open)
        work = draw.choice(core.open)
        seen += core.items(work)
        core.carry_out(work, us=1000)
    assert sorted(seen) == [(index,) for index in range(1000)]
    assert core.state.status == "COMPLETED"
    assert core.of("loop.done")[0].payload == {"total": 1000, "ok": 1000, "failed": 0}
    core.same()


def test_chunks_are_as_large_as_their_items_are_quick() -> None:
    def largest(us: int) -> int:
        core = Looping(parallel("{{ range(4000) }}"))
        core.go()
        core.finish(us=us)
        sizes: list[int] = [
            event.payload["items"][2] - event.payload["items"][1] for event in core.of("command.issued")
        ]
        assert sizes[:4] == [1, 1, 1, 1], "nobody knows yet how long an item takes"
        assert sizes[-1] < max(sizes) or max(sizes) == 1, "towards the end everybody gets a share"
        return max(sizes)

    assert largest(10) == MAX_CHUNK
    assert 5 <= largest(10_000) <= 15
    assert largest(1_000_000) == 1


def test_items_of_a_range_are_never_written_out() -> None:
    core = Looping(parallel("{{ range(5, 1000005) }}"))
    core.go()
    scheduled = core.of("step.scheduled")[0].payload
    assert (scheduled["items"], scheduled["total"]) == ({"range": [5, 1000005, 1]}, 1_000_000)
    assert len(msgspec.json.encode(core.state)) < 10_000
    it = core.work(core.open[2])
    assert (it.first, it.last, it.items) == (2, 3, {"range": [7, 8, 1]})


def test_a_thousand_million_items_are_too_many_and_cost_nothing() -> None:
    for loop in (parallel("{{ range(1000000000) }}"), {"in": "{{ range(1000000000) }}", "iterator": "i"}):
        core = Looping(loop)
        core.go()
        failed = core.of("step.failed")[0].payload["error"]
        assert (failed["kind"], failed["code"]) == ("limit", "MAX_ITERATIONS")
        assert "10000000" in failed["message"]
        assert "limits.max_iterations" in failed["message"]
    core = Looping(parallel([1, 2, 3]), limits={"max_iterations": 2})
    core.go()
    assert core.of("step.failed")[0].payload["error"]["code"] == "MAX_ITERATIONS"


@pytest.mark.parametrize("more", [{}, {"exec": "local"}, {"loop": parallel([1])}])
def test_an_empty_list_is_done_at_once(more: dict[str, Any]) -> None:
    core = Looping(parallel([], **more), results=True)
    core.go()
    assert core.types[4:-3] == [
        "step.scheduled",
        "step.started",
        "loop.started",
        "loop.done",
        "step.done",
        "next.evaluated",
    ]
    assert core.of("loop.done")[0].payload == {"total": 0, "ok": 0, "failed": 0}
    assert (core.state.status, core.state.result) == ("COMPLETED", [])
    core.same()


def test_the_first_failure_withdraws_the_rest_and_late_reports_are_answered_closed() -> None:
    core = Looping(parallel("{{ range(9) }}"))
    core.go()
    first, second, third, fourth = core.open
    core.report(second, *core.ran(second, (1,))[:2])
    txn = core.carry_out(third, failing=[(2,)])
    kinds = [event.type for event in txn.events]
    closed = ["task.failed", "loop.iteration.failed", "step.failed"]
    assert kinds[4:] == [*["command.cancelled"] * 3, *closed, "next.evaluated", "step.scheduled"]
    assert [command.command_id for command in core.of("command.cancelled")] == [
        command.command_id for command in (first, second, fourth)
    ]
    assert set(txn.close) == {command.command_id for command in (first, second, third, fourth)}
    left = core.of("task.failed")[-1]
    assert (left.iteration, left.payload["outcome"]["error"]["kind"]) == ((1,), "cancelled")
    assert core.of("step.failed")[0].payload["error"]["message"] == "iteration 2: no (2,)"
    assert not core.of("loop.done")
    for late in (first, second, third):
        refused = core.report(late, *core.ran(late, (0,))).refused
        assert refused is not None
        assert refused.reason == "closed"
    assert [command.step for command in core.open] == ["rescue"]
    core.same()


def test_best_effort_runs_all_and_names_the_first_errors_in_item_order() -> None:
    failing = {(index,) for index in range(0, 300, 2)}
    outcomes = []
    for seed in range(5):
        core = Looping(parallel("{{ range(300) }}"), failure="best_effort")
        core.go()
        core.finish(Random(seed), failing=failing, us=30_000)
        done = core.of("loop.done")[0].payload
        assert (done["total"], done["ok"], done["failed"]) == (300, 150, 150)
        assert [error["index"] for error in done["errors"]] == list(range(0, 200, 2))
        assert core.state.status == "COMPLETED"
        outcomes.append(done)
        core.same()
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_long_messages_are_cut_so_that_all_errors_fit_into_loop_done() -> None:
    core = Looping(parallel("{{ range(150) }}"), failure="best_effort")
    core.go()
    while core.open:
        work = core.open[0]
        events = [] if core.command(work).started else [event("step.started", work)]
        for path in core.items(work):
            own = core.ran(work, path, fails=True)
            own[-1].payload = {"error": {"kind": "exception", "message": "é" * 100_000}}
            events += own
        core.follow(core.report(work, *events))
    assert len(msgspec.json.encode(core.of("loop.done")[0])) < 256 * 1024


def test_results_are_in_item_order_whatever_ends_first() -> None:
    for seed in range(5):
        core = Looping(parallel([10, 20, 30, 40, 50, 60], 3), results=True)
        core.go()
        core.finish(Random(seed))
        assert core.state.result == [[index] for index in range(6)]
        assert core.state.results["start"]["result"] == [5], "the step's own view is its last item's"


def test_results_that_grow_too_large_fail_the_step_loudly() -> None:
    core = Looping(
        parallel("{{ range(100) }}"), results=True, limits={"max_loop_results_bytes": 100}, failure="best_effort"
    )
    core.go()
    core.finish()
    failed = core.of("step.failed")[0].payload["error"]
    assert (failed["kind"], failed["code"]) == ("limit", "MAX_LOOP_RESULTS_BYTES")
    core.same()


def test_results_that_nobody_reads_are_not_kept() -> None:
    core = Looping(parallel("{{ range(100) }}"))
    core.go()
    core.carry_out(core.open[0])
    loop = core.state.open["start#1"].loop
    assert loop is not None
    assert loop.results is None


def test_many_open_commands_leave_room_to_withdraw_them() -> None:
    core = Looping(parallel("{{ range(100000) }}", 100_000))
    core.go()
    assert len(core.open) == MAX_OPEN_COMMANDS
    core.carry_out(core.open[7], us=10_000_000)
    assert len(core.open) == MAX_OPEN_COMMANDS
    for work in core.open[1:]:
        core.report(work, *core.ran(work, core.items(work)[0])[:2])
    before = len(core.events)
    core.carry_out(core.open[0], failing=core.items(core.open[0]))
    assert 3 * (MAX_OPEN_COMMANDS - 1) < len(core.events) - before < LONGEST_RUN
    assert [command.step for command in core.open] == ["rescue"]
    core.same()


def test_many_outer_iterations_leave_room_to_withdraw_their_commands() -> None:
    core = Looping(parallel("{{ range(50000) }}", 50_000, loop=parallel([1], iterator="inner")))
    core.go()
    assert MAX_OPEN_COMMANDS <= len(core.open) < MAX_OPEN_COMMANDS + 100
    core.carry_out(core.open[7])
    assert MAX_OPEN_COMMANDS <= len(core.open) < MAX_OPEN_COMMANDS + 100
    core.same()


# ── leases ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_lost_chunk_only_what_is_not_over_is_done_again() -> None:
    core = Looping(parallel("{{ range(1000) }}", 2))
    core.go()
    for _ in range(4):
        core.carry_out(core.open[0], us=10)
    lost, other = core.open
    first, second, *rest = core.items(lost)
    assert len(rest) > 10
    core.report(lost, *core.ran(lost, first), *core.ran(lost, second)[:2])
    untouched = core.items(other)
    core.put(LeaseEnded(lost.command_id, 1, "w", max_losses=5))
    again = core.command(lost)
    assert again.fence == 2
    assert again.loop is not None
    assert list(again.loop.under_way) == [str(second[0])]
    assert again.loop.under_way[str(second[0])].in_flight
    assert core.items(lost) == rest
    assert core.items(other) == untouched
    events = core.ran(lost, second)[2:]
    for path in rest:
        events += core.ran(lost, path)
    core.follow(core.report(lost, *events, fence=2))
    core.finish(us=10)
    assert core.of("loop.done")[0].payload == {"total": 1000, "ok": 1000, "failed": 0}
    assert len(core.ends()) == len(set(core.ends())) == 1000
    core.same()


def test_a_chunk_that_kills_its_workers_fails_the_step_and_takes_the_others_back() -> None:
    core = Looping(parallel("{{ range(9) }}", 3))
    core.go()
    poisoned = core.open[1]
    txn = core.follow(core.put(LeaseEnded(poisoned.command_id, 1, "w", max_losses=1)))
    assert len(txn.close) == 3
    assert len(core.of("command.cancelled")) == 2
    assert core.of("step.failed")[0].payload["error"]["kind"] == "poison"
    assert [command.step for command in core.open] == ["rescue"]
    core.same()


def test_a_report_may_not_touch_iterations_of_another_command() -> None:
    core = Looping(parallel("{{ range(9) }}", 3))
    core.go()
    mine, other = core.open[:2]
    core.report(other, *core.ran(other, (1,))[:2])
    for foreign in (core.ran(mine, (1,))[2:3], core.ran(mine, (1,))[-1:], core.ran(mine, (2,))[:1]):
        refused = core.report(mine, *foreign).refused
        assert refused is not None
        assert refused.reason == "malformed"


# ── one lease ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_local_loop_is_one_command_whose_iterations_run_side_by_side() -> None:
    core = Looping(parallel([1, 2, 3, 4, 5], 3, exec="local"))
    core.go()
    (work,) = core.open
    it = core.work(work)
    assert (it.at_a_time, it.first, it.last, it.carries_ctx) == (3, 0, 5, False)
    first, two, three = (core.ran(work, (index,)) for index in range(3))
    core.report(work, event("step.started", work), *first[:2], *two[:2], *three[:2])
    core.report(work, *three[2:], *first[2:])
    core.put(LeaseEnded(work.command_id, 1, "w", max_losses=5))
    it = core.work(work)
    assert (list(it.under_way), it.first, it.last, it.items) == (["1"], 3, 5, [4, 5])
    rest = [first for index in (3, 4) for first in core.ran(work, (index,))]
    core.follow(core.report(work, *two[2:], *rest, fence=2))
    assert core.state.status == "COMPLETED"
    assert core.ends() == [(2,), (0,), (1,), (3,), (4,)]
    core.same()


def test_what_a_local_loop_did_beside_the_failure_is_kept_as_fact_only() -> None:
    core = Looping(parallel([1, 2, 3], 3, exec="local"))
    core.go()
    (work,) = core.open
    first, two = core.ran(work, (0,)), core.ran(work, (1,), fails=True)
    txn = core.follow(core.report(work, event("step.started", work), *first[:2], *two[:2], *two[2:], *first[2:]))
    facts = [event.type for event in txn.events if event.informative]
    assert facts == ["task.done", "loop.iteration.done"]
    assert core.of("task.failed")[-1].iteration == (0,)
    core.same()


def test_one_command_runs_no_more_side_by_side_than_one_decision_can_end() -> None:
    core = Looping(parallel("{{ range(100000) }}", 100_000, exec="local"))
    core.go()
    assert core.work(core.open[0]).at_a_time == MAX_SIDE_BY_SIDE


def test_a_sequential_distributed_loop_hands_out_one_chunk_after_the_other() -> None:
    loop = {"in": "{{ range(500) }}", "iterator": "i", "spec": {"policy": {"exec": "distributed"}}}
    core = Looping(loop)
    core.go()
    while core.open:
        assert len(core.open) == 1
        core.carry_out(core.open[0], us=10)
    assert core.ends() == [(index,) for index in range(500)]
    core.same()


# ── nested ───────────────────────────────────────────────────────────────────────────────────────────────────────

CITIES = [
    {"name": "A", "hotels": [{"name": "a1", "rooms": [1, 2]}, {"name": "a2", "rooms": []}]},
    {"name": "B", "hotels": []},
    {"name": "C", "hotels": [{"name": "c1", "rooms": [7]}]},
]
ROOMS = {(0, 0, 0), (0, 0, 1), (2, 0, 0)}


def cities(**more: Any) -> dict[str, Any]:
    rooms = parallel("{{ iter.hotel.rooms }}", iterator="room")
    return parallel(
        "{{ workload.cities }}",
        iterator="city",
        loop=parallel("{{ iter.city.hotels }}", iterator="hotel", loop=rooms),
        **more,
    )


def test_three_levels_in_one_step() -> None:
    for seed in range(10):
        core = Looping(cities(), results=True)
        core.go(cities=CITIES)
        assert {path for work in core.open for path in core.items(work)} == ROOMS
        (last,) = [work for work in core.open if core.items(work) == [(2, 0, 0)]]
        parent = core.work(last).parent
        assert parent is not None
        assert (parent["hotel"]["name"], parent["index"], parent["total"]) == ("c1", 0, 1)
        assert (parent["parent"]["city"]["name"], parent["parent"]["index"]) == ("C", 2)
        core.finish(Random(seed))
        assert core.state.status == "COMPLETED"
        assert sorted(core.ends(), key=str) == sorted([*ROOMS, (0, 0), (0, 1), (2, 0), (0,), (1,), (2,)], key=str)
        done = {event.iteration: event.payload["total"] for event in core.of("loop.done")}
        assert done == {None: 3, (0,): 2, (1,): 0, (2,): 1, (0, 0): 2, (0, 1): 0, (2, 0): 1}
        assert core.state.result == [[0, 0, 0], [0, 0, 1], [2, 0, 0]]
        core.same()


def test_an_item_that_fails_inside_fails_its_outer_iterations_and_no_others() -> None:
    core = Looping(cities(), failure="best_effort")
    core.go(cities=CITIES)
    core.finish(failing={(0, 0, 1)})
    done = {event.iteration: event.payload for event in core.of("loop.done")}
    assert done[(0, 0)] == {
        "total": 2,
        "ok": 1,
        "failed": 1,
        "errors": [{"index": 1, "kind": "exception", "message": "no (0, 0, 1)", "code": None, "retryable": False}],
    }
    assert (done[(0,)]["ok"], done[(0,)]["failed"]) == (1, 1)
    assert (done[None]["total"], done[None]["ok"], done[None]["failed"]) == (3, 2, 1)
    assert [error["index"] for error in done[None]["errors"]] == [0]
    assert core.state.status == "COMPLETED"
    core.same()


def test_an_item_that_fails_inside_fails_the_step_fast() -> None:
    core = Looping(cities())
    core.go(cities=CITIES)
    work = next(command for command in core.open if core.items(command)[0][0] == 0)
    core.carry_out(work, failing={(0, 0, 0)})
    assert core.of("step.failed")[0].payload["error"]["message"] == "iteration 0.0.0: no (0, 0, 0)"
    assert [command.step for command in core.open] == ["rescue"]
    core.same()


@pytest.mark.parametrize("failure", ["fail_fast", "best_effort"])
@pytest.mark.parametrize(
    ("rooms", "kind"),
    [("{{ iter.hotel.nowhere }}", "template"), ("{{ iter.hotel.name }}", "config"), ("{{ range(10 ** 9) }}", "limit")],
)
def test_inner_items_that_are_none_fail_the_step(rooms: str, kind: str, failure: str) -> None:
    loop = cities()
    loop["loop"]["loop"]["in"] = rooms
    core = Looping(loop, failure=failure)
    core.go(cities=CITIES)
    failed = core.of("step.failed")[0].payload["error"]
    assert failed["kind"] == kind
    assert failed["message"].startswith("iteration 0.0: ")
    assert not [event for event in core.of("loop.done") if event.iteration is None]
    assert core.open[0].step == "rescue"
    core.same()


def test_sequential_levels_go_one_after_the_other() -> None:
    inner = {"in": "{{ range(2) }}", "iterator": "j"}
    core = Looping({"in": [1, 2, 3], "iterator": "i", "loop": inner})
    core.go()
    while core.open:
        assert len(core.open) == 1
        core.carry_out(core.open[0])
    assert core.ends() == [(0, 0), (0, 1), (0,), (1, 0), (1, 1), (1,), (2, 0), (2, 1), (2,)]


def test_a_hundred_thousand_empty_inner_lists_are_many_small_decisions() -> None:
    core = Looping(parallel("{{ range(20000) }}", loop=parallel([], iterator="inner")))
    txn = core.begin()
    while txn.more:
        assert len(txn.events) < 600
        core.events.clear()
        txn = core.put(Continue())
    assert core.state.status == "COMPLETED"
    assert core.of("loop.done")[-1].payload["total"] == 20_000
