"""The GitHub Action: valid by GitHub's schema, and its script does what it says with real files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ACTION = Path(__file__).parents[2] / "deploy/action/action.yml"
BODY: dict[str, Any] = yaml.safe_load(ACTION.read_text())
GOOD = "metadata: {name: good}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
BAD = "metadata: {name: bad}\nworkflow: [{step: start, tool: {kind: nosuch}}]\n"


def test_github_takes_it():
    done = subprocess.run(
        [Path(sys.prefix) / "bin/check-jsonschema", "--builtin-schema", "vendor.github-actions", ACTION],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_inputs_reach_a_script_by_the_environment_alone():
    """An input spliced into a script would be run as a part of it."""
    for step in BODY["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize(
    ("files", "code"),
    [("flows/good.yaml", 0), ("flows/**/*.yaml", 2), ("flows/good.yaml flows/deep/bad.yaml", 2), ("none/*.yaml", 2)],
)
def test_its_script(tmp_path: Path, files: str, code: int):
    (tmp_path / "flows/deep").mkdir(parents=True)
    (tmp_path / "flows/good.yaml").write_text(GOOD)
    (tmp_path / "flows/deep/bad.yaml").write_text(BAD)
    script = BODY["runs"]["steps"][-1]["run"]
    env = {"PATH": f"{sys.prefix}/bin:{os.environ['PATH']}", "FILES": files, "STRICT": "false"}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    if code and "none" not in files:
        assert "nosuch" in done.stdout + done.stderr
