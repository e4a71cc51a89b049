"""Regular expressions in linear time find what Python's find, and refuse what they cannot do."""

from __future__ import annotations

import random
import re

import pytest

from arclog.model.data.regex import MAX_PATTERN, RegexError, compiled

PATTERNS = [
    r"a+b", r"(a|ab)(c|bcd)(d*)", r"^\d{3}-\d{4}$", r"(?i)HeLLo", r"[^a-c]+", r"(\w+)@(\w+)\.com", r"a*?b", r"(a+)+$",
    r"\bfoo\b", r"x{2,4}", r"(?:ab)+?c", r"[\w.-]+", r"a|b|", r"(?P<y>\d{2})-(?P<m>\d)", r"^$", r"(?m)^b", r"[]a]", r"[a\]]",
    r"(a)|b", r"\.", r"a{,2}", r"a\Z", r"(?s)a.b", r"[\d-]", r"\Bo", r"\x61", r"a{2}", r"{", r"(?i)[B-D]+", r"b$",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_finds_what_python_finds(pattern: str) -> None:
    drawn = random.Random(pattern)
    ours, theirs = compiled(pattern), re.compile(pattern)
    for _ in range(150):
        text = "".join(drawn.choice("aabbccdx foo1-4@.Hhel\n]") for _ in range(drawn.randrange(10)))
        for way in ("search", "match", "fullmatch"):
            result, expected = getattr(ours, way)(text), getattr(theirs, way)(text)
            as_tuple = None if expected is None else (expected.start(), expected.end(), expected.groups())
            assert (None if result is None else tuple(result)) == as_tuple, (text, way)


def test_the_work_grows_with_the_text_and_not_faster() -> None:
    def work(length: int) -> int:
        counted = 0

        def charge(steps: int) -> None:
            nonlocal counted
            counted += steps

        assert compiled(r"^(a+)+$").search("a" * length + "b", 0, charge) is None
        return counted

    assert work(2000) < 2.5 * work(1000)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "back-references"),
        (r"(?=a)", "only"),
        (r"(?<!a)b", "only"),
        ("(", "missing )"),
        ("a)", "unbalanced"),
        ("[a", "missing ]"),
        ("*a", "nothing to repeat"),
        ("a**", "multiple repeat"),
        ("a{2,1}", "greater"),
        ("a{5000}", "at most"),
        ("(a{900}){900}", "too large"),
        ("[z-a]", "bad range"),
        (r"\q", "unknown escape"),
        (r"\x4", "hexadecimal"),
        ("\\", "backslash"),
        ("(" * 60 + ")" * 60, "nested"),
        ("a" * (MAX_PATTERN + 1), "characters"),
    ],
)
def test_what_cannot_be_done_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(RegexError, match=re.escape(why)):
        compiled(pattern)
