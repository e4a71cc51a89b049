"""Tests of one group share a process: pytest-xdist puts the group's name into their ids, or silently spreads them."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_the_group_is_part_of_the_id(request: pytest.FixtureRequest, worker_id: str) -> None:
    if worker_id != "master" and request.config.getoption("loadgroup"):
        assert request.node.nodeid.endswith("@groups")
