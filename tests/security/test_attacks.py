"""Every attack of `attacks/*.yaml` is stopped, and the server with its other tenant does not notice it.

They are carried out one after the other on one server, which is replaced when it dies. Those that take long (`full`) are for
`./x soak`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.moves import MOVES, attacks, carried_out
from tests.security.site import Site

#: One server for all classes: each has threads that watch it and runs that never end.
pytestmark = [pytest.mark.timeout(1200), pytest.mark.xdist_group("security")]

CLASSES = sorted({attack["class"] for attack in attacks()})
#: Classes with attacks that take long.
LONG = sorted({attack["class"] for attack in attacks() if attack.get("full")})


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    attacked = Site()
    yield attacked
    attacked.close()


def got(site: Site, kind: str, *, full: bool) -> dict[str, str]:
    """What the attacks of a class got, by their names; those that were stopped are left out."""
    chosen = [attack for attack in attacks() if attack["class"] == kind and bool(attack.get("full")) == full]
    assert chosen
    outcomes = {attack["name"]: carried_out(site, attack) for attack in chosen}
    return {name: outcome for name, outcome in outcomes.items() if outcome}


@pytest.mark.parametrize("kind", CLASSES)
def test_attacks_are_stopped(site: Site, kind: str) -> None:
    assert got(site, kind, full=False) == {}


@pytest.mark.soak
@pytest.mark.parametrize("kind", LONG)
def test_long_attacks_are_stopped(site: Site, kind: str) -> None:
    assert got(site, kind, full=True) == {}


def test_the_entries_are_well_formed() -> None:
    attack_rows = attacks()
    assert len({(attack["class"], attack["name"]) for attack in attack_rows}) == len(attack_rows)
    for attack in attack_rows:
        assert len([name for name in attack if name in MOVES]) == 1, attack
