"""Shows a run while it continues. Reading takes at most a fifth of the time, and never delays the end."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any

from arclog.cli.render import Out, clean, duration
from arclog.cli.runs.progress import FINAL_TYPES, SHOWN_TYPES, Progress, progress_text, tree
from arclog.model.events import TERMINAL
from arclog.ports.storage.task_logs import PROGRESS, LogFilter
from arclog.ports.views.api import Api, Following

_FRAME_S = 0.1
_PAGE = 1000
#: number of latest events that are read in full while a run continues; of earlier ones, only those that stay visible
_DETAIL = 2000
#: maximum number of pages of events read at once; the rest comes with the next frame
_MOST_PAGES = 5
#: log lines that are shown after the end; `arclog logs` has the rest
_LAST_LOGS = 2000
_WITH_PROGRESS = LogFilter(streams=("stdout", "stderr", "log", PROGRESS))


async def watch(api: Api, execution_id: str, out: Out, *, resumed: bool = False, every_s: float = 5.0) -> None:
    """Show a run until it has ended. Events before it was resumed are not printed again. Without a terminal, a line
    shows the progress of loops and tasks every `every_s` seconds.
    """
    view = _Tree(out) if out.tty else _Lines(out, every_s)
    reader = _Reader(api, execution_id)
    if resumed:
        await reader.catch_up()
    try:
        if isinstance(api, Following):
            await _as_sent(api, execution_id, reader, view)
        else:
            await _as_read(api, execution_id, reader, view)
    finally:
        view.close()


async def _as_read(api: Api, execution_id: str, reader: _Reader, view: _Tree | _Lines) -> None:
    """The run is in this process, or in this home: it is polled, which costs little."""
    pause = _FRAME_S
    while not await api.ended(execution_id, timeout_s=pause):
        began = time.monotonic()
        head = await api.wait(execution_id, timeout_s=0)
        view.frame(reader.progress, await reader.read(head))
        pause = max(_FRAME_S, 4 * (time.monotonic() - began))
    view.end(reader.progress, await reader.finish())


async def _as_sent(api: Following, execution_id: str, reader: _Reader, view: _Tree | _Lines) -> None:
    """The run is at a server, which streams its events, so there is no polling."""
    lines: list[dict[str, Any]] = []

    async def events() -> None:
        async with aclosing(api.follow(execution_id, after=reader.seq, types=SHOWN_TYPES)) as coming:
            async for event in coming:
                reader.progress.apply(event)
                reader.seq = event["seq"]
                if event["event_type"] in TERMINAL and not event.get("informative"):  # nothing after it is shown
                    return

    def take(line: dict[str, Any]) -> None:
        if line["position"] <= reader.log:
            return
        reader.log = line["position"]
        if line["stream"] == PROGRESS:
            reader.progress.advance(line)
        else:
            lines.append(line)

    async def logs() -> None:
        async for line in api.follow_logs(execution_id, after=reader.log, where=_WITH_PROGRESS):
            take(line)

    async def before_its_end() -> None:
        """The output of a step is shown before its end, although the two are sent separately."""
        while reader.progress.ends:
            page = await reader.new_logs()
            for line in page:
                take(line)
            if len(page) < _PAGE:
                return

    def new_lines() -> list[dict[str, Any]]:
        new = lines.copy()
        lines.clear()
        return new

    following, printed = asyncio.ensure_future(events()), asyncio.ensure_future(logs())
    try:
        while not following.done():
            await asyncio.wait((following,), timeout=_FRAME_S)
            await before_its_end()
            view.frame(reader.progress, new_lines())
            if printed.done():
                printed.result()
        following.result()
        while not printed.done() and len(lines) < _LAST_LOGS:
            await asyncio.wait((printed,), timeout=_FRAME_S)
        if printed.done():
            printed.result()
        view.end(reader.progress, new_lines())
    finally:
        for task in (following, printed):
            task.cancel()
        await asyncio.gather(following, printed, return_exceptions=True)


class _Reader:
    """Follows events and logs of one run."""

    def __init__(self, api: Api, execution_id: str) -> None:
        self.progress = Progress()
        self._api = api
        self._id = execution_id
        #: seq of the last event that was read
        self.seq = 0
        #: position of the last log line
        self.log = 0

    async def catch_up(self) -> None:
        """Read earlier events without printing them."""
        while await self._page(FINAL_TYPES, 0):
            pass
        self.progress.ends.clear()
        while await self._logs():
            pass

    async def read(self, head: int) -> list[dict[str, Any]]:
        """Read new events; returns the new log lines."""
        if await self._skip(head - _DETAIL) and head > self.seq:
            for _ in range(_MOST_PAGES):
                if not await self._page(SHOWN_TYPES, head):
                    break
        return await self._logs()

    async def _skip(self, upto: int) -> bool:
        """Read older events without their details, since they are no longer visible; returns whether all of them are
        read.
        """
        for _ in range(_MOST_PAGES):
            if upto <= self.seq:
                return True
            page = await self._api.events(self._id, after=self.seq, limit=_PAGE, types=FINAL_TYPES)
            old = [event for event in page if event["seq"] <= upto]
            for event in old:
                self.progress.apply(event)
            self.seq = old[-1]["seq"] if len(old) == _PAGE else upto
        return upto <= self.seq

    async def finish(self) -> list[dict[str, Any]]:
        """Read the rest after the run has ended, without details that are no longer visible."""
        while await self._page(FINAL_TYPES, 0):
            pass
        lines: list[dict[str, Any]] = []
        while len(lines) < _LAST_LOGS:
            more = await self._logs()
            if not more:
                break
            lines += more
        return lines

    async def _page(self, types: tuple[str, ...], head: int) -> bool:
        """Read one page of events; returns whether there may be more."""
        page = await self._api.events(self._id, after=self.seq, limit=_PAGE, types=types)
        for event in page:
            self.progress.apply(event)
        last = page[-1]["seq"] if page else 0
        self.seq = last if len(page) == _PAGE else max(head, self.seq, last)
        return len(page) == _PAGE

    async def new_logs(self) -> list[dict[str, Any]]:
        """A page of lines after the last one, not marked as read."""
        return await self._api.logs(self._id, after=self.log, limit=_PAGE, where=_WITH_PROGRESS)

    async def _logs(self) -> list[dict[str, Any]]:
        """Return new lines; those that report progress go to the tree instead."""
        while lines := await self.new_logs():
            self.log = lines[-1]["position"]
            for line in lines:
                if line["stream"] == PROGRESS:
                    self.progress.advance(line)
            printed = [line for line in lines if line["stream"] != PROGRESS]
            if printed:
                return printed
        return []


class _Lines:
    """For pipes and files: a line when a step ends, and periodically the progress of the others."""

    def __init__(self, out: Out, every_s: float) -> None:
        self._out = out
        self._held = ""
        self._every_s = every_s
        self._next = time.monotonic() + every_s
        #: the last line that was printed for each step
        self._printed: dict[str, str] = {}

    def frame(self, progress: Progress, logs: list[dict[str, Any]]) -> None:
        lines = [log_line(line, self._out) for line in logs]
        for step, run, status, seconds, detail in progress.ends:
            again = f" ×{run:,}" if run > 1 else ""
            took = f"  {duration(seconds)}" if seconds is not None else ""
            lines.append(f"{self._out.mark(status)} {step}{again}{took}{f'  {detail}' if detail else ''}")
        progress.ends.clear()
        lines += self._going_on(progress)
        if progress.held != self._held:
            self._held = progress.held
            lines.append(f"‖ {self._held}" if self._held else "‖ resumed")
        if lines:
            self._out.print("\n".join(lines))

    def _going_on(self, progress: Progress) -> list[str]:
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + self._every_s
        lines = []
        for step in progress.steps.values():
            text = progress_text(step, time.time_ns() // 1000) if step.open else ""
            if text and self._printed.get(step.name) != text:
                self._printed[step.name] = text
                lines.append(self._out.paint(f"… {text}", "dim"))
        return lines

    def end(self, progress: Progress, logs: list[dict[str, Any]]) -> None:
        self._held = progress.held
        self._next = float("inf")
        self.frame(progress, logs)

    def close(self) -> None:
        pass


class _Tree:
    """For terminals: the tree of steps, redrawn in place; log lines pass above it."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._drawn = 0
        self._hidden = False
        self._notices: list[str] = []
        out.interject = self._notices.append

    def frame(self, progress: Progress, logs: list[dict[str, Any]]) -> None:
        progress.ends.clear()
        columns, rows = self._out.size()
        lines = tree(progress, time.time_ns() // 1000, columns - 1, rows - 2, self._out)
        self._draw([*(log_line(line, self._out) for line in logs), *self._take_notices()], lines)

    def end(self, progress: Progress, logs: list[dict[str, Any]]) -> None:
        self.frame(progress, logs)
        self._drawn = 0

    def close(self) -> None:
        self._out.interject = None
        self._out.write("".join(f"{line}\n" for line in self._take_notices()) + ("\x1b[?25h" if self._hidden else ""))
        self._hidden = False

    def _take_notices(self) -> list[str]:
        notices = self._notices.copy()
        self._notices.clear()
        return notices

    def _draw(self, above: list[str], lines: list[str]) -> None:
        back = f"\x1b[{self._drawn}A\r\x1b[J" if self._drawn else ""
        if not self._hidden and lines:
            back = "\x1b[?25l" + back
            self._hidden = True
        self._out.write(back + "".join(f"{line}\n" for line in (*above, *lines)))
        self._drawn = len(lines)


def log_line(line: dict[str, Any], out: Out) -> str:
    """A line that a task printed, distinguished from arclog's own lines."""
    where = line["step"]
    return "\n".join(out.paint(f"  {where} │ {text}", "dim") for text in clean(line["text"]).rstrip("\n").split("\n"))
