"""Suggestions for misspelt words, in error messages."""

from __future__ import annotations

from collections.abc import Iterable

#: Longer words, and more words to choose from, are not compared: the time grows with both.
_MOST_CHARS = 128
_MOST_WORDS = 2000


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the word that is most similar to a misspelt one; '' if none is."""
    from difflib import get_close_matches  # only error messages need it

    matches = get_close_matches(word[:_MOST_CHARS], list(words)[:_MOST_WORDS], n=1)
    return matches[0] if matches else ""


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return the end of a message that suggests the most similar word; '' if none is."""
    near = nearest(word, words)
    return f"; did you mean {near}?" if near else ""
