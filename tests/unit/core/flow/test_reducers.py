"""ctx in loops: write-once or reduced, the same whatever the order in which iterations end."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arclog.model.config.reducers import REDUCERS
from arclog.model.errors import PlaybookError
from arclog.plan.program import Program
from tests.unit.core.flow.test_loops import Looping, Path, parallel

ONE_BY_ONE = 1_000_000
SEQUENTIAL = {"in": "{{ range(6) }}", "iterator": "i"}


def ended(loop: Any, patches: list[dict[str, Any]], seed: int, **more: Any) -> Looping:
    """A loop whose iterations set what the patches say, reported in the order of a seed."""
    core = Looping(loop, sets={"any": 1}, **more)
    core.go()
    core.finish(Random(seed), ctx=lambda path: patches[path[0]], us=ONE_BY_ONE)
    core.same()
    return core


def reducers(*names: str, **initial: Any) -> dict[str, Any]:
    return {name: {"reducer": name, **({"initial": initial[name]} if name in initial else {})} for name in names}


def over(count: int, at_a_time: int = 3) -> dict[str, Any]:
    return parallel(f"{{{{ range({count}) }}}}", at_a_time)


def test_equal_values_may_be_written_by_all() -> None:
    core = ended(over(5), [{"seen": {"a": [1]}}] * 5, 0)
    assert core.state.ctx == {"seen": {"a": [1]}}


@pytest.mark.parametrize("failure", ["fail_fast", "best_effort"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("other", [2, "1", True, 1.0, None, [1]])
def test_another_value_is_a_conflict_whatever_the_order(failure: str, seed: int, other: Any) -> None:
    patches: list[dict[str, Any]] = [{"key": 1}, {"key": 1}, {"key": other}, {"key": 1}]
    core = ended(over(4), patches, seed, failure=failure)
    failed = core.of("step.failed")[0].payload["error"]
    assert (failed["kind"], failed["code"], failed["retryable"]) == ("conflict", "CTX_CONFLICT", False)
    assert "ctx.key" in failed["message"]
    assert not core.of("loop.done")
    assert core.state.ctx == {}


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("sum", [1, 2, 3, 4, 5, 6], 21),
        ("sum", [1, 0.5, 2, 0.25, 3, 4], 10.75),
        ("sum", [1e16, 1.0, -1e16, 1.0, 0.0, 0.0], 2.0),
        ("count", ["a", None, 3, 4, 5, 6], 6),
        ("min", [3, 1.5, 7, 9, 2, 2], 1.5),
        ("min", [1.0, 1, 2, 3, 4, 5], 1),
        ("max", [3, 1.5, 7, 9, 2, 2], 9),
        ("append", [[1], 2, None, 4, 5, 6], [[1], 2, None, 4, 5, 6]),
        ("union", [[1, 2], 2, [3, 1], True, 5, 5], [1, 2, 3, True, 5]),
        ("merge", [{"a": 1}, {"b": 2}, {"a": 3}, {}, {}, {}], {"a": 3, "b": 2}),
        ("last", [1, 2, 3, 4, 5, 6], 6),
    ],
)
def test_reducers_fold_in_item_order(name: str, values: list[Any], expected: Any) -> None:
    for seed in range(3):
        core = ended(over(6), [{name: value} for value in values], seed, ctx=reducers(name))
        folded = core.state.ctx[name]
        assert (folded, type(folded)) == (expected, type(expected))


def test_reducers_go_on_from_the_initial_value() -> None:
    initial: dict[str, Any] = {
        "sum": 100,
        "count": 10,
        "min": -1,
        "max": 99,
        "append": ["x"],
        "union": [2],
        "merge": {"z": 0},
        "last": 0,
    }
    patches = [
        {"sum": 1, "count": 1, "min": n, "max": n, "append": n, "union": n, "merge": {str(n): n}, "last": n}
        for n in range(3)
    ]
    expected = {
        "sum": 103, "count": 13, "min": -1, "max": 99, "append": ["x", 0, 1, 2], "union": [2, 0, 1],
        "merge": {"z": 0, "0": 0, "1": 1, "2": 2}, "last": 2,
    }  # fmt: skip
    for loop in (over(3), {"in": "{{ range(3) }}", "iterator": "i"}):
        core = ended(loop, patches, 4, ctx=reducers(*initial, **initial))
        assert core.state.ctx == expected


def test_a_sum_of_floats_is_exact_and_small_whatever_their_number() -> None:
    values = [Random(n).uniform(-1e9, 1e9) for n in range(200)]
    core = Looping(over(200), sets={"any": 1}, ctx=reducers("sum"))
    core.go()
    core.finish(Random(5), ctx=lambda path: {"sum": values[path[0]]}, us=ONE_BY_ONE)
    assert core.state.ctx["sum"] == float(sum(map(Fraction, values)))


@pytest.mark.parametrize("loop", [over(6), SEQUENTIAL])
@pytest.mark.parametrize(("name", "value"), [("sum", "1"), ("sum", True), ("min", None), ("max", [1]), ("merge", 3)])
def test_a_value_that_a_reducer_cannot_take_fails_the_step(loop: Any, name: str, value: Any) -> None:
    good: Any = {} if name == "merge" else 1
    core = ended(loop, [{name: good}, {name: good}, *[{name: value}] * 4], 3, ctx=reducers(name), failure="best_effort")
    failed = core.of("step.failed")[0].payload["error"]
    assert (failed["kind"], failed["code"]) == ("conflict", "CTX_REDUCER")
    assert f"ctx.{name}" in failed["message"]


@pytest.mark.parametrize("loop", [over(6), SEQUENTIAL])
@pytest.mark.parametrize(
    ("name", "value"), [("sum", "1"), ("count", {}), ("append", "abc"), ("union", 3), ("merge", [])]
)
def test_a_value_that_a_reducer_cannot_go_on_from_fails_the_step(loop: Any, name: str, value: Any) -> None:
    """`check` refuses such an initial value; plans of releases that did not may still run."""
    good: Any = {} if name == "merge" else 1
    core = Looping(loop, sets={"any": 1}, ctx=reducers(name))
    plan = replace(core.program.plan, ctx=reducers(name, **{name: value}))
    core.program = Program(plan, core.program.digest)
    core.go()
    core.finish(Random(3), ctx=lambda _: {name: good}, us=ONE_BY_ONE)
    core.same()
    failed = core.of("step.failed")[0].payload["error"]
    assert (failed["kind"], failed["code"]) == ("conflict", "CTX_REDUCER")
    assert "before" in failed["message"]
    assert not core.of("loop.done")
    with pytest.raises(PlaybookError, match=f"ctx.{name}.initial: the reducer {name} cannot continue from"):
        Looping(loop, sets={"any": 1}, ctx=reducers(name, **{name: value}))


def test_a_sum_beyond_every_float_fails_the_step() -> None:
    core = ended(over(2), [{"sum": 1.7e308}, {"sum": 1.7e308}], 0, ctx=reducers("sum"))
    assert core.of("step.failed")[0].payload["error"]["code"] == "CTX_REDUCER"


@pytest.mark.parametrize("loop", [over(100), {"in": "{{ range(100) }}", "iterator": "i"}])
def test_values_that_pile_up_are_limited(loop: Any) -> None:
    core = ended(loop, [{"append": "x" * 50}] * 100, 0, ctx=reducers("append"), limits={"max_loop_results_bytes": 1000})
    failed = core.of("step.failed")[0].payload["error"]
    assert (failed["kind"], failed["code"]) == ("limit", "MAX_LOOP_RESULTS_BYTES")
    assert "ctx values" in failed["message"]


def test_what_is_gathered_shows_when_the_loop_is_done() -> None:
    core = Looping(over(4), sets={"any": 1}, ctx=reducers("sum", sum=5))
    core.go()
    while len(core.open) > 1 or len(core.ends()) < 3:
        core.carry_out(core.open[0], ctx=lambda _: {"sum": 1, "key": 7}, us=ONE_BY_ONE)
        if core.state.open.get("start#1") is not None:
            assert core.state.ctx == {"sum": 5}
    core.finish(ctx=lambda _: {"sum": 1, "key": 7})
    assert core.state.ctx == {"sum": 9, "key": 7}


def test_a_loop_that_failed_keeps_what_the_items_that_ended_did() -> None:
    core = Looping(over(6, 4), sets={"any": 1}, ctx=reducers("sum", sum=5))
    core.go()
    core.finish(ctx=lambda _: {"sum": 1}, failing=[(3,)], us=ONE_BY_ONE)
    assert core.of("step.failed")[0].payload["loop"] == {"total": 6, "ok": 3, "failed": 1, "cancelled": 0}
    assert core.state.ctx == {"sum": 9}
    core.same()


def test_an_item_that_was_cancelled_writes_nothing() -> None:
    core = Looping(over(4, 4), sets={"any": 1}, ctx=reducers("sum", sum=5))
    core.go()
    first, second, third, _ = core.open
    core.carry_out(first, ctx=lambda _: {"sum": 1})
    core.report(second, *core.ran(second, (1,), ctx={"sum": 100})[:-1])
    core.carry_out(third, ctx=lambda _: {"sum": 10}, failing=[(2,)])
    assert core.of("step.failed")[0].payload["loop"] == {"total": 4, "ok": 1, "failed": 1, "cancelled": 1}
    assert core.state.ctx == {"sum": 16}
    core.same()


def test_a_conflict_leaves_ctx_as_it_was() -> None:
    core = Looping(over(3), sets={"any": 1}, ctx=reducers("sum", sum=5))
    core.go()
    core.finish(ctx=lambda path: {"sum": 1, "key": path[0]}, us=ONE_BY_ONE)
    assert core.of("step.failed")[0].payload["error"]["code"] == "CTX_CONFLICT"
    assert core.state.ctx == {"sum": 5}


def test_iterations_that_failed_count_too_when_the_loop_goes_on() -> None:
    core = Looping(over(4), sets={"any": 1}, ctx=reducers("count"), failure="best_effort")
    core.go()
    core.finish(ctx=lambda _: {"count": 1}, failing=[(1,), (3,)])
    assert core.state.ctx == {"count": 4}


def test_in_a_sequential_loop_the_next_iteration_sees_what_the_reducer_made() -> None:
    loop = {"in": "{{ range(3) }}", "iterator": "i", "spec": {"policy": {"exec": "distributed"}}}
    core = Looping(loop, sets={"total": "{{ ctx.total }}"}, ctx={"total": {"reducer": "sum", "initial": 10}})
    core.go()
    seen = []
    while core.open:
        seen.append(core.command(core.open[0]).captured.ctx["total"])
        core.carry_out(core.open[0], ctx=lambda _: {"total": 1}, us=ONE_BY_ONE)
    assert seen == [10, 11, 12]
    assert core.state.ctx == {"total": 13}


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "sum": st.integers(-5, 5) | st.floats(-1e6, 1e6),
    "min": st.integers(-5, 5) | st.floats(-5, 5),
    "max": st.integers(-5, 5) | st.floats(-5, 5),
    "merge": st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
}
_ANY = st.none() | st.booleans() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_ctx_does_not_depend_on_the_order_of_reports(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(REDUCERS)), min_size=1, unique=True))
    count = data.draw(st.integers(1, 8))
    patches = [{name: data.draw(_VALUES.get(name, _ANY)) for name in names} for _ in range(count)]
    seeds = data.draw(st.lists(st.integers(0, 10**6), min_size=2, max_size=3))
    results = [ended(over(count), patches, seed, ctx=reducers(*names)).state.ctx for seed in seeds]
    assert all(repr(result) == repr(results[0]) for result in results)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_nested_loops_fold_in_the_order_of_all_their_items(seed: int) -> None:
    inner = parallel("{{ range(iter.index + 1) }}", 2, iterator="inner")
    core = Looping(parallel("{{ range(4) }}", 3, loop=inner), sets={"any": 1}, ctx=reducers("append", "count"))
    core.go()

    def where(path: Path) -> dict[str, Any]:
        return {"append": ".".join(map(str, path)), "count": 1}

    core.finish(Random(seed), ctx=where, us=ONE_BY_ONE)
    assert core.state.ctx["append"] == [f"{i}.{j}" for i in range(4) for j in range(i + 1)]
    assert core.state.ctx["count"] == 10
