"""The language as people meet it: inputs, files and the canonical form on the command line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.test_cli import arclog, summary_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ARCLOG_"):
            monkeypatch.delenv(name)
    return tmp_path


def test_inputs_are_refused_before_a_run_exists(where: Path) -> None:
    file = str(EXAMPLES / "short_forms.yaml")
    refused = arclog("run", file, "--set", "region=west", "--set", "limit=0")
    assert refused.returncode == 2
    assert "region: 'west' is none of 'north', 'south'" in refused.stderr
    assert "limit: 0 is below the lowest value allowed, 1" in refused.stderr
    unknown = arclog("run", file, "--set", "reigon=north")
    assert (unknown.returncode, "did you mean region?" in unknown.stderr) == (2, True)
    assert json.loads(arclog("list", "--json").stdout or "[]") == []
    assert summary_of("run", file, "--set", "limit=4")["result"]["total"] == 100
    assert summary_of("run", file, "--set", "limit=1", code=1)["error"]["code"] == "END"


def test_a_text_stays_as_it_was_written(where: Path) -> None:
    (where / "p.yaml").write_text(
        "metadata: {name: p}\nexecutor: {spec: {inputs: {zip: {type: string}}, result: '{{ workload.zip }}'}}\n"
        "workflow: [{step: start, tool: {kind: noop}}]\n"
    )
    assert summary_of("run", "p.yaml", "--set", "zip=1e3")["result"] == "1e3"


def test_a_run_uses_the_files_that_were_registered(where: Path) -> None:
    assert summary_of("run", str(EXAMPLES / "report/report.yaml"))["result"] == {"rows": 2, "total": "65.00 EUR"}
    (where / "p.yaml").write_text("metadata: {name: p}\nworkflow: [{step: start, tool: {kind: python, file: a.py}}]\n")
    (where / "a.py").write_text("result = 1\n")
    assert arclog("catalog", "register", "p.yaml").returncode == 0
    (where / "a.py").write_text("result = 2\n")
    assert summary_of("run", "p")["result"] == 1
    assert summary_of("run", "p.yaml")["result"] == 2


def test_a_traceback_names_the_file(where: Path) -> None:
    (where / "p.yaml").write_text(
        "metadata: {name: p}\nworkflow: [{step: start, tool: {kind: python, module: lib.a}}]\n"
    )
    (where / "lib").mkdir()
    (where / "lib/a.py").write_text("from . import b\n\n\ndef main():\n    return b.divide(1)\n")
    (where / "lib/b.py").write_text("def divide(n):\n    return n / 0\n")
    failed = arclog("run", "p.yaml")
    assert failed.returncode == 1
    assert 'File "lib/a.py", line 5, in main' in failed.stderr + failed.stdout
    assert 'File "lib/b.py", line 2, in divide' in failed.stderr + failed.stdout


def test_the_canonical_form_runs_as_the_short_one_does(where: Path) -> None:
    expanded = arclog("plan", str(EXAMPLES / "short_forms.yaml"), "--expanded").stdout
    (where / "long.yaml").write_text(expanded)
    assert "retry:" not in expanded
    again = arclog("plan", "long.yaml", "--expanded").stdout
    assert again == expanded
    assert summary_of("run", "long.yaml")["result"] == {"region": "north", "total": 60, "report": "north-3"}
    assert arclog("plan", "long.yaml", "--expanded", "--format", "json").returncode == 2
