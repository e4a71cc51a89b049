"""Helpers for host names and addresses."""

from __future__ import annotations

import ipaddress
from functools import lru_cache


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
