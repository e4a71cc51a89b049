"""Regular expressions in linear time.

The work of a search is proportional to the length of the text times that of the expression. The syntax is Python's,
without back-references, lookahead and lookbehind, which are not possible in linear time. An expression is compiled to a
small program, and all ways to match it are followed in parallel (Pike's algorithm). The caller passes a `charge` that
counts the work and may stop it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

#: Maximum number of instructions of one expression, with counted repetitions expanded.
MAX_PROGRAM = 4_000
MAX_PATTERN = 2_000
_MAX_REPEAT = 1_000
_MAX_DEPTH = 50

Charge = Callable[[int], None]
#: Returns whether a character matches.
Chars = Callable[[str], bool]


class RegexError(ValueError):
    """An invalid expression; the message says why and where."""


class Match(NamedTuple):
    """A match: its position, and the texts of its groups (None for a group that did not participate)."""

    start: int
    end: int
    groups: tuple[str | None, ...]


class Regex:
    """A compiled expression."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise RegexError(f"the expression has {len(pattern)} characters; at most {MAX_PATTERN} are allowed")
        self.pattern = pattern
        parser = _Parser(pattern)
        tree = parser.parse()
        self.groups = parser.groups
        #: names of groups, by number from 1
        self.names = dict(parser.names)
        self._code: list[tuple[str, object, object]] = []
        self._emit(("group", 0, tree))
        self._add("match")

    def search(self, text: str, start: int = 0, charge: Charge | None = None) -> Match | None:
        """Return the leftmost match that begins at `start` or later."""
        return self._run(text, start, charge, anchored=False, full=False)

    def match(self, text: str, charge: Charge | None = None) -> Match | None:
        """Return a match at the beginning of the text."""
        return self._run(text, 0, charge, anchored=True, full=False)

    def fullmatch(self, text: str, charge: Charge | None = None) -> Match | None:
        """Return a match of the whole text."""
        return self._run(text, 0, charge, anchored=True, full=True)

    # -- compilation --------------------------------------------------------------------------------------------------

    def _add(self, op: str, first: object = None, second: object = None) -> int:
        if len(self._code) >= MAX_PROGRAM:
            raise RegexError("the expression is too large; use smaller repetitions")
        self._code.append((op, first, second))
        return len(self._code) - 1

    def _emit(self, node: tuple[object, ...]) -> None:
        match node:
            case ("chars", chars):
                self._add("chars", chars)
            case ("at", kind):
                self._add("at", kind)
            case ("all", parts):
                for part in parts:  # type: ignore[attr-defined]  # a list of nodes
                    self._emit(part)
            case ("any", parts):
                self._alternatives(list(parts))  # type: ignore[call-overload]  # a list of nodes
            case ("group", number, inner):
                self._add("save", 2 * number)  # type: ignore[operator]  # an int
                self._emit(inner)  # type: ignore[arg-type]  # a node
                self._add("save", 2 * number + 1)  # type: ignore[operator]  # an int
            case ("repeat", inner, least, most, lazy):
                self._repeat(inner, least, most, lazy=bool(lazy))  # type: ignore[arg-type]  # as the parser made it

    def _alternatives(self, parts: list[tuple[object, ...]]) -> None:
        ends: list[int] = []
        for index, part in enumerate(parts):
            if index == len(parts) - 1:
                self._emit(part)
                break
            split = self._add("split")
            self._emit(part)
            ends.append(self._add("go"))
            self._code[split] = ("split", split + 1, len(self._code))
        for end in ends:
            self._code[end] = ("go", len(self._code), None)

    def _repeat(self, inner: tuple[object, ...], least: int, most: int | None, *, lazy: bool) -> None:
        for _ in range(least):
            self._emit(inner)
        if most is None:
            split = self._add("split")
            self._emit(inner)
            self._add("go", split)
            self._code[split] = _split(split + 1, len(self._code), lazy=lazy)
            return
        splits: list[int] = []
        for _ in range(most - least):
            splits.append(self._add("split"))
            self._emit(inner)
        for split in splits:
            self._code[split] = _split(split + 1, len(self._code), lazy=lazy)

    # -- execution ----------------------------------------------------------------------------------------------------

    def _run(self, text: str, start: int, charge: Charge | None, *, anchored: bool, full: bool) -> Match | None:
        code = self._code
        slots: tuple[int, ...] = (-1,) * (2 * self.groups + 2)
        threads: list[tuple[int, tuple[int, ...]]] = []
        best: tuple[int, ...] | None = None
        for position in range(start, len(text) + 1):
            if best is None and not (anchored and position > start):
                seen = {place for place, _ in threads}
                self._follow(threads, seen, 0, slots, text, position)
            if not threads and (anchored or best is not None):
                break
            if charge is not None:
                charge(len(threads))
            char = text[position] if position < len(text) else ""
            coming: list[tuple[int, tuple[int, ...]]] = []
            reached: set[int] = set()
            for place, saved in threads:
                op, first, _ = code[place]
                if op == "match":
                    if full and position < len(text):
                        continue
                    best = saved
                    break
                if char and first(char):  # type: ignore[operator]  # chars
                    self._follow(coming, reached, place + 1, saved, text, position + 1)
            threads = coming
        return None if best is None else self._match_of(text, best)

    def _follow(
        self,
        threads: list[tuple[int, tuple[int, ...]]],
        seen: set[int],
        place: int,
        saved: tuple[int, ...],
        text: str,
        position: int,
    ) -> None:
        """Add every path from a position of the program that consumes no character, preferred paths first."""
        pending = [(place, saved)]
        while pending:
            current, slots = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            op, first, second = self._code[current]
            if op == "go":
                pending.append((first, slots))  # type: ignore[arg-type]  # a place
            elif op == "split":
                pending += [(second, slots), (first, slots)]  # type: ignore[list-item]  # places
            elif op == "save":
                number: int = first  # type: ignore[assignment]  # a slot
                pending.append((current + 1, (*slots[:number], position, *slots[number + 1 :])))
            elif op == "at":
                if _holds(str(first), text, position):
                    pending.append((current + 1, slots))
            else:
                threads.append((current, slots))

    def _match_of(self, text: str, slots: tuple[int, ...]) -> Match:
        groups = tuple(
            text[slots[2 * number] : slots[2 * number + 1]] if slots[2 * number + 1] >= 0 else None
            for number in range(1, self.groups + 1)
        )
        return Match(slots[0], slots[1], groups)


