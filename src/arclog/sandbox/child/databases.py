"""Serves DuckDB to the worker from inside a sandbox. Each connection has a socket and a thread.

The worker sends a letter and a connection number over the control socket: `c` opens the connection whose socket is
attached, `i` interrupts its current statement. Requests and responses are frames of (JSON, msgpack); a request has an
operation and its arguments. The worker's side is `tools.sql.duckdb_host`.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

import _socket
import _thread
import array
import json
import os
import struct
from collections.abc import Callable
from typing import Any, NoReturn

import duckdb

from . import wire
from .cells import packed_rows, unpacked

_MESSAGE = struct.Struct("<cI")


def serve(control: _socket.socket) -> NoReturn:
    """Accept connections until the worker is gone."""
    connections: dict[int, _Connection] = {}
    while True:
        message, ancillary, _, _ = control.recvmsg(_MESSAGE.size, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
        if len(message) < _MESSAGE.size:
            os._exit(0)
        letter, number = _MESSAGE.unpack(message)
        if letter == b"i":
            if number in connections:
                connections[number].interrupt()
            continue
        files = array.array("i")
        files.frombytes(ancillary[0][2][:4])
        connection = connections[number] = _Connection(_socket.socket(fileno=files[0]))

        def forget(number: int = number) -> None:
            connections.pop(number, None)

        _thread.start_new_thread(connection.serve, (forget,))


class _Connection:
    """A connection of the worker."""

    def __init__(self, sock: _socket.socket) -> None:
        self._socket = sock
        self._database: Any = None
        self._operations = {
            name: getattr(self, f"_{name}")
            for name in ("connect", "execute", "statement", "fetch", "begin", "commit", "close")
        }

    def interrupt(self) -> None:
        database = self._database
        if database is not None:
            try:
                database.interrupt()
            except Exception:  # noqa: BLE001 - it came to its end meanwhile
                return

    def serve(self, forget: Callable[[], None]) -> None:
        try:
            while (frame := wire.receive(self._socket)) is not None:
                request = json.loads(frame[0])
                try:
                    header, body = self._operations[request["do"]](unpacked(frame[1]) if frame[1] else {})
                except Exception as problem:  # noqa: BLE001 - of DuckDB; the worker knows what to make of it
                    header, body = {"error": type(problem).__name__, "text": str(problem)}, b""
                wire.send(self._socket, json.dumps(header).encode("utf-8", "replace"), body)
        except OSError:
            pass  # the worker is gone
        finally:
            forget()
            if self._database is not None:
                self._database.close()
            self._socket.close()

    def _connect(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        self._database = duckdb.connect(arguments["database"], config=arguments["options"])
        return {}, b""

    def _begin(self, _: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        self._database.begin()
        return {}, b""

    def _commit(self, _: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        self._database.commit()
        return {}, b""

    def _close(self, _: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        if self._database is not None:
            self._database.close()
        return {}, b""

    def _execute(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        self._database.execute(arguments["sql"], arguments["params"])
        return {"columns": self._columns()}, b""

    def _statement(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Execute like `execute` if the SQL is one statement, and return the kind of statement as well."""
        statements = duckdb.extract_statements(arguments["sql"])
        if len(statements) != 1:
            return {"count": len(statements)}, b""
        parsed = statements[0]
        self._database.execute(parsed, arguments["params"])
        return {
            "count": 1,
            "columns": self._columns(),
            "attaches": parsed.type == duckdb.StatementType.ATTACH,
            "reads": parsed.expected_result_type == [duckdb.ExpectedResultType.QUERY_RESULT],
        }, b""

    def _columns(self) -> list[tuple[str, str]]:
        return [(str(column[0]), str(column[1])) for column in self._database.description or []]

    def _fetch(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        rows = self._database.fetchmany(arguments["most"])
        return {}, packed_rows(rows) if rows else b""
