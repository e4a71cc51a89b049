"""`arclog dev` as its author meets it: each save of the playbook, its tests or a file that it takes in begins a round."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FLOW = """\
metadata: {name: flow}
workflow:
  - step: start
    tool: {kind: python, file: jobs/job.py, args: {n: 20}}
    next: {arcs: [{step: child}]}
  - step: child
    tool: {kind: playbook, file: parts/child.yaml, args: {n: "{{ start.data }}"}}
"""
CHILD = 'metadata: {name: child}\nworkload: {n: 0}\nworkflow:\n  - {step: start, tool: {kind: noop, data: "{{ workload.n + 1 }}"}}\n'
TESTS = """\
tests:
  - name: it adds
    python: run
    mocks: [{step: child, ok: 1}]
    expect: {path: [start, child]}
"""


def save(path: Path, text: str) -> None:
    """Write a file at once, as editors do."""
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


class Dev:
    """`arclog dev` in a folder, read round by round."""

    def __init__(self, folder: Path) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
        words = [sys.executable, "-m", "arclog.cli.main", "dev", "flow.yaml"]
        self.process = subprocess.Popen(
            words, cwd=folder, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )

    def round(self) -> str:
        """What the next round printed."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if line.startswith("watching "):
                return "".join(lines)
        raise AssertionError("".join(lines))

    def close(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("jobs", "parts"):
        (tmp_path / name).mkdir()
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "flow.test.yaml").write_text(TESTS)
    (tmp_path / "jobs/job.py").write_text("def main(n):\n    return n * 2\n")
    (tmp_path / "parts/child.yaml").write_text(CHILD)
    return tmp_path


@pytest.fixture
def dev(folder: Path) -> Iterator[Dev]:
    made = Dev(folder)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.close()


def test_every_save_begins_a_round(folder: Path, dev: Dev) -> None:
    first = dev.round()
    assert "✓ 1 passed" in first
    assert "\n41\n" in first
    assert first.endswith("watching flow.yaml and 2 files beside it; press Ctrl-C to stop\n")

    save(folder / "flow.yaml", FLOW.replace("kind: python", "kind: pyton"))
    broken = dev.round()
    assert "did you mean python?" in broken
    assert "arclog test" not in broken
    assert "arclog run" not in broken

    save(folder / "flow.yaml", FLOW.replace("n: 20", "n: 30"))
    assert "\n61\n" in dev.round()

    save(folder / "jobs/job.py", "def main(n):\n    return n * 3\n")
    assert "\n91\n" in dev.round(), "a file that a task takes in"

    save(folder / "parts/child.yaml", CHILD.replace("+ 1", "+ 2"))
    assert "\n92\n" in dev.round(), "a playbook that it calls"

    save(folder / "flow.test.yaml", TESTS.replace("[start, child]", "[start]"))
    failed = dev.round()
    assert "✗ 0 passed, 1 failed" in failed
    assert "arclog run" not in failed

    (folder / "flow.yaml").unlink()
    assert "cannot read flow.yaml: No such file" in dev.round()

    save(folder / "flow.test.yaml", TESTS)
    save(folder / "flow.yaml", FLOW)
    assert dev.close() == 130
