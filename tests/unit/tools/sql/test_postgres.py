"""What a task's connection is made with."""

from __future__ import annotations

import psycopg
import pytest

from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.postgres import address_for, not_connected


def test_what_a_dsn_says_counts_and_every_session_has_the_same_formats() -> None:
    dsn = "postgresql://u@h/d?options=-c%20search_path%3Dx&connect_timeout=7&application_name=mine"
    parts = address_for({"dsn": dsn, "port": 5433, "user": None}, 3.0).parts
    assert parts["options"] == "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c search_path=x"
    assert (parts["connect_timeout"], parts["application_name"], parts["port"]) == ("7", "mine", "5433")
    parts = address_for({"host": "h", "dbname": "d"}, 3.0).parts
    assert (parts["connect_timeout"], parts["application_name"]) == ("3", "arclog")


def test_a_description_that_cannot_be_read_is_a_mistake_of_the_playbook() -> None:
    with pytest.raises(SqlFailure, match="the dsn cannot be read") as refused:
        address_for({"dsn": "postgresql://u:can/ary@h/d"}, 3.0)
    assert refused.value.problem.kind == "config"
    assert "ary" not in str(refused.value).replace("ordinary", "")


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ('FATAL:  password authentication failed for user "u"', "auth", "28P01"),
        ('FATAL:  role "u" does not exist', "auth", "28000"),
        ('FATAL:  database "d" does not exist', "sql", "3D000"),
        ("FATAL:  sorry, too many clients already", "connection", "53300"),
        ("connection refused", "connection", "08001"),
    ],
)
def test_why_there_is_no_connection(text: str, kind: str, code: str) -> None:
    problem = not_connected(psycopg.OperationalError(text)).problem
    assert (problem.kind, problem.code) == (kind, code)


def test_an_option_that_libpq_does_not_take_is_a_mistake_of_the_playbook() -> None:
    problem = not_connected(psycopg.ProgrammingError("bad value for connect_timeout")).problem
    assert (problem.kind, problem.code) == ("config", None)
