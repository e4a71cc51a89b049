"""Waits: tasks that occupy no worker. The start of a wait ends its command, and the end of a wait issues a new one.

Invariant: a wait is in `state.waits` from the event that starts it (a start with a config, or a retry that is
`suspended`) to the first event that the server records about its task, or to the end of its step run. A timer, a signal
or a child that has an outcome for it calls `resolve`, which records the events that a worker would have reported.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.json import encode

from arclog.core.boundary.inputs import Refused, TimerFired
from arclog.core.flow import loops, pipeline, routing
from arclog.core.flow.pipeline import Frame, Over, Run
from arclog.core.transitions import closing
from arclog.core.transitions.iterations import chunk_with, pipeline_of
from arclog.core.transitions.state import KeptSignal, OpenCommand, State, StepRun, Wait
from arclog.core.transitions.timers import DEADLINE, EXECUTION, TIMEOUT, WAIT, after, wait_key
from arclog.model.commands import TOO_LONG
from arclog.model.data.shapes import LONGEST_S
from arclog.model.errors import InvariantBroken, shortened
from arclog.model.events import Event
from arclog.model.ids import MICROS
from arclog.model.outcome import ERROR, Outcome, TaskError, error, failed
from arclog.plan.net import TaskPlan
from arclog.plan.program import Program, TaskProgram

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision


RETRY = "retry"


# -- folding: called by core.apply only ----------------------------------------------------------------------------------


#: Payload keys of task events that start or end a wait.
FOLDED_KEYS = frozenset({"source", "config", "suspended"})


def fold_task(program: Program, state: State, event: Event) -> None:
    """Fold a task event that may start or end a wait: one with a key of `FOLDED_KEYS`."""
    payload = event.payload
    if payload.get("source") == "server":
        state.waits.pop(wait_key(event), None)
    if "config" in payload and runs_here(program, event):
        kind = _task(program, event).plan.kind
        _begin(state, event, kind, payload["config"])
    elif payload.get("suspended"):
        _begin(state, event, RETRY, {}).until = payload["due"]


def fold_suspended(state: State, event: Event) -> None:
    """Fold the end of a command whose task waits."""
    state.commands.pop(event.command_id, None)
    wait = state.waits.get(event.payload.get("wait", ""))
    if wait is not None:
        wait.since = event.at
        wait.until = event.payload.get("until", wait.until)
        wait.child = int(event.payload.get("child", 0))
    taken = event.payload.get("signal_id")
    if taken is not None:
        state.kept_signals = [signal for signal in state.kept_signals if signal.signal_id != taken]


def drop_run(state: State, step: str, run: int) -> None:
    """Remove the waits of an ended step run."""
    for wait in [wait for wait in state.waits.values() if wait.step == step and wait.run == run]:
        del state.waits[wait.key]


def _begin(state: State, event: Event, kind: str, config: dict[str, Any]) -> Wait:
    key = wait_key(event)
    wait = Wait(
        key=key,
        kind=kind,
        step=event.step,
        run=event.run,
        iteration=event.iteration,
        task=event.task,
        task_run=event.task_run,
        config=config,
        since=event.at,
    )
    state.waits[key] = wait
    return wait


# -- deciding ------------------------------------------------------------------------------------------------------------


def suspends(program: Program, event: Event) -> bool:
    """Return whether a worker's event passes its pipeline to the server, which ends the command."""
    payload = event.payload
    if not payload:
        return False
    if event.type in ("task.started", "task.attempt.started"):
        return "config" in payload and runs_here(program, event)
    return event.type == "policy.task.evaluated" and bool(payload.get("suspended"))


def runs_here(program: Program, event: Event) -> bool:
    """Return whether an event is about a task that the engine runs."""
    return event.task in program.steps[event.step].on_engine


def suspend(decision: Decision, event: Event, command_id: int) -> None:
    """End the command of a task that waits, and set up its timer, child or stored signal."""
    wait = decision.state.waits[wait_key(event)]
    payload: dict[str, Any] = {"source": "server", "reason": "suspended", "wait": wait.key}
    problem: TaskError | None = None
    signal: KeptSignal | None = None
    if wait.kind != RETRY:
        until, problem = ends_at(wait, _task(decision.program, event).plan, decision.now)
        if problem is None:
            signal = _kept_signal(decision.state, wait)
        if signal is not None:
            payload["signal_id"] = signal.signal_id
        elif until:
            payload["until"] = until
        if wait.kind == "playbook" and problem is None:
            # The child gets the id of this event: the id is known before the child exists and is used once.
            payload["child"] = str(decision.next_id)
    cause = len(decision.txn.events) - 1
    _emit(decision, "command.completed", wait, payload, cause, command_id=command_id)
    decision.txn.close.append(command_id)
    if problem is not None:
        resolve(decision, wait.key, failed(problem).as_record(), cause)
    elif signal is not None:
        resolve(decision, wait.key, signalled(signal.signal, signal.data), cause)


