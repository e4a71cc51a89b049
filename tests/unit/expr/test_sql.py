"""SQL in playbooks: what becomes a bound value, what a name, what is refused and with which remedy."""

from __future__ import annotations

from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arclog.expr.sql.compile import SqlRefused, compile_sql
from arclog.expr.sql.scan import DIALECTS
from arclog.model.errors import ExpressionError, Position

ALL = sorted(DIALECTS)
SCOPE = {"x": "v", "n": 5, "l": [1, 2], "d": {"a": 1}, "none": None, "yes": True}


def made(source: str, dialect: str = "postgres", params: Any = None, scope: dict[str, Any] | None = None):
    """(text, values) of each statement."""
    result = compile_sql(source, dialect, params).evaluate(SCOPE if scope is None else scope)
    return [(statement["sql"], statement["params"]) for statement in result]


def refusal(source: str, dialect: str = "postgres", params: Any = None) -> tuple[str, str]:
    """Position (of a text that begins at 10:5) and message."""
    with pytest.raises(SqlRefused) as caught:
        compile_sql(source, dialect, params, Position(10, 5))
    return str(caught.value.at), caught.value.message


# ── bound values ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("dialect", "mark"), [("postgres", "$"), ("duckdb", "$"), ("sqlite", "?")])
def test_a_template_is_a_bound_value(dialect, mark):
    assert made("SELECT {{ x }}, {{ n + 1 }}, {{ l }}, {{ d }}", dialect) == [
        (f"SELECT {mark}1, {mark}2, {mark}3, {mark}4", ["v", 6, [1, 2], {"a": 1}])
    ]


def test_each_statement_counts_its_own_values():
    assert made("SELECT {{ x }}; SELECT {{ n }}, {{ x }};") == [("SELECT $1", ["v"]), ("SELECT $1, $2", [5, "v"])]


def test_in_exact_quotes_a_value_is_text():
    values = made("SELECT '{{ x }}', '{{ n }}', '{{ d }}', '{{ none }}', '{{ yes }}', '{{ 0.5 }}'")[0][1]
    assert values == ["v", "5", '{"a":1}', None, "true", "0.5"]


def test_quotes_and_braces_inside_a_template_are_its_own():
    source = """SELECT {{ {'a': {'b': '}} \\' "'}} }}, {{ d['a'] }}, '{{ d["a"] }}', {{ "it's; --" }} -- end"""
    assert made(source) == [("SELECT $1, $2, $3, $4 -- end", [{"a": {"b": "}} ' \""}}, 1, "1", "it's; --"])]


def test_a_value_is_never_read_as_a_template_or_as_sql_again():
    scope = {"x": "{{ n }} $1 ?1 :x ' ; --"}
    assert made("SELECT {{ x }}", scope=scope) == [("SELECT $1", [scope["x"]])]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'it''s; fine' AS \"a;b\"",
        "SELECT 1 -- ; {{ not.a.template }} '\n + 1",
        "SELECT /* ; ' {{ no }} */ 1",
        "SELECT x->>'a', '::', '%s %(a)s', 7 % 2",
    ],
)
@pytest.mark.parametrize("dialect", ALL)
def test_what_is_no_template_stays_as_it_is(dialect, text):
    assert made(text, dialect) == [(text, [])]


@pytest.mark.parametrize("dialect", ["postgres", "duckdb"])
def test_casts_and_slices_are_no_placeholders(dialect):
    assert made("SELECT a::int, b[1:2], b[i:j]", dialect) == [("SELECT a::int, b[1:2], b[i:j]", [])]


def test_comments_nest_where_the_database_nests_them():
    text = "SELECT 1 /* a /* b; */ c; */ + 1"
    assert made(text) == [(text, [])]
    assert made("SELECT 1 /* a /* b; */ + 1; SELECT 2", "sqlite") == [
        ("SELECT 1 /* a /* b; */ + 1", []),
        ("SELECT 2", []),
    ]


def test_bodies_of_code_are_one_statement():
    function = "CREATE FUNCTION f() RETURNS int AS $body$ BEGIN RETURN 1; END; $body$ LANGUAGE plpgsql"
    atomic = "CREATE FUNCTION g() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END"
    assert made(f"{function}; {atomic}; SELECT $$;$$") == [(function, []), (atomic, []), ("SELECT $$;$$", [])]
    trigger = "CREATE TEMP TRIGGER t AFTER INSERT ON a BEGIN SELECT CASE WHEN 1 THEN 2 END; DELETE FROM b; END"
    assert made(f"{trigger}; SELECT 2", "sqlite") == [(trigger, []), ("SELECT 2", [])]


