"""When `arclog run` watches for waits of a person."""

from __future__ import annotations

import pytest

from arclog.cli.runs.attention import may_wait


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("# a playbook\nworkflow: []\n", False),
        ("workflow:\n  # asks for approval\n  - {step: a, tool: {kind: noop}}\n", False),
        ("workflow:\n  - {step: a, tool: {kind: approval}} # a person decides\n", True),
        ("workflow:\n  - step: a\n    tool:\n      kind: playbook\n", True),
    ],
)
def test_a_comment_does_not_count(text: str, expected: bool) -> None:
    assert may_wait(text) is expected
