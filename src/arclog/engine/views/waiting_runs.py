"""The waits of listed runs: a run whose tasks all wait shows what it waits for.

The record of a run does not contain its waits, so they are read from its state: the live one, or else the folded log.
Both are limited, and results are cached until the run has a new event.
"""

from __future__ import annotations

from asyncio import gather
from collections.abc import Sequence

from arclog.core.transitions.state import State, Wait
from arclog.engine.commits.engine import Engine
from arclog.model import status
from arclog.model.data.lru import LruCache
from arclog.model.errors import ArclogError
from arclog.model.ids import timestamp
from arclog.ports.storage.store import ExecutionRecord, is_imported
from arclog.ports.views.overview import ListedOrigin, ListedRun, Waiting

# An execution's record, as shown in lists.


#: States with an error. A run in any other state has at most failed loop items.
_WITH_ERROR = (status.FAILED, status.CANCELLED)


def listed(record: ExecutionRecord, waiting: Waiting | None = None) -> ListedRun:
    new, now, origin = record.new, record.now, record.new.origin
    return ListedRun(
        execution_id=str(record.execution_id),
        run_id=new.run_id,
        name=new.name,
        path=new.path,
        version=str(new.version),
        state=now.state,
        current_step=now.current_step,
        created_at=timestamp(new.created_at),
        started_at=_moment(now.started_at),
        ended_at=_moment(now.ended_at),
        error=now.error if now.state in _WITH_ERROR else None,
        warning=None if now.state in _WITH_ERROR else now.error,
        parent=str(new.parent_execution_id) if new.parent_execution_id else None,
        paused=now.paused,
        approvals=now.approvals,
        imported=is_imported(new),
        waiting=waiting,
        origin=None if origin is None else ListedOrigin(str(origin.execution_id), origin.seq, origin.how),
    )


def _moment(micros: int | None) -> str | None:
    return None if micros is None else timestamp(micros)


#: Maximum number of runs whose waits are cached.
_KEPT = 2000
#: Maximum number of logs that are folded for one page; the next request folds others.
_MOST_FOLDED = 50
_KINDS = {"playbook": "child", "wait": "timer"}


class WaitingRuns:
    """Pages of runs with their waits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: by execution id: the head at which it was examined, and the result
        self._seen: LruCache[int, tuple[int, Waiting | None]] = LruCache(_KEPT)

    async def page(self, records: Sequence[ExecutionRecord]) -> list[ListedRun]:
        unknown = [record for record in records if _may_wait(record) and not self._is_known(record)]
        await gather(*map(self._look, unknown[:_MOST_FOLDED]))
        return [listed(record, self._answer(record)) for record in records]

    def _answer(self, record: ExecutionRecord) -> Waiting | None:
        head, answer = self._seen.get(record.execution_id) or (0, None)
        return answer if head == record.head and _may_wait(record) else None

    def _is_known(self, record: ExecutionRecord) -> bool:
        """Return whether the wait is cached, or can be computed from the live state."""
        head, _ = self._seen.get(record.execution_id) or (0, None)
        if head == record.head:
            return True
        live = self._engine.live.kept(record.execution_id)
        if live is None or live.state.head != record.head:
            return False
        self._seen.replace(record.execution_id, (record.head, waiting(live.state)))
        return True

    async def _look(self, record: ExecutionRecord) -> None:
        execution_id = record.execution_id
        commands = await self._engine.store.commands(execution_id)
        answer = None
        if not commands:
            try:
                state = (await self._engine.live.folded(execution_id)).state
            except ArclogError:  # its own page reports the problem of its log
                return
            answer = waiting(state) if state.head == record.head else None
        self._seen.replace(execution_id, (record.head, answer))


def waiting(state: State) -> Waiting | None:
    """Return the first wait of a run; None if one of its tasks runs or can run."""
    if state.terminal is not None or state.pause is not None:
        return None
    if state.pending_for:
        return Waiting(state.pending_for)
    if state.tokens or any(not command.held for command in state.commands.values()) or not state.waits:
        return None
    first = min(state.waits.values(), key=_rank)
    return _described(first, len(state.waits))


def _described(wait: Wait, count: int) -> Waiting:
    signal = wait.config.get("signal") if wait.kind == "wait" else None
    kind = "signal" if signal else _KINDS.get(wait.kind, wait.kind)
    name = str(signal) if signal else str(wait.child) if wait.kind == "playbook" else ""
    return Waiting(kind, wait.step, name, timestamp(wait.until) if wait.until else None, count)


def _rank(wait: Wait) -> tuple[int, int]:
    """Return a sort key: waits that a person can end come first, then those that end soonest."""
    return (wait.kind != "approval", wait.until or 1 << 62)


def _may_wait(record: ExecutionRecord) -> bool:
    return record.now.state in (status.PENDING, status.RUNNING) and not record.now.paused
