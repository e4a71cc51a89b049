"""What every simulation gets: silence, since faults are drawn on purpose and each would be told of."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    log = logging.getLogger("arclog")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)
