"""Explains what a run is waiting for: the blocker of every open item.

Each kind of wait has a contributor: a pure function of the state, the program, the open commands and the time. What is
new in the language adds its contributor to `CONTRIBUTORS`; the first wait of the first that has one is the headline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from arclog.core.flow import joins
from arclog.core.transitions import state as states
from arclog.core.transitions.state import State, StepRun
from arclog.engine.dispatch.claim_blockers import PoolFacts, hindrance
from arclog.engine.dispatch.position import current_task
from arclog.engine.views import run_blockers as holding
from arclog.engine.views.account import account
from arclog.model.commands import Pipeline
from arclog.model.ids import MICROS, timestamp
from arclog.plan.program import Program
from arclog.ports.storage.store import CommandRecord
from arclog.ports.views.insight import Account, Wait, Why


class OpenWork(Struct, frozen=True):
    """An open command as the store knows it."""

    record: CommandRecord
    #: whether its worker's process is there; None when nobody can tell
    alive: bool | None = None
    #: what is known of the pool that it waits in
    facts: PoolFacts | None = None


Contributor = Callable[[State, Program, Mapping[int, OpenWork], int], list[Wait]]


def explain(
    state: State,
    program: Program,
    commands: Iterable[CommandRecord],
    now: int,
    *,
    is_alive: Callable[[str], bool | None] | None = None,
    known: Account | None = None,
    slot_holders: Sequence[int] = (),
    pools: PoolFacts | None = None,
    served: bool | None = None,
) -> Why:
    """The waits of a run; one that has ended waits for nothing, and has its cause when it failed. `known` is its account,
    if that is at hand; `served`: whether a process is there that continues with the run, None when nobody can tell.
    """
    execution_id = str(state.execution_id)
    known = known or account(program, state)
    if state.terminal is not None:
        return Why(execution_id, state.status, known.summary, [], known.cause, known.next, known.problems)
    work = {one.command_id: OpenWork(one, _liveness(one, is_alive), pools) for one in commands}
    waits = holding.waits(state, slot_holders)
    waits += [wait for contributor in CONTRIBUTORS for wait in contributor(state, program, work, now)]
    if not waits:
        waits = [
            Wait("none", "no work is open, but the run has not ended; `arclog resume` makes the engine check again")
        ]
    summary, steps = waits[0].text, _while_it_runs(execution_id, waits)
    if served is False:
        summary = f"no arclog process serves this run; `arclog resume {execution_id}` continues it; {summary}"
        steps = [f"arclog resume {execution_id}", *(step for step in steps if not step.startswith("arclog resume"))]
    return Why(execution_id, state.status, summary, waits, None, steps, known.problems)


def tokens(state: State, _program: Program, _work: Mapping[int, OpenWork], _now: int) -> list[Wait]:
    """Tokens that could move on at once: the engine stopped before it went on."""
    text = "step {} is ready to start; the engine has not started it yet"
    ready = state.tokens.values() if state.pause is None else ()
    return [Wait("token", text.format(token.step), token.step) for token in ready]


def step_runs(state: State, program: Program, work: Mapping[int, OpenWork], now: int) -> list[Wait]:
    """Open step runs: with a worker, or waiting for one."""
    waits = [_ended(step_run) for step_run in state.open.values() if step_run.state != "open"]
    for command in state.commands.values():
        if command.held:
            continue
        step_run = state.run_of(command.step, command.run)
        if step_run is not None and step_run.state == "open":
            pipeline = next(iter(step_run.pipelines(command.chunk)), None)
            waits.append(_held(step_run, pipeline, program, work.get(command.id), now))
    return waits


def waits_without_worker(state: State, _program: Program, _work: Mapping[int, OpenWork], _now: int) -> list[Wait]:
    """Tasks that wait for a time, a signal, an approval or a child."""
    return [_without_worker(wait) for wait in state.waits.values()]


def waiting_joins(state: State, program: Program, _work: Mapping[int, OpenWork], _now: int) -> list[Wait]:
    """Joins that hold tokens and lack others."""
    return [_join(join) for join in joins.waiting(program, state)]


#: In order of what to tell first.
CONTRIBUTORS: list[Contributor] = [
    tokens,
    waits_without_worker,
    step_runs,
    waiting_joins,
]


def _without_worker(wait: states.Wait) -> Wait:
    """What a task waits for that holds no worker."""
    where = "" if wait.iteration is None else f", iteration {'.'.join(map(str, wait.iteration))}"
    what = f"step {wait.step} (run {wait.run}{where}), task {wait.task}"
    until = timestamp(wait.until) if wait.until else None
    late = f", until {until} at the latest" if until else ""
    signal = wait.config.get("signal")
    match wait.kind:
        case "approval":
            asked = f": {wait.config['prompt']}" if wait.config.get("prompt") else ""
            return Wait("approval", f"{what} waits for an approval{late}{asked}", wait.step, until, key=wait.key)
        case "playbook":
            text = f"{what} waits for run {wait.child} (`arclog why {wait.child}`){late}"
            return Wait("child", text, wait.step, until, child=str(wait.child))
        case "retry":
            return Wait("retry", f"{what} waits for its next attempt, due at {until}", wait.step, until)
        case _ if signal:
            return Wait("signal", f"{what} waits for signal {signal}{late}", wait.step, until, signal=str(signal))
        case _:
            return Wait("timer", f"{what} waits until {until}", wait.step, until)


def _ended(step_run: StepRun) -> Wait:
    return Wait("routing", f"{_place(step_run)} has ended; its arcs are evaluated next", step_run.step)


def _held(step_run: StepRun, pipeline: Pipeline | None, program: Program, work: OpenWork | None, now: int) -> Wait:
    step, what = step_run.step, _place(step_run)
    if work is None:
        return Wait("none", f"{what} has no open command, which is a bug", step)
    record = work.record
    if record.state == "issued":
        again = f", for the {_nth(record.fence + 1)} time" if record.fence else ""
        of = "" if record.pool == "default" else f" of pool {record.pool}"
        kinds = ", ".join(record.kinds)
        hindered = "" if work.facts is None else hindrance(record, work.facts, now)
        return Wait("worker", f"{what} waits for a worker{of} that supports {kinds}{again}{hindered}", step)
    until = timestamp(record.lease_until)
    if record.lease_until < now:
        text = f"{what} was held by worker {record.worker_id}, whose lease ended at {until}; another worker will get it"
        return Wait("lease", text, step, until)
    if work.alive is False:
        text = f"{what} is held by worker {record.worker_id}, whose process is gone; its lease ends at {until}"
        return Wait("lease", text, step, until)
    task = current_task(program.steps[step], pipeline)
    if pipeline is not None and task is not None:
        name = task.plan.name
        if pipeline.due > now:
            due = timestamp(pipeline.due)
            text = f"{what}, task {name}: attempt {pipeline.attempt} is due in {_span(pipeline.due - now)}, at {due}"
            return Wait("retry", text, step, due)
        if pipeline.in_flight:
            attempt = f" (attempt {pipeline.attempt})" if pipeline.attempt > 1 else ""
            took = _span(now - pipeline.since)
            text = f"{what}, task {name}{attempt} has been running for {took} on worker {record.worker_id}"
            return Wait("task", f"{text}, lease until {until}", step, until)
        return Wait("lease", f"{what}, task {name} is about to start on worker {record.worker_id}", step, until)
    return Wait("lease", f"{what} is with worker {record.worker_id}, lease until {until}", step, until)


def _place(step_run: StepRun) -> str:
    text = f"step {step_run.step} (run {step_run.run})"
    loop = step_run.loop
    if loop is None or not step_run.started:
        return text
    failed = f", {loop.failed} failed" if loop.failed else ""
    return f"{text}, item {min(loop.ok + loop.failed + 1, loop.total)} of {loop.total}{failed}"


def _liveness(record: CommandRecord, is_alive: Callable[[str], bool | None] | None) -> bool | None:
    return is_alive(record.worker_id) if is_alive is not None and record.state == "claimed" else None


def _while_it_runs(execution_id: str, waits: list[Wait]) -> list[str]:
    kinds = {wait.what for wait in waits}
    if "approval" in kinds:
        return approval_commands(execution_id, waits)
    if "signal" in kinds:
        name = next(wait.signal for wait in waits if wait.what == "signal")
        return [f"arclog signal {execution_id} {name}", f"arclog cancel {execution_id}"]
    if kinds & {"task", "retry", "timer", "child"}:
        return [f"arclog events {execution_id} --follow", f"arclog cancel {execution_id}"]
    return [f"arclog resume {execution_id}", f"arclog events {execution_id}"]


def approval_commands(execution_id: str, waits: Sequence[Wait]) -> list[str]:
    """The commands that answer approvals; each is named when there are several."""
    asked = [wait for wait in waits if wait.what == "approval"]
    if len(asked) == 1:
        return [f"arclog approve {execution_id}", f"arclog reject {execution_id} --reason TEXT"]
    names = [wait.key for wait in asked[:10]]
    return [
        *(f"arclog approve {execution_id} --step '{name}'" for name in names),
        f"arclog reject {execution_id} --step '{names[0]}' --reason TEXT",
    ]


def _nth(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _span(micros: int) -> str:
    """A length of time in the unit that suits it."""
    seconds = max(micros, 0) / MICROS
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"


def _join(join: joins.Waiting) -> Wait:
    rule = f"join {{count: {join.count}}}" if join.count else "join all"
    held = ", ".join(source or "the entry" for source in join.held)
    what = f"step {join.step} ({rule}) has a token from {held}"
    if join.ready:
        return Wait("join", f"{what} and can start; the engine has not started it yet", join.step)
    lacks = [f"{lack.source} (through {', '.join(lack.from_steps)})" for lack in join.lacks if lack.from_steps]
    return Wait("join", f"{what} and waits for one from {' and '.join(lacks)}", join.step)
