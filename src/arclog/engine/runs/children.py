"""Runs that call runs: a child is brought into the state that its parent's log requires: started, paused, resumed or
cancelled.

Invariant: a child's execution id is in its parent's log before the child exists, so starting it twice has the same
effect as once. `_attend` compares the two logs and does what is missing; it may be repeated. Commits trigger it at
once; `sweep` finds changes of other processes; `recover`, `check_orphans` and `engine.duties.recovery` find what a
crash left undone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from msgspec import Struct

from arclog.core.boundary.inputs import ChildEnded, ParentNotified, Request, Signal, TakeSlot
from arclog.core.boundary.signals import MAX_ID
from arclog.core.flow.loops import encoded_size
from arclog.core.transitions.state import Pause, State, Wait
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import new_uuid
from arclog.engine.commits.live_states import Live
from arclog.engine.duties.duty import Has, always
from arclog.engine.runs.inputs import fitted_or_problem
from arclog.engine.views.account import root_error
from arclog.model import ids, status
from arclog.model.data.digest import sha256
from arclog.model.errors import ArclogError, Conflict, NewerLog, NotFound
from arclog.model.events import Event
from arclog.model.outcome import Outcome, TaskError, error, failed
from arclog.playbook.files import beside
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.outbox import PENDING
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, NewExecution

log = logging.getLogger("arclog.engine")

_LIVE = (status.PENDING, status.RUNNING)
_PAGE = 100
#: Number of open calls that one sweep checks; the next sweep continues with the others.
_SWEPT = 200
#: Interval of the search for children that a crash left without a waiting parent.
_ORPHANS_S = 60.0
#: Maximum number of children remembered as wanted by their parents, so that their logs are read once.
_WANTED = 100_000


class Call(Struct, frozen=True):
    """A wait for a child, as recorded in its parent's log."""

    parent: int
    key: str
    child: int


