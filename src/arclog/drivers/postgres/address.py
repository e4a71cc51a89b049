"""Addresses of PostgreSQL databases: parsed, shown without the password, and written for libpq.

Invariant: a message contains at most user, host, port and database of an address, and only if they were parsed
unambiguously. libpq's own parser is not used: its errors quote invalid input, and it reads part of a password with `/`
or `@` as a host, port or database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from arclog.model.errors import SettingsError

SCHEMES = ("postgresql://", "postgres://")
#: The syntax of an address, for messages.
FORM = "postgresql://user:password@host:5432/database"
ENCODED = "write special characters of a password percent-encoded (@ as %40, / as %2F, % as %25)"

#: libpq's keywords whose values are secret.
SECRETS = ("password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret")

_HOST = re.compile(r"\[([0-9A-Fa-f:.]+(?:%25[\w.-]+)?)\]|([^:\[\]@]*)")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
_ESCAPE = re.compile(r"((?:%[0-9A-Fa-f]{2})+)")
_KEY = re.compile(r"[a-z_]{1,40}")
_PAIR = re.compile(r"\s*([a-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s'\\]|\\.)*))(?:\s+|\Z)", re.DOTALL)
#: A query before an @; the text after it may be the rest of a password.
_QUERY = re.compile(r"\?\w+=")
_PORTS = re.compile(r"[0-9]{0,5}(?:,[0-9]{0,5})*")


class AddressError(ValueError):
    """An invalid address. The message has the reason and no part of the address."""


class PostgresAddress(Struct, frozen=True):
    """The address of a database."""

    #: values by libpq's keywords, including the password
    parts: Mapping[str, str]

    @property
    def place(self) -> str:
        """The address without its password, for messages."""
        user = f"{self.parts['user']}@" if self.parts.get("user") else ""
        port = f":{self.parts['port']}" if self.parts.get("port") else ""
        host = self.parts.get("host") or self.parts.get("hostaddr", "")
        return f"postgresql://{user}{host}{port}/{self.parts.get('dbname', '')}"

    def conninfo(self, defaults: Mapping[str, Any] | None = None, **own: Any) -> str:
        """Return the connection string for libpq. `own` takes precedence over the address, the address over
        `defaults`.
        """
        every = {**(defaults or {}), **self.parts, **own}
        return " ".join(f"{key}={_quoted(str(value))}" for key, value in every.items() if value is not None)

    def secrets(self) -> dict[str, str]:
        """Return the secret values, each with its keyword. Values that are also shown in `place` are left out."""
        open_parts = {self.parts.get(key) for key in ("user", "host", "hostaddr", "port", "dbname")}
        return {text: key for key in SECRETS if (text := self.parts.get(key)) and text not in open_parts}

    def __repr__(self) -> str:
        return f"PostgresAddress({self.place})"


def address_of(text: str, **more: Any) -> PostgresAddress:
    """Parse a URL or libpq's `key=value …`. The keywords in `more` take precedence. Raises AddressError."""
    options = {key: str(value) for key, value in more.items() if value is not None}
    parts = {**(parts_of(text) if text or not options else {}), **options}
    if not parts.keys() <= keywords():
        raise AddressError(f"it has a keyword that PostgreSQL does not know; {ENCODED}")
    if not _PORTS.fullmatch(parts.get("port", "")):
        raise AddressError(f"the port is not a number: {ENCODED}")
    for key in ("host", "hostaddr", "user", "dbname"):
        if any(ord(char) < 32 for char in parts.get(key, "")):
            raise AddressError(f"{key} has a control character")
    if "@" in parts.get("host", "") or "@" in parts.get("hostaddr", ""):
        raise AddressError(f"the host has an @ in it: {ENCODED}")
    return PostgresAddress(parts)


def configured_address(url: str, setting: str) -> PostgresAddress:
    """Return the address of a setting. Raises SettingsError."""
    try:
        return address_of(url)
    except AddressError as error:
        raise SettingsError(f"{setting} cannot be read: {error}") from None


def parts_of(text: str) -> dict[str, str]:
    """Return the values of an address by libpq's keywords. Raises AddressError."""
    text = text.strip()
    return _of_url(text) if text.startswith(SCHEMES) else _of_pairs(text)


@cache
def keywords() -> frozenset[str]:
    """Return libpq's keywords."""
    from psycopg import pq

    return frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())


def _of_url(text: str) -> dict[str, str]:
    remainder = text.partition("://")[2]
    parts: dict[str, str] = {}
    # As in libpq, user and password end at the first @, unless a / comes before it.
    ends = re.search(r"[@/]", remainder)
    if ends and ends[0] == "@":
        login, remainder = remainder[: ends.start()], remainder[ends.end() :]
        if _QUERY.search(login):
            raise AddressError(f"there is a ?name= before an @: {ENCODED}")
        user, colon, password = login.partition(":")
        parts["user"] = _decoded(user, "user")
        if colon:
            parts["password"] = _decoded(password, "password")
    if "@" in remainder or "#" in remainder:
        raise AddressError(f"there is an @ or # where none belongs: {ENCODED}")
    where, _, query = remainder.partition("?")
    hosts, _, database = where.partition("/")
    if "/" in database:
        raise AddressError(f"there is more than one / after the host: {ENCODED}")
    if hosts:
        names, ports = zip(*map(_host, hosts.split(",")), strict=True)
        parts["host"] = ",".join(names)
        if any(ports):
            parts["port"] = ",".join(ports)
    if database:
        parts["dbname"] = _decoded(database, "database")
    for pair in query.split("&") if query else ():
        key, sign, value = pair.partition("=")
        if not sign or not _KEY.fullmatch(key):
            raise AddressError("the part after ? is not key=value, several joined by &")
        parts[key] = _decoded(value, "value behind the ?")
    if parts.get("ssl") == "true":
        del parts["ssl"]
        parts["sslmode"] = "require"
    return {key: value for key, value in parts.items() if value}


def _host(text: str) -> tuple[str, str]:
    host = _HOST.match(text)
    remainder = text[host.end() :] if host else text
    if host is None or not (remainder == "" or remainder.startswith(":")):
        raise AddressError(f"the host cannot be read: {ENCODED}")
    return _decoded(host[1] or host[2], "host"), remainder[1:]


def _decoded(text: str, part: str) -> str:
    """Decode percent escapes as UTF-8."""
    if _BROKEN_ESCAPE.search(text):
        raise AddressError(f"the {part} has a % that is not part of an escape: write % as %25")
    try:
        return _ESCAPE.sub(lambda run: bytes.fromhex(run[0].replace("%", "")).decode(), text)
    except UnicodeDecodeError:
        raise AddressError(f"the {part} has percent escapes that are not UTF-8") from None


def _of_pairs(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise AddressError(f"it is neither {FORM} nor key=value … (quote a value with spaces: '…')")
        value = pair[2] if pair[2] is not None else pair[3]
        parts[pair[1]] = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
        at = pair.end()
    if not parts:
        raise AddressError(f"it is empty; give {FORM}")
    return {key: value for key, value in parts.items() if value}


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
