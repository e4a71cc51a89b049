"""Tests of playbooks from Python: `arclog.testing.play` runs one offline, in virtual time, with mocked tools.

`arclog.testing.pytest_plugin` makes each test of a `*.test.yaml` file an item of pytest: docs/testing.md. The conformance suites
for stores, buses and result stores are in `arclog.testing.conformance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arclog.testing.play import MockMismatch, Play, play
    from arclog.testing.playbook_tests.mocks import Call

__all__ = ["Call", "MockMismatch", "Play", "play"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'arclog.testing' has no attribute {name!r}")
    from importlib import import_module

    # The function has the name of its module: without this, an import of the module would hide it.
    globals().update({name: getattr(import_module("arclog.testing.play"), name) for name in __all__})
    return globals()[name]