class Children:
    """One per engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: calls that are open as far as this process knows, by child
        self._calls: dict[int, Call] = {}
        #: children that have not started yet, including detached ones, because they wait for an approval or a
        #: concurrency slot; each with its tenant and path
        self._pending: dict[int, tuple[str, str]] = {}
        #: queues of slots whose children are being started; True if they have to be checked again
        self._filling: dict[tuple[str, str] | None, bool] = {}
        #: heads of parent and child when a call was last processed
        self._seen: dict[int, tuple[int, int]] = {}
        #: by child, the parent's head at which the parent waited for it
        self._wanted: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._orphans_at = 0.0
        engine.hints.on_committed.append(self._on_committed)
        engine.hints.on_slot_freed.append(self._on_slot_freed)

    # -- effects of commits --------------------------------------------------------------------------------------------

    def _on_committed(self, state: State, events: Sequence[Event]) -> None:
        me = state.execution_id
        if state.waits or self._calls:
            touched = list(self._touched(state, events))
            self._calls.update((call.child, call) for call in touched)
            if touched:
                self._later(self._attend_all(touched))
        if state.parent is not None and not state.processed:
            call = Call(int(state.parent["execution_id"]), state.parent["wait"], me)
            late_start = events and events[0].type != "playbook.execution.requested"
            if state.terminal is not None:
                self._later(self.notify_parent(me))
            elif late_start and any(event.type == "playbook.started" for event in events):
                # Its parent may have been paused while it waited for an approval or a slot.
                self._later(self._attend(call))
            elif late_start and state.pending_for == "slot":
                self._later(self._take_slot(me))
        if state.terminal is not None and state.status != status.COMPLETED:
            self._later(self._cancel_children(state))

    def _touched(self, state: State, events: Sequence[Event]) -> Iterable[Call]:
        """Return the calls of a run that its events began, paused, resumed or ended."""
        begun, everything, ends = False, False, state.terminal is not None
        for event in events:
            match event.type:
                case "command.completed":
                    begun = begun or "child" in event.payload
                case "signal.received":
                    everything = everything or event.payload["signal"] in ("PAUSE", "RESUME")
                case "step.done" | "step.failed":
                    ends = True
            ends = ends or event.payload.get("source") == "server"
        if begun or everything:
            for wait in state.waits.values():
                if wait.child and (everything or wait.child not in self._calls):
                    yield Call(state.execution_id, wait.key, wait.child)
        if ends:
            for call in [call for call in self._calls.values() if call.parent == state.execution_id]:
                if not _wants(state, call):
                    yield call

    def _on_slot_freed(self, queue: tuple[str, str] | None) -> None:
        """Check whether a waiting child can use a free slot."""
        if queue in self._filling:
            self._filling[queue] = True
        elif self._pending:
            self._filling[queue] = True
            self._later(self._fill(queue))

    async def _fill(self, queue: tuple[str, str] | None) -> None:
        """Start the children that wait for slots of a queue, or of any, oldest first, until all its slots are held."""
        try:
            while self._filling[queue]:
                self._filling[queue] = False
                await self._start_pending(queue)
        finally:
            del self._filling[queue]

    async def _start_pending(self, queue: tuple[str, str] | None) -> None:
        full: set[tuple[str, str]] = set()
        for child, own in sorted(self._pending.items()):
            if own in full or queue not in (None, own):
                continue
            call = self._calls.get(child)
            await (self._take_slot(child) if call is None else self._attend(call))
            kept = self._engine.live.kept(child)
            if child in self._pending and kept is not None and kept.state.pending_for == "slot":
                full.add(own)

    # -- one call -------------------------------------------------------------------------------------------------------

    async def _attend_all(self, calls: Sequence[Call], *, thorough: bool = True) -> None:
        """Process several calls. A call that fails is left to the next sweep; the others are processed."""
        parents: dict[int, Live] = {}
        for call in calls:
            try:
                if call.parent not in parents:
                    parents[call.parent] = await self._engine.live.folded(call.parent)
                await self._attend(call, parents[call.parent], thorough=thorough)
            except (Conflict, NewerLog) as problem:
                self._seen.pop(call.child, None)
                log.info("child %s: %s; retrying later", call.child, problem)

    async def _attend(self, call: Call, parent: Live | None = None, *, thorough: bool = True) -> None:
        """Bring the child into the state that its parent's log requires, and notify the parent if it has ended. A given
        `parent` may be slightly stale: it is read again before an irreversible action.
        """
        live, store = self._engine.live, self._engine.store
        record = await store.execution(call.child)
        if parent is None or record is None or not _wants(parent.state, call):
            parent = await live.folded(call.parent)
        wait = parent.state.waits.get(call.key)
        if wait is None or wait.child != call.child:
            await self._end_call(call, record, parent.state)
            return
        pause = parent.state.pause
        if record is None:
            if pause is not None:
                return  # nothing new begins; RESUME processes it again
            problem = await start_child(self._engine, parent.state, parent.record, wait)
            if problem is not None:
                await self._put(call.parent, ChildEnded(call.key, call.child, failed(problem).as_record()))
                return
            record = await store.execution(call.child)
            pause = await self._pause_since(call.parent)
            thorough = False
        if record is None:
            return
        if wait.config.get("wait") is False:
            await self._detach(call, record)
        elif record.now.terminal_event is not None:
            await self.notify_parent(call.child)
        else:
            await self._align(call, record, pause, thorough=thorough)

    async def _align(self, call: Call, record: ExecutionRecord, pause: Pause | None, *, thorough: bool) -> None:
        """Pause and resume a child with its parent, and give it a free concurrency slot. Unless `thorough`, a draining
        child is skipped; it is found once it is paused.
        """
        engine = self._engine
        if record.now.state == status.PENDING:
            if pause is None:
                await self._take_slot(call.child)
        elif pause is not None:
            if not record.now.paused:
                inherited = _inherited(call.parent, pause.signal_id)
                await engine.put(call.child, Signal("PAUSE", inherited, pause.reason, pause.by))
        elif thorough or record.now.paused:
            own = (await engine.live.folded(call.child)).state.pause
            if own is None or not own.signal_id.startswith(_inherited(call.parent, "")):
                return
            if (await engine.live.folded(call.parent)).state.pause is None:
                await engine.put(call.child, Signal("RESUME", _inherited(call.child, own.signal_id)))

    async def _take_slot(self, child: int) -> None:
        """Start a child that waits for a concurrency slot. If it cannot start yet, it is tried again when runs end."""
        await self._engine.put(child, TakeSlot())
        record = await self._engine.store.execution(child)
        if record is not None and record.now.state == status.PENDING:
            self._pending[child] = (record.new.scope.tenant, record.new.path)
        else:
            self._pending.pop(child, None)

    async def _pause_since(self, execution_id: int) -> Pause | None:
        """Return the pause of a run that occurred while its child was started. The cached state is used first; signals
        through another process are found by the next sweep.
        """
        kept = self._engine.live.kept(execution_id)
        if kept is not None and kept.state.pause is None:
            return None
        return (await self._engine.live.folded(execution_id)).state.pause

    async def _detach(self, call: Call, record: ExecutionRecord) -> None:
        """Complete the call: the parent does not wait for the child's end, so the start is the outcome."""
        number = str(call.child)
        helper = {"child": {"execution_id": number, "state": record.now.state}}
        outcome = Outcome(result={"execution_id": number}, helper=helper)
        await self._put(call.parent, ChildEnded(call.key, call.child, outcome.as_record()))
        self._forget(call.child)
        if record.now.state == status.PENDING:
            await self._take_slot(call.child)

    async def _end_call(self, call: Call, record: ExecutionRecord | None, parent: State) -> None:
        """Handle the end of a call. A child that is still running is cancelled, unless the call did not wait for it."""
        self._calls.pop(call.child, None)
        self._seen.pop(call.child, None)
        if record is None or await self._detached(call.child):
            return
        self._pending.pop(call.child, None)
        if record.now.terminal_event is not None:
            await self.notify_parent(call.child)
            return
        signal, reason = "CANCEL", "its parent no longer waits for it"
        if parent.status == status.CANCELLED:
            cause = parent.error or {}
            signal = "EMERGENCY_STOP" if cause.get("code") == "EMERGENCY_STOP" else "CANCEL"
            reason = f"its parent was cancelled: {cause.get('message', '')}"
        by = f"run {call.parent}"
        await self._engine.put(call.child, Signal(signal, _inherited(call.parent, signal), reason, by))

    def _forget(self, child: int) -> None:
        self._calls.pop(child, None)
        self._seen.pop(child, None)
        self._pending.pop(child, None)

    async def _put(self, parent: int, ended: ChildEnded) -> None:
        """Notify a parent. A refusal counts only if the parent's log confirms it, since another process may have
        written to it.
        """
        live = self._engine.live
        answer = await self._engine.put(parent, ended)
        if answer.refused is not None:
            wait = (await live.folded(parent)).state.waits.get(ended.key)
            if wait is not None and wait.child == ended.child:
                live.drop(parent)
                await self._engine.put(parent, ended)

    async def notify_parent(self, child: int) -> None:
        """Pass the result of an ended child to its parent, then record that this is done."""
        engine = self._engine
        live = await engine.live.get(child)
        if live.state.terminal is None:
            engine.live.drop(child)
            live = await engine.live.get(child)
        state = live.state
        caller = state.parent
        if caller is None or state.terminal is None or state.processed:
            return
        if not caller.get("detached"):
            try:
                await self._put(int(caller["execution_id"]), ChildEnded(caller["wait"], child, record_of(state)))
            except NotFound:
                log.warning("run %s: its parent %s is not in the store", child, caller["execution_id"])
        self._forget(child)
        if live.program.plan.webhooks and any(
            delivery.state == PENDING for delivery in await engine.store.deliveries(child)
        ):
            return  # the outbox records the rest when its webhooks are delivered
        await engine.put(child, ParentNotified())

    async def _cancel_children(self, parent: State) -> None:
        """Cancel the children of a run, including those that another process started."""
        which = ExecutionFilter(states=_LIVE, parent=parent.execution_id)
        for record in await self._engine.store.executions(which, limit=10_000):
            await self._end_call(Call(parent.execution_id, "", record.execution_id), record, parent)

    async def _detached(self, child: int) -> bool:
        caller = (await self._engine.live.get(child)).state.parent
        return caller is None or bool(caller.get("detached"))

    # -- after a crash -------------------------------------------------------------------------------------------------

    async def recover(self, execution_id: int) -> None:
        """Process the calls of a run and of its descendants, as recorded in its log."""
        live = await self._engine.live.folded(execution_id)
        for wait in list(live.state.waits.values()):
            if wait.child:
                call = self._calls[wait.child] = Call(execution_id, wait.key, wait.child)
                await self._attend(call)
        for record in await self._engine.store.executions(ExecutionFilter(parent=execution_id), limit=10_000):
            if record.now.terminal_event is not None:
                await self.notify_parent(record.execution_id)
            elif record.now.state == status.PENDING and await self._detached(record.execution_id):
                await self._take_slot(record.execution_id)
            # Also below ended runs, whose signals may not have been recorded.
            await self.recover(record.execution_id)

    async def look_after(self, execution_id: int) -> None:
        """Process the open calls of a run."""
        live = await self._engine.live.folded(execution_id)
        calls = [Call(execution_id, wait.key, wait.child) for wait in live.state.waits.values() if wait.child]
        for call in calls:
            await self._attend(call)

    async def cancel_below(self, execution_id: int) -> None:
        """Cancel the remaining descendants of a run that failed or was cancelled."""
        await self._cancel_children((await self._engine.live.folded(execution_id)).state)

    async def sweep(self) -> None:
        """Repeat what failed, and follow changes of other processes to the runs of calls that are open here."""
        changed: list[Call] = []
        for call in list(self._calls.values())[:_SWEPT]:
            self._calls[call.child] = self._calls.pop(call.child)  # after the others
            if await self._has_news(call):
                changed.append(call)
        try:
            await self._attend_all(changed, thorough=False)
        except ArclogError:
            for call in changed:
                self._seen.pop(call.child, None)
            raise
        await self._start_pending(None)

    async def _has_news(self, call: Call) -> bool:
        store = self._engine.store
        records = await store.execution(call.parent), await store.execution(call.child)
        heads = (records[0].head if records[0] else 0, records[1].head if records[1] else 0)
        previous = self._seen.get(call.child)
        self._seen[call.child] = heads
        return previous != heads

    async def check_orphans(self, has: Has = always) -> None:
        """Cancel children whose parents stopped waiting unobserved. Does so at intervals, if this process has
        the duty.
        """
        if self._engine.clock.monotonic() < self._orphans_at or not await has():
            return
        self._orphans_at = self._engine.clock.monotonic() + _ORPHANS_S
        before = 0
        while True:
            which = ExecutionFilter(states=_LIVE, children=True)
            page = await self._engine.store.executions(which, before=before, limit=_PAGE)
            for record in page:
                if record.execution_id not in self._calls and await has():
                    await self._check_wanted(record)
            if len(page) < _PAGE:
                return
            before = page[-1].execution_id

    async def _check_wanted(self, record: ExecutionRecord) -> None:
        """Check whether the parent still waits for a child. A parent whose log has not grown since then still does."""
        parent = await self._engine.store.execution(record.new.parent_execution_id)
        head = 0 if parent is None else parent.head
        if head and self._wanted.get(record.execution_id) == head:
            return
        try:
            await self._check_orphan(record)
        except (Conflict, NewerLog) as problem:
            log.info("child %s: %s; retrying later", record.execution_id, problem)
            return
        self._wanted[record.execution_id] = head
        if len(self._wanted) > _WANTED:
            del self._wanted[next(iter(self._wanted))]

    async def _check_orphan(self, record: ExecutionRecord) -> None:
        """Cancel a child that was not called from here, if no parent waits for it."""
        call = Call(record.new.parent_execution_id, "", record.execution_id)
        try:
            parent = (await self._engine.live.folded(call.parent)).state
        except NotFound:
            parent = State(execution_id=call.parent)
        if all(wait.child != call.child for wait in parent.waits.values()):
            await self._end_call(call, record, parent)

    # -- background ----------------------------------------------------------------------------------------------------

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            if not isinstance(problem, ArclogError):
                log.error("children: %s", problem, exc_info=problem)
            else:
                log.warning("children: %s; retrying later", problem)

    async def settle(self, timeout_s: float) -> None:
        """Finish the consequences of commits so far. Those that do not end in time are left to a later process."""
        while self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            if late:
                await self.close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _wants(parent: State, call: Call) -> bool:
    wait = parent.waits.get(call.key)
    return wait is not None and wait.child == call.child


