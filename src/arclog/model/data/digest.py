"""SHA-256 of short values, without OpenSSL.

`hashlib` loads OpenSSL when it is imported, which takes longer than any other module of a short run. Python has an implementation
of its own; it is as fast for short values and several times slower for long ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Longer values are hashed by OpenSSL.
_SHORT = 65_536


def _implementation() -> Callable[[bytes], Any]:
    import sys

    name = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
    try:
        sha256: Callable[[bytes], Any] = __import__(name).sha256
    except ImportError:  # a Python that was built without it
        from hashlib import sha256
    return sha256


_short_sha256 = _implementation()


def sha256(body: bytes) -> str:
    """Return the SHA-256 of the bytes, lowercase hex."""
    if len(body) <= _SHORT:
        return _short_sha256(body).hexdigest()  # type: ignore[no-any-return]  # of a module without types
    import hashlib

    return hashlib.sha256(body).hexdigest()
