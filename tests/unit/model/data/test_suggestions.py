"""Suggestions for misspelt words."""

import pytest

from arclog.model.data.suggestions import did_you_mean, nearest


@pytest.mark.parametrize(
    ("word", "words", "expected"),
    [
        ("retrry", ["replay", "retry"], "retry"),
        ("xyz", ["replay", "retry"], ""),
        ("retry", [], ""),
        ("aaab" + "z" * 10_000, ["aaab" + "z" * 124], "aaab" + "z" * 124),
    ],
)
def test_the_most_similar_word_is_suggested(word, words, expected):
    assert nearest(word, words) == expected


def test_of_many_words_only_the_first_are_compared():
    words = [f"{number:06}" for number in range(5000)]
    assert nearest("retry", [*words, "retry"]) == ""


def test_a_message_ends_with_the_suggestion_or_without_one():
    assert did_you_mean("retrry", {"retry": 1}) == "; did you mean retry?"
    assert did_you_mean("xyz", {"retry": 1}) == ""
