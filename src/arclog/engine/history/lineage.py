"""OpenLineage events of runs: computed from the log on request, and sent when a run ends (`lineage.url`,
`lineage.file`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from arclog import __version__
from arclog.engine.commits.engine import Engine
from arclog.engine.duties.log_follower import Follower
from arclog.engine.history.recorded_runs import read_log
from arclog.history.openlineage import Subject, run_events
from arclog.model.errors import ArclogError, ServerUnavailable, StoreUnavailable
from arclog.model.events import TERMINAL
from arclog.ports.storage.store import ExecutionRecord, LogBatch, is_imported

log = logging.getLogger("arclog.engine")
# sqlglot warns of every statement that it does not know.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

#: Posts a body. Returns '' if it was accepted, else the reason, and whether a retry makes sense.
Post = Callable[[bytes], Awaitable[tuple[str, bool]]]


async def lineage_of(engine: Engine, record: ExecutionRecord) -> list[dict[str, Any]]:
    """Return the OpenLineage events of a run as far as its log goes."""
    program = await engine.live.program(record.new.plan)
    events = [stored.event for stored in await read_log(engine, record.execution_id, record.head)]
    subject = Subject(
        run_id=record.new.run_id,
        name=record.new.path or record.new.name,
        namespace=engine.settings.text("lineage.namespace"),
        version=__version__,
        max_sql=engine.settings.integer("lineage.max_sql_chars"),
    )
    # Parsing SQL takes milliseconds.
    return await asyncio.to_thread(run_events, subject, program.plan, events)


class LineageSender(Follower):
    """Sends the OpenLineage events of each run that has ended, in order. Events that the endpoint permanently rejects are dropped."""

    duty = "lineage.send"
    noun = "lineage events"

    def __init__(self, engine: Engine, owner: str, post: Post | None, file: str) -> None:
        super().__init__(engine, owner)
        self._post = post
        self._file = Path(file) if file else None
        #: events of the current run that were accepted; a retry continues after them
        self._taken: tuple[int, int] = (0, 0)

    async def send(self, page: Sequence[LogBatch]) -> int:
        for index, row in enumerate(page):
            if not any(event.event.type in TERMINAL and not event.event.informative for event in row.events):
                continue
            try:
                await self._send_run(row.execution_id)
            except ArclogError:
                if index:
                    return index
                raise
        return len(page)

    async def _send_run(self, execution_id: int) -> None:
        record = await self._engine.store.execution(execution_id)
        if record is None or is_imported(record.new):
            return  # it was removed, or imported
        events = [msgspec.json.encode(event) for event in await lineage_of(self._engine, record)]
        if self._file is not None and self._taken[0] != execution_id:
            await asyncio.to_thread(_append, self._file, events)
        first = self._taken[1] if self._taken[0] == execution_id else 0
        self._taken = (execution_id, first)
        for number, body in enumerate(events if self._post is not None else ()):
            if number < first or self._post is None:
                continue
            problem, is_final = await self._post(body)
            if problem and not is_final:
                raise ServerUnavailable(problem)
            if problem:
                log.warning("lineage of run %s: %s; event omitted", execution_id, problem)
            self._taken = (execution_id, number + 1)


def _append(path: Path, events: Sequence[bytes]) -> None:
    try:
        with path.open("ab") as file:
            file.write(b"".join(event + b"\n" for event in events))
    except OSError as problem:
        raise StoreUnavailable(f"lineage.file {path}: {problem.strerror}") from None
