"""Which servers an `endpoint` may name: those that the guard lets through."""

from __future__ import annotations

from urllib.parse import urlsplit

from arclog.drivers.http.failure import Failure
from arclog.drivers.http.guard import Guard
from arclog.model.outcome import error
from arclog.tools.object.location import Refused, refuse


async def check_endpoint(endpoint: str, guard: Guard, *, allow_http: bool, proxied: bool) -> None:
    """Refuse an endpoint that is no server's address, is not encrypted, or must not be reached. `proxied`: its name may be
    one that only a proxy knows.
    """
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refuse("config", "endpoint: it is not an address of a server; write https://host:port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise refuse("config", "endpoint: it is not an address of a server; write https://host:port")
    if "@" in endpoint or parts.query or parts.fragment:
        raise refuse("config", "endpoint: the server's address must not contain credentials; use `auth`")
    if parts.scheme == "http" and not allow_http:
        raise refuse("config", f"endpoint {endpoint} is not encrypted; set allow_http: true to allow this")
    try:
        await guard.addresses(host, port or (443 if parts.scheme == "https" else 80))
    except Failure as failure:
        problem = failure.problem
        if problem.code == "DNS" and proxied:
            return
        message = f"endpoint {endpoint}: {problem.message}"
        raise Refused(error(problem.kind, message, code=problem.code, retryable=problem.retryable)) from None
