"""The event loop of programs that run work: uvloop, whose turns cost a fraction of those of asyncio's own loop.

Whoever embeds arclog brings a loop of theirs: nothing else depends on which one it is.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run."""
    return uvloop.run(work)
