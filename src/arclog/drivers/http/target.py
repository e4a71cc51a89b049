"""A web address, taken apart as requests use it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import httpx2

from arclog.drivers.failure import refused, shortened


class Target(NamedTuple):
    """A web address, taken apart as it is used; only `target_of` makes one."""

    scheme: str
    host: str
    port: int | None
    #: path and query, encoded
    path: bytes
    #: host and port as the Host header names them
    authority: str
    text: str

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port or (443 if self.scheme == "https" else 80)


@lru_cache(maxsize=256)
def target_of(text: str) -> Target:
    """A web address, as the client reads it."""
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, UnicodeError) as problem:
        if "@" in text:
            raise refused(
                "url: it is not a web address; put credentials into a keychain entry and name it in auth"
            ) from None
        raise refused(f"url: {shortened(text)!r} is not a web address: {problem}") from None
    if url.scheme not in ("http", "https"):
        raise refused(f"url: {shortened(text)!r} begins with neither http:// nor https://")
    if url.userinfo:
        raise refused("url: it holds a user name or password; declare a keychain entry and name it in auth")
    if not url.host or "%" in url.host:
        raise refused(f"url: {shortened(text)!r} names no host")
    if url.port is not None and not 0 < url.port < 65536:
        raise refused(f"url: {shortened(text)!r} names a port that does not exist")
    whole = str(url).partition("#")[0]
    host, authority = url.raw_host.decode("ascii"), url.netloc.decode("ascii")
    return Target(url.scheme, host, url.port, url.raw_path, authority, whole)
