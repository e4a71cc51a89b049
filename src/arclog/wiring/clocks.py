"""The clocks of a machine, a home and a store."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from arclog.model.errors import ArclogError
from arclog.model.ids import MICROS
from arclog.ports.clock import Clock

# ── machine ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The machine's own clock.


def _elapsing() -> Callable[[], float]:
    """A function that returns the seconds since the machine started, including suspended time if the system has such
    a clock.
    """
    return partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


elapsed_s = _elapsing()


class SystemClock:
    """Implements `ports.clock.Clock`."""

    #: The function itself: every step asks for the time about twenty times.
    monotonic = staticmethod(elapsed_s)

    def now(self) -> int:
        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


# ── home ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The clock of a home: it continues with elapsed time when the machine's clock is set.
#
# Invariant: it never jumps. After a step of the machine's clock it follows at a rate of 1 %, so that a timer is neither early
# nor late by more than that. Leases, timers and ids use it; schedules use the machine's clock. All processes of a home
# have the same time: the file `arclog.clock` contains the time at a moment of this boot. A step above
# `engine.max_clock_step_s` is followed at once: the machine was stopped (a paused VM), or its clock had not been set
# yet.

log = logging.getLogger("arclog.engine")

CLOCK_FILE = "arclog.clock"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
#: Interval between two reads of the machine's clock.
_LOOK_S = 0.5
#: Interval between two writes of the file while this clock follows the machine's.
_WRITE_S = 30.0
#: A difference up to this is adopted at once: NTP makes such adjustments.
_SMALL_US = MICROS // 20
#: A larger difference is logged.
_STEP_US = 1 * MICROS
#: How much faster or slower this clock runs while it follows the machine's.
_SLEW = 0.01

#: Whether this system's monotonic clock includes suspended time; otherwise a suspension would look like a step.
IS_KNOWN = hasattr(time, "CLOCK_BOOTTIME")


class _Anchor(Struct, frozen=True):
    """The time of the clock at a point of a boot, and its rate."""

    boot: str
    at: float
    now: int
    pace: float


class SteadyClock:
    """Implements `ports.clock.Clock`."""

    def __init__(self, own: Clock, max_step_s: float, home: Path | None = None, *, writes: bool = True) -> None:
        """`home`: the folder of the file; None if this process is alone. `writes`: whether the file may be changed."""
        self._own = own
        self.monotonic = own.monotonic
        self._max_step_us = max_step_s * MICROS
        self._path = None if home is None else home / CLOCK_FILE
        self._writes = writes
        self._boot = _boot()
        self._at = own.monotonic()
        self._now = own.now()
        self._pace = 1.0
        #: microseconds that this clock advances in a second
        self._rate = float(MICROS)
        self._latest = 0
        #: how far the machine's clock was ahead at the last read
        self._ahead = 0
        self._look_at = self._written_at = 0.0
        anchor = self._read()
        if anchor is not None and anchor.at <= self._at:
            # It ran at its rate until it met the machine's clock, and then with that.
            plain = anchor.now + int((self._at - anchor.at) * MICROS)
            paced = anchor.now + int((self._at - anchor.at) * anchor.pace * MICROS)
            self._now = min(max(self._now, min(plain, paced)), max(plain, paced))
        self._look(self._at)
        if anchor is None:
            self._write()

    def now(self) -> int:
        elapsed = self.monotonic()
        if elapsed >= self._look_at:
            self._look(elapsed)
        now = self._now + int((elapsed - self._at) * self._rate)
        if now <= self._latest:
            return self._latest
        self._latest = now
        return now

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)

    def _look(self, elapsed: float) -> None:
        """Compare with the machine's clock."""
        self._look_at = elapsed + _LOOK_S
        now, wall = self._now + int((elapsed - self._at) * self._pace * MICROS), self._own.now()
        ahead, before, pace = wall - now, self._ahead, self._pace
        self._at, self._ahead = elapsed, ahead
        if abs(ahead) <= _SMALL_US:
            self._now, self._pace, self._rate = wall, 1.0, MICROS
        elif abs(ahead) > self._max_step_us:
            log.warning("this machine's clock was set by %.1f s; leases and timers follow it", ahead / MICROS)
            self._now, self._pace, self._rate, self._latest, self._ahead = wall, 1.0, MICROS, 0, 0
            self._write()
            return
        else:
            self._now, self._pace = now, 1 + _SLEW if ahead > 0 else 1 - _SLEW
            self._rate = self._pace * MICROS
        if abs(ahead - before) > _STEP_US:
            message = "this machine's clock was adjusted by %.1f s; timers follow it gradually, at 1 %%"
            log.warning(message, (ahead - before) / MICROS)
        if pace != self._pace or (pace != 1.0 and elapsed - self._written_at > _WRITE_S):
            self._write()

    def _read(self) -> _Anchor | None:
        if self._path is None or not self._boot:
            return None
        try:
            anchor = msgspec.json.decode(self._path.read_bytes(), type=_Anchor)
        except (OSError, msgspec.DecodeError):
            return None
        return anchor if anchor.boot == self._boot else None

    def _write(self) -> None:
        if self._path is None or not self._boot or not self._writes:
            return
        self._written_at = self._at
        anchor = _Anchor(self._boot, self._at, self._now, self._pace)
        partial = self._path.with_name(f".{CLOCK_FILE}.{os.getpid()}")
        with suppress(OSError):
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(anchor) + b"\n")
            partial.replace(self._path)


