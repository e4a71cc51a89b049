"""Places inside texts: whatever YAML does to a text, each of its characters is found where the file has it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from arclog.model.config.settings import Settings
from arclog.playbook.load import load

TEXTS = {
    "plain": "a: one @ two\nb: 1\n",
    "plain over lines": "a: one\n  two @ three\n   four\nb: 1\n",
    "single": "a: 'it''s @ here'\n",
    "single over lines": "a: 'it''s\n  here\n\n  and @ there'\n",
    "double": 'a: "one @ two"\n',
    "double with escapes": 'a: "one\\n\\ttwo \\"three\\" \\x41\\u0042\\U00000043 @ four"\n',
    "double in a flow map": "x: {k: 1, a: \"select 1;\\nselect 'a @ b'\"}\n",
    "double over lines": 'a: "one\n   two \\\n   three\n\n\n  four @ five"\n',
    "literal": "a: |\n  one\n    two\n\n  three @ four\nb: 1\n",
    "literal, kept": "a: |+\n    one @\n    two\nb: 1\n",
    "folded": "a: >\n  one\n  two @ three\n\n  four\nb: 1\n",
    "folded, stripped": "a: >-\n  one\n  two\n\n\n  three @ four\n",
    "folded with a list in it": "a: >\n  one\n    - two\n    - @ three\n  four\n",
}


def character_at(text: str) -> tuple[str, str]:
    """The character that the file has where the `@` of the value is said to stand, and the line's own."""
    document = load(text, "t.yaml", Settings())
    path = ("x", "a") if "x" in document.value else ("a",)
    value = document.value["x"]["a"] if "x" in document.value else document.value["a"]
    at = document.places(path, value).at(value.index("@"))
    line = document.line(at.line)
    return line[at.column - 1 : at.column], line


@pytest.mark.parametrize("style", TEXTS)
def test_each_style(style: str) -> None:
    assert character_at(TEXTS[style])[0] == "@", character_at(TEXTS[style])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_a_writer_makes_of_a_text(data: st.DataObject) -> None:
    words = st.text(alphabet=" abé\n\t'\"\\#:{}%😀", max_size=60)
    text = data.draw(words) + "@" + data.draw(words)
    style = data.draw(st.sampled_from(["'", '"', "|", ">", None]))
    width = data.draw(st.sampled_from([10, 40, 1000]))
    dumped = yaml.safe_dump(
        {"k": "v", "a": text}, default_style=style, width=width, allow_unicode=True, sort_keys=False
    )
    document = load(dumped, "t.yaml", Settings())
    if document.value.get("a") != text:
        return  # a style that cannot hold this text
    at = document.places(("a",), text).at(text.index("@"))
    line = document.line(at.line)
    assert line[at.column - 1 : at.column] == "@", (dumped, at)
