"""Operators, statements, tests, methods: what the language does."""

import pytest

from arclog.expr import compile_text
from arclog.model.errors import ExpressionError

SCOPE = {
    "a": {"b": 1, "items": [1, 2], "name": "Ann"},
    "n": 7,
    "s": "hello world",
    "xs": [3, 1, 2],
    "rows": [{"id": 1, "ok": True, "t": {"u": "b"}}, {"id": 2, "ok": False, "t": {"u": "a"}}],
    "nil": None,
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3 - 4", 3),
        ("7 // 2", 3),
        ("7 / 2", 3.5),
        ("-7 % 3", 2),
        ("2 ** 10", 1024),
        ("2 ** -1", 0.5),
        ("1.5 + 1", 2.5),
        ("true + 1", 2),
        ("-n", -7),
        ("+n", 7),
        ("'a' + 'b'", "ab"),
        ("'ab' * 2", "abab"),
        ("2 * [0]", [0, 0]),
        ("'a' * -1", ""),
        ("[1] + [2]", [1, 2]),
        ("'a' ~ 1 ~ none ~ [1]", "a1None[1]"),
        ("n == 7", True),
        ("n != 7", False),
        ("1 < 2 < 3", True),
        ("1 < 2 > 5", False),
        ("n >= 7 and n <= 7", True),
        ("'a' < 'b'", True),
        ("[1, 2] < [1, 3]", True),
        ("1 == 1.0", True),
        ("1 == '1'", False),
        ("(1, 2) == [1, 2]", True),
        ("{'a': [1]} == {'a': [1]}", True),
        ("nil == none", True),
        ("3 in xs", True),
        ("9 not in xs", True),
        ("'b' in a", True),
        ("'wor' in s", True),
        ("[1] in [[1]]", True),
        ("5 in range(10)", True),
        ("1 and 2", 2),
        ("0 or '' or 'x'", "x"),
        ("0 or '' or []", []),
        ("1 and 0 and 2", 0),
        ("not n", False),
        ("'y' if n > 5 else 'n'", "y"),
        ("1 if false else 2 if false else 3", 3),
        ("xs[0]", 3),
        ("xs[-1]", 2),
        ("xs.0", 3),
        ("xs[1:]", [1, 2]),
        ("xs[::-1]", [2, 1, 3]),
        ("s[0:5]", "hello"),
        ("s[0]", "h"),
        ("a['b']", 1),
        ("a['b' ~ '']", 1),
        ("a.items", [1, 2]),
        ("rows[0].t.u", "b"),
        ("rows[n - 7]['id']", 1),
        ("{200: 'ok', 404: 'no'}[404]", "no"),
        ("dict(a, b=2).b", 2),
        ("dict(x=1)", {"x": 1}),
        ("range(2, 8, 3) | list", [2, 5]),
        ("range(3)[1]", 1),
        ("s.upper()", "HELLO WORLD"),
        ("s.split()", ["hello", "world"]),
        ("'a,b,c'.split(',', 1)", ["a", "b,c"]),
        ("'a,b'.split(sep=',')", ["a", "b"]),
        ("'a,b,c'.rsplit(',', maxsplit=1)", ["a,b", "c"]),
        ("s.startswith('he')", True),
        ("s.endswith(['x', 'ld'])", True),
        ("s.replace('l', 'L', 1)", "heLlo world"),
        ("'-'.join(['a', 'b'])", "a-b"),
        ("s.find('z')", -1),
        ("s.index('w')", 6),
        ("s.count('l')", 3),
        ("'x'.zfill(3)", "00x"),
        ("'x'.ljust(3, '.')", "x.."),
        ("'x'.rjust(3) ~ '|'", "  x|"),
        ("'x'.center(3, '-')", "-x-"),
        ("' x '.strip() ~ '|' ~ 'xxa'.lstrip('x') ~ 'ax'.rstrip('x')", "x|aa"),
        ("'ab'.removeprefix('a') ~ 'ab'.removesuffix('b')", "ba"),
        ("'a=b=c'.partition('=')", ["a", "=", "b=c"]),
        ("'a=b=c'.rpartition('=')", ["a=b", "=", "c"]),
        ("'a\nb'.splitlines()", ["a", "b"]),
        ("'12'.isdigit() and 'ab'.isalpha() and 'a1'.isalnum() and '1'.isnumeric() and ' '.isspace()", True),
        ("'hi THERE'.title() ~ 'hi'.capitalize() ~ 'HI'.lower()", "Hi ThereHihi"),
        ("{'k': 1}.items()", [["k", 1]]),
        ("{'k': 1}.keys()", ["k"]),
        ("{'k': 1}.values()", [1]),
        ("a.get('b')", 1),
        ("a.get('z')", None),
        ("a.get('z', 5)", 5),
        ("xs.index(1)", 1),
        ("xs.count(1)", 1),
        ("n is number and n is integer and n is odd and n is not even and n is not float", True),
        ("1.0 is float and 'a' is string and nil is none and true is boolean", True),
        ("a is mapping and xs is sequence and s is iterable and n is not iterable", True),
        ("true is true and false is false and 1 is not true", True),
        ("n is divisibleby(7)", True),
        ("n is divisibleby 7", True),
        ("n is in [7]", True),
        ("n is eq 7 and n is ne 8 and n is lt 8 and n is le 7 and n is gt 6 and n is ge 7", True),
        ("n is sameas 7 and 1 is not sameas(true)", True),
        ("'a' is lower and 'A' is upper", True),
        ("s is callable", False),
        ("'\\u00e9\\n'", "é\n"),
        ("1_000", 1000),
        ("0xff", 255),
        ("1e3", 1000.0),
        ("xs | sort | first", 1),
        ("rows | map(attribute='t.u') | join(',')", "b,a"),
        ("rows | selectattr('ok') | map(attribute='id') | list", [1]),
        ("rows | rejectattr('id', 'eq', 1) | map(attribute='id') | list", [2]),
        ("rows | sort(attribute='t.u') | map(attribute='id') | list", [2, 1]),
        ("rows | map(attribute='zz', default=0) | list", [0, 0]),
        ("(rows | groupby('ok'))[0].grouper", False),
        ("(rows | groupby('ok'))[0].list[0].id", 2),
        ("rows | groupby('ok') | map('first') | list", [False, True]),
        ("[[1], [2]] | sum(start=[])", [1, 2]),
        ("'aGk=' | b64decode ~ 'hi' | b64encode", "hiaGk="),
        ("'[1, {\"a\": null}]' | fromjson", [1, {"a": None}]),
        ("{'b': '<&>', 'a': \"é'\"} | tojson", '{"a": "\\u00e9\'", "b": "<&>"}'),
        ("' 42.9 ' | float | int", 42),
        ("'x' | int(default=5)", 5),
    ],
)
def test_expression(expression, value):
    result = compile_text("{{ " + expression + " }}").evaluate(SCOPE)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0",
        "1 % 0",
        "0 ** -1",
        "(-8) ** 0.5",
        "'a' + 1",
        "1 + [1]",
        "'a' * 'b'",
        "a + a",
        "-s",
        "'a' < 1",
        "a < a",
        "1 in 2",
        "1 in s",
        "xs['a']",
        "xs[1.5]",
        "a[xs]",
        "{xs: 1}",
        "s[0:'a']",
        "s[::0]",
        "n[0:1]",
        "n | length",
        "n | first",
        "n | list",
        "s.index('zz')",
        "s.split('')",
        "s.upper(1)",
        "s.ljust()",
        "s.ljust(1, 'ab')",
        "s.ljust(1, 2)",
        "s.strip(1)",
        "'-'.join([1])",
        "xs.index(9)",
        "n.upper()",
        "a.upper()",
        "a.items()",
        "s.nope()",
        "s | nope",
        "s is nope",
        "s | upper(1)",
        "s | replace('a')",
        "s | replace(olde='a')",
        "s | join(d='a', d='b')",
        "s | default(1, default_value=2)",
        "xs | map",
        "xs | map('nope')",
        "xs | map('upper', 1)",
        "xs | map(attribute='a', x=1)",
        "xs | select('nope')",
        "xs | select('divisibleby')",
        "xs | sort(attribute='a')",
        "['a', 1] | sort",
        "rows | sort",
        "rows | unique",
        "a | dictsort(by='x')",
        "xs | batch(0)",
        "xs | slice(0)",
        "xs | items",
        "s | round",
        "1 | round(0, 'x')",
        "s | abs",
        "[1, 'a'] | sum",
        "s | truncate(1)",
        "s | wordwrap(0)",
        "s | indent('x', 1, 2, 3)",
        "s | filesizeformat",
        "s | xmlattr",
        "{'a b': 1} | xmlattr",
        "'{' | fromjson",
        "'NaN' | fromjson",
        "1 | fromjson",
        "'é' | b64decode",
        "'//79' | b64decode",
        "[1] | urlencode",
        "s | int(base=99)",
        "range()",
        "range(1, 2, 0)",
        "range('a')",
        "range(1, 2, 3, 4)",
        "dict(1)",
        "nope()",
        "range(x=1)",
        "s is odd",
        "1 +",
        "a b",
        "'unclosed",
        "$",
        "a.",
        "a[",
    ],
)
def test_error(expression):
    with pytest.raises(ExpressionError) as caught:
        compile_text("{{ " + expression + " }}").evaluate(SCOPE)
    assert caught.value.message
    assert "object at 0x" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{% if n > 5 %}big{% elif n > 2 %}mid{% else %}small{% endif %}", "big"),
        ("{% if n > 9 %}big{% elif n > 2 %}mid{% else %}small{% endif %}", "mid"),
        ("{% if n > 9 %}big{% endif %}", ""),
        ("{% for x in xs %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}", "3,1,2"),
        ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"),
        ("{% for k in a %}{{ k }} {% endfor %}", "b items name "),
        ("{% for c in 'ab' %}[{{ c }}]{% endfor %}", "[a][b]"),
        ("{% for x in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for x in xs if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% endfor %}", "1:3/2 2:2/2 "),
        ("{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}", "none"),
        (
            "{% for x in xs %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{% endfor %}",
            "032True121False210False",
        ),
        (
            "{% for x in xs %}{{ loop.previtem | d('-') }}{{ loop.nextitem | d('-') }}{{ loop.cycle('o', 'e') }} {% endfor %}",
            "-1o 32e 1-o ",
        ),
        ("{% for x in [1, 2] %}{% for y in [3] %}{{ loop.length }}{% endfor %}{{ loop.index }}{% endfor %}", "1112"),
        ("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21"),
        ("{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"),
        ("{% if n > 9 %}{% set n = 9 %}{% endif %}{{ n }}", "7"),
        ("{% if n > 1 %}{% set n = 1 %}{% endif %}{{ n }}", "1"),
        ("{% if true %}{% set q = 1 %}{% else %}{% set q = 2 %}{% endif %}{{ q }}", "1"),
        ("{% set p, q = [1, 2] %}{{ q }}{{ p }}", "21"),
        ("{% set x %}a{{ n }}{% endset %}{{ x }}{{ x }}", "a7a7"),
        ("{% set n = n + 1 %}{{ n }}", "8"),
        (
            "{% set ns = namespace(total=0) %}{% for x in xs %}{% set ns.total = ns.total + x %}{% endfor %}{{ ns.total }}",
            "6",
        ),
        (
            "{% for i in [1, 2] %}{% if i == 1 %}{% set z = i %}{% endif %}{{ z is defined }} {% endfor %}",
            "True False ",
        ),
        (
            "{% for i in [1, 2] %}{% set b %}{% if i == 1 %}{% set z = 1 %}{% endif %}{{ z | d(0) }}{% endset %}{{ b }}{% endfor %}",
            "10",
        ),
        ("{% for g, items in rows | groupby('id') %}{{ g }}{{ items | length }}{% endfor %}", "1121"),
        ("{%- if true -%}  x  {%- endif -%}", "x"),
        ("a\r\nb{{ n }}\n", "a\nb7\n"),
    ],
)
def test_text(source, value):
    assert compile_text(source).evaluate(SCOPE) == value


