"""`ports.store` in plain Python, for tests and simulation: the same rules and the same derived rows, no thread, no disk.

Nothing here awaits, so every call is atomic. Bodies are kept encoded: what a reader gets is never what a writer holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from arclog.model.errors import Conflict, InvariantBroken, StoreUnavailable
from arclog.model.events import REGISTRY
from arclog.model.ids import MAX_NODE
from arclog.model.retention import SCOPES
from arclog.model.settings import Settings
from arclog.ports.clock import Clock
from arclog.ports.store import (
    ANY_LINE,
    Append,
    Appended,
    CommandRecord,
    ExecutionFilter,
    ExecutionRecord,
    LogBatch,
    LogFilter,
    LogLine,
    Mark,
    NewCommand,
    NewExecution,
    NoSlot,
    PlanRecord,
    ResultRecord,
    Scope,
    StepRunRecord,
    StoredEvent,
    TerminalExists,
    Timer,
)
from arclog.stores.memory_logs import MemoryLogs
from arclog.stores.rows import Codec, Derived, NewResult, Row, StepChange, bits_of, decode

_PAYLOAD = msgspec.json.Decoder(dict[str, Any])
_NO_GRANT = (0, 0, 0)


class _LogRow(Struct, frozen=True):
    position: int
    execution_id: int
    ts: int
    row: Row


class _StepRun(Struct):
    record: StepRunRecord
    #: once ended: the last event that names it
    until: int | None = None


class _Execution(Struct):
    record: ExecutionRecord
    #: has its terminal event
    over: bool = False
    rows: list[_LogRow] = []
    steps: dict[tuple[str, int], _StepRun] = {}
    commands: dict[int, CommandRecord] = {}
    timers: dict[str, tuple[int, bytes]] = {}


class MemoryStore:
    """The store of tests. Its content lives as long as the object: close() and open() again is a restart."""

    def __init__(self, *, clock: Clock, settings: Settings | None = None) -> None:
        self._clock = clock
        self._codec = Codec(settings or Settings())
        self._is_open = False
        self._log: list[_LogRow] = []
        self._executions: dict[int, _Execution] = {}
        self._keys: dict[tuple[Scope, str], int] = {}
        #: command id → execution id, and the report that a command was granted to
        self._owners: dict[int, int] = {}
        self._grants: dict[int, tuple[int, int, int]] = {}
        self._marks: list[Mark] = []
        self._plans: dict[tuple[str, str], PlanRecord] = {}
        self._snapshots: dict[int, tuple[int, str, bytes]] = {}
        self._logs = MemoryLogs()
        self._nodes: dict[int, tuple[str, int]] = {}
        self._results: dict[tuple[int, str, str], ResultRecord] = {}

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreUnavailable("the memory store is not open: call open() first, and nothing after close()")

    # -- the log ------------------------------------------------------------------------------------------------------

    async def append(self, append: Append) -> Appended:
        self._check_open()
        derived = self._codec.derive(append)
        self._refuse(append, derived)
        at = self._clock.now()
        execution = self._advance(append, derived)
        for row in derived.rows:
            kept = _LogRow(len(self._log) + 1, append.execution_id, at, row)
            self._log.append(kept)
            execution.rows.append(kept)
        names = {row.bit: name for name, row in REGISTRY.items()}
        self._marks += [Mark(names[bit], at, append.execution_id, seq) for bit, seq in derived.marks]
        for change in derived.steps:
            _change_step(execution, change)
        for result in derived.results:
            key = (append.execution_id, result.name, result.ref.meta.sha256)
            self._results[key] = _result(execution.record, result, at, self._results.get(key))
        self._change_work(execution, append, derived)
        return Appended(append.expected + 1, derived.last_seq, at)

    def _refuse(self, append: Append, derived: Derived) -> None:
        """Raise when the compare-and-set fails; nothing has changed yet."""
        execution = self._executions.get(append.execution_id)
        if execution is not None and execution.over and derived.terminal:
            raise TerminalExists(f"execution {append.execution_id} has its terminal event already")
        if append.new is not None:
            key = append.new.idempotency_key
            if execution is not None:
                raise Conflict(f"execution {append.execution_id} exists already")
            if key and (append.new.scope, key) in self._keys:
                raise Conflict(f"an execution with the idempotency key {key!r} exists in its scope already")
        elif execution is None:
            raise Conflict(f"execution {append.execution_id} does not exist in this store")
        elif execution.record.head != append.expected:
            head = execution.record.head
            raise Conflict(
                f"execution {append.execution_id} is at seq {head}, not {append.expected}: reload and decide again"
            )
        ids = [command.command_id for command in append.issue]
        if not derived.terminal and (len(set(ids)) < len(ids) or any(self._holds(append, each) for each in ids)):
            raise InvariantBroken(f"append to execution {append.execution_id} issues a command id that is in use")
        for command_id, fence in append.hold:
            held = execution.commands.get(command_id) if execution is not None else None
            if held is None or held.fence != fence:
                raise Conflict(f"command {command_id} no longer has fence {fence}: reload and decide again")
        if append.slots and execution is not None:
            self._check_slots(append, execution.record.new)

    def _check_slots(self, append: Append, new: NewExecution) -> None:
        holders = [
            execution_id
            for execution_id, other in sorted(self._executions.items())
            if execution_id != append.execution_id
            and not other.over
            and other.record.now.state == "RUNNING"
            and (other.record.new.path, other.record.new.scope.tenant) == (new.path, new.scope.tenant)
        ]
        if len(holders) >= append.slots:
            raise NoSlot(holders)

    def _holds(self, append: Append, command_id: int) -> bool:
        return self._owners.get(command_id) == append.execution_id and command_id not in append.close

    def _advance(self, append: Append, derived: Derived) -> _Execution:
        if append.new is not None:
            record = ExecutionRecord(append.execution_id, derived.last_seq, append.new, append.now)
            execution = self._executions[append.execution_id] = _Execution(record)
            if append.new.idempotency_key:
                self._keys[append.new.scope, append.new.idempotency_key] = append.execution_id
        else:
            execution = self._executions[append.execution_id]
            execution.record = replace(execution.record, head=derived.last_seq, now=append.now)
        execution.over = execution.over or derived.terminal
        return execution

    def _change_work(self, execution: _Execution, append: Append, derived: Derived) -> None:
        """Commands and timers."""
        for command_id, fence, lease_until in append.extend:
            held = execution.commands.get(command_id)
            if held is not None and held.fence == fence and held.state == "claimed":
                execution.commands[command_id] = replace(held, lease_until=lease_until)
        for command_id in append.close if not derived.terminal else tuple(execution.commands):
            if execution.commands.pop(command_id, None) is not None:
                self._owners.pop(command_id, None)
                self._grants.pop(command_id, None)
        for command_id in append.release:
            lost = execution.commands.get(command_id)
            if lost is not None:
                execution.commands[command_id] = replace(lost, state="issued", worker_id="", lease_until=0)
                self._grants.pop(command_id, None)
        for command_id, _ in () if derived.terminal else append.hold:
            execution.commands[command_id] = replace(
                execution.commands[command_id], state="held", worker_id="", lease_until=0
            )
            self._grants.pop(command_id, None)
        for command_id in append.unhold:
            waiting = execution.commands.get(command_id)
            if waiting is not None and waiting.state == "held":
                execution.commands[command_id] = replace(waiting, state="issued")
        for timer_id in append.clear_timers if not derived.terminal else tuple(execution.timers):
            execution.timers.pop(timer_id, None)
        if derived.terminal:
            return
        for command in append.issue:
            execution.commands[command.command_id] = _issued(append.execution_id, command)
            self._owners[command.command_id] = append.execution_id
            if command.grant is not None:
                self._grants[command.command_id] = command.grant.by
        for timer, payload in derived.timers:
            execution.timers[timer.timer_id] = (timer.due, payload)

    async def events(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> list[StoredEvent]:
        self._check_open()
        bits = bits_of(types) if types else -1
        wanted = frozenset(types)
        rows = (each for each in self._rows_from(execution_id, after + 1) if each.row.types & bits)
        return self._page(rows, limit, lambda it: it.seq > after and (not wanted or it.event.type in wanted))

    async def step_events(
        self, execution_id: int, step: str, run: int, *, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        self._check_open()
        execution = self._executions.get(execution_id)
        found = execution.steps.get((step, run)) if execution is not None else None
        if found is None:
            return []
        first = max(found.record.first_seq, after + 1)
        until = found.until
        rows = (each for each in self._rows_from(execution_id, first) if until is None or each.row.seq0 <= until)
        return self._page(rows, limit, lambda it: it.seq >= first and it.event.step == step and it.event.run == run)

    def _rows_from(self, execution_id: int, seq: int) -> list[_LogRow]:
        execution = self._executions.get(execution_id)
        if execution is None:
            return []
        return execution.rows[bisect_left(execution.rows, seq, key=lambda each: each.row.seq1) :]

    def _page(self, rows: Iterable[_LogRow], limit: int, wanted: Callable[[StoredEvent], bool]) -> list[StoredEvent]:
        page: list[StoredEvent] = []
        for each in rows:
            if len(page) >= limit:
                break
            page += filter(wanted, self._stored(each))
        return page[: max(limit, 0)]

    def _stored(self, each: _LogRow) -> list[StoredEvent]:
        return self._codec.stored(each.execution_id, each.row.seq0, each.row.base, each.ts, each.row.body)

    async def tail(self, *, after: int = 0, limit: int = 100) -> list[LogBatch]:
        self._check_open()
        start = max(after, 0)
        return [
            LogBatch(each.position, each.execution_id, self._stored(each)) for each in self._log[start : start + limit]
        ]

    async def marks(self, event_type: str, *, since: int = 0, limit: int = 1000) -> list[Mark]:
        self._check_open()
        found = [mark for mark in self._marks if mark.event_type == event_type and mark.persisted_at >= since]
        found.sort(key=lambda mark: (mark.persisted_at, mark.execution_id, mark.seq))
        return found[:limit]

    # -- executions ---------------------------------------------------------------------------------------------------

    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        self._check_open()
        found = self._executions.get(execution_id)
        return None if found is None else found.record

    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        self._check_open()
        found = [
            self._executions[execution_id].record
            for execution_id in sorted(self._executions, reverse=True)
            if (not before or execution_id < before) and _matches(self._executions[execution_id].record, which)
        ]
        return found[:limit]

    async def live(
        self, which: ExecutionFilter = ExecutionFilter(), *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        self._check_open()
        found = [
            execution.record
            for execution_id, execution in sorted(self._executions.items())
            if execution_id > after and not execution.over and _matches(execution.record, which)
        ]
        return found[:limit]

    async def step_runs(self, execution_id: int) -> list[StepRunRecord]:
        self._check_open()
        execution = self._executions.get(execution_id)
        found = [each.record for each in execution.steps.values()] if execution is not None else []
        return sorted(found, key=lambda record: (record.first_seq, record.step, record.run))

    async def by_idempotency_key(self, scope: Scope, key: str) -> ExecutionRecord | None:
        self._check_open()
        execution_id = self._keys.get((scope, key))
        return None if execution_id is None else self._executions[execution_id].record

    # -- plans --------------------------------------------------------------------------------------------------------

    async def register_plan(self, digest: str, path: str, body: bytes, source: str, at: int) -> PlanRecord:
        self._check_open()
        known = self._plans.get((digest, path))
        if known is None:
            version = 1 + max((each.version for each in self._plans.values() if each.path == path), default=0)
            known = self._plans[digest, path] = PlanRecord(digest, path, version, body, source, at)
        return known

    async def plan(self, digest: str) -> PlanRecord | None:
        self._check_open()
        return next((record for (name, _), record in self._plans.items() if name == digest), None)

    async def registered(self, path: str, version: int = 0) -> PlanRecord | None:
        self._check_open()
        found = [each for each in self._plans.values() if each.path == path and version in {0, each.version}]
        return max(found, key=lambda each: each.version, default=None)

    # -- commands -----------------------------------------------------------------------------------------------------

    async def claim(
        self,
        worker_id: str,
        *,
        limit: int,
        lease_until: int,
        kinds: Sequence[str],
        pools: Sequence[str] = ("default",),
        execution_id: int = 0,
    ) -> list[CommandRecord]:
        self._check_open()
        known = frozenset(kinds)
        family = self._family(execution_id)
        eligible = [
            command
            for command in self._all_commands()
            if command.state == "issued"
            and command.pool in pools
            and known.issuperset(command.kinds)
            and (not execution_id or command.execution_id in family)
        ]
        eligible.sort(key=lambda command: (command.command_id, command.execution_id))
        taken = [
            replace(command, state="claimed", fence=command.fence + 1, worker_id=worker_id, lease_until=lease_until)
            for command in eligible[: max(limit, 0)]
        ]
        for command in taken:
            self._executions[command.execution_id].commands[command.command_id] = command
            self._grants.pop(command.command_id, None)
        return taken

    def _family(self, execution_id: int) -> set[int]:
        """An execution and those below it."""
        family = {execution_id}
        for each in sorted(self._executions) if execution_id else ():  # a child's id is younger than its parent's
            if self._executions[each].record.new.parent_execution_id in family:
                family.add(each)
        return family

    def _all_commands(self) -> list[CommandRecord]:
        return [self._executions[owner].commands[command_id] for command_id, owner in sorted(self._owners.items())]

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
        self._check_open()
        lost = []
        for command_id, fence in held:
            owner = self._owners.get(command_id)
            command = None if owner is None else self._executions[owner].commands[command_id]
            if (
                command is None
                or command.state != "claimed"
                or (command.fence, command.worker_id) != (fence, worker_id)
            ):
                lost.append(command_id)
            else:
                self._executions[command.execution_id].commands[command_id] = replace(command, lease_until=lease_until)
        return lost

    async def expired(self, now: int, limit: int = 100) -> list[CommandRecord]:
        self._check_open()
        found = [each for each in self._all_commands() if each.state == "claimed" and each.lease_until < now]
        return sorted(found, key=lambda each: (each.lease_until, each.command_id))[:limit]

    async def commands(self, execution_id: int) -> list[CommandRecord]:
        self._check_open()
        execution = self._executions.get(execution_id)
        return (
            []
            if execution is None
            else [command for _, command in sorted(execution.commands.items(), key=itemgetter(0))]
        )

    async def granted(self, by: tuple[int, int, int]) -> list[CommandRecord]:
        self._check_open()
        return [
            each for each in self._all_commands() if self._grants.get(each.command_id, _NO_GRANT) == by != _NO_GRANT
        ]

    # -- timers -------------------------------------------------------------------------------------------------------

    async def due_timers(self, now: int, limit: int = 100) -> list[Timer]:
        self._check_open()
        due = sorted(each for each in self._all_timers() if each[0] <= now)
        return [Timer(owner, timer_id, at, decode(payload, _PAYLOAD)) for at, owner, timer_id, payload in due[:limit]]

    async def next_due(self) -> int | None:
        self._check_open()
        return min((each[0] for each in self._all_timers()), default=None)

    def _all_timers(self) -> Iterable[tuple[int, int, str, bytes]]:
        for execution_id, execution in self._executions.items():
            for timer_id, (due, payload) in execution.timers.items():
                yield due, execution_id, timer_id, payload

    # -- results stored outside the log -------------------------------------------------------------------------------

    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        self._check_open()
        return self._results.get((execution_id, name, sha256))

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        self._check_open()
        found = [each for each in self._results.values() if each.execution_id == execution_id and each.seq > after]
        return sorted(found, key=lambda each: each.seq)[:limit]

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        self._check_open()
        found = sorted(key for key, each in self._results.items() if key > after and each.removed_at is None)
        return [self._results[key] for key in found[:limit]]

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        self._check_open()
        kept = [each for each in self._results.values() if each.removed_at is None]
        found = [each for each in kept if (each.tenant, each.sha256) == (tenant, sha256)]
        found = [each for each in found if (each.execution_id, each.name) > after]
        return sorted(found, key=lambda each: (each.execution_id, each.name))[:limit]

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        self._check_open()
        count = 0
        for record in records:
            key = (record.execution_id, record.name, record.sha256)
            known = self._results.get(key)
            if known is not None and known.seq == record.seq and known.removed_at is None:
                self._results[key] = replace(known, removed_at=at)
                count += 1
        return count

    # -- caches and odds ----------------------------------------------------------------------------------------------

    async def put_snapshot(self, execution_id: int, seq: int, code: str, body: bytes) -> None:
        self._check_open()
        kept = self._snapshots.get(execution_id)
        if kept is None or seq >= kept[0] or code != kept[1]:
            self._snapshots[execution_id] = (seq, code, body)

    async def snapshot(self, execution_id: int, code: str) -> tuple[int, bytes] | None:
        self._check_open()
        kept = self._snapshots.get(execution_id)
        return None if kept is None or kept[1] != code else (kept[0], kept[2])

    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        self._check_open()
        self._logs.append(lines, max_bytes)

    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        self._check_open()
        return self._logs.read(execution_id, after, limit, where)

    async def lease_node(self, owner: str, now: int, until: int) -> int:
        self._check_open()
        node = next((number for number, (holder, _) in self._nodes.items() if holder == owner), None)
        if node is None:
            taken = {number for number, (_, end) in self._nodes.items() if end > now}
            node = next((number for number in range(MAX_NODE + 1) if number not in taken), None)
            if node is None:
                raise StoreUnavailable(f"all {MAX_NODE + 1} node numbers are leased; wait for a lease to end")
        self._nodes[node] = (owner, until)
        return node


def _issued(execution_id: int, command: NewCommand) -> CommandRecord:
    grant = command.grant
    state, fence, worker_id, lease_until = (
        ("held" if command.held else "issued", 0, "", 0)
        if grant is None
        else ("claimed", 1, grant.worker_id, grant.lease_until)
    )
    return CommandRecord(
        command.command_id,
        execution_id,
        command.step,
        command.run,
        command.kinds,
        command.pool,
        command.items,
        state,
        fence,
        worker_id,
        lease_until,
    )


def _result(record: ExecutionRecord, new: NewResult, at: int, known: ResultRecord | None) -> ResultRecord:
    """The record of stored content; of content known before, the longer of its lives."""
    meta = new.ref.meta
    scope, rows = new.scope, meta.rows
    expires_at = None if new.ttl is None else at + new.ttl
    if known is not None:
        rows = known.rows if rows is None else rows
        if known.removed_at is None:
            scope = max(scope, SCOPES.index(known.scope))
            expires_at = None if expires_at is None or known.expires_at is None else max(expires_at, known.expires_at)
    about = (record.execution_id, new.name, meta.sha256, meta.bytes, rows, meta.content_type)
    life = (record.new.scope.tenant, SCOPES[scope], at, expires_at)
    return ResultRecord(*about, *life, new.step, new.run, new.task, new.seq)


def _change_step(execution: _Execution, change: StepChange) -> None:
    key = (change.step, change.run)
    known = execution.steps.get(key)
    if change.opens:
        if known is None:
            record = StepRunRecord(change.step, change.run, change.first, change.closed or None, change.status)
            execution.steps[key] = _StepRun(record, change.last if change.closed else None)
    elif known is not None and known.record.last_seq is not None:
        known.until = change.last
    elif known is not None and change.closed:
        known.record = replace(known.record, last_seq=change.closed, status=change.status)
        known.until = change.last


def _matches(record: ExecutionRecord, which: ExecutionFilter) -> bool:
    return (
        (not which.states or record.now.state in which.states)
        and (not which.path or record.new.path == which.path)
        and (not which.tenant or record.new.scope.tenant == which.tenant)
        and (not which.parent or record.new.parent_execution_id == which.parent)
        and (not which.children or record.new.parent_execution_id != 0)
    )
