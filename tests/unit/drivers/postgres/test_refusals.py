"""What PostgreSQL's errors mean, whether they have a SQLSTATE or only a text."""

from __future__ import annotations

import psycopg
import pytest

from arclog.drivers.postgres.refusals import (
    REFUSALS,
    Meaning,
    is_away,
    is_conflict,
    refusal_of,
    state_of,
    text_of,
)
from arclog.model.errors import InvariantBroken, RequestRejected, StoreUnavailable
from arclog.model.outcome import ERROR_KINDS
from arclog.stores.postgres.connection.pipeline import translated


def error(state: str) -> psycopg.Error:
    return psycopg.errors.lookup(state)(f"error {state}")


def test_every_row_is_one_that_its_readers_know() -> None:
    for state, refusal in REFUSALS.items():
        assert len(state) in (2, 5)
        assert refusal.kind in ERROR_KINDS
        assert bool(refusal.problem) == bool(refusal.remedy)
        assert refusal.remedy.format(address="X").count("{") == 0


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('connection failed: FATAL:  password authentication failed for user "u"', "28P01"),
        ("connection failed: fe_sendauth: no password supplied", "28P01"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "u", database "d", no encryption', "28000"),
        ('FATAL:  role "u" does not exist', "28000"),
        ('FATAL:  role "u" is not permitted to log in', "28000"),
        ('FATAL:  LDAP authentication failed for user "u"', "28000"),
        ('FATAL:  permission denied for database "d"', "42501"),
        ('FATAL:  database "d" does not exist', "3D000"),
        ("FATAL:  no such database: d", "3D000"),
        ("FATAL:  sorry, too many clients already", "53300"),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", "53300"),
        ("FATAL:  no more connections allowed (max_client_conn)", "53300"),
        ("FATAL:  the database system is starting up", "57P03"),
        ("connection refused", ""),
        ("could not translate host name", ""),
        ("server closed the connection unexpectedly", ""),
    ],
)
def test_a_connection_that_was_refused_is_known_by_its_text(text: str, state: str) -> None:
    assert state_of(psycopg.OperationalError(text)) == state


def test_a_state_goes_before_a_text() -> None:
    assert state_of(psycopg.errors.UniqueViolation("password authentication failed")) == "23505"


@pytest.mark.parametrize(
    ("state", "meaning", "kind"),
    [
        ("08006", Meaning.AWAY, "connection"),
        ("57P01", Meaning.AWAY, "connection"),
        ("57P05", Meaning.AWAY, "connection"),
        ("53300", Meaning.AWAY, "connection"),
        ("25006", Meaning.AWAY, "sql"),
        ("40001", Meaning.CONFLICT, "serialization"),
        ("40P01", Meaning.CONFLICT, "serialization"),
        ("26000", Meaning.CONFLICT, "sql"),
        ("53200", Meaning.SHORT, "limit"),
        ("53100", Meaning.TROUBLE, "limit"),
        ("57014", Meaning.TROUBLE, "timeout"),
        ("28P01", Meaning.DENIED, "auth"),
        ("28000", Meaning.DENIED, "auth"),
        ("42501", Meaning.DENIED, "auth"),
        ("3D000", Meaning.DENIED, "sql"),
        ("22P05", Meaning.VALUE, "sql"),
        ("54000", Meaning.VALUE, "limit"),
        ("23505", Meaning.CONSTRAINT, "constraint"),
        ("42601", Meaning.STATEMENT, "sql"),
        ("54001", Meaning.STATEMENT, "limit"),
    ],
)
def test_what_a_state_means(state: str, meaning: Meaning, kind: str) -> None:
    refusal = refusal_of(error(state))
    assert (refusal.meaning, refusal.kind) == (meaning, kind)


def test_a_server_without_an_answer_is_away() -> None:
    assert is_away(psycopg.OperationalError("connection refused"))
    assert is_away(error("57P03"))
    assert not is_away(error("23505"))
    assert not is_away(OSError("no server of ours"))
    assert is_conflict(error("40001"))
    assert not is_conflict(error("57P03"))


@pytest.mark.parametrize(
    ("state", "raised", "says"),
    [
        ("28P01", StoreUnavailable, "the password is wrong (error 28P01); correct it in ARCLOG_STORE_URL"),
        ("53100", StoreUnavailable, "its disk is full"),
        ("58030", StoreUnavailable, "cannot be reached"),
        ("22P05", RequestRejected, "cannot take this value"),
        ("23505", InvariantBroken, "breaks one of its rules"),
        ("42601", InvariantBroken, "unexpected 42601"),
    ],
)
def test_what_the_store_raises(state: str, raised: type[Exception], says: str) -> None:
    problem = translated(error(state), "postgresql://h/d")
    assert type(problem) is raised
    assert says in str(problem)


@pytest.mark.parametrize(
    "text",
    [
        "host=h password=canary dbname=d",
        "host=h password = 'canary yranac' dbname=d",
        "host=h sslpassword=canary",
        "postgresql://u:canary@h/d and more",
        "postgresql://u:can@ary@h/d",
        "postgresql://h/d?password=canary&sslmode=require",
    ],
)
def test_the_text_of_an_error_has_no_password(text: str) -> None:
    shown = text_of(psycopg.OperationalError(f"failed:\n  {text}"))
    assert "can" not in shown.replace("failed", "")
    assert "yranac" not in shown
    assert "\n" not in shown
