"""Text output for people: colours, glyphs, durations, tables, and the stream that they are written to.

Text from a run (names, messages, printed text, results) passes through `clean` before it is written to a terminal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

#: Control characters (C0, DEL, C1) except tab: a terminal would interpret them.
_CONTROLS: dict[int, str] = {code: f"\\x{code:02x}" for code in (*range(9), *range(10, 32), *range(127, 160))}
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}

#: word → (glyph, glyph where the terminal has no UTF-8, colour)
MARKS: dict[str, tuple[str, str, str]] = {
    "done": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "skipped": ("–", "-", "dim"),
    "running": ("●", "*", "cyan"),
    "open": ("○", "o", "dim"),
    "queued": ("○", "o", "dim"),
    "cancelled": ("⊘", "!", "yellow"),
}
STATE_MARKS = {
    "COMPLETED": "done",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "RUNNING": "running",
    "PENDING": "open",
}
_PLAIN = str.maketrans({"·": "-", "…": "~", "│": "|", "├": "|", "└": "`", "─": "-", "█": "#", "░": ".", "×": "x"})
_PLAIN.update({ord(mark): plain for mark, plain, _ in MARKS.values()})

#: Line ends for many readers (`str.splitlines`) but not for JSON; they are escaped, so that one value is always one
#: line.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


class Out:
    """The output of a command: its stream, its format, and the features of the terminal."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.as_json = as_json
        self.quiet = quiet
        self.tty = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.colour = self.tty and not os.environ.get("NO_COLOR")
        #: set by commands that continue when their output can no longer be written
        self.outlives_reader = False
        self._gone = False
        #: prints a line above a display that is being redrawn; None while there is none
        self.interject: Callable[[str], None] | None = None
        #: restores the terminal's modes, if they were changed; called before the program exits early
        self.restore: Callable[[], None] | None = None

    def notice(self, text: str) -> None:
        """Print a message that is not output: to stderr, or above the display that is being redrawn."""
        line = f"arclog: {clean(text)}"
        if self.interject is not None:
            self.interject(line)
        else:
            sys.stderr.write(printable(line + "\n", sys.stderr))
            sys.stderr.flush()

    def print(self, text: str = "") -> None:
        self.write(text + "\n")

    def write(self, text: str) -> None:
        if self._gone:
            return
        try:
            self.stream.write(printable(text, self.stream))
            self.stream.flush()
        except OSError as problem:
            if not self.outlives_reader:
                raise
            self._gone = True
            if not isinstance(problem, BrokenPipeError):
                self.notice(f"cannot write to stdout ({problem.strerror}); the run continues")
            # Discard the buffered output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    def data(self, value: Any) -> None:
        """One JSON value; on one line unless a person reads it."""
        self._write_json(json_text(value, indent=2 if self.tty else 0) + "\n")

    def lines(self, values: Iterable[Any]) -> None:
        """JSON values, each on one line."""
        self._write_json("".join(json_text(value) + "\n" for value in values))

    def _write_json(self, text: str) -> None:
        """Write JSON as UTF-8, whatever the encoding of the terminal, so that no character is replaced."""
        try:
            text.encode(self.stream.encoding or "utf-8")
        except UnicodeEncodeError:
            self.stream.buffer.write(text.encode())
            self.stream.flush()
        else:
            self.write(text)

    def paint(self, text: str, *styles: str) -> str:
        if not self.colour or not styles or not text:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def mark(self, status: str) -> str:
        """The coloured glyph of a step's status."""
        glyph, _, colour = MARKS.get(status, MARKS["open"])
        return self.paint(glyph, colour)

    def state(self, state: str) -> str:
        """A run's state with its glyph."""
        glyph, _, colour = MARKS[STATE_MARKS.get(state, "open")]
        return self.paint(f"{glyph} {state.lower()}", colour)

    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        try:
            size = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            return 100, 40
        return size.columns or 100, size.lines or 40


def out_of(options: Any) -> Out:
    return Out(as_json=options.json, quiet=options.quiet)


