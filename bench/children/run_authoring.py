"""Run small tests of a playbook and migrate older playbooks, in a process of its own. Usage: run_authoring.py TESTS FILES"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from arclog.cli.main import command
from arclog.testing.playbook_tests.runner import run_file

FLOW = """\
metadata: {name: flow}
workflow:
  - step: start
    tool: {kind: http, url: https://example.org, spec: {retry: {attempts: 3}}}
    next: {arcs: [{step: wait, when: "{{ start.data.n > 1 }}"}, {step: done}]}
  - {step: wait, tool: {kind: wait, for_s: 86400}, next: {arcs: [{step: done}]}}
  - {step: done, tool: {kind: noop, data: "{{ start.data.n }}"}}
"""
TEST = """\
  - name: test {number}
    mocks: [{{step: start, ok: {{n: {n}}}}}]
    expect: {{state: completed, result: {n}}}
"""
#: One step of an older playbook; about ten lines.
OLD = """\
  - name: s{number}
    tool:
      - work:   # number {number}
          type: python
          input: {{n: "{{{{ vars.limit }}}}"}}
          code: |
            total = n + {number}
            return total
    next:
      - step: {target}
"""


def main(tests: int, files: int) -> None:
    folder = Path.cwd()
    (folder / "flow.yaml").write_text(FLOW)
    cases = "".join(TEST.format(number=number, n=1 + number % 2) for number in range(tests))
    (folder / "flow.test.yaml").write_text("tests:\n" + TEST.format(number=0, n=1))
    run_file("flow.test.yaml")  # imports
    (folder / "flow.test.yaml").write_text(f"tests:\n{cases}")
    started = time.perf_counter()
    report = run_file("flow.test.yaml")
    tested = time.perf_counter() - started
    steps = 15
    body = "".join(
        OLD.format(number=number, target=f"s{number + 1}" if number + 1 < steps else "end") for number in range(steps)
    )
    text = f"metadata: {{name: old}}\nvars: {{limit: 3}}\nsteps:\n{body}"
    names = [f"{number}.yaml" for number in range(files)]
    for name in names:
        (folder / name).write_text(text)
    started = time.perf_counter()
    undecided = command(["migrate", *names, "--write", "--quiet"])
    migrated = time.perf_counter() - started
    print(
        json.dumps(
            {
                "tests_per_s": tests / tested,
                "passed": sum(case.status == "passed" for case in report.cases),
                "migrate_1000_s": migrated * 1000 / files,
                "undecided": undecided,
                "lines": text.count("\n"),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
