"""Runs the statements of one attempt on any database, in one transaction. The rows of the last statement are the
result.

Invariants: rows are durable in the result store before the transaction is committed. An attempt that fails or is
cancelled before the commit leaves the database unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.json import encode

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome, failed
from arclog.ports.results import ResultWriter
from arclog.ports.tool import TaskContext
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.values import to_json

# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Collects the rows of a statement for an outcome: inline while they are small, then in the result store.

#: Number of rows that are fetched at a time, and of the bytes in them after which no other row is fetched.
BATCH = 1000
BATCH_BYTES = 8 * 1024 * 1024
#: Types of values that can be large.
_SIZED = frozenset({str, bytes})


def batch_of(rows: Iterator[tuple[Any, ...]], most: int = BATCH) -> list[tuple[Any, ...]]:
    """Return the next rows: at most so many, and fewer if they are large."""
    batch: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum([len(value) for value in row if type(value) in _SIZED])
        if len(batch) == most or size > BATCH_BYTES:
            break
    return batch


class Rows:
    """Collects rows, given as tuples. Memory holds one batch, or the rows that fit inline."""

    def __init__(self, columns: Sequence[str], context: TaskContext, max_rows: int | None) -> None:
        self.columns = distinct(columns)
        self.count = 0
        self._context = context
        self._max_rows = max_rows
        self._kept: list[dict[str, Any]] = []
        self._bytes = 0
        self._writer: ResultWriter | None = None

    async def add(self, batch: Sequence[Sequence[Any]]) -> None:
        self.count += len(batch)
        if self._max_rows is not None and self.count > self._max_rows:
            message = (
                f"the statement returns more than {self._max_rows} rows (max_rows of the task); limit them with LIMIT"
            )
            raise SqlFailure("limit", message, "max_rows")
        columns = self.columns
        rows = [dict(zip(columns, map(to_json, row), strict=True)) for row in batch]
        if self._writer is not None:
            await self._writer.add(rows)
        else:
            self._kept += rows
            self._bytes += len(encode(rows))
            if self._bytes > self._context.results.inline_max_bytes:
                self._writer = self._context.results.writer(listed=True)
                kept, self._kept = self._kept, []
                await self._writer.add(kept)
        self._context.progress(self.count, None, "rows")

    async def outcome(self) -> Outcome:
        """Make the rows durable and return the outcome. Call it after the last row."""
        about: dict[str, Any] = {"columns": list(self.columns), "row_count": self.count}
        if self._writer is None:
            return Outcome(
                result={"columns": about["columns"], "rows": self._kept, "row_count": self.count}, data_at="rows"
            )
        return Outcome(result=about, data_at="rows", stored=await self._writer.commit())

    async def abandon(self) -> None:
        if self._writer is not None:
            await self._writer.abandon()


def distinct(columns: Sequence[str]) -> tuple[str, ...]:
    """Return distinct column names. A repeated name gets a number: `id`, `id_2`, `id_3`."""
    taken = set(columns)
    seen: set[str] = set()
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in seen or (number > 1 and name in taken):
            number += 1
            name = f"{column}_{number}"
        seen.add(name)
        names.append(name)
    return tuple(names)


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Cancellation of database calls: a cancelled call is interrupted and awaited, never left running.
#
# Blocking databases are called in threads.

Given = TypeVar("Given")

#: An interrupt between two statements is lost, so it is repeated at this interval until the call has ended.
_AGAIN_S = 0.02


async def cancellable(work: Coroutine[Any, Any, Given], grace_s: float) -> Given:
    """Await work that may have to be cancelled more than once, for example while a driver waits for the server.

    If it has not ended after `grace_s`, it is cancelled again, so that a silent server blocks no task.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            try:
                await asyncio.wait((task,), timeout=grace_s)
            except asyncio.CancelledError:
                continue  # cancelled again: do not wait any longer
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved; the cancellation is raised
        raise


class Threads:
    def __init__(self, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def call(self, interrupt: Callable[[], Any], function: Callable[..., Given], *args: Any) -> Given:
        """Run a function in a thread. When cancelled, call `interrupt`, wait until it has ended, and raise the
        cancellation.
        """
        running = self._pool.submit(function, *args)
        ended = asyncio.wrap_future(running)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            if not running.cancel():
                while not ended.done():
                    interrupt()
                    try:
                        await asyncio.wait((ended,), timeout=_AGAIN_S)
                    except asyncio.CancelledError:
                        continue  # a thread cannot be killed
                ended.exception()  # marks the exception as retrieved; the cancellation is raised
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=True)


