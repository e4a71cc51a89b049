"""How tenants and contents are called in result stores: names that every store takes and that lead nowhere else."""

from __future__ import annotations

import re

from arclog.model.errors import ResultUnavailable

_SHA256 = re.compile(r"[0-9a-f]{64}")
_AS_THEY_ARE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
#: file systems allow 255
_LONGEST = 250


def is_sha256(text: str) -> bool:
    """Whether content can have this name at all."""
    return _SHA256.fullmatch(text) is not None


def folder_of(tenant: str) -> str:
    """The name of a tenant's folder: every byte but `A-Za-z0-9_-` is written as `%XX`, so that different tenants have
    different folders.
    """
    raw = tenant.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if byte in _AS_THEY_ARE else f"%{byte:02X}" for byte in raw) or "%"
    if len(name) > _LONGEST:
        raise ResultUnavailable(f"the tenant's name {tenant[:40]!r}… is too long to store results under; shorten it")
    return name


def tenant_of(folder: str) -> str | None:
    """The tenant whose folder it is; None when it is nobody's."""
    if folder == "%":
        return ""
    try:
        raw = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), folder.encode())
        tenant = raw.decode("utf-8", "surrogatepass")
        return tenant if folder_of(tenant) == folder else None
    except (UnicodeError, ResultUnavailable):
        return None