@pytest.mark.parametrize(
    "created",
    [
        "TABLE trigger(begin)",
        "TABLE t (trigger, begin)",
        "VIEW v AS SELECT 1 AS trigger, 2 AS begin",
        "UNIQUE INDEX trigger ON t (begin)",
        "TABLE t (begin atomic)",
        "TABLE function (begin atomic)",
        "TEMP TABLE procedure (begin atomic)",
    ],
)
@pytest.mark.parametrize("dialect", ALL)
def test_names_open_no_body(dialect, created):
    """Otherwise the rest would be one statement, unless SQLite runs all of it."""
    assert made(f"CREATE {created}; SELECT 2", dialect) == [(f"CREATE {created}", []), ("SELECT 2", [])]


@pytest.mark.parametrize(
    "name",
    [
        "\u20accase",
        "case\u20ac",
        "\u00a0case",
        "ca\u017fe",
        "x$case",
        "\u0663case",
        "_case",
        "case\u2003",
        "a\ufeffcase",
    ],
)
def test_part_of_a_name_is_no_word_in_sqlite(name):
    trigger = f"CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT {name} FROM b; END"
    assert made(f"{trigger}; SELECT 2", "sqlite") == [(trigger, []), ("SELECT 2", [])]


def test_a_byte_order_mark_is_a_space_in_sqlite():
    trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT \ufeffCASE WHEN 1 THEN 2 END; END"
    assert made(f"{trigger}; SELECT 2", "sqlite") == [(trigger, []), ("SELECT 2", [])]


def test_a_comment_ends_at_its_first_end_in_sqlite():
    assert made("SELECT 1 /* /*/; SELECT 2 -- */", "sqlite") == [("SELECT 1 /* /*/", []), ("SELECT 2 -- */", [])]


@pytest.mark.parametrize(
    "command", ["CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; SELECT 2", "CREATE TRIGGER begin; SELECT 1"]
)
def test_a_body_without_an_end_is_refused(command):
    with pytest.raises(SqlRefused, match="has no END"):
        made(command, "sqlite")


@pytest.mark.parametrize("variable", ["$a$(');", "@1(');", "#a(');", "@\u20ac(');", "$::a(');", "a@b(');", "$$(');"])
def test_a_variable_of_sqlite_that_is_no_placeholder_is_refused(variable):
    """SQLite takes the bracket for a part of the variable, so the quote would begin no text."""
    with pytest.raises(SqlRefused, match="has no value"):
        made(f"SELECT {variable} SELECT 2 --'", "sqlite")


def test_a_template_comment_is_left_out():
    assert made("SELECT{# why #}1") == [("SELECT 1", [])]


def test_escapes_count_where_the_database_reads_them():
    assert made("SELECT E'\\'; ', 1") == [("SELECT E'\\'; ', 1", [])]
    assert made("SELECT '\\'; SELECT 1", "sqlite") == [("SELECT '\\'", []), ("SELECT 1", [])]


# ── params ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", ALL)
def test_params_by_name(dialect):
    place = DIALECTS[dialect].placeholder.format
    text, values = made("SELECT :a, {{ n }}, :b, :a", dialect, {"a": "{{ x }}", "b": {"k": ["{{ n }}"]}})[0]
    assert text == f"SELECT {place(1)}, {place(2)}, {place(3)}, {place(4)}"
    assert values == ["v", 5, {"k": [5]}, "v"]


def test_a_colon_that_is_no_placeholder_stays():
    assert made("SELECT a::b, c[1:b], ':b', :b", params={"b": 1}) == [("SELECT a::b, c[1:b], ':b', $1", [1])]


def test_params_by_position_go_through_all_statements():
    assert made("SELECT ?, {{ n }}; SELECT ?", "sqlite", ["a", "b"]) == [
        ("SELECT ?1, ?2", ["a", 5]),
        ("SELECT ?1", ["b"]),
    ]
    assert made("SELECT $2; SELECT $1, $2", params=["a", "b"]) == [("SELECT $1", ["b"]), ("SELECT $1, $2", ["a", "b"])]


