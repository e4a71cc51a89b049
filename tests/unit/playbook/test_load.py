from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arclog.model.config.settings import Settings
from arclog.model.errors import PlaybookError, Position
from arclog.playbook.load import load


def refused(text: str | bytes, limits: Settings | None = None) -> list[tuple[str, Position]]:
    with pytest.raises(PlaybookError) as caught:
        load(text, "p.yaml", limits)
    assert caught.value.file == "p.yaml"
    return [(finding.code, finding.at) for finding in caught.value.findings]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("y", "y"),
        ("off", "off"),
        ("012", "012"),
        ("-012", "-012"),
        ("012.5", "012.5"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("0b11", "0b11"),
        ("=", "="),
        ("'null'", "null"),
        ('"1"', "1"),
        ("true", True),
        ("True", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0", 0),
        ("-0", 0),
        ("+1", 1),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0o17", 15),
        ("0xff", 255),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("-1.5E-2", -0.015),
        ("1.0", 1.0),
        ("|\n  a\n  b\n", "a\nb\n"),
        (">\n  a\n  b\n", "a b\n"),
        ("+", "+"),
        (".", "."),
    ],
)
def test_scalars_are_those_of_yaml_1_2(written, value):
    got = load(f"k: {written}", "p.yaml").value["k"]
    assert got == value
    assert type(got) is type(value)


def test_a_step_called_on_keeps_its_name():
    assert load("- step: on\n", "p").value == [{"step": "on"}]


def test_json_is_a_playbook():
    assert load('{"a": [1, 2.5, null, true, "x\\u0000"], "b": {}}', "p").value == {
        "a": [1, 2.5, None, True, "x\0"],
        "b": {},
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [("yaml-empty", Position(1, 1))]),
        ("# only a comment\n", [("yaml-empty", Position(1, 1))]),
        ("~\n", [("yaml-empty", Position(1, 1))]),
        ("a: 1\nb: 2\na: 3\n", [("yaml-duplicate-key", Position(3, 1))]),
        ("a: {b: 1, 'b': 2}\n", [("yaml-duplicate-key", Position(1, 11))]),
        (
            "1: x\ntrue: y\nnull: z\n",
            [("yaml-key", Position(1, 1)), ("yaml-key", Position(2, 1)), ("yaml-key", Position(3, 1))],
        ),
        ("? [a]\n: 1\n", [("yaml-key", Position(1, 3))]),
        ("a: !!python/object/apply:os.system ['x']\n", [("yaml-tag", Position(1, 4))]),
        ("a: !foo bar\n", [("yaml-tag", Position(1, 4))]),
        ("a: !!binary aGk=\n", [("yaml-tag", Position(1, 4))]),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", [("yaml-merge-key", Position(3, 3))]),
        ("&a [*a]", [("yaml-alias", Position(1, 5))]),
        ("a: &a {b: {c: *a}}", [("yaml-alias", Position(1, 15))]),
        ("a: *nowhere", [("yaml-alias", Position(1, 4))]),
        ("a: 1\n---\nb: 2\n", [("yaml-documents", Position(2, 1))]),
        (
            "a: .nan\nb: .inf\nc: 1e999\n",
            [("yaml-number", Position(1, 4)), ("yaml-number", Position(2, 4)), ("yaml-number", Position(3, 4))],
        ),
        ("a: 9223372036854775808", [("yaml-number", Position(1, 4))]),
        ("a: " + "9" * 100_000, [("yaml-number", Position(1, 4))]),
        ("a: 0x" + "f" * 100_000, [("yaml-number", Position(1, 4))]),
        ("a:\n\t- b\n", [("yaml-syntax", Position(2, 1))]),
        ("a: 'x", [("yaml-syntax", Position(1, 6))]),
        ("a: @x", [("yaml-syntax", Position(1, 4))]),
        ("a: b\0c", [("yaml-syntax", Position(1, 5))]),
        ("a: \x01", [("yaml-syntax", Position(1, 4))]),
        ("é: \x01", [("yaml-syntax", Position(1, 4))]),
        ("a: \ud800", [("yaml-encoding", Position(1, 4))]),
        (b"a: 1\nb: \xff", [("yaml-encoding", Position(2, 4))]),
        ("a: 1".encode("utf-16"), [("yaml-encoding", Position())]),
        ("[" * 20_000, [("yaml-too-deep", Position(1, 65))]),
        ("a: {{ b }}\n", [("yaml-key", Position(1, 5))]),
    ],
)
def test_what_is_refused_and_where(text, found):
    assert refused(text) == found


