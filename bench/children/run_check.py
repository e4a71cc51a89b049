"""Check a wide playbook in a process of its own, beside the bare YAML parser. Usage: run_check.py STEPS"""

from __future__ import annotations

import gc
import json
import sys
import time

import yaml

from arclog.plan.build import build
from arclog.tools import noop

HEAD = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata:\n  name: wide\nworkload:\n  limit: 10\nworkflow:\n"


def wide(steps: int) -> str:
    """Steps one after the other, with three templates each, none of them twice; about ten lines a step."""
    parts = [HEAD]
    for number in range(steps):
        name = f"s{number}"
        parts.append(
            f'  - step: {name}\n    args:\n      n: "{{{{ workload.limit + {number} }}}}"\n'
            f"    tool:\n      - name: work_{number}\n        kind: noop\n"
            f'        data: "{{{{ (args.n * {number}) | default({number}) }}}}"\n'
        )
        if number + 1 < steps:
            parts.append(
                f'    next:\n      arcs:\n        - step: s{number + 1}\n          when: "{{{{ {name}.data >= {number} }}}}"\n'
            )
    return "".join(parts)


def main(steps: int) -> None:
    gc.set_threshold(50_000, 20, 100)  # as the command line does
    text = wide(steps)
    build(wide(2), "warm.yaml", {"noop": noop.KIND.spec}, thorough=True)  # imports
    started = time.perf_counter()
    made = build(text, "wide.yaml", {"noop": noop.KIND.spec}, thorough=True)  # as `arclog check` does
    checked = time.perf_counter() - started
    started = time.perf_counter()
    yaml.load(text, yaml.CSafeLoader)
    parsed = time.perf_counter() - started
    steps_made = 0 if made.plan is None else len(made.plan.steps)
    answer = {"check_s": checked, "yaml_s": parsed, "findings": len(made.findings), "steps": steps_made}
    print(json.dumps({**answer, "lines": text.count("\n")}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
