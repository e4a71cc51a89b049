"""An execution's record as lists show it."""

from __future__ import annotations

from arclog.engine.history.imported import is_imported
from arclog.model import status
from arclog.model.ids import timestamp
from arclog.ports.storage.store import ExecutionRecord
from arclog.ports.views.listed import Listed, Waiting

#: A run in any other state has failed loop items at most.
_WITH_ERROR = (status.FAILED, status.CANCELLED)


def listed(record: ExecutionRecord, waiting: Waiting | None = None) -> Listed:
    new, now = record.new, record.now
    return Listed(
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
    )


def _moment(micros: int | None) -> str | None:
    return None if micros is None else timestamp(micros)