def test_both_places_of_a_duplicate_key_are_told():
    with pytest.raises(PlaybookError) as caught:
        load("x:\n  a: 1\n  a: 2\n", "p")
    assert "first at 2:3" in caught.value.findings[0].message
    assert caught.value.findings[0].at == Position(3, 3)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n\t- b\n", "tab"),
        ("a: {{ b }}\n", '"{{ … }}"'),
        ("a: {{ b }} c\n", '"{{ … }}"'),
        ("a: @x", "quote"),
        ("a: b: c", "': '"),
    ],
)
def test_hints(text, hint):
    with pytest.raises(PlaybookError) as caught:
        load(text, "p")
    assert hint in caught.value.findings[-1].hint


def test_a_byte_order_mark_is_ignored():
    assert load(b"\xef\xbb\xbfa: 1", "p").value == {"a": 1}
    assert load("\ufeffa: 1", "p").at(("a",)) == Position(1, 4)


def test_aliases_are_values():
    document = load("a: &x {b: [1]}\nc: *x\n", "p")
    assert document.value == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert document.at(("c",)) == Position(2, 4)
    assert document.at(("c", "b", 0)) == Position(1, 12)


def test_an_alias_bomb_ends_at_the_node_cap():
    levels = ["a: &a0 [x,x,x,x,x,x,x,x,x]"]
    levels += [f"b{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert [code for code, _ in refused("\n".join(levels))] == ["yaml-too-many-nodes"]


def test_aliases_cannot_build_depth_past_the_cap():
    text = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))])
    assert [code for code, _ in refused(text)] == ["yaml-too-deep"]


def test_caps_are_settings():
    small = Settings({"playbook.max_bytes": 10, "playbook.max_depth": 2, "playbook.max_nodes": 4})
    assert [code for code, _ in refused("a: aaaaaaaaaaaa", small)] == ["yaml-too-large"]
    assert [code for code, _ in refused("é: éééé", small)] == ["yaml-too-large"]
    assert [code for code, _ in refused("a: [[1]]", small)] == ["yaml-too-deep"]
    assert [code for code, _ in refused("[1,2,3,4]", small)] == ["yaml-too-many-nodes"]
    assert load("a: [1]", "p", small).value == {"a": [1]}


def test_a_huge_file_is_refused_before_it_is_read():
    assert [code for code, _ in refused("x" * (5 * 1024 * 1024))] == ["yaml-too-large"]


def test_places_of_keys_values_and_texts():
    document = load('a:\n  - b: "x {{ y }}"\n    c: |\n      one\n      two\n  - plain\n', "p")
    assert document.at(("a",)) == Position(2, 3)
    assert document.key_at(("a", 0, "b")) == Position(2, 5)
    assert document.at(("a", 0, "b")) == Position(2, 8)
    assert document.text_at(("a", 0, "b")) == Position(2, 9)
    assert document.at(("a", 0, "c")) == Position(3, 8)
    assert document.text_at(("a", 0, "c")) == Position(4, 7)
    assert document.text_at(("a", 1)) == Position(6, 5)
    assert document.at(("a", 0, "nothing", 7)) == Position(2, 5)


def test_a_quoted_merge_key_is_a_key_like_any():
    assert load("'<<': 1", "p").value == {"<<": 1}


def test_many_findings_end():
    text = "\n".join(f"{n}: x" for n in range(10_000))
    assert len(refused(text)) == 200


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(), st.binary(), st.text(alphabet="abc:-[]{},&*!|>'\"#%@ \n\t?<.0123eE+~")))
def test_any_text_is_a_document_or_a_playbook_error(text):
    try:
        document = load(text, "p")
    except PlaybookError as error:
        findings = error.findings
    else:
        findings = []
        assert document.value is not None
    assert all(finding.severity == "error" for finding in findings)
