"""Soundness: what is not sound is said with a shortest run that shows it."""

from __future__ import annotations

from arclog.model.config.settings import Settings
from arclog.plan.build import build
from arclog.testing.harness import SPECS

SPLIT = """
metadata: {name: split}
workflow:
  - step: start
    tool: {kind: noop}
    next:
      spec: {mode: inclusive}
      arcs: [{step: a}, {step: b}, {step: c, when: "{{ workload.c }}"}]
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: end}]}}
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: end, when: "{{ workload.b }}"}]}}
  - {step: c, tool: {kind: noop}, next: {arcs: [{step: end}]}}
  - {step: end, spec: {join: {count: 2}}, tool: {kind: noop}}
"""


def findings_of(text: str, code: str, **settings: int) -> list[str]:
    made = build(text, "x.yaml", SPECS, Settings({name.replace("__", "."): value for name, value in settings.items()}))
    return [finding.message for finding in made.findings if finding.code == code]


def test_a_counted_join_that_can_get_too_few_tokens_is_said_with_a_shortest_run() -> None:
    assert findings_of(SPLIT, "join-too-few") == [
        "join {count: 2} of step 'end' can get too few tokens: after start → a → b, 1 came"
    ]


def test_one_that_always_gets_them_is_no_finding() -> None:
    sure = SPLIT.replace(', when: "{{ workload.b }}"', "")
    assert findings_of(sure, "join-too-few") == []
    assert findings_of(sure.replace("join: {count: 2}", "join: all"), "join-too-few") == []
    assert findings_of(SPLIT.replace("join: {count: 2}", "join: all"), "join-too-few") == []


def test_a_failure_that_an_arc_leads_elsewhere_counts_too() -> None:
    text = SPLIT.replace(
        ', when: "{{ workload.b }}"}]', "}, {step: mend, when: \"{{ event.name == 'step.failed' }}\"}]"
    )
    text += "  - {step: mend, tool: {kind: noop}}\n"
    assert findings_of(text, "join-too-few") == [
        "join {count: 2} of step 'end' can get too few tokens: after start → a → b, 1 came"
    ]


def test_a_bound_that_is_reached_is_said() -> None:
    (message,) = findings_of(SPLIT, "soundness-bound", playbook__max_markings=2)
    assert "more than 2 markings" in message
    assert findings_of(SPLIT, "soundness-bound") == []


def split(open_arcs: int, join: str, sure: int = 0, admit: str = "") -> str:
    """A step with so many arcs that may or may not match, and a join behind them all."""
    names = [f"a{number}" for number in range(open_arcs + sure)]
    arcs = [f'{{step: {name}, when: "{{{{ workload.{name} }}}}"}}' for name in names[:open_arcs]]
    arcs += [f"{{step: {name}}}" for name in names[open_arcs:]]
    steps = [f"{{step: {name}, {admit}tool: {{kind: noop}}, next: {{arcs: [{{step: end}}]}}}}" for name in names]
    first = f"{{step: start, tool: {{kind: noop}}, next: {{spec: {{mode: inclusive}}, arcs: [{', '.join(arcs)}]}}}}"
    steps = [first, *steps, f"{{step: end, spec: {{join: {join}}}, tool: {{kind: noop}}}}"]
    return "metadata: {name: split}\nworkflow:\n" + "".join(f"  - {step}\n" for step in steps)


def test_of_many_open_arcs_every_combination_is_looked_at() -> None:
    assert findings_of(split(10, "{count: 1}"), "join-too-few") == []
    assert findings_of(split(10, "{count: 1}"), "soundness-bound") == []


def test_open_arcs_that_are_too_many_to_combine_are_said() -> None:
    assert findings_of(split(16, "{count: 1}"), "soundness-bound") == [
        "not every way to the joins was looked at: 16 arcs of step 'start' may or may not match, each for itself"
    ]
    assert findings_of(split(9, "{count: 1}"), "soundness-bound", playbook__max_markings=300) != []


def test_what_a_few_combinations_show_needs_no_others() -> None:
    """Every step runs and the join starves: nothing else can be found."""
    assert findings_of(split(40, "{count: 2}"), "soundness-bound") == []
    assert findings_of(split(40, "{count: 2}"), "join-too-few") == [
        "join {count: 2} of step 'end' can get too few tokens: after start → a0, 1 came"
    ]
    assert findings_of(split(40, "all_ok"), "soundness-bound") == []


def test_more_branches_than_forty_are_looked_at() -> None:
    assert findings_of(split(0, "{count: 60}", sure=60), "soundness-bound") == []
    assert findings_of(split(0, "{count: 60}", sure=60), "join-too-few") == []


def test_a_cycle_that_makes_more_and_more_tokens_is_said() -> None:
    text = """
metadata: {name: breeds}
workflow:
  - {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: start}, {step: a}, {step: b}]}}
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: end}]}}
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: end}]}}
  - {step: end, spec: {join: {count: 2}}, tool: {kind: noop}}
"""
    assert findings_of(text, "soundness-bound") == [
        "not every way to the joins was looked at: a run can have more than 40 tokens at once"
    ]


def test_admissions_that_may_be_denied_end_at_the_bound() -> None:
    """Thirty of them have a thousand million outcomes."""
    admit = 'spec: {policy: {admit: {rules: [{when: "{{ workload.y }}", then: {allow: true}}]}}}, '
    assert (
        len(findings_of(split(0, "all_ok", sure=30, admit=admit), "soundness-bound", playbook__max_markings=500)) == 1
    )


def test_a_step_behind_arcs_that_never_match_is_unreachable() -> None:
    text = """
metadata: {name: dead}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: a, when: false}, {step: b}]}
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: c}]}}
  - {step: b, tool: {kind: noop}}
  - {step: c, tool: {kind: noop}}
"""
    assert findings_of(text, "unreachable-step") == [
        f"no run reaches step {name!r}: the arcs that lead to it can never match" for name in ("a", "c")
    ]


def test_a_cycle_without_a_way_out_is_said_with_the_way_into_it() -> None:
    text = """
metadata: {name: endless}
workflow:
  - {step: start, tool: {kind: noop}, next: {arcs: [{step: a, when: "{{ workload.x }}"}]}}
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: a}]}}
"""
    assert findings_of(text, "endless-cycle") == [
        "the steps a → b form a cycle without a way out; a run comes to it by start → a"
    ]
