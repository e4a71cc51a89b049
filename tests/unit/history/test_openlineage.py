"""How datasets are named: never with a login, a password or a query."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.history.openlineage import _by_url, _table


@pytest.mark.parametrize(
    ("place", "table", "dataset"),
    [
        ({"dsn": "postgresql://ada:pw@db:6543/shop"}, ("", "", "t"), ("postgres://db:6543", "shop.public.t")),
        ({"dsn": "host=db dbname=shop password='p w'"}, ("", "s", "t"), ("postgres://db:5432", "shop.s.t")),
        (
            {"host": "db", "port": 1, "dbname": "shop", "password": "pw"},
            ("", "", "t"),
            ("postgres://db:1", "shop.public.t"),
        ),
        ({"auth": "main"}, ("", "", "t"), None),
        ({"dsn": "postgresql://db:port/shop"}, ("", "", "t"), None),
    ],
)
def test_a_table_of_postgres(place: dict[str, Any], table: Any, dataset: Any) -> None:
    assert _table("postgres", place, table) == dataset


@pytest.mark.parametrize(
    ("place", "dataset"),
    [({"database": "/x/a.duckdb"}, ("duckdb:///x/a.duckdb", "main.t")), ({"database": ":memory:"}, None), ({}, None)],
)
def test_a_table_of_duckdb(place: dict[str, Any], dataset: Any) -> None:
    assert _table("duckdb", place, ("", "", "t")) == dataset


@pytest.mark.parametrize(
    ("url", "dataset"),
    [
        ("s3://bucket/a/b.csv", ("s3://bucket", "a/b.csv")),
        ("https://ada:pw@api.example.org:8443/v1?key=pw#x", ("https://api.example.org:8443", "/v1")),
        ("file:///x/y.txt", ("file", "/x/y.txt")),
        ("http://[broken", None),
    ],
)
def test_an_address(url: str, dataset: Any) -> None:
    assert _by_url(url) == dataset
