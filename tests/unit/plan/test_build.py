"""The whole way from text to plan: shapes, layering, refusals and their remedies, places of findings."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arclog.model.config.settings import Settings
from arclog.model.errors import Finding, PlaybookError, Position
from arclog.plan.build import Build, build, build_or_raise, render_finding
from arclog.plan.net import AdmitRule, NetArc, Place, Plan, StepPlan, TaskPlan, decode, digest, encode
from arclog.playbook import walk
from tests.unit.plan.kinds import KINDS


def built(text: str, **limits) -> Build:
    return build(dedent(text), "p.yaml", KINDS, Settings().replaced(**limits))


def plan_of(text: str) -> Plan:
    made = built(text)
    assert made.plan is not None, [str(finding) for finding in made.findings]
    return made.plan


def step_of(body: str, before: str = "") -> StepPlan:
    """The plan of one step called `one`, written without its name."""
    return plan_of(playbook_of(body, before)).steps[0]


def playbook_of(body: str, before: str = "") -> str:
    inner = "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    return f"metadata: {{name: p}}\n{dedent(before)}workflow:\n  - step: one\n{inner}"


def codes(text: str, severity: str = "error", **limits) -> list[str]:
    return [finding.code for finding in built(text, **limits).findings if finding.severity == severity]


def only(text: str, code: str) -> Finding:
    findings = [finding for finding in built(text).findings if finding.code == code]
    assert len(findings) == 1, [str(finding) for finding in built(text).findings]
    return findings[0]


HELLO = """\
metadata: {name: hello, path: demo/hello, tags: [a], labels: {team: x}}
workload: {who: world}
executor:
  spec:
    result: "{{ greet.data }}"
workflow:
  - step: start
    desc: Begin.
    args: {n: 1}
    tool: {kind: noop}
    next:
      arcs:
        - step: greet
          when: "{{ args.n == 1 }}"
          args: {name: "{{ workload.who }}"}
        - step: lost
          when: "{{ event.name == 'step.failed' }}"
  - step: greet
    tool:
      - kind: python
        code: "result = '{{ not a template }}'"
        args: {name: "{{ args.name }}"}
  - step: lost
    tool: {kind: noop}
