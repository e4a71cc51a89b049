"""A server with 1 GiB under the bombs of one tenant: nothing is killed, and the runs of another one complete.

How much longer these take is measured by `./x attack demo`, on a machine that does nothing else; here it is only bounded.
"""

from __future__ import annotations

import pytest

from tests.security import demo

pytestmark = pytest.mark.timeout(300)


@pytest.mark.soak
def test_nothing_is_killed_and_the_other_tenant_goes_on() -> None:
    found = demo.demonstrated(rounds=1, runs=15)
    assert not found.died, demo.table(found)
    assert found.kills == 0, demo.table(found)
    assert found.failed == 0, demo.table(found)
    assert found.kinds == set(demo.BOMBS), "each kind of bomb was thrown"
    assert found.peak < demo.LIMIT
    assert max(found.attacked) < 10, demo.table(found)


@pytest.mark.soak
def test_the_other_tenants_runs_take_at_most_twice_as_long() -> None:
    found = demo.demonstrated()
    assert found.holds, demo.table(found)
