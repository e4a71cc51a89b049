"""Runs the statements of one attempt on any database: one transaction, the last statement's rows as the result.

Law: rows are durable in the result store before the transaction is committed, and whatever fails or is cancelled
before the commit leaves the database as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome, failed
from arclog.ports.tool import TaskContext
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.rows import Rows

HELPER_FIELDS = ("code", "rowcount")


class Bound(Struct, frozen=True):
    """One statement and its values."""

    sql: str
    params: list[Any] = []
    #: numbers (from 1) of the values that are wanted as JSON
    json: list[int] = []


class SqlConfig(Struct, frozen=True, kw_only=True):
    """What every SQL task has."""

    command: list[Bound]
    transaction: bool = True
    max_rows: int | None = None


FIELDS = (
    Field(
        "command",
        "string",
        "SQL, one or more statements. A `{{ }}` is a bound value, `{{ … | identifier }}` a quoted name.",
        required=True,
        also=("query", "sql", "statement", "statements"),
    ),
    Field("params", "list|object", "Values for placeholders in the command: a map for `:name`, a list by position."),
    Field(
        "transaction",
        "boolean",
        "Run all statements in one transaction; false: each on its own, for statements that must (VACUUM …).",
        default=True,
    ),
    Field("max_rows", "integer", "More rows than this are an error of kind limit.", minimum=0, template=True),
)


class Answer(NamedTuple):
    """What a statement gave."""

    #: None: it gives no rows
    columns: Sequence[str] | None
    #: rows that it changed, when it gives none
    changed: int


class Session(Protocol):
    """One attempt's use of a database. Failures are `SqlFailure`."""

    async def begin(self, statements: Sequence[Bound]) -> None: ...

    async def execute(self, statement: Bound) -> Answer:
        """Run a statement; rows of the one before that were not fetched are dropped."""

    async def fetch(self) -> Sequence[Sequence[Any]]:
        """Some rows of the last statement; none: there are no more."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None:
        """Undo after a failure; harmless when nothing was begun or the connection is gone."""


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
        # Whatever else ends it (a cancel, a result store that fails): the connection is closed, and that undoes all.
        if rows is not None:
            await rows.abandon()
    outcome.helper = {helper: {"code": None, "rowcount": answer.changed}}
    return outcome


def failed_with(problem: SqlFailure, helper: str) -> Outcome:
    """The outcome of an attempt that never came to its statements."""
    return _failed(problem, helper, "")


def _failed(problem: SqlFailure, helper: str, place: str) -> Outcome:
    found = problem.problem
    return failed(
        type(found)(found.kind, place + found.message, found.code, found.retryable),
        **{helper: {"code": found.code, "rowcount": None}},
    )