def signalled(signal: str, data: Any, waited_ms: int = 0) -> dict[str, Any]:
    """Return the outcome record of a wait that a signal ended."""
    return {"status": "ok", "result": {"waited_ms": waited_ms, "signal": signal, "data": data}}


def _kept_signal(state: State, wait: Wait) -> KeptSignal | None:
    """Return the oldest stored signal that matches this wait, or None."""
    name = wait.config.get("signal") if wait.kind == "wait" else None
    if name is None:
        return None
    fitting = (
        signal for signal in state.kept_signals if signal.signal == name and signal.step in ("", wait.step, wait.key)
    )
    return next(fitting, None)


def resolve(decision: Decision, key: str, record: dict[str, Any], cause: int) -> None:
    """Give a wait its outcome and continue its pipeline: issue a new command, or end the step run."""
    _conclude(decision, decision.state.waits[key], record, cause)


def fail_task(decision: Decision, command: OpenCommand, problem: dict[str, Any], cause: int) -> bool:
    """Fail the current task of a command that ended with an error; the task's policy decides what follows.

    Returns False if the command had no task, or several, in progress.
    """
    step_run = decision.state.run_of(command.step, command.run)
    if step_run is None:
        return False
    mine = step_run.pipelines(command.chunk)
    under_way = [
        open_pipeline
        for open_pipeline in step_run.open_pipelines()
        if open_pipeline[1].attempt and any(open_pipeline[1] is attempt for attempt in mine)
    ]
    if len(under_way) != 1:
        return False
    path, place = under_way[0]
    task = decision.program.steps[command.step].tasks[place.at].plan.name
    where = Event("task.failed", decision.now, command.step, command.run, path, task, place.runs[task])
    wait = Wait(
        key=wait_key(where),
        kind="failed",
        step=command.step,
        run=command.run,
        iteration=path,
        task=task,
        task_run=place.runs[task],
        config={},
        since=place.since,
    )
    _conclude(decision, wait, {"status": ERROR, "error": problem}, cause)
    return True


def _conclude(decision: Decision, wait: Wait, record: dict[str, Any], cause: int) -> None:
    state, program = decision.state, decision.program
    step = program.steps[wait.step]
    step_run = _open_run(state, wait)
    place = pipeline_of(step_run, wait.iteration)
    task = step.tasks[step.index[wait.task]]
    move = Run(task, wait.task_run, place.attempt, 0, repeated=True)
    frame = frame_of(program, state, step_run, wait.iteration)
    room = decision.event_room
    outcome = _complete(record, task, wait, place.attempt, decision.now, room)
    events = pipeline.conclude(place, move, frame, outcome, decision.now, jitter(decision), room, longest_sleep_s=0.0)
    for event in events:
        event.payload = {**event.payload, "source": "server"}
        event.cause = len(decision.txn.events) - cause if cause >= 0 else 0
        decision.emit(event)
    _go_on(decision, wait, len(decision.txn.events) - 1)


def resume(decision: Decision, wait: Wait, cause: int) -> None:
    """Issue a command for the rest of the pipeline and of its loop."""
    command_id = decision.next_id
    payload = {"reason": "resumed", "wait": wait.key}
    _emit(decision, "command.issued", wait, payload, cause, command_id=command_id)
    decision.issue(command_id, wait.step, wait.run)


def _go_on(decision: Decision, wait: Wait, cause: int) -> None:
    step = decision.program.steps[wait.step]
    place = pipeline_of(_open_run(decision.state, wait), wait.iteration)
    move = pipeline.next_move(place, step, decision.program.plan.limits.max_task_runs)
    if not isinstance(move, Over):
        if wait.key not in decision.state.waits:  # otherwise a retry is due later
            resume(decision, wait, cause)
        return
    _end(decision, wait, move, cause)


def _end(decision: Decision, wait: Wait, over: Over, cause: int) -> None:
    """End the pipeline after its last task: record the events that a worker would report."""
    payload: dict[str, Any] = {"source": "server"}
    if over.error is not None:
        payload["error"] = over.error
    ending = "done" if over.error is None else "failed"
    if wait.iteration is None:
        ended = decision.record(f"step.{ending}", payload, step=wait.step, run=wait.run, cause=cause)
        routing.route(decision, wait.step, wait.run, ended)
        return
    step_run = _open_run(decision.state, wait)
    chunk = chunk_with(step_run, wait.iteration)
    event = _emit(decision, f"loop.iteration.{ending}", wait, payload, cause, of_task=False)
    loops.iteration_ended(decision, event)
    if step_run.state == "open" and chunk.id in step_run.chunks:
        resume(decision, wait, len(decision.txn.events) - 1)


