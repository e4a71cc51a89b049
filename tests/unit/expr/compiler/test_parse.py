"""The short way to tokens gives what Jinja's lexer gives, or nothing; and templates mean the same by either way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment
from jinja2.exceptions import TemplateError
from jinja2.lexer import Token, get_lexer, operators

from arclog.expr.compiler.parse import lone, parse_lone, parse_template, plain_tokens
from arclog.expr.template import _lone_expression

LEXER = get_lexer(Environment())
PIECES = st.sampled_from(
    [
        *"abx_ .,:|()[]{}+-*/%~<>=!'\"019\\\té\n",
        "and ",
        "not ",
        "1.5",
        "0x1",
        "==",
        "//",
        "**",
        "'a b'",
        '"c"',
        "default",
    ]
)


def theirs(source: str) -> list[Token] | None:
    try:
        return list(LEXER.wrap(LEXER.tokeniter(source, None, None, "variable")))
    except TemplateError:
        return None


@settings(max_examples=1500)
@given(st.lists(PIECES, max_size=14).map("".join))
def test_the_tokens_are_those_of_jinja(source: str) -> None:
    if "}}" in source or "-}" in source:
        return  # the lexer takes it for the end of the template; `lone` keeps such texts away
    ours = plain_tokens(source, operators, Token)
    assert ours is None or ours == theirs(source)


@pytest.mark.parametrize(
    "source",
    ["args.n * 2 + workload.limit", "a['b'][0] | default(3) >= -1 and not (b or c)", 'f(x, y=1) ~ "t" if a is defined'],
)
def test_plain_expressions_take_the_short_way(source: str) -> None:
    assert plain_tokens(source, operators, Token) == theirs(source) != None  # noqa: E711 - and not None


@settings(max_examples=800)
@given(st.lists(PIECES, max_size=10).map("".join), st.sampled_from(["", " ", "-", "\n"]))
def test_a_lone_expression_is_the_one_of_the_whole_text(inside: str, edge: str) -> None:
    source = f"{{{{{edge}{inside}{edge}}}}}"
    try:
        whole = _lone_expression(parse_template(source))
    except Exception:
        whole = None
    result = parse_lone(source)
    assert result is None or result == whole


def test_what_only_looks_like_one_expression_is_not() -> None:
    for source in ("{{ a }} {{ b }}", "{{- a -}}", "{{ {'a': {}}}}", "{{ a }} text", "{{}}", "{{ a\n}}", "{# a #}"):
        assert lone(source) is None, source
