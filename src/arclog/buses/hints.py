"""Shared parts of the buses: names of subjects, streams and channels, and pending notices."""

from __future__ import annotations

import asyncio
import re

from arclog.model.config.settings import Settings, row_of
from arclog.model.errors import SettingsError
from arclog.ports.bus import Notice

# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Names on a bus: checks of settings and pools that become parts of subjects, streams and channels.

_WORD = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SUBJECT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def name_of(settings: Settings, name: str) -> str:
    """Return a setting that is used as a word of a subject, or as the name of a stream."""
    word = settings.text(name)
    if _WORD.fullmatch(word) is None:
        raise SettingsError(
            f"{row_of(name).variable}: {word!r} is not a valid name; letters, digits, _ and -, at most 32"
        )
    return word


def subject_of(settings: Settings, name: str) -> str:
    subject = settings.text(name)
    if _SUBJECT.fullmatch(subject) is None:
        raise SettingsError(
            f"{row_of(name).variable}: {subject!r} is not a subject; words of letters, digits, _ and -, separated by dots"
        )
    return subject


def token_of(pool: str) -> str:
    """Return a pool's name as one word of a subject."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "_-") else f"={ord(char):x}=" for char in pool)


# ── pending ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Pending notices, merged: for each run the highest head, for each pool the number of offers. Limited: if too many runs
# wait, the oldest are dropped and counted.


class Pending:
    """Filled by `add`, which never waits, and emptied by one sender."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._moved: dict[int, int] = {}
        self._offered: dict[str, int] = {}
        self._timer = 0
        self._ended = self._room = False
        self._some = asyncio.Event()
        #: number of dropped parts of notices
        self.dropped = 0

    def __bool__(self) -> bool:
        return self._some.is_set()

    def add(self, notice: Notice) -> None:
        for execution_id, head in notice.moved:
            # Moved to the end: the latest change is sent last, and dropped last.
            before = self._moved.pop(execution_id, 0)
            self._moved[execution_id] = max(before, head)
        for pool, count in notice.offered:
            self._offered[pool] = self._offered.get(pool, 0) + count
        if notice.timer:
            self._timer = min(self._timer or notice.timer, notice.timer)
        self._ended = self._ended or notice.ended
        self._room = self._room or notice.room
        while len(self._moved) > self._most:
            del self._moved[next(iter(self._moved))]
            self.dropped += 1
        while len(self._offered) > self._most:
            del self._offered[next(iter(self._offered))]
            self.dropped += 1
        if notice != _NOTHING:
            self._some.set()

    async def some(self) -> None:
        """Wait until there is something to send."""
        await self._some.wait()

    def take(self, runs: int, pools: int) -> Notice:
        """Take the oldest notices, at most `runs` runs and `pools` pools."""
        moved = tuple((key, self._moved.pop(key)) for key in list(self._moved)[:runs])
        offered = tuple((key, self._offered.pop(key)) for key in list(self._offered)[:pools])
        taken = Notice(moved, self._ended, offered, self._timer, self._room)
        self._ended = self._room = False
        self._timer = 0
        if not self._moved and not self._offered:
            self._some.clear()
        return taken

    def give_up(self, notice: Notice) -> None:
        """Put back a notice that could not be sent."""
        self.dropped += len(notice.moved) + len(notice.offered) + bool(notice.timer) + notice.ended + notice.room


_NOTHING = Notice()
