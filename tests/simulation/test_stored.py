"""Results outside the log, on the real engine and worker: a playbook does the same whatever the size of its data."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from arclog.core.transitions.state import State
from arclog.model.config.settings import Settings
from arclog.model.envelope import Subject, widen
from arclog.model.events import Event
from arclog.model.outcome import Outcome
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.playbooks import by_seed
from arclog.testing.virtual import run_virtually
from tests.simulation.support import seeds

#: Every payload of more than two bytes is stored.
TINY = Settings({"results.inline_max_bytes": 2, "leases.max_losses": 1_000_000})
BIG = "x" * 100_000
ROWS = [{"id": index, "text": "y" * 50} for index in range(3000)]


def playbook(*steps: dict[str, Any], spec: dict[str, Any] | None = None) -> str:
    executor = {"executor": {"spec": spec}} if spec else {}
    return json.dumps({"metadata": {"name": "stored"}, **executor, "workflow": list(steps)})


def step(name: str, to: str = "", when: Any = None, **more: Any) -> dict[str, Any]:
    arc = {"step": to} | ({"when": when} if when else {})
    return {"step": name} | ({"next": {"arcs": [arc]}} if to else {}) | more


def ran(text: str, **options: Any) -> tuple[State, list[Event], World]:
    async def go() -> tuple[State, list[Event], World]:
        async with World(text, **options) as world:
            state = await world.run()
            check_log(await world.stored(), "stored")
            assert msgspec.json.encode(await world.state()) == msgspec.json.encode(state)
            return state, await world.events(), world

    return run_virtually(go())


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event.type == kind]


def outcome(events: list[Event], task: str) -> dict[str, Any]:
    outcome: dict[str, Any] = next(event for event in of(events, "task.done") if event.task == task).payload["outcome"]
    return outcome


def test_a_large_result_leaves_a_ref_and_a_preview_in_the_log() -> None:
    state, events, world = ran(playbook(step("start", tool={"kind": "act", "returns": {"big": BIG, "n": 1}})))
    assert state.status == "COMPLETED"
    (stored,) = of(events, "result.stored")
    record = outcome(events, "start_task")
    assert record["result_ref"] == stored.payload["result_ref"]
    assert "result" not in record
    ref = record["result_ref"]
    assert ref["ref"].startswith(f"noetl://execution/{world.execution_id}/result/start.start_task/")
    assert ref["meta"]["bytes"] > 100_000
    assert ref["meta"]["schema_hint"] == "map"
    assert len(stored.payload["preview"]) <= 1024
    assert all(len(msgspec.json.encode(event)) <= 4096 for event in events)
    assert state.result_ref == ref
    assert events.index(stored) < events.index(of(events, "task.done")[0])


def test_readers_find_a_reference_and_what_was_extracted_beside_the_outcome() -> None:
    text = playbook(
        step("start", "after", "{{ outcome.data.n == 1 }}", tool={"kind": "act", "returns": {"big": BIG, "n": 1}}),
        step(
            "after",
            loop={"in": "{{ start.data.big | list | length * [1] }}", "iterator": "item"},
            tool={"kind": "act", "returns": "{{ start.result_ref.kind }} {{ start.result_ref.meta.shape }}"},
        ),
    )

    async def go() -> list[dict[str, Any]]:
        async with World(text, settings=Settings({"limits.max_iterations": 3})) as world:
            await world.run()
            return await world.current_life.api.events(str(world.execution_id), limit=10_000)

    log = run_virtually(go())
    (stored,) = [event for event in log if event["event_type"] == "result.stored" and event.get("task") == "start_task"]
    (done,) = [event for event in log if event["event_type"] == "task.done" and event["task"] == "start_task"]
    for event in (stored, done):
        ref = event["payload"]["result_ref"]
        assert (ref["kind"], ref["meta"]["shape"]) == ("result_ref", "data")
        assert event["payload"]["extracted"] == {"n": 1}
    assert done["payload"]["outcome"]["result_ref"] == done["payload"]["result_ref"] == stored["payload"]["result_ref"]
    assert stored["entity_id"] == "task:start_task:attempt:1"
    assert all("::" not in event["entity_id"] + event.get("parent_id", "") for event in log)


def test_a_log_of_an_earlier_release_shows_references_in_the_same_way() -> None:
    meta: dict[str, Any] = {"bytes": 9, "sha256": "0", "rows": 2}
    ref: dict[str, Any] = {"kind": "list", "store": "files", "ref": "noetl://x", "meta": meta}
    outcome = {"status": "ok", "result_ref": ref, "extracted": {"n": 1}}
    subject = Subject(5, "x")
    done = widen(Event("task.done", 1, "a", 1, task="t", task_run=1, payload={"outcome": outcome}), subject, 1, 2, 3)
    seen = {**ref, "kind": "result_ref", "meta": {**meta, "shape": "list"}}
    assert (done["payload"]["result_ref"], done["payload"]["extracted"]) == (seen, {"n": 1})
    stored = widen(Event("result.stored", 1, "a", 1, task="t", payload={"result_ref": ref}), subject, 1, 2, 3)
    finished = widen(Event("playbook.finished", 1, payload={"result_ref": ref}), subject, 1, 2, 3)
    assert stored["payload"]["result_ref"] == finished["payload"]["result_ref"] == seen
    manifest = widen(Event("result.manifest.updated", 1, "a", 2, payload={"total": 2}), subject, 1, 2, 3)
    assert (manifest["entity_id"], manifest["parent_id"]) == ("loop:a", "step:a:run:2")


def test_routing_reads_parts_of_a_stored_result() -> None:
    text = playbook(
        step(
            "start",
            "after",
            "{{ outcome.data.n == 1 and outcome.data.missing | default('none') == 'none' }}",
            tool={"kind": "act", "returns": {"big": BIG, "n": 1, "deep": [{"a": 5}]}},
        ),
        step("after", args={"a": "{{ start.deep[0].a }}"}, tool={"kind": "act", "returns": "{{ args.a }}"}),
        spec={"result": "{{ {'n': start.data.n, 'a': after.data} }}"},
    )
    state, events, _ = ran(text)
    assert state.result == {"n": 1, "a": 5}
    record = outcome(events, "start_task")
    assert record["extracted"] == {"n": 1, "deep[0].a": 5}
    assert record["left_out"] == {"missing": None}


def test_routing_knows_how_many_items_a_stored_list_has() -> None:
    for returns, condition in (
        (ROWS, "{{ start.data | length == 3000 }}"),
        ({"rows": ROWS}, "{{ outcome.data.rows | count > 5 and outcome.data | length == 1 }}"),
        ({"rows": ROWS}, "{{ start.rows | length > 5 }}"),
    ):
        text = playbook(
            step("start", "after", condition, tool={"kind": "act", "returns": returns}),
            step("after", tool={"kind": "act", "returns": 1}),
        )
        assert ran(text)[0].result == 1


def test_what_routing_cannot_have_is_an_error_that_says_so() -> None:
    text = playbook(
        step("start", "after", "{{ outcome.data.big == 'x' }}", tool={"kind": "act", "returns": {"big": BIG}}),
        step("after", tool={"kind": "noop"}),
    )
    state, events, _ = ran(text)
    assert state.status == "FAILED"
    assert state.error is not None
    assert "stored outside the log" in state.error["message"]
    assert "100002 bytes" in state.error["message"]
    assert outcome(events, "start_task")["left_out"] == {"big": {"bytes": 100_002}}


def test_tasks_read_stored_results_of_steps_and_tasks() -> None:
    text = playbook(
        step(
            "start",
            "after",
            tool=[
                {"name": "make", "kind": "act", "returns": {"rows": ROWS, "n": 3}},
                {"name": "use", "kind": "act", "returns": "{{ make.data.rows | length + _prev.n }}"},
            ],
        ),
        step("after", tool={"kind": "act", "returns": "{{ start.data }}"}),
    )
    state, _, _ = ran(text)
    assert state.result == 3003
    text = playbook(
        step("start", "after", tool={"kind": "act", "returns": ROWS}),
        step("after", tool={"kind": "act", "returns": "{{ [start.data[2999].id, start.data | length] }}"}),
    )
    assert ran(text)[0].result == [2999, 3000]


def test_a_policy_reads_its_stored_outcome_and_sets_large_iter_values() -> None:
    rules = [
        {
            "when": "{{ outcome.data.n == 3 }}",
            "then": {"do": "continue", "set_iter": {"rows": "{{ outcome.data.rows }}", "n": "{{ outcome.data.n }}"}},
        },
        {"else": {"then": {"do": "fail"}}},
    ]
    text = playbook(
        step(
            "start",
            tool=[
                {
                    "name": "make",
                    "kind": "act",
                    "returns": {"rows": ROWS, "n": 3},
                    "spec": {"policy": {"rules": rules}},
                },
                {"name": "use", "kind": "act", "returns": "{{ [iter.rows[1].id, iter.rows | length, iter.n] }}"},
            ],
        )
    )
    state, events, _ = ran(text)
    assert state.result == [1, 3000, 3]
    (evaluated,) = of(events, "policy.task.evaluated")
    assert evaluated.payload["set_iter"] == {"n": 3}
    assert list(evaluated.payload["set_iter_refs"]) == ["rows"]


def test_the_policy_of_a_task_that_waits_reads_stored_results_of_tasks_before() -> None:
    rules = [
        {
            "when": "{{ make.n == 3 and _prev.status == 'ok' }}",
            "then": {"do": "continue", "set_ctx": {"n": "{{ make.n }}"}},
        }
    ]
    text = playbook(
        step(
            "start",
            tool=[
                {"name": "make", "kind": "act", "returns": {"rows": ROWS, "n": 3}},
                {"name": "rest", "kind": "wait", "for_s": 5, "spec": {"policy": {"rules": rules}}},
            ],
        )
    )
    state, _, _ = ran(text)
    assert (state.status, state.ctx) == ("COMPLETED", {"n": 3})


def test_set_ctx_takes_no_large_value() -> None:
    rules = [{"else": {"then": {"do": "continue", "set_ctx": {"rows": "{{ outcome.data }}"}}}}]
    tool = {"kind": "act", "returns": ROWS, "spec": {"policy": {"rules": rules}}}
    state, _, _ = ran(playbook(step("start", tool=tool)), settings=Settings({"limits.max_ctx_bytes": 65_536}))
    assert state.status == "FAILED"
    assert state.error is not None
    assert "limits.max_ctx_bytes" in state.error["message"]


LOOPS: dict[str, dict[str, Any]] = {
    "sequential": {"mode": "sequential"},
    "parallel": {"mode": "parallel", "max_in_flight": 3},
    "parallel, local": {"mode": "parallel", "max_in_flight": 3, "policy": {"exec": "local"}},
}


@pytest.mark.parametrize("spec", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize(
    ("returns", "items"),
    [
        (ROWS[:1500], "{{ start.data }}"),
        ({"rows": ROWS[:1500]}, "{{ start.data.rows }}"),
        ({"rows": ROWS[:1500]}, "{{ start.rows | selectattr('id') | list }}"),
    ],
    ids=["a stored list", "a part of stored data", "a filter over it"],
)
def test_a_loop_over_stored_data(returns: Any, items: str, spec: dict[str, Any]) -> None:
    text = playbook(
        step("start", "each", tool={"kind": "act", "returns": returns}),
        step(
            "each",
            "sum",
            "{{ event.name == 'loop.done' }}",
            loop={"in": items, "iterator": "row", "spec": spec},
            tool={"kind": "peek", "returns": "{{ iter.row.id }}"},
        ),
        step("sum", tool={"kind": "act", "returns": "{{ [each.results | sum, each.results | length] }}"}),
    )
    state, events, _ = ran(text)
    total = 1500 - ("selectattr" in items)
    assert state.result == [sum(range(1500)), total]
    scheduled = next(event for event in of(events, "step.scheduled") if event.step == "each")
    assert scheduled.payload["expand"] is True
    (manifest,) = [event for event in of(events, "result.manifest.updated") if "items" in event.payload]
    assert manifest.payload["total"] == total
    assert "ref" in manifest.payload["items"]


@pytest.mark.parametrize("returns", [[], [1, 2, 3], {"a": 1}, "text"], ids=str)
def test_a_loop_over_what_turns_out_to_be_small_or_no_list(returns: Any) -> None:
    text = playbook(
        step("start", "each", tool={"kind": "act", "returns": {"of": returns, "big": BIG, "name": "of"}}),
        step("each", loop={"in": "{{ start[start.name] }}", "iterator": "n"}, tool={"kind": "peek"}),
    )
    state, events, _ = ran(text)
    if isinstance(returns, list):
        assert state.status == "COMPLETED"
        assert len(of(events, "loop.iteration.done")) == len(returns)
    else:
        assert state.error is not None
        assert state.error["code"] == "NOT_A_LIST"


def test_nested_loops_over_stored_data_keep_the_outer_items_in_the_log() -> None:
    cities = [{"name": f"c{index}", "rooms": [1, 2]} for index in range(3)]
    text = playbook(
        step("start", "each", tool={"kind": "act", "returns": {"cities": cities, "big": BIG}}),
        step(
            "each",
            "sum",
            loop={
                "in": "{{ start.cities | list }}",
                "iterator": "city",
                "loop": {"in": "{{ iter.city.rooms }}", "iterator": "room"},
            },
            tool={"kind": "peek", "returns": "{{ iter.parent.city.name ~ iter.room }}"},
        ),
        step("sum", tool={"kind": "act", "returns": "{{ each.results | join(',') }}"}),
    )
    state, _, _ = ran(text)
    assert state.result == "c01,c02,c11,c12,c21,c22"


def test_large_loop_results_are_read_from_the_log() -> None:
    text = playbook(
        step(
            "start",
            "sum",
            "{{ event.name == 'loop.done' }}",
            loop={"in": "{{ range(40) }}", "iterator": "n", "spec": LOOPS["parallel"]},
            tool={"kind": "peek", "returns": "{{ {'n': iter.n, 'text': 'z' * 4000} }}"},
        ),
        step(
            "sum",
            "each",
            tool={"kind": "act", "returns": "{{ [start.results | map(attribute='n') | list, start.results[7].n] }}"},
        ),
        step("each", loop={"in": "{{ start.results }}", "iterator": "one"}, tool={"kind": "peek"}),
        spec={"result": "{{ sum.data }}"},
    )
    state, events, _ = ran(text)
    assert state.result == [list(range(40)), 7]
    manifest = next(event for event in of(events, "result.manifest.updated") if "manifest" in event.payload)
    named = manifest.payload["manifest"]
    assert (named["kind"], named["step"], named["run"], named["total"]) == ("loop", "start", 1, 40)
    assert len(of(events, "loop.iteration.done")) == 80


def test_loop_results_that_are_stored_themselves() -> None:
    text = playbook(
        step(
            "start",
            "sum",
            loop={"in": [1, 2], "iterator": "n"},
            tool={"kind": "peek", "returns": {"n": "{{ iter.n }}", "big": BIG}},
        ),
        step("sum", tool={"kind": "act", "returns": "{{ start.results | sum(attribute='n') }}"}),
    )
    assert ran(text)[0].result == 3


def test_select_names_parts_whatever_the_size() -> None:
    def text(big: str) -> str:
        spec = {"result": {"select": [{"path": "rows[1].id", "as": "second"}, {"path": "nope", "as": "none"}]}}
        return playbook(
            step(
                "start",
                "after",
                "{{ start.second == 1 and start.none is not defined }}",
                tool={"kind": "act", "returns": {"rows": ROWS[:3], "big": big}, "spec": spec},
            ),
            step("after", tool={"kind": "act", "returns": "{{ start.second }}"}),
        )

    assert ran(text(""))[0].result == 1
    assert ran(text(BIG))[0].result == 1


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_a_missing_or_changed_result_is_an_error_of_its_kind(damage: str) -> None:
    text = playbook(
        step("start", "middle", tool={"kind": "act", "returns": {"big": BIG}}),
        step("middle", "after", tool={"kind": "act"}),
        step("after", tool={"kind": "act", "returns": "{{ start.big | length }}"}),
    )
    worlds: list[World] = []

    async def hook(call: Any, _context: Any) -> None:
        if call.step == "middle":
            kept = worlds[0].results.kept
            if damage == "lost":
                kept.clear()
            for content in kept.values():
                content.body = b"{}"

    async def go() -> State:
        async with World(text, hook=hook, settings=Settings({"results.cache_bytes": 0})) as world:
            worlds.append(world)
            return await world.run()

    state = run_virtually(go())
    assert state.error is not None
    assert state.error["kind"] == "result", state.error


@pytest.mark.parametrize("odd", ["\ud800", {"a": {"b": object()}}], ids=["a surrogate", "an object"])
def test_a_tool_that_gives_no_json_fails_its_task_alone(odd: Any) -> None:
    async def hook(call: Any, _context: Any) -> Outcome | None:
        return Outcome(result=odd) if call.task == "odd" else None

    rules = [{"else": {"then": {"do": "continue"}}}]
    tool = [
        {"name": "odd", "kind": "act", "spec": {"policy": {"rules": rules}}},
        {"name": "after", "kind": "act", "returns": "{{ odd.error.kind }}"},
    ]
    assert ran(playbook(step("start", tool=tool)), hook=hook)[0].result == "internal"


def test_a_childs_large_result_reaches_its_parent_by_reference() -> None:
    child = playbook(step("start", tool={"kind": "act", "returns": {"big": BIG, "n": 4}})).replace(
        '"stored"', '"child"'
    )
    text = playbook(
        step("start", "after", tool={"kind": "playbook", "path": "child"}),
        step("after", tool={"kind": "act", "returns": "{{ start.data.n }}"}),
    )

    async def go() -> State:
        async with World(text) as world:
            await world.register(child)
            return await world.run()

    assert run_virtually(go()).result == 4


@pytest.mark.parametrize("group", seeds(120, 6, 70_000), ids=str)
def test_random_playbooks_end_the_same_with_everything_stored(group: range) -> None:
    for seed in group:
        drawn = by_seed(seed)
        plain, _, _ = ran(drawn.text, settings=Settings({"leases.max_losses": 1_000_000}))
        state, _, _ = ran(drawn.text, settings=TINY)
        label = f"SIMULATION_SEED={seed}"
        assert (state.status, state.ctx, state.runs) == (plain.status, plain.ctx, plain.runs), label
        assert (state.error or {}).get("kind") == (plain.error or {}).get("kind"), label