def _inherited(parent: int, signal_id: str) -> str:
    """Return the id of the signal that a child gets because of one that its parent got: always the same."""
    made = f"run {parent}: {signal_id}"
    return made if len(made) <= MAX_ID else f"run {parent}: {sha256(signal_id.encode())}"


# Calls of one run by another: creating the child, and the outcome of the calling task when it ends.
#
# Invariant: both are functions of the parent's log (and the child's): repeated, they give the same child and outcome.


async def start_child(engine: Engine, parent: State, record: ExecutionRecord, wait: Wait) -> TaskError | None:
    """Create the child. Return the problem if it cannot be created."""
    config = wait.config
    cap = engine.settings.integer("limits.max_child_depth")
    if parent.depth >= cap:
        message = f"runs may call runs {cap} deep (limits.max_child_depth); does the playbook call itself for ever?"
        return error("limit", message, code="MAX_CHILD_DEPTH")
    plan = await _plan(engine, parent, record, config)
    if plan is None:
        playbook = config.get("path") or config.get("file")
        version = f" in version {config['version']}" if config.get("version") else ""
        remedy = "run that playbook once, or call it by `file:`" if "path" in config else "start the run with its files"
        return error("child", f"no playbook is registered as {playbook!r}{version}; {remedy}", code="NOT_FOUND")
    workload = config.get("args") or {}
    program = await engine.live.program(plan.digest)
    workload, refusal = fitted_or_problem(program.plan, workload)
    size, most = encoded_size({"workload": workload}), program.plan.limits.max_payload_bytes
    if size > most:
        message = f"the child's workload takes {size} bytes; an event holds {most} (limits.max_payload_bytes)"
        return error("limit", message, code="MAX_PAYLOAD_BYTES")
    scope = record.new.scope
    new = NewExecution(
        run_id=new_uuid(),
        name=program.plan.name,
        path=plan.path,
        version=plan.version,
        plan=plan.digest,
        scope=scope,
        created_at=engine.clock.now(),
        idempotency_key=f"child:{parent.execution_id}:{wait.key}:{wait.child}",
        parent_execution_id=parent.execution_id,
    )
    caller: dict[str, Any] = {
        "execution_id": str(parent.execution_id),
        "step_run_id": ids.step_run_id(wait.step, wait.run),
        "task_run_id": ids.task_run_id(wait.task, wait.task_run),
        "wait": wait.key,
    }
    if wait.iteration is not None:
        caller["iteration_id"] = ids.iteration_id(wait.step, wait.run, wait.iteration)
    if config.get("wait") is False:
        caller["detached"] = True
    request = Request(
        plan.path,
        plan.version,
        workload,
        parent.scope,
        problem=refusal,
        parent=caller,
        depth=parent.depth + 1,
        files=parent.files,
        priority=parent.priority,
        file=beside(parent.file, str(config["file"])) if "file" in config else "",
    )
    try:
        await engine.start(program, new, request, execution_id=wait.child)
    except Conflict:
        log.info("child %s of %s was already started", wait.child, parent.execution_id)
    return None


