"""A server with 1 GiB under the bombs of one tenant: nothing is killed, and the runs of another one complete.

How much longer these take is measured by `./x attack demo`, on a machine that does nothing else; here it is only bounded.
"""

from __future__ import annotations

import pytest

from tests.security import demo

pytestmark = pytest.mark.timeout(300)


@pytest.mark.soak
def test_nothing_is_killed_and_the_other_tenant_goes_on() -> None:
    table = demo.demonstrated(rounds=1, seconds=1.0)
    assert not table.died, demo.table(table)
    assert table.kills == 0, demo.table(table)
    assert table.failed == 0, demo.table(table)
    assert table.kinds == set(demo.BOMBS), "each kind of bomb was thrown"
    assert table.peak < demo.LIMIT
    assert max(demo.joined(table.attacked)) < 10, demo.table(table)


@pytest.mark.soak
def test_the_other_tenants_runs_take_at_most_twice_as_long() -> None:
    table = demo.demonstrated()
    assert table.is_unharmed, demo.table(table)
    if table.verdict.startswith("cannot be judged"):
        pytest.skip(table.verdict)
    assert table.holds, demo.table(table)


def measured(calm: list[list[float]], attacked: list[list[float]], kills: int = 0) -> demo.Measured:
    thrown = dict.fromkeys((f"{kind}: FAILED" for kind in demo.BOMBS), 1)
    return demo.Measured(calm, attacked, 0, thrown, 0, kills, died=False, how="")


def rounds(*p95: float) -> list[list[float]]:
    """Rounds of forty runs, of which every tenth takes so many seconds."""
    return [[0.01] * 36 + [seconds] * 4 for seconds in p95]


def test_the_verdict_of_a_demonstration() -> None:
    calm = rounds(0.1, 0.1, 0.1, 0.1)
    assert measured(calm, rounds(0.15, 0.15, 0.15, 0.15)).verdict == "holds"
    assert measured(calm, rounds(0.3, 0.3, 0.3, 0.3)).verdict == "does not hold"
    assert measured(calm, rounds(0.15, 0.15, 0.15, 0.15), kills=1).verdict == "does not hold"
    assert measured(calm, rounds(0.15, 0.15, 0.3, 0.15)).verdict == "holds, by a narrow margin"
    assert measured(rounds(0.1, 0.5, 0.1, 0.5), rounds(0.9, 0.9, 0.1, 0.1)).verdict.startswith("cannot be judged")