def _boot() -> str:
    """The id of this boot; '' if it is unknown."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


# ── store ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The store's clock, as a server sees it: several servers use this one for leases and timers, whatever their own clocks
# show.
#
# Invariant: it is never ahead of the store's, so no timer fires early and no lease is taken over too soon; it is behind by
# less than the store took to answer. Between two reads it advances with elapsed time, including time that the machine
# was suspended. It does not go back, unless the store's own clock was set back: then it follows and logs that.

#: A larger difference is not drift: a clock was set, or the machine was stopped.
_JUMP_US = 1 * MICROS
#: A response that took longer is too imprecise and is ignored.
_SLOW_S = 0.5


class StoreClock:
    """Implements `ports.clock.Clock`."""

    def __init__(
        self, store_time: Callable[[], Awaitable[int]], own: Clock, elapsed: Callable[[], float] = elapsed_s
    ) -> None:
        self._store_time = store_time
        self._own = own
        self.monotonic = own.monotonic
        self._elapsed = elapsed
        #: the store's time at a point of this machine's elapsed time
        self._measured = 0
        self._measured_at = 0.0
        self._is_measured = False
        #: the latest time that was returned; no earlier one is
        self._latest = 0

    def now(self) -> int:
        if not self._is_measured:
            return self._own.now()
        now = self._measured + int((self._elapsed() - self._measured_at) * MICROS)
        if now <= self._latest:
            return self._latest
        self._latest = now
        return now

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)

    async def measure(self) -> None:
        """Read the store's clock. Raises the store's errors."""
        requested_at = self._elapsed()
        store_now = await self._store_time()
        answered = self._elapsed()
        if not self._is_measured:
            self._measured, self._measured_at, self._is_measured = store_now, answered, True
            apart = (self._own.now() - store_now) / MICROS
            if abs(apart) * MICROS > _JUMP_US:
                log.warning("this machine's clock is %.1f s off the store's; the store's counts", apart)
            return
        if answered - requested_at > _SLOW_S:
            return
        off = store_now - self._measured - int((answered - self._measured_at) * MICROS)
        self._measured, self._measured_at = store_now, answered
        # This clock is behind the store's by the duration of the request; only a larger difference counts.
        if off > _JUMP_US or off < -_JUMP_US - round((answered - requested_at) * MICROS):
            log.warning("the store's clock jumped by %.1f s; leases and timers follow it", off / MICROS)
            self._latest = min(self._latest, store_now)

    async def follow(self, every_s: float) -> None:
        """Read the store's clock at this interval, forever."""
        while True:
            await self._own.sleep(every_s)
            try:
                await self.measure()
            except ArclogError as problem:
                log.info("the store's clock was not read: %s; looking again in %g s", problem, every_s)
