"""Inputs of type `secret`: they reach the task that needs them, and nothing that is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arclog.cli.main import command
from arclog.model.config.settings import Settings
from arclog.plan.build import build
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import embedded
from arclog.wiring.kinds import installed_kinds
from arclog.wiring.secrets import choose_vault

VALUE = "hunter2-and-more"
FLOW = """\
metadata: {name: flow, path: flows/flow}
executor:
  spec:
    inputs:
      token: {type: secret, required: true, min: 8, description: what the service knows us by}
      day: {type: date}
workflow:
  - step: start
    tool:
      - name: use
        kind: python
        args: {token: "{{ keychain.token.value }}"}
        code: |
          print("the token is", token)
          result = {"length": len(token), "echo": token}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW)
    return file


def run(flow: Path, *words: str) -> int:
    return command(["run", str(flow), "--json", "--home", str(flow.parent / "home"), *words])


async def test_a_secret_input_reaches_its_task_and_nothing_else(flow: Path) -> None:
    home = flow.parent / "home"
    settings = Settings({"home": str(home)})
    async with embedded(settings) as runtime:
        await runtime.start_worker()
        started = await runtime.api.execute(ExecuteRequest(FLOW, workload={"token": VALUE, "day": "2027-01-31"}))
        assert await runtime.api.ended(started.execution_id, timeout_s=60)
        events = await runtime.api.events(started.execution_id)
        assert events[0]["payload"]["workload"] == {"day": "2027-01-31"}
        summary = await runtime.api.summary(started.execution_id)
        assert summary.result["length"] == len(VALUE)
        assert VALUE not in json.dumps(summary.result)
    assert await choose_vault(settings).infos() == [], "it is forgotten with its run"
    for path in home.rglob("*"):
        if path.is_file():
            assert VALUE.encode() not in path.read_bytes(), path


def test_a_secret_that_does_not_fit_is_refused_without_showing_it(
    flow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(flow, "--set", "token=short") == 2
    output = capsys.readouterr()
    assert "does not fit; it is a secret" in output.err
    assert "short" not in output.err + output.out
    assert run(flow) == 2
    assert "token: is required (a text, which is kept out of the log" in capsys.readouterr().err


def test_a_run_with_secret_inputs_is_not_taken_up_again(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flow, "--set", f"token={VALUE}") == 0
    number = json.loads(capsys.readouterr().out)["execution_id"]
    assert command(["fork", number, "--at", "5", "--home", str(flow.parent / "home")]) != 0
    assert "secret inputs are forgotten when a run ends" in capsys.readouterr().err
    assert command(["retry", number, "--home", str(flow.parent / "home")]) != 0
    assert "token: secret inputs are forgotten when a run ends" in capsys.readouterr().err
    assert command(["list", "--json", "--home", str(flow.parent / "home")]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1, "no run was made"


def test_a_misspelt_secret_gets_its_name(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flow, "--set", f"toekn={VALUE}") == 2
    assert "did you mean token?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("keychain.token.value", "workload.token", "keychain-misplaced"),
        ("keychain.token.value", "token", "keychain-misplaced"),
        ("min: 8", "default: abc", "bad-value"),
        ("min: 8", "enum: [abc]", "bad-value"),
        ("executor:", "workload: {token: abc}\nexecutor:", "literal-secret"),
        ("executor:", "keychain: [{name: token, kind: env}]\nexecutor:", "conflict"),
        ("{type: date}", "{type: list, items: {type: secret}}", "bad-value"),
        ("executor:\n", "keychain: [{name: t, kind: input}]\nexecutor:\n", "bad-value"),
    ],
)
def test_what_would_write_a_secret_down_is_an_error(old: str, new: str, code: str) -> None:
    codes = [finding.code for finding in build(FLOW.replace(old, new), "f.yaml", installed_kinds()).errors]
    assert codes[:1] == [code]