def _split(first: int, second: int, *, lazy: bool) -> tuple[str, object, object]:
    return ("split", second, first) if lazy else ("split", first, second)


def _holds(kind: str, text: str, position: int) -> bool:
    match kind:
        case "begin":
            return position == 0
        case "end":
            return position == len(text)
        case "line begin":
            return position == 0 or text[position - 1] == "\n"
        case "line end":
            return position == len(text) or text[position] == "\n"
        case "last line end":
            return position == len(text) or (position == len(text) - 1 and text[position] == "\n")
    before = position > 0 and _is_word(text[position - 1])
    after = position < len(text) and _is_word(text[position])
    return (before != after) == (kind == "word edge")


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _inverted(chars: Chars) -> Chars:
    return lambda char: not chars(char)


_CLASSES: dict[str, Chars] = {"d": str.isdecimal, "w": _is_word, "s": str.isspace}
_CLASSES |= {name.upper(): _inverted(chars) for name, chars in list(_CLASSES.items())}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0", "a": "\a"}
_EDGES = {"b": "word edge", "B": "no word edge", "A": "begin", "Z": "end"}


class _Parser:
    """Parses an expression into a tree.

    Nodes: ('chars', test), ('at', kind), ('all', [..]), ('any', [..]), ('group', n, tree), ('repeat', tree, least,
    most, lazy).
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0
        self.groups = 0
        self.names: dict[str, int] = {}
        self.depth = 0
        self.ignore_case = self.multi_line = self.dot_all = False

    def parse(self) -> tuple[object, ...]:
        self._flags()
        tree = self._any()
        if self.place < len(self.pattern):
            raise self._wrong("unbalanced )")
        return tree

    def _flags(self) -> None:
        """Parse `(?ims)` at the beginning."""
        end = self.pattern.find(")")
        letters = self.pattern[2:end] if self.pattern.startswith("(?") and end > 2 else ""
        if letters and set(letters) <= set("imsu"):
            self.ignore_case, self.multi_line, self.dot_all = (flag in letters for flag in "ims")
            self.place = end + 1

    def _any(self) -> tuple[object, ...]:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self._wrong(f"groups are nested deeper than {_MAX_DEPTH}")
        parts = [self._all()]
        while self._take("|"):
            parts.append(self._all())
        self.depth -= 1
        return parts[0] if len(parts) == 1 else ("any", parts)

    def _all(self) -> tuple[object, ...]:
        parts: list[tuple[object, ...]] = []
        while self.place < len(self.pattern) and self.pattern[self.place] not in "|)":
            parts.append(self._repeated(self._atom()))
        return ("all", parts)

    def _repeated(self, atom: tuple[object, ...]) -> tuple[object, ...]:
        bounds = self._bounds()
        if bounds is None:
            return atom
        if atom[0] == "at":
            raise self._wrong("nothing to repeat")
        lazy = self._take("?")
        if self._bounds() is not None:
            raise self._wrong("multiple repeat; put the inner one into (?:…)")
        return ("repeat", atom, *bounds, lazy)

    def _bounds(self) -> tuple[int, int | None] | None:
        sign = self.pattern[self.place : self.place + 1]
        if sign and sign in "*+?":
            self.place += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        end = self.pattern.find("}", self.place) if sign == "{" else -1
        if end < 0:
            return None
        low, comma, high = self.pattern[self.place + 1 : end].partition(",")
        if not (low + high).isdecimal() or (comma and not low and not high):
            return None  # a literal brace
        self.place = end + 1
        least = int(low or 0)
        most = least if not comma else int(high) if high else None
        if least > _MAX_REPEAT or (most or 0) > _MAX_REPEAT:
            raise self._wrong(f"a repetition counts at most to {_MAX_REPEAT}")
        if most is not None and most < least:
            raise self._wrong("the least number of repetitions is greater than the most")
        return least, most

    def _atom(self) -> tuple[object, ...]:
        char = self.pattern[self.place]
        self.place += 1
        if char == "(":
            return self._group()
        if char == "[":
            return ("chars", self._set())
        if char == "\\":
            return self._escape()
        if char == ".":
            return ("chars", (lambda _: True) if self.dot_all else (lambda char: char != "\n"))
        if char == "^":
            return ("at", "line begin" if self.multi_line else "begin")
        if char == "$":
            return ("at", "line end" if self.multi_line else "last line end")
        if char in "*+?":
            raise self._wrong("nothing to repeat")
        return ("chars", self._single(char))

    def _group(self) -> tuple[object, ...]:
        number = 0
        if self._take("?:"):
            pass
        elif self._take("?P<"):
            end = self.pattern.find(">", self.place)
            name = self.pattern[self.place : max(end, self.place)]
            if not name.isidentifier() or name in self.names:
                raise self._wrong(f"bad or repeated group name {name!r}")
            self.place = end + 1
            self.groups += 1
            number = self.names[name] = self.groups
        elif self._take("?"):
            raise self._wrong("only (…), (?:…), (?P<name>…), and (?ims) at the beginning are supported")
        else:
            self.groups += 1
            number = self.groups
        inner = self._any()
        if not self._take(")"):
            raise self._wrong("missing )")
        return ("group", number, inner) if number else inner

    def _escape(self) -> tuple[object, ...]:
        if self.place >= len(self.pattern):
            raise self._wrong("a single backslash at the end")
        char = self.pattern[self.place]
        if char in _EDGES:
            self.place += 1
            return ("at", _EDGES[char])
        if char in "123456789":
            raise self._wrong("back-references cannot be searched for in linear time")
        return ("chars", self._escaped_chars())

    def _escaped_chars(self) -> Chars:
        char = self.pattern[self.place]
        if char in _CLASSES:
            self.place += 1
            return _CLASSES[char]
        return self._single(self._escaped_char())

    def _escaped_char(self) -> str:
        char = self.pattern[self.place]
        self.place += 1
        digits = {"x": 2, "u": 4}.get(char)
        if digits:
            code = self.pattern[self.place : self.place + digits]
            try:
                made = chr(int(code, 16)) if len(code) == digits else ""
            except ValueError:
                made = ""
            if not made:
                raise self._wrong(f"\\{char} needs {digits} hexadecimal digits")
            self.place += digits
            return made
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isalnum() and char.isascii():
            raise self._wrong(f"unknown escape \\{char}")
        return char

    def _set(self) -> Chars:
        negated = self._take("^")
        tests: list[Chars] = []
        first = True
        while first or self.pattern[self.place : self.place + 1] != "]":
            if self.place >= len(self.pattern):
                raise self._wrong("missing ]")
            first = False
            low = self._member(tests)
            if low and self._take("-"):
                if self.pattern[self.place : self.place + 1] in ("]", ""):
                    tests += [self._single(low), self._single("-")]
                    continue
                high = self._member(tests)
                if not high or high < low:
                    raise self._wrong(f"bad range {low}-{high}")
                tests.append(self._span(low, high))
            elif low:
                tests.append(self._single(low))
        self.place += 1
        return (
            (lambda char: not any(test(char) for test in tests))
            if negated
            else (lambda char: any(test(char) for test in tests))
        )

    def _member(self, tests: list[Chars]) -> str:
        """Return the next character of a set; '' for a class, which is added to the tests."""
        char = self.pattern[self.place : self.place + 1]
        self.place += 1
        if char != "\\":
            return char
        escaped = self.pattern[self.place : self.place + 1]
        if escaped in _CLASSES:
            self.place += 1
            tests.append(_CLASSES[escaped])
            return ""
        if escaped == "b":
            self.place += 1
            return "\b"
        if not escaped:
            raise self._wrong("missing ]")
        return self._escaped_char()

    def _single(self, char: str) -> Chars:
        if self.ignore_case:
            lower = char.lower()
            return lambda char: char.lower() == lower
        return char.__eq__

    def _span(self, low: str, high: str) -> Chars:
        if self.ignore_case:
            return lambda char: low <= char.lower() <= high or low <= char.upper() <= high
        return lambda char: low <= char <= high

    def _take(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.place):
            return False
        self.place += len(text)
        return True

    def _wrong(self, problem: str) -> RegexError:
        return RegexError(f"{problem}, at character {self.place} of {self.pattern[:80]!r}")


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Regex:
    """Return the compiled expression of a pattern, cached. Raises RegexError."""
    return Regex(pattern)
