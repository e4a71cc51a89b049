"""Patterns that are compiled on first use behave like compiled ones."""

import copy
import re

import pytest

from arclog.model.data import lazy
from arclog.model.data.lazy import pattern


def test_a_pattern_is_compiled_once_and_only_when_it_is_used(monkeypatch):
    compiled: list[str] = []

    def compile_noted(source: str, flags: int) -> re.Pattern[str]:
        compiled.append(source)
        return re.compile(source, flags)

    monkeypatch.setattr(lazy, "_compile", compile_noted)
    word = pattern(r"[a-z]+", re.IGNORECASE)
    assert compiled == []
    assert word.fullmatch("Word")
    assert not word.fullmatch("1")
    assert word.fullmatch("again")
    assert len(compiled) == 1


def test_it_has_all_that_a_compiled_pattern_has():
    word = pattern(r"(?P<first>\w)\w*", re.ASCII)
    assert word.pattern == r"(?P<first>\w)\w*"
    assert word.flags == re.compile(word.pattern, re.ASCII).flags
    assert word.sub("x", "two words") == "x x"
    assert [match["first"] for match in word.finditer("two words")] == ["t", "w"]
    assert copy.deepcopy(word).findall("two words") == ["t", "w"]


def test_an_invalid_pattern_fails_when_it_is_used():
    broken = pattern("(")
    with pytest.raises(re.error):
        broken.match("")
