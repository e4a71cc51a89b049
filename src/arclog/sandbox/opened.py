"""Files that another program may replace by a link between the moment when their path is judged and the one when they are opened."""

from __future__ import annotations

import os


def is_swapped(descriptor: int, real: object) -> bool:
    """Whether an open file is not the one at the path that was judged: a link was put there while it was opened."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") != str(real)  # noqa: PTH115 - pathlib costs a start 2 ms
    except OSError:  # no /proc: the file there must be the same, and no link may lead to it
        there = os.stat(str(real), follow_symlinks=False)  # noqa: PTH116 - as above
        return not os.path.samestat(os.fstat(descriptor), there) or os.path.realpath(str(real)) != str(real)
