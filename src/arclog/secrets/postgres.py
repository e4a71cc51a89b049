"""A PostgreSQL credential out of the forms in which people keep one: a JSON object, a URL, or libpq's `key=value` text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

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
_PAIR = re.compile(r"\s*([a-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?:\s+|\Z)", re.DOTALL)


def postgres_fields(text: str) -> dict[str, Any] | None:
    """host, port, user, password, dbname, sslmode … and the dsn itself if there was one; None when it is no credential."""
    fields = json_fields(text)
    if fields is not None:
        return _renamed(fields)
    return _of_dsn(text.strip())


def _renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    named = {_ALIASES.get(key, key): value for key, value in fields.items()}
    dsn = named.get("dsn")
    return {**(_of_dsn(dsn) or {}), **named} if isinstance(dsn, str) else named


def _of_dsn(dsn: str) -> dict[str, Any] | None:
    if dsn.startswith(("postgres://", "postgresql://")):
        return _of_url(dsn)
    found: dict[str, Any] = {"dsn": dsn}
    at = 0
    while at < len(dsn):
        pair = _PAIR.match(dsn, at)
        if pair is None:
            return None
        quoted = pair[2] if pair[2] is not None else pair[3]
        found[pair[1]] = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        at = pair.end()
    return found if len(found) > 1 else None


def _of_url(dsn: str) -> dict[str, Any] | None:
    try:
        parts = urlsplit(dsn)
        port = parts.port
    except ValueError:
        return None
    found: dict[str, Any] = {"dsn": dsn, **dict(parse_qsl(parts.query))}
    named = {"host": parts.hostname, "port": port, "user": parts.username, "password": parts.password}
    named["dbname"] = parts.path.removeprefix("/")
    found.update({key: unquote(value) if isinstance(value, str) else value for key, value in named.items() if value})
    return found
