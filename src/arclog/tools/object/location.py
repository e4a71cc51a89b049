"""The location of an object. Parses URLs, and refuses those that could name another place than they seem to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from arclog.model.outcome import TaskError, error

if TYPE_CHECKING:
    from arclog.drivers.http.guard import Guard

# ── location ──────────────────────────────────────────────────────────────────────────────────────────────────────────

FILE = "file"
#: scheme in a URL → our name for it
SCHEMES = {"file": FILE, "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "az"}


class Refused(Exception):
    """An object cannot be accessed; carries the task's error.

    Its message contains the author's text completely and unchanged, or not at all: redaction recognizes a secret only
    by its exact text.
    """

    def __init__(self, problem: TaskError) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Location(Struct, frozen=True):
    """One object, or the objects under a prefix."""

    scheme: str
    #: '' for files
    bucket: str
    #: path of a file as written, else the key without a leading slash
    key: str

    @property
    def url(self) -> str:
        return self.key if self.scheme == FILE else f"{self.scheme}://{self.bucket}/{self.key}"

    @property
    def store(self) -> str:
        """The place that contains the object. Place and key together identify an object."""
        return FILE if self.scheme == FILE else f"{self.scheme}://{self.bucket}"

    def below(self, key: str) -> Location:
        """Return the location of a key relative to this place."""
        base = self.key.rstrip("/")
        return Location(self.scheme, self.bucket, f"{base}/{key}" if base else key)


def refuse(kind: str, message: str, code: str | None = None) -> Refused:
    return Refused(error(kind, message, code=code))


def locate(url: str, *, prefix: bool = False) -> Location:
    """Parse a URL. With `prefix`, it may be a folder or a whole bucket. Raises Refused."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        location = Location(FILE, "", url)
    elif scheme.lower() not in SCHEMES:
        raise refuse(
            "config", f"{url}: this is not the address of an object; use s3://, gs://, az://, file:// or a path"
        )
    elif SCHEMES[scheme.lower()] == FILE:
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise refuse("config", f"{url}: a file URL has three slashes (file:///folder/name); a plain path works too")
        location = Location(FILE, "", "/" + unquote(path))
    else:
        bucket, _, key = rest.partition("/")
        if not bucket:
            raise refuse("config", f"{url} names no bucket; write {scheme}://bucket/key")
        if any(mark in bucket for mark in "@:?#%\\ "):
            raise refuse(
                "config", f"{url}: the part before the key is not a valid bucket name; use `auth` for credentials"
            )
        location = Location(SCHEMES[scheme.lower()], bucket, key)
    check_key(location.key, url, prefix=prefix)
    return location


def check_key(key: str, shown: str, *, prefix: bool = False) -> None:
    """Check that every store accepts a key, and that the key cannot leave its place."""
    if any(ord(letter) < 32 or ord(letter) == 127 or 0xD800 <= ord(letter) <= 0xDFFF for letter in key):
        raise refuse("config", "a name must not contain NUL, control characters or lone surrogates")
    if ".." in key.split("/"):
        raise refuse("config", f"{shown}: '..' may not be a part of a name")
    if not prefix and (not key or key.endswith("/")):
        raise refuse("config", f"{shown} names a folder, not an object; only `list` takes one")


async def check_endpoint(endpoint: str, guard: Guard, *, allow_http: bool, proxied: bool) -> None:
    """Refuse an endpoint that is not an address, is not encrypted, or is not permitted. With `proxied`, its name may be
    known only to a proxy.
    """
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refuse("config", "endpoint: not an address of a server; write https://host:port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise refuse("config", "endpoint: not an address of a server; write https://host:port")
    if "@" in endpoint or parts.query or parts.fragment:
        raise refuse("config", "endpoint: an address must not contain credentials; use `auth`")
    if parts.scheme == "http" and not allow_http:
        raise refuse("config", f"endpoint {endpoint} is not encrypted; set allow_http: true to allow this")
    from arclog.drivers.failure import Failure

    try:
        await guard.addresses(host, port or (443 if parts.scheme == "https" else 80))
    except Failure as failure:
        problem = failure.problem
        if problem.code == "DNS" and proxied:
            return
        message = f"endpoint {endpoint}: {problem.message}"
        raise Refused(error(problem.kind, message, code=problem.code, retryable=problem.retryable)) from None


# ── places ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The interface of a place that contains objects. Files and clouds behave alike; every failure is a `Refused`.

#: Number of bytes that are read, hashed or sent at a time.
PIECE = 1024 * 1024

Pieces = AsyncIterator[bytes]


class ObjectMeta(Struct, frozen=True):
    """The metadata of an object."""

    key: str
    size: int
    etag: str | None
    #: ISO 8601, UTC
    last_modified: str | None
    content_type: str | None = None
    version: str | None = None


class OpenedObject(Struct, frozen=True):
    """An object opened for reading: its bytes [start, end)."""

    meta: ObjectMeta
    start: int
    end: int
    pieces: Any


class Range(Struct, frozen=True):
    """The bytes [start, end), or the last `last` bytes."""

    start: int = 0
    end: int | None = None
    last: int | None = None


class Place(Protocol):
    """A root folder or a bucket."""

    async def put(self, key: str, pieces: Pieces, content_type: str, *, if_absent: bool) -> ObjectMeta:
        """Store an object atomically. With `if_absent`, fail if it exists."""

    async def get(self, key: str, part: Range | None) -> OpenedObject:
        """Open an object. The caller reads its pieces, and closes it."""

    async def head(self, key: str) -> ObjectMeta: ...

    def listing(self, prefix: str, *, recursive: bool) -> AsyncIterator[tuple[list[ObjectMeta], list[str]]]:
        """Yield the objects under a prefix in batches, in order; if not recursive, also the folders in it."""

    async def delete(self, keys: list[str]) -> None:
        """Remove objects; missing ones are ignored."""


def resolved(part: Range | None, size: int) -> tuple[int, int]:
    """Return the bounds of a range in an object of this size; an empty range if it is after the end."""
    if part is None:
        return 0, size
    if part.last is not None:
        return max(0, size - part.last), size
    end = size if part.end is None else min(part.end, size)
    return min(part.start, end), end
