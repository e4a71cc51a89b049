"""A PostgreSQL credential out of the forms in which people keep one: a JSON object, a URL, or libpq's `key=value` text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.drivers.postgres.address import AddressError, parts_of
from arclog.secrets.naming import json_fields

#: What people and other programs call the fields.
_ALIASES = {
    "username": "user",
    "database": "dbname",
    "db": "dbname",
    "hostname": "host",
    "db_host": "host",
    "db_port": "port",
    "db_user": "user",
    "db_password": "password",
    "db_name": "dbname",
    "connection_string": "dsn",
    "url": "dsn",
}


def postgres_fields(text: str) -> dict[str, Any] | None:
    """host, port, user, password, dbname, sslmode … and the dsn itself if there was one; None when it is not a credential."""
    fields = json_fields(text)
    if fields is not None:
        return _renamed(fields)
    return _of_dsn(text.strip())


def _renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    named = {_ALIASES.get(key, key): value for key, value in fields.items()}
    dsn = named.get("dsn")
    return {**(_of_dsn(dsn) or {}), **named} if isinstance(dsn, str) else named


def _of_dsn(dsn: str) -> dict[str, Any] | None:
    try:
        parts = parts_of(dsn)
    except AddressError:
        return None
    port = parts.get("port", "")
    return {"dsn": dsn, **parts, **({"port": int(port)} if port.isdecimal() else {})}
