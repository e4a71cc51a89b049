"""Redaction: removes known secrets from texts, JSON values and byte streams before they are written.

Invariant: a secret is found as it is and in the encodings of other programs (escapes of JSON, Python, HTML and shells,
percent and plus encoding, base64 at any alignment and wrapped into lines; a number also in other notations of the same
value). The mask names the keychain entry and nothing else. A secret shorter than SHORTEST cannot be distinguished from
ordinary text: it is removed only if it is a whole value.

Programs cut texts, so the larger part of a secret is also found at the end and at the beginning of a text. Each
spelling has an anchor, a literal that every match contains; patterns are compiled and tried only where the anchor
occurs.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, AnyStr

from msgspec.json import encode

#: Minimum length of a secret that is searched for inside longer texts.
SHORTEST = 4
#: Minimum length of a line of a multi-line secret that is searched for separately.
SHORTEST_LINE = 8
#: Minimum length of a part of a secret at the edge of a text.
_SHORTEST_PIECE = 12
#: Maximum length of one pattern; the rest of a longer secret is matched piece by piece after it.
_LONGEST_PATTERN = 256
#: Minimum length of an anchor; shorter ones occur everywhere.
_SHORTEST_ANCHOR = 3

_B64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_RUNS = re.compile(r"[A-Za-z0-9]+")
_PIECES = re.compile(r"\\+|[^\\]", re.DOTALL)
_CONTROLS = {"\n": "n", "\t": "t", "\r": "r", "\b": "b", "\f": "f"}
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
#: Minimum length of a row of wrapped base64.
_SHORTEST_ROW = 32
#: Minimum and maximum length of a text that may be a single such row, as in a log that is read line by line.
_ROW_ALONE = (20, 128)
#: The end of a row, plain or escaped, and the indentation of the next one.
_BREAK = r"(?:(?:\r|\\{1,8}r|%(?:25){0,2}0[Dd])?(?:\n|\\{1,8}n|%(?:25){0,2}0[Aa])[ \t]{0,40})?"
_LONGEST_BREAK = 80
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_MOST_DIGITS = 64
#: Separator between the digits of a long number.
_GROUPED = "[,_ '.]?"
#: Maximum bytes of the spelling of one character: ASCII, other.
_WIDEST = (13, 28)


def mask(name: str) -> str:
    """Return the text that replaces a secret of that keychain entry."""
    return f"[redacted:{name}]"


class Redactor:
    """Removes a fixed set of secrets from texts, values and streams."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """`secrets` maps each text to the name of its keychain entry."""
        self._exact: dict[str, str] = {}
        masks: dict[str, str] = {}
        for text, name in secrets.items():
            for part in _parts(text):
                self._exact.setdefault(part, mask(name))
                if len(part) >= SHORTEST:
                    masks.setdefault(part, mask(name))
        # A secret that contains another goes first, so that no part of it remains.
        longest_first = sorted(masks, key=lambda part: (-len(part), part))
        self._spellings = [spelling for part in longest_first for spelling in _spellings(part, masks[part])]
        self._pieces = [_Piece(part, masks[part]) for part in longest_first if len(part) > _SHORTEST_PIECE]
        #: base64 that programs wrap, whose rows may appear separately
        self._rows = [(core, masks[part]) for part in longest_first for core in _wrapped_cores(part)]
        #: secrets that are numbers, found by their value
        self._numbers: dict[float, str] = {}
        for part, masked in masks.items():
            for number in _numbers(part):
                self._numbers.setdefault(number, masked)
        anchors = {spelling.anchor for spelling in self._spellings} | {piece.anchor for piece in self._pieces}
        self._anchors = [anchor.encode() for anchor in anchors] + [encode(number) for number in self._numbers]
        self._everywhere = "" in anchors or any(len(part) < SHORTEST for part in self._exact)

    @classmethod
    def of(cls, secrets: Mapping[str, str]) -> Redactor | None:
        """Return a redactor, or None if there is nothing to redact."""
        return cls(secrets) if any(secrets) else None

    def text(self, text: str) -> str:
        whole = self._exact.get(text)
        if whole is not None:
            return whole
        if self._rows and (row := self._row(text)):
            return row
        for spelling in self._spellings:
            if spelling.anchor in text:
                text = spelling.replaced(text)
        for piece in self._pieces:
            text = piece.removed(text)
        return text

    def _row(self, text: str) -> str:
        """Return the mask of a text that is one row of a secret's wrapped base64, else ''."""
        body = text.strip().rstrip("=")
        if not _ROW_ALONE[0] <= len(body) <= _ROW_ALONE[1]:
            return ""
        inner = body[:-1]  # the last character may contain bits that do not belong to the secret
        return next((masked for core, masked in self._rows if inner in core), "")

    def bytes(self, body: bytes) -> bytes:
        stream = self.stream()
        return stream.feed(body) + stream.end()

    def value(self, value: Any) -> Any:
        """Return a JSON value without the secrets, also in keys; the value itself if it contains none."""
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self.text(value)
        return self._walked(value) if self._may_be_in(value) else value

    def stream(self) -> Stream:
        return Stream(self._spellings)

    def _may_be_in(self, value: Any) -> bool:
        """Return whether an anchor occurs anywhere in a value. JSON does not escape letters and digits."""
        if self._everywhere or isinstance(value, (int, float)):
            return True
        try:
            body = encode(value)
        except (TypeError, ValueError, UnicodeError, RecursionError):
            return True
        return any(anchor in body for anchor in self._anchors)

    def _walked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._walked(key): self._walked(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._walked(part) for part in value]
        if isinstance(value, (bytes, bytearray)):
            return self.bytes(bytes(value))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if (masked := self._numbers.get(value) or self._numbers.get(-value)) is not None:
                return masked
            text = str(value)
            return self._exact.get(text, value) if len(text) >= SHORTEST else value
        return value


