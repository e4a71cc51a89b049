"""A failed test is named at once, in a form that can be run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.early_failures import failure

ROOT = Path(__file__).resolve().parents[2]
FAILING = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("nothing to give")

@pytest.mark.parametrize("name", ["a@b"])
def test_first(name):
    assert name == "c", "not the one\\nthat was meant"

def test_second(broken):
    pass

def test_third():
    pass
"""


def test_it_is_named_before_the_next_test(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    options = ("-p", "no:cacheprovider", "-p", "tests.early_failures", "--rootdir", tmp_path, "-c", "/dev/null")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path],
        cwd=ROOT, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    before_reports = done.stdout.partition("= ERRORS =")[0]
    first, second = (line for line in before_reports.splitlines() if line.startswith("FAILED"))
    assert first == "FAILED test_failing.py::test_first[a@b]: AssertionError: not the one"
    assert second == "FAILED in setup test_failing.py::test_second: RuntimeError: nothing to give"
    assert before_reports.index(first) < before_reports.index(second) < before_reports.index("[100%]")


@pytest.mark.parametrize("nodeid", ["tests/a.py::test_b", "tests/a.py::test_b[x@y]", "tests/a.py::A::test_b[[1]]"])
def test_the_name_of_a_group_is_left_out(nodeid: str) -> None:
    report = pytest.TestReport(f"{nodeid}@tests/a.py", ("a.py", 1, ""), {}, "failed", "because", "call")
    assert failure(report) == f"FAILED {nodeid}: because"
