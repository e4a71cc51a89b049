"""Databases that are files: an attempt has a connection of its own, whose calls block and so run on a thread.

Law: calls come one after the other; a cancelled one is interrupted and waited for; what is not committed is undone with
the connection.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext
from arclog.sandbox.confinement_settings import Reach
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.run import Answer, Bound, SqlConfig, Threads, failed_with, run_statements

# ── own folder ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Databases that no playbook may open: those in arclog's own folder, and those that the operator's settings leave out.

MEMORY = ":memory:"


def not_ours(database: str, reach: Reach, *, write: bool = True) -> str:
    """The path of a database file, as given; refused when it is out of reach."""
    if "\0" in database:
        raise SqlFailure("config", "database: a path holds no NUL")
    refusal = "" if database in ("", MEMORY) else reach.refusal(database, write=write)
    if refusal:
        raise SqlFailure("config", refusal)
    return database


def located(database: str, reach: Reach, *, write: bool = True) -> str:
    """The real path of a database file; refused when it is out of reach. That path is judged and then opened, without following a
    link: whoever can replace the file by a link meanwhile gets nothing.
    """
    if database in ("", MEMORY) or "\0" in database:
        return not_ours(database, reach)
    real = os.path.realpath(database)
    if refusal := reach.refusal(real, write=write):
        raise SqlFailure("config", refusal.replace(real, database, 1))
    return real


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class FileSession(ABC):
    """One attempt's connection (`run.Session`). Methods with a leading underscore run on the thread, but `_interrupt`."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def open(self) -> None:
        await self.call(self._open)

    @abstractmethod
    async def begin(self, statements: Sequence[Bound]) -> None: ...

    @abstractmethod
    async def execute(self, statement: Bound) -> Answer: ...

    async def fetch(self) -> Sequence[Sequence[Any]]:
        rows: list[Any] = await self.call(self._fetch)
        return rows

    @abstractmethod
    async def commit(self) -> None: ...

    async def rollback(self) -> None:  # noqa: B027 - nothing to do is what both do
        """`close` does it."""

    async def close(self) -> None:
        try:
            await self._threads.call(_nothing, self._close)  # it may write: not on the event loop
        finally:
            self._close()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function on the thread; the driver's errors come as `SqlFailure`."""
        return await self._threads.call(self._interrupt, self._translated, function, *args)

    @abstractmethod
    def _interrupt(self) -> None: ...

    @abstractmethod
    def _translated(self, function: Callable[..., Any], *args: Any) -> Any: ...

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _fetch(self) -> list[Any]: ...

    @abstractmethod
    def _close(self) -> None:
        """May be called again."""


async def run_on_file(session: FileSession, config: SqlConfig, context: TaskContext, helper: str) -> Outcome:
    """One attempt: its connection is there for its statements alone."""
    if context.auth is not None:
        return failed_with(SqlFailure("config", f"a {helper} task takes no auth: a file has no password"), helper)
    try:
        await session.open()
        return await run_statements(session, config, context, helper)
    except SqlFailure as problem:
        return failed_with(problem, helper)
    finally:
        await session.close()


def _nothing() -> None:
    """There is nothing to interrupt."""
