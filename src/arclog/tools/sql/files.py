"""Databases that are files. Each attempt has its own connection, whose blocking calls run in a thread.

Invariants: calls run one after another. A cancelled call is interrupted and awaited. Uncommitted changes are rolled
back when the connection is closed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext
from arclog.sandbox.child import reach as reaches
from arclog.sandbox.child.reach import Reach
from arclog.sandbox.child.sql_errors import Refused
from arclog.tools.sql.failures import SqlFailure, refusal_of
from arclog.tools.sql.run import Answer, Bound, SqlConfig, Threads, failed_with, run_statements

# ── permitted paths ───────────────────────────────────────────────────────────────────────────────────────────────────
# Refuses databases in arclog's own folder and those that the operator's settings do not allow.

#: The description of the field `database`.
DATABASE_DOC = (
    "Path of the database file, created if it does not exist. A relative path is relative to the folder in which "
    "`arclog run` was started, and on servers to `object.file_root`. `:memory:` is a database that lasts for one attempt."
)


def not_ours(database: str, reach: Reach, *, write: bool = True) -> str:
    """Return the path of a database file unchanged. Raises SqlFailure if tasks may not open it."""
    try:
        return reaches.not_ours(database, reach, write=write)
    except Refused as refused:
        raise refusal_of(refused) from None


def located(database: str, reach: Reach, *, write: bool = True) -> str:
    """Return the real path of a database file, to be opened without following links. Raises SqlFailure if tasks may not
    open it.
    """
    try:
        return reaches.located(database, reach, write=write)
    except Refused as refused:
        raise refusal_of(refused) from None


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class FileSession(ABC):
    """The connection of one attempt (`run.Session`). Methods with an underscore run in the thread, except
    `_interrupt`.
    """

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
        """Nothing to do; `close` rolls back."""

    async def close(self) -> None:
        try:
            await self._threads.call(_nothing, self._close)  # closing may write, so it does not run on the event loop
        finally:
            self._close()

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in the thread. Errors of the driver become `SqlFailure`."""
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
        """Close the connection. May be called again."""


async def run_on_file(session: FileSession, config: SqlConfig, context: TaskContext, helper: str) -> Outcome:
    """Run one attempt. Its connection is open only for its own statements."""
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
    """Nothing to interrupt."""
