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
#: whether `run` runs this program
_is_own = False


def run(work: Coroutine[Any, Any, T], *, briefly: bool = False) -> T:
    """Like asyncio.run. `briefly`: for so short a time that loading uvloop would cost more than it saves."""
    global _is_own  # noqa: PLW0603 - as the collector's settings, which belong to the process, too
    _is_own = True
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


def freeze_imports() -> None:
    """What a program has loaded by the time that it begins to serve stays: later looks for garbage pass it over, and each
    of them stops the event loop. Only where `run` runs the program: elsewhere the collector is somebody else's.
    """
    if _is_own:
        gc.collect()
        gc.freeze()


def _fill_streams() -> None:
    """Whoever started us with closed standard streams: uvloop must not get their numbers for its own files (it aborts)."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
