"""`arclog init`: every template passes its own check and tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.authoring.templates import STARTERS
from arclog.cli.main import command
from arclog.testing.playbook_tests import run_file


@pytest.mark.parametrize("starter", STARTERS)
def test_a_new_playbook_passes_check_and_its_tests(
    starter: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["init", starter, "mine", "--folder", str(tmp_path)]) == 0
    assert command(["check", "--strict", str(tmp_path / "mine.yaml")]) == 0, capsys.readouterr().out
    assert command(["fmt", "--check", str(tmp_path / "mine.yaml"), str(tmp_path / "mine.test.yaml")]) == 0
    report = run_file(str(tmp_path / "mine.test.yaml"))
    assert report.problem == ""
    assert [case.messages for case in report.cases if case.status != "passed"] == []
    assert report.coverage.missed == {}, "its tests take every step, arc and rule"


def test_nothing_is_overwritten_and_mistakes_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["init", "hello", "--folder", str(tmp_path)]) == 0
    assert command(["init", "hello", "--folder", str(tmp_path)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert command(["init", "helo", "--folder", str(tmp_path)]) == 2
    assert "did you mean hello?" in capsys.readouterr().err
    assert command(["init", "hello", "../x", "--folder", str(tmp_path)]) == 2
    assert command(["init"]) == 0
    assert "saga" in capsys.readouterr().out