def json_text(value: Any, indent: int = 0) -> str:
    import msgspec

    body = msgspec.json.encode(value)
    return (msgspec.json.format(body, indent=indent) if indent else body).decode().translate(_LINE_ENDS)


def printable(text: str, stream: TextIO) -> str:
    """The text in characters that the stream's encoding has."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def clean(text: str) -> str:
    """Return the text with every control character made visible; line ends stay."""
    if text.isprintable():
        return text
    return "\n".join(line.translate(_CONTROLS) for line in text.replace("\r\n", "\n").split("\n"))


def one_line(text: str) -> str:
    return clean(" ".join(text.split()))


def width_of(text: str) -> int:
    """Return the number of columns of a text without control characters."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def clip(text: str, columns: int) -> str:
    """Return the text cut to this many columns."""
    if width_of(text) <= columns:
        return text
    while text and width_of(text) > columns - 1:
        text = text[: max(0, columns - 1)] if text.isascii() else text[:-1]
    return text + "…"


def duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 0.0095:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def milliseconds(took: int | None) -> str:
    """A duration in milliseconds, or a dash if there is none."""
    return "–" if took is None else duration(took / 1000)


def between(started: str | None, ended: str | None) -> str:
    """The duration, or '' if it has not ended."""
    if not started or not ended:
        return ""
    from arclog.model.ids import micros

    return duration((micros(ended) - micros(started)) / 1e6)


def moment(timestamp: str | None, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """An RFC 3339 time as local time."""
    if not timestamp:
        return ""
    from arclog.model.ids import micros

    return time.strftime(form, time.localtime(micros(timestamp) / 1e6))


def clock_time(timestamp: str) -> str:
    """Local time of day with milliseconds."""
    from arclog.model.ids import micros

    at = micros(timestamp)
    return f"{time.strftime('%H:%M:%S', time.localtime(at / 1e6))}.{at // 1000 % 1000:03d}"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: int, out: Out, right: Sequence[int] = ()) -> str:
    """A table whose columns are as wide as their content; the last one is cut at the edge. Cells may be coloured."""
    widths = [max(width_of(bare(cell)) for cell in column) for column in zip(head, *rows, strict=True)]
    room = columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
    lines = []
    for number, row in enumerate((head, *rows)):
        cells = []
        for index, cell in enumerate(row):
            if index == len(row) - 1:
                cells.append(clip(cell, max(room, 20)) if bare(cell) == cell else cell)
                continue
            gap = " " * (widths[index] - width_of(bare(cell)))
            cells.append(gap + cell if index in right else cell + gap)
        line = "  ".join(cells).rstrip()
        lines.append(out.paint(line, "dim") if number == 0 else line)
    return "\n".join(lines)


def bare(text: str) -> str:
    """The text without colours."""
    if "\x1b" not in text:
        return text
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def pretty(value: Any, *, most_lines: int = 40, most_columns: int = 400, full_command: str = "") -> str:
    """Return a value for people: text unchanged, other data as indented JSON. A cut text ends with a note on where the
    rest is.
    """
    text = value if isinstance(value, str) else _shallow(value)
    lines = clean(text).split("\n")
    cut = len(lines) > most_lines or any(len(line) > most_columns for line in lines)
    lines = [clip(line, most_columns) for line in lines[:most_lines]]
    if cut:
        lines.append(f"… truncated{f'; for all of it: {full_command}' if full_command else ''}")
    return "\n".join(lines)


def stored(ref: dict[str, Any]) -> str:
    """Stored data for people: its size and its reference."""
    meta = ref.get("meta") or {}
    rows = meta.get("rows", ref.get("total"))
    size = f"{meta['bytes']:,} bytes" if "bytes" in meta else ""
    many = counted(rows, "item") if rows is not None else ""
    return f"stored {', '.join(filter(None, (many, size)))}: {clean(str(ref.get('ref', '')))}"


def _shallow(value: Any) -> str:
    """JSON on one line when that is short, else indented."""
    text = json_text(value)
    return text if len(text) <= 76 else json_text(value, indent=2)


def indented(text: str, by: str = "  ") -> str:
    return "\n".join(by + line if line else line for line in text.split("\n"))
