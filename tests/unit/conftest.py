"""Unit tests start no process and open no connection: a test that does belongs to another tier (CONTRIBUTING.md, Tests)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Audit events of the interpreter that a unit test must not raise.
_FORBIDDEN = frozenset({"socket.bind", "socket.connect", "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_HERE = Path(__file__).parent


class _Watch:
    """Refuses forbidden events while a unit test runs. An audit hook cannot be removed, so this one is switched on and off."""

    def __init__(self) -> None:
        self.is_on = False
        self.refused: list[str] = []

    def __call__(self, event: str, _args: object) -> None:
        if self.is_on and event in _FORBIDDEN:
            self.refused.append(event)
            raise RuntimeError(f"{event} in a unit test: move the test to tests/integration")


_watch = _Watch()
sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _watch.refused.clear()
    _watch.is_on = _HERE in item.path.parents
    try:
        return (yield)
    finally:
        _watch.is_on = False


@pytest.fixture(autouse=True)
def _starts_nothing() -> Iterator[None]:
    """Fail a test whose code caught the exception."""
    yield
    assert not _watch.refused, f"{_watch.refused[0]} in a unit test: move the test to tests/integration"