async def _plan(engine: Engine, parent: State, record: ExecutionRecord, config: dict[str, Any]) -> PlanRecord | None:
    path, version = config.get("path", ""), int(config.get("version") or 0)
    if "file" in config:
        path, version = parent.files.get(record.new.plan, {}).get(config["file"], ("", 0))
    return await engine.store.registered(path, version, **record.new.scope.parts)


def record_of(child: State) -> dict[str, Any]:
    """Return the outcome of the task that called an ended run."""
    if child.status == status.COMPLETED:
        record = Outcome(result=child.result, helper=_helper(child)).as_record()
        return record if child.result_ref is None else {**record, "result_ref": child.result_ref}
    cause = child.error or {}
    ended = "was cancelled" if child.status == status.CANCELLED else "failed"
    where = f" in step {cause['step']}" if "step" in cause else ""
    message = f"run {child.execution_id} {ended}{where}: {cause.get('kind', '')}: {cause.get('message', '')}"
    if cause.get("kind") == "child":
        message = cause["message"]  # names the run in which the failure happened
    problem = error("child", message, code=cause.get("code"), retryable=bool(cause.get("retryable")))
    record = {**failed(problem, **_helper(child)).as_record(), "result": {"error": cause}}
    root = root_error(child)
    return record if root is None else {**record, "error": {**problem.as_dict(), "cause": root}}


def _helper(child: State) -> dict[str, dict[str, Any]]:
    return {"child": {"execution_id": str(child.execution_id), "state": child.status}}
