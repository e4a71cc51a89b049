"""Messages from a runner to the worker: progress of a task, items of a list that is too long for one answer, and the answer.

Only the reading of files is acknowledged: a worker that is busy stops reading, and the runner waits in `send`. Only the task's
own process sends; its threads take turns.
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
from collections.abc import Iterator
from typing import Any

from . import values, wire

# ── reporter ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: no more often than this is progress sent; the worker thins it out further
_PROGRESS_S = 0.05
#: larger integers are no count of anything, and not every reader of JSON takes them
_MOST = 2**63
_SHOWN = 80


class Reporter:
    """Sends the messages of one task."""

    def __init__(self, sock: _socket.socket) -> None:
        self._socket = sock
        self._pid = os.getpid()
        self._lock = _thread.allocate_lock()
        self._over = False
        self._unsent: list[Any] | None = None
        self._next = 0.0
        self._warned = False

    def progress(self, done: Any, total: Any = None, unit: Any = "") -> None:
        """Say how far the task is; what cannot be a number is left to the worker to complain about."""
        if os.getpid() != self._pid:
            self._warn_elsewhere()
            return
        progress = [_number(done), None if total is None else _number(total), _text(unit)]
        with self._lock:
            self._unsent = progress
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
        if self._unsent is not None:
            message = {"ok": True, "say": "progress", "progress": self._unsent}
            self._unsent = None
            wire.send(self._socket, json.dumps(message).encode())

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


# ── streaming ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# A task's value that comes item by item: sent as a plain list while it is small, streamed to the worker once it is not.
#
# Memory does not grow with the number of items: each is JSON text as soon as it comes, and a batch is sent when it is full.

_BATCH_BYTES = 64 * 1024
#: Types that are never a stream: nearly all values are of these.
_WHOLE = frozenset({dict, list, tuple, str, int, float, bool, type(None)})


class TooLarge(Exception):
    """One item is larger than any result may be."""


def stream_of(value: Any) -> Any:
    """What gives a value's items one by one; None for a value that is sent as a whole.

    Generators and other iterators do, asynchronous ones too, and tables: their items are rows. A list does not, nor does
    anything else that can be iterated twice.
    """
    kind = type(value)
    if kind in _WHOLE:
        return None
    rows = values.rows_of(value, "result", values.column_names)
    if rows is not None:
        return rows
    return value if hasattr(kind, "__next__") or hasattr(kind, "__anext__") else None


def streamed(stream: Any, reporter: Reporter, inline_max: int, max_item: int) -> tuple[int, bytes]:
    """How many items were sent, and the list of all when none had to be."""
    parts: list[bytes] = []
    size = sent = count = 0
    limit = inline_max
    for item in _drawn(stream) if hasattr(type(stream), "__anext__") else stream:
        part = values.encoded(item, f"result[{count}]")
        count += 1
        if len(part) > max_item:
            raise TooLarge(f"result[{count - 1}] has {len(part)} bytes as JSON")
        parts.append(part)
        size += len(part) + 1
        if size > limit:
            reporter.items(parts)
            sent, size, limit = count, 0, _BATCH_BYTES
            parts.clear()
    if sent:
        if parts:
            reporter.items(parts)
        return count, b""
    return 0, b"[" + b",".join(parts) + b"]"


def _drawn(stream: Any) -> Iterator[Any]:
    """The items of an asynchronous iterator."""
    import asyncio

    async def following() -> Any:
        return await stream.__anext__()

    with asyncio.Runner() as runner:
        while True:
            try:
                item = runner.run(following())
            except StopAsyncIteration:
                return
            yield item
