"""Provenance for one engine: traces a value through the log of its run, and into the runs that it called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from arclog.engine.commits.engine import Engine
from arclog.engine.history.bulk import aside
from arclog.engine.history.recorded_runs import read_log
from arclog.expr import path_of_text
from arclog.history.diff import changed_steps
from arclog.history.trace import Node, ReusedEvents, Tracer
from arclog.model.errors import RequestRejected
from arclog.model.events import Event
from arclog.plan.net import Plan
from arclog.ports.storage.store import ExecutionRecord
from arclog.ports.views.history import Trace, TraceNode

#: Maximum number of forks of forks whose playbooks are compared.
_LONGEST_CHAIN = 20

Reached = Callable[[int], Awaitable[ExecutionRecord | None]]


async def traced(engine: Engine, record: ExecutionRecord, path: str, reached: Reached) -> Trace:
    """Trace a value of a run. Raises RequestRejected."""
    left = engine.settings.integer("history.trace_max_nodes")
    tracer = await _tracer(engine, record, left)
    keys = path_of_text(path)
    absence = tracer.absence(keys)
    root = None if absence else await aside(record.head, tracer.trace, keys)
    if root is None:
        there = absence or "there are result, ctx, workload and the names of steps that ran"
        raise RequestRejected(f"run {record.execution_id} has no value {path[:200]!r}; {there}")
    files = {id(root): tracer.file}
    runs: dict[int, str] = {}
    is_cut = tracer.is_cut
    pending = [(record, tracer)]
    while pending:
        owner, tracer = pending.pop()
        for child in tracer.children:
            called = await reached(int(child.execution_id))
            left = tracer.left
            if called is None or called.head == 0:
                continue
            if left <= 0:
                is_cut = True
                break
            inner = await _tracer(engine, called, left)
            node = await aside(called.head, inner.trace, child.path)
            if node is None:
                continue
            runs[id(node)] = child.execution_id
            files[id(node)] = inner.file
            child.node.sources.insert(0, node)
            is_cut = is_cut or inner.is_cut
            pending.append((owner, inner))
    return Trace(str(record.execution_id), path, _Showing(runs, files).node(root), is_cut)


async def _tracer(engine: Engine, record: ExecutionRecord, left: int) -> Tracer:
    program = await engine.live.program(record.new.plan)
    events = [stored.event for stored in await read_log(engine, record.execution_id, record.head)]
    return Tracer(program.plan, events, left, await _kept(engine, program.plan, events[0]))


async def _kept(engine: Engine, plan: Plan, first: Event) -> ReusedEvents | None:
    """Return the events that a run kept of another one; None if it did not begin with any."""
    origin = first.payload.get("origin")
    if not origin or not origin["events"]:
        return None
    changed: set[str] = set()
    older = origin
    for _ in range(_LONGEST_CHAIN):
        record = await engine.store.execution(int(older["execution_id"]))
        if record is None:
            break
        program = await engine.live.program(record.new.plan)
        changed |= changed_steps(program.plan, plan)
        older = (await engine.store.events(record.execution_id, limit=1))[0].event.payload.get("origin")
        if not older or not older["events"]:
            return ReusedEvents(origin["execution_id"], origin["events"], frozenset(changed))
    return ReusedEvents(origin["execution_id"], origin["events"], None)


class _Showing:
    """The nodes of the response; the sources of a node are listed at its first occurrence."""

    def __init__(self, runs: dict[int, str], files: dict[int, str]) -> None:
        """`runs` and `files` belong to the nodes with which other runs begin, by identity."""
        self._runs = runs
        self._files = files
        self._seen: set[int] = set()

    def node(self, node: Node, file: str = "", of: str = "") -> TraceNode:
        number = id(node)
        of, file = self._runs.get(number, of), self._files.get(number) or file
        place = f"{node.line}:{node.column}" if node.line else ""
        repeated = number in self._seen and bool(node.sources)
        self._seen.add(number)
        return TraceNode(
            node.what,
            node.name,
            node.value,
            node.seq,
            node.step,
            node.task,
            list(node.item),
            node.kind,
            f"{file}:{place}" if file and place else place,
            node.template,
            node.origin,
            of,
            repeated,
            [] if repeated else [self.node(source, file, of) for source in node.sources],
        )
