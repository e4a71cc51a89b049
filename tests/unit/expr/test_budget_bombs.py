"""Denial of service: counted work and bytes stop it before it is built. None of these may take noticeable time."""

from typing import Any

import pytest

from arclog.expr import Limits, compile_condition, compile_text, compile_tree
from arclog.model.errors import ExpressionError

BIG = 10**9

BOMBS = [
    "{{ range(10**9)|list }}",
    "{{ range(10**9) }}",
    "{{ range(10**30) }}",
    "{{ range(10**9)|sum }}",
    "{{ range(10**9)|join }}",
    "{{ range(10**9)|string }}",
    "{{ range(10**9)|map('string')|list }}",
    "{{ range(10**9)|select('odd')|list }}",
    "{{ range(10**9)|sort }}",
    "{{ range(10**9)|reverse }}",
    "{{ range(10**9)|unique }}",
    "{{ range(10**9)|batch(3) }}",
    "{{ range(10**9)|tojson }}",
    "{{ range(10**9)|max }}",
    "{{ 'a' in range(10**9) }}",
    "{{ [range(10**9)] }}",
    "{{ [range(10**9)] == [range(10**9)] }}",
    "{% for i in range(10**9) %}{% endfor %}",
    "{% for i in range(10**9) if i < 0 %}{% endfor %}",
    "{% for i in range(1000) %}{% for j in range(1000) %}{% for k in range(1000) %}x{% endfor %}{% endfor %}{% endfor %}",
    "{{ 9**(9**9) }}",
    "{{ 9**9**9**9 }}",
    "{{ 2**100000000 }}",
    "{{ (10**600) * (10**600) }}",
    "{{ (10**600)|string|int * 10**300 }}",
    "{{ 10**600 // 3 * 10**600 }}",
    "{{ 'x'.ljust(10**9) }}",
    "{{ 'x'.rjust(10**9) }}",
    "{{ 'x'.center(10**9) }}",
    "{{ 'x'.zfill(10**9) }}",
    "{{ 'x'|center(10**9) }}",
    "{{ 'a'*10**9 }}",
    "{{ 10**9*'a' }}",
    "{{ 'a'*10**30 }}",
    "{{ [0]*10**9 }}",
    "{{ ('a'*10**6).replace('a', 'b'*10**6) }}",
    "{{ ('a'*10**6)|replace('', 'b'*10**3) }}",
    "{{ ('a'*10**6)|replace('a', 'b'*10**6) }}",
    "{{ ('a'*10**6).join(['b']*1000) }}",
    "{{ (['b'*1000]*100000)|join('a'*1000) }}",
    "{{ ['a'*10**6]*100|join }}",
    "{{ (['a'*10**6]*10)|join ~ (['a'*10**6]*10)|join }}",
    "{{ (['a'*10**6]*100)|sum(start='') }}",
    "{{ ('a'*10**6).split('a') }}",
    "{{ (' a'*10**6).split() }}",
    "{{ ('\\n'*10**6).splitlines() }}",
    "{{ ('a'*4*10**6)|list }}",
    "{{ ('a\\n'*10**6)|indent(10**6) }}",
    "{{ 'a'|indent(10**9) }}",
    "{{ ('a '*10**6)|wordwrap(1) }}",
    "{{ ('-'*10**6)|wordwrap(5) }}",
    "{{ ('a '*10**5)|wordwrap(1, wrapstring='x'*10**6) }}",
    "{{ [1]|batch(10**9, 0) }}",
    "{{ [1]|slice(10**9, 0) }}",
    "{{ [1]|slice(10**9) }}",
    "{{ 1.5|round(10**9) }}",
    "{{ 15|round(-10**9) }}",
    "{{ 1.5|round(10**9, 'ceil') }}",
    "{{ ('9'*5000)|int }}",
    "{{ ('f'*10**6)|int(base=16) }}",
    "{{ ('9'*10**6)|float }}",
    "{{ huge ~ '' }}",
    "{{ [huge] ~ '' }}",
    "{{ huge|string }}",
    "{{ [huge]|tojson }}",
    "{{ huge * huge }}",
    "{{ huge ** 2 }}",
    "{{ huge % 7 }}",
    "{{ [[[0]*1000]*1000]*1000 }}",
    "{{ [[[0]*1000]*1000]*1000 == [[[0]*1000]*1000]*1000 }}",
    "{{ [[[0]*1000]*1000]*1000 < [[[0]*1000]*1000]*1000 }}",
    "{{ [[[0]*1000]*1000]*1000 in [[[[0]*1000]*1000]*1000] }}",
    "{{ [[[0]*1000]*1000]*1000 ~ '' }}",
    "{{ ([[[0]*1000]*1000]*1000)|tojson }}",
    "{{ ([[[0]*1000]*1000]*1000)[0:900] }}",
    "{{ ([[[[0]*1000]*1000]*1000]*1000)[0] }}",
    "{{ [[[[0]*1000]*1000]*1000, [[[0]*1000]*1000]*1000]|sort }}",
    "{{ [{'a': [[[0]*1000]*1000]*1000}, {'a': [[[0]*1000]*1000]*1000}]|groupby('a') }}",
    "{{ [[[[0]*1000]*1000]*1000]|unique }}",
    "{{ ['x'*4000000]*500000 }}",
    "{{ [['x'*4000000]*4000]*4000 }}",
    "{{ {'a': ['x'*4000000]*500}|string }}",
    "{{ ('x'*4000000)|urlencode }}",
    "{{ ('<'*4000000)|escape }}",
    "{{ ('x'*4*10**6)|b64encode }}",
    "{{ [1]|tojson(indent=10**9) }}",
    "{{ ('['*10**5)|fromjson }}",
    "{{ ('['*10**5 ~ ']'*10**5)|fromjson }}",
    "{{ ('9'*10**5)|fromjson }}",
    "{{ ('a'*10**6 ~ 'b').rfind('b' ~ 'a'*10**6) }}",
    "{{ ('a'*10**6).strip('b'*10**6) }}",
    "{{ [{'a': 1}]*1000|map(attribute='a.'*10**5)|list }}",
    "{% set a = [0] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}",
    "{% set a = [0] %}{% set b = [0] %}" + "{% set a = [a, a] %}{% set b = [b, b] %}" * 60 + "{{ a == b }}",
    "{% set a = 'x' %}" + "{% set a = a ~ a %}" * 60,
    "{% set ns = namespace(a='x') %}{% for i in range(100) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
    "{% set ns = namespace(a=[]) %}{% for i in range(10**5) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=[]) %}{% for i in range(10**5) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a == ns.a }}",
    "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me }}",
    "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns.me }}",
    "{% set ns = namespace(a=2) %}{% for i in range(100) %}{% set ns.a = ns.a * ns.a %}{% endfor %}{{ ns.a }}",
    "{% set s = 'x'*4000000 %}{% for i in range(10**6) %}{% if s == s ~ '' %}{% endif %}{% endfor %}",
    "{% set s = 'x'*4000000 %}{% for i in range(10**6) %}{% if 'y' in s %}{% endif %}{% endfor %}",
    "{% set s = ['x'*4000000]*10 %}{% set t = ['x'*4000000]*10 %}{% for i in range(10**6) %}{{ s == t }}{% endfor %}",
    "{% for i in range(10**6) %}" + "x" * 1000 + "{% endfor %}",
    "{% for i in range(10**6) %}{% set y %}" + "x" * 1000 + "{% endset %}{% endfor %}",
    "{% for i in range(10**6) %}{{ (['a'] * 1000).count('b') }}{% endfor %}",
    "{% set s = '9' * 4200 %}{% for i in range(10**6) %}{% if s | int %}{% endif %}{% endfor %}",
    "{% set s = 'a\\n' * 60000 %}{% for i in range(10**6) %}{% if s | indent %}{% endif %}{% endfor %}",
    "{% set s = '\u00e9' * 100000 %}{% for i in range(10**6) %}{% if s | urlencode %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 4000000 %}{% for i in range(10**6) %}{% if s is lower %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 10**6 %}{% for i in range(10**6) %}{{ s.rfind('b' ~ 'a' * 50) }}{% endfor %}",
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("source", BOMBS, ids=[str(at) for at in range(len(BOMBS))])
def test_bomb_is_stopped(source):
    with pytest.raises(ExpressionError):
        compile_text(source).evaluate({"huge": 7**200_000})


NESTED = [
    "(" * 10_000 + "1" + ")" * 10_000,
    "(" * 50 + "1" + ")" * 50,
    "[" * 10_000 + "]" * 10_000,
    "{'a':" * 10_000 + "1" + "}" * 10_000,
    "not " * 10_000 + "x",
    "-" * 10_000 + "1",
    "- " * 10_000 + "1",
    "+-" * 10_000 + "1",
    "1" + "+1" * 10_000,
    "1" + "**1" * 10_000,
    "1" + "*-1" * 10_000,
    "1" + " if 1 else 1" * 10_000,
    "1" + " if 1" * 10_000,
    "x" + "[0" * 1_000 + "]" * 1_000,
    "x" + "()" * 10_000,
    "x" + "|upper" * 10_000,
    "x" + " is defined" * 10_000,
    "range(" * 1_000 + "1" + ")" * 1_000,
    "(" * 10_000,
    "x.y(" * 2_000 + ")" * 2_000,
    "9" * 5_000,
    "'\\x'",
    "'\\N{x}'",
    "1" + " and (1" * 500 + ")" * 500,
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("source", NESTED, ids=[str(at) for at in range(len(NESTED))])
def test_deep_nesting_is_refused(source):
    with pytest.raises(ExpressionError):
        compile_text("{{ " + source + " }}").evaluate({"x": "a"})
    with pytest.raises(ExpressionError):
        compile_condition(source).evaluate({"x": "a"})


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "source",
    [
        "{% if 1 %}" * 1_000 + "{% endif %}" * 1_000,
        "{% for i in [1] %}" * 1_000 + "{% endfor %}" * 1_000,
        "{% set x %}" * 1_000 + "{% endset %}" * 1_000,
        "{% if 1 %}" * 90 + "{{ " + "(" * 30 + "1" + ")" * 30 + " }}" + "{% endif %}" * 90,
        "{{ 'a' }}" * 100_000,
        "{{ '" + "a" * 300_000 + "' }}",
    ],
    ids=range(6),
)
def test_deep_or_long_texts_are_refused(source):
    with pytest.raises(ExpressionError):
        compile_text(source).evaluate({})


@pytest.mark.timeout(60)
def test_long_but_flat_is_fine():
    assert compile_text("{{ " + "a.x" + ".y" * 5_000 + " | default(1) }}").evaluate({}) == 1
    assert compile_text("{{ " + " or ".join(["x"] * 1_000) + " }}").evaluate({"x": 1}) == 1
    assert compile_text("{{ " + " ~ ".join(["x"] * 1_000) + " }}").evaluate({"x": 1}) == "1" * 1_000
    assert compile_text("{{ [" + ",".join(["-1"] * 5_000) + "] }}").evaluate({}) == [-1] * 5_000
    assert compile_text("{{ -1 }} " * 3_000).evaluate({}) == "-1 " * 3_000
    assert compile_text("{% set x = 1 %}" * 2_000 + "{{ x }}").evaluate({}) == "1"
    assert compile_text("{{ " + "(" * 25 + "1" + ")" * 25 + " }}").evaluate({}) == 1


def test_nesting_limits_hold_whatever_the_stack():
    source = "{{ " + "(" * 25 + " + ".join(["1"] * 90) + ")" * 25 + " }}"

    def deeper(levels):
        return deeper(levels - 1) if levels else compile_text(source).evaluate({})

    assert deeper(0) == deeper(200) == 90


def test_a_deep_tree_is_refused():
    value: Any = "x"
    for _ in range(5_000):
        value = [value]
    with pytest.raises(ExpressionError):
        compile_tree(value)


@pytest.mark.parametrize(
    ("source", "limits", "name"),
    [
        ("{% for i in range(100) %}{% endfor %}", Limits(max_work=50), "max_work"),
        ("{{ 'a' * 11 }}", Limits(max_bytes=10), "max_bytes"),
        ("{{ 'aaaaaa' }}{{ 'aaaaaa' }}", Limits(max_bytes=10), "max_bytes"),
        ("{{ [[[1 + 1]]] }}", Limits(max_depth=2), "max_depth"),
    ],
)
def test_the_error_names_the_limit(source, limits, name):
    with pytest.raises(ExpressionError, match=name):
        compile_text(source, limits=limits).evaluate({})
    compile_text(source).evaluate({})


def test_work_is_counted_alike_each_time():
    template = compile_text("{% for i in range(1000) %}{{ i }}{% endfor %}")
    assert len(template.evaluate({})) == len(template.evaluate({})) == 2890


@pytest.mark.parametrize("source", ["{{ [a] }}", "{{ a }}", "{{ {'k': a} }}", "{{ a or 1 }}", "{{ [a, range(2)] }}"])
def test_data_that_is_wrapped_once_more_each_round_comes_to_an_end(source):
    """`set_ctx: {a: "{{ [ctx.a] }}"}` in a cycle: what is written must be readable from any depth of calls."""
    template = compile_text(source)

    def rounds(value: Any) -> None:
        for _ in range(1000):
            value = [template.evaluate({"a": value})]

    with pytest.raises(ExpressionError, match="nested deeper than"):
        rounds([])
    assert template.evaluate({"a": [1]}) is not None
