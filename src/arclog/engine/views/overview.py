"""The engine's side of `ports.views.overview`: searches, and runs that need attention. Each examines a limited number
of runs.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from arclog.core.transitions.state import State
from arclog.engine.commits.engine import Engine
from arclog.engine.views.waiting_runs import WaitingRuns, listed
from arclog.model.errors import RequestRejected
from arclog.model.ids import MAX_ID, MICROS, first_since, micros, minted_at_ms, parse_id, timestamp
from arclog.ports.boundary import Boundary
from arclog.ports.storage.pools import QueueHead
from arclog.ports.storage.statistics import HOUR
from arclog.ports.storage.store import CommandRecord, ExecutionFilter, ExecutionRecord
from arclog.ports.views.insight import Why
from arclog.ports.views.overview import (
    LEVELS,
    Activity,
    Approval,
    ApprovalPage,
    FailingPlaybook,
    Hour,
    Lease,
    RunPage,
    RunQuery,
    StuckRun,
)

#: Explains one run.
WhyOf = Callable[[str], Awaitable[Why]]

#: Number of runs that are read at a time in a search.
_PAGE = 500
#: Maximum number of failed runs that are examined for failing playbooks, in total and per playbook.
_FAILED_LOOKED_AT = 1000
_MOST_FAILURES = 100
#: Maximum number of leases that are examined for those of one tenant.
_LEASES_LOOKED_AT = 1000
#: Maximum number of listed approvals per run.
_MOST_APPROVALS = 100
_LONGEST_TEXT = 200
_MOST_HOURS = 8_784
_RUN_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Overview:
    """The overview of a caller's tenant. The owner of the store finds runs of all tenants; the list of runs that need
    attention is limited to the tenant in the settings.
    """

    def __init__(self, engine: Engine, waiting: WaitingRuns, boundary: Boundary) -> None:
        self._engine = engine
        self._waiting = waiting
        self._store = engine.store
        self._boundary = boundary
        self._tenant = boundary.home.tenant
        self._project, self._environment = boundary.reach.project, boundary.reach.environment

    # -- searching ----------------------------------------------------------------------------------------------------

    async def find(self, query: RunQuery) -> RunPage:
        if query.level not in LEVELS:
            raise RequestRejected(f"unknown level {query.level!r}; use top or called, or omit it")
        which = ExecutionFilter(
            states=query.states,
            path=query.path,
            tenant=self._boundary.reach.tenant,
            project=self._project,
            environment=self._environment,
            parent=parse_id(query.parent, "execution id") if query.parent else 0,
            origin=parse_id(query.origin, "execution id") if query.origin else 0,
            level=query.level,
            name=query.name,
            since=_first_id(query.since, "since") if query.since else 0,
        )
        before = _first_id(query.until, "until") if query.until else 0
        if query.before:
            last = parse_id(query.before, "execution id")
            before = min(before, last) if before else last
        if query.text:
            return await self._searched(which, query.text, before, query.limit)
        records = await self._store.executions(which, before=before, limit=query.limit)
        return RunPage(await self._waiting.page(records), _cursor(records, query.limit))

    async def _searched(self, which: ExecutionFilter, text: str, before: int, limit: int) -> RunPage:
        if len(text) > _LONGEST_TEXT:
            raise RequestRejected(f"a search is for at most {_LONGEST_TEXT} characters")
        by_name = await self._by_id(which, text.strip(), before)
        if by_name is not None:
            return RunPage(await self._waiting.page([by_name]), None)
        wanted = text.strip().casefold()
        budget = self._engine.settings.integer("overview.search_runs")
        records: list[ExecutionRecord] = []
        while budget > 0:
            page = await self._store.executions(which, before=before, limit=min(_PAGE, budget))
            for record in page:
                before = record.execution_id
                if _holds(record, wanted):
                    records.append(record)
                    if len(records) == limit:
                        return RunPage(await self._waiting.page(records), str(before))
            if len(page) < min(_PAGE, budget):
                return RunPage(await self._waiting.page(records), None)
            budget -= len(page)
        return RunPage(await self._waiting.page(records), str(before))

    async def _by_id(self, which: ExecutionFilter, text: str, before: int) -> ExecutionRecord | None:
        """Return the run whose id is the text, if it matches the filter."""
        record: ExecutionRecord | None = None
        if text.isascii() and text.isdigit() and 15 <= len(text) <= 19:
            record = await self._store.execution(int(text))
        elif _RUN_ID.fullmatch(text):
            record = await self._store.by_run_id(text.lower())
        if record is None or not _fits(record, which) or (before and record.execution_id >= before):
            return None
        return record

    # -- ended runs -----------------------------------------------------------------------------------------------------

    async def activity(self, hours: int) -> Activity:
        if not 1 <= hours <= _MOST_HOURS:
            raise RequestRejected(f"hours is between 1 and {_MOST_HOURS}")
        until = self._engine.clock.now()
        since = until - until % HOUR - (hours - 1) * HOUR
        counts = await self._store.run_counts(
            self._tenant, project=self._project, environment=self._environment, since=since, limit=hours + 1
        )
        by_hour = [Hour(timestamp(count.hour), count.completed, count.failed, count.cancelled) for count in counts]
        return Activity(timestamp(since), timestamp(until), by_hour)

    async def failing(self, limit: int) -> list[FailingPlaybook]:
        now = self._engine.clock.now()
        oldest = now - round(self._engine.settings.number("overview.failing_s") * MICROS)
        first = first_since(oldest)
        failed = self._top("FAILED", since=first)
        seen: dict[str, ExecutionRecord] = {}
        before = looked_at = 0
        while looked_at < _FAILED_LOOKED_AT and len(seen) < 2 * limit:
            page = await self._store.executions(failed, before=before, limit=_PAGE)
            for record in page:
                seen.setdefault(record.new.path, record)
            looked_at += len(page)
            if len(page) < _PAGE:
                break
            before = page[-1].execution_id
        failing: list[FailingPlaybook] = []
        for path, last in seen.items():
            if len(failing) == limit:
                break
            good = await self._store.executions(self._top("COMPLETED", path=path), limit=1)
            since = max(first, good[0].execution_id + 1 if good else 0)
            if last.execution_id < since:
                continue
            bad = await self._store.executions(self._top("FAILED", path=path, since=since), limit=_MOST_FAILURES)
            began = bad[-1].now.ended_at if bad else None
            failing.append(
                FailingPlaybook(
                    path, last.new.name, len(bad), None if began is None else timestamp(began), listed(last)
                )
            )
        return failing

    def _top(self, state: str, *, path: str = "", since: int = 0) -> ExecutionFilter:
        """Return a filter for runs in a state that were not called by another run."""
        return ExecutionFilter(
            states=(state,),
            path=path,
            tenant=self._tenant,
            project=self._project,
            environment=self._environment,
            level="top",
            since=since,
        )

    # -- waiting runs -------------------------------------------------------------------------------------------------

    async def stuck(self, limit: int, why: WhyOf) -> list[StuckRun]:
        now_ms = self._engine.clock.now() // 1000
        patience_ms = round(self._engine.settings.number("overview.stuck_s") * 1000)
        heads = await self._store.queue_heads(self._tenant)
        late = [head for head in heads if minted_at_ms(head.command_id) + patience_ms < now_ms]
        late.sort(key=lambda head: head.command_id)
        stuck: list[StuckRun] = []
        for head in late:
            if len(stuck) == limit:
                break
            record = await self._store.execution(head.execution_id)
            if record is not None and record.now.terminal_event is None and self._boundary.works_in(record.new.scope):
                sentence = _sentence(await why(str(head.execution_id)), head)
                since = timestamp(minted_at_ms(head.command_id) * 1000)
                stuck.append(StuckRun(listed(record), head.step, head.pool, since, sentence))
        return stuck

    async def leases(self, limit: int) -> list[Lease]:
        leases: list[Lease] = []
        records: dict[int, ExecutionRecord | None] = {}
        for command in await self._store.expired(MAX_ID, _LEASES_LOOKED_AT):
            run = command.execution_id
            if run not in records:
                records[run] = await self._store.execution(run)
            record = records[run]
            if record is None or not self._boundary.works_in(record.new.scope):
                continue
            leases.append(_lease(record, command))
            if len(leases) == limit:
                break
        return leases

    async def approvals(self, after: str, limit: int) -> ApprovalPage:
        last_id = parse_id(after, "execution id") if after else 0
        records = await self._store.awaiting_approval(self._tenant, after=last_id, limit=limit)
        approvals: list[Approval] = []
        for record in records:
            if not self._boundary.works_in(record.new.scope):
                continue
            approvals += _approvals(record, (await self._engine.live.folded(record.execution_id)).state)
        return ApprovalPage(approvals, _cursor(records, limit))


def _lease(record: ExecutionRecord, command: CommandRecord) -> Lease:
    return Lease(
        run=listed(record),
        step=command.step,
        step_run=command.run,
        items=command.items,
        pool=command.pool,
        worker_id=command.worker_id,
        claims=command.fence,
        until=timestamp(command.lease_until),
    )


def _approvals(record: ExecutionRecord, state: State) -> list[Approval]:
    run = listed(record)
    if state.pending_for == "approval":
        return [Approval(run, "", "", "", "", "", timestamp(record.new.created_at), None)]
    waits = [wait for wait in state.waits.values() if wait.kind == "approval"]
    return [
        Approval(
            run=run,
            key=wait.key,
            step=wait.step,
            task=wait.task,
            iteration="" if wait.iteration is None else ".".join(map(str, wait.iteration)),
            prompt=str(wait.config.get("prompt") or ""),
            since=timestamp(wait.since),
            until=timestamp(wait.until) if wait.until else None,
        )
        for wait in waits[:_MOST_APPROVALS]
    ]


def _sentence(why: Why, head: QueueHead) -> str:
    """Return the blocker of this step, or else of the run."""
    return next((wait.text for wait in why.waits if wait.what == "worker" and wait.step == head.step), why.summary)


def _holds(record: ExecutionRecord, wanted: str) -> bool:
    new, now = record.new, record.now
    texts = (new.name, new.path, now.current_step or "", now.error or "", str(record.execution_id), new.run_id)
    return any(wanted in text.casefold() for text in texts)


def _fits(record: ExecutionRecord, which: ExecutionFilter) -> bool:
    parent = record.new.parent_execution_id
    return (
        which.tenant in ("", record.new.scope.tenant)
        and which.project in ("", record.new.scope.project)
        and which.environment in ("", record.new.scope.environment)
        and (not which.states or record.now.state in which.states)
        and which.path in ("", record.new.path)
        and which.parent in (0, parent)
        and (not which.origin or (record.new.origin is not None and record.new.origin.execution_id == which.origin))
        and (not which.level or (which.level == "called") is bool(parent))
        and which.name in record.new.name
        and record.execution_id >= which.since
    )


def _first_id(text: str, name: str) -> int:
    """Return the smallest id that a run of that time can have."""
    try:
        return first_since(micros(text))
    except (ValueError, OverflowError):
        raise RequestRejected(f"{name}: {text[:40]!r} is not a time; write it as 2026-01-31T12:00:00Z") from None


def _cursor(records: Sequence[ExecutionRecord], limit: int) -> str | None:
    return str(records[-1].execution_id) if len(records) == limit else None
