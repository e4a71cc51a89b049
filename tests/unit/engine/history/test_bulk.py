"""The garbage collector runs seldom while long logs are processed, and as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from arclog.engine.history.bulk import SHORT, few_collections


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_the_threshold_is_raised_until_the_last_work_is_over() -> None:
    with few_collections(SHORT + 1):
        raised = gc.get_threshold()
        with few_collections(SHORT + 1):
            assert gc.get_threshold() == raised
        assert gc.get_threshold() == raised
    assert raised[0] > 100_000
    assert raised[1:] == (10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_it_is_restored_after_an_error_and_untouched_for_a_short_log() -> None:
    with pytest.raises(ValueError, match="stop"), few_collections(SHORT + 1):
        raise ValueError("stop")
    with few_collections(SHORT):
        assert gc.get_threshold() == (700, 10, 10)


def test_a_collector_that_is_turned_off_stays_off() -> None:
    gc.set_threshold(0, 10, 10)
    with few_collections(SHORT + 1):
        assert gc.get_threshold()[0] == 0
    assert gc.get_threshold() == (0, 10, 10)
