"""A task's value that comes item by item: sent as a plain list while it is small, streamed to the worker once it is not.

Memory does not grow with the number of items: each is JSON text as soon as it comes, and a batch is sent when it is full.
"""

# Stand-alone and light: the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import tables, values
from .speech import Speech

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
    rows = tables.rows_of(value, "result", values.column_names)
    if rows is not None:
        return rows
    return value if hasattr(kind, "__next__") or hasattr(kind, "__anext__") else None


def streamed(stream: Any, speech: Speech, inline_max: int, max_item: int) -> tuple[int, bytes]:
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
            speech.items(parts)
            sent, size, limit = count, 0, _BATCH_BYTES
            parts.clear()
    if sent:
        if parts:
            speech.items(parts)
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
