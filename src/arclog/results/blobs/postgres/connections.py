"""The few connections that a PostgreSQL result store has, and what their failures mean.

Work that is handed in must be safe to do twice: when the server goes away in the middle, the work is done again, until
`results.patience_s` has passed. Messages name the server and the database, never a password.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection

from arclog.drivers.backoff import retry
from arclog.drivers.postgres.address import configured_address
from arclog.drivers.postgres.connect import Pool, connect, timeout_of
from arclog.drivers.postgres.refusals import DISK_FULL, Meaning, refusal_of, state_of, text_of
from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable

R = TypeVar("R")
Work = Callable[[AsyncConnection[Any]], Awaitable[R]]

_PASSING = (Meaning.AWAY, Meaning.CONFLICT, Meaning.SHORT)


class PgLink:
    def __init__(self, url: str, settings: Settings) -> None:
        #: the setting that has the address
        self._setting = "ARCLOG_STORE_URL" if settings.text("results.url") == "postgres" else "ARCLOG_RESULTS_URL"
        self._address = address = configured_address(url, self._setting)
        #: for messages
        self.place = f"PostgreSQL {address.parts.get('host', 'localhost')}/{address.parts.get('dbname', '')}"
        self._timeout_s = settings.number("results.timeout_s")
        self._patience_s = settings.number("results.patience_s")
        self._pool = Pool(self._connect, settings.integer("results.connections"))

    async def run(self, work: Work[R]) -> R:
        """The result of the work; it may be done twice."""
        return await retry(lambda: self._attempt(work), on=ResultStoreAway, patience_s=self._patience_s)

    async def close(self) -> None:
        await self._pool.close()

    async def _attempt(self, work: Work[R]) -> R:
        try:
            connection = await self._pool.take()
            done = False
            try:
                async with asyncio.timeout(self._timeout_s):
                    result = await work(connection)
                done = True
                return result
            finally:
                await self._pool.give(connection, keep=done)
        except (psycopg.Error, OSError, TimeoutError) as problem:
            raise self._translated(problem) from problem

    async def _connect(self) -> AsyncConnection[Any]:
        async with asyncio.timeout(self._timeout_s):
            return await connect(self._address, connect_timeout=timeout_of(self._timeout_s), application_name="arclog")

    def _translated(self, problem: BaseException) -> ResultUnavailable:
        """What a failure is, and what to do."""
        if state_of(problem) == DISK_FULL:
            return ResultUnavailable(
                f"disk full: a result could not be stored in {self.place}, and nothing of it is kept; free space there "
                "(`arclog gc` removes results that are no longer needed), then run it again"
            )
        if isinstance(problem, TimeoutError):
            return ResultStoreAway(
                f"the result store {self.place} did not answer within {self._timeout_s:g} s; look whether it is overwhelmed "
                "or its machine hangs (setting results.timeout_s)"
            )
        if refusal_of(problem).meaning in _PASSING:
            return ResultStoreAway(
                f"the result store {self.place} cannot be reached ({text_of(problem)}); look whether the server runs and "
                "lets more connections in"
            )
        return ResultUnavailable(
            f"the result store {self.place} refuses ({text_of(problem)}); check {self._setting} and the permissions of its user"
        )
