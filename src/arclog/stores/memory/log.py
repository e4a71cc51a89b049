"""The log of events: appends and reads. The logs of tasks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import itemgetter

from msgspec.structs import replace

from arclog.model.errors import Conflict, InvariantBroken
from arclog.model.events import REGISTRY
from arclog.model.ids import node_of
from arclog.ports.storage.marks import Marks
from arclog.ports.storage.store import (
    Append,
    Appended,
    EventIdTaken,
    EventMatches,
    EventQuery,
    ExecutionRecord,
    Ingested,
    LogBatch,
    Mark,
    NewExecution,
    NoSlot,
    Scope,
    StepRunRecord,
    StoredEvent,
    TerminalExists,
)
from arclog.ports.storage.task_logs import ANY_LINE, LOG_CUT, PROGRESS, PROGRESS_KEPT, LogFilter, LogLine, log_size
from arclog.stores.memory.administration import Duties
from arclog.stores.memory.executions import Executions
from arclog.stores.memory.tables import Execution, LogRow, StepRun
from arclog.stores.memory.work import Work
from arclog.stores.rows import Derived, StepChange, bits_of
from arclog.stores.searching import Key, MarkRow, ScannedRow, search


class Log(Executions, Work, Duties):
    async def keep_marks(self, marks: Marks) -> None:
        self._codec.marks = marks

    async def append(self, append: Append) -> Appended:
        self._check_open()
        derived = self._codec.derive(append)
        self._refuse(append, derived)
        at = self._clock.now()
        execution = self._advance(append, derived)
        for row in derived.rows:
            kept = LogRow(len(self._log) + 1, append.execution_id, at, row)
            self._log.append(kept)
            execution.rows.append(kept)
        names = {row.bit: name for name, row in REGISTRY.items()}
        self._marks += [Mark(names[bit], at, append.execution_id, seq) for bit, seq in derived.marks]
        for change in derived.steps:
            _change_step(execution, change)
        for result in derived.results:
            self._keep_result(execution.record, result, at)
        execution.ingested.update((ingested.event_id, ingested) for ingested in derived.ingested)
        self._change_work(execution, append, derived)
        self._put_in_outbox(append.execution_id, append.deliveries, at)
        if derived.terminal:
            self._count(execution.record, at)
        return Appended(append.expected + 1, derived.last_seq, at, derived.decoded_bytes)

    async def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        answers: list[Appended | Exception] = []
        for new in appends:
            try:
                answers.append(await self.append(new))
            except Exception as problem:  # noqa: BLE001 - it is the answer of this one
                answers.append(problem)
        return answers

    def _refuse(self, append: Append, derived: Derived) -> None:
        """Raise if the compare-and-set fails. Nothing has changed yet."""
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
        for event in derived.ingested:
            if execution is not None and event.event_id in execution.ingested:
                raise EventIdTaken(f"execution {append.execution_id} has an event {event.event_id} already")
        ids = [command.command_id for command in append.issue]
        if not derived.terminal and (
            len(set(ids)) < len(ids) or any(self._holds(append, event_id) for event_id in ids)
        ):
            raise InvariantBroken(f"append to execution {append.execution_id} issues a command id that is in use")
        for command_id, fence in append.hold:
            held = execution.commands.get(command_id) if execution is not None else None
            if held is None or held.fence != fence:
                raise Conflict(f"command {command_id} no longer has fence {fence}: reload and decide again")
        new = append.new if execution is None else execution.record.new
        if append.slots and new is not None:
            self._check_slots(append, new)

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

    def _advance(self, append: Append, derived: Derived) -> Execution:
        if append.new is not None:
            record = ExecutionRecord(append.execution_id, derived.last_seq, append.new, append.now)
            execution = self._executions[append.execution_id] = Execution(record)
            if append.new.idempotency_key:
                self._keys[append.new.scope, append.new.idempotency_key] = append.execution_id
        else:
            execution = self._executions[append.execution_id]
            approvals = execution.record.now.approvals
            now = append.now if append.asks else replace(append.now, approvals=approvals)
            execution.record = replace(execution.record, head=derived.last_seq, now=now)
        execution.over = execution.over or derived.terminal
        return execution

    async def ingested(self, execution_id: int, event_ids: Sequence[int]) -> list[Ingested]:
        self._check_open()
        execution = self._executions.get(execution_id)
        recorded = {} if execution is None else execution.ingested
        ingested = {event_id: recorded[event_id] for event_id in event_ids if event_id in recorded}
        rows = [] if execution is None else [entry.row for entry in execution.rows]
        for event_id in event_ids:
            if node_of(event_id) in self._nodes:
                for row in rows:
                    if row.base <= event_id <= row.base + row.seq1 - row.seq0:
                        ingested.setdefault(event_id, Ingested(event_id, "", row.seq0 + event_id - row.base))
        return sorted(ingested.values(), key=lambda entry: entry.seq)

    async def events(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> list[StoredEvent]:
        self._check_open()
        bits = bits_of(types) if types else -1
        wanted = frozenset(types)
        rows = (row for row in self._rows_from(execution_id, after + 1) if row.row.types & bits)
        return self._page(rows, limit, lambda it: it.seq > after and (not wanted or it.event.type in wanted))

    async def step_events(
        self, execution_id: int, step: str, run: int, *, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        self._check_open()
        execution = self._executions.get(execution_id)
        step_run = execution.steps.get((step, run)) if execution is not None else None
        if step_run is None:
            return []
        first = max(step_run.record.first_seq, after + 1)
        until = step_run.until
        rows = (row for row in self._rows_from(execution_id, first) if until is None or row.row.seq0 <= until)
        return self._page(rows, limit, lambda it: it.seq >= first and it.event.step == step and it.event.run == run)

    def _rows_from(self, execution_id: int, seq: int) -> list[LogRow]:
        execution = self._executions.get(execution_id)
        if execution is None:
            return []
        return execution.rows[bisect_left(execution.rows, seq, key=lambda row: row.row.seq1) :]

    def _page(self, rows: Iterable[LogRow], limit: int, wanted: Callable[[StoredEvent], bool]) -> list[StoredEvent]:
        page: list[StoredEvent] = []
        for row in rows:
            if len(page) >= limit:
                break
            page += filter(wanted, self._stored(row))
        return page[: max(limit, 0)]

    def _stored(self, log_row: LogRow) -> list[StoredEvent]:
        return self._codec.stored(
            log_row.execution_id, log_row.row.seq0, log_row.row.base, log_row.ts, log_row.row.body
        )

    async def tail(self, *, after: int = 0, limit: int = 100) -> list[LogBatch]:
        self._check_open()
        rows = (row for row in self._log[max(after, 0) :] if row.execution_id in self._executions)
        return [LogBatch(row.position, row.execution_id, self._stored(row)) for row in islice(rows, limit)]

    async def marks(self, event_type: str, *, since: int = 0, limit: int = 1000) -> list[Mark]:
        self._check_open()
        marks = [mark for mark in self._marks if mark.event_type == event_type and mark.persisted_at >= since]
        marks.sort(key=lambda mark: (mark.persisted_at, mark.execution_id, mark.seq))
        return marks[:limit]

    # -- searching: see `stores.searching` ---------------------------------------------------------------------------

    async def search(self, query: EventQuery, *, cursor: str = "", limit: int = 100) -> EventMatches:
        self._check_open()
        return await search(self, query, cursor, limit, self._search_rows)

    async def mark_page(self, bit: int, after: Key, query: EventQuery, limit: int) -> list[MarkRow]:
        marks = [
            MarkRow(mark.persisted_at, mark.execution_id, mark.seq, self._is_within(mark.execution_id, query))
            for mark in self._marks
            if REGISTRY[mark.event_type].bit == bit and mark.persisted_at < query.until
        ]
        return sorted(mark for mark in marks if mark[:3] > after)[:limit]

    async def scanned_page(self, after: int, bits: int, query: EventQuery, limit: int) -> list[ScannedRow]:
        rows = islice((row for row in self._log[max(after, 0) :] if row.execution_id in self._executions), limit)
        return [
            ScannedRow(entry.position, entry.ts, self._stored(entry))
            if entry.row.types & bits and self._is_within(entry.execution_id, query)
            else ScannedRow(entry.position, entry.ts)
            for entry in rows
        ]

    async def position_before(self, ts: int) -> int:
        return next((row.position - 1 for row in self._log if row.ts >= ts), len(self._log))

    async def events_at(self, keys: Sequence[Key]) -> list[StoredEvent]:
        events: list[StoredEvent] = []
        for key in keys:
            row = self._rows_from(key.execution_id, key.seq)[0]
            events.append(self._stored(row)[key.seq - row.row.seq0])
        return events

    def _is_within(self, execution_id: int, query: EventQuery) -> bool:
        scope = Scope(query.tenant, query.project, query.environment)
        execution = self._executions.get(execution_id)
        return execution is not None and scope.covers(execution.record.new.scope)

    # -- logs of tasks ----------------------------------------------------------------------------------------------

    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        self._check_open()
        for line in lines:
            if line.stream == PROGRESS:
                self._put_progress(line)
            else:
                self._add_line(line, max_bytes)

    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        self._check_open()
        start = bisect_right(self._lines, after, key=itemgetter(0))
        own = (line for line in self._lines[start:] if line[1].execution_id == execution_id)
        return list(islice((line for line in own if _fits(line[1], where)), limit))

    def _put_progress(self, line: LogLine) -> None:
        lines = [
            kept for kept in self._lines if kept[1].stream == PROGRESS and kept[1].execution_id == line.execution_id
        ]
        before = [kept for kept in lines if _same_attempt(kept[1], line)]
        oldest = lines[: max(0, len(lines) + 1 - PROGRESS_KEPT)]
        for kept in before or oldest:
            self._lines.remove(kept)
        self._keep_line(line)

    def _add_line(self, line: LogLine, max_bytes: int | None) -> None:
        used, cut = self._log_sizes.get(line.execution_id, (0, False))
        if max_bytes is not None and used + log_size(line) > max_bytes:
            if cut:
                return
            line, cut = replace(line, stream="log", text=LOG_CUT.format(max_bytes=max_bytes)), True
        self._keep_line(line)
        self._log_sizes[line.execution_id] = (used + log_size(line), cut)

    def _keep_line(self, line: LogLine) -> None:
        self._line_position += 1
        self._lines.append((self._line_position, line))


def _change_step(execution: Execution, change: StepChange) -> None:
    key = (change.step, change.run)
    step = execution.steps.get(key)
    if change.opens:
        if step is None:
            record = StepRunRecord(change.step, change.run, change.first, change.closed or None, change.status)
            execution.steps[key] = StepRun(record, change.last if change.closed else None)
    elif step is not None and step.record.last_seq is not None:
        step.until = change.last
    elif step is not None and change.closed:
        step.record = replace(step.record, last_seq=change.closed, status=change.status)
        step.until = change.last


def _same_attempt(line: LogLine, other: LogLine) -> bool:
    return line == replace(other, at=line.at, text=line.text)


def _fits(line: LogLine, where: LogFilter) -> bool:
    path = where.iteration
    return (
        (not where.step or line.step == where.step)
        and (not where.task or line.task == where.task)
        and (path is None or (line.iteration or ())[: len(path)] == path)
        and (line.stream in where.streams if where.streams else line.stream != PROGRESS)
        and where.text in line.text
        and line.at >= where.since
    )
