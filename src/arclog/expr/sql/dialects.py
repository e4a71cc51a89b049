"""How each database reads SQL, as data: what quotes, comments and placeholders it has."""

from __future__ import annotations

from msgspec import Struct


class Dialect(Struct, frozen=True):
    """How one database reads SQL."""

    name: str
    #: what a bound value looks like in the text, from its number
    placeholder: str
    nested_comments: bool = False
    dollar_quotes: bool = False
    #: E'…' has backslash escapes
    escape_strings: bool = False
    #: [name] and `name` are quoted names
    brackets: bool = False
    #: ? is a placeholder, not an operator
    question_marks: bool = False
    #: $name and :name can only be placeholders
    named_marks: bool = False
    #: longest name in bytes; a longer one would be cut silently
    max_name_bytes: int = 0
    #: how to ask whether a value is in a bound list
    membership: str = ""


DIALECTS = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            "sqlite",
            "?{}",
            brackets=True,
            question_marks=True,
            named_marks=True,
            membership="IN (SELECT value FROM json_each({{ … }}))",
        ),
        Dialect(
            "postgres",
            "${}",
            nested_comments=True,
            dollar_quotes=True,
            escape_strings=True,
            max_name_bytes=63,
            membership="= ANY({{ … }})",
        ),
        Dialect(
            "duckdb",
            "${}",
            nested_comments=True,
            dollar_quotes=True,
            escape_strings=True,
            question_marks=True,
            membership="IN (SELECT unnest({{ … }}))",
        ),
    )
}
