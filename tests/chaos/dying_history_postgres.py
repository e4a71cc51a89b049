"""Processes that kill themselves within an import, a fork or a retry on PostgreSQL: `python -m tests.chaos.dying_history_postgres`.

Reads a JSON list of [store URL, point, words…] and forks a process for each. A point is `result` (a stored result was written), `open`
(the server has carried out the append, and its transaction is open) or `committed` (it is committed, and nobody was told). Writes
the exit codes as a JSON list.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from typing import Any

import psycopg

from arclog.cli.main import command
from arclog.engine.history import archive as portable
from arclog.stores.postgres.appends import Group
from arclog.stores.postgres.connection.pipeline import Pipeline

_CREATES = re.compile(r"INSERT INTO \S*executions\b")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, point: str, words: list[str]) -> int:
    os.environ["ARCLOG_STORE_URL"] = url
    store: Any = portable._store
    send: Any = Pipeline.send
    settle: Any = Group.settle

    async def dying_store(*given: Any) -> None:
        await store(*given)
        if point == "result":
            die()

    def dying_send(pipeline: Any, calls: Any, then: Any) -> None:
        if point != "open" or not any(_CREATES.search(text) for text, _ in calls):
            send(pipeline, calls, then)
            return
        pg, pipeline._pg = pipeline._pg, Unsynchronized(pipeline._pg)
        send(pipeline, calls, then)
        with psycopg.connect(url, autocommit=True) as other:
            held = "SELECT FROM pg_locks WHERE pid = %s AND granted AND relation = 'arclog.log'::regclass"
            while other.execute(held, (pg.backend_pid,)).fetchone() is None:
                pg.flush()
        die()

    def dying_settle(group: Any, found: Any) -> Any:
        if point == "committed" and any(item.append.new is not None for item in group.items):
            die()
        return settle(group, found)

    portable.__dict__["_store"] = dying_store
    setattr(Pipeline, "send", dying_send)  # noqa: B010 - that is what dies
    setattr(Group, "settle", dying_settle)  # noqa: B010 - and that
    return command(words)


class Unsynchronized:
    """A connection whose transaction is not brought to its end."""

    def __init__(self, pg: Any) -> None:
        self._pg = pg

    def pipeline_sync(self) -> None:
        """Nothing is sent: the server keeps the transaction open."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pg, name)


if __name__ == "__main__":
    codes = []
    for url, point, *words in json.load(sys.stdin):
        child = os.fork()
        if not child:
            code = 1
            try:
                code = main(url, point, words)
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(json.dumps(codes))
