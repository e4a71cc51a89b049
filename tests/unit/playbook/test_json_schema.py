"""The JSON Schema and `check` say the same of a playbook's shape: on every example, and on what stands below."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from arclog.authoring.playbook_files import FilesBeside
from arclog.model.config.settings import Settings
from arclog.plan.build import build
from arclog.playbook.json_schema import json_schema
from arclog.playbook.load import load
from arclog.testing.families import family
from arclog.testing.harness import SPECS
from arclog.wiring.kinds import installed_kinds

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml"))


@lru_cache(maxsize=1)
def validator() -> Draft202012Validator:
    schema = json_schema(installed_kinds())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def refused(text: str, file: str = "p.yaml") -> tuple[list[str], list[str]]:
    """What the schema has against a playbook, and which errors `check` finds."""
    value = load(text, "p.yaml", Settings()).value
    by_schema = [f"{list(error.absolute_path)}: {error.message[:200]}" for error in validator().iter_errors(value)]
    beside = FilesBeside(Settings()).of(file)
    return by_schema, [str(error) for error in build(text, file, installed_kinds(), files=beside).errors]


def book(tool: str = "{kind: noop}", step: str = "", root: str = "") -> str:
    more = "".join(f"    {line}\n" for line in step.splitlines())
    return f"metadata: {{name: p}}\n{root}\nworkflow:\n  - step: start\n    tool: {tool}\n{more}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_good_for_both(path: Path) -> None:
    assert refused(path.read_text(encoding="utf-8"), str(path)) == ([], [])


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_what_is_drawn_at_random_is_good_for_the_schema(seed: int) -> None:
    schema = Draft202012Validator(json_schema(SPECS))
    drawn = family(seed)
    for playbook in (drawn.main, *drawn.children):
        assert [error.message for error in schema.iter_errors(load(playbook.text, "p", Settings()).value)] == []


def rules(*given: str) -> str:
    return f"{{kind: noop, spec: {{policy: {{rules: [{', '.join(given)}]}}}}}}"


def admit(rule: str) -> str:
    return f"spec: {{policy: {{admit: {{rules: [{rule}]}}}}}}"


GOOD = {
    "a list": book("[{kind: noop}, {name: a, kind: noop}]"),
    "free keys": book("{kind: noop, x-mine: 1}", "x-mine: {a: 1}", "x-mine: 1"),
    "wait": book("{kind: wait, for_s: 5}"),
    "wait, a template": book("{kind: wait, for_s: '{{ 5 }}'}"),
    "approval": book("{kind: approval, prompt: ok?, approvers: [operator], timeout_s: 5}"),
    "playbook": book("{kind: playbook, path: a/b, args: {x: 1}, wait: false}"),
    "workbook": book("{kind: workbook, name: w, args: {a: 1}}", root="workbook: [{name: w, kind: python, code: x}]"),
    "workbook twice": book(
        "[{kind: workbook, name: w}, {kind: workbook, name: w, spec: {timeout: 5}}]",
        root="workbook: [{name: w, kind: noop}]",
    ),
    "choose": book("[{choose: [{when: true, then: [{kind: noop}]}, {else: [{kind: noop}]}], desc: x}]"),
    "choose, else with then": book("[{choose: [{else: {then: [{kind: noop}]}}]}]"),
    "choose, empty else": book("[{choose: [{else: null, then: [{kind: noop}]}]}]"),
    "while in until": book("[{until: {when: x, do: [{while: {when: '{{ y }}', do: [{kind: noop}], max: 3}}]}}]"),
    "rules": book(rules("{when: a, then: {do: retry, attempts: 3}}", "{else: {then: {set_ctx: {a: 1}}}}")),
    "rules, empty else": book(rules("{when: true, then: {do: break}}", "{else: null, then: {do: continue}}")),
    "jump": book("[{name: a, kind: noop, spec: {policy: {rules: [{else: {then: {do: jump, to: a}}}]}}}]"),
    "admission": book(step=admit("{when: a, then: {allow: true}}, {else: {then: {allow: false}}}")),
    "join": book(step="spec: {join: {count: 2}}\nnext: {arcs: [{step: start}, {step: start}]}"),
    "nested loops": book(step="loop: {in: [1], iterator: a, loop: {in: '{{ iter.a }}', iterator: b}}"),
    "placeholders": book(
        step="spec: {policy: {tracing: 1, quotas: {}, compensation: []}}",
        root="executor: {spec: {policy: {placement: {region: eu}, cost: 1, quantum: {backend: x}, defaults: {resources: 1}}}}",
    ),
    "time in parts beside python": book(
        "[{kind: http, url: 'http://x'}, {kind: python, code: x}]", "spec: {timeout: {connect: 5, read: 15}}"
    ),
    "reducers": book(root="executor: {spec: {ctx: {total: {reducer: sum, initial: 0}}}}"),
    "the smallest event": book(root="executor: {spec: {policy: {limits: {max_payload_bytes: 4096}}}}"),
    "sql": book("{kind: sqlite, database: a.db, command: 'select {{ 1 }}', params: []}"),
    "http, a template for a map": book("{kind: http, url: 'http://x', params: '{{ workload }}', method: '{{ 1 }}'}"),
    "keychain": book(root="keychain: [{name: a, kind: bearer, token: {env: A}}, {name: b, kind: file, path: x}]"),
    "inputs": book(
        root="executor: {spec: {inputs: {a: {type: list, max: 3, items: {type: object, properties: {b: {required: true}}}}, c: {}}}}"
    ),
    "short forms": book(
        "{kind: noop, spec: {retry: {attempts: 2, delays: [1, 2.5], on: [sql]}, set_ctx: {a: '{{ 1 }}'}, set_iter: {b: 2}}}",
        step="spec: {retry: {jitter: 0.5}, end: failed, join: all_ok}",
        root="executor: {spec: {sequence: true, retry: {backoff: linear}}}",
    ),
    "assert": book(
        "[{kind: assert, that: a > 1}, {kind: assert, that: ['{{ b }}', true], message: '{{ c }}', code: X}]"
    ),
    "fail with a message": book(rules("{else: {then: {do: fail, message: 'no {{ x }}', code: NO}}}")),
}

BAD = {
    "a label as a key": book("[{fetch: {kind: noop}}]"),
    "no kind": book("{name: a}"),
    "an unknown kind": book("{kind: htp}"),
    "expr in a rule": book(rules("{expr: a, then: {do: continue}}")),
    "expr beside when": book(rules("{when: a, expr: a, then: {do: continue}}")),
    "eval": book("{kind: noop, eval: []}"),
    "retry on a task": book("{kind: noop, retry: 3}"),
    "retry in the spec": book("{kind: noop, spec: {retry: 3}}"),
    "when on a step": book(step="when: a"),
    "next as a list": book(step="next: [start]"),
    "next as a name": book(step="next: start"),
    "case": book(step="case: []"),
    "sink": book("{kind: noop, sink: {}}"),
    "vars": book(root="vars: {a: 1}"),
    "no rules": book("{kind: noop, spec: {policy: {}}}"),
    "rules as a map": book("{kind: noop, spec: {policy: {rules: {}}}}"),
    "a rule without then": book(rules("{when: a}")),
    "then as a word": book(rules("{when: a, then: retry}")),
    "an unknown action": book(rules("{when: a, then: {do: stop}}")),
    "an unknown key of an action": book(rules("{when: a, then: {do: retry, times: 3}}")),
    "attempts without retry": book(rules("{when: a, then: {do: fail, attempts: 3}}")),
    "jump to nowhere": book(rules("{when: a, then: {do: jump}}")),
    "a reserved ctx key": book(rules("{else: {then: {set_ctx: {_a: 1}}}}")),
    "else with a condition": book(rules("{else: {then: {do: fail}}, when: a}")),
    "control in a step": book(step="spec: {policy: {do: retry}}"),
    "admission without allow": book(step=admit("{when: a, then: {do: continue}}")),
    "an unknown admission mode": book(step="spec: {policy: {admit: {mode: some, rules: []}}}"),
    "an unknown join": book(step="spec: {join: sometimes}"),
    "a join of none": book(step="spec: {join: {count: 0}}"),
    "choose as a map": book("[{choose: {}}]"),
    "choose without then": book("[{choose: [{when: true}]}]"),
    "choose, else without a list": book("[{choose: [{else: {kind: noop}}]}]"),
    "choose with a name": book("[{choose: [], name: a}]"),
    "while without when": book("[{while: {do: []}}]"),
    "while, no rounds": book("[{while: {when: true, do: [], max: 0}}]"),
    "until, no list": book("[{until: {when: true, do: {kind: noop}}}]"),
    "a bad task in a block": book("[{until: {when: true, do: [{kind: htp}]}}]"),
    "a block outside a list": book("{choose: []}"),
    "no tasks": book("[]"),
    "no steps": "metadata: {name: p}\nworkflow: []\n",
    "an empty name": "metadata: {name: ' '}\nworkflow: [{step: a, tool: {kind: noop}}]\n",
    "a bad step name": "metadata: {name: p}\nworkflow: [{step: a-b, tool: {kind: noop}}]\n",
    "a reserved step name": "metadata: {name: p}\nworkflow: [{step: ctx, tool: {kind: noop}}]\n",
    "a name with a first _": book("{name: _a, kind: noop}"),
    "a reserved iterator": book(step="loop: {in: [], iterator: index}"),
    "a map for loop.in": book(step="loop: {in: {}, iterator: a}"),
    "an unknown loop mode": book(step="loop: {in: [], iterator: a, spec: {mode: fast}}"),
    "an unknown key below a nested loop": book(step="loop: {in: [], iterator: a, loop: {in: [], iterator: b, mode: x}}"),
    "wait for two things": book("{kind: wait, for_s: 5, signal: go}"),
    "wait for nothing": book("{kind: wait}"),
    "wait for a text": book("{kind: wait, for_s: soon}"),
    "wait for less than nothing": book("{kind: wait, for_s: -1}"),
    "a playbook by path and file": book("{kind: playbook, path: a, file: b.yaml}"),
    "approvers as a name": book("{kind: approval, approvers: operator}"),
    "python without code": book("{kind: python}"),
    "http without url": book("{kind: http}"),
    "http, an unknown decode": book("{kind: http, url: 'http://x', decode: xml}"),
    "sql under another word": book("{kind: sqlite, database: a.db, query: select 1}"),
    "a timeout of zero": book("{kind: noop, spec: {timeout: 0}}"),
    "an unknown delivery": book("{kind: noop, spec: {delivery: once}}"),
    "too small an event": book(root="executor: {spec: {policy: {limits: {max_payload_bytes: 1024}}}}"),
    "an unknown reducer": book(root="executor: {spec: {ctx: {a: {reducer: avg}}}}"),
    "a reserved ctx name": book(root="executor: {spec: {ctx: {iter: {reducer: sum}}}}"),
    "an unknown event": book(root="executor: {spec: {policy: {emit: {events: [nothing]}}}}"),
    "an odd pool": book(step="spec: {pool: 'a b'}"),
    "a webhook to a file": book(root="executor: {spec: {webhooks: [{url: 'file:///x', secret: a}]}}"),
    "a workbook entry without a name": book(root="workbook: [{kind: noop}]"),
    "a workbook entry of kind workbook": book(root="workbook: [{name: a, kind: workbook}]"),
    "a workbook task with a url": book(
        "{kind: workbook, name: w, url: x}", root="workbook: [{name: w, kind: http, url: 'http://x'}]"
    ),
    "a secret in the playbook": book(root="keychain: [{name: a, kind: bearer, token: abc}]"),
    "a keychain kind": book(root="keychain: [{name: a, kind: vault}]"),
    "nats without a bucket": book("{kind: nats, op: kv_get, key: a, servers: 'nats://x'}"),
    "an input of no type": book(root="executor: {spec: {inputs: {a: {type: text}}}}"),
    "an input's name": book(root="executor: {spec: {inputs: {a-b: {}}}}"),
    "an input with an unknown key": book(root="executor: {spec: {inputs: {a: {kind: string}}}}"),
    "an input that is required and has a default": book(root="executor: {spec: {inputs: {a: {required: true, default: 1}}}}"),
    "an input with a pattern for a number": book(root="executor: {spec: {inputs: {a: {type: integer, pattern: x}}}}"),
    "an input inside with an unknown key": book(root="executor: {spec: {inputs: {a: {items: {tpye: string}}}}}"),
    "retry of an unknown kind": book("{kind: noop, spec: {retry: {on: [nope]}}}"),
    "retry that is not a map": book("{kind: noop, spec: {retry: 3}}"),
    "set_ctx in a step's spec": book(step="spec: {set_ctx: {a: 1}}"),
    "set_ctx of a reserved key": book("{kind: noop, spec: {set_ctx: {_a: 1}}}"),
    "an assert without conditions": book("{kind: assert, message: x}"),
    "a message of a retry": book(rules("{else: {then: {do: retry, message: x}}}")),
    "an odd end": book(step="spec: {end: done}"),
    "a sequence that is a text": book(root="executor: {spec: {sequence: 'yes'}}"),
    "code and a file": book("{kind: python, code: x, file: a.py}"),
    "a function of no file": book("{kind: python, code: x, function: main}"),
    "a module for SQL": book("{kind: sqlite, database: a, module: x}"),
    "a template for a file": book("{kind: shell, file: '{{ x }}'}"),
    "nats, a key of another op": book("{kind: nats, op: publish, subject: a, bucket: b, servers: 'nats://x'}"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_both_take_it(name: str) -> None:
    assert refused(GOOD[name]) == ([], [])


@pytest.mark.parametrize("name", BAD)
def test_both_refuse_it(name: str) -> None:
    by_schema, by_check = refused(BAD[name])
    assert by_check, "check takes it"
    assert by_schema, f"the schema takes what check refuses: {by_check}"


def test_editors_see_the_kinds_that_every_arclog_has() -> None:
    kinds: list[Any] = json_schema(installed_kinds())["$defs"]["task"]["properties"]["kind"]["enum"]
    assert {"wait", "approval", "playbook", "workbook", "noop", "http", "python"} <= set(kinds)
