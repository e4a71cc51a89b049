"""The engine's side of `ports.views.api`: starts and describes runs."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

from arclog.core.boundary.inputs import Request, Signal
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import new_uuid
from arclog.engine.commits.live_states import Live
from arclog.engine.dispatch.worker_registry import silent_before
from arclog.engine.runs.compile_cache import Compiler
from arclog.engine.runs.slots import holders
from arclog.engine.runs.starting import Starts
from arclog.engine.views.account import ChildAccount, account
from arclog.engine.views.waiting_runs import WaitingRuns
from arclog.expr import Limits
from arclog.model import ids, status
from arclog.model.config.kinds import KindSpec, kind_rules
from arclog.model.data.json_data import DEEPEST_INPUT, nested_deeper
from arclog.model.errors import Conflict, NewerLog, NotAllowed, NotFound, PlaybookError, RequestRejected
from arclog.model.inputs import FORGOTTEN_SECRETS, secret_names
from arclog.model.principal import Principal, may_act_for_the_tenant, may_bring_playbooks, may_signal
from arclog.model.refs import parse_ref, published_form
from arclog.plan.net import Plan
from arclog.ports.boundary import Boundary
from arclog.ports.results import Results
from arclog.ports.storage.store import (
    EventQuery,
    ExecutionFilter,
    ExecutionRecord,
    NewExecution,
    RunOrigin,
    is_imported,
)
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter
from arclog.ports.views.api import (
    CatalogDiff,
    CatalogEntry,
    CatalogVersion,
    Collected,
    EventSearchPage,
    ExecuteRequest,
    Forked,
    ForkRequest,
    Origin,
    PlaybookStats,
    RegisterRequest,
    ReplayCheck,
    RunsDiff,
    SignalAnswer,
    SignalRequest,
    Started,
    Status,
    StoredResult,
    Summary,
)
from arclog.ports.views.insight import Account, StateView, Why
from arclog.ports.views.overview import (
    Activity,
    ApprovalPage,
    FailingPlaybook,
    Lease,
    ListedRun,
    RunPage,
    RunQuery,
    StuckRun,
)

if TYPE_CHECKING:
    from arclog.engine.runs.catalog import Catalog
    from arclog.engine.views.overview import Overview
    from arclog.engine.views.stored_results import Stored
    from arclog.ports.views.history import Imported, SimulateRequest, SimulationReport, Trace

#: The terminal rows of `dialects.lifecycle.TABLE`, as a test checks; importing that module would slow down every run.
_LIFECYCLE_TERMINAL = {
    ("playbook.finished", status.COMPLETED): "playbook.completed",
    ("playbook.finished", status.FAILED): "playbook.failed",
    ("execution.cancelled", status.CANCELLED): "execution.cancelled",
}


class EngineApi:
    """Implements `ports.api.Api` for the whole store, or for the runs within a boundary (`within`)."""

    def __init__(
        self,
        engine: Engine,
        kinds: Mapping[str, KindSpec],
        results: Results,
        is_alive: Callable[[str], bool | None] | None = None,
        is_served: Callable[[Collection[int]], bool | None] | None = None,
    ) -> None:
        self._engine = engine
        self._results = results
        self.compiler = Compiler(kinds, engine.settings)
        self._kind_rules = kind_rules(engine.settings, kinds)
        #: interval after which appends of other processes are found without a notice
        self._look_again_s = engine.settings.number("engine.look_again_s")
        #: returns whether a worker's process exists, if that is known
        self._is_alive = is_alive
        #: returns whether a process exists that runs one of some executions, if that is known
        self._is_served = is_served
        self._waiting = WaitingRuns(engine)
        self._boundary = Boundary.owner(engine.settings)

    def within(self, boundary: Boundary) -> EngineApi:
        """Return an API within a boundary: data outside of it does not exist for the caller, and new runs go to its
        home.
        """
        seen = EngineApi.__new__(EngineApi)
        vars(seen).update(vars(self))
        for bound in ("_starts", "_stored", "_overview"):
            vars(seen).pop(bound, None)
        vars(seen)["_boundary"] = boundary
        return seen

    @cached_property
    def _starts(self) -> Starts:
        return Starts(self._engine, self.compiler, self._boundary)

    @property
    def _catalog(self) -> Catalog:
        return self._starts.catalog

    @cached_property
    def _stored(self) -> Stored:
        from arclog.engine.views.stored_results import Stored  # only requests for results need it

        return Stored(self._engine, self._results, self._boundary)

    @cached_property
    def _overview(self) -> Overview:
        from arclog.engine.views.overview import Overview  # only overviews need it

        return Overview(self._engine, self._waiting, self._boundary)

    async def execute(self, request: ExecuteRequest) -> Started:
        if request.playbook and self._caller is not None:
            may_bring_playbooks(self._caller)
        if request.playbook:
            await self._check_kinds(request.playbook, request.file, request.files)
        return await self._starts.execute(request)

    async def _check_kinds(self, playbook: str, file: str, files: Mapping[str, str] = MappingProxyType({})) -> None:
        """Raise NotAllowed if the caller's playbook has tasks of kinds that the caller may not use."""
        if not self._kind_rules.rules:
            return
        tenant = self._boundary.home.tenant
        for name, text in ((file, playbook), *files.items()):
            try:
                plan = (await self.compiler.compile(text, name, tenant, files)).plan
            except PlaybookError:
                if text is playbook:
                    raise
                continue  # files that are not called are not checked
            self._check_plan(plan)

    def _check_plan(self, plan: Plan) -> None:
        """Raise NotAllowed if the caller's plan has tasks of kinds that the caller may not use."""
        tenant, roles = self._boundary.home.tenant, None if self._caller is None else self._caller.roles
        for kind in dict.fromkeys(task.kind for step in plan.steps for task in step.tasks):
            if refusal := self._kind_rules.refusal(kind, tenant, roles):
                raise NotAllowed(refusal)

    async def wait(self, execution_id: str, *, after: int = 0, timeout_s: float | None = None) -> int:
        number = ids.parse_id(execution_id, "execution id")
        clock = self._engine.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        with self._engine.hints.on_append(number) as news:
            while True:
                record = await self._record(number)
                left = None if deadline is None else deadline - clock.monotonic()
                if record.head > after or record.now.terminal_event or (left is not None and left <= 0):
                    return record.head
                await news.heard(self._look_again_s if left is None else min(left, self._look_again_s))

    async def ended(self, execution_id: str, *, timeout_s: float | None = None) -> bool:
        number = ids.parse_id(execution_id, "execution id")
        clock = self._engine.clock
        deadline = None if timeout_s is None else clock.monotonic() + timeout_s
        with self._engine.hints.on_end(number) as news:
            while (await self._record(number)).now.terminal_event is None:
                left = self._look_again_s if deadline is None else deadline - clock.monotonic()
                if left <= 0:
                    return False
                await news.heard(min(left, self._look_again_s))
        return True

    async def status(self, execution_id: str) -> Status:
        record = await self._record(ids.parse_id(execution_id, "execution id"))
        now = record.now
        return Status(
            execution_id=str(record.execution_id),
            state=now.state,
            current_step=now.current_step,
            started_at=_time(now.started_at),
            ended_at=_time(now.ended_at),
            terminal_event=_terminal(record),
        )

    async def summary(self, execution_id: str) -> Summary:
        number = (await self._record(ids.parse_id(execution_id, "execution id"))).execution_id
        live = await self._engine.live.folded(number)
        state, record = live.state, live.record
        run_account = await self._account(live)
        return Summary(
            execution_id=str(number),
            run_id=record.new.run_id,
            state=state.status,
            terminal_event=_terminal(record),
            started_at=_time(state.started_at),
            ended_at=_time(state.ended_at),
            steps=run_account.steps,
            ctx=state.ctx,
            result=state.result,
            result_ref=published_form(state.result_ref),
            error=run_account.error,
            name=record.new.name,
            problems=run_account.problems,
            cause=run_account.cause,
            next=run_account.next,
            origin=None if state.origin is None else Origin.of(state.origin),
            imported=is_imported(record.new),
        )

    async def _account(self, live: Live) -> Account:
        """Return the account of a run, from its state and, if it failed, its playbook's text and the child that
        failed.
        """
        state, record = live.state, live.record
        fault = state.fault
        if fault is None:
            return account(live.program, state)
        child = await self._child_account(fault.child) if fault.child else None
        file = state.file or f"{record.new.path}@{record.new.version}"
        return account(live.program, state, source=await self._source(record), file=file, child=child)

    async def _child_account(self, execution_id: str) -> ChildAccount | None:
        """Return the account of a child; None if it is no longer in the store. It always belongs to the same tenant."""
        try:
            live = await self._engine.live.folded(int(execution_id))
        except (NotFound, NewerLog):
            return None
        return ChildAccount(execution_id, await self._account(live))

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        path: str = "",
        before: str = "",
        limit: int = 50,
        name: str = "",
        since: str = "",
        parent: str = "",
        origin: str = "",
    ) -> builtins.list[ListedRun]:
        reached = self._boundary.reach
        which = ExecutionFilter(
            states=tuple(states),
            path=path,
            tenant=reached.tenant,
            project=reached.project,
            environment=reached.environment,
            parent=ids.parse_id(parent, "parent") if parent else 0,
            origin=ids.parse_id(origin, "origin") if origin else 0,
            name=name,
            since=_first_id(since) if since else 0,
        )
        earlier = ids.parse_id(before, "execution id") if before else 0
        return await self._waiting.page(await self._engine.store.executions(which, before=earlier, limit=limit))

    async def find(self, query: RunQuery) -> RunPage:
        return await self._overview.find(query)

    async def activity(self, *, hours: int = 24) -> Activity:
        return await self._overview.activity(hours)

    async def failing(self, *, limit: int = 20) -> builtins.list[FailingPlaybook]:
        return await self._overview.failing(limit)

    async def stuck(self, *, limit: int = 20) -> builtins.list[StuckRun]:
        return await self._overview.stuck(limit, self.why)

    async def leases(self, *, limit: int = 100) -> builtins.list[Lease]:
        return await self._overview.leases(limit)

    async def approvals(self, *, after: str = "", limit: int = 50) -> ApprovalPage:
        return await self._overview.approvals(after, limit)

    async def events(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> builtins.list[dict[str, Any]]:
        from arclog.engine.views.event_search import subject_of, widened  # only requests for events need it

        record = await self._record(ids.parse_id(execution_id, "execution id"))
        subject = subject_of(record)
        stored = await self._engine.store.events(record.execution_id, after=after, limit=limit, types=types)
        return [widened(event, subject) for event in stored]

    async def entity_events(
        self, execution_id: str, entity_type: str, entity_id: str = "", *, after: int = 0, limit: int = 1000
    ) -> builtins.list[dict[str, Any]]:
        from arclog.engine.views.event_search import entity_events, types_about

        record = await self._record(ids.parse_id(execution_id, "execution id"))
        types = types_about(entity_type, ())
        return await entity_events(self._engine.store, record, types, entity_id, after, limit)

    async def search(
        self,
        *,
        types: Sequence[str] = (),
        since: str = "",
        until: str = "",
        entity: str = "",
        where: str = "",
        informative: bool = False,
        cursor: str = "",
        limit: int = 100,
    ) -> EventSearchPage:
        from arclog.engine.views.event_search import NO_TYPE, matches_of, search, types_about

        limits = Limits(max_work=self._engine.settings.integer("history.where_max_work"))
        matches = matches_of(entity, where, limits)
        if entity:
            types = types_about(entity.partition(":")[0], types)
            if types == NO_TYPE:
                return EventSearchPage([], "", more=False)
        reached = self._boundary.reach
        query = EventQuery(
            types=tuple(types),
            since=_moment(since, "since", 0),
            until=_moment(until, "until", ids.MAX_ID),
            tenant=reached.tenant,
            project=reached.project,
            environment=reached.environment,
            informative=informative,
        )
        return EventSearchPage(*await search(self._engine.store, query, cursor, limit, matches))

    async def logs(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> builtins.list[dict[str, Any]]:
        record = await self._record(ids.parse_id(execution_id, "execution id"))
        if where.step or where.task:
            from arclog.engine.views.state import require_task

            require_task(await self._engine.live.program(record.new.plan), where.step, where.task)
        lines = await self._engine.store.logs(record.execution_id, after=after, limit=limit, where=where)
        return [
            {
                "position": position,
                "timestamp": ids.timestamp(line.at),
                "step": line.step,
                "step_run": line.run,
                "task": line.task,
                "task_run": line.task_run,
                "attempt": line.attempt,
                "iteration": None if line.iteration is None else ".".join(map(str, line.iteration)),
                "stream": line.stream,
                "text": line.text,
            }
            for position, line in lines
        ]

    async def why(self, execution_id: str) -> Why:
        from arclog.engine.views.why import explain, pool_facts, read_only

        number = (await self._record(ids.parse_id(execution_id, "execution id"))).execution_id
        live = await self._engine.live.folded(number)
        store = self._engine.store
        commands = await store.commands(number)
        now = self._engine.clock.now()
        ahead = await holders(self._engine, live.record) if live.state.pending_for == "slot" else []
        imported = is_imported(live.record.new)
        is_served = None if imported else self._is_served
        why = explain(
            live.state,
            live.program,
            commands,
            now,
            is_alive=self._is_alive,
            run_account=await self._account(live),
            served=None if is_served is None else is_served(await self._with_callers(live.record)),
            slot_holders=ahead,
            pools=await pool_facts(
                store, live.record.new.scope.tenant, commands, silent_before(self._engine.clock, self._engine.settings)
            ),
        )
        return read_only(why, live.record.head) if imported and live.state.terminal is None else why

    async def _with_callers(self, record: ExecutionRecord | None) -> builtins.list[int]:
        """Return a run and its callers: a process that serves one of them serves its descendants as well."""
        family: builtins.list[int] = []
        while record is not None:
            family.append(record.execution_id)
            parent = record.new.parent_execution_id
            record = await self._engine.store.execution(parent) if parent else None
        return family

    async def state(self, execution_id: str, at: int | None = None) -> StateView:
        from arclog.engine.views.state import state_view

        number = ids.parse_id(execution_id, "execution id")
        if at is not None and at < 0:
            raise RequestRejected(
                f"there is no event {at}; events are numbered from 1, and 0 is the state before the first"
            )
        await self._record(number)
        live = await self._engine.live.folded(number, at)
        last = await self._engine.store.events(number, after=live.state.head - 1, limit=1) if live.state.head else []
        return state_view(live.program, live.state, live.record.head, last[0] if last else None)

    async def fork(self, execution_id: str, request: ForkRequest) -> Forked:
        from arclog.engine.history import recorded_runs as history

        record = await self._record(ids.parse_id(execution_id, "execution id"))
        going = None
        if request.playbook:
            if self._caller is not None:
                may_bring_playbooks(self._caller)
            await self._check_kinds(request.playbook, request.file, request.files)
            going = await self._starts.going(request, record.new.scope)
        return await history.fork(self._engine, record, request, going)

    async def replay(self, execution_id: str) -> ReplayCheck:
        from arclog.engine.history import recorded_runs as history

        record = await self._record(ids.parse_id(execution_id, "execution id"))
        return await history.checked(self._engine, record)

    async def diff(self, execution_id: str, other: str) -> RunsDiff:
        from arclog.engine.history import recorded_runs as history

        records = [await self._record(ids.parse_id(text, "execution id")) for text in (execution_id, other)]
        return await history.compared(self._engine, *records)

    async def simulate(self, request: SimulateRequest) -> SimulationReport:
        from arclog.engine.history import simulation as simulating

        if self._caller is not None:
            may_bring_playbooks(self._caller)
        await self._check_kinds(request.playbook, request.file, request.files)
        plan = (
            await self.compiler.compile(request.playbook, request.file, self._boundary.home.tenant, request.files)
        ).plan
        simulating.check(request, {step.name for step in plan.steps})
        if request.runs:
            records = [await self._record(ids.parse_id(run, "execution id")) for run in request.runs]
        else:
            path = plan.path or plan.name
            records = await self._engine.store.executions(self._of_path(path), limit=request.last)
            if not records:
                raise NotFound(
                    f"there is no run of {path[:200]!r} to simulate; run it first, or name other runs (`runs`, --from)"
                )
        return await simulating.simulated(self._engine, self._results, plan, records, request)

    async def export(self, execution_id: str) -> AsyncIterator[bytes]:
        from arclog.engine.history import archive as portable

        record = await self._record(ids.parse_id(execution_id, "execution id"))
        async for chunk in portable.exported(self._engine, self._results, record):
            yield chunk

    async def import_run(self, file: BinaryIO) -> Imported:
        from arclog.engine.history import archive as portable

        if self._caller is not None:
            may_bring_playbooks(self._caller)
        return await portable.read_run(self._engine, self._results, file, self._boundary.home, self._check_plan)

    async def lineage(self, execution_id: str) -> builtins.list[dict[str, Any]]:
        from arclog.engine.history import lineage

        record = await self._record(ids.parse_id(execution_id, "execution id"))
        return await lineage.lineage_of(self._engine, record)

    async def trace(self, execution_id: str, path: str) -> Trace:
        from arclog.engine.history import provenance as tracing

        record = await self._record(ids.parse_id(execution_id, "execution id"))
        return await tracing.traced(self._engine, record, path, self._reached)

    async def _reached(self, execution_id: int) -> ExecutionRecord | None:
        """Return the record of a run, if the caller may see it."""
        record = await self._engine.store.execution(execution_id)
        return record if record is not None and self._boundary.sees(record.new.scope) else None

    async def stats(self, path: str, *, since: str = "", limit: int = 200) -> PlaybookStats:
        from arclog.engine.history import recorded_runs as history

        return await history.stats_of(self._engine, path, self._of_path(path, since), limit)

    def _of_path(self, path: str, since: str = "") -> ExecutionFilter:
        reached = self._boundary.reach
        return ExecutionFilter(
            path=path,
            tenant=reached.tenant,
            project=reached.project,
            environment=reached.environment,
            since=_first_id(since) if since else 0,
        )

    async def pausing(self, execution_id: str) -> bool:
        record = await self._record(ids.parse_id(execution_id, "execution id"))
        if record.now.paused or record.now.terminal_event is not None:
            return record.now.paused
        if self._engine.is_held(record.execution_id):
            return True  # in quarantine: RESUME releases it, and reading its log may kill the process
        # Draining is visible only in the log; a run that was never paused needs no fold.
        if not await self._engine.store.events(record.execution_id, limit=1, types=("signal.received",)):
            return False
        return (await self._engine.live.folded(record.execution_id)).state.pause is not None

    async def cancel(self, execution_id: str, reason: str) -> Status:
        await self.signal(execution_id, SignalRequest("CANCEL", reason=reason or "cancelled"))
        return await self.status(execution_id)

    async def signal(self, execution_id: str, request: SignalRequest) -> SignalAnswer:
        engine = self._engine
        if nested_deeper(request.data, DEEPEST_INPUT):
            raise RequestRejected(f"the signal's data is nested deeper than {DEEPEST_INPUT} levels")
        record = await self._record(ids.parse_id(execution_id, "execution id"))
        by, roles = request.by, None
        if self._caller is not None:
            may_signal(self._caller, request.signal)
            by, roles = self._caller.name, self._caller.roles
        signal_id = request.signal_id or new_uuid()
        problem, started, waiting = "", None, False
        if request.signal == "RETRY_RUN":
            problem, started = await self._retry_run(record, signal_id)
        else:
            signal_input = Signal(
                request.signal,
                signal_id,
                request.reason,
                by,
                request.step,
                request.data,
                roles,
                most_kept=engine.settings.integer("signals.max_kept"),
            )
            answer = await engine.put(record.execution_id, signal_input)
            waiting = answer.waiting
            if answer.refused is not None:
                if answer.refused.reason == "forbidden":
                    raise NotAllowed(answer.refused.message)
                if answer.refused.reason == "malformed":
                    raise RequestRejected(answer.refused.message)
                problem = answer.refused.message
            record = await self._record(record.execution_id)
        return SignalAnswer(
            execution_id=str(record.execution_id),
            signal=request.signal,
            signal_id=signal_id,
            accepted=not problem,
            message=problem,
            state=record.now.state,
            paused=record.now.paused,
            started=started,
            waiting=waiting,
        )

    async def _retry_run(self, record: ExecutionRecord, signal_id: str) -> tuple[str, str | None]:
        """Start a new run of the same plan with the same workload. The log of an ended run accepts no more events."""
        engine, old = self._engine, record.new
        if record.now.terminal_event is None:
            return f"the run has not ended ({record.now.state}); only a run that has ended can be run again", None
        key = f"retry:{old.run_id}:{signal_id}"
        existing = await engine.store.by_idempotency_key(old.scope, key)
        if existing is None:
            program = await engine.live.program(old.plan)
            if names := secret_names(program.plan.inputs):
                return f"{', '.join(names)}: {FORGOTTEN_SECRETS}", None
            first = await engine.store.events(record.execution_id, limit=1)
            asked = first[0].event.payload
            new = NewExecution(
                run_id=new_uuid(),
                name=old.name,
                path=old.path,
                version=old.version,
                plan=old.plan,
                scope=old.scope,
                created_at=engine.clock.now(),
                idempotency_key=key,
                origin=RunOrigin(record.execution_id, record.head, "retry"),
            )
            start_request = Request(
                old.path,
                old.version,
                asked.get("workload") or {},
                old.scope.label,
                files=asked.get("files") or {},
                original_run_id=old.run_id,
                origin={
                    "execution_id": str(record.execution_id),
                    "seq": record.head,
                    "how": "retry",
                    "events": 0,
                },
                priority=asked.get("priority"),
                file=asked.get("file", ""),
            )
            try:
                started = await engine.start(program, new, start_request, {"retry": key})
                engine.starts.forget(new, start_request.workload)
                return "", str(started)
            except Conflict:  # a concurrent request with the same signal was faster
                existing = await engine.store.by_idempotency_key(old.scope, key)
                if existing is None:
                    raise
        return "", str(existing.execution_id)

    async def results(self, execution_id: str, *, after: int = 0, limit: int = 1000) -> builtins.list[StoredResult]:
        record = await self._record(ids.parse_id(execution_id, "execution id"))
        return await self._stored.listed(record, after, limit)

    async def result(self, ref: str) -> StoredResult:
        await self._check_ref(ref)
        return await self._stored.described(ref)

    async def content(self, ref: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        await self._check_ref(ref)
        async for chunk in self._stored.content(ref, start, end):
            yield chunk

    async def _check_ref(self, ref: str) -> None:
        """Check that a result belongs to the caller's scope, which is that of its run. Its tenant is recorded; the rest
        is checked for callers bound to a project or environment.
        """
        if self._caller is not None and self._caller.is_bound:
            await self._record(parse_ref(ref).execution_id)

    async def collect(self, *, dry_run: bool = False) -> Collected:
        if self._caller is not None:
            may_act_for_the_tenant(self._caller)
        from arclog.engine.duties.garbage_collection import Collection  # only this request needs it

        return await Collection(self._engine, self._results, self._boundary).collect(dry_run=dry_run)

    async def source(self, execution_id: str) -> str:
        return await self._source(await self._record(ids.parse_id(execution_id, "execution id")))

    async def _source(self, record: ExecutionRecord) -> str:
        new = record.new
        # Not by the plan's hash: another tenant may have written the same plan in another text.
        plan = await self._engine.store.registered(new.path, new.version, tenant=new.scope.tenant)
        return "" if plan is None else plan.source

    async def graph(self, execution_id: str, form: str = "json") -> Any:
        from arclog.plan import draw

        record = await self._record(ids.parse_id(execution_id, "execution id"))
        drawn = {"json": draw.as_json, "mermaid": draw.as_mermaid, "text": draw.as_text}.get(form)
        if drawn is None:
            raise RequestRejected(f"a graph is drawn as json, mermaid or text, not as {form!r}")
        return drawn((await self._engine.live.program(record.new.plan)).plan)

    async def register(self, request: RegisterRequest) -> CatalogVersion:
        await self._check_kinds(request.playbook, request.file, request.files)
        return await self._catalog.register(request)

    async def catalog(
        self, *, prefix: str = "", after: str = "", limit: int = 100, archived: bool = False
    ) -> builtins.list[CatalogEntry]:
        return await self._catalog.listed(prefix, after, limit, archived=archived)

    async def versions(self, path: str, *, before: int = 0, limit: int = 100) -> builtins.list[CatalogVersion]:
        return await self._catalog.versions(path, before, limit)

    async def registered(self, path: str, version: int = 0) -> CatalogVersion:
        return await self._catalog.registered(path, version)

    async def difference(self, path: str, older: int, newer: int = 0, other: str = "") -> CatalogDiff:
        return await self._catalog.difference(path, older, newer, other)

    async def archive(self, path: str, *, archived: bool = True) -> CatalogEntry:
        return await self._catalog.archive(path, archived=archived)

    @property
    def _caller(self) -> Principal | None:
        """Return the principal of the caller; None for the owner of the store."""
        return self._boundary.principal

    async def _record(self, execution_id: int) -> ExecutionRecord:
        record = await self._engine.store.execution(execution_id)
        if record is None or not self._boundary.sees(record.new.scope):
            raise NotFound(f"there is no execution {execution_id}; `arclog list` shows all runs")
        return record


def _moment(text: str, name: str, default: int) -> int:
    if not text:
        return default
    try:
        return max(0, ids.micros(text))
    except (ValueError, OverflowError):
        raise RequestRejected(
            f"{name} {text[:60]!r} is not a time with a time zone; write it as 2026-01-31T12:00:00Z"
        ) from None


def _first_id(since: str) -> int:
    try:
        return ids.first_since(ids.micros(since))
    except (ValueError, OverflowError):
        raise RequestRejected(f"since: {since[:40]!r} is not a time; write it as 2026-01-31T12:00:00Z") from None


def _time(micros: int | None) -> str | None:
    return None if micros is None else ids.timestamp(micros)


def _terminal(record: ExecutionRecord) -> str | None:
    now = record.now
    return None if now.terminal_event is None else _LIFECYCLE_TERMINAL[now.terminal_event, now.state]