def _emit(
    decision: Decision,
    kind: str,
    wait: Wait,
    payload: dict[str, Any],
    cause: int,
    *,
    command_id: int = 0,
    of_task: bool = True,
) -> Event:
    event = Event(
        type=kind,
        at=decision.now,
        step=wait.step,
        run=wait.run,
        iteration=wait.iteration,
        task=wait.task if of_task else "",
        task_run=wait.task_run if of_task else 0,
        command_id=command_id,
        cause=len(decision.txn.events) - cause if cause >= 0 else 0,
        payload=payload,
    )
    if not of_task:
        decision.measure(event)
    decision.emit(event)
    return event


def _complete(
    record: dict[str, Any], task: TaskProgram, wait: Wait, attempt: int, now: int, room: int
) -> dict[str, Any]:
    """Complete the record as a worker would: add the kind's helper fields and meta, and fit it into an event."""
    meta = {**(record.get("meta") or {}), "attempt": attempt, "duration_ms": max(0, now - wait.since) // 1000}
    outcome = {**task.plan.helper, **record, "meta": meta}
    size = len(encode(outcome))
    if size <= room:
        return outcome
    if record.get("error") is not None and (record["error"].get("cause") or record.get("result")):
        # A failure keeps its own fields and drops its cause first.
        short = {key: value for key, value in record["error"].items() if key != "cause"}
        return _complete({**record, "error": short, "result": None}, task, wait, attempt, now, room)
    message = f"the outcome of task {wait.task} takes {size} bytes; an event holds {room} (limits.max_payload_bytes)"
    problem = failed(error("limit", message, code="MAX_PAYLOAD_BYTES"))
    return {**task.plan.helper, **problem.as_record(), "meta": meta}


def frame_of(program: Program, state: State, step_run: StepRun, iteration: tuple[int, ...] | None) -> Frame:
    """Return the context of a pipeline that the server continues."""
    step = program.steps[step_run.step]
    return Frame(
        execution_id=str(state.execution_id),
        args=step_run.args,
        captured=step_run.captured,
        step=step_run.step,
        run=step_run.run,
        names=step.names,
        iteration=iteration,
        emit=step.emit,
        event_room=program.event_room,
    )


def jitter(decision: Decision) -> float:
    """Return a number in [0, 1) for the jitter of a retry, computed from the decision's id."""
    return (decision.base_id * 2_654_435_761 % 2**32) / 2**32


def _task(program: Program, event: Event) -> TaskProgram:
    step = program.steps[event.step]
    return step.tasks[step.index[event.task]]


def _open_run(state: State, wait: Wait) -> StepRun:
    step_run = state.run_of(wait.step, wait.run)
    if step_run is None:
        raise InvariantBroken(f"wait {wait.key} outlived its step run")
    return step_run


def fire_timer(decision: Decision, fired: TimerFired) -> None:
    """Record that a timer fired, and act on it. `now` is read for this decision, so a timer never fires early."""
    timer_id = fired.timer_id
    due = decision.state.timers.get(timer_id)
    if due is None:
        decision.txn.refused = Refused("closed", f"there is no open timer {timer_id}")
        return
    if decision.now < due:
        decision.txn.refused = Refused("early", f"timer {timer_id} is not due yet")
        return
    cause = decision.record("timer.fired", {"timer": timer_id, "due": due})
    if timer_id == EXECUTION:
        limit = decision.program.plan.timeout_s
        message = f"the execution took longer than {limit:g} s (executor.spec.timeout_s)"
        decision.fail_execution(error("timeout", message).as_dict(), cause)
    elif timer_id.startswith((TIMEOUT, DEADLINE)):
        _step_is_late(decision, timer_id, cause)
    else:
        _end_wait(decision, decision.state.waits[timer_id.removeprefix(WAIT)], cause)


def _step_is_late(decision: Decision, timer_id: str, cause: int) -> None:
    which, _, key = timer_id.partition(":")
    step_run = decision.state.open[key]
    plan = decision.program.steps[step_run.step].plan
    if which == "timeout":
        message = f"step {step_run.step} took longer than {plan.timeout_s:g} s (lifecycle.timeout_s)"
    else:
        message = f"step {step_run.step} was not over {plan.deadline_s:g} s after the run began (lifecycle.deadline_s)"
    problem = error("timeout", message)
    decision.withdraw_commands(TOO_LONG, (step_run.step, step_run.run), cause=cause)
    if step_run.pipeline is not None:
        # The task in progress used up the time: the timeout becomes its outcome, which arcs see.
        closing.end_task(decision, step_run, None, step_run.pipeline, problem, cause)
    else:
        closing.end_parts(decision, step_run, closing.Reason("step_late", message), cause)
    decision.fail_step(step_run.step, step_run.run, problem.as_dict(), cause)


def _end_wait(decision: Decision, wait: Wait, cause: int) -> None:
    if wait.kind == RETRY:
        resume(decision, wait, cause)
        return
    waited_ms = max(0, decision.now - wait.since) // 1000
    outcome = Outcome(result={"waited_ms": waited_ms})
    if not is_over(wait, decision.now):
        signal = wait.config.get("signal")
        missed = f"signal {signal!r} did not come" if signal else "it was not over"
        problem = {"wait": missed, "approval": "nobody decided", "playbook": "the child did not end"}[wait.kind]
        message = f"task {wait.task}: {problem} within {waited_ms / 1000:g} s"
        outcome = failed(error("timeout", message))
    resolve(decision, wait.key, outcome.as_record(), cause)


#: The longest wait, also for values from templates.
MAX_WAIT_S = LONGEST_S


def ends_at(wait: Wait, task: TaskPlan, now: int) -> tuple[int, TaskError | None]:
    """Return the time at which the wait ends automatically (0 for never), and the error of its config."""
    try:
        until = _READ[wait.kind](wait.config, now)
        limit = task.spec.get("timeout")
        if limit is not None:
            late = after(now, _seconds(limit, "spec.timeout"))
            until = min(until, late) if until else late
    except ValueError as problem:
        return 0, error("config", f"task {wait.task}: {problem}")
    return until, None


def is_over(wait: Wait, now: int) -> bool:
    """Return whether a `wait` for a time is over. Any other wait whose timer fires has timed out."""
    config = wait.config
    if wait.kind != "wait" or "signal" in config:
        return False
    return now >= (_instant(config["until"]) if "until" in config else after(wait.since, float(config["for_s"])))


def _of_wait(config: dict[str, Any], now: int) -> int:
    ways = [key for key in ("for_s", "until", "signal") if config.get(key) is not None]
    if len(ways) != 1:
        raise ValueError(f"exactly one of for_s, until and signal is needed, not {len(ways)}")
    if ways != ["signal"]:
        if "timeout_s" in config:
            raise ValueError("timeout_s goes with signal")
        return after(now, _seconds(config["for_s"], "for_s", 0.0)) if ways == ["for_s"] else _instant(config["until"])
    if not isinstance(config["signal"], str) or not config["signal"]:
        raise ValueError(f"signal is a name, not {_shown(config['signal'])}")
    return _timeout(config, now)


def _of_approval(config: dict[str, Any], now: int) -> int:
    approvers = config.get("approvers") or []
    if not isinstance(approvers, list) or not all(isinstance(approver, str) for approver in approvers):
        raise ValueError(f"approvers is a list of roles and names, not {_shown(approvers)}")
    return _timeout(config, now)


def _of_playbook(config: dict[str, Any], _: int) -> int:
    path, version = config.get("path", config.get("file")), config.get("version")
    if not isinstance(path, str) or not path:
        raise ValueError(f"path is the catalog path of a playbook, not {_shown(path)}")
    if version is not None and not (str(version).isascii() and str(version).isdigit() and int(version) > 0):
        raise ValueError(f"version is a whole number from 1, not {_shown(version)}")
    if not isinstance(config.get("args") or {}, dict):
        raise ValueError(f"args is a map, not {_shown(config['args'])}")  # noqa: TRY004 - the author's value
    if not isinstance(config.get("wait", True), bool):
        raise ValueError(f"wait is true or false, not {_shown(config['wait'])}")  # noqa: TRY004 - the author's value
    return 0


_READ = {"wait": _of_wait, "approval": _of_approval, "playbook": _of_playbook}


def _timeout(config: dict[str, Any], now: int) -> int:
    timeout_s = config.get("timeout_s")
    return 0 if timeout_s is None else after(now, _seconds(timeout_s, "timeout_s"))


def _seconds(value: Any, name: str, least: float | None = None) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is a number of seconds, not {_shown(value)}")  # noqa: TRY004 - the author's value
    if not (value >= least if least is not None else value > 0) or value > MAX_WAIT_S:
        raise ValueError(
            f"{name} is {value}; it must be {'0 or more' if least == 0 else 'more than 0'} and at most {MAX_WAIT_S}"
        )
    return float(value)


def _instant(value: Any) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f"until is an RFC 3339 time such as 2027-01-31T09:00:00Z, not {_shown(value)}") from None
    if moment.tzinfo is None:
        raise ValueError(f"until needs an offset or Z: {_shown(value)}")
    return max(1, round(moment.timestamp() * MICROS))


def _shown(value: Any) -> str:
    return shortened(repr(value), 60, "...")
