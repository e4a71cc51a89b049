"""Joins: one test a rule."""

from __future__ import annotations

import pytest

from arclog.core.flow.joins import put, waiting
from arclog.core.transitions.state import Token, run_key
from arclog.engine.views.why import explain
from arclog.plan.reach import Reach
from tests.unit.core.nets import Net, program_of, steps

FORK = ("s -> a, b, c", "a -> j@1", "b -> j@2", "c -> j@3")


def test_all_waits_for_every_arc_and_takes_one_token_of_each():
    net = Net(steps(*FORK, "j all"))
    net.ends("s", "c", "a")
    assert net.open == ["b"]
    assert net.state.waiting["j"].keys() == {"arc:c:0", "arc:a:0"}
    net.end("b")
    # In arc order whatever the order of arrival, and the last arc wins where keys meet.
    assert net.args("j") == {"a": "1", "b": "2", "c": "3", "last": "3"}
    assert net.taken("j") == [[6, 7, 5]]
    net.end("j")
    assert net.over
    net.check_end()


def test_args_merge_deeply():
    text = """
    metadata: {name: p}
    workflow:
      - {step: s, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}}
      - {step: a, tool: {kind: noop}, next: {arcs: [{step: j, args: {m: {x: 1, z: 1}, l: [1, 2]}}]}}
      - {step: b, tool: {kind: noop}, next: {arcs: [{step: j, args: {m: {y: 2, z: 2}, l: [3]}}]}}
      - {step: j, args: {m: {w: 0, x: 0}}, tool: {kind: noop}, spec: {join: all}}
    """
    net = Net(text)
    net.ends("s", "b", "a")
    assert net.args("j") == {"m": {"w": 0, "x": 1, "y": 2, "z": 2}, "l": [3]}


def test_a_join_sees_the_event_of_the_last_arrival():
    text = steps(*FORK, "j all").replace(
        '"spec":{"join":"all"}', '"args":{"by":"{{ event.step }}"},"spec":{"join":"all"}'
    )
    net = Net(text)
    net.ends("s", "c", "a", "b")
    assert net.args("j")["by"] == "b"


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_branch_that_was_never_taken_is_not_waited_for(order):
    net = Net(steps("s -> a, b, c if false", "a -> j", "b -> j", "c -> j", "j all"))
    net.end("s")
    net.end(order[0])
    assert "j" not in net.open
    net.end(order[1])
    assert net.open == ["j"]


def test_an_exclusive_split_never_hangs_a_join():
    net = Net(steps("s => a if true, b", "a -> j", "b -> j", "j all"))
    net.ends("s", "a")
    assert net.open == ["j"]


def test_a_branch_that_ends_elsewhere_lets_the_join_go():
    net = Net(steps("s -> a, b", "a -> j", "b => d if true, j", "d -> e", "e", "j all"))
    net.ends("s", "a")
    assert net.open == ["b"]
    net.end("b")
    assert net.open == ["d", "j"]


def test_a_live_step_further_up_holds_the_join_back():
    net = Net(steps("s -> a, b", "a -> j", "b -> b2", "b2 => b3 if true", "b3 => x if true, j", "x", "j all"))
    net.ends("s", "a", "b")
    assert net.open == ["b2"]
    net.ends("b2")
    assert net.open == ["b3"]
    net.ends("b3")
    assert net.open == ["x", "j"]


def test_a_denied_admission_lets_the_join_go():
    net = Net(steps("s -> a, b", "a -> j", "b deny -> j", "j all"))
    net.ends("s", "a")
    assert net.open == ["j"]


def test_a_failure_that_another_arc_handles_lets_the_join_go():
    net = Net(steps("s -> a, b", "a -> j", "b -> j, fix if failed", "fix", "j all"))
    net.ends("s", "a")
    net.end("b", "timeout")
    assert net.open == ["fix", "j"]
    net.ends("fix", "j")
    assert net.state.status == "COMPLETED"


def test_a_handled_failure_may_come_back_to_the_join():
    net = Net(steps("s -> a, b", "a -> j@1", "b -> j@2, fix if failed", "fix -> j@3", "j all"))
    net.ends("s", "a")
    net.end("b", "timeout")
    assert net.open == ["fix"]
    net.end("fix")
    assert net.args("j") == {"a": "1", "fix": "3", "last": "3"}


def test_a_best_effort_failure_lets_the_join_go_and_fails_the_run_at_its_end():
    net = Net(steps("s -> a, b", "a -> j", "b best_effort -> j", "j all"))
    net.ends("s", "a")
    net.end("b", "timeout")
    assert net.open == ["j"]
    net.end("j")
    assert (net.state.status, net.error["step"]) == ("FAILED", "b")
    net.check_end()


