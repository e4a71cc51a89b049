"""Folders in memory, for what a test loses with its process anyway.

Most of the time in which tests write databases goes into waiting for the disk. Where a machine has room in `/dev/shm`, PostgreSQL's folders
and those of the tests in `IN_MEMORY` (tests/conftest.py) are there. Confined tasks have a `/dev/shm` of their own, so tests of tasks are not
among them; and the homes of `e2e`, `chaos` and `security` are on the disk, as they are in production.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_SHARED = Path("/dev/shm")
_GIB = 1 << 30


def memory(needed_gib: int) -> Path | None:
    """Where folders in memory can be made; None when this machine has less room there."""
    try:
        free = shutil.disk_usage(_SHARED).free
    except OSError:
        return None
    return _SHARED if free > needed_gib * _GIB and os.access(_SHARED, os.W_OK | os.X_OK) else None
