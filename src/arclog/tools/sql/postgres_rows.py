"""Receives the rows of a PostgreSQL statement one by one, and hands them out in batches that are bounded in rows and bytes.

psycopg and libpq collect rows by number only: a thousand rows of a megabyte are a gigabyte.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.generators import fetch, send
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from arclog.drivers.postgres.intake import Intake, TooMuchReceived

_ENDED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
#: A batch ends when this much was received.
_BATCH_BYTES = 2 * 1024 * 1024
#: libpq keeps the memory of the largest message. A connection that received a larger one should not be kept.
_KEPT_BYTES = 1024 * 1024
#: The values in JSON and arrays of a larger row are counted before it is read.
_LARGE_BYTES = 512 * 1024
#: Memory of one value in a list or map, about, and how many times the limit of a row all of them may take.
_VALUE_BYTES, _TIMES = 64, 4
#: Types that are read as one value: bytea, name, text, xml, unknown, bpchar, varchar.
_PLAIN = frozenset({17, 19, 25, 142, 705, 1042, 1043})
JSON_TYPES = frozenset({114, 3802})


class Rows:
    """The rows of the statements that one cursor of psycopg sends."""

    def __init__(self, cursor: Any, intake: Intake, plain: frozenset[int] = frozenset()) -> None:
        """`plain`: more types that are read as one value."""
        self._cursor = cursor
        self._plain = _PLAIN | plain
        self._intake = intake
        self._loads = False
        #: the result with which the statement ended
        self.ended: PGresult | None = None
        #: whether the connection keeps little memory
        self.small = True

    def execute(self, sql: str, params: list[Any]) -> PQGen[None]:
        """Send a statement."""
        return self._cursor._stream_send_gen(sql, params, size=1)  # type: ignore[no-any-return] # noqa: SLF001 - psycopg's own step

    def command(self, sql: bytes) -> PQGen[None]:
        """Send another statement whose rows have the columns of the first one."""
        connection = self._cursor._pgconn  # noqa: SLF001 - psycopg's own
        self.ended = None
        connection.send_query(sql)
        connection.set_single_row_mode()
        yield from send(connection)

    def batch(self, most: int) -> PQGen[list[tuple[Any, ...]]]:
        """Return the next rows. The statement has ended if `ended` is set. Raises psycopg.Error."""
        cursor, intake = self._cursor, self._intake
        connection, transformer = cursor._pgconn, cursor._tx  # noqa: SLF001 - psycopg's own
        rows: list[tuple[Any, ...]] = []
        enough = intake.received + _BATCH_BYTES
        while len(rows) < most and intake.received < enough:
            result = yield from fetch(connection)
            size, intake.pending = intake.pending, 0
            self.small = self.small and size <= _KEPT_BYTES
            if result is None:
                break
            if result.status == ExecStatus.SINGLE_TUPLE:
                if size > _LARGE_BYTES:
                    self._check(result)
                cursor.pgresult = result
                transformer.set_pgresult(result, set_loaders=not self._loads)
                self._loads = True
                rows.append(transformer.load_row(0, tuple))
            elif result.status in _ENDED:
                self.ended = result
                while (yield from fetch(connection)) is not None:
                    pass
                break
            else:
                with suppress(psycopg.OperationalError):  # the connection was closed after the error
                    while result.status == ExecStatus.FATAL_ERROR and (yield from fetch(connection)) is not None:
                        pass
                cursor._raise_for_result(result)  # noqa: SLF001 - psycopg's own
        return rows

    def _check(self, row: PGresult) -> None:
        """Refuse a row with so many values in JSON and arrays that Python needs many times its size for them."""
        most = _TIMES * self._intake.limit // _VALUE_BYTES
        count = 0
        for column in range(row.nfields):
            if row.ftype(column) not in self._plain:
                value = row.get_value(0, column) or b""
                count += sum(map(value.count, (b",", b"[", b"{")))
        if count > most:
            raise TooMuchReceived(f"the JSON and arrays of a row have more than {most} values")
