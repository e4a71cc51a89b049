"""What `--set` may assign, given a playbook."""

from __future__ import annotations

import pytest

from arclog.cli.exits import Usage
from arclog.cli.playbooks.assignments import check_assignments
from arclog.cli.playbooks.files import assigned
from arclog.plan.build import build_or_raise
from arclog.plan.net import Plan
from arclog.wiring.kinds import installed_kinds

WORKLOAD = """
workload:
  limit: 5
  ratio: 0.5
  name: Ada
  loud: false
  ids: [1, 2]
  nothing: null
  headers: {}
  db: {host: here, port: 5432}
"""
TOOL = "tool: {kind: noop, data: '{{ workload.limit }}'}"


def plan(tool: str = TOOL, workload: str = WORKLOAD) -> Plan:
    text = f"metadata: {{name: x}}\n{workload}\nworkflow:\n  - step: start\n    {tool}\n"
    return build_or_raise(text, "x.yaml", installed_kinds())


def refusal(word: str, of: Plan) -> str:
    with pytest.raises(Usage) as caught:
        check_assignments(of, assigned([word]))
    return f"{caught.value}; {caught.value.hint}"


@pytest.mark.parametrize(
    "word",
    ["limit=7", "limit=2.5", "ratio=1", "name=Bob", 'name="5"', "loud=true", "ids=[]", "nothing=7", "nothing=[]", "limit=null",
     "headers.Accept=x", 'headers={"a": 1}', "db.host=there", 'db={"port": 1}', "db.port=1"],
)  # fmt: skip
def test_what_fits_the_workload_is_taken(word: str) -> None:
    check_assignments(plan(), assigned([word]))


@pytest.mark.parametrize(
    "word, said",
    [
        ("lmit=5", "the workload has no key 'lmit'; did you mean limit?"),
        ("db.hsot=x", "the workload's db has no key 'hsot'; did you mean db.host? it has host, port"),
        ('db={"hsot": 1}', "did you mean db.host?"),
        ("zzz.a=1", "the workload has no key 'zzz'; it has limit, ratio"),
        ("limit=ten", "the workload's limit is a number, not text; give a number, as the workload's own 5"),
        ("limit=true", "is a number, not a boolean"),
        ("limit=[1]", "is a number, not a list"),
        ("name=5", "the workload's name is text, not a number; quote it to make it text: --set 'name=\"5\"'"),
        ("ids=7", "is a list, not a number"),
        ("loud=yes", "is a boolean, not text"),
        ("db=x", "is a map, not text"),
        ("db.port=x", "the workload's db.port is a number, not text"),
    ],
)
def test_what_the_workload_does_not_know_is_refused(word: str, said: str) -> None:
    assert said in refusal(word, plan())


@pytest.mark.parametrize(
    "word, tool",
    [
        ("extra=1", "tool: {kind: noop, data: '{{ workload.extra | default(1) }}'}"),
        ("extra=1", "tool: {kind: noop, data: '{{ extra | default(1) }}'}"),
        ("extra.deep=1", "tool: {kind: noop, data: '{{ workload.extra.deep | default(1) }}'}"),
        ("extra=1", "tool: {kind: playbook, path: other, args: '{{ workload }}'}"),
        ("db.user=x", "tool: {kind: noop, data: '{{ workload.db }}'}"),
        ("db.user=x", "tool: {kind: noop, data: '{{ workload.db[workload.name] }}'}"),
        ("extra=1", "tool: {kind: python, code: 'result = context.workload[\"extra\"]'}"),
        ("extra=1", "args: {a: '{{ workload.extra | default(2) }}'}\n    tool: {kind: noop}"),
        ("extra=1", "loop: {in: '{{ workload.extra | default([]) }}', iterator: i}\n    tool: {kind: noop}"),
        (
            "extra=1",
            "tool: {kind: noop}\n    next: {arcs: [{step: start, when: '{{ extra is defined and extra > 99 }}'}]}",
        ),
    ],
)
def test_a_key_that_the_playbook_names_elsewhere_is_taken(word: str, tool: str) -> None:
    check_assignments(plan(tool), assigned([word]))
    assert "no key" in refusal("other=1", plan()), "and only that"


def test_a_playbook_without_a_workload_takes_what_it_reads() -> None:
    check_assignments(plan(workload=""), assigned(["limit=1"]))
    assert "did you mean limit?" in refusal("lmit=1", plan(workload=""))
    assert "the playbook reads no key" in refusal("a.b=1", plan("tool: {kind: noop}", ""))
    check_assignments(plan("tool: {kind: noop, data: '{{ workload }}'}", ""), assigned(["a.b=1", "c=x"]))


def test_inputs_are_known_and_left_to_their_declarations() -> None:
    inputs = "executor: {spec: {inputs: {day: {type: date}}}}"
    check_assignments(plan("tool: {kind: noop}", inputs), assigned(["day=7"]))
    check_assignments(plan("tool: {kind: noop}", inputs), assigned(["dya=7"]))  # refused with all other faults


def test_all_faults_are_named_at_once() -> None:
    with pytest.raises(Usage) as caught:
        check_assignments(plan(), assigned(["lmit=5", "name=5"]))
    assert "did you mean limit?" in str(caught.value)
    assert "the workload's name is text" in str(caught.value)


def test_labels_of_tasks_and_names_of_templates_are_no_keys_of_the_workload() -> None:
    tool = "tool: [{name: load, kind: noop, data: '{{ run.started_at }}'}, {name: use, kind: noop, data: '{{ load.data }}'}]"
    assert "has no key 'load'" in refusal("load=1", plan(tool))
    assert "has no key 'run'" in refusal("run=1", plan(tool))
