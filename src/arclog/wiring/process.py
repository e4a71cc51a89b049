"""The process of a program of arclog: its event loop, its garbage collections, and its protection from other processes.

Programs run on uvloop if it is installed, which is faster than asyncio's own loop. A program that embeds arclog uses
its own loop; nothing else depends on the loop.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from arclog.model.config.settings import Settings
from arclog.sandbox.child import kernel

T = TypeVar("T")

#: New objects after which the garbage collector runs; the command line sets the same at its start. A thousand live runs
#: are many objects with few cycles: with Python's default of 700, a fifth of the time is spent in collections.
_NEW_OBJECTS = 50_000
#: How long a thread that returns from the disk waits for a busy event loop, after every statement: with Python's
#: default of 5 ms a read of a few rows takes longer than a step. The same applies to the event loop while a thread
#: makes a heavy decision.
_SWITCH_S = 0.0005
#: whether `run` runs this program
_is_own = False


def run(work: Coroutine[Any, Any, T], *, briefly: bool = False) -> T:
    """Like asyncio.run. `briefly`: the program is so short that loading uvloop would cost more than it saves; and it
    handles Ctrl-C itself.
    """
    global _is_own  # noqa: PLW0603 - as the collector's settings, which belong to the process, too
    _is_own = True
    gc.freeze()  # imported objects stay
    gc.set_threshold(_NEW_OBJECTS)
    sys.setswitchinterval(_SWITCH_S)
    if briefly:
        signal.signal(signal.SIGINT, _interrupt)  # asyncio leaves a handler that is not Python's own as it is
        return asyncio.run(work)
    try:
        import uvloop
    except ImportError:  # an accelerator only: the extra `server` brings it
        return asyncio.run(work)
    _fill_streams()
    return uvloop.run(work)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def freeze_imports() -> None:
    """Exclude everything loaded so far from garbage collections, which stop the event loop. Only if `run` runs the
    program; otherwise the collector belongs to the calling program.
    """
    if _is_own:
        gc.collect()
        gc.freeze()


def protect_process(settings: Settings) -> None:
    """Protect the memory, environment and files of this process from other processes of the same user, also without
    Landlock or namespaces. Debuggers then need root.
    """
    if settings.text("tasks.confinement") != "off":
        kernel.prctl(kernel.DUMPABLE, 0)


def _fill_streams() -> None:
    """If standard streams are closed, uvloop must not get their descriptors for its own files: it would abort."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