@pytest.mark.parametrize(
    ("source", "dialect", "params", "says"),
    [
        ("SELECT $1, {{ x }}", "postgres", None, "$1 has no value"),
        ("SELECT ?", "sqlite", None, "has no value"),
        ("SELECT ?3", "duckdb", [1, 2], "?3 has no value: params is a list of 2"),
        ("SELECT :a", "sqlite", None, ":a has no value"),
        ("SELECT @a", "sqlite", {"a": 1}, "write :a"),
        ("SELECT $a", "duckdb", {"a": 1}, "write :a"),
        ("SELECT :a", "postgres", {"a": 1, "b": 2}, "nothing in the command takes params.b; it would be :b"),
        ("SELECT ?", "sqlite", [1, 2], "nothing in the command takes params[1]; it would be ?2"),
    ],
)
def test_placeholders_and_params_must_meet(source, dialect, params, says):
    assert says in refusal(source, dialect, params)[1]


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_identifier_quotes_a_name():
    scope = {"t": 'we"ird; --', "s": "public"}
    assert made("SELECT {{ t | identifier }} FROM {{ [s, t] | identifier }} WHERE {{ 1 }}", scope=scope) == [
        ('SELECT "we""ird; --" FROM "public"."we""ird; --" WHERE $1', [1])
    ]
    assert made("SELECT * FROM {{ s | identifier }}.{{ ('t_' ~ s) | upper | identifier }}", scope=scope) == [
        ('SELECT * FROM "public"."T_PUBLIC"', [])
    ]


def test_identifier_belongs_into_sql_alone():
    from arclog.expr import compile_text

    with pytest.raises(ExpressionError, match=r"last filter in a .* of a SQL command"):
        compile_text("{{ x | identifier }}")
    with pytest.raises(ExpressionError, match=r"last filter in a .* of a SQL command"):
        compile_sql("SELECT {{ x | identifier | upper }}", "sqlite")


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("source", "at", "says"),
    [
        ("SELECT '%{{ x }}%'", "10:14", "write '%' || {{ x }} || '%'"),
        ("SELECT\n  'a {{ x }} b {{ n }}'", "11:10", "write 'a ' || {{ x }} || ' b ' || {{ n }}"),
        ("SELECT E'{{ x }}'", "10:14", "leave out the E and the quotes"),
        ("SELECT DATE '{{ x }}'", "10:18", "CAST({{ x }} AS date)"),
        ("SELECT $$ {{ x }} $$", "10:15", "cannot be used in text between $$"),
        ('SELECT "a{{ x }}"', "10:14", "{{ … | identifier }}"),
        ("SELECT * FROM t_{{ x }}", "10:21", "cannot be joined"),
        ("SELECT {{ x }}{{ n }}", "10:12", "cannot be joined"),
        ("SELECT {{ x }}abc", "10:12", "cannot be joined"),
        ("INSERT INTO {{ x }} VALUES (1)", "10:17", "after INTO a name is expected"),
        ("{% if x %}SELECT 1{% endif %}", "10:5", "{% %}"),
        ("SELECT '{% if x %}'", "10:13", "{% %}"),
        ("SELECT '{{ x | identifier }}'", "10:13", "identifier adds quotes"),
        ("SELECT 'a", "10:12", "this quote has no end"),
        ("SELECT {{ x", "10:12", "this {{ has no }}"),
        ("SELECT /* a", "10:12", "this comment has no end"),
        ("SELECT $a$ x", "10:12", "has no end"),
        ('SELECT "a', "10:12", "has no end"),
        (" -- nothing\n ;; ", "10:5", "no SQL statement"),
        ("SELECT 1; COMMIT", "10:15", "COMMIT cannot be used in a command"),
        ("begin", "10:5", "one transaction"),
        ("START TRANSACTION", "10:5", "one transaction"),
        ("PREPARE TRANSACTION 'a'", "10:5", "one transaction"),
    ],
)
def test_what_cannot_be_bound_is_refused_with_its_place_and_remedy(source, at, says):
    place, message = refusal(source)
    assert place == at
    assert says in message


def test_savepoints_are_the_authors():
    assert len(made("SAVEPOINT a; ROLLBACK TO a; RELEASE a")) == 3


def test_a_list_behind_in_tells_the_remedy():
    for dialect, remedy in [("postgres", "= ANY"), ("sqlite", "json_each"), ("duckdb", "unnest")]:
        command = compile_sql("SELECT 1 WHERE 1 IN ( {{ l }} )", dialect, None, Position(10, 5))
        with pytest.raises(ExpressionError, match=remedy) as caught:
            command.evaluate(SCOPE)
        assert str(caught.value.at) == "10:27"
        assert command.evaluate({"l": 5})[0]["params"] == [5]