def test_an_unhandled_failure_ends_the_run_while_tokens_wait():
    net = Net(steps("s -> a, b", "a -> j", "b -> j", "j all"))
    net.ends("s", "a")
    net.end("b", "timeout")
    assert net.state.status == "FAILED"
    net.check_end()


def test_a_join_itself_may_be_denied_and_takes_its_tokens_along():
    net = Net(steps("s -> a, b", "a -> j", "b -> j", "j all deny -> z", "z"))
    net.ends("s", "a", "b")
    assert net.state.status == "COMPLETED"
    (denied,) = [event for event in net.log if event.type == "policy.admit.evaluated"]
    assert (denied.payload["tokens"], denied.status) == ([4, 5], "skipped")
    net.check_end()


def test_tokens_queue_first_in_first_out():
    # m runs twice, so its arc brings two tokens; the join fires once with each, the second time without a.
    net = Net(steps("s -> a, x, y", "a -> j@1", "x -> m", "y -> m", "m -> j@2", "j all"))
    net.ends("s", "x", "y", "m", "m")
    assert net.state.waiting["j"].keys() == {"arc:m:0"}
    net.end("a")
    assert net.open == ["j", "j"]
    first, second = net.taken("j")
    assert len(first) == 2
    assert len(second) == 1
    assert first[1] < second[0]
    assert net.state.open[run_key("j", 2)].args == {"m": "2", "last": "2"}


def test_a_fork_may_lead_to_the_join_directly_and_twice():
    net = Net(steps("s -> j@1, j@2, a", "a -> j@3", "j all"))
    net.ends("s", "a")
    assert net.args("j") == {"s": "2", "a": "3", "last": "3"}
    assert net.taken("j") == [[2, 3, 5]]


# -- joins behind joins, and cycles -----------------------------------------------------------------------------------


def test_a_join_behind_another_join_fires_after_it():
    # k, though first in the plan, waits for j, which nothing live can reach any more.
    net = Net(steps("s -> a, b if false, c", "k all", "a -> j", "b -> j", "c -> k", "j all -> k"))
    net.ends("s", "c")
    assert net.open == ["a"]
    net.end("a")
    assert net.open == ["j"]
    net.end("j")
    assert net.open == ["k"]


def test_a_waiting_join_that_waits_for_live_work_holds_the_ones_behind_it():
    net = Net(steps("s -> a, b, c", "k all", "a -> j", "b -> j", "c -> k", "j all -> k"))
    net.ends("s", "a", "c")
    assert net.open == ["b"]
    net.end("b")
    assert net.open == ["j"]


MUTUAL = ("s -> j, k, far", "far -> far2", "far2", "j all => k if false, z", "k all => j if false, z", "z")


def test_joins_that_wait_for_each_other_are_let_go_in_plan_order():
    net = Net(steps(*MUTUAL))
    net.end("s")
    # What is live cannot reach either of them, so they do not wait for it.
    assert net.open == ["far", "j"]
    net.end("j")
    assert net.open == ["far", "z", "k"]
    net = Net(steps("s -> j, k", "k all => j", "j all => k if ctx.x is defined"))
    net.end("s")
    assert net.open == ["k"]
    net.end("k")
    assert net.open == ["j"]
    net.end("j")
    assert net.state.status == "COMPLETED"
    assert net.order() == ["s", "k", "j"]


def test_joins_that_wait_for_each_other_stay_while_live_work_leads_to_one_of_them():
    net = Net(steps("s -> x, y, k", "x -> j", "y -> x", "j all -> k", "k all => j if ctx.x is defined"))
    net.ends("s", "x")
    # y reaches k only through j, which waits for k; when it has come, j goes first.
    assert net.open == ["y"]
    net.ends("y", "x")
    assert net.open == ["j"]
    net.ends("j", "k", "j", "k")
    assert net.state.status == "COMPLETED"


def test_a_cycle_of_waiting_joins_goes_before_the_joins_behind_it():
    net = Net(steps("s -> h, j, k", "h all", "j all -> k if ctx.x is defined, h", "k all -> j"))
    net.end("s")
    assert net.open == ["j"], "h is first in the plan, but j and k can still reach it"
    net.end("j")
    assert net.open == ["h", "k"]


