"""Files that import each other, and playbooks that call each other: they run, or end with an error that names the cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_cli import arclog, summary_of, where

__all__ = ["where"]

CALL = "metadata: {{name: {name}}}\nworkflow:\n  - step: start\n    tool: {{kind: playbook, {target}}}\n"


def module_flow(where: Path, task: str) -> None:
    (where / "flow.yaml").write_text(
        f"metadata: {{name: flow}}\nworkflow:\n  - step: start\n    tool: {{kind: python, {task}}}\n"
    )


def modules(where: Path, **sources: str) -> None:
    (where / "jobs").mkdir()
    for name, source in sources.items():
        (where / "jobs" / f"{name}.py").write_text(source)


@pytest.mark.parametrize("task", ["module: jobs.a, function: run", "file: jobs/a.py, function: run"])
def test_modules_that_import_each_other_run(where: Path, task: str) -> None:
    modules(
        where,
        a="from jobs import b\n\n\ndef run():\n    return b.twice(2)\n\n\ndef one():\n    return 1\n",
        b="from jobs import a\n\n\ndef twice(n):\n    return n * 2 + a.one()\n",
    )
    module_flow(where, task)
    assert arclog("check", "--strict", "flow.yaml").returncode == 0
    assert summary_of("run", "flow.yaml")["result"] == 5


def test_a_module_that_imports_itself_runs(where: Path) -> None:
    modules(where, a="import jobs.a\n\n\ndef main():\n    return jobs.a.__name__\n")
    module_flow(where, "module: jobs.a")
    assert summary_of("run", "flow.yaml")["result"] == "jobs.a"


def test_a_name_that_is_not_there_yet_is_an_error_that_names_the_cycle(where: Path) -> None:
    modules(
        where,
        hard="from jobs.soft import y\nx = 1\n\n\ndef main():\n    return x + y\n",
        soft="from jobs.hard import x\ny = x + 1\n",
    )
    module_flow(where, "module: jobs.hard")
    summary = summary_of("run", "flow.yaml", code=1)
    assert summary["error"]["message"] == (
        "ImportError: cannot import name 'x' from 'jobs.hard', which is still being imported "
        "(jobs.hard → jobs.soft → jobs.hard); import it inside the function that needs it"
    )


@pytest.mark.parametrize(
    "targets", [("file: second.yaml", "file: first.yaml"), ("path: second", "path: first")], ids=["file", "path"]
)
def test_playbooks_that_call_each_other_for_ever_end_with_a_limit(where: Path, targets: tuple[str, str]) -> None:
    for name, target in zip(("first", "second"), targets, strict=True):
        (where / f"{name}.yaml").write_text(CALL.format(name=name, target=target))
    assert arclog("check", "first.yaml").returncode == 0
    if "path" in targets[0]:
        assert arclog("catalog", "register", "second.yaml").returncode == 0
    done = arclog("run", "first.yaml")
    assert done.returncode == 1
    assert "limit (MAX_CHILD_DEPTH): runs may call runs 16 deep (limits.max_child_depth)" in done.stdout
    assert "→ … 12 more calls … →" in done.stdout
    assert done.stdout.count("task start_task →") == 4


def test_a_playbook_that_calls_itself_a_few_times_ends_well(where: Path) -> None:
    (where / "self.yaml").write_text(
        "metadata: {name: self}\nworkload: {n: 3}\n"
        'executor: {spec: {result: "{{ again.data if again else workload.n }}"}}\n'
        "workflow:\n  - step: start\n    tool: {kind: noop}\n"
        '    next: {arcs: [{step: again, when: "{{ workload.n > 0 }}"}]}\n'
        '  - step: again\n    tool: {kind: playbook, file: self.yaml, args: {n: "{{ workload.n - 1 }}"}}\n'
    )
    assert arclog("check", "--strict", "self.yaml").returncode == 0
    assert summary_of("run", "self.yaml")["result"] == 0