"""


def test_a_small_playbook_becomes_a_net():
    plan = plan_of(HELLO)
    assert (plan.name, plan.path, plan.tags, plan.labels) == ("hello", "demo/hello", ("a",), {"team": "x"})
    assert plan.entry == "start"
    assert plan.result == "{{ greet.data }}"
    assert plan.workload == {"who": "world"}
    start, greet, _ = plan.steps
    assert start.args == {"n": 1}
    assert [(arc.target, arc.sees_failure, arc.place) for arc in start.arcs] == [
        ("greet", False, "arc:start:0"),
        ("lost", True, "arc:start:1"),
    ]
    assert greet.tasks[0].verbatim == ("code",)
    assert plan.places[:4] == (
        Place("entry", "entry"),
        Place("run:start", "run"),
        Place("arc:start:0", "arc"),
        Place("arc:start:1", "arc"),
    )
    assert [(transition.id, transition.role) for transition in plan.transitions][:2] == [
        ("start:start", "start"),
        ("end:start", "end"),
    ]
    assert NetArc("entry", "start:start") in plan.net
    assert NetArc("start:start", "run:start") in plan.net
    assert NetArc("run:start", "end:start") in plan.net
    assert NetArc("end:start", "arc:start:0") in plan.net
    assert NetArc("arc:start:0", "start:greet") in plan.net


def test_places_of_templates():
    plan = plan_of(HELLO)
    assert plan.spots == {"result": Position(5, 14)}
    assert plan.steps[0].spots == {
        "arcs.0.when": Position(14, 18),
        "arcs.0.args.name": Position(15, 25),
        "arcs.1.when": Position(17, 18),
    }
    assert plan.steps[1].spots == {"tasks.0.config.args.name": Position(22, 23)}
    assert plan.steps[0].at == Position(7, 11)


def test_the_same_text_gives_the_same_bytes():
    first, second = plan_of(HELLO), build(HELLO.encode(), "elsewhere.yaml", KINDS).plan
    assert second is not None
    assert encode(first) == encode(second)
    assert decode(encode(first)) == first
    assert len(digest(encode(first))) == 64


@pytest.mark.parametrize(
    ("entry", "names", "expected"),
    [
        ("", ["a", "b"], "a"),
        ("", ["a", "start"], "start"),
        ("executor: {spec: {entry_step: b}}\n", ["start", "b"], "b"),
    ],
)
def test_the_entry_step(entry, names, expected):
    steps = "".join(f"  - {{step: {name}, tool: {{kind: noop}}}}\n" for name in names)
    assert plan_of(f"metadata: {{name: p}}\n{entry}workflow:\n{steps}").entry == expected


# --- task shapes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "labels"),
    [
        ("tool: {kind: noop}", ["one_task"]),
        ("tool: {kind: noop, name: mine}", ["mine"]),
        ("tool: [{kind: noop}, {kind: noop}]", ["task_0", "task_1"]),
        ("tool: [{name: a, kind: noop}, {kind: noop}, {name: b, kind: noop}]", ["a", "task_1", "b"]),
    ],
)
def test_task_shapes(tool, labels):
    assert [task.name for task in step_of(tool).tasks] == labels


def test_a_label_as_key_is_refused_with_the_canonical_form():
    finding = only(playbook_of("tool:\n  - fetch: {kind: http, url: x}"), "task-label-map")
    assert "name: fetch, kind: http" in finding.hint


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("tool: []", "missing-key"),
        ("tool: nope", "wrong-type"),
        ("tool: [nope]", "wrong-type"),
        ("tool: {}", "missing-key"),
        ("tool: {name: x}", "missing-key"),
        ("tool: {kind: htp, url: x}", "unknown-kind"),
        ("tool: {kind: http}", "missing-key"),
        ("tool: {kind: http, url: x, metod: GET}", "unknown-key"),
        ("tool: {kind: http, url: x, method: PUTT}", "bad-value"),
        ("tool: {kind: http, url: 5}", "wrong-type"),
        ("tool: {kind: python}", "one-of"),
        ("tool: {kind: python, code: x, script: y}", "one-of"),
        ("tool: [{kind: noop, name: a}, {kind: noop, name: a}]", "duplicate-name"),
        ("tool: [{kind: noop, name: a-b}]", "bad-name"),
        ("tool: [{kind: noop, name: iter}]", "reserved-name"),
        ("tool: [{kind: noop, name: _x}]", "reserved-name"),
        ("tool: {kind: noop, spec: {timeout: 0}}", "out-of-range"),
        ("tool: {kind: noop, spec: {timeout: -5}}", "out-of-range"),
        ("tool: {kind: http, url: x, spec: {timeout: {read: 0}}}", "out-of-range"),
        ("tool: {kind: noop, spec: {timeout: soon}}", "wrong-type"),
        ("tool: {kind: noop, spec: {delivery: maybe}}", "bad-value"),
        ("tool: {kind: noop, spec: {pool: 1}}", "unknown-key"),
        ("tool: {kind: noop, spec: {policy: {}}}", "missing-key"),
        ("tool: {kind: noop, spec: {policy: [{when: true}]}}", "wrong-type"),
        ("tool: {kind: noop, spec: {policy: {rules: {}}}}", "wrong-type"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: true, then: continue}]}}}", "wrong-type"),
        ("tool: {kind: noop, spec: {policy: {rules: [{then: {do: fail}}]}}}", "missing-key"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: true, then: {do: skip}}]}}}", "bad-value"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: true, then: {do: jump}}]}}}", "missing-key"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: true, then: {do: jump, to: nowhere}}]}}}", "unknown-task"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: true, then: {do: fail, attempts: 2}}]}}}", "action-key"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: true, then: {do: retry, attempts: 0}}]}}}", "out-of-range"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: true, then: {do: retry, jitter: 2}}]}}}", "out-of-range"),
        ("tool: {kind: noop, spec: {policy: {rules: [{else: {then: {}}}, {when: true, then: {}}]}}}", "else-not-last"),
        ("tool: {kind: noop, spec: {policy: {rules: [{else: {}}]}}}", "missing-key"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: '{{ a', then: {}}]}}}", "template-syntax"),
        ("tool: {kind: noop, spec: {policy: {rules: [{when: 'x {{ ctx.a }}', then: {}}]}}}", "template-syntax"),
        ("tool: {kind: http, url: '{{ a + }}'}", "template-syntax"),
        ("tool: {kind: noop}\nargs: []", "wrong-type"),
        ("tool: {kind: noop}\nspec: {policy: {admit: {rules: [{when: true, then: {do: fail}}]}}}", "control-key"),
        ("tool: {kind: noop}\nspec: {policy: {admit: {}}}", "missing-key"),
        ("tool: {kind: noop}\nspec: {policy: {retry: 3}}", "control-key"),
        ("tool: {kind: noop}\nspec: {policy: {rules: []}}", "control-key"),
        ("tool: {kind: noop}\nspec: {policy: {failure: {mode: slow}}}", "bad-value"),
        ("tool: {kind: noop}\nspec: {policy: {emit: {events: [task.strated]}}}", "bad-value"),
        ("tool: {kind: noop}\nspec: {join: some}", "bad-value"),
        ("tool: {kind: noop}\nspec: {pool: a/b}", "bad-value"),
        ("tool: {kind: noop}\nspec: {pool: ''}", "bad-value"),
        ("tool: {kind: noop}\nspec: {pool: 7}", "wrong-type"),
        ("tool: {kind: noop}\nspec: {join: {count: 0}}", "out-of-range"),
        ("tool: {kind: noop}\nloop: {iterator: x}", "missing-key"),
        ("tool: {kind: noop}\nloop: {in: 5, iterator: x}", "wrong-type"),
        ("tool: {kind: noop}\nloop: {in: [], iterator: index}", "reserved-name"),
        ("tool: {kind: noop}\nloop: {in: [], iterator: x, spec: {policy: {do: jump}}}", "control-key"),
        ("tool: {kind: noop}\nnext: {arcs: [{step: two}]}", "unknown-step"),
        ("tool: {kind: noop}\nnext: {arcs: [{step: one, spec: {retry: 1}}]}", "control-key"),
        ("tool: {kind: noop}\nnext: {spec: {policy: {jump: x}}, arcs: []}", "control-key"),
        ("tool: {kind: noop}\nnext: {spec: {mode: some}, arcs: []}", "bad-value"),
        ("tool: {kind: noop}\nnext: {}", "missing-key"),
        ("tool: {kind: noop}\nnext:", "wrong-type"),
        ("tool: {kind: noop}\ntols: {}", "unknown-key"),
    ],
)
def test_refusals_in_a_step(body, code):
    assert code in codes(playbook_of(body))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "wrong-type"),
        ("metadata: {name: p}", "missing-key"),
        ("workflow: [{step: a, tool: {kind: noop}}]", "missing-key"),
        ("metadata: {}\nworkflow: [{step: a, tool: {kind: noop}}]", "missing-key"),
        ("metadata: {name: ''}\nworkflow: [{step: a, tool: {kind: noop}}]", "bad-value"),
        ("metadata: {name: p}\nworkflow: []", "missing-key"),
        ("metadata: {name: p}\nworkflow: [{tool: {kind: noop}}]", "missing-key"),
        (
            "metadata: {name: p}\nworkflow: [{step: a, tool: {kind: noop}}, {step: a, tool: {kind: noop}}]",
            "duplicate-name",
        ),
        ("metadata: {name: p}\nworkflow: [5]", "wrong-type"),
        ("metadata: {name: p}\napiVersion: v1\nworkflow: [{step: a, tool: {kind: noop}}]", "bad-value"),
        ("metadata: {name: p}\nkind: Play\nworkflow: [{step: a, tool: {kind: noop}}]", "bad-value"),
        (
            "metadata: {name: p}\nexecutor: {spec: {entry_step: b}}\nworkflow: [{step: a, tool: {kind: noop}}]",
            "unknown-step",
        ),
        (
            "metadata: {name: p}\nexecutor: {spec: {policy: {do: x}}}\nworkflow: [{step: a, tool: {kind: noop}}]",
            "control-key",
        ),
        (
            "metadata: {name: p}\nexecutor: {spec: {policy: {defaults: {timeouts: {task_s: 0}}}}}\nworkflow: [{step: a, tool: {kind: noop}}]",
            "out-of-range",
        ),
        (
            "metadata: {name: p}\nexecutor: {spec: {result: '{{ keychain.a }}'}}\nworkflow: [{step: a, tool: {kind: noop}}]",
            "keychain-misplaced",
        ),
    ],
)
def test_refusals_outside_steps(text, code):
    assert code in codes(text)


def test_extension_keys_are_ignored_everywhere():
    text = """
    x-owner: me
    metadata: {name: p, x-a: 1}
    executor: {x-b: 1, spec: {x-c: 1, policy: {x-d: 1}}}
    workflow:
      - step: one
        x-e: 1
        spec: {x-f: 1, policy: {x-g: 1, admit: {x-h: 1, rules: [{x-i: 1, when: true, then: {allow: true, x-j: 1}}]}}}
        loop: {in: [1], iterator: i, x-k: 1}
        tool: {kind: noop, x-l: 1, spec: {x-m: 1, policy: {x-n: 1, rules: [{else: {then: {x-o: 1}}, x-p: 1}]}}}
        next: {x-q: 1, arcs: []}
    """
    made = built(text)
    assert made.findings == []
    assert made.plan is not None
    assert made.plan.steps[0].tasks[0].config == {}


# --- older forms --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (playbook_of("tool: {kind: noop}", "vars: {a: 1}\n"), "workload:"),
        (playbook_of("tool: {kind: noop}\nwhen: '{{ ctx.a }}'"), "admit: {rules: ["),
        (playbook_of("tool: {kind: noop}\neval: []"), "policy: {rules: ["),
        (playbook_of("tool: {kind: noop}\nexpr: x"), 'when: "{{ … }}"'),
        (playbook_of("tool: {kind: noop}\ncase: []"), "next: {arcs: ["),
        (playbook_of("tool: {kind: noop}\nretry: 3"), "do: retry, attempts: 3"),
        (playbook_of("tool: {kind: noop}\nsink: {}"), "ordinary task"),
        (playbook_of("tool: {kind: noop}\nvars: {}"), "set_ctx"),
        (playbook_of("tool: {kind: noop}\nnext: two"), "next: {arcs: [{step: two}]}"),
        (playbook_of("tool: {kind: noop}\nnext: [two, three]"), "next: {arcs: [{step: two}, {step: three}]}"),
        (playbook_of("tool: {kind: noop}\nnext: [{step: two, when: x}]"), "next: {arcs: [{step: two}]}"),
        (playbook_of("tool: {kind: noop, eval: []}"), "policy: {rules: ["),
        (playbook_of("tool: {kind: noop, retry: {}}"), "do: retry"),
        (playbook_of("tool: {kind: noop, sink: {}}"), "ordinary task"),
        (playbook_of("tool: {kind: noop, case: []}"), "policy: {rules: ["),
        (playbook_of("tool: {kind: noop, when: x}"), "choose"),
        (playbook_of("tool: {kind: noop, vars: {}}"), "set_ctx"),
        (playbook_of("tool: {kind: noop, spec: {policy: {eval: [], rules: []}}}"), "rules: ["),
        (playbook_of("tool: {kind: noop, spec: {policy: {rules: [{expr: x, when: true, then: {}}]}}}"), "when:"),
        (playbook_of("tool: {kind: noop}\nnext: {arcs: [{step: one, expr: x}]}"), "when:"),
    ],
)
def test_older_forms_are_refused_with_the_canonical_form(text, remedy):
    assert remedy in only(text, "legacy-form").hint


# --- layers of spec -----------------------------------------------------------------------------------------------


def test_specs_are_layered_and_only_declared_keys_cross():
    plan = plan_of("""
    metadata: {name: p}
    executor: {spec: {timeout: 50, lanes: 2, tls: {min: '1.3'}, delivery: at_most_once}}
    workflow:
      - step: one
        spec: {lanes: 3, policy: {failure: {mode: best_effort}}}
        loop: {in: [1], iterator: i, spec: {mode: sequential, lanes: 4, tls: {ca: x}}}
        tool:
          - {kind: http, url: x, spec: {lanes: 5, timeout: 7}}
          - {kind: http, url: x}
          - {kind: noop}
      - step: two
        tool: {kind: http, url: x, spec: {delivery: at_least_once}}
    """)
    first, second, third = plan.steps[0].tasks
    tls = {"verify": True, "min": "1.3", "ca": "x"}
    assert first.spec == {"timeout": 7, "lanes": 5, "tls": tls, "delivery": "at_most_once"}
    assert first.timeout_s == 7
    assert first.at_most_once
    assert second.spec == {"timeout": 50, "lanes": 4, "tls": tls, "delivery": "at_most_once"}
    assert third.spec == {"timeout": 50, "delivery": "at_most_once"}
    assert plan.steps[1].tasks[0].spec["lanes"] == 2
    assert not plan.steps[1].tasks[0].at_most_once
    assert plan.steps[0].failure_mode == "best_effort"
    assert plan.steps[1].failure_mode == "fail_fast"


@pytest.mark.parametrize(
    ("executor", "task", "seconds"),
    [
        ("", "{kind: noop}", 3600),
        ("", "{kind: http, url: x}", 60),
        ("", "{kind: http, url: x, spec: {timeout: {connect: 5, read: 15}}}", 60),
        ("", "{kind: http, url: x, spec: {timeout: {total: 9}}}", 9),
        ("executor: {spec: {policy: {defaults: {timeouts: {task_s: 20}}}}}\n", "{kind: noop}", 20),
        ("executor: {spec: {policy: {defaults: {timeouts: {task_s: 20}}}}}\n", "{kind: http, url: x}", 20),
        ("executor: {spec: {policy: {defaults: {timeouts: {task_s: 20}}}}}\n", "{kind: noop, spec: {timeout: 3}}", 3),
        ("executor: {spec: {timeout: 4, policy: {defaults: {timeouts: {task_s: 20}}}}}\n", "{kind: noop}", 4),
    ],
)
def test_time_limit_of_a_task(executor, task, seconds):
    assert step_of(f"tool: {task}", executor).tasks[0].timeout_s == seconds


def test_the_operators_time_limit_is_the_last_fallback():
    made = built(playbook_of("tool: {kind: noop}"), tasks__timeout_s=12)
    assert made.plan is not None
    assert made.plan.steps[0].tasks[0].timeout_s == 12


def test_an_outer_value_that_does_not_fit_a_kind_is_an_error_at_its_place():
    finding = only(playbook_of("tool: {kind: noop}", "executor: {spec: {timeout: {read: 5}}}\n"), "wrong-type")
    assert finding.at == Position(2, 28)


def test_limits_are_ceilings():
    text = playbook_of(
        "tool: {kind: noop}", "executor: {spec: {policy: {limits: {max_events: 1000, max_task_runs: 50}}}}\n"
    )
    plan = plan_of(text)
    assert plan.limits.max_events == 1000
    assert plan.limits.max_task_runs == 50
    assert plan.limits.max_payload_bytes == 262_144
    made = built(text, limits__max_task_runs=49)
    finding = made.findings[0]
    assert finding.code == "limit-exceeded"
    assert "ceiling, 49" in finding.message
    assert finding.at == Position(2, 70)
    lower = built(playbook_of("tool: {kind: noop}"), limits__max_task_runs=49).plan
    assert lower is not None
    assert lower.limits.max_task_runs == 49


@pytest.mark.parametrize(
    ("spec", "mode", "in_flight"),
    [
        ("{mode: parallel}", "parallel", 10),
        ("{policy: {mode: parallel, max_in_flight: 3}}", "parallel", 3),
        ("{mode: parallel, policy: {mode: parallel}, max_in_flight: 7}", "parallel", 7),
        ("{max_in_flight: 3}", "sequential", 1),
    ],
)
def test_loop_knobs_in_both_places(spec, mode, in_flight):
    loop = step_of(f"tool: {{kind: noop}}\nloop: {{in: [1], iterator: i, spec: {spec}}}").loop
    assert loop is not None
    assert (loop.mode, loop.max_in_flight) == (mode, in_flight)
    assert loop.exec == ("distributed" if mode == "parallel" else "local")


def test_loop_knobs_that_disagree():
    text = playbook_of(
        "tool: {kind: noop}\nloop: {in: [1], iterator: i, spec: {mode: sequential, policy: {mode: parallel}}}"
    )
    assert "conflict" in codes(text)


def test_rules_and_their_else_spellings():
    step = step_of("""
    spec:
      policy:
        admit:
          rules:
            - when: "{{ ctx.a }}"
              then: {allow: true}
            - else:
              then: {allow: false}
    tool:
      kind: noop
      spec:
        policy:
          on_unmatched: fail
          rules:
            - when: ctx.b == 1
              then: {do: retry, attempts: 5, backoff: linear, delay: 0.5, set_ctx: {a: "{{ outcome.data }}"}}
            - else:
                then: {do: break}
    """)
    assert step.admit == (
        AdmitRule(allow=True, when="{{ ctx.a }}", at=Position(8, 15)),
        AdmitRule(allow=False, at=Position(10, 15)),
    )
    policy = step.tasks[0].policy
    assert policy is not None
    assert policy.on_unmatched == "fail"
    assert [rule.when for rule in policy.rules] == ["ctx.b == 1", None]
    assert policy.rules[0].then.attempts == 5
    assert policy.rules[0].then.max_delay == 300.0
    assert policy.rules[1].then.do == "break"
    assert step.spots["tasks.0.policy.rules.0.then.set_ctx.a"].line == 19


# --- workbook -----------------------------------------------------------------------------------------------------

WORKBOOK = """
workbook:
  - name: greet
    kind: python
    code: result = 1
    args: {a: "{{ workload.a }}", b: 2}
    spec: {timeout: 9}
