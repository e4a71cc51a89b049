"""The few connections that a PostgreSQL result store has, and what their failures mean.

Work that is handed in must be one that may be done twice: a server that went away in the middle is asked again, until
`results.patience_s` has passed. Messages tell the server and the database, never a password.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection

from arclog.drivers.postgres.address import AddressError, address_of
from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway, ResultUnavailable, SettingsError
from arclog.results.again import until_answered

R = TypeVar("R")
Work = Callable[[AsyncConnection[Any]], Awaitable[R]]

#: SQLSTATE classes and codes of what may be gone a moment later: connection, resources, shutdown, conflicts of transactions
_PASSING = re.compile(r"08...|53[23]00|57P0.|40001|40P01")
_DISK_FULL = "53100"
#: What the server says when it refuses a connection for good; libpq gives no SQLSTATE there.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(role|database) .* does not exist|permission denied"
)


class PgLink:
    def __init__(self, url: str, settings: Settings) -> None:
        try:
            address = address_of(url)
        except AddressError as problem:
            variable = "ARCLOG_STORE_URL" if settings.text("results.url") == "postgres" else "ARCLOG_RESULTS_URL"
            raise SettingsError(f"{variable} cannot be read: {problem}") from None
        self._conninfo = address.conninfo(
            connect_timeout=max(2, round(settings.number("results.timeout_s"))), application_name="arclog"
        )
        #: for messages
        self.place = f"PostgreSQL {address.parts.get('host', 'localhost')}/{address.parts.get('dbname', '')}"
        self._timeout_s = settings.number("results.timeout_s")
        self._patience_s = settings.number("results.patience_s")
        self._room = asyncio.Semaphore(settings.integer("results.connections"))
        #: the one used last is taken first
        self._idle: list[AsyncConnection[Any]] = []
        self._closed = False

    async def run(self, work: Work[R]) -> R:
        """What comes of the work; it may be done twice."""
        return await until_answered(lambda: self._meaning(work), self._patience_s)

    async def _meaning(self, work: Work[R]) -> R:
        try:
            return await self._once(work)
        except (psycopg.Error, OSError, TimeoutError) as problem:
            raise self._meant(problem) from problem

    async def _once(self, work: Work[R]) -> R:
        async with self._room:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                async with asyncio.timeout(self._timeout_s):
                    done = await work(connection)
            except psycopg.Error:
                # It may be broken, and so may the others be that have stood idle since.
                await self._drop(connection)
                raise
            except BaseException:
                await connection.close()
                raise
            if self._closed:
                await connection.close()
            else:
                self._idle.append(connection)
            return done

    async def _connect(self) -> AsyncConnection[Any]:
        # No statement is prepared: behind a pooler, the next one may go by another connection.
        async with asyncio.timeout(self._timeout_s):
            return await AsyncConnection.connect(self._conninfo, autocommit=True, prepare_threshold=None)

    async def _drop(self, connection: AsyncConnection[Any]) -> None:
        idle, self._idle = (self._idle, []) if connection.closed else ([], self._idle)
        for each in (connection, *idle):
            await each.close()

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    def _meant(self, problem: BaseException) -> ResultUnavailable:
        """What a failure is, and what to do."""
        code = getattr(problem, "sqlstate", None) or ""
        said = " ".join(str(problem).split())
        if code == _DISK_FULL:
            return ResultUnavailable(
                f"disk full: a result could not be stored in {self.place}, and nothing of it is kept; free space there "
                "(`arclog gc` removes results that are no longer needed), then run it again"
            )
        if isinstance(problem, TimeoutError):
            return ResultStoreAway(
                f"the result store {self.place} did not answer within {self._timeout_s:g} s; check whether it is overloaded "
                "or its machine hangs (setting results.timeout_s)"
            )
        if _PASSING.fullmatch(code) or (not code and not _REFUSED.search(said)):
            return ResultStoreAway(
                f"the result store {self.place} cannot be reached ({said}); check whether the server runs and accepts more "
                "connections in"
            )
        return ResultUnavailable(
            f"the result store {self.place} refuses ({said}); check ARCLOG_STORE_URL and the permissions of its user"
        )
