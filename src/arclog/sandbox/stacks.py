"""Where a python task was when it was stopped: what `faulthandler` wrote, in the form of a traceback."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_MOST_THREADS = 5


def as_traceback(dumped: str, name: str, code: str) -> str:
    """The stack of each thread from the task's own code on, the innermost call last; '' when that is in none. `name` is
    the file name that the task's `code` was compiled under.
    """
    lines = code.splitlines()
    shown: list[str] = []
    for thread in _threads(dumped):
        frames = thread[::-1]
        first = next((index for index, frame in enumerate(frames) if frame[0] == name), None)
        if first is None:
            continue
        head = "Stack when it was stopped (most recent call last):" if not shown else "Another thread:"
        shown += [head, *(line for frame in frames[first:] for line in _shown(frame, name, lines))]
    return "\n".join(shown) + "\n" if shown else ""


def _threads(dumped: str) -> list[list[tuple[str, str, str]]]:
    """The frames of each thread, the current one first."""
    threads: list[tuple[bool, list[tuple[str, str, str]]]] = []
    for line in dumped.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append((line.startswith("Current"), []))
        elif threads and (match := _FRAME.match(line)):
            threads[-1][1].append((match[1], match[2], match[3]))
    ordered = sorted(threads, key=lambda thread: not thread[0])
    return [frames for _, frames in ordered[:_MOST_THREADS]]


def _shown(frame: tuple[str, str, str], name: str, lines: Sequence[str]) -> list[str]:
    file, line, function = frame
    shown = [f'  File "{file}", line {line}, in {function}']
    if file == name and line.isdigit() and 0 < int(line) <= len(lines):
        shown.append(f"    {lines[int(line) - 1].strip()}")
    return shown
