"""A server that measures what a collection holds: run_steady.py FILE ARGUMENT…, the arguments being those of `arclog`

After each collection FILE contains `Figures` as JSON. Nothing else of the server is changed. The event loop is observed by a
task that sleeps for a millisecond at a time: the delay of a wake-up is a hold, accurate to about a millisecond. On a busy
machine a hold includes the time in which other processes had the processor.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from arclog.cli.main import main
from arclog.engine.duties.garbage_collection import Collection
from arclog.ports.views.api import Collected
from arclog.stores.sqlite.connection.writer import Writer

_BEAT_S = 0.001
_LONG_S = 0.010


@dataclass
class Held:
    """How long the event loop did not run a task that was due."""

    longest_s: float = 0.0
    #: the longest processor time of the loop's thread between two beats; the rest of a hold is waiting
    longest_cpu_s: float = 0.0
    #: holds of more than 10 ms, and the seconds in which they were counted
    long: int = 0
    seconds: float = 0.0

    def note(self, gap_s: float, cpu_s: float) -> None:
        held = max(gap_s - _BEAT_S, 0.0)
        self.longest_s = max(self.longest_s, held)
        self.longest_cpu_s = max(self.longest_cpu_s, cpu_s)
        self.long += held > _LONG_S
        self.seconds += gap_s


@dataclass
class Figures:
    collecting: Held
    otherwise: Held
    #: the collector's transactions on the writer, commits included
    transactions: int = 0
    longest_transaction_s: float = 0.0
    #: the processor time of the one that took most of it
    longest_transaction_cpu_s: float = 0.0
    long_transactions: int = 0
    collections: int = 0
    collected: int = 0
    collecting_s: float = 0.0


def watch(file: str) -> None:
    """From the first collection on, keep figures in `file`."""
    figures = Figures(Held(), Held())
    under_way = 0
    beats: list[asyncio.Task[None]] = []
    collect, carry_out = Collection.collect, Writer._carry_out_unsynced

    async def beat() -> None:
        at, cpu = time.perf_counter(), time.thread_time()
        while True:
            was = under_way
            await asyncio.sleep(_BEAT_S)
            now, used = time.perf_counter(), time.thread_time()
            (figures.collecting if was or under_way else figures.otherwise).note(now - at, used - cpu)
            at, cpu = now, used

    async def collected(self: Collection, **more: Any) -> Collected:
        nonlocal under_way
        if not beats:
            beats.append(asyncio.ensure_future(beat()))
            await asyncio.sleep(_BEAT_S)
        under_way += 1
        began = time.perf_counter()
        try:
            done = await collect(self, **more)
            figures.collections += 1
            figures.collected += done.executions
            return done
        finally:
            under_way -= 1
            figures.collecting_s += time.perf_counter() - began
            await asyncio.to_thread(_write, file, json.dumps(asdict(figures)))

    def carried_out(self: Writer, group: list[Any]) -> list[Any]:
        began, cpu = time.perf_counter(), time.thread_time()
        try:
            return carry_out(self, group)
        finally:
            took = time.perf_counter() - began
            figures.transactions += 1
            figures.longest_transaction_s = max(figures.longest_transaction_s, took)
            figures.longest_transaction_cpu_s = max(figures.longest_transaction_cpu_s, time.thread_time() - cpu)
            figures.long_transactions += took > _LONG_S

    Collection.collect = collected  # type: ignore[method-assign]  # watched
    Writer._carry_out_unsynced = carried_out  # type: ignore[method-assign]  # watched


def _write(file: str, figures: str) -> None:
    partial = f"{file}.new"
    with open(partial, "w", encoding="utf-8") as text:
        text.write(figures)
    os.replace(partial, file)


if __name__ == "__main__":
    watch(sys.argv[1])
    sys.argv[:2] = ["arclog"]
    main()
