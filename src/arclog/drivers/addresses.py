"""Addresses: redaction in messages, since they may contain a password; hosts of this machine; networks of callers."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import unquote

#: Shown instead of an address when no part of it can be shown safely.
HIDDEN = "an address that is not shown"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,19})://")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._*-]+)(?::[0-9]{1,5})?")
#: Everything from the scheme to the last @ of the same word.
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^\s'\"<>]*@")


def shown(url: str) -> str:
    """Return scheme, host and port of an address, without user, password, path, query or fragment.

    The path is left out because it may be a secret, as in many webhook addresses. Returns HIDDEN if an `@` or a `/` in
    a password could make part of it look like a host or port.
    """
    prefix = _SCHEME.match(url)
    scheme, remainder = (prefix[0], url[prefix.end() :]) if prefix else ("", url)
    end = re.search(r"[/?#\\]", remainder)
    authority, behind = (remainder[: end.start()], remainder[end.start() :]) if end else (remainder, "")
    host = authority.rpartition("@")[2]
    if "@" in behind or not _HOST.fullmatch(host):
        return HIDDEN
    return f"{scheme}{host}"


def secrets_of(url: str) -> list[str]:
    """Return the parts of an address that may be secret: user, password and query values, as written and decoded."""
    remainder = url.partition("://")[2]
    login, at, _ = remainder.partition("@")
    parts = [login, *login.split(":", 1)] if at else []
    parts += [pair.partition("=")[2] or pair for pair in remainder.partition("?")[2].split("&")]
    return [text for part in parts if part for text in dict.fromkeys((part, unquote(part)))]


def without_logins(text: str) -> str:
    """Remove users and passwords from the addresses in another program's text."""
    return _LOGIN.sub(r"\1…@", text)


@lru_cache(maxsize=1000)
def is_loopback(host: str) -> bool:
    """Return whether a host, as written in a URL or a setting, is a loopback address of this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def without_port(authority: str) -> str:
    """The host of a Host header or of an origin: `localhost:8420`, `[::1]:8420`."""
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.rpartition(":")[0] if ":" in authority else authority


def neighbourhood(address: str) -> str:
    """The network whose failures are counted together: an IPv4 address, or a /64 of IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)
