"""Serves DuckDB or SQLite to the worker from inside a sandbox. Each connection has a socket and a thread.

The worker sends a letter and a connection number over the control socket: `c` opens the connection whose socket is
attached, `i` interrupts its current statement. Requests and responses are frames of (JSON, msgpack); a request has an
operation and its arguments. The worker's side is `tools.sql.hosts`.
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
from typing import Any, NoReturn, Protocol

from .. import wire
from ..cells import RowTooLarge, unpacked
from ..sql_errors import Refused

_MESSAGE = struct.Struct("<cI")
#: A longer text of an error is cut.
_ERROR_CHARS = 100_000
Response = tuple[dict[str, Any], bytes]


class Served(Protocol):
    """A connection to a database."""

    #: by their names in requests; `connect` is the first
    operations: dict[str, Callable[[dict[str, Any]], Response]]

    def interrupt(self) -> None:
        """Interrupt the current statement, from another thread."""

    def described(self, problem: Exception) -> dict[str, Any]:
        """Return what the worker gets to know of an error, besides the name of its class and its text."""

    def close(self) -> None:
        """Close the connection. May be called again."""


def serve(control: _socket.socket, library: Callable[[], Served]) -> NoReturn:
    """Accept connections until the worker is gone."""
    connections: dict[int, _Connection] = {}
    while True:
        message, ancillary, _, _ = control.recvmsg(_MESSAGE.size, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
        if len(message) < _MESSAGE.size:
            os._exit(0)
        letter, number = _MESSAGE.unpack(message)
        if letter == b"i":
            if number in connections:
                connections[number].database.interrupt()
            continue
        files = array.array("i")
        files.frombytes(ancillary[0][2][:4])
        connection = connections[number] = _Connection(_socket.socket(fileno=files[0]), library())

        def forget(number: int = number) -> None:
            connections.pop(number, None)

        _thread.start_new_thread(connection.serve, (forget,))


class _Connection:
    """A connection of the worker."""

    def __init__(self, sock: _socket.socket, database: Served) -> None:
        self.database = database
        self._socket = sock
        #: maximum size of a response
        self._most = 0

    def serve(self, forget: Callable[[], None]) -> None:
        try:
            while (frame := wire.receive(self._socket)) is not None:
                request = json.loads(frame[0])
                self._most = request.get("most_bytes", self._most)
                header, body = self._response(request["do"], unpacked(frame[1]) if frame[1] else {})
                wire.send(self._socket, header, body)
        except OSError:
            pass  # the worker is gone
        finally:
            forget()
            self.database.close()
            self._socket.close()

    def _response(self, operation: str, arguments: dict[str, Any]) -> tuple[bytes, bytes]:
        try:
            header, body = self.database.operations[operation](arguments)
            data = _encoded(header)
            if self._most and len(data) + len(body) > self._most:
                raise RowTooLarge
        except Exception as problem:  # noqa: BLE001 - of a library; the worker knows what to make of it
            return _encoded(self._error(problem)), b""
        return data, body

    def _error(self, problem: Exception) -> dict[str, Any]:
        error = {"error": type(problem).__name__, "text": str(problem)[:_ERROR_CHARS]}
        if isinstance(problem, Refused):
            return {**error, "refused": [problem.kind, problem.code, problem.retryable]}
        return {**error, **self.database.described(problem)}


def _encoded(header: dict[str, Any]) -> bytes:
    return json.dumps(header).encode("utf-8", "replace")