class Stream:
    """Redacts bytes that arrive in pieces. A secret may span several pieces."""

    def __init__(self, spellings: Iterable[_Spelling]) -> None:
        self._strainers = [_Strainer(spelling) for spelling in spellings]

    def feed(self, chunk: bytes) -> bytes:
        """Redact a piece. Returns the bytes that are ready."""
        for strainer in self._strainers:
            chunk = strainer.feed(chunk)
        return chunk

    def end(self) -> bytes:
        """Return the remaining bytes."""
        held = b""
        for strainer in self._strainers:
            held = strainer.feed(held) + strainer.end()
        return held


class _Strainer:
    """Redacts one spelling in a stream. A possible beginning of a match is held back until more bytes arrive."""

    def __init__(self, spelling: _Spelling) -> None:
        self._spelling = spelling
        self._kept = b""

    def feed(self, chunk: bytes) -> bytes:
        return self._strained(chunk, self._spelling.longest) if chunk else b""

    def end(self) -> bytes:
        return self._strained(b"", 0)

    def _strained(self, chunk: bytes, hold: int) -> bytes:
        body = self._kept + chunk
        # A match that begins before this position is complete in the body.
        limit = max(len(body) - hold, 0)
        out: list[bytes] = []
        at = 0
        if self._spelling.anchor_bytes in body:
            for start, end in self._spelling.spans(body):
                if start >= limit and hold:
                    break
                out += (body[at:start], self._spelling.mask.encode())
                at = end
        cut = max(at, limit)
        out.append(body[at:cut])
        self._kept = body[cut:]
        return b"".join(out)


class _Spelling:
    """One way in which a secret may be written."""

    def __init__(self, pieces: Sequence[str], anchor: str, longest: int, masked: str) -> None:
        """`pieces` has the pattern of each character, or of a run of them."""
        self._pieces = pieces
        self.anchor = anchor
        self.anchor_bytes = self.anchor.encode()
        #: maximum bytes of a match
        self.longest = longest
        self.mask = masked

    def replaced(self, text: str) -> str:
        """Return the text with the mask in place of each match."""
        if len(self._pieces) <= _LONGEST_PATTERN:
            return self._pattern.sub(self.mask, text)
        out: list[str] = []
        at = 0
        for start, end in _long_matches(self._pattern, self._pieces, text):
            out += (text[at:start], self.mask)
            at = end
        return "".join((*out, text[at:])) if out else text

    def spans(self, body: bytes) -> Iterator[tuple[int, int]]:
        """Return the start and end of each match."""
        if len(self._pieces) > _LONGEST_PATTERN:
            return _long_matches(self._bytes_pattern, self._pieces, body)
        return (match.span() for match in self._bytes_pattern.finditer(body))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("".join(self._pieces[:_LONGEST_PATTERN]))

    @cached_property
    def _bytes_pattern(self) -> re.Pattern[bytes]:
        return re.compile("".join(self._pieces[:_LONGEST_PATTERN]).encode("utf-8", "surrogatepass"))


