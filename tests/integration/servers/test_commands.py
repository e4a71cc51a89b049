"""Commands that end-to-end tests run: forked, and to a test the same as a new interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.servers import commands
from tests.servers.commands import ARCLOG, run_bytes, run_text

FLOW = "metadata: {name: flow}\nworkflow:\n  - {step: start, tool: {kind: noop, data: 1}}\n"
WAITING = "metadata: {name: waiting}\nworkflow:\n  - {step: start, tool: {kind: wait, signal: go}}\n"


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCLOG_HOME", "home")
    for name, text in (("flow", FLOW), ("waiting", WAITING)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [["version"], ["list", "--json"], ["check", "flow.yaml"], ["check", "none.yaml"], ["nonsense"], ["run", "--help"]],
)
def test_exit_code_and_output_are_those_of_a_new_interpreter(where, words):
    started = subprocess.run([*ARCLOG, *words], capture_output=True)
    forked = run_bytes(*words)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_each_command_has_its_own_environment_and_folder(where):
    (where / "a").mkdir()
    (where / "a/flow.yaml").write_text(FLOW.replace("name: flow", "name: other"))
    done = run_text("run", "flow.yaml", "--json", cwd=where / "a", env={**os.environ, "ARCLOG_HOME": "its-own"})
    assert json.loads(done.stdout)["name"] == "other"
    assert (where / "a/its-own").is_dir()
    assert not (where / "home").exists()
    assert json.loads(run_text("list", "--json").stdout) == []


def test_each_command_reads_its_own_input(where):
    for value in ("first-value", "second-value"):
        done = run_text("secret", "set", value.partition("-")[0], stdin=value)
        assert done.returncode == 0, done.stderr
    assert run_text("secret", "list").stdout.split().count("first") == 1
    assert run_text("secret", "set", "third").returncode != 0  # no input is an end, not a wait


def test_variables_that_python_reads_when_it_starts_have_their_effect(where):
    (where / "flow.yaml").write_text(FLOW.replace("data: 1", "data: ü"))
    for coding in ("utf-8", "latin-1"):
        env = {**os.environ, "PYTHONIOENCODING": coding}
        assert run_bytes("fmt", "--help", env=env).returncode == 0
        started = subprocess.run([*ARCLOG, "plan", "flow.yaml"], capture_output=True, env=env)
        assert run_bytes("plan", "flow.yaml", env=env).stdout == started.stdout


def test_a_command_that_takes_too_long_is_ended_and_the_next_one_runs(where):
    with pytest.raises(subprocess.TimeoutExpired):
        run_text("run", "waiting.yaml", timeout=1)
    assert run_text("version").returncode == 0


def test_the_parent_ends_with_the_session(where):
    run_text("version")
    (process, *_) = [parent._process for parent in commands._parents.values()]
    commands.pytest_sessionfinish()
    assert process.poll() == 0
    assert run_text("version").returncode == 0
