"""How programs that run work run: on uvloop if it is installed, whose turns cost less than those of asyncio's own loop,
and seldom stopping to look for garbage. Whoever embeds arclog brings a loop of theirs: nothing else depends on which one
it is.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: New objects after which cycles are looked for, as the command line has it from its start. A thousand live runs are many
#: objects and few cycles: at Python's own 700 a fifth of the time goes into looking.
_NEW_OBJECTS = 50_000
#: How long a thread that is back from the disk waits for a busy event loop, after every statement: at Python's own 5 ms a read
#: of a few rows takes longer than a step. The same holds for the event loop while a thread makes a heavy decision.
_SWITCH_S = 0.0005


def run(work: Coroutine[Any, Any, T], *, briefly: bool = False) -> T:
    """Like asyncio.run. `briefly`: for so short a time that loading uvloop would cost more than it saves."""
    gc.freeze()  # what was imported stays
    gc.set_threshold(_NEW_OBJECTS)
    sys.setswitchinterval(_SWITCH_S)
    if briefly:
        return asyncio.run(work)
    try:
        import uvloop
    except ImportError:  # an accelerator only: the extra `server` brings it
        return asyncio.run(work)
    _fill_streams()
    return uvloop.run(work)


def _fill_streams() -> None:
    """Whoever started us with closed standard streams: uvloop must not get their numbers for its own files (it aborts)."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
