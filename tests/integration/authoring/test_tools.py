"""fmt, dev and completion."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from arclog.authoring.fmt import formatted
from arclog.cli.main import command
from arclog.cli.playbooks.editing import SCRIPTS, candidates

FLOW = "metadata: {name: p}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"


def test_white_space_is_formatted_and_values_and_comments_stay() -> None:
    text = "\n# a  \r\nmetadata: {name: p}   \n\n\n\nworkflow: # b\t\n  - step: start\n    tool:\n      kind: shell\n      command: |\n        a  \n\n\n        b\n\n\n"
    good = "# a\nmetadata: {name: p}\n\nworkflow: # b\n  - step: start\n    tool:\n      kind: shell\n      command: |\n        a  \n\n\n        b\n"
    assert formatted(text) == good
    assert formatted(good) == good


@pytest.mark.parametrize("text", ["a: [", "", "- 1\n", 'a: "x  \n\n\n  y"   \nb: 1\n', "a: x  \n  y\n\n\nb: 1\n"])
def test_what_cannot_be_formatted_keeps_its_values(text: str) -> None:
    assert formatted(formatted(text)) == formatted(text)


def test_every_example_is_formatted() -> None:
    for path in sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml")):
        assert formatted(path.read_text()) == path.read_text(), path.name


def test_the_fmt_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(FLOW + "\n\n")
    assert command(["fmt", "--check", str(file)]) == 1
    assert file.read_text() == FLOW + "\n\n"
    assert command(["fmt", str(file)]) == 0
    assert file.read_text() == FLOW
    assert command(["fmt", "--check", str(file)]) == 0
    file.write_text("a: [")
    assert command(["fmt", str(file)]) == 2
    assert "yaml-syntax" in capsys.readouterr().err


def test_a_round_of_dev_checks_tests_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["init", "approval", "mine", "--folder", str(tmp_path)]) == 0
    file = str(tmp_path / "mine.yaml")
    assert command(["dev", file, "--once", "--set", "amount=1", "--home", str(tmp_path / "home")]) == 0
    out = capsys.readouterr().out
    assert "no problems found" in out
    assert "4 passed" in out
    assert "arclog run" in out
    (tmp_path / "mine.test.yaml").write_text("tests: [{name: a, expect: {state: failed}}]")
    assert command(["dev", file, "--once", "--home", str(tmp_path / "home")]) == 1
    assert "arclog run" not in capsys.readouterr().out
    assert command(["dev", str(tmp_path / "none.yaml"), "--once"]) == 2


def words(line: str) -> list[str]:
    *before, begun = line.split(" ")
    return candidates(before, begun, lambda: ["380895703557210112"], lambda _: ["fetch", "store"])


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ch", ["check"]),
        ("check --str", ["--strict"]),
        ("check --format s", ["sarif"]),
        ("show 3", ["380895703557210112"]),
        ("why la", ["last"]),
        ("logs last --step f", ["fetch"]),
        ("retry last --from s", ["store"]),
        ("retry last f", ["fetch"]),
        ("skip 380895703557210112 f", ["fetch"]),
        ("show last f", []),
        ("schedule add --from f", []),
        ("fork 3", ["380895703557210112"]),
        ("init s", ["saga"]),
        ("test record la", ["last"]),
        ("completion z", ["zsh"]),
        ("nonsense x", []),
        ("check flow", []),
    ],
)
def test_words_are_completed(line: str, found: list[str]) -> None:
    assert words(line) == found


def test_the_command_completes_steps_and_never_complains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARCLOG_HOME", str(tmp_path / "none"))
    file = tmp_path / "p.yaml"
    file.write_text(FLOW)
    assert command(["completion", "words", "plan", str(file), "--step", "s"]) == 0
    assert capsys.readouterr().out == "start\n"
    assert command(["completion", "words", "show", ""]) == 0
    assert capsys.readouterr().out == "last\n"
    assert command(["completion", "words"]) == 0
    capsys.readouterr()
    assert command(["completion", "words", "logs", "last", "--step", ""]) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("ARCLOG_HOME", str(tmp_path / "home"))
    assert command(["run", str(file), "-q"]) == 0
    capsys.readouterr()
    assert command(["completion", "words", "logs", "last", "--step", "s"]) == 0
    assert capsys.readouterr().out == "start\n"


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_takes_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script == SCRIPTS[shell]
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=60)


def test_the_tests_of_an_empty_folder_and_of_an_unknown_name_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["test", str(tmp_path)]) == 1
    assert "there are no tests in" in capsys.readouterr().err
    assert command(["init", "hello", "--folder", str(tmp_path)]) == 0
    capsys.readouterr()
    assert command(["test", str(tmp_path), "-k", "nobody"]) == 1
    assert capsys.readouterr().out == "✗ no test has 'nobody' in its name\n"