"""


def test_a_workbook_entry_is_inlined_with_the_args_laid_over():
    step = step_of("tool: [{kind: workbook, name: greet, args: {b: '{{ ctx.b }}', c: 3}}]", WORKBOOK)
    task = step.tasks[0]
    assert (task.name, task.kind, task.timeout_s) == ("greet", "python", 9)
    assert task.config == {"code": "result = 1", "args": {"a": "{{ workload.a }}", "b": "{{ ctx.b }}", "c": 3}}
    assert step.spots["tasks.0.config.args.a"].line == 7
    assert step.spots["tasks.0.config.args.b"].line == 11


@pytest.mark.parametrize(
    ("body", "before", "code"),
    [
        ("tool: {kind: workbook, name: gret}", WORKBOOK, "unknown-workbook"),
        ("tool: {kind: workbook}", WORKBOOK, "missing-key"),
        ("tool: {kind: workbook, name: greet, url: x}", WORKBOOK, "unknown-key"),
        ("tool: {kind: noop}", "workbook: [{name: a, kind: http}]\n", "missing-key"),
        ("tool: {kind: noop}", "workbook: [{name: a, kind: workbook}]\n", "bad-value"),
        ("tool: {kind: noop}", "workbook: [{kind: noop}]\n", "missing-key"),
        ("tool: {kind: noop}", "workbook: [{name: a, kind: noop}, {name: a, kind: noop}]\n", "duplicate-name"),
    ],
)
def test_refusals_around_the_workbook(body, before, code):
    assert code in codes(playbook_of(body, before))


# --- what reaches the plan ----------------------------------------------------------------------------------------


def test_joins_deadlines_and_limits_reach_the_plan():
    plan = plan_of(
        playbook_of(
            """
            spec: {join: {count: 2}, policy: {lifecycle: {deadline_s: 9}}}
            loop: {in: [1], iterator: i, loop: {in: "{{ iter.i }}", iterator: j}}
            tool: {kind: noop}
            next: {arcs: [{step: one, when: ctx.more}]}
            """,
            "executor: {spec: {timeout_s: 5, concurrency: {max: 3, on_excess: reject}, policy: {approval: required, defaults: {timeouts: {step_s: 7}}}}}\n",
        )
    )
    step = plan.steps[0]
    assert (plan.timeout_s, plan.concurrency, plan.on_excess, plan.approval) == (5, 3, "reject", True)
    assert (step.join, step.join_count, step.timeout_s, step.deadline_s) == ("count", 2, 7, 9)
    assert step.loop is not None
    assert step.loop.inner is not None
    assert step.loop.inner.iterator == "j"


def test_the_seeds_example_compiles():
    text = Path(__file__).with_name("seed_example.yaml").read_text()
    made = build(text, "seed.yaml", KINDS)
    assert made.findings == []
    assert made.plan is not None
    step = made.plan.steps[0]
    assert [task.name for task in step.tasks] == [
        "init_iter",
        "fetch_page",
        "route_by_status",
        "store_200",
        "store_404",
        "paginate",
    ]
    fetch = step.tasks[1]
    assert fetch.spec["timeout"] == {"connect": 5, "read": 15}
    assert fetch.policy is not None
    assert fetch.policy.rules[0].then.attempts == 10
    assert fetch.helper == {"http": {"status": None, "headers": None, "url": None}}


# --- all at once --------------------------------------------------------------------------------------------------


def test_every_finding_comes_at_once_in_order_with_its_place():
    made = built("""\
    metadata: {nme: x}
    workflow:
      - step: start
        when: true
        tool:
          kind: htp
        next:
          arcs:
            - step: finsh
              when: "{{ ctx.a == }}"
      - step: finish
        tool: {kind: http, url: "{{ nothing.here }}"}
    """)
    assert made.plan is None
    assert [(str(finding.at), finding.severity, finding.code) for finding in made.findings] == [
        ("1:11", "error", "missing-key"),
        ("1:12", "error", "unknown-key"),
        ("4:5", "error", "legacy-form"),
        ("6:13", "error", "unknown-kind"),
        ("9:17", "error", "unknown-step"),
        ("10:18", "error", "template-syntax"),
        ("11:11", "warning", "unreachable-step"),
        ("12:33", "warning", "unknown-name"),
    ]
    hints = {finding.code: finding.hint for finding in made.findings}
    assert hints["unknown-key"] == "did you mean name?"
    assert hints["unknown-kind"] == "did you mean http?"
    assert hints["unknown-step"] == "did you mean finish?"


def test_a_template_error_inside_a_block_has_its_own_line():
    made = built("""\
    metadata: {name: p}
    workflow:
      - step: one
        tool:
          kind: http
          url: |
            first
            second {{ a + }}
    """)
    assert [(finding.code, str(finding.at)) for finding in made.findings] == [("template-syntax", "8:9")]


def test_a_rendered_finding():
    made = built(playbook_of("tool: {kind: htp}"))
    assert render_finding(made.findings[0], made.source, made.file) == (
        "p.yaml:4:18: error[unknown-kind] there is no tool kind 'htp' here; known: "
        "approval, assert, http, noop, playbook, postgres, python, shell, wait\n"
        "    4 |     tool: {kind: htp}\n"
        "      |                  ^\n"
        "hint: did you mean http?"
    )


def test_a_rendered_finding_in_a_very_long_line_and_without_place():
    source = "a: " + "x" * 1000 + "y"
    text = render_finding(Finding("c", "m", Position(1, 1004)), source, "f")
    line, caret = text.splitlines()[1:]
    assert len(line) < 200
    assert line[caret.index("^")] == "y"
    assert render_finding(Finding("c", "m"), source, "f") == "f: error[c] m"
    assert render_finding(Finding("c", "m", Position(99, 1)), source, "f") == "f:99:1: error[c] m"


def test_build_or_raise():
    assert build_or_raise(HELLO, "f", KINDS).name == "hello"
    with pytest.raises(PlaybookError) as caught:
        build_or_raise("a: [", "f", KINDS)
    assert caught.value.findings[0].code == "yaml-syntax"
    assert caught.value.source == "a: ["
    assert caught.value.file == "f"


def test_errors_are_never_hidden_by_warnings():
    steps = "".join(f"  - {{step: s{n}, tool: {{kind: http, url: '{{{{ nope{n} }}}}'}}}}\n" for n in range(700))
    made = built(
        f"metadata: {{name: p}}\nworkflow:\n{steps}  - {{step: last, tool: {{kind: noop}}, next: {{arcs: [{{step: nowhere}}]}}}}\n"
    )
    assert made.plan is None
    assert "unknown-step" in [finding.code for finding in made.findings]
    assert made.findings[-1].code == "too-many-findings"


def test_too_many_steps():
    steps = "".join(f"  - {{step: s{n}, tool: {{kind: noop}}}}\n" for n in range(11))
    assert "limit-exceeded" in codes(f"metadata: {{name: p}}\nworkflow:\n{steps}", playbook__max_steps=10)


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["noop", "http", "{{ x }}", "{{", "a", "start", "all", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "step",
                    "tool",
                    "kind",
                    "name",
                    "spec",
                    "policy",
                    "rules",
                    "when",
                    "then",
                    "else",
                    "do",
                    "to",
                    "next",
                    "arcs",
                    "loop",
                    "in",
                    "iterator",
                    "mode",
                    "args",
                    "admit",
                    "allow",
                    "choose",
                    "while",
                    "until",
                    "max",
                    "metadata",
                    "workflow",
                    "executor",
                    "workbook",
                    "keychain",
                    "set_ctx",
                    "limits",
                    "join",
                    "count",
                    "emit",
                    "events",
                    "x-a",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@settings(deadline=None, max_examples=300)
@given(_VALUES, _VALUES, _VALUES)
def test_any_shape_gives_findings_never_an_exception(root, step, task):
    for value in (
        root,
        {"metadata": {"name": "p"}, "workflow": [step]},
        {
            "metadata": {"name": "p"},
            "workflow": [{"step": "a", "tool": [task], "spec": step, "next": root, "loop": task}],
        },
    ):
        made = build(json.dumps(value), "p", KINDS)
        assert (made.plan is None) == any(finding.severity == "error" for finding in made.findings)


def test_tasks_carry_what_their_kind_says():
    task: TaskPlan = step_of("tool: {kind: http, url: x}").tasks[0]
    assert (task.data_at, task.effectful, task.runs_on) == ("data", True, "worker")
    assert task.helper == {"http": {"status": None, "headers": None, "url": None}}


def _many(count: int, step: str) -> str:
    return "metadata: {name: p}\nworkflow:\n" + "".join(f"  - {{step: s{n}, {step}}}\n" for n in range(count))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "executor: {spec: {tls: {" + ",".join(f"a{n}: 1" for n in range(5000)) + "}}}\n" + _many(2000, "tool: {kind: http, url: x}"),
            "limit-exceeded",
        ),
        (
            "workbook: [{name: w, kind: python, code: x, args: {" + ",".join(f"a{n}: 1" for n in range(5000)) + "}}]\n" + _many(2000, "tool: {kind: workbook, name: w}"),
            "limit-exceeded",
        ),
    ],
)  # fmt: skip
def test_a_small_file_cannot_make_a_huge_plan(text, code):
    assert code in codes(text)


def test_many_unknown_names_do_not_make_hints_the_main_work(monkeypatch):
    compared = 0

    def nearest(word, words):
        nonlocal compared
        compared += len(list(words))
        return ""

    monkeypatch.setattr(walk, "nearest", nearest)
    tasks = "".join(f"      - {{kind: http, url: '{{{{ n{n} }}}}'}}\n" for n in range(5000))
    made = built(f"metadata: {{name: p}}\nworkflow:\n  - step: a\n    tool:\n{tasks}")
    assert len(made.findings) <= 501
    assert 0 < compared < 60_000


def test_a_step_has_its_own_pool_or_the_executors():
    plan = plan_of("""
    metadata: {name: p}
    executor: {spec: {pool: big.mem-1}}
    workflow:
      - {step: one, tool: {kind: noop}, next: {arcs: [{step: two}]}}
      - {step: two, spec: {pool: gpu}, tool: {kind: noop}}
    """)
    assert [step.pool for step in plan.steps] == ["big.mem-1", "gpu"]
    assert "pool" not in plan.steps[0].tasks[0].spec
    assert plan_of("{metadata: {name: p}, workflow: [{step: a, tool: {kind: noop}}]}").steps[0].pool == "default"


def test_the_order_of_an_authors_keys_outlives_the_store():
    """A worker elsewhere has the plan from its bytes: what it writes must have the same columns in the same order."""
    plan = plan_of(playbook_of("tool: {kind: noop, data: {zeta: 1, alpha: {y: 1, b: 2}, beta: 3}}"))
    data = decode(encode(plan)).steps[0].tasks[0].config["data"]
    assert (list(data), list(data["alpha"])) == (["zeta", "alpha", "beta"], ["y", "b"])
