"""How long a stored result is kept, rule by rule. Moments in seconds for short; keep is 100."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arclog.model.refs import SCOPES, kept_until

MOMENT = st.integers(0, 1_000)
MAYBE = st.none() | MOMENT


@pytest.mark.parametrize(
    ("scope", "expires_at", "ended_at", "root_ended_at", "until"),
    [
        ("step", None, 50, 50, 150),
        ("execution", None, 50, 50, 150),
        ("execution", None, 50, None, 150),  # a child's own results go by the child
        ("execution", None, 50, 80, 150),
        ("workflow", None, 50, 80, 180),
        ("workflow", None, 50, 50, 150),
        ("workflow", None, 50, None, None),  # the root still runs
        ("permanent", None, 50, 50, None),
        # a time to live ends each of them earlier, never later
        ("step", 70, 50, 50, 70),
        ("step", 900, 50, 50, 150),
        ("workflow", 70, 50, None, 70),
        ("workflow", 900, 50, 80, 180),
        ("permanent", 900, 50, 50, 900),
        # … and never while the execution runs
        ("step", 10, 50, 50, 50),
        ("step", 10, None, None, None),
        ("permanent", 10, None, None, None),
        ("execution", None, None, None, None),
        ("workflow", None, None, None, None),
    ],
)
def test_the_rules(
    scope: str, expires_at: int | None, ended_at: int | None, root_ended_at: int | None, until: int | None
) -> None:
    assert kept_until(scope, expires_at, ended_at, root_ended_at, 100) == until


@given(scope=st.sampled_from(SCOPES), expires_at=MAYBE, ended_at=MAYBE, root_ended_at=MAYBE, keep=MOMENT)
def test_nothing_goes_before_its_execution_ended_and_a_ttl_only_shortens(
    scope: str, expires_at: int | None, ended_at: int | None, root_ended_at: int | None, keep: int
) -> None:
    until = kept_until(scope, expires_at, ended_at, root_ended_at, keep)
    without = kept_until(scope, None, ended_at, root_ended_at, keep)
    if ended_at is None:
        assert until is None
    elif until is not None:
        assert until >= min(ended_at, root_ended_at if scope == "workflow" and root_ended_at is not None else ended_at)
    if without is not None:
        assert until is not None
        assert until <= without
