"""Pauses double up to a longest, begin anew after a success, and end when patience does."""

from __future__ import annotations

import asyncio

import pytest

from arclog.drivers.backoff import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff, Patience, pause_after, retry


class _Away(Exception):
    pass


@pytest.fixture
async def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, none of which is waited for: the loop's clock goes on by them."""
    pauses: list[float] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    monkeypatch.setattr(loop, "time", lambda: began + sum(pauses))

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("arclog.drivers.backoff.asyncio.sleep", sleep)
    return pauses


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [backoff.pause_s() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.pause_s() == 0.1


def test_the_pause_after_any_number_of_attempts_is_a_number() -> None:
    assert pause_after(1, 0.5, 60.0) == 0.5
    assert pause_after(3, 0.5, 60.0) == 2.0
    assert pause_after(1_000_000, 0.5, 60.0) == 60.0


def test_a_spread_shortens_pauses_by_a_random_share() -> None:
    pauses = [Backoff(1.0, 1.0, spread=0.5).pause_s() for _ in range(200)]
    assert all(0.5 <= pause <= 1.0 for pause in pauses)
    assert len(set(pauses)) > 100


async def test_patience_ends(slept: list[float]) -> None:
    patience = Patience(3.0)
    while await patience.more():
        pass
    assert sum(slept) == pytest.approx(3.0)
    assert FIRST_PAUSE_S / 2 <= slept[0] <= FIRST_PAUSE_S
    assert max(slept) <= LONGEST_PAUSE_S


async def test_no_patience_is_one_attempt(slept: list[float]) -> None:
    assert not await Patience(0.0).more()
    assert slept == []


async def test_an_attempt_is_made_again_while_it_fails_for_a_passing_reason(slept: list[float]) -> None:
    failures = [_Away("1"), _Away("2")]

    async def attempt() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert await retry(attempt, on=_Away, patience_s=60.0) == "done"
    assert len(slept) == 2


async def test_the_last_failure_is_raised_when_the_time_is_over(slept: list[float]) -> None:
    made = 0

    async def attempt() -> None:
        nonlocal made
        made += 1
        raise _Away(str(made))

    with pytest.raises(_Away) as raised:
        await retry(attempt, on=_Away, patience_s=5.0)
    assert str(raised.value) == str(made)
    assert sum(slept) == pytest.approx(5.0), "one attempt is made when the time is over"


async def test_any_other_failure_is_raised_at_once(slept: list[float]) -> None:
    async def attempt() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        await retry(attempt, on=_Away, patience_s=60.0)
    assert slept == []


async def test_a_failure_may_ask_for_a_longer_pause(slept: list[float]) -> None:
    failures = [_Away("soon"), _Away("later")]

    async def attempt() -> str:
        if failures:
            raise failures.pop()
        return "done"

    pauses = {"soon": 0.0, "later": 7.0}
    assert await retry(attempt, on=_Away, patience_s=60.0, pause_s=lambda problem: pauses[str(problem)]) == "done"
    assert slept[0] == 7.0
    assert slept[1] < LONGEST_PAUSE_S


async def test_a_pause_that_is_longer_than_the_time_left_is_not_waited_for(slept: list[float]) -> None:
    assert not await Patience(5.0).more(at_least_s=6.0)
    assert slept == []


async def test_a_final_failure_is_raised_at_once(slept: list[float]) -> None:
    async def attempt() -> None:
        raise _Away("final")

    with pytest.raises(_Away):
        await retry(attempt, on=_Away, patience_s=60.0, pause_s=lambda _: None)
    assert slept == []


async def test_after_a_success_patience_begins_again(slept: list[float]) -> None:
    patience = Patience(3.0)
    while await patience.more():
        pass
    patience.renew()
    assert await patience.more()
    assert slept[-1] <= FIRST_PAUSE_S


async def test_the_time_may_depend_on_what_attempts_show(slept: list[float]) -> None:
    seconds = 0.0
    patience = Patience(lambda: seconds)
    assert not await patience.more()
    seconds = 60.0
    assert await patience.more()
    assert len(slept) == 1
