"""How results are called in a bucket.

    <prefix>/<tenant>/<first two digits>/<sha256>/<stored at>-<nonce>-<bytes>[-list].zst    the stored file
    …                                                                      .ref            or: it is in .data/
    <prefix>/.data/<nonce>.zst                                                             a large one, while it comes too

Storing content again makes a new object beside the one before, which goes afterwards: no object is ever changed, and
whoever removes what they looked at cannot remove what came meanwhile. That needs nothing of a bucket but that it lists what
was written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from msgspec import Struct

from arclog.results.names import folder_of, is_sha256, tenant_of

DATA = ".data"
_VERSION = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})-([0-9]{1,19})(-list)?\.(zst|ref)")
_DATA = re.compile(r"([0-9a-f]{16})\.zst")


class Version(Struct, frozen=True, order=True):
    """Content as it was stored once. The order is that of storing."""

    stored_at: int
    nonce: str
    stored_bytes: int
    listed: bool
    #: the content is in .data/
    referred: bool

    @property
    def name(self) -> str:
        listed = "-list" if self.listed else ""
        return f"{self.stored_at:016x}-{self.nonce}-{self.stored_bytes}{listed}.{'ref' if self.referred else 'zst'}"


class Keys:
    """The keys below one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = f"{prefix}/" if prefix else ""

    @property
    def root(self) -> str:
        return self._prefix

    def of(self, tenant: str, sha256: str) -> str:
        """What the versions of some content stand under."""
        return f"{self._prefix}{folder_of(tenant)}/{sha256[:2]}/{sha256}/"

    def of_version(self, tenant: str, sha256: str, version: Version) -> str:
        return f"{self.of(tenant, sha256)}{version.name}"

    def of_data(self, nonce: str) -> str:
        return f"{self._prefix}{DATA}/{nonce}.zst"

    @property
    def all_data(self) -> str:
        return f"{self._prefix}{DATA}/"

    def content(self, version: Version, key: str) -> str:
        """The key of the object that holds the stored file, of the version with this key."""
        return self.of_data(version.nonce) if version.referred else key

    def parsed(self, key: str) -> tuple[str, str, Version] | None:
        """Tenant, sha256 and version; None when it is not a key of a version."""
        folder, _, rest = key.removeprefix(self._prefix).partition("/")
        digits, _, rest = rest.partition("/")
        sha256, _, name = rest.partition("/")
        tenant, version = tenant_of(folder), version_of(name)
        if tenant is None or version is None or not is_sha256(sha256) or not sha256.startswith(digits):
            return None
        return tenant, sha256, version

    def nonce_of(self, key: str) -> str | None:
        """The nonce in the key of a large content."""
        found = _DATA.fullmatch(key.removeprefix(self.all_data))
        return None if found is None else found[1]


def version_of(name: str) -> Version | None:
    found = _VERSION.fullmatch(name)
    if found is None:
        return None
    stamp, nonce, size, listed, form = found.groups()
    return Version(int(stamp, 16), nonce, int(size), listed is not None, form == "ref")


def new_nonce() -> str:
    return os.urandom(8).hex()


def superseded(versions: Sequence[Version]) -> list[Version]:
    """Those that a later one stands for. A list can be read both ways, plain bytes cannot: they leave a list alone."""
    return [each for each in versions if any(later > each and (later.listed or not each.listed) for later in versions)]
