"""Free names, static paths, positions, conditions, trees."""

import pytest

from arclog.expr import Scope, compile_condition, compile_text, compile_tree
from arclog.model.errors import ExpressionError, Position


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("plain", set()),
        ("{{ ctx }}", {("ctx",)}),
        ("{{ workload.api_url }}", {("workload", "api_url")}),
        ("{{ fetch.data.rows[0].id }}", {("fetch", "data", "rows")}),
        ("{{ fetch.data['a-b'].c }}", {("fetch", "data", "a-b", "c")}),
        ("{{ fetch[key].x }}", {("fetch",), ("key",)}),
        ("{{ x.rows.items() }}", {("x", "rows")}),
        ("{{ x.rows | length }}", {("x", "rows")}),
        ("{{ x.rows[1:] }}", {("x", "rows")}),
        ("{{ x.a is defined and y.b }}", {("x", "a"), ("y", "b")}),
        ("{{ a.b ~ a.c ~ a }}", {("a", "b"), ("a", "c"), ("a",)}),
        ("{{ range(n) }}", {("n",)}),
        ("{{ range }}", {("range",)}),
        ("{{ d | default(e.f) }}", {("d",), ("e", "f")}),
        ("{{ [a, {'k': b.c}] }}", {("a",), ("b", "c")}),
        ("{{ 1 if a.b else c.d }}", {("a", "b"), ("c", "d")}),
        ("{{ xs | map(attribute=f.g) }}", {("xs",), ("f", "g")}),
        ("{% for r in fetch.rows %}{{ r.id }}{{ loop.index }}{% endfor %}", {("fetch", "rows")}),
        ("{% for r in a %}{% else %}{{ r.x }}{% endfor %}", {("a",), ("r", "x")}),
        ("{% for r in r.items %}{{ r }}{% endfor %}", {("r", "items")}),
        ("{% set x = a.b %}{{ x.c }}", {("a", "b")}),
        ("{{ x.c }}{% set x = 1 %}{{ x }}", {("x", "c")}),
        ("{% if c %}{% set x = 1 %}{% endif %}{{ x }}", {("c",), ("x",)}),
        ("{% if c %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}", {("c",)}),
        ("{% if c %}{% set x = 1 %}{% elif d %}{% set x = 2 %}{% endif %}{{ x }}", {("c",), ("d",), ("x",)}),
        ("{% for i in l %}{% set x = 1 %}{% endfor %}{{ x }}", {("l",), ("x",)}),
        ("{% set ns = namespace(a=b) %}{% set ns.a = c.d %}{{ ns.a }}", {("b",), ("c", "d")}),
        ("{{ loop }}", {("loop",)}),
    ],
)
def test_paths(source, paths):
    template = compile_text(source)
    assert template.paths == paths
    assert template.free == {path[0] for path in paths}
    assert template.constant is ("{" not in source)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("{{ nope }}", 10),
        ("\n\n{{ nope }}", 12),
        ("{{ 1 }}\n{{ a }}\n{{ nope }}\n{{ a }}", 12),
        ("{{ a !=\n 1 and\n nope }}", 12),
        ("{{ a +\n nope.x\n }}", 11),
        ("{{ a |\n\n nofilter }}", 12),
        ("{{ [1,\n 2,\n 1 // 0] }}", 12),
        ("x\n{% if nope == 1 %}{% endif %}", 11),
        ("x\n{% for y in a %}\n{{ y.nope }}\n{% endfor %}", 12),
        ("x\n\n{% macro m() %}{% endmacro %}", 12),
        ("x\n{{ ( }}", 11),
        ("x\n{% for a, b in [1] %}\n{% endfor %}", 11),
    ],
)
def test_errors_point_at_the_line(source, line):
    with pytest.raises(ExpressionError) as caught:
        compile_text(source, Position(10, 5)).evaluate({"a": [1]})
    assert caught.value.at.line == line
    assert caught.value.source == source
    if line == 10:
        assert caught.value.at == Position(10, 5)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (True, True),
        (False, False),
        ("true", True),
        ("{{ a }}", True),
        (" {{ a.b }} ", False),
        ("a.b == 0", True),
        ("a.b == 0 and\n a", True),
        ("[]", False),
        ("{{ 'text' }}", True),
        ("'{' == '{'", True),
    ],
)
def test_condition(source, value):
    template = compile_condition(source)
    assert template.evaluate({"a": {"b": 0}}) is value


def test_condition_facts():
    assert compile_condition(True).constant
    assert compile_condition("a.b").paths == {("a", "b")}
    with pytest.raises(ExpressionError, match=r"one \{\{ expression \}\}"):
        compile_condition("a is {{ a }}", Position(3, 1))
    with pytest.raises(ExpressionError) as caught:
        compile_condition("a and\n nope.x", Position(3, 1)).evaluate({"a": 1})
    assert caught.value.at.line == 4


def test_tree():
    places = {("url",): Position(4, 2), ("body", "n", 1): Position(7, 9)}
    value = {"url": "http://{{ host }}/", "body": {"n": [1, "{{ n.x }}", None], "{{ key }}": "same"}, "t": True}
    tree = compile_tree(value, lambda path: places.get(path, Position()))
    assert tree.free == {"host", "n"}
    assert tree.paths == {("host",), ("n", "x")}
    assert not tree.constant
    assert tree.evaluate({"host": "h", "n": {"x": [1.0]}}) == {
        "url": "http://h/",
        "body": {"n": [1, [1.0], None], "{{ key }}": "same"},
        "t": True,
    }
    with pytest.raises(ExpressionError) as caught:
        tree.evaluate({"host": "h"})
    assert caught.value.at == Position(7, 9)


def test_a_constant_tree_is_handed_out_fresh():
    tree = compile_tree({"a": [1, {"b": "x"}]})
    assert tree.constant
    first = tree.evaluate({})
    first["a"].append(2)
    assert tree.evaluate({}) == {"a": [1, {"b": "x"}]}


@pytest.mark.parametrize("value", [None, 1, True, "x", [], {}])
def test_tree_of_a_scalar(value):
    assert compile_tree(value).evaluate({}) == value


def test_scope_layers():
    scope = Scope({"a": 1}, {"a": 2, "b": None}, {"c": 3})
    assert scope["a"] == 1
    assert scope.get("b", 5) is None
    assert scope.get("z", 5) == 5
    assert "c" in scope
    assert sorted(scope) == ["a", "b", "c"]
    assert len(scope) == 3
    assert compile_text("{{ [a, b, c] }}").evaluate(scope) == [1, None, 3]
    with pytest.raises(KeyError):
        scope["z"]
