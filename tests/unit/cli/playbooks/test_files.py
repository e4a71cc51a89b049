"""--set and --workload."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arclog.cli.exits import Usage
from arclog.cli.playbooks.files import assigned, playbook_text, read, workload_of
from arclog.cli.render import json_text
from arclog.model.config.settings import Settings
from arclog.model.errors import PlaybookError

SETTINGS = Settings()


def workload(*assignments: str, file: str | None = None) -> dict[str, Any]:
    return workload_of(file, assignments, SETTINGS)


@pytest.mark.parametrize(
    "text, value",
    [
        ("a=1", 1),
        ("a=1.0", 1.0),
        ("a=true", True),
        ("a=null", None),
        ("a=[1, {}]", [1, {}]),
        ('a="1"', "1"),
        ("a=Ada Lovelace", "Ada Lovelace"),
        ("a=", ""),
        ("a=b=c", "b=c"),
        ("a=01", "01"),
        ("a=NaN", "NaN"),
        ("a=[1,", "[1,"),
        ("a={{ x }}", "{{ x }}"),
        ("a=" + "[" * 100_000, "[" * 100_000),
    ],
)
def test_a_value_is_json_else_text(text, value):
    result = workload(text)["a"]
    assert result == value
    assert type(result) is type(value)


def test_paths_make_maps_on_their_way():
    assert workload("a.b.c=1", "a.d=2", "e=3") == {"a": {"b": {"c": 1}, "d": 2}, "e": 3}


def test_the_last_of_the_same_path_wins():
    assert workload("a=1", "a=2") == {"a": 2}


@pytest.mark.parametrize(
    "assignments", [("a=1", "a.b=2"), ("a.b=2", "a=1"), ("a.b.c=1", "a.b=[]"), ("a.b=1", 'a={"c": 1}')]
)
def test_what_cannot_both_hold_is_refused(assignments):
    with pytest.raises(Usage, match="conflict: one is inside the other"):
        workload(*assignments)


def test_a_key_may_be_added_to_a_map_that_was_set_before():
    assert workload('a={"b": 1}', "a.c=2") == {"a": {"b": 1, "c": 2}}


@pytest.mark.parametrize("text", ["items.0=1", "items.0.name=x", "items[0]=1", "0=1"])
def test_a_list_index_is_refused_with_the_remedy(text):
    with pytest.raises(Usage, match="list index") as refusal:
        workload(text)
    assert "whole list" in refusal.value.hint


@pytest.mark.parametrize("text", ["a", "=1", "a..b=1", ".a=1", "a.=1", "a\udcff=1", "a=\udcff"])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(Usage):
        workload(text)


@pytest.mark.parametrize("text", ["a=9223372036854775808", "a=[-9223372036854775809]", "a=1e999"])
def test_numbers_that_do_not_fit_are_refused_not_made_text(text):
    with pytest.raises(Usage):
        workload(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON)
def test_any_json_value_comes_through_unchanged(value):
    [(path, got)] = assigned([f"a.b={json_text(value)}"])
    assert path == ("a", "b")
    assert got == value


@pytest.mark.parametrize("body", ['{"user": {"name": "Ada"}, "n": 1}', "user:\n  name: Ada\nn: 1\n"])
def test_a_workload_file_is_json_or_yaml_and_set_wins(tmp_path: Path, body: str):
    file = tmp_path / "w"
    file.write_text(body)
    assert workload("n=2", "user.age=36", file=str(file)) == {"user": {"name": "Ada", "age": 36}, "n": 2}


def test_set_replaces_a_plain_value_of_the_file_by_a_map_but_never_reaches_into_its_lists(tmp_path: Path):
    file = tmp_path / "w.json"
    file.write_text('{"a": 1, "b": [1]}')
    assert workload("a.x=1", file=str(file)) == {"a": {"x": 1}, "b": [1]}
    with pytest.raises(Usage, match="b is a list"):
        workload("b.x=1", file=str(file))


@pytest.mark.parametrize(
    "body, what", [("[1]", "a list"), ("1", "a number"), ('"x"', "text"), ("null", "empty"), ("", "empty")]
)
def test_a_workload_that_is_no_map_is_refused(tmp_path: Path, body: str, what: str):
    file = tmp_path / "w.json"
    file.write_text(body)
    with pytest.raises((Usage, PlaybookError), match=what):
        workload(file=str(file))


def test_a_workload_file_that_is_neither_says_where(tmp_path: Path):
    file = tmp_path / "w.yaml"
    file.write_text("a: [1\nb: 2\n")
    with pytest.raises(PlaybookError) as refusal:
        workload(file=str(file))
    assert refusal.value.findings[0].at.line


def test_what_cannot_be_read_is_said(tmp_path: Path):
    for file in (str(tmp_path / "none.yaml"), str(tmp_path), "a\0b"):
        with pytest.raises(Usage, match="cannot read"):
            read(file, SETTINGS)


def test_an_endless_file_is_not_read_to_its_end():
    with pytest.raises(Usage, match="more than 4,194,304 bytes"):
        read("/dev/zero", SETTINGS)


def test_a_playbook_that_is_not_utf8_says_which_byte(tmp_path: Path):
    file = tmp_path / "p.yaml"
    file.write_bytes(b"metadata: {name: \xff}\n")
    with pytest.raises(PlaybookError, match="0xff"):
        playbook_text(str(file), SETTINGS)


def test_standard_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: 1\n")))
    assert playbook_text("-", SETTINGS) == ("a: 1\n", "<stdin>")


def test_an_empty_workload_file_is_called_a_workload(tmp_path):
    file = tmp_path / "w.yaml"
    file.write_text(" \n")
    with pytest.raises(Usage, match="the workload is empty"):
        workload(file=str(file))
