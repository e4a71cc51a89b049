"""Simulations for one engine: runs a playbook against the logs of recorded runs. Results are read; nothing is
written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Coroutine, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import to_builtins

from arclog.core.boundary.inputs import Request
from arclog.engine.commits.engine import Engine
from arclog.engine.history.bulk import SHORT, few_collections
from arclog.engine.history.recorded_runs import read_log
from arclog.engine.runs.inputs import fitted
from arclog.expr import MISSING
from arclog.expr.stored import is_json
from arclog.history import path_comparison
from arclog.history.simulate import Call, Limits, Simulated, simulate
from arclog.history.step_runs import check_release
from arclog.model.data.json_data import deep_merge
from arclog.model.errors import InputsRefused, RequestRejected, ResultUnavailable
from arclog.model.events import Event
from arclog.model.refs import LIST, as_ref, parse_ref
from arclog.plan import net
from arclog.plan.net import Plan
from arclog.plan.program import Program
from arclog.ports.results import Results
from arclog.ports.storage.store import ExecutionRecord
from arclog.ports.views.history import MOST_CALLS, SimulatedCall, SimulatedRun, SimulateRequest, SimulationReport

T = TypeVar("T")

_EVENT = attrgetter("event")
#: Maximum number of runs in one request.
MOST_RUNS = 1000


def check(request: SimulateRequest, steps: Collection[str]) -> None:
    """Raise RequestRejected if a request is invalid."""
    if len(request.runs) > MOST_RUNS or not 1 <= request.last <= MOST_RUNS:
        raise RequestRejected(f"a simulation takes 1 to {MOST_RUNS} runs; split the request")
    unknown = sorted(new for new in request.map.values() if new not in steps)
    if unknown:
        raise RequestRejected(f"`map` names steps that the playbook does not have: {', '.join(unknown)}")


async def simulated(
    engine: Engine, results: Results, plan: Plan, records: Sequence[ExecutionRecord], request: SimulateRequest
) -> SimulationReport:
    """Run a plan against the logs of some runs."""
    # A separate cache: simulated programs are not kept among the programs of runs.
    program = Program(plan, net.digest(net.encode(plan)))
    settings = engine.settings
    limits = Limits(
        max_events=settings.integer("history.simulate_max_events"),
        max_ctx_bytes=settings.integer("limits.max_ctx_bytes"),
        longest_sleep_s=settings.number("tasks.sleep_under_lease_s"),
    )
    with few_collections(sum(record.head for record in records)):
        runs = [await _simulated(engine, results, program, record, request, limits) for record in records]
    verdicts = Counter(run.verdict for run in runs)
    return SimulationReport(
        ok=all(run.verdict == path_comparison.SAME for run in runs),
        verdicts=dict(sorted(verdicts.items())),
        steps=sum(run.steps for run in runs),
        runs=runs,
    )


async def _simulated(
    engine: Engine,
    results: Results,
    program: Program,
    record: ExecutionRecord,
    request: SimulateRequest,
    limits: Limits,
) -> SimulatedRun:
    old = await engine.live.program(record.new.plan)
    events = list(map(_EVENT, await read_log(engine, record.execution_id, record.head)))
    check_release(record.execution_id, events)
    try:
        asked = _request(program, old, record, events[0], request.workload)
    except InputsRefused as refused:
        state = path_comparison.end_of(events).state
        return SimulatedRun(str(record.execution_id), "refused", state, "REFUSED", 0, None, None, [], [], str(refused))
    # A reader waits for the event loop, so it is used in a thread only. A long log has one anyway.
    reads = len(events) > SHORT or any(
        "result_ref" in event.payload or "result_ref" in event.payload.get("outcome", ()) for event in events
    )
    reader = _Reader(results, record.new.scope.tenant, asyncio.get_running_loop()) if reads else None

    def work() -> SimulatedRun:
        simulated = simulate(
            program,
            record.execution_id,
            events,
            old,
            asked,
            request.map,
            limits,
            strict=request.strict,
            read=reader,
            meter=engine.deciding.meter,
        )
        beside = path_comparison.compared(events, simulated, request.map)
        events.clear()  # in the thread: a collection after its end would examine them all
        return _shown(record, simulated, beside)

    return await asyncio.to_thread(work) if reads else work()


def _request(
    program: Program, old: Program, record: ExecutionRecord, first: Event, changes: Mapping[str, Any]
) -> Request:
    payload = first.payload
    workload = deep_merge(payload.get("workload") or {}, dict(changes))
    if changes or program.plan.inputs != old.plan.inputs:
        workload = fitted(program.plan, workload)
    return Request(
        record.new.path,
        record.new.version,
        workload,
        payload.get("scope", ""),
        files=payload.get("files") or {},
        priority=payload.get("priority"),
        file=payload.get("file", ""),
    )


def _shown(record: ExecutionRecord, simulated: Simulated, beside: path_comparison.Compared) -> SimulatedRun:
    mine, theirs = beside.recorded, beside.simulated
    differs = beside.verdict == path_comparison.RESULT
    return SimulatedRun(
        str(record.execution_id),
        "cut" if simulated.is_cut else beside.verdict,
        mine.state,
        theirs.state,
        simulated.state.step_runs,
        None if beside.parting is None else to_builtins(beside.parting),
        {"recorded": _end(mine), "simulated": _end(theirs)} if differs else None,
        [_call(call) for call in simulated.unanswered[:MOST_CALLS]],
        [_call(call) for call in simulated.assumed[:MOST_CALLS]],
    )


def _end(end: path_comparison.End) -> Any:
    return end.result if end.error is None else end.error


def _call(call: Call) -> SimulatedCall:
    return SimulatedCall(
        call.step, call.run, list(call.item), call.task, call.kind, call.attempt, call.reason, call.inputs
    )


class _Reader:
    """An `expr.Reader` for a thread: it waits for the event loop to read."""

    opens_files = False

    def __init__(self, results: Results, tenant: str, loop: asyncio.AbstractEventLoop) -> None:
        self._results = results
        self._tenant = tenant
        self._loop = loop
        self._kept: dict[str, Any] = {}

    def whole(self, ref: Mapping[str, Any]) -> Any:
        if ref["kind"] == "item":
            return self.item(ref["of"], ref["index"])
        result = _ref_of(ref)
        sha256 = parse_ref(result.ref).sha256
        if sha256 not in self._kept:
            if result.kind == LIST:
                self._kept[sha256] = self._done(self._results.items(self._tenant, sha256, 0, result.meta.rows or 0))
            else:
                self._kept[sha256] = _decoded(result, self._done(self._content(sha256)))
        return self._kept[sha256]

    def item(self, ref: Mapping[str, Any], index: int) -> Any:
        result = _ref_of(ref)
        rows = result.meta.rows or 0
        index += rows if index < 0 else 0
        if not 0 <= index < rows:
            return MISSING
        return self._done(self._results.items(self._tenant, parse_ref(result.ref).sha256, index, index + 1))[0]

    async def _content(self, sha256: str) -> bytes:
        return b"".join([chunk async for chunk in self._results.chunks(self._tenant, sha256)])

    def _done(self, reading: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(reading, self._loop).result()


def _ref_of(ref: Mapping[str, Any]) -> Any:
    if ref["kind"] == "loop":
        raise ResultUnavailable("the results of this loop are spread over its log; a simulation does not read them")
    return as_ref(ref)


def _decoded(ref: Any, body: bytes) -> Any:
    kind = ref.meta.content_type
    if is_json(kind):
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise ResultUnavailable(f"{ref.ref} is not JSON: {problem}") from None
    if kind.startswith("text/"):
        return body.decode("utf-8", "replace")
    raise ResultUnavailable(f"{ref.ref} is {kind}, which a template cannot read")