def _long_matches(head: re.Pattern[AnyStr], pieces: Sequence[str], text: AnyStr) -> Iterator[tuple[int, int]]:
    """Return the matches of a long secret: its beginning by one pattern, the rest piece by piece.

    Compiling a pattern takes far longer than matching it. If the rest does not match, everything that follows is
    redacted.
    """
    at = 0
    while (match := head.search(text, at)) is not None:
        at = match.end()
        for piece in pieces[_LONGEST_PATTERN:]:
            further = _compiled(piece, isinstance(text, bytes)).match(text, at)
            at = len(text) if further is None else further.end()
            if further is None:
                break
        yield match.start(), at


@lru_cache(maxsize=4096)
def _compiled(piece: str, as_bytes: bool) -> re.Pattern[Any]:
    return re.compile(piece.encode("utf-8", "surrogatepass") if as_bytes else piece)


class _Piece:
    """The larger part of a secret at the end or the beginning of a text that was cut."""

    def __init__(self, part: str, masked: str) -> None:
        self._part = part
        self._mask = masked
        least = max(_SHORTEST_PIECE, len(part) * 2 // 3)
        self._head, self._tail = part[:least], part[-least:]
        #: the common part of head and tail
        self.anchor = _anchor(part[len(part) - least : least])

    def removed(self, text: str) -> str:
        end = len(text.rstrip("….")) if text.endswith(("…", "...")) else len(text)
        at = text.rfind(self._head, max(end - len(self._part), 0), end)
        if at >= 0 and self._part.startswith(text[at:end]):
            text = text[:at] + self._mask + text[end:]
        at = text.find(self._tail, 0, len(self._part))
        if at >= 0 and self._part.endswith(text[: at + len(self._tail)]):
            text = self._mask + text[at + len(self._tail) :]
        return text


def _anchor(text: str) -> str:
    """Return the longest run of characters that no encoding changes; '' if it is too short."""
    longest: str = max(_RUNS.findall(text), key=len, default="")
    return longest if len(longest) >= _SHORTEST_ANCHOR else ""


def _parts(text: str) -> list[str]:
    """Return the texts to search for: the whole secret, without surrounding white space, and each of several lines."""
    parts = dict.fromkeys((text, text.strip()))
    lines = [line.strip() for line in text.splitlines()]
    if len(lines) > 1:
        parts.update(dict.fromkeys(line for line in lines if len(line) >= SHORTEST_LINE))
    return [part for part in parts if part]


def _spellings(text: str, masked: str) -> list[_Spelling]:
    pieces: list[str] = _PIECES.findall(text)
    longest = sum(_WIDEST[not piece.isascii()] * len(piece) for piece in pieces)
    raw = _Spelling([_spelled(piece) for piece in pieces], _anchor(text), longest, masked)
    return [raw, *_digits(text, masked), *_base64(text.encode("utf-8", "surrogatepass"), masked)]


def _numbers(text: str) -> list[float]:
    """Return the numbers that a secret stands for, if it is a number."""
    if not _NUMBER.fullmatch(text):
        return []
    number = float(text)
    # An integer equals its float only while that is exact.
    return [int(text), number] if text.isdigit() else [number]


def _digits(text: str, masked: str) -> list[_Spelling]:
    """Return the spellings of an integer with grouped digits (12,345,678) and with an exponent (1.2345678e+07)."""
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        return []
    grouped = _Spelling(_joined(_GROUPED, text), text[-3:], 2 * len(text), masked)
    mantissa = text[1:].rstrip("0")
    if len(mantissa) < _SHORTEST_ANCHOR:
        return [grouped]
    exponent = rf"{text[0]}\.{mantissa}0*[eE]\+?0*{len(text) - 1}(?![0-9])"
    return [grouped, _Spelling([exponent], mantissa, 2 * len(text) + 16, masked)]


def _joined(between: str, pieces: Iterable[str]) -> list[str]:
    """Return the pieces with a pattern before each but the first."""
    first, *others = pieces
    return [first, *(between + piece for piece in others)]


@lru_cache(maxsize=4096)
def _spelled(piece: str) -> str:
    """Return the pattern of one character, or of a run of backslashes, which must be matched together."""
    if piece.isascii() and piece.isalnum():
        return piece
    count, char = len(piece), piece[0]
    code = char.encode("utf-8", "surrogatepass")
    units = char.encode("utf-16-be", "surrogatepass").hex()
    ways = ["".join(rf"%(?:25){{0,2}}{_hex(f'{byte:02x}')}" for byte in code)]
    ways.append("".join(rf"\\{{1,8}}u{_hex(units[at : at + 4])}" for at in range(0, len(units), 4)))
    ways.append("".join(rf"\\{{1,4}}x{_hex(f'{byte:02x}')}" for byte in code))
    if ord(char) > 0xFFFF:
        ways.append(rf"\\{{1,8}}U{_hex(f'{ord(char):08x}')}")
    if ord(char) < 256:
        ways.append(rf"\\{{1,4}}x{_hex(f'{ord(char):02x}')}")
    if char in _CONTROLS:
        ways.append(rf"\\{{1,8}}{_CONTROLS[char]}")
    if char in _ENTITIES:
        ways.append(rf"&(?:{_ENTITIES[char]}|#0{{0,3}}{ord(char)}|#[xX]0{{0,2}}{_hex(f'{ord(char):x}')});")
    if char == "'":
        ways += [r"""'"'"'""", r"""'\\''"""]
    if char == " ":
        ways += [r"\+", r"%(?:25){0,2}2[Bb]"]
    if char == "\\":
        # Atomic: the following text may be escaped by backslashes, too, and their assignment must not be tried in every
        # way.
        ways = [f"(?:{'|'.join(ways)}){{{count}}}", *(rf"\\{{{count * times}}}" for times in (8, 4, 2, 1))]
        return f"(?>{'|'.join(ways)})"
    if char.isascii() and not char.isspace():
        ways.append(rf"\\{{0,8}}{re.escape(char)}")
    else:
        ways.append(re.escape(char))
    return f"(?:{'|'.join(ways)})"


def _hex(digits: str) -> str:
    """Return a pattern of hexadecimal digits in either case."""
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _base64(data: bytes, masked: str) -> list[_Spelling]:
    """Return the spellings of the secret inside longer base64, by the number of bytes (modulo 3) before it."""
    spellings = []
    for before in range(3):
        text = b64encode(bytes(before) + data).decode().rstrip("=")
        tail = (before + len(data)) % 3
        core = text[before + 1 if before else 0 : -1 if tail else None]
        chars = [_b64_char(char) for char in core]
        ends: list[str] = []
        if before:
            # This character also has bits of the byte before; the secret has its last 4 or 2 bits.
            step = 16 if before == 1 else 4
            first = _one_of(c for i, c in enumerate(_B64) if i % step == _B64.index(text[before]) % step)
            chars.insert(0, first)
        if tail:
            step = 4 if tail == 2 else 16
            chars.append(_one_of(c for i, c in enumerate(_B64) if i // step == _B64.index(text[-1]) // step))
            ends = [r"(?:=|%(?:25){0,2}3[Dd]|\\u003[Dd]){0,2}"]
        longest = 7 * (len(text) + 2)
        spellings.append(_Spelling([*chars, *ends], _anchor(core), longest, masked))
        # Wrapped: lines are long, so of two halves of its beginning at least one is on a single line.
        half = min(len(core), _SHORTEST_ROW) // 2
        halves = {_anchor(core[:half]), _anchor(core[half : 2 * half])} - {""}
        longest += _LONGEST_BREAK * (len(text) // _SHORTEST_ROW + 2)
        wrapped = [*_joined(_BREAK, chars), *ends]
        spellings += [_Spelling(wrapped, anchor, longest, masked) for anchor in sorted(halves)]
    return spellings


def _wrapped_cores(text: str) -> list[str]:
    """Return the base64 of a secret, by the number of bytes (modulo 3) before it; none if it fits in one row."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) * 4 < 3 * 2 * _SHORTEST_ROW - 12:
        return []
    return [b64encode(bytes(before) + data).decode().rstrip("=")[before + 1 if before else 0 :] for before in range(3)]


def _one_of(chars: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(_b64_char, chars))})"


def _b64_char(char: str) -> str:
    if char == "+":
        return r"(?:\+|-|%(?:25){0,2}2[Bb])"
    if char == "/":
        return r"(?:\\?/|_|%(?:25){0,2}2[Ff])"
    return char
