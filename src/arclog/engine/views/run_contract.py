"""The engine's side of `ports.views.runs`: renders the log in the terms of the contract."""

from __future__ import annotations

import re
from typing import Any

from arclog.dialects import run, run_record
from arclog.dialects.names import reader_of, state_of
from arclog.dialects.rendering import Reader
from arclog.dialects.run_record import RunSubject
from arclog.engine.commits.engine import Engine
from arclog.model import ids
from arclog.model.data.lru import LruCache
from arclog.model.errors import Conflict, NotFound, RequestRejected
from arclog.ports.boundary import Boundary
from arclog.ports.storage.store import ExecutionRecord
from arclog.ports.views.api import Api, ExecuteRequest, SignalRequest
from arclog.ports.views.runs import ACCEPTED, REJECTED, RunPage, RunSignal, RunStatus, SignalDecision, StartRun

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")
_TYPES = tuple(sorted(run.NEEDS))
#: Number of events that are read from the log at a time.
_PAGE = 1000
#: Cached states of readers; without one, a page is derived from the beginning of the log.
_MOST_CURSORS = 1000

#: (execution_id, seq) → the state of a reader there
Cursors = LruCache[tuple[int, int], bytes]


def new_cursors() -> Cursors:
    return LruCache(_MOST_CURSORS)


class EngineRuns:
    """Implements `ports.runs.Runs` for one caller."""

    def __init__(self, engine: Engine, api: Api, boundary: Boundary, cursors: Cursors) -> None:
        self._engine = engine
        self._api = api
        self._boundary = boundary
        self._cursors = cursors

    async def start(self, request: StartRun) -> tuple[RunStatus, bool]:
        if bool(request.plan_id) == bool(request.playbook):
            raise RequestRejected("set exactly one of `planId` (in the catalog) and `playbook` (its text)")
        version = request.plan_version
        if version and not _VERSION.fullmatch(version):
            raise RequestRejected("`planVersion` is a whole number from 1, as text")
        self._boundary.check_tenant(request.tenant_id)
        scope = {"project": request.project_id, "environment": request.environment_id}
        started = await self._api.execute(
            ExecuteRequest(
                playbook=request.playbook,
                path=request.plan_id,
                version=int(version or 0),
                workload=request.parameters,
                scope={key: value for key, value in scope.items() if value},
                idempotency_key=request.idempotency_key,
            )
        )
        return await self.status(started.run_id), started.created

    async def status(self, run_id: str) -> RunStatus:
        record = await self._record(run_id)
        status, substatus = await self._status(record)
        new, now = record.new, record.now
        return RunStatus(
            run_id=new.run_id,
            execution_id=str(record.execution_id),
            tenant_id=new.scope.tenant,
            project_id=new.scope.project,
            environment_id=new.scope.environment,
            plan_id=new.path,
            plan_version=str(new.version),
            status=status,
            substatus=substatus,
            started_at=None if now.started_at is None else ids.timestamp(now.started_at),
            ended_at=None if now.ended_at is None else ids.timestamp(now.ended_at),
            error=now.error if now.state in (run_record.FAILED, run_record.CANCELLED) else None,
        )

    async def _status(self, record: ExecutionRecord) -> tuple[str, str | None]:
        now = record.now
        if now.terminal_event is not None:
            return now.state, None
        if now.paused:
            return run_record.PAUSED, None
        if now.state == run_record.PENDING:
            # Its log is short, and only the log shows whether it was approved.
            reader = run.RunReader(_subject(record))
            for envelope in await self._api.events(str(record.execution_id), types=_TYPES):
                reader.render(envelope)
            return reader.state.status, reader.state.substatus
        draining = await self._api.pausing(str(record.execution_id))
        return now.state, run_record.DRAINING if draining else None

    async def cancel(self, run_id: str, reason: str) -> RunStatus:
        if not reason.strip():
            raise RequestRejected("cancelRun requires a `reason`")
        record = await self._record(run_id)
        if record.now.state != run_record.CANCELLED:
            answer = await self._api.signal(str(record.execution_id), SignalRequest("CANCEL", reason=reason))
            if not answer.accepted and answer.state != run_record.CANCELLED:
                raise Conflict(f"run {run_id} cannot be cancelled: {answer.message}")
        return await self.status(run_id)

    async def signal(self, run_id: str, signal: RunSignal) -> SignalDecision:
        record = await self._record(run_id)
        if not ids.is_uuid(signal.signal_id):
            raise RequestRejected(
                "`signalId` must be a UUID that the sender chooses, such as "
                "6f1c2a7e-3b0d-4c55-9a41-0d2e8f7b6c13; the same id again gets the same decision"
            )
        answer = await self._api.signal(
            str(record.execution_id),
            SignalRequest(
                signal=signal.type,
                signal_id=signal.signal_id,
                reason=signal.reason,
                step=signal.step_id,
                data=signal.payload,
            ),
        )
        started = None
        if answer.started is not None:
            new = await self._engine.store.execution(int(answer.started))
            started = None if new is None else new.new.run_id
        status, substatus = await self._status(await self._record(run_id))
        return SignalDecision(
            run_id=run_id,
            signal_id=signal.signal_id,
            type=signal.type,
            decision=ACCEPTED if answer.accepted else REJECTED,
            message=answer.message,
            status=status,
            substatus=substatus,
            started_run_id=started,
            waiting=answer.waiting,
        )

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> RunPage:
        record = await self._record(run_id)
        execution_id = str(record.execution_id)
        reader, at = self._reader(record, after)
        records: list[dict[str, Any]] = []
        while True:
            page = await self._api.events(execution_id, after=at, limit=_PAGE, types=_TYPES)
            for envelope in page:
                at = envelope["seq"]
                records += [rendered.record for rendered in reader.render(envelope) if rendered.seq > after]
                if len(records) == limit:
                    self._keep(record.execution_id, at, reader)
                    return RunPage(records, at, has_more=at < record.head)
            if len(page) < _PAGE:
                last = max(at, after)
                if last <= max(at, record.head):  # after that, events are still to come that the reader must see
                    self._keep(record.execution_id, last, reader)
                return RunPage(records, last, has_more=False)

    def _reader(self, record: ExecutionRecord, after: int) -> tuple[Reader, int]:
        """A reader at the position `after`, or at the beginning of the log."""
        kept = self._cursors.get((record.execution_id, after))
        return reader_of(run.NAME, _subject(record), kept), 0 if kept is None else after

    def _keep(self, execution_id: int, at: int, reader: Reader) -> None:
        self._cursors.put((execution_id, at), state_of(reader))

    async def _record(self, run_id: str) -> ExecutionRecord:
        if not _UUID.fullmatch(run_id):
            raise RequestRejected(f"{run_id[:64]!r} is not a runId: a runId is a UUID in lower case")
        record = await self._engine.store.by_run_id(run_id)
        if record is None or not self._boundary.sees(record.new.scope):
            raise NotFound(f"there is no run {run_id}")
        return record


def _subject(record: ExecutionRecord) -> RunSubject:
    return RunSubject(record.new.run_id, record.new.path, str(record.new.version))
