"""Tests of one group share a process: pytest-xdist puts the group's name into their ids, or silently spreads them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import COMPUTING, WAITING, mixed

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.xdist_group("groups")
def test_the_group_is_part_of_the_id(request: pytest.FixtureRequest, worker_id: str) -> None:
    if worker_id != "master" and request.config.getoption("loadgroup"):
        assert request.node.nodeid.endswith("@groups")


@dataclass(frozen=True)
class Item:
    nodeid: str


def test_waiting_tests_start_first_and_beside_computing_ones() -> None:
    folders = {"unit": 40, "browser": 3, "e2e": 10, "simulation": 10}
    ids = [
        f"tests/{folder}/test_{file}.py::test_{n}"
        for folder, files in folders.items()
        for file in range(files)
        for n in (1, 2)
    ]
    items: Any = [Item(nodeid) for nodeid in ids]
    order = [item.nodeid for item in mixed(items)]
    assert sorted(order) == sorted(ids)
    files = [nodeid.partition("::")[0] for nodeid in order]
    assert len(list(groupby(files))) == len(set(files)), "a file stays in one piece"
    kinds = [file.split("/")[1] for file in files]
    assert {"browser", "simulation"} <= set(kinds[:8])
    assert {"e2e", "unit"} <= set(kinds[len(kinds) // 2 :])
    assert set(kinds[-8:]) == {"unit"}


def test_every_folder_of_tests_has_its_place() -> None:
    folders = {path.parent.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert folders == {*WAITING, *COMPUTING}
