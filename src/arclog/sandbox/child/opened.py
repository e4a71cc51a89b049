"""Detection of files that another program replaced by a link between the check of their path and the opening."""

from __future__ import annotations

import os


def is_swapped(descriptor: int, real: object) -> bool:
    """Return whether an open file is not the one at the checked path, because a link was put there in the meantime."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") != str(real)  # noqa: PTH115 - pathlib costs a start 2 ms
    except OSError:  # without /proc, the path must name the same file, and no link may be part of it
        there = os.stat(str(real), follow_symlinks=False)  # noqa: PTH116 - as above
        return not os.path.samestat(os.fstat(descriptor), there) or os.path.realpath(str(real)) != str(real)
