"""Every filter, test and function is documented, and its example gives what the documentation says."""

from __future__ import annotations

import pytest

from arclog.expr import compile_text
from arclog.expr.filters import reference as documented
from arclog.expr.filters.methods import FUNCTIONS
from arclog.expr.filters.predicates import PREDICATES
from arclog.expr.filters.table import FILTERS
from arclog.model.errors import ExpressionError

ALL = [
    *(entry for entries in documented.FILTERS.values() for entry in entries),
    *documented.TESTS,
    *documented.FUNCTIONS,
]


def test_nothing_is_left_out() -> None:
    names = [entry.name for entries in documented.FILTERS.values() for entry in entries]
    assert sorted(names) == sorted(FILTERS)
    assert sorted(entry.name for entry in documented.TESTS) == sorted(PREDICATES)
    assert sorted(entry.name for entry in documented.FUNCTIONS) == sorted(FUNCTIONS)


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.example)
def test_the_example_is_true(entry: documented.Entry) -> None:
    value = compile_text(f"{{{{ {entry.example} }}}}").evaluate({})
    assert (value, type(value)) == (entry.value, type(entry.value))


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("'x' | date", "not a date or time"),
        ("1e300 | datetime", "seconds since 1970"),
        ("'2027-01-31' | date_add(days=1e12)", "year 9999"),
        ("'9999-12-01' | date_add(months=1)", "year 9999"),
        ("'2027-01-31' | date_format('%Q')", "no directive"),
        ("'2027-01-31' | date_format('%Y' * 200)", "at most"),
        ("'2027-01-31' | to_zone('../etc/passwd')", "no time zone"),
        ("'2027-01-31' | date_diff('2027-01-30', 'years')", "the unit"),
        ("('a' * 100000 ~ 'b') | regex_search('(a+)+$')", "operations"),
        ("'a' | regex_search('(?=a)')", "only"),
        ("'a' | regex_search('a', 3)", "no group"),
        ("('a' * 3000) | regex_replace('a', 'b' * 3000)", "bytes"),
        ("'x' | hash('crc')", "hash knows"),
        ("'zz' | hexdecode", "hexadecimal"),
        ("'%ff' | urldecode", "percent"),
        ("[] | average", "empty list"),
        ("'a' | split('')", "separator"),
        ("[1] | to_map", "pairs"),
        ("'x' | rjust(100000000)", "bytes"),
    ],
)
def test_what_cannot_be_done_is_an_error(expression: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        compile_text(f"{{{{ {expression} }}}}").evaluate({})
