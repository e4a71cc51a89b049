"""Stored data where two features meet, through the real command: what a run gives must not depend on sizes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.servers.commands import run_bytes


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ARCLOG_"):
            monkeypatch.delenv(name)


def ran(text: str, **env: str) -> dict[str, Any]:
    Path("it.yaml").write_text(text)
    done = run_bytes("run", "it.yaml", "--json", env={**os.environ, **env})
    body: dict[str, Any] = json.loads(done.stdout)
    return body


LARGEST_READ = "100000"
ITEMS_OF_A_STREAM = """
metadata: {name: it}
executor: {spec: {result: "{{ [made.data[1].n, made.data[-1].n, made.data | length, seen.data] }}"}}
workflow:
  - step: made
    tool:
      kind: python
      code: |
        def main():
            for n in range(4000):
                yield {"n": n, "pad": "x" * 100}
    next:
      arcs:
        - {step: seen, when: "{{ outcome.data[0].n == 0 and made.data[-4000].n == 0 }}", args: {last: "{{ made.data[-1].n }}"}}
  - step: seen
    tool: {kind: noop, data: "{{ args.last }}"}
"""


def test_routing_reads_items_of_a_list_that_is_too_large_to_be_read_whole():
    result = ran(ITEMS_OF_A_STREAM, ARCLOG_RESULTS_READ_MAX_BYTES=LARGEST_READ)
    assert result["state"] == "COMPLETED", result["error"]
    assert result["result"] == [1, 3999, 4000, 3999]


EMPTY = """
metadata: {{name: it}}
executor: {{spec: {{result: "{{{{ seen.data }}}}"}}}}
workflow:
  - step: made
    tool: {{kind: noop, data: {value}, spec: {{result: {{store: {store}}}}}}}
    next:
      spec: {{on_no_match: fail}}
      arcs:
        - {{step: seen, when: "{{{{ not outcome.data }}}}", args: {{server: "{{{{ 'yes' if made.data else 'no' }}}}"}}}}
        - {{step: seen, args: {{server: wrong way}}}}
  - step: seen
    tool: {{kind: noop, data: ["{{{{ args.server }}}}", "{{{{ 'yes' if made.data else 'no' }}}}", "{{{{ made.data or 'none' }}}}"]}}
"""


@pytest.mark.parametrize("value", ["[]", "{}", "''", "0", "false", "-0.0"])
@pytest.mark.parametrize("store", ["auto", "always"])
def test_what_is_empty_is_so_when_it_is_stored_too(value, store):
    result = ran(EMPTY.format(value=value, store=store))
    assert result["result"] == ["no", "no", "none"], result["error"]


RESULTS_THAT_ARE_STORED = """
metadata: {name: it}
executor: {spec: {result: "{{ put.data.size }}"}}
workflow:
  - step: made
    loop: {in: "{{ range(6) }}", iterator: i}
    tool: {kind: python, args: {i: "{{ iter.i }}"}, code: "result = {'i': i, 'pad': 'p' * (70_000 if i % 3 == 0 else 1)}"}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ made.results }}", iterator: one, spec: {mode: MODE}}
    tool:
      - name: seen
        kind: noop
        data: "{{ [iter.one.i, iter.one.pad | length] }}"
        spec:
          policy:
            rules:
              - when: "{{ iter.one.i == iter.index }}"
                then: {do: continue, set_iter: {kept: "{{ iter.one }}"}}
              - else: {then: {do: fail}}
      - {name: rest, kind: wait, for_s: 0.01}
      - {name: again, kind: noop, data: "{{ [iter.one.i, iter.kept.i] }}"}
      - {name: alone, kind: object, action: put, url: "one-{{ iter.one.i }}.json", content: "{{ iter.one }}"}
    next: {arcs: [{step: put}]}
  - step: put
    tool: {kind: object, action: put, url: all.json, content: "{{ made.results }}"}
"""


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_results_of_a_loop_that_are_stored_themselves_can_be_looped_over_and_handed_on(mode):
    result = ran(RESULTS_THAT_ARE_STORED.replace("MODE", mode))
    assert result["state"] == "COMPLETED", result["error"]
    every = json.loads(Path("all.json").read_text())
    assert [item["i"] for item in every] == list(range(6))
    assert [json.loads(Path(f"one-{number}.json").read_text()) for number in range(6)] == every
