"""What a runner says to the worker: how far a task is, items of a list too long for one answer, and the answer itself.

Nothing but the reading of files is acknowledged: a worker that is busy stops reading, and we wait in `send`. Only the task's own process speaks;
its threads take turns.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

import _socket
import _thread
import json
import math
import os
import time
from typing import Any

from . import wire

#: no more often than this is progress sent; the worker thins it out further
_PROGRESS_S = 0.05
#: larger integers are no count of anything, and not every reader of JSON takes them
_MOST = 2**63
_SHOWN = 80


class Speech:
    """The voice of one task."""

    def __init__(self, sock: _socket.socket) -> None:
        self._socket = sock
        self._pid = os.getpid()
        self._lock = _thread.allocate_lock()
        self._over = False
        self._unsaid: list[Any] | None = None
        self._next = 0.0
        self._warned = False

    def progress(self, done: Any, total: Any = None, unit: Any = "") -> None:
        """Say how far the task is; what cannot be a number is left to the worker to complain about."""
        if os.getpid() != self._pid:
            self._warn_elsewhere()
            return
        said = [_number(done), None if total is None else _number(total), _text(unit)]
        with self._lock:
            self._unsaid = said
            now = time.monotonic()
            if now >= self._next and not self._over:
                self._next = now + _PROGRESS_S
                self._send_progress()

    def items(self, parts: list[bytes]) -> None:
        """Hand over some items, each as JSON."""
        with self._lock:
            wire.send(self._socket, b'{"ok":true,"say":"items"}', b"[" + b",".join(parts) + b"]")

    def outputs(self) -> None:
        """Say that the task's files can be read; the worker answers when it has read them."""
        with self._lock:
            wire.send(self._socket, b'{"ok":true,"say":"outputs"}')

    def last(self, header: dict[str, Any], body: bytes) -> None:
        """Answer the task; nothing is said after that."""
        with self._lock:
            self._send_progress()
            self._over = True
            wire.send(self._socket, json.dumps(header).encode(), body)

    def _send_progress(self) -> None:
        if self._unsaid is not None:
            said = {"ok": True, "say": "progress", "progress": self._unsaid}
            self._unsaid = None
            wire.send(self._socket, json.dumps(said).encode())

    def _warn_elsewhere(self) -> None:
        if not self._warned:
            self._warned = True
            os.write(2, b"context.progress speaks for the task's own process only; other processes are not heard\n")


def _number(value: Any) -> int | float | str:
    """The value as a plain number; else a text that shows it."""
    try:
        if isinstance(value, int) and abs(value) < _MOST:
            return int(value)
        if not isinstance(value, (str, bytes, int)):
            number = float(value)
            if math.isfinite(number):
                return number
        return _text(repr(value))
    except Exception:  # noqa: BLE001 - a value of user code may do anything
        return type(value).__name__


def _text(value: Any) -> str:
    """The value as a short text that any JSON can hold."""
    try:
        return str(value)[:_SHOWN].encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - as above
        return type(value).__name__
