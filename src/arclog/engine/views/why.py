"""Explains what a run is waiting for: the blocker of every open item.

Each kind of wait has a contributor: a function of the state, the program, the open commands and the time, without I/O.
A new language feature adds its contributor to `CONTRIBUTORS`; the first wait of the first one that has any is the
headline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, structs

from arclog.core.flow import joins
from arclog.core.transitions import state as states
from arclog.core.transitions.state import State, StepRun
from arclog.engine.views.account import account
from arclog.engine.views.state import current_task
from arclog.model.commands import Pipeline
from arclog.model.ids import MICROS, timestamp
from arclog.plan.program import Program
from arclog.ports.storage.pools import EACH, Limit, ResourceRecord, Share, WorkerRecord, next_token, tokens
from arclog.ports.storage.store import CommandRecord, Store
from arclog.ports.views.insight import Account, Wait, Why


class OpenWork(Struct, frozen=True):
    """An open command as the store knows it."""

    record: CommandRecord
    #: whether its worker's process is alive; None if unknown
    alive: bool | None = None
    #: the facts about its pool
    facts: PoolFacts | None = None


Contributor = Callable[[State, Program, Mapping[int, OpenWork], int], list[Wait]]


def explain(
    state: State,
    program: Program,
    commands: Iterable[CommandRecord],
    now: int,
    *,
    is_alive: Callable[[str], bool | None] | None = None,
    run_account: Account | None = None,
    slot_holders: Sequence[int] = (),
    pools: PoolFacts | None = None,
    served: bool | None = None,
) -> Why:
    """Return the waits of a run. An ended run has none; if it failed, the result has its cause. `run_account` is its account,
    if available; `served` tells whether a process continues the run, None if unknown.
    """
    execution_id = str(state.execution_id)
    run_account = run_account or account(program, state)
    if state.terminal is not None:
        return Why(
            execution_id,
            state.status,
            run_account.summary,
            [],
            run_account.cause,
            run_account.next,
            run_account.problems,
        )
    work = {command.command_id: OpenWork(command, _liveness(command, is_alive), pools) for command in commands}
    waits = run_waits(state, slot_holders)
    waits += [wait for contributor in CONTRIBUTORS for wait in contributor(state, program, work, now)]
    if not waits:
        waits = [
            Wait("none", "no work is open, but the run has not ended; `arclog resume` makes the engine check again")
        ]
    summary, steps = waits[0].text, _while_it_runs(execution_id, waits)
    if served is False:
        summary = f"no arclog process serves this run; `arclog resume {execution_id}` continues it; {summary}"
        steps = [f"arclog resume {execution_id}", *(step for step in steps if not step.startswith("arclog resume"))]
    return Why(execution_id, state.status, summary, waits, None, steps, run_account.problems)


def read_only(why: Why, head: int) -> Why:
    """Return the explanation of an imported run that had not ended: nothing continues it here."""
    summary = f"the run was imported and is read-only; when it was exported: {why.summary}"
    return structs.replace(why, summary=summary, next=[f"arclog fork {why.execution_id} --at {head}"])


def ready_tokens(state: State, _program: Program, _work: Mapping[int, OpenWork], _now: int) -> list[Wait]:
    """Tokens that can move immediately: the engine stopped before it moved them."""
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
    """Return joins that have some tokens and lack others."""
    return [_join(join) for join in joins.waiting(program, state)]


#: In order of importance: the first wait is the headline.
CONTRIBUTORS: list[Contributor] = [
    ready_tokens,
    waits_without_worker,
    step_runs,
    waiting_joins,
]


def _without_worker(wait: states.Wait) -> Wait:
    """Return the wait of a task that occupies no worker."""
    where = "" if wait.iteration is None else f", iteration {'.'.join(map(str, wait.iteration))}"
    place = f"step {wait.step} (run {wait.run}{where}), task {wait.task}"
    until = timestamp(wait.until) if wait.until else None
    late = f", until {until} at the latest" if until else ""
    signal = wait.config.get("signal")
    match wait.kind:
        case "approval":
            asked = f": {wait.config['prompt']}" if wait.config.get("prompt") else ""
            return Wait("approval", f"{place} waits for an approval{late}{asked}", wait.step, until, key=wait.key)
        case "playbook":
            text = f"{place} waits for run {wait.child} (`arclog why {wait.child}`){late}"
            return Wait("child", text, wait.step, until, child=str(wait.child))
        case "retry":
            return Wait("retry", f"{place} waits for its next attempt, due at {until}", wait.step, until)
        case _ if signal:
            return Wait("signal", f"{place} waits for signal {signal}{late}", wait.step, until, signal=str(signal))
        case _:
            return Wait("timer", f"{place} waits until {until}", wait.step, until)


def _ended(step_run: StepRun) -> Wait:
    return Wait("routing", f"{_place(step_run)} has ended; its arcs are evaluated next", step_run.step)


def _held(step_run: StepRun, pipeline: Pipeline | None, program: Program, work: OpenWork | None, now: int) -> Wait:
    step, place = step_run.step, _place(step_run)
    if work is None:
        return Wait("none", f"{place} has no open command, which is a bug", step)
    record = work.record
    if record.state == "issued":
        again = f", for the {_nth(record.fence + 1)} time" if record.fence else ""
        of = "" if record.pool == "default" else f" of pool {record.pool}"
        kinds = ", ".join(record.kinds)
        hindered = "" if work.facts is None else hindrance(record, work.facts, now)
        return Wait("worker", f"{place} waits for a worker{of} that supports {kinds}{again}{hindered}", step)
    until = timestamp(record.lease_until)
    if record.lease_until < now:
        text = (
            f"{place} was held by worker {record.worker_id}, whose lease ended at {until}; another worker will get it"
        )
        return Wait("lease", text, step, until)
    if work.alive is False:
        text = f"{place} is held by worker {record.worker_id}, whose process is gone; its lease ends at {until}"
        return Wait("lease", text, step, until)
    task = current_task(program.steps[step], pipeline)
    if pipeline is not None and task is not None:
        name = task.plan.name
        if pipeline.due > now:
            due = timestamp(pipeline.due)
            text = f"{place}, task {name}: attempt {pipeline.attempt} is due in {_span(pipeline.due - now)}, at {due}"
            return Wait("retry", text, step, due)
        if pipeline.in_flight:
            attempt = f" (attempt {pipeline.attempt})" if pipeline.attempt > 1 else ""
            took = _span(now - pipeline.since)
            text = f"{place}, task {name}{attempt} has been running for {took} on worker {record.worker_id}"
            return Wait("task", f"{text}, lease until {until}", step, until)
        return Wait("lease", f"{place}, task {name} is about to start on worker {record.worker_id}", step, until)
    return Wait("lease", f"{place} is with worker {record.worker_id}, lease until {until}", step, until)


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
    """Return the commands that answer approvals; each approval is named if there are several."""
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
    """Return a duration in a suitable unit."""
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
    place = f"step {join.step} ({rule}) has a token from {held}"
    if join.ready:
        return Wait("join", f"{place} and can start; the engine has not started it yet", join.step)
    lacks = [f"{lack.source} (through {', '.join(lack.from_steps)})" for lack in join.lacks if lack.from_steps]
    return Wait("join", f"{place} and waits for one from {' and '.join(lacks)}", join.step)


# Blockers of a whole run: a pause, a missing approval, a missing concurrency slot.


def run_waits(state: State, slot_holders: Sequence[int]) -> list[Wait]:
    """Return at most one wait: the reason why nothing new begins."""
    execution_id = state.execution_id
    if state.pending_for == "approval":
        text = (
            f"the run waits for an approval before it starts (`arclog approve {execution_id}`, "
            f"or `arclog reject {execution_id} --reason …`)"
        )
        return [Wait("approval", text)]
    if state.pending_for == "slot":
        if not slot_holders:
            text = f"a concurrency slot is free (use `arclog resume {execution_id}` if the run's process is gone)"
            return [Wait("slot", text)]
        # No process continues the work of a dead holder, so the message names the remedy.
        by, first = ", ".join(map(str, slot_holders)), slot_holders[0]
        return [Wait("slot", f"the run waits for a concurrency slot held by execution {by} (`arclog why {first}`)")]
    if state.pause is None:
        return []
    return [Wait("pause", _pause_text(state))]


def _pause_text(state: State) -> str:
    pause = state.pause
    if pause is None:
        return ""
    sender = f"by {pause.by}, " if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    origin = f"{sender}signal {pause.signal_id}{why}"
    if state.paused_at is not None:
        return f"the run has been paused since {timestamp(state.paused_at)} ({origin}); `arclog resume {state.execution_id}`"
    running = [f"{command.step} (run {command.run})" for command in state.commands.values() if not command.held]
    more = f" and {len(running) - 5} more" if len(running) > 5 else ""
    return f"the run is pausing ({origin}); still running: {', '.join(running[:5])}{more}"


# Why an issued command has not been claimed, for `arclog why`.


#: Maximum number of commands of one run for which the commands before them are counted.
_MOST_COUNTED = 20


class PoolFacts(Struct, frozen=True):
    """The facts about pools from the store."""

    tenant: str
    shares: Sequence[Share] = ()
    limits: Sequence[Limit] = ()
    resources: Sequence[ResourceRecord] = ()
    workers: Sequence[WorkerRecord] = ()
    #: number of commands of the same pool and tenant before each, by id
    ahead: Mapping[int, int] = {}
    #: a worker that was not seen since then is silent
    silent_before: int = 0


async def pool_facts(
    store: Store, tenant: str, commands: Sequence[CommandRecord], silent_before: int
) -> PoolFacts | None:
    """Return the facts about the pools of waiting commands; None if no command waits for a worker."""
    waiting = [command for command in commands if command.state == "issued"]
    if not waiting:
        return None
    return PoolFacts(
        tenant,
        await store.shares(),
        await store.limits(),
        await store.resources(),
        await store.workers(),
        {
            command.command_id: await store.ahead(command.execution_id, command.command_id)
            for command in waiting[:_MOST_COUNTED]
        },
        silent_before,
    )


def hindrance(record: CommandRecord, facts: PoolFacts, now: int) -> str:
    """Return the blocker of a command; '' if none is known."""
    reasons = [*_limits(record.pool, facts), *_resources(record.resources, facts, now)]
    if not reasons:
        reasons = _workers(record, facts)
    if reasons:
        return "; " + "; ".join(reasons)
    before = before_it(record, facts)
    return f" ({before} before it)" if before else ""


def before_it(record: CommandRecord, facts: PoolFacts) -> int:
    """Return the number of commands before it: those of its tenant and, since tenants take turns, as many of each other
    one.
    """
    own = facts.ahead.get(record.command_id)
    if own is None:
        return 0
    others = (share for share in facts.shares if share.pool == record.pool and share.tenant != facts.tenant)
    return own + sum(min(other.issued, own + 1) for other in others)


def _limits(pool: str, facts: PoolFacts) -> list[str]:
    problems = []
    most = {(limit.pool, limit.tenant): limit.concurrency for limit in facts.limits}
    for where in (pool, ""):
        name = f"pool {where}" if where else "all pools together"
        held = [share for share in facts.shares if where in ("", share.pool)]
        total = sum(usage.claimed for usage in held)
        own = sum(usage.claimed for usage in held if usage.tenant == facts.tenant)
        everybody = most.get((where, ""))
        if everybody is not None and total >= everybody:
            problems.append(f"{name} {'is' if where else 'are'} full: {total} of {everybody}")
        mine = most.get((where, facts.tenant), most.get((where, EACH)))
        if mine is not None and own >= mine:
            problems.append(f"tenant {facts.tenant} has {own} of {mine} slots of {name}")
    return problems


def _resources(names: Sequence[str], facts: PoolFacts, now: int) -> list[str]:
    problems = []
    resources = {resource.resource.name: resource for resource in facts.resources}
    for name in names:
        record = resources.get(name)
        if record is None:
            continue
        most = record.resource.concurrency
        if most is not None and record.held >= most:
            problems.append(f"resource {name} is in use: {record.held} of {most}")
        if tokens(record, now) == 0:
            problems.append(f"resource {name}: next token in {(next_token(record) - now) / MICROS:.1f} s")
    return problems


def _workers(record: CommandRecord, facts: PoolFacts) -> list[str]:
    """Return a reason if no worker that could take the command was seen recently."""
    able = [
        worker
        for worker in facts.workers
        if (not worker.pools or record.pool in worker.pools) and worker.tenant in ("", facts.tenant)
    ]
    knowing = [worker for worker in able if set(worker.kinds).issuperset(record.kinds)]
    if any(worker.seen_at >= facts.silent_before and not worker.draining for worker in knowing):
        return []
    if any(worker.seen_at >= facts.silent_before for worker in knowing):
        return [f"every worker of pool {record.pool} that could take it is draining"]
    if any(worker.seen_at >= facts.silent_before for worker in able):
        return [f"no worker of pool {record.pool} supports {', '.join(record.kinds)}"]
    if able:
        last = timestamp(max(worker.seen_at for worker in able))
        return [f"no worker of pool {record.pool} has been seen since {last}"]
    # `arclog run` has its own worker, which is not listed, so no worker is missing.
    return [f"no worker of pool {record.pool} has been seen"] if facts.workers or record.pool != "default" else []
