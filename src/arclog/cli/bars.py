"""Bars: how far something is, how fast it goes and how long it will take. Pure: numbers in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from arclog.cli.render import Out, clip, duration

WIDTH = 24
#: a rate over less time than this says nothing
_SHORTEST_S = 0.2
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Said(msgspec.Struct, frozen=True):
    """What a task said of itself, as its line in the log holds it."""

    done: float
    total: float | None = None
    unit: str = ""


class Reported:
    """How far a task is by its own words, from the first to the latest."""

    __slots__ = ("_begun", "_first", "at", "attempt", "said")

    def __init__(self, attempt: tuple[Any, ...], said: Said, at: int) -> None:
        #: names the attempt that says it
        self.attempt = attempt
        self.said = said
        self.at = at
        self._first = said.done
        self._begun = at

    def advance(self, said: Said, at: int) -> None:
        if said.done < self.said.done:  # it counts again
            self._first, self._begun = said.done, at
        self.said = said
        self.at = at

    @property
    def rate(self) -> float:
        """Per second; 0 while it cannot be told."""
        seconds = (self.at - self._begun) / 1e6
        return (self.said.done - self._first) / seconds if seconds > _SHORTEST_S else 0.0

    @property
    def text(self) -> str:
        """How much, how fast, how long it will take."""
        said = self.said
        facts = [_count(said)]
        if self.rate > 0:
            facts.append(f"{_amount(self.rate, said.unit, rate=True)}/s")
            if said.total:
                facts.append(f"{duration(max(0.0, said.total - said.done) / self.rate)} left")
        return " · ".join(facts)

    def line(self, columns: int, branch: str, out: Out) -> str:
        said, text = self.said, self.text
        if not said.total:
            return f"{out.paint(branch, 'dim')}   {out.paint(clip(text, max(columns - 8, 10)), 'dim')}"
        return bar(said.done / said.total, text, columns, branch, out)


def reported(line: Mapping[str, Any]) -> Said | None:
    """What a line of the stream `progress` says; None when it is no such thing."""
    try:
        return msgspec.json.decode(line["text"], type=Said)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def reported_text(text: str) -> str:
    """The same for a reader of the log."""
    said = reported({"text": text})
    return text if said is None else _count(said)


def bar(part: float, text: str, columns: int, branch: str, out: Out) -> str:
    """A line with a bar that is filled to a part, and text behind it."""
    filled = max(0, min(WIDTH, int(part * WIDTH)))
    drawn = out.paint("█" * filled, "green") + out.paint("░" * (WIDTH - filled), "dim")
    return f"{out.paint(branch, 'dim')}   {drawn} {out.paint(clip(text, max(columns - WIDTH - 8, 10)), 'dim')}"


def per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def _count(said: Said) -> str:
    """`12/48 rows`, `3.0 MiB/1.0 GiB`, or without a total `12 rows`."""
    done = _amount(said.done, said.unit)
    text = done if said.total is None else f"{done}/{_amount(said.total, said.unit)}"
    return text if _is_bytes(said.unit) or not said.unit else f"{text} {said.unit}"


def _amount(number: float, unit: str, *, rate: bool = False) -> str:
    if _is_bytes(unit):
        power = 0
        while number >= 1024 and power < len(_SIZES) - 1:
            number /= 1024
            power += 1
        return f"{number:.0f} {_SIZES[power]}" if power == 0 else f"{number:.1f} {_SIZES[power]}"
    if rate:
        return per_second(number).removesuffix("/s")
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"


def _is_bytes(unit: str) -> bool:
    return unit.lower() in ("b", "byte", "bytes")
