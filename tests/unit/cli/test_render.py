"""Text for people: nothing from a run acts on the terminal, everything fits."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arclog.cli.render import Out, bare, clean, clip, duration, json_text, pretty, printable, table, width_of


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0 ms"), (0.0042, "4 ms"), (0.12, "0.12 s"), (9.99, "9.99 s"), (9.999, "10.0 s"), (59.96, "1 min 00 s"),
     (125, "2 min 05 s"), (3599.7, "1 h 00 min"), (7384, "2 h 03 min"), (-1, "0 ms")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_control_characters_are_shown_not_sent():
    assert clean("a\x1b[2Jb\x07\x9b1m\r\nc\td") == "a\\x1b[2Jb\\x07\\x9b1m\nc\td"


def test_a_json_line_is_one_line_to_every_reader():
    value = {"text": "a\x85b\u2028c\u2029d\x0b\x1c", "key\u2028": 1}
    assert json_text(value).splitlines() == [json_text(value)]
    assert json.loads(json_text(value)) == value


@given(st.text())
def test_cleaned_text_holds_no_control_characters(text):
    assert not any((ord(char) < 32 and char not in "\n\t") or 127 <= ord(char) < 160 for char in clean(text))


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"])), st.integers(1, 40))
def test_clipped_text_fits(text, columns):
    assert width_of(clip(text, columns)) <= columns


def test_wide_characters_count_twice():
    assert width_of("日本") == 4
    assert clip("日本語", 5) == "日本…"


def test_a_stream_without_utf8_gets_plain_characters():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert printable("✓ done · 1…", stream) == "+ done - 1~"
    assert printable("日", stream) == "\\u65e5"


def test_no_colour_without_a_terminal_or_with_no_color(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Out(stream=io.StringIO()).paint("x", "red") == "x"
    assert Out(stream=Terminal()).paint("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Out(stream=Terminal()).paint("x", "red") == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Out(stream=Terminal()).tty


def test_large_values_are_cut_and_say_where_the_rest_is():
    text = pretty(list(range(1000)), most_lines=5, full_command="arclog show 1 --json")
    assert len(text.splitlines()) == 6
    assert text.endswith("… truncated; for all of it: arclog show 1 --json")
    assert len(pretty("x" * 10_000)) < 500


def test_a_table_lines_up_and_is_cut_at_the_edge():
    out = Out(stream=io.StringIO())
    text = table(("A", "LAST"), [("1", "x" * 100), ("1000", "y")], 40, out, right=(0,))
    assert text.splitlines()[1] == "   1  " + "x" * 33 + "…"
    assert bare("\x1b[31;1mx\x1b[0m") == "x"


def test_json_is_utf8_even_where_the_terminal_is_not():
    raw = io.BytesIO()
    out = Out(as_json=True, stream=io.TextIOWrapper(raw, encoding="ascii"))
    out.data({"a": "… 😀"})
    assert raw.getvalue().decode() == '{"a":"… 😀"}\n'
