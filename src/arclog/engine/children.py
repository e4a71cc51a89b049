"""Runs that call runs: starts the children that committed waits ask for, tells parents what became of them, and cancels
children that nobody waits for any more.

Law: a child's execution id stands in its parent's log before the child is there, so starting it twice is one start. All
that is done here follows from committed facts and may be done again: `recover` and `sweep` find what a crash left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct

from arclog.core.inputs import Cancel, ChildEnded, ParentTold, Request, Signal
from arclog.core.loops import encoded_size
from arclog.core.state import State, Wait
from arclog.engine.engine import Engine
from arclog.engine.minter import new_run_id
from arclog.model import ids, status
from arclog.model.errors import ArclogError, Conflict, NotFound
from arclog.model.events import Event
from arclog.model.outcome import Outcome, TaskError, error, failed
from arclog.ports.store import ExecutionFilter, ExecutionRecord, NewExecution, PlanRecord

log = logging.getLogger("arclog.engine")

_LIVE = (status.PENDING, status.RUNNING)
_PAGE = 100
#: How often children that a crash left without a waiting parent are looked for.
_ORPHANS_S = 60.0


class Call(Struct, frozen=True):
    """A wait for a child, as the log of its parent has it."""

    parent: int
    key: str
    child: int
    step: str
    run: int
    #: its parent does not wait for its end
    detached: bool = False


def call_of(parent: int, wait: Wait) -> Call:
    return Call(parent, wait.key, wait.child, wait.step, wait.run, wait.config.get("wait") is False)


class Children:
    """One per engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: calls that are open as far as this process knows, by child
        self._calls: dict[int, Call] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._orphans_at = 0.0
        engine.hints.on_committed = self._on_committed

    # -- what commits lead to ------------------------------------------------------------------------------------------

    def _on_committed(self, state: State, events: Sequence[Event]) -> None:
        for event in events:
            if event.type == "command.completed" and "child" in event.payload:
                wait = state.waits.get(event.payload["wait"])
                if wait is not None and wait.child:
                    call = self._calls[wait.child] = call_of(state.execution_id, wait)
                    self._later(self._attend(call))
            elif (
                event.type == "signal.received" and event.payload["signal"] in ("PAUSE", "RESUME") and not event.status
            ):
                for wait in state.waits.values():
                    if wait.child:
                        self._later(self._pass_on(wait.child, event.payload))
        if self._calls:
            self._let_go(state, events)
        if state.terminal is None:
            return
        if state.parent is not None and not state.processed:
            self._later(self._tell_parent(state.execution_id))
        if state.status != status.COMPLETED:
            self._later(self._cancel_children(state.execution_id))

    def _let_go(self, state: State, events: Sequence[Event]) -> None:
        """Calls that are over, whoever ended them; a child that still runs is cancelled."""
        ended = {(event.step, event.run) for event in events if event.type in ("step.done", "step.failed")}
        told = {(event.step, event.run) for event in events if event.payload.get("source") == "server"}
        if state.terminal is None and not ended and not told:
            return
        for call in [call for call in self._calls.values() if call.parent == state.execution_id]:
            if (call.step, call.run) in ended | told or state.terminal is not None:
                wait = state.waits.get(call.key)
                if wait is None or wait.child != call.child:
                    del self._calls[call.child]
                    self._later(self._cancel(call.child))

    async def _pass_on(self, child: int, signal: dict[str, Any]) -> None:
        """Children pause and go on with their parent."""
        known = f"{signal['signal_id'][:150]}:{child}"
        try:
            await self._engine.put(
                child, Signal(signal["signal"], known, signal.get("reason", ""), signal.get("by", ""))
            )
        except NotFound:
            log.info("run %s was not started yet when its parent was told to %s", child, signal["signal"])

    # -- looking after one call ----------------------------------------------------------------------------------------

    async def _attend(self, call: Call) -> None:
        """Start the child if it is not there, and tell its parent if it is over. May be done any number of times."""
        record = await self._engine.store.execution(call.child)
        if record is None:
            live = await self._engine.live.folded(call.parent)
            wait = live.state.waits.get(call.key)
            if wait is None or wait.child != call.child:
                return
            problem = await self._start(live.state, live.record, wait)
            if problem is not None:
                await self._put(call.parent, ChildEnded(call.key, call.child, failed(problem).as_record()))
                return
            record = await self._engine.store.execution(call.child)
        if record is not None:
            await self._answer(call, record)

    async def _answer(self, call: Call, record: ExecutionRecord) -> None:
        if record.now.terminal_event is not None:
            await self._tell_parent(call.child)
        elif call.detached:
            number = str(call.child)
            helper = {"child": {"execution_id": number, "state": record.now.state}}
            told = Outcome(result={"execution_id": number}, helper=helper)
            await self._put(call.parent, ChildEnded(call.key, call.child, told.as_record()))

    async def _put(self, parent: int, ended: ChildEnded) -> None:
        """Tell a parent. A refusal counts only if its log says so too: another process may have written to it."""
        live = self._engine.live
        answer = await self._engine.put(parent, ended)
        if answer.refused is not None:
            wait = (await live.folded(parent)).state.waits.get(ended.key)
            if wait is not None and wait.child == ended.child:
                live.drop(parent)
                await self._engine.put(parent, ended)

    async def _start(self, parent: State, record: ExecutionRecord, wait: Wait) -> TaskError | None:
        """Create the child; what is wrong when it cannot be."""
        engine, config = self._engine, wait.config
        cap = engine.settings.integer("limits.max_child_depth")
        if parent.depth >= cap:
            message = f"runs may call runs {cap} deep (limits.max_child_depth); does the playbook call itself for ever?"
            return error("limit", message, code="MAX_CHILD_DEPTH")
        plan = await self._plan(parent, record, config)
        if plan is None:
            what = config.get("path") or config.get("file")
            version = f" in version {config['version']}" if config.get("version") else ""
            return error("child", f"no playbook is registered as {what!r}{version}", code="NOT_FOUND")
        workload = config.get("args") or {}
        program = await engine.live.program(plan.digest)
        size, most = encoded_size({"workload": workload}), program.plan.limits.max_payload_bytes
        if size > most:
            message = f"the child's workload takes {size} bytes; an event holds {most} (limits.max_payload_bytes)"
            return error("limit", message, code="MAX_PAYLOAD_BYTES")
        scope = record.new.scope
        new = NewExecution(
            run_id=new_run_id(),
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
            plan.path, plan.version, workload, parent.scope, parent=caller, depth=parent.depth + 1, files=parent.files
        )
        try:
            await engine.start(program, new, request, wait.child)
        except Conflict:
            log.info("child %s of %s was started before", wait.child, parent.execution_id)
        return None

    async def _plan(self, parent: State, record: ExecutionRecord, config: dict[str, Any]) -> PlanRecord | None:
        path, version = config.get("path", ""), int(config.get("version") or 0)
        if "file" in config:
            path, version = parent.files.get(record.new.plan, {}).get(config["file"], ("", 0))
        return await self._engine.store.registered(path, version)

    async def _tell_parent(self, child: int) -> None:
        """Hand the result of an ended child to its parent, then say that this is done."""
        engine = self._engine
        state = (await engine.live.get(child)).state
        if state.terminal is None:
            engine.live.drop(child)
            state = (await engine.live.get(child)).state
        caller = state.parent
        if caller is None or state.terminal is None or state.processed:
            return
        if not caller.get("detached"):
            try:
                await self._put(int(caller["execution_id"]), ChildEnded(caller["wait"], child, _record_of(state)))
            except NotFound:
                log.warning("run %s: its parent %s is not in the store", child, caller["execution_id"])
        self._calls.pop(child, None)
        await engine.put(child, ParentTold())

    async def _cancel(self, child: int) -> None:
        record = await self._engine.store.execution(child)
        if record is not None and record.now.terminal_event is None and not await self._detached(child):
            await self._engine.put(child, Cancel("its parent no longer waits for it"))

    async def _cancel_children(self, parent: int) -> None:
        """Also those that another process started."""
        which = ExecutionFilter(states=_LIVE, parent=parent)
        for record in await self._engine.store.executions(which, limit=10_000):
            await self._cancel(record.execution_id)

    async def _detached(self, child: int) -> bool:
        caller = (await self._engine.live.get(child)).state.parent
        return caller is None or bool(caller.get("detached"))

    # -- after a crash -------------------------------------------------------------------------------------------------

    async def recover(self, execution_id: int) -> None:
        """Look after the calls of a run and of those below it, as its log has them."""
        live = await self._engine.live.folded(execution_id)
        for wait in list(live.state.waits.values()):
            if wait.child:
                call = self._calls[wait.child] = call_of(execution_id, wait)
                await self._attend(call)
        for record in await self._engine.store.executions(ExecutionFilter(parent=execution_id), limit=10_000):
            if record.now.terminal_event is None:
                await self.recover(record.execution_id)
            else:
                await self._tell_parent(record.execution_id)

    async def sweep(self) -> None:
        """Do again what did not work; cancel children whose parents let them go while nobody looked."""
        for call in list(self._calls.values()):
            await self._attend(call)
        if self._engine.clock.monotonic() < self._orphans_at:
            return
        self._orphans_at = self._engine.clock.monotonic() + _ORPHANS_S
        before = 0
        while True:
            which = ExecutionFilter(states=_LIVE, children=True)
            page = await self._engine.store.executions(which, before=before, limit=_PAGE)
            for record in page:
                if record.execution_id not in self._calls and await self._is_orphan(record):
                    await self._cancel(record.execution_id)
            if len(page) < _PAGE:
                return
            before = page[-1].execution_id

    async def _is_orphan(self, record: ExecutionRecord) -> bool:
        parent = await self._engine.store.execution(record.new.parent_execution_id)
        if parent is None or parent.now.terminal_event is not None:
            return True
        state = (await self._engine.live.folded(parent.execution_id)).state
        return all(wait.child != record.execution_id for wait in state.waits.values())

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
                log.warning("children: %s; looking again later", problem)

    async def settle(self, timeout_s: float) -> None:
        """Finish what commits have led to so far; what does not end in time is left to a later process."""
        while self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            if late:
                await self.close()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _record_of(child: State) -> dict[str, Any]:
    """The outcome of the task that called a run which has ended."""
    if child.status == status.COMPLETED:
        record = Outcome(result=child.result, helper=_helper(child)).as_record()
        return record if child.result_ref is None else {**record, "result_ref": child.result_ref}
    cause = child.error or {}
    ended = "was cancelled" if child.status == status.CANCELLED else "failed"
    where = f" in step {cause['step']}" if "step" in cause else ""
    message = f"run {child.execution_id} {ended}{where}: {cause.get('kind', '')}: {cause.get('message', '')}"
    if cause.get("kind") == "child":
        message = cause["message"]  # names the run in which it really went wrong
    problem = error("child", message, code=cause.get("code"), retryable=bool(cause.get("retryable")))
    return {**failed(problem, **_helper(child)).as_record(), "result": {"error": cause}}


def _helper(child: State) -> dict[str, dict[str, Any]]:
    return {"child": {"execution_id": str(child.execution_id), "state": child.status}}