# ── run ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

HELPER_FIELDS = ("code", "rowcount")


class Bound(Struct, frozen=True):
    """One statement and its values."""

    sql: str
    params: list[Any] = []
    #: numbers (from 1) of the values that are bound as JSON
    json: list[int] = []


class SqlConfig(Struct, frozen=True, kw_only=True):
    """The config that all SQL tasks share."""

    command: list[Bound]
    transaction: bool = True
    max_rows: int | None = None


_FIELDS = (
    Field(
        "command",
        "string",
        "One or more SQL statements. A template `{{ … }}` becomes a bound value, `{{ … | identifier }}` a quoted name.",
        required=True,
        also=("query", "sql", "statement", "statements"),
    ),
    Field("params", "list|object", "Values for placeholders in the command: a map for `:name`, a list by position."),
    Field(
        "transaction",
        "boolean",
        "Whether all statements run in one transaction. `false` is required for statements that cannot run in one, such as VACUUM.",
        default=True,
    ),
    Field(
        "max_rows",
        "integer",
        "Maximum number of rows; a larger result is an error of kind `limit`.",
        minimum=0,
        template=True,
    ),
)


def sql_kind(
    name: str, summary: str, helper: str, *fields: Field, auth: tuple[str, ...] = (), opens_files: bool = True
) -> KindSpec:
    """Return the description of a SQL kind: the `fields` that select the database, and those that all kinds share."""
    return KindSpec(
        name=name,
        summary=summary,
        auth=auth,
        fields=(*fields, *_FIELDS),
        data_at="rows",
        helper=helper,
        helper_fields=HELPER_FIELDS,
        sql=("command",),
        from_file="command",
        dialect=name,
        opens_files=opens_files,
    )


class Answer(NamedTuple):
    """The result of a statement."""

    #: None if it returns no rows
    columns: Sequence[str] | None
    #: number of changed rows, if it returns none
    changed: int


class Session(Protocol):
    """The use of a database by one attempt. Failures are `SqlFailure`."""

    async def begin(self, statements: Sequence[Bound]) -> None: ...

    async def execute(self, statement: Bound) -> Answer:
        """Run a statement. Unread rows of the previous one are discarded."""

    async def fetch(self) -> Sequence[Sequence[Any]]:
        """Return the next rows of the last statement; empty at the end."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None:
        """Roll back after a failure. Has no effect without a transaction or connection."""


async def run_statements(session: Session, config: SqlConfig, context: TaskContext, helper: str) -> Outcome:
    """Run a command's statements."""
    rows: Rows | None = None
    at, count = 0, len(config.command)
    try:
        if config.transaction:
            await session.begin(config.command)
        answer = Answer(None, 0)
        for at, statement in enumerate(config.command, start=1):  # noqa: B007 - a failure tells where it was
            answer = await session.execute(statement)
        if answer.columns is None:
            outcome = Outcome(result={"columns": [], "rows": [], "row_count": answer.changed}, data_at="rows")
        else:
            rows = Rows(answer.columns, context, config.max_rows)
            while batch := await session.fetch():
                await rows.add(batch)
            outcome = await rows.outcome()
            answer = Answer(None, rows.count)
        at = 0
        if config.transaction:
            await session.commit()
    except SqlFailure as problem:
        await session.rollback()
        return _failed(problem, helper, f"statement {at} of {count}: " if at and count > 1 else "")
    finally:
        # On any other end (a cancellation, a failing result store) the connection is closed, which rolls back.
        if rows is not None:
            await rows.abandon()
    outcome.helper = {helper: {"code": None, "rowcount": answer.changed}}
    return outcome


def failed_with(problem: SqlFailure, helper: str) -> Outcome:
    """Return the outcome of an attempt that failed before its statements."""
    return _failed(problem, helper, "")


def _failed(problem: SqlFailure, helper: str, place: str) -> Outcome:
    error = problem.problem
    return failed(
        type(error)(error.kind, place + error.message, error.code, error.retryable),
        **{helper: {"code": error.code, "rowcount": None}},
    )
