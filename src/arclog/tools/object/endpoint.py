"""Which servers an `endpoint` may name: any but those that hand out a machine's own credentials."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

from arclog.tools.object.location import refuse

#: Metadata services that are not link-local.
_METADATA = frozenset({"fd00:ec2::254", "100.100.100.200", "fd20:ce::254"})


async def check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    """Refuse an endpoint that is no server's address, is not encrypted, or is a metadata service."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refuse("config", "endpoint: it is no address of a server; write https://host:port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise refuse("config", "endpoint: it is no address of a server; write https://host:port")
    if "@" in endpoint or parts.query or parts.fragment:
        raise refuse("config", "endpoint: the server's address must stand alone; credentials belong into `auth`")
    if parts.scheme == "http" and not allow_http:
        raise refuse("config", f"endpoint {endpoint} is not encrypted; say allow_http: true if that is meant")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise refuse("connection", f"endpoint {endpoint}: its host cannot be resolved", "DNS") from problem
    for *_, address in found:
        if _is_metadata(str(address[0])):
            raise refuse(
                "config", f"endpoint {endpoint}: {address[0]} is a link-local or metadata address; refused", "SSRF"
            )


def _is_metadata(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or address
    return address.is_link_local or address.is_multicast or str(address) in _METADATA
