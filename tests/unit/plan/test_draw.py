from __future__ import annotations

import json
from pathlib import Path

from arclog.plan.build import build
from arclog.plan.draw import as_json, as_mermaid, as_text
from arclog.plan.net import Plan
from tests.unit.plan.kinds import KINDS

TEXT = """\
metadata: {name: demo, description: Shows things.}
workflow:
  - step: start
    desc: Begin.
    tool: {kind: noop}
    next:
      spec: {mode: inclusive}
      arcs:
        - {step: work, when: "{{ ctx.a == 'x\\" ] | y' }}"}
        - {step: work}
  - step: work
    loop: {in: "{{ workload.items }}", iterator: item}
    tool:
      - kind: http
        url: x
        spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry}}, {else: {then: {set_ctx: {a: 1}}}}]}}
"""


def plan() -> Plan:
    made = build(TEXT, "p", KINDS)
    assert made.plan is not None
    return made.plan


def test_text():
    assert (
        as_text(plan())
        == """\
demo (2 steps, 2 tasks, 5 places, 4 transitions)
  Shows things.

▶ start  Begin.
  ├─ start_task: noop
  ├─ → work  when ctx.a == 'x" ] | y'
  ├─ → work
  └─ routing inclusive, no match: end

● work
  ├─ loop item in workload.items (sequential)
  ├─ task_0: http
  │     when outcome.status == 'error' → retry, 3 attempts, delay 1 s (none)
  │     else → continue, sets ctx.a
  └─ → (end)"""
    )


def test_mermaid_labels_cannot_break_out():
    lines = as_mermaid(plan()).splitlines()
    assert lines[0] == "flowchart TD"
    assert "  s0 -->|\"ctx.a == 'x#34; #93; #124; y'\"| s1" in lines
    assert "  s0 --> s1" in lines
    assert '  s1[["work<br/>http<br/>loop item in workload.items #40;sequential#41;"]]' in lines


def test_json_holds_the_net():
    data = json.loads(json.dumps(as_json(plan())))
    assert [place["id"] for place in data["places"]] == ["entry", "run:start", "arc:start:0", "arc:start:1", "run:work"]
    assert {"source": "arc:start:0", "target": "start:work"} in data["arcs"]
    assert data["steps"][1]["loop"]["iterator"] == "item"
    assert data["inputs"] == {}


def test_every_form_takes_the_seeds_example():
    made = build(Path(__file__).with_name("seed_example.yaml").read_text(), "p", KINDS)
    assert made.plan is not None
    assert "parallel, 10 at a time, distributed" in as_text(made.plan)
    assert as_mermaid(made.plan).count("-->") == 3
    assert len(as_json(made.plan)["steps"]) == 3
