"""Whatever comes in: a value or an ExpressionError, never anything else."""

import contextlib
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from arclog.expr import Limits, View, compile_condition, compile_text
from arclog.expr.filters.methods import NAMES
from arclog.expr.filters.predicates import PREDICATES
from arclog.expr.filters.table import FILTERS
from arclog.model.errors import ExpressionError

SCOPE = {
    "a": {"b": {"c": 1}, "items": [1], "s": "text"},
    "n": 3,
    "f": 1.5,
    "s": "a b,c",
    "xs": [3, 1, 2],
    "rows": [{"id": 2, "t": "x"}, {"id": 1, "t": "y"}],
    "nil": None,
    "view": View({"status": "ok", "data": {"rows": [1]}}),
    "huge": 10**5000,
    "deep": json.loads("[" * 200 + "]" * 200),
}
LIMITS = Limits(max_work=20_000, max_bytes=100_000)

pieces = st.sampled_from(
    ["{{", "}}", "{%", "%}", "{#", "#}", "if", "else", "for", "in", "set", "endif", "endfor", "endset", "is", "not", "a", "n", "xs",
     ".", "|", "(", ")", "[", "]", "{", "}", ",", ":", "=", "==", "+", "-", "*", "**", "~", "%", "'", '"', "1", "2.5", "\n", " ",
     "loop", "namespace", "range", "raw", "endraw", "true", "none", "\\", "default", "length", "defined", "-%}", "{{-"]
)  # fmt: skip


def attempt(compile_source, source):
    with contextlib.suppress(ExpressionError):
        value = compile_source(source, limits=LIMITS).evaluate(SCOPE)
        json.dumps(value, allow_nan=False) if value is not SCOPE["huge"] and "huge" not in source else None


@settings(max_examples=300)
@given(st.text() | st.lists(pieces, max_size=30).map(" ".join) | st.lists(pieces, max_size=30).map("".join))
def test_any_text(source):
    attempt(compile_text, source)
    attempt(compile_text, "{{ " + source + " }}")
    attempt(compile_text, "{% " + source + " %}")
    attempt(compile_condition, source)


atoms = st.sampled_from([*SCOPE, "a.b.c", "a.zz", "zz.y", "xs[0]", "rows[0].id", "1", "0", "-1", "2.5", "1e308", "'x'", "'a b'", "''", "true", "none", "[]", "{}", "'id'", "100000", "10**9"])  # fmt: skip


def grow(inner):
    args = st.lists(inner, max_size=3).map(", ".join)
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(inner, st.sampled_from(sorted(FILTERS)), args).map(lambda p: f"({p[0]} | {p[1]}({p[2]}))"),
        st.tuples(inner, st.sampled_from(sorted(FILTERS))).map(lambda p: f"({p[0]} | {p[1]})"),
        st.tuples(inner, st.sampled_from([name for name in sorted(PREDICATES) if name.isalpha()]), args).map(lambda p: f"({p[0]} is {p[1]}({p[2]}))"),
        st.tuples(inner, st.sampled_from(sorted(NAMES)), args).map(lambda p: f"{p[0]}.{p[1]}({p[2]})"),
        st.tuples(inner, inner).map(lambda p: f"{p[0]}[{p[1]}]"),
        st.tuples(inner, inner, inner).map(lambda p: f"{p[0]}[{p[1]}:{p[2]}]"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        st.tuples(inner, inner).map(lambda p: f"[{p[0]}, {p[1]}]"),
        st.tuples(inner, inner).map(lambda p: f"{{{p[0]}: {p[1]}}}"),
        st.tuples(inner, st.sampled_from(sorted(FILTERS)), args).map(lambda p: f"({p[0]} | map('{p[1]}', {p[2] or 1}))"),
        st.tuples(inner, st.sampled_from(sorted(PREDICATES))).map(lambda p: f"({p[0]} | select('{p[1]}'))"),
        st.tuples(st.sampled_from(["range", "dict", "namespace"]), args).map(lambda p: f"{p[0]}({p[1]})"),
        inner.map(lambda e: f"(not {e})"),
        inner.map(lambda e: f"(-{e})"),
    )  # fmt: skip


expressions = st.recursive(atoms, grow, max_leaves=8)


@settings(max_examples=1000, deadline=None)
@given(expressions)
def test_any_expression(source):
    attempt(compile_text, "{{ " + source + " }}")
    attempt(compile_text, "<{{ " + source + " }}>")
    attempt(compile_condition, source)


@settings(max_examples=200, deadline=None)
@given(expressions, expressions, expressions)
def test_any_statement(one, two, three):
    attempt(
        compile_text,
        f"{{% for x in {one} %}}{{% set y = {two} %}}{{{{ y ~ x }}}}{{% else %}}{{{{ {three} }}}}{{% endfor %}}",
    )
    attempt(compile_text, f"{{% if {one} %}}{{{{ {two} }}}}{{% elif {three} %}}b{{% endif %}}")
