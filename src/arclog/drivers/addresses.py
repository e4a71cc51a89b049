"""Redaction of addresses in messages, since they may contain a password."""

from __future__ import annotations

import re
from urllib.parse import unquote

#: The replacement of an address of which nothing can safely be shown.
HIDDEN = "an address that is not shown"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,19})://")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._*-]+)(?::[0-9]{1,5})?")
#: From the scheme to the last @ of the same word.
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s'\"<>]*@")


def shown(url: str) -> str:
    """Scheme, host and port of an address: no user, password, path, query or fragment.

    A path may be a secret as well (the address of a webhook often is one). Where an `@` or a `/` in a password could make
    a part of it look like a host or port, nothing is shown.
    """
    prefix = _SCHEME.match(url)
    scheme, rest = (prefix[0], url[prefix.end() :]) if prefix else ("", url)
    end = re.search(r"[/?#\\]", rest)
    authority, behind = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    host = authority.rpartition("@")[2]
    if "@" in behind or not _HOST.fullmatch(host):
        return HIDDEN
    return f"{scheme}{host}"


def secrets_of(url: str) -> list[str]:
    """The parts of an address that may be secret: user, password and the values of its query, as written and decoded."""
    rest = url.partition("://")[2]
    login, at, _ = rest.partition("@")
    parts = [login, *login.split(":", 1)] if at else []
    parts += [pair.partition("=")[2] or pair for pair in rest.partition("?")[2].split("&")]
    return [text for part in parts if part for text in dict.fromkeys((part, unquote(part)))]


def without_logins(text: str) -> str:
    """A text of another program, without the users and passwords of the addresses in it."""
    return _LOGIN.sub(r"\1…@", text)
