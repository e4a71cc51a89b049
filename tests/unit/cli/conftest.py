"""A command line over a fake Api."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arclog.cli import home as home_module
from arclog.cli.main import command
from tests.unit.cli.fake import FakeApi, FakeHome


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


Arclog = Callable[..., Result]


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def home(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHome:
    """A home folder with a database in it, whose runs are the fake's."""
    fake = FakeHome(api)
    monkeypatch.chdir(tmp_path)
    for name in ("ARCLOG_HOME", "ARCLOG_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".arclog").mkdir()
    (tmp_path / ".arclog/arclog.db").touch()
    monkeypatch.setattr(home_module, "opened", fake.open)
    return fake


@pytest.fixture
def arclog(home: FakeHome, capsys: pytest.CaptureFixture[str]) -> Arclog:
    """Run one command line in this process."""

    def run(*words: str) -> Result:
        capsys.readouterr()
        code = command(list(words))
        sys.stdout.flush()
        done = capsys.readouterr()
        return Result(code, done.out, done.err)

    return run


@pytest.fixture
def playbook(home: FakeHome) -> str:
    """A file that can be named; the fake never reads what is in it."""
    Path("demo.yaml").write_text("metadata: {name: demo}\nworkflow: [{step: start, tool: {kind: noop}}]\n")
    return "demo.yaml"
