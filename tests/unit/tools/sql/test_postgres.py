"""What a task's connection is made with."""

from __future__ import annotations

import psycopg
import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.confinement_settings import for_server
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.postgres import not_connected
from arclog.tools.sql.postgres_servers import PostgresServers

_OWN = PostgresServers(Settings({"sql.connect_timeout_s": 3.0}))
_SERVER = PostgresServers(for_server(Settings()))


def test_what_a_dsn_says_counts_and_every_session_has_the_same_formats() -> None:
    dsn = "postgresql://u@h/d?options=-c%20search_path%3Dx&connect_timeout=7&application_name=mine"
    parts = _OWN.address({"dsn": dsn, "port": 5433, "user": None}).parts
    assert parts["options"] == "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c search_path=x"
    assert (parts["connect_timeout"], parts["application_name"], parts["port"]) == ("7", "mine", "5433")
    parts = _OWN.address({"host": "h", "dbname": "d"}).parts
    assert (parts["connect_timeout"], parts["application_name"]) == ("3", "arclog")


def test_a_description_that_cannot_be_read_is_a_mistake_of_the_playbook() -> None:
    with pytest.raises(SqlFailure, match="the dsn cannot be read") as refused:
        _OWN.address({"dsn": "postgresql://u:can/ary@h/d"})
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


@pytest.mark.parametrize(
    ("where", "servers"),
    [
        ({"host": "10.1.2.3"}, ("10.1.2.3", "10.1.2.3", "5432")),
        ({"dsn": "postgresql://u@127.0.0.1:99,8.8.8.8:100/d"}, ("127.0.0.1,8.8.8.8", "127.0.0.1,8.8.8.8", "99,100")),
        ({"host": "db.example", "hostaddr": "192.168.0.1", "port": 7}, ("db.example", "192.168.0.1", "7")),
        ({"host": "169.254.169.254,10.0.0.1"}, ("10.0.0.1", "10.0.0.1", "5432")),
    ],
)
async def test_a_connection_goes_to_the_address_that_was_checked(
    where: dict[str, object], servers: tuple[str, str, str]
) -> None:
    parts = (await _SERVER.resolved(_SERVER.address(where))).parts
    assert (parts["host"], parts["hostaddr"], parts["port"]) == servers


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"host": "169.254.169.254"}, "link-local"),
        ({"host": "db.example", "hostaddr": "169.254.169.254"}, "link-local"),
        ({"host": "[::ffff:169.254.169.254]".strip("[]")}, "link-local"),
        ({"host": "/var/run/postgresql"}, "is a socket of the worker's machine"),
        ({"host": "@abstract"}, "cannot be read"),
        ({"dsn": "dbname=d"}, "has no host"),
        ({"dsn": "host=h,"}, "has no host"),
        ({"dsn": "host=h passfile=/home/ada/.pgpass"}, "passfile: connections of tasks"),
        ({"dsn": "host=h service=arclog"}, "service: connections of tasks"),
        ({"dsn": "host=h sslcert=/a sslkey=/b"}, "sslcert, sslkey: connections of tasks"),
        ({"dsn": "host=h sslkeylogfile=/home/arclog.db"}, "sslkeylogfile: connections of tasks"),
        ({"dsn": "host=h sslrootcert=/proc/self/fd/0"}, "sslrootcert: connections of tasks"),
        ({"dsn": "host=h gssencmode=require"}, "gssencmode: connections of tasks"),
        ({"host": "a,b", "port": "1,2,3"}, "2 hosts have 3 ports"),
    ],
)
async def test_what_belongs_to_the_worker_is_refused(where: dict[str, object], message: str) -> None:
    with pytest.raises(SqlFailure, match=message) as refused:
        await _SERVER.resolved(_SERVER.address(where))
    assert refused.value.problem.kind == "config"


def test_libpq_takes_no_login_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "the worker's")
    parts = _SERVER.address({"host": "h", "user": "u"}).parts
    assert (parts["password"], parts["passfile"], parts["sslcert"]) == ("", "/dev/null/none", "/dev/null/none")
    assert _SERVER.address({"host": "h", "user": "u", "password": "p"}).parts["password"] == "p"


def test_certificate_authorities_are_those_of_the_operator() -> None:
    servers = PostgresServers(for_server(Settings({"postgres.ca_file": "/etc/ca.pem"})))
    assert servers.address({"host": "h"}).parts["sslrootcert"] == "/etc/ca.pem"
    assert servers.address({"dsn": "host=h sslrootcert=system"}).parts["sslrootcert"] == "system"
    assert "sslrootcert" not in _SERVER.address({"host": "h"}).parts


async def test_arclog_run_connects_as_its_user_does() -> None:
    for where in ({"host": "/var/run/postgresql"}, {"dsn": "dbname=d"}, {"dsn": "host=169.254.169.254 passfile=/a"}):
        address = _OWN.address(where)
        assert await _OWN.resolved(address) is address
        assert "sslcert" not in address.parts
