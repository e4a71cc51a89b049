"""A coroutine that is started at once: the part before its first wait, the rest, and a cancellation."""

from __future__ import annotations

import asyncio

import pytest

from arclog.engine.commits import eager


async def test_a_coroutine_runs_up_to_its_first_wait_before_start_returns() -> None:
    loop, done = asyncio.get_running_loop(), list[str]()
    answer: asyncio.Future[str] = loop.create_future()

    async def work() -> None:
        done.append("begun")
        done.append(await answer)

    task = eager.start(loop, work())
    assert done == ["begun"]
    assert task is not None
    answer.set_result("answered")
    await task
    assert done == ["begun", "answered"]


async def test_the_rest_waits_for_its_future_and_goes_on_with_further_waits() -> None:
    loop, done = asyncio.get_running_loop(), list[str]()
    first: asyncio.Future[str] = loop.create_future()
    second: asyncio.Future[str] = loop.create_future()

    async def work() -> None:
        done.append(await first)
        await asyncio.sleep(0)
        done.append(await second)

    task = eager.start(loop, work())
    assert task is not None
    await asyncio.sleep(0)
    loop.call_soon(first.set_result, "first")
    loop.call_soon(second.set_result, "second")
    await task
    assert done == ["first", "second"]


async def test_a_coroutine_without_a_wait_needs_no_task() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("all")

    assert eager.start(asyncio.get_running_loop(), work()) is None
    assert done == ["all"]


async def test_an_error_of_the_awaited_future_reaches_the_coroutine() -> None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    async def work() -> None:
        with pytest.raises(ValueError, match="refused"):
            await answer

    task = eager.start(loop, work())
    assert task is not None
    answer.set_exception(ValueError("refused"))
    await task


@pytest.mark.parametrize("ahead", [0, 1])
async def test_a_cancelled_rest_is_cancelled_inside_the_coroutine(ahead: int) -> None:
    """Before the rest has begun (0) and while it waits (1)."""
    loop, done = asyncio.get_running_loop(), list[str]()
    answer: asyncio.Future[str] = loop.create_future()

    async def work() -> None:
        try:
            await answer
        finally:
            done.append("released")

    task = eager.start(loop, work())
    assert task is not None
    for _ in range(ahead):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["released"]


async def test_a_coroutine_may_wait_after_a_cancellation() -> None:
    loop, done = asyncio.get_running_loop(), list[str]()
    answer: asyncio.Future[str] = loop.create_future()
    released: asyncio.Future[str] = loop.create_future()

    async def work() -> None:
        try:
            await answer
        except asyncio.CancelledError:
            done.append(await released)

    task = eager.start(loop, work())
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    loop.call_later(0, released.set_result, "released")
    await task
    assert done == ["released"]