def test_a_join_in_a_cycle_fires_anew_each_wave():
    lap = "ctx.never is not defined and args.lap is not defined"
    net = Net(steps("s -> a, b", "a -> j", "b -> j", f"j all -> s@1 if {lap}"))
    for _ in range(3):
        net.ends("s", "a", "b", "j")
    assert net.state.runs == {"s": 4, "a": 3, "b": 3, "j": 3}
    assert net.open == ["s"]


def test_the_entry_may_be_a_join():
    net = Net(steps("j all -> a if ctx.x is not defined", "a -> j"))
    assert net.open == ["j"]
    net.ends("j", "a")
    assert net.open == ["j"], "the entry gets no second token"
    assert net.taken("j") == [[1], [3]]


def test_an_arc_from_the_join_to_itself_is_not_waited_for():
    net = Net(steps("s -> a, b", "a -> j", "b -> j", "j all => j if event.step == 'none'"))
    net.ends("s", "a", "b")
    assert net.open == ["j"]
    net.end("j")
    assert net.state.status == "COMPLETED"


# -- counts -----------------------------------------------------------------------------------------------------------


def test_a_count_fires_early_and_absorbs_the_rest_of_its_wave():
    net = Net(steps(*FORK, "j 2"))
    net.ends("s", "c", "a")
    assert net.open == ["b", "j"]
    assert net.args("j") == {"a": "1", "c": "3", "last": "3"}
    assert net.state.absorbs == {"j": {"arc:b:0": 1}}
    net.end("b")
    (choice,) = net.log[-1].payload["selected"]
    assert choice == {"step": "j", "arc": 0, "token": 7, "absorbed": True}
    assert net.state.absorbs == {}
    net.end("j")
    assert net.state.status == "COMPLETED"
    assert net.state.runs["j"] == 1
    net.check_end()


def test_a_count_takes_all_that_have_come_when_it_fires():
    net = Net(steps("s -> j@1, j@2, a", "a -> j@3", "j 1"))
    net.end("s")
    assert net.taken("j") == [[2, 3]]
    assert net.state.absorbs == {"j": {"arc:a:0": 1}}


def test_what_can_no_longer_come_is_not_owed():
    net = Net(steps(*FORK[:3], "c => x if true, j", "x", "j 2"))
    net.ends("s", "a", "b")
    assert net.state.absorbs == {"j": {"arc:c:1": 1}}
    net.end("c")
    assert net.state.absorbs == {}
    # A place that cannot get a token when the join fires is not owed from the start.
    net = Net(steps("s -> a, b if false", "a -> j", "b -> j", "j 1"))
    net.ends("s", "a")
    assert net.state.absorbs == {}


def test_a_denial_settles_what_is_owed():
    net = Net(steps("s -> a, b", "a -> j", "b -> b2", "b2 deny -> j", "j 1"))
    net.ends("s", "a")
    assert net.state.absorbs == {"j": {"arc:b2:0": 1}}
    net.end("b")
    assert net.state.absorbs == {}


@pytest.mark.parametrize("slow_first", [True, False])
def test_a_count_in_a_cycle_tells_the_waves_apart(slow_first):
    net = Net(steps("s -> a, b", "a -> j", "b -> j", "j 1 -> s if ctx.stop is not defined"))
    net.ends("s", "a", "j")
    # Wave 2 begins while b of wave 1 still runs.
    assert net.open == ["b", "s"]
    if slow_first:
        net.ends("b", "s")
        assert net.state.absorbs == {}
        net.end("a")
        assert net.state.runs["j"] == 2
        assert net.state.absorbs == {"j": {"arc:b:0": 1}}
    else:
        net.ends("s", "a")
        assert net.state.runs["j"] == 2
        assert net.state.absorbs == {"j": {"arc:b:0": 2}}
        net.ends("b", "b")
        assert net.state.absorbs == {}
        assert net.state.runs["j"] == 2


def test_a_denied_count_absorbs_its_wave_too():
    net = Net(steps("s -> a, b", "a -> j", "b -> j", "j 1 deny"))
    net.ends("s", "a", "b")
    assert net.state.status == "COMPLETED"
    assert sum(event.type == "policy.admit.evaluated" for event in net.log) == 1
    net.check_end()


def test_too_few_for_a_count_fail_the_step_as_soon_as_that_is_certain():
    net = Net(steps("s -> a, b if false, c", "a -> j", "b -> j", "c -> j", "j 3 -> fix if failed, z", "fix", "z"))
    net.end("s")
    assert net.failures() == []
    net.end("a")
    assert net.failures() == [("j", "JOIN_COUNT")]
    assert net.open == ["c", "fix"]
    failed = next(event for event in net.log if event.type == "step.failed")
    assert failed.payload["error"]["kind"] == "config"
    assert "only 1 came (a)" in failed.payload["error"]["message"]
    # The rest of the wave is absorbed, as after a firing.
    net.ends("c", "fix")
    assert net.state.status == "COMPLETED"
    net.check_end()