def test_a_template_error_has_its_place():
    with pytest.raises(ExpressionError) as caught:
        compile_sql("SELECT 1,\n  {{ a + }}", "sqlite", None, Position(10, 5))
    assert str(caught.value.at) == "11:7"
    with pytest.raises(ExpressionError, match="'nothing' is undefined") as caught:
        compile_sql("SELECT 1,\n  {{ nothing }}", "sqlite", None, Position(10, 5)).evaluate({})
    assert str(caught.value.at) == "11:7"


def test_the_free_names_are_those_of_all_templates():
    command = compile_sql("SELECT {{ a.b }}, :p, {{ t | identifier }}", "sqlite", {"p": ["{{ c }}"]})
    assert command.free == {"a", "c", "t"}
    assert ("a", "b") in command.paths
    assert [hole.source for hole in command.holes] == ["{{ a.b }}", "{{ t | identifier }}"]


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────────

VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["x'); DROP TABLE t; --", "'", '"', "''", "\\", "--", "/*", "$$", "{{ x }}", "?1", ":a", "\0"]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.none(),
)
FORMS = [
    "{{ v0 }}",
    "'{{ v1 }}'",
    "'lit''{ }' || {{ v2 }}",
    "{{ [v0, v1] }}",
    "{{ {'k': v2} }}",
    "'x' /* {{ v0 */",
    ":p",
]


@given(values=st.lists(VALUES, min_size=3, max_size=3), forms=st.lists(st.sampled_from(FORMS), min_size=1, max_size=8))
@settings(max_examples=300)
def test_values_come_back_from_a_real_database_as_they_went_in(values, forms):
    scope = {f"v{at}": value for at, value in enumerate(values)}
    source = "SELECT " + ", ".join(forms)
    params = {"p": "{{ v0 }}"} if ":p" in forms else None
    (statement,) = compile_sql(source, "sqlite", params).evaluate(scope)
    # The text is the author's: no value changes it.
    assert statement["sql"] == compile_sql(source, "sqlite", params).evaluate(dict.fromkeys(scope, 0))[0]["sql"]
    database = apsw.Connection(":memory:")
    bound = [value if not isinstance(value, (list, dict)) else repr(value) for value in statement["params"]]
    (row,) = database.execute(statement["sql"], bound)
    given_back = iter(bound)
    for form, cell in zip(forms, row, strict=True):
        if form.startswith("'x'"):
            assert cell == "x"
        elif form.startswith("'lit"):
            assert next(given_back) is None or str(cell).startswith("lit'{ }")
        else:
            assert cell == next(given_back)
    database.close()


@given(name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20))
@settings(max_examples=200)
def test_any_name_is_a_name_in_a_real_database(name):
    (make, read) = compile_sql(
        "CREATE TABLE {{ t | identifier }} ({{ t | identifier }}); SELECT {{ t | identifier }} FROM {{ t | identifier }}",
        "sqlite",
    ).evaluate({"t": name})
    database = apsw.Connection(":memory:")
    if name.lower().startswith("sqlite_"):
        return
    database.execute(make["sql"])
    assert list(database.execute("SELECT name FROM sqlite_schema")) == [(name,)]
    assert list(database.execute(read["sql"])) == []
    database.close()


PIECES = st.sampled_from(
    [
        "SELECT ",
        "'",
        '"',
        "''",
        "--",
        "\n",
        "/*",
        "*/",
        "$$",
        "$a$",
        ";",
        "{{ v }}",
        "{{",
        "}}",
        "{%",
        "{#",
        "#}",
        "E'",
        "\\",
        "[",
        "]",
        "`",
        "BEGIN ",
        "END",
        "CREATE TRIGGER ",
        ":p",
        "?",
        "$1",
        " ",
        "a",
        "1",
        "::",
        "{{ v | identifier }}",
        "IN (",
    ]
)


@given(parts=st.lists(PIECES, max_size=14), dialect=st.sampled_from(ALL), params=st.sampled_from([None, {"p": 1}, [1]]))
@settings(max_examples=600)
def test_whatever_is_written_a_value_is_bound_or_refused_and_never_part_of_the_text(parts, dialect, params):
    source = "".join(parts)
    canary = "CANARY'\";--"
    try:
        command = compile_sql(source, dialect, params, Position(1, 1))
        result = command.evaluate({"v": canary})
    except ExpressionError:
        return
    for statement in result:
        text = statement["sql"].replace('"CANARY\'"";--"', "")  # as identifier quotes it
        assert "CANARY" not in text
        assert text.count(DIALECTS[dialect].placeholder.format("")) >= len(statement["params"])
    assert sum(canary in statement["params"] for statement in result) <= len(command.holes)
