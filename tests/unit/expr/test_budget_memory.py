"""Memory: what a whole evaluation holds is bounded in real bytes, whichever way a template goes about it."""

import tracemalloc

import pytest

from arclog.expr import Limits, compile_text
from arclog.model.errors import ExpressionError

MIB = 1024 * 1024
#: what evaluations may hold here, and what they may really take: bytes are estimated before they are allocated
LIMITS = Limits(max_bytes=MIB)
MOST = 3 * MIB

GATHER = "{{% set ns = namespace(l=[]) %}}{{% for i in range(100000) %}}{{% set ns.l = ns.l + [{}] %}}{{% endfor %}}"

HOARDS = [
    # Many values, each of them small enough.
    GATHER.format("('😀' ~ i) * 1000"),
    GATHER.format("('x' ~ i) * 1000"),
    GATHER.format("[0] * 1000"),
    GATHER.format("range(1000) | list"),
    GATHER.format("range(i, i + 1000) | map('string') | list"),
    GATHER.format("{'a': i, 'b': i}"),
    GATHER.format("namespace(a=i)"),
    GATHER.format("dict(a=i)"),
    GATHER.format("7 ** 600 + i"),
    GATHER.format("i / 3"),
    GATHER.format("('9' * 4000) | int"),
    GATHER.format("(i ~ 'x') | upper"),
    GATHER.format("((i ~ ' ') * 100) | title"),
    GATHER.format("('x' * 1000).split('x')"),
    GATHER.format("('é' * 1000) | list"),
    GATHER.format("('[' ~ '[],' * 500 ~ '1]') | fromjson"),
    GATHER.format("('[' ~ '{},' * 500 ~ '1]') | fromjson"),
    GATHER.format("('x' * 1000).partition('y')"),
    GATHER.format("'x'.ljust(1000)"),
    GATHER.format("'x'.ljust(1000, '😀')"),
    GATHER.format("'x' | center(1000)"),
    GATHER.format("('x' * 1000)[1:]"),
    GATHER.format("('x' * 1000) | reverse"),
    GATHER.format("('x' * 1000) | urlencode"),
    GATHER.format("('x' * 1000) | b64encode"),
    GATHER.format("('x' * 1000).replace('x', 'yy')"),
    GATHER.format("(['x'] * 1000) | join('y')"),
    GATHER.format("([i] * 1000) | tojson"),
    GATHER.format("([i] * 1000) | string"),
    GATHER.format("([i] * 1000) | batch(1)"),
    GATHER.format("([i] * 1000) | slice(500)"),
    GATHER.format("range(1000) | map('abs') | list"),
    GATHER.format("range(1000) | select | list"),
    GATHER.format("range(1000) | sort"),
    GATHER.format("range(1000) | unique"),
    GATHER.format("range(1000) | groupby(none)"),
    GATHER.format("dict(a=1, b=2) | dictsort"),
    GATHER.format("dict(a=1, b=2).items()"),
    GATHER.format("{}[('x' * 1000) ~ i]"),
    GATHER.format("nothing['x' * 1000][i ~ 'x' * 1000] | default(i / 3)"),
    "{% set ns = namespace(m={}) %}{% for i in range(100000) %}{% set ns.m = dict(ns.m, a=[ns.m.a]) %}{% endfor %}",
    "{% set ns = namespace(u=1) %}{% for i in range(100000) %}{% set ns.u = [ns.u, ns.u.x] %}{% endfor %}",
    "{% for i in range(100000) %}{% set x %}{{ 'x' * 1000 }}{% endset %}{{ x }}{% endfor %}",
    "{% for i in range(100000) %}{{ '😀' * 1000 }}{% endfor %}",
    "{% for i in range(100) %}{{ 'x' * 10000 }}{% endfor %}😀{% for i in range(100) %}{{ 'x' * 10000 }}{% endfor %}",
    # Many values in one expression.
    "{{ [" + ", ".join("('x' ~ a) * 100000" for _ in range(500)) + "] }}",
    "{{ {" + ", ".join(f"'k{at}': ('x' ~ a) * 100000" for at in range(500)) + "} }}",
    "{{ [" + ", ".join("['x' * 100000]" for _ in range(500)) + "] | length }}",
    # Bytes, not characters.
    "{{ '😀' * 1000000 }}",
    "{{ ('x' * 900000) ~ '😀' }}",
    "{{ ('x' * 900000) + '😀' }}",
    "{{ ['x' * 900000, '😀'] | join }}",
    "{{ '😀'.join(['x' * 100000] * 9) }}",
    "{{ ('x' * 900000).replace('x', '😀') }}",
    "{{ ('x' * 900000) | replace('x', 'é') | upper }}",
    "{{ ['x' * 900000, '😀'] | string }}",
    "{{ 'x'.ljust(900000, '😀') }}",
    "{{ ('ÿ' * 900000) | upper }}",
    # Spellings that grow.
    "{{ ('\\u0001' * 500000) | tojson }}",
    "{{ ('😀' * 200000) | tojson }}",
    "{{ [('\\u0001' * 500000)] | string }}",
    "{{ [('\\U0010ffff' * 200000)] | string }}",
    "{% set ns = namespace(l=range(1000) | list) %}{% for i in range(90) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson(64) }}",
    "{{ ('[' ~ '[],' * 300000 ~ '1]') | fromjson | length }}",
    "{{ ('[' ~ '{},' * 300000 ~ '1]') | fromjson | length }}",
    "{{ ('[' ~ '257,' * 200000 ~ '1]') | fromjson | length }}",
    "{{ ('[' ~ '[{},\"xy\"],' * 100000 ~ '1]') | fromjson | length }}",
    "{{ ('é' * 500000) | list | length }}",
    "{{ ('é ' * 300000).split() | length }}",
    "{{ ('é\\n' * 300000).splitlines() | length }}",
    "{{ ('<' * 500000) | escape }}",
    "{{ ('é' * 300000) | urlencode }}",
    "{{ ('a ' * 300000) | wordwrap(1) }}",
    "{{ ('a\\n' * 300000) | indent(10) }}",
    "{{ ('-a' * 300000) | title }}",
    # Parts that are shared are small in memory, and large for whoever writes them down.
    "{{ ['x' * 100000] * 1000 }}",
    "{{ [['x' * 1000] * 1000] * 1000 }}",
    "{{ [" + ", ".join("big" for _ in range(500)) + "] }}",
    "{{ {" + ", ".join(f"'k{at}': big" for at in range(500)) + "} }}",
]


def peak(source: str) -> tuple[str, int]:
    """How an evaluation ends, and the most bytes that it held."""
    template = compile_text(source, limits=LIMITS)
    scope = {"a": "y", "big": ["x" * 10_000] * 20}
    template_error = ""
    tracemalloc.start()
    try:
        template.evaluate(scope)
    except ExpressionError as error:
        template_error = error.message
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return template_error, most


@pytest.mark.parametrize("source", HOARDS, ids=[str(at) for at in range(len(HOARDS))])
def test_a_template_holds_no_more_than_it_may(source):
    message, most = peak(source)
    assert most < MOST
    assert "expr.max_bytes" in message or "expr.max_work" in message
