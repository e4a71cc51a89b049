"""The playbooks that the workloads run, and what their logs must hold."""

from __future__ import annotations

from itertools import pairwise

from bench.harness import Sample, expect

HEAD = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {name: bench}\nworkflow:\n"
ROUTED = HEAD.replace(
    "workflow:\n",
    "workload: {limit: 100, orders: [{id: 1, customer: ada, total: 120}, {id: 2, customer: bob, total: 80}, "
    "{id: 3, customer: eve, total: 300}]}\nworkflow:\n",
)
NOOP = "    tool: {kind: noop}\n"
PYTHON = "    tool:\n      kind: python\n      code: |\n        def main():\n            return 1\n"


def chain(steps: int, tool: str = NOOP) -> str:
    """Steps one after the other."""
    names = ["start", *(f"s{number}" for number in range(1, steps))]
    parts = [f"  - step: {name}\n{tool}" for name in names]
    for number, following in enumerate(names[1:]):
        parts[number] += f"    next: {{arcs: [{{step: {following}}}]}}\n"
    return HEAD + "".join(parts)


def routed_chain(steps: int) -> str:
    """Steps one after the other. After each, the server evaluates conditions over the workload and the arguments of the next."""
    names = ["start", *(f"s{number}" for number in range(1, steps))]
    parts = [f"  - step: {name}\n{NOOP}{_routes(following)}" for name, following in pairwise(names)]
    return ROUTED + "".join(parts) + f"  - step: {names[-1]}\n{NOOP}  - step: review\n{NOOP}"


def _routes(following: str) -> str:
    large = "workload.orders | selectattr('total', 'gt', workload.limit)"
    return f"""    next:
      arcs:
        - {{step: review, when: "{{{{ {large} | list | length > 2 }}}}"}}
        - step: {following}
          when: "{{{{ {large} | list | length <= 2 }}}}"
          args:
            customers: "{{{{ {large} | map(attribute='customer') | list }}}}"
            total: "{{{{ workload.orders | map(attribute='total') | sum }}}}"
            label: "round {{{{ (args.round | default(0)) + 1 }}}} of {{{{ workload.orders | length }}}} orders"
            round: "{{{{ (args.round | default(0)) + 1 }}}}"
"""


def loop(items: int, tool: str = NOOP) -> str:
    """One step that runs its task for every item, one after the other."""
    head = f'  - step: start\n    loop: {{in: "{{{{ range({items}) | list }}}}", iterator: item, spec: {{mode: sequential}}}}\n'
    return HEAD + head + tool


def parallel_loop(items: int, at_a_time: int = 10, tool: str = NOOP) -> str:
    """One step that runs its task for every item, some at a time."""
    spec = f"{{mode: parallel, max_in_flight: {at_a_time}}}"
    head = f'  - step: start\n    loop: {{in: "{{{{ range({items}) }}}}", iterator: item, spec: {spec}}}\n'
    return HEAD + head + tool


def check_run(sample: Sample, *, steps: int, tasks: int, result: str = "null") -> None:
    """A completed run, with a log in which nothing is missing and nothing is double."""
    counts = sample["counts"]
    expect("state", sample["state"], "COMPLETED")
    expect("terminal events", sample["terminal"], 1)
    expect("step.done events", counts.get("step.done", 0), steps)
    expect("task.done events", counts.get("task.done", 0), tasks)
    expect("the tasks' results", sample["results"], {result: tasks})
    expect("seq runs from 1 without a gap", sample["gapless"], True)


#: Two steps that take turns, `workload.laps` times.
CYCLE = """
metadata: {name: cycle}
workload: {laps: 1}
workflow:
  - step: start
    tool: {kind: noop}
    next:
      arcs:
        - step: back
          when: "{{ (args.lap | default(0)) < workload.laps }}"
          args: {lap: "{{ (args.lap | default(0)) + 1 }}"}
  - step: back
    tool: {kind: noop}
    next: {arcs: [{step: start, args: {lap: "{{ args.lap }}"}}]}
"""
