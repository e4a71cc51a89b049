"""Messages from a runner to the worker: the progress of a task, items of a list that is too long for one answer, and
the answer.

Only `outputs` is acknowledged. A busy worker stops reading, and the runner then waits in `send`. Only the task's own
process sends; its threads take turns.
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

#: minimum interval between progress messages; the worker drops more of them
_PROGRESS_S = 0.05
#: larger integers are not plausible counts, and some JSON parsers reject them
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
        """Report the progress of the task. The worker rejects values that are not numbers."""
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
        """Send some items, each encoded as JSON."""
        with self._lock:
            wire.send(self._socket, b'{"ok":true,"say":"items"}', b"[" + b",".join(parts) + b"]")

    def outputs(self) -> None:
        """Ask the worker to store the task's output files. It replies when it has read them."""
        with self._lock:
            wire.send(self._socket, b'{"ok":true,"say":"outputs"}')

    def last(self, header: dict[str, Any], body: bytes) -> None:
        """Send the final answer. No message follows it."""
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
    """Return the value as a plain number, or else as a text."""
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
    """Return the value as a short text that JSON can represent."""
    try:
        return str(value)[:_SHOWN].encode("utf-8", "backslashreplace").decode()
    except Exception:  # noqa: BLE001 - as above
        return type(value).__name__


# ── streaming ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Values that a task produces item by item. A small one is sent as a plain list; a large one is streamed to the worker.
#
# Memory does not grow with the number of items: each is encoded as JSON at once, and a full batch is sent.

_BATCH_BYTES = 64 * 1024
#: Types that are never streams. Nearly all values have one of these.
_WHOLE = frozenset({dict, list, tuple, str, int, float, bool, type(None)})


class TooLarge(Exception):
    """An item is larger than a result may be."""


def stream_of(value: Any) -> Any:
    """Return an iterator over a value's items, or None if the value is sent as a whole.

    Generators and other iterators, also asynchronous ones, are streams. So are tables; their items are rows. Lists and
    anything else that can be iterated twice are not.
    """
    kind = type(value)
    if kind in _WHOLE:
        return None
    rows = values.rows_of(value, "result", values.column_names)
    if rows is not None:
        return rows
    return value if hasattr(kind, "__next__") or hasattr(kind, "__anext__") else None


def streamed(stream: Any, reporter: Reporter, inline_max: int, max_item: int) -> tuple[int, bytes]:
    """Return the number of items sent, or 0 and the whole list if it is small enough for the answer."""
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
    """Yield the items of an asynchronous iterator."""
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
