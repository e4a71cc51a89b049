"""`arclog catalog`, and `arclog run` of what is registered, on a real home."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arclog.cli.main import command

HELLO = (
    "metadata: {{name: hello, path: flows/hello}}\nworkflow:\n  - step: start\n    tool: {{kind: noop, data: {said}}}\n"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARCLOG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def playbook_file(home: Path, said: str) -> str:
    file = home / "hello.yaml"
    file.write_text(HELLO.format(said=said))
    return str(file)


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert command([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_playbook_is_registered_listed_shown_compared_run_and_archived(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [entry["version"] for entry in output_of(capsys, "catalog", "register", playbook_file(home, "one"))] == [1]
    assert [entry["created"] for entry in output_of(capsys, "catalog", "register", playbook_file(home, "one"))] == [
        False
    ]
    assert [entry["version"] for entry in output_of(capsys, "catalog", "register", playbook_file(home, "two"))] == [2]
    assert [(entry["path"], entry["version"]) for entry in output_of(capsys, "catalog", "list", "flows/")] == [
        ("flows/hello", 2)
    ]
    assert output_of(capsys, "catalog", "show", "flows/hello@1")["source"] == HELLO.format(said="one")
    assert [entry["version"] for entry in output_of(capsys, "catalog", "show", "flows/hello", "--all")] == [2, 1]
    difference = output_of(capsys, "catalog", "diff", "flows/hello")
    assert (difference["older"], difference["newer"], "data: two" in difference["diff"]) == (1, 2, True)
    assert output_of(capsys, "catalog", "diff", "flows/hello@2", "1")["newer"] == 1

    assert output_of(capsys, "run", "flows/hello")["result"] == "two"
    assert output_of(capsys, "run", "flows/hello@1")["result"] == "one"
    assert [run["version"] for run in output_of(capsys, "list")] == ["1", "2"]

    assert output_of(capsys, "catalog", "archive", "flows/hello")["archived_at"]
    assert output_of(capsys, "catalog", "list") == []
    assert len(output_of(capsys, "catalog", "list", "--all")) == 1
    assert command(["run", "flows/hello"]) == 2
    assert "archived" in capsys.readouterr().err
    assert output_of(capsys, "catalog", "archive", "flows/hello", "--undo")["archived_at"] is None
    assert output_of(capsys, "run", "flows/hello")["state"] == "COMPLETED"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("catalog", "show", "flows/helo"), "did you mean flows/hello"),
        (("catalog", "show", "flows/hello@7"), "the newest is 1"),
        (("catalog", "show", "flows/hello@0"), "is not a version"),
        (("catalog", "show"), "takes one PATH"),
        (("catalog", "diff", "flows/hello"), "only one version"),
        (("catalog", "register"), "takes the FILEs"),
        (("catalog", "register", "none.yaml"), "none.yaml"),
        (("catalog", "list", "--undo"), "--undo is an option of"),
        (("catalog", "archive", "x"), "nothing is registered under 'x'"),
        (("run", "flows/helo"), "did you mean flows/hello"),
        (("run", "flows/hello@x"), "is not a version"),
        (("run", "flows.yaml"), "cannot read flows.yaml"),
    ],
)
def test_what_goes_wrong_is_said(
    home: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    output_of(capsys, "catalog", "register", playbook_file(home, "one"))
    assert command(list(words)) == 2
    assert said in capsys.readouterr().err


def test_a_home_that_is_not_there_is_not_made_by_looking(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["catalog", "list"]) == 2
    assert "nothing is registered yet" in capsys.readouterr().err
    assert not (home / "home").exists()