@pytest.mark.parametrize(
    "source",
    [
        "{% for a, b in [1] %}{% endfor %}",
        "{% for a, b in [[1]] %}{% endfor %}",
        "{% for x in 1 %}{% endfor %}",
        "{% set x | upper %}a{% endset %}",
        "{% if %}{% endif %}",
        "{% if n %}",
        "{% endif %}",
        "{% for x in xs %}{% endif %}",
        "{% set ns = {} %}{% set ns.x = 1 %}",
        "{{ n",
        "{% ",
        "{# ",
        "{{ }}",
    ],
)
def test_bad_text(source):
    with pytest.raises(ExpressionError):
        compile_text(source).evaluate(SCOPE)


@pytest.mark.parametrize(
    "source",
    [
        "{{ '\\ud800' }}",
        "{{ 'a' ~ '\\udfffb' }}",
        "{{ {'\\ud800': 1} }}",
        "{{ '\\ud83d\\ude00' }}",
        "{{ n | default('\\ud800') }}",
    ],
)
def test_a_literal_with_half_a_character_is_no_text(source):
    template = compile_text(source)
    with pytest.raises(ExpressionError, match="half a character"):
        template.evaluate({})


@pytest.mark.parametrize(
    "text", [r'["\ud800"]', r'{"\uDBFF": 1}', r'"\udc00\ud83d"', r'"\\\ud800"', r'"\ud83d\ud83d\ude00"']
)
def test_json_with_half_a_character_is_no_value(text):
    with pytest.raises(ExpressionError, match="half a character"):
        compile_text("{{ text | fromjson }}").evaluate({"text": text})


@pytest.mark.parametrize(
    ("text", "value"), [(r'"\ud83d\ude00"', "😀"), (r'"\\ud800"', r"\ud800"), (r'"\u00e9\\"', "é\\")]
)
def test_json_with_escapes_of_whole_characters_is_read(text, value):
    assert compile_text("{{ text | fromjson }}").evaluate({"text": text}) == value
