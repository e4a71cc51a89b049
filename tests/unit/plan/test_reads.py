"""What the server's templates read of each step, and where that stands in a task's payload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.program import Program
from arclog.plan.reads import payload_paths, value_at
from arclog.testing.harness import SPECS
from arclog.wiring.kinds import KindSpecs, tool_kinds


def program(*steps: dict[str, Any], result: Any = None) -> Program:
    executor = {"executor": {"spec": {"result": result}}} if result else {}
    text = json.dumps({"metadata": {"name": "d"}, **executor, "workflow": list(steps)})
    plan = build_or_raise(text, "d.yaml", {**KindSpecs(tool_kinds()), **SPECS})
    body = net.encode(plan)
    return Program(plan, net.digest(body))


def test_every_place_that_the_server_evaluates_counts_and_tasks_do_not() -> None:
    made = program(
        {
            "step": "start",
            "tool": {"kind": "act", "returns": "{{ after.data.only_in_a_task }}"},
            "next": {
                "arcs": [{"step": "after", "when": "{{ outcome.data.go }}", "args": {"a": "{{ start.data.arg[0] }}"}}]
            },
        },
        {
            "step": "after",
            "args": {"b": "{{ start.b }}"},
            "spec": {"policy": {"admit": {"rules": [{"when": "{{ start.result.c }}", "then": {"allow": True}}]}}},
            "loop": {"in": "{{ start.data.items }}", "iterator": "x"},
            "tool": {"kind": "act"},
        },
        result="{{ [start.status, after.results, start.error.kind] }}",
    )
    task = made.steps["start"].tasks[0].plan
    assert payload_paths(task, made.demand["start"]) == [("b",), ("c",), ("go",), ("items",), ("arg", 0)]
    assert made.results_routed == {"after"}


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ((), [()]),
        (("data",), [()]),
        (("result",), [()]),
        (("result", "data", "x"), [("x",)]),
        (("result", "status_code"), []),
        (("http", "status"), []),
        (("status",), []),
        (("meta", "attempt"), []),
        (("x", 0), [("x", 0)]),
    ],
)
def test_the_payload_of_a_kind_that_wraps_it(path: Any, below: Any) -> None:
    made = program({"step": "start", "tool": {"kind": "http", "url": "http://x"}})
    assert payload_paths(made.steps["start"].tasks[0].plan, [path]) == below


def test_what_stands_at_a_path() -> None:
    data = {"a": [{"b": None}]}
    assert value_at(data, ("a", 0, "b"), "missing") is None
    assert value_at(data, ("a", -1), "missing") == {"b": None}
    for path in (("b",), ("a", 1), ("a", "0"), ("a", 0, "b", "c")):
        assert value_at(data, path, "missing") == "missing"
