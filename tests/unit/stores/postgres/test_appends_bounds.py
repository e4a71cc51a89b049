"""How long an append and a request may take at most, whatever the network or PostgreSQL does: as docs/postgres.md adds it up.

In virtual time, over connections that fail as they are told to: a real one cannot be made to take just as long as it may.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.store import OutcomeUnknown
from arclog.stores.postgres.appends import Writer
from arclog.stores.postgres.connection.pipeline import Lost
from arclog.stores.postgres.connection.pool import Pool
from arclog.stores.postgres.queries import queries
from arclog.stores.rows import Codec
from arclog.testing.virtual import LoopClock, run_virtually
from tests.unit.stores.support import change

_SETTINGS = Settings()
TIMEOUT_S, PATIENCE_S = _SETTINGS.number("store.timeout_s"), _SETTINGS.number("store.patience_s")
#: the greeting, and the first question
CONNECT_S = 2 * _SETTINGS.number("store.connect_timeout_s")
REQUEST_S = 2 * (CONNECT_S + TIMEOUT_S) + PATIENCE_S
APPEND_S = 3 * (CONNECT_S + TIMEOUT_S) + 2 * PATIENCE_S

SQL = queries("arclog")
GONE: list[list[Any]] = [[]]
STILL_THERE: list[list[Any]] = [[(4711, True)]]
#: what a connection answers to these calls; None: nothing at all
Script = Callable[[list[Any]], list[list[Any]] | None]


class Scripted:
    """As `Link`: it answers at the last moment, or is given up."""

    def __init__(self, script: Script) -> None:
        self.name = "arclog scripted"
        self.lost: psycopg.Error | None = None
        self.waiting = 0
        self._script = script

    def send(self, calls: list[Any], answered: Callable[[Any], None]) -> None:
        loop = asyncio.get_running_loop()
        rows = self._script(calls)
        self.waiting += 1

        def end() -> None:
            self.waiting -= 1
            if rows is not None and self.lost is None:
                answered(rows)
                return
            self.lost = error = Lost(f"no answer within {TIMEOUT_S:g} s")
            error.pipeline = self.name
            answered(error)

        loop.call_later(TIMEOUT_S, end)

    def request(self, calls: list[Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(outcome: Any) -> None:
            (future.set_exception if isinstance(outcome, Exception) else future.set_result)(outcome)

        self.send(calls, answered)
        return future

    def close(self, why: str = "closed") -> None:
        self.lost = psycopg.OperationalError(why)


def is_append(calls: list[Any]) -> bool:
    return any("won AS" in text for text, _ in calls)


def is_end(calls: list[Any]) -> bool:
    return bool(calls) and calls[0][0] == SQL["end_session"]


def nothing(calls: list[Any]) -> None:
    return None


def behind_a_lock(calls: list[Any]) -> list[list[Any]] | None:
    """Appends wait; the log says that none took place."""
    return None if is_append(calls) else GONE if is_end(calls) else [[] for _ in calls]


def immortal(calls: list[Any]) -> list[list[Any]] | None:
    """The server process of the lost connection does not end."""
    return None if is_append(calls) else STILL_THERE if is_end(calls) else [[] for _ in calls]


async def told_after(script: Script | None, ask: Callable[[Writer, Pool], Any]) -> tuple[float, Any]:
    """How long it took until there was an answer, and which. Without a script no connection is to be had."""

    async def open_pipeline() -> Any:
        await asyncio.sleep(CONNECT_S)
        if script is None:
            raise psycopg.OperationalError("connection timeout expired")
        return Scripted(script)

    pool = Pool("postgresql://somewhere", open_pipeline, 4, PATIENCE_S)
    writer = Writer("postgresql://somewhere", SQL, open_pipeline, pool, LoopClock(), 2)
    pool.open()
    writer.open()
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        outcome = await ask(writer, pool)
    except StoreUnavailable as problem:
        outcome = problem
    return loop.time() - began, outcome


def append(writer: Writer, _: Pool) -> Any:
    request = change(1, 1)
    return writer.append(request, Codec(_SETTINGS).derive(request))


def read(_: Writer, pool: Pool) -> Any:
    return pool.read(SQL["head"], 1)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (None, StoreUnavailable),
        (nothing, OutcomeUnknown),
        (behind_a_lock, StoreUnavailable),
        (immortal, OutcomeUnknown),
    ],
    ids=["no connection", "no answer", "behind a lock", "a process that does not end"],
)
def test_an_append_ends_in_time_whatever_keeps_it_from_its_answer(
    script: Script | None, error: type[Exception]
) -> None:
    took, outcome = run_virtually(told_after(script, append))
    assert type(outcome) is error
    assert took <= APPEND_S


@pytest.mark.parametrize("script", [None, nothing], ids=["no connection", "no answer"])
def test_a_request_ends_in_time(script: Script | None) -> None:
    took, outcome = run_virtually(told_after(script, read))
    assert type(outcome) is StoreUnavailable
    assert took <= REQUEST_S


def test_what_waits_behind_others_that_cannot_be_answered_is_not_tried_one_by_one() -> None:
    """A group that was refused is carried out one by one; the first that cannot be answered speaks for all."""
    refused = psycopg.errors.CheckViolation("new row violates check constraint")
    first = True

    def script(calls: list[Any]) -> Any:
        nonlocal first
        if first:
            first = False
            raise refused
        return None

    async def many(writer: Writer) -> Any:
        codec = Codec(_SETTINGS)
        whats = [change(number, 1) for number in range(1, 21)]
        appends = [writer.append(request, codec.derive(request)) for request in whats]
        return await asyncio.gather(*appends, return_exceptions=True)

    took, outcome = run_virtually(told_after(script, lambda writer, _: many(writer)))
    assert {type(error) for error in outcome} == {OutcomeUnknown}
    assert took <= CONNECT_S + APPEND_S
