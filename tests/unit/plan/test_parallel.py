"""Lint of parallel loops: ctx keys that iterations would set to different values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from arclog.plan.build import build
from tests.unit.plan.kinds import KINDS

ELSE: dict[str, Any] = {"else": {"then": {}}}


def found(value: Any, *, mode: str = "parallel", inner: str = "", when: Any = None, ctx: Any = None) -> list[str]:
    rule: dict[str, Any] = {"else": {"then": {"set_ctx": {"key": value}}}}
    rules = [rule] if when is None else [{"when": when, "then": rule["else"]["then"]}, ELSE]
    loop: dict[str, Any] = {"in": [1, 2], "iterator": "item", "spec": {"mode": mode}}
    if inner:
        loop["loop"] = {"in": [1], "iterator": "inner", "spec": {"mode": inner}}
    step = {
        "step": "start",
        "loop": loop,
        "tool": [{"name": "t", "kind": "noop", "spec": {"policy": {"rules": rules}}}],
    }
    made = {
        "metadata": {"name": "p"},
        "executor": {"spec": {"ctx": ctx or {}}},
        "workload": {"w": 1},
        "workflow": [step],
    }
    result = build(json.dumps(made), "p.yaml", KINDS)
    return [one.severity for one in result.findings if one.code == "ctx-conflict"]


@pytest.mark.parametrize(
    "value", ["{{ iter.item }}", "{{ outcome.data.n }}", ["{{ _prev.n }}"], {"a": "{{ t.data }}"}, "n {{ iter.index }}"]
)
def test_a_value_that_differs_from_item_to_item(value: Any) -> None:
    assert found(value) == ["warning"]
    assert found(value, mode="sequential") == []
    assert found(value, mode="sequential", inner="parallel") == ["warning"]
    assert found(value, ctx={"key": {"reducer": "append"}}) == []


@pytest.mark.parametrize("value", [True, "{{ workload.w }}", "{{ execution_id }}", "plain", {"a": [1]}])
def test_a_value_that_all_items_share(value: Any) -> None:
    assert found(value) == []


def test_a_rule_that_picks_items_may_pick_one() -> None:
    assert found("{{ iter.item }}", when="{{ iter.index == 0 }}") == []
    assert found("{{ iter.item }}", when="{{ outcome.status == 'ok' }}") == ["warning"]
