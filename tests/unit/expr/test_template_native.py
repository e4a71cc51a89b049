"""A lone `{{ expr }}` gives the native value; everything else is text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arclog.expr import Limits, Scope, compile_text
from arclog.model.errors import ExpressionError

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def same(left, right):
    """Equal in value and in every type, so 1, 1.0 and True differ, and -0.0 is not 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right)


@given(json_values)
def test_any_json_value_comes_back_unchanged(value):
    assert same(compile_text("{{ x }}").evaluate({"x": value}), value)
    assert same(compile_text(" \n{{ x.y }}\n").evaluate({"x": {"y": value}}), value)
    assert same(compile_text("{{ [x][0] }}").evaluate({"x": value}), value)
    assert same(compile_text("{{ {'k': x} }}").evaluate({"x": value}), {"k": value})
    assert same(compile_text("{{ x if true else 1 }}").evaluate(Scope({}, {"x": value})), value)


@given(json_values)
def test_tojson_and_fromjson_are_inverse(value):
    made = compile_text("{{ x | tojson }}").evaluate({"x": value})
    assert made == json.dumps(value, sort_keys=True)
    assert compile_text("{{ x | fromjson }}").evaluate({"x": made}) == value


@given(st.text())
def test_text_without_markers_is_itself(source):
    if any(marker in source for marker in ("{{", "{%", "{#")):
        return
    template = compile_text(source)
    assert template.constant
    assert template.evaluate({}) == source
    assert template.free == frozenset()


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ 1.0 }}", 1.0),
        ("{{ '123' }}", "123"),
        ("{{ [1, 'a', none, true] }}", [1, "a", None, True]),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ {'a': {'b': 1}} }}", {"a": {"b": 1}}),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{# note #}{{ 1 }}", 1),
        ("{{ 1 }}{{ 2 }}", "12"),
        ("x{{ 1 }}", "x1"),
        ("{{ none }}.", "None."),
        ("{{ true }}\nend\n", "True\nend\n"),
        ("{{ ['a', 1.0, {'b': none}] }}!", "['a', 1.0, {'b': None}]!"),
        ("{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{% set x = 1 %}{{ x }}", "1"),
        ("", ""),
    ],
)
def test_field_rule(source, value):
    assert same(compile_text(source).evaluate({}), value)


def test_values_are_shared_not_copied():
    rows = [{"a": 1}]
    assert compile_text("{{ x.rows }}").evaluate({"x": {"rows": rows}}) is rows


def test_large_data_passes_through_uncounted():
    rows = [[0] * 100] * 1000
    tight = Limits(max_work=10, max_bytes=1000, max_depth=1)
    for source in ("{{ x }}", "{{ x | default([]) }}", "{{ x or [] }}", "{{ none or x }}", "{{ x if x else y }}"):
        assert compile_text(source, limits=tight).evaluate({"x": rows}) is rows
    whole = compile_text("{{ {'rows': x, 'n': 1} }}", limits=tight).evaluate({"x": rows})
    assert whole == {"rows": rows, "n": 1}


@pytest.mark.parametrize("source", ["{{ 1e999 }}", "{{ 'nan' | float }}", "{{ [1e308 * 10] }}", "{{ {1: 2} }}"])
def test_what_is_not_json_is_refused(source):
    with pytest.raises(ExpressionError):
        compile_text(source).evaluate({})


def test_a_rendered_value_is_never_rendered_again():
    scope = {"keychain": {"x": "secret"}, "evil": "{{ keychain.x }}"}
    for source in (
        "{{ evil }}",
        "{{ evil ~ '' }}",
        "{{ [evil][0] }}",
        "{{ evil | upper | lower }}",
        "{% set y = evil %}{{ y }}",
    ):
        assert compile_text(source).evaluate(scope) == "{{ keychain.x }}"
