"""How long notices are collected before they are sent through PostgreSQL."""

import pytest

from arclog.buses.postgres import gather_s


@pytest.mark.parametrize(
    ("least_s", "took_s", "expected_s"),
    [
        (0.02, 0.001, 0.02),
        (0.02, 0.005, 0.05),
        (0.02, 3.0, 0.1),
        (0.5, 3.0, 0.5),
        (0.0, 3.0, 0.0),
    ],
)
def test_notices_are_collected_for_longer_while_postgresql_is_slow(
    least_s: float, took_s: float, expected_s: float
) -> None:
    assert gather_s(least_s, took_s) == pytest.approx(expected_s)
