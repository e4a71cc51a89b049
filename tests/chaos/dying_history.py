"""A process that kills itself within an import, a fork or a retry: `python -m tests.chaos.dying_history HOME POINT WORDS…`.

POINT is `result` (a stored result was written), `append` (before the append), a number (that many statements of the append were
executed) or `commit` (all of them were).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from arclog.cli.main import command
from arclog.engine.history import archive as portable
from arclog.stores.sqlite import appends
from arclog.stores.sqlite import log as store_log


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingTx:
    """A transaction that ends with the process."""

    def __init__(self, tx: Any, left: int) -> None:
        self._tx = tx
        self._left = left

    def execute(self, *given: Any) -> Any:
        if not self._left:
            die()
        self._left -= 1
        return self._tx.execute(*given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


def main(home: str, point: str, words: list[str]) -> int:
    append: Any = appends.append
    store: Any = portable._store

    def dying_append(tx: Any, what: Any, derived: Any) -> Any:
        if what.new is None:
            return append(tx, what, derived)
        if point == "append":
            die()
        done = append(DyingTx(tx, int(point) if point.isdigit() else -1), what, derived)
        if point == "commit":
            die()
        return done

    async def dying_store(*given: Any) -> None:
        await store(*given)
        if point == "result":
            die()

    appends.__dict__["append"] = dying_append
    store_log.__dict__["write_append"] = dying_append
    portable.__dict__["_store"] = dying_store
    return command([*words, "--home", home])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