def test_too_few_for_a_count_without_a_handler_fail_the_run():
    net = Net(steps("s -> a, b if false", "a -> j", "b -> j", "j 2"))
    net.ends("s", "a")
    assert (net.state.status, net.error["code"], net.error["step"]) == ("FAILED", "JOIN_COUNT", "j")
    net.check_end()


def test_a_count_without_any_token_does_nothing():
    net = Net(steps("s -> a if false, x", "x", "a -> j", "j 1"))
    net.ends("s", "x")
    assert net.state.status == "COMPLETED"
    assert net.failures() == []


def test_a_count_that_fails_over_and_over_meets_the_limit():
    text = steps("s -> a, b if false", "a -> j", "b -> j", "j 2 -> j if failed")
    text = text.replace('"workflow"', '"executor":{"spec":{"policy":{"limits":{"max_step_runs":40}}}},"workflow"')
    net = Net(text)
    net.ends("s", "a")
    assert (net.state.status, net.error["code"]) == ("FAILED", "MAX_STEP_RUNS")


def test_an_error_in_the_args_of_an_absorbed_token_is_an_error_all_the_same():
    text = steps(*FORK[:2], "b -> j@2", "c -> j", "j 1").replace('"2"', '"{{ ctx.nowhere }}"')
    net = Net(text)
    net.ends("s", "a", "b")
    assert (net.state.status, net.error["kind"]) == ("FAILED", "template")


# -- what waits is seen -----------------------------------------------------------------------------------------------


def test_why_names_what_a_join_lacks():
    net = Net(steps("s -> a, b, c if false", "a -> j", "b -> b2", "b2 -> j", "c -> j", "j all"))
    net.ends("s", "a")
    (join,) = waiting(net.program, net.state)
    assert (join.step, join.held, join.ready) == ("j", ("a",), False)
    assert [(lack.source, lack.from_steps) for lack in join.lacks] == [("b2", ("b",)), ("c", ())]
    why = explain(net.state, net.program, [], 0)
    assert why.waits[-1].what == "join"
    assert why.waits[-1].text == "step j (join all) has a token from a and waits for one from b2 (through b)"


def test_why_says_when_only_the_engine_holds_a_join_up():
    net = Net(steps("s -> a, b", "a -> j", "b -> j", "j 1"))
    net.ends("s")
    held = net.state.open.pop("a#1")
    net.state.open.pop("b#1")
    put(net.state, Token(9, "arc:a:0", "j", held.args, {}))
    why = explain(net.state, net.program, [], 0)
    assert [wait.what for wait in why.waits] == ["join"]
    assert "can start; the engine has not started it yet" in why.summary


def test_plans_without_joins_pay_nothing():
    net = Net(steps("s -> a, b", "a -> z", "b -> z", "z"))
    net.ends("s", "a", "b", "z", "z")
    assert net.state.status == "COMPLETED"
    assert "reach" not in vars(net.program)


# -- reach ------------------------------------------------------------------------------------------------------------


def reach_of(*rows: str) -> dict[str, set[str]]:
    plan = program_of(steps(*rows)).plan
    reach = Reach(plan.entry, plan.steps)
    return {
        place.source or "entry": set(reach.graph.names_of(place.reach))
        for join in reach.joins.values()
        for place in join.incoming
    }


def test_reach_goes_back_over_arcs_but_not_through_the_join():
    assert reach_of("s -> a, b", "a -> j", "b -> b2", "b2 -> j", "j all -> s if ctx.x is defined") == {
        "a": {"s", "a"},
        "b2": {"s", "b", "b2"},
    }
    assert reach_of("j all -> a, j if ctx.x is defined", "a -> b", "b -> j") == {
        "entry": set(),
        "j": set(),
        "b": {"a", "b"},
    }
    assert reach_of("s -> a, x", "a -> b", "b => a if ctx.x is defined, j", "x -> j", "j all") == {
        "b": {"s", "a", "b"},
        "x": {"s", "x"},
    }


def test_reach_of_a_long_plan_needs_no_deep_stack():
    count = 3000
    rows = [f"s{n} -> s{n + 1}" for n in range(count)]
    reach = reach_of("s -> s0, j", *rows, f"s{count} -> j", "j all -> s if ctx.x is defined")
    assert len(reach[f"s{count}"]) == count + 2
