"""A pipeline of tasks: the next move, retries and their delays, and the effects of an outcome.

Invariant: the worker calls `next_move`, runs the task, passes its outcome to `conclude`, and folds the resulting events
with `fold`; the server folds the same events with the same function. So both have the same Pipeline, and another worker
can continue exactly where the log ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from arclog.core.flow.reducers import extended, refused
from arclog.core.flow.scopes import guard_scope, task_scope
from arclog.expr import Reader
from arclog.model.commands import UNEVALUABLE, UNMATCHED, Captured, Pipeline
from arclog.model.errors import ExpressionError, InvariantBroken, ResultUnavailable, shortened
from arclog.model.events import Event
from arclog.model.ids import MICROS
from arclog.model.outcome import ERROR, OK, Outcome, TaskError, error, failed, result_error
from arclog.plan.guards import Back, Begin, Go, Guards, Reach, Round, Test
from arclog.plan.net import Action, Block
from arclog.plan.program import Absent, Names, RuleProgram, StepProgram, TaskProgram


class Run(Struct, frozen=True):
    """Start (or repeat) an attempt of a task."""

    task: TaskProgram
    task_run: int
    attempt: int
    #: earliest time of the attempt; 0 for now
    due: int
    #: whether its start is in the log already, because the worker that started it is gone
    repeated: bool
    #: counts of rounds that the start changes, by block
    rounds: dict[str, int] = {}


class Ask(Struct, frozen=True):
    """Guards decide the next move; `guarded_move` evaluates them. Only a worker can read all data that they may use."""


class Over(Struct, frozen=True):
    """The pipeline has ended."""

    #: None if it succeeded
    error: dict[str, Any] | None


class Frame(Struct):
    """The surroundings of a pipeline: the data that its templates see besides its own."""

    execution_id: str
    args: dict[str, Any]
    captured: Captured
    step: str
    run: int
    #: metadata of the values
    names: Names = Names(Absent())
    iteration: tuple[int, ...] | None = None
    #: optional event types to record
    emit: frozenset[str] = frozenset()
    #: maximum bytes of an event's payload
    event_room: int = 1 << 30
    #: reads stored data; None on the server
    read: Reader | None = None


def next_move(pipeline: Pipeline, step: StepProgram, max_task_runs: int) -> Run | Ask | Over:
    """Return the next move of a worker."""
    if pipeline.state != "open":
        return Over(pipeline.error)
    at = next_index(pipeline, step)
    return Ask() if at is None else _run(pipeline, step, at, max_task_runs)


def next_index(pipeline: Pipeline, step: StepProgram) -> int | None:
    """Return the index of the task that runs or comes next; None if guards decide.

    After the last task, the index is the number of tasks.
    """
    if step.guards is None or pipeline.attempt or pipeline.direct:
        return pipeline.at
    return step.guards.certain(pipeline.at)


def guarded_move(pipeline: Pipeline, step: StepProgram, frame: Frame, max_task_runs: int) -> Run | Over:
    """Return the next move after evaluating the guards, when `next_move` returned Ask."""
    if step.guards is None:
        raise InvariantBroken(f"the task list of step {step.name} has no guards")
    reached = follow(step.guards, pipeline.at, pipeline.rounds, lambda: guard_scope(pipeline, frame))
    if reached.problem is not None:
        return Over(reached.problem.as_dict())
    at = len(step.tasks) if reached.index is None else reached.index
    return _run(pipeline, step, at, max_task_runs, reached.rounds)


def _run(
    pipeline: Pipeline, step: StepProgram, at: int, max_task_runs: int, rounds: dict[str, int] | None = None
) -> Run | Over:
    if at >= len(step.tasks):
        return Over(None)
    task = step.tasks[at]
    if pipeline.attempt:
        return Run(task, pipeline.runs[task.plan.name], pipeline.attempt, pipeline.due, pipeline.in_flight)
    if pipeline.total_runs >= max_task_runs:
        message = (
            f"the pipeline of step {step.name} reached {max_task_runs} task runs (limits.max_task_runs); "
            "does a jump lack its way out?"
        )
        return Over(error("limit", message, code="MAX_TASK_RUNS").as_dict())
    return Run(task, pipeline.runs.get(task.plan.name, 0) + 1, 1, 0, repeated=False, rounds=rounds or {})


def started(move: Run, frame: Frame, now: int, inputs: Any, config: dict[str, Any] | None = None) -> list[Event]:
    """Return the events of the start of an attempt: task.started, and task.attempt.started from the second attempt on.

    With a `config`, the engine runs the attempt: a single event records it and passes the pipeline to the server.
    """
    payload: dict[str, Any] = {"inputs": inputs} if inputs else {}
    if move.rounds:
        payload["rounds"] = move.rounds
    if config is not None:
        payload["config"] = config
        first = move.attempt == 1
        return [
            _event("task.started" if first else "task.attempt.started", move, frame, now, payload, attempt=not first)
        ]
    events = []
    if move.attempt == 1:
        events.append(_event("task.started", move, frame, now, payload))
    if move.attempt > 1 or "task.attempt.started" in frame.emit:
        events.append(_event("task.attempt.started", move, frame, now, {}, attempt=True))
    return events


def conclude(
    pipeline: Pipeline,
    move: Run,
    frame: Frame,
    record: dict[str, Any],
    now: int,
    roll: float,
    max_set_bytes: int,
    longest_sleep_s: float = 60.0,
    *,
    stores_iter: bool = False,
) -> list[Event]:
    """Return the events of an ended attempt: its outcome, and the decision of the task's policy.

    `roll` is a random number in [0, 1) for the jitter; the resulting due time is in the event. A delay longer than
    `longest_sleep_s` suspends the pipeline: a timer of the engine ends the delay, and no worker slot is occupied
    meanwhile. With `stores_iter` the caller moves large set_iter values to the result store, so their size is not
    checked.
    """
    ok = record["status"] == OK
    if move.task.plan.policy is None:
        return _final(move, frame, record, now, failed=not ok)
    try:
        index, rule, scope = _matched(pipeline, move, frame, record)
        then = Action(do=move.task.plan.policy.on_unmatched) if rule is None else rule.rule.then
        set_iter, set_ctx = _changes(scope, rule)
        failure_error = _failure(pipeline, move, frame, record, rule)
        problem = refused(frame.names.reducers, set_ctx) or _oversized(set_ctx, "set_ctx", max_set_bytes, frame)
        if not stores_iter:
            problem = problem or _oversized({**set_ctx, **set_iter}, "set_iter", max_set_bytes, frame)
    except ExpressionError as failure:
        problem = error("template", str(failure))
    if problem is not None:
        events = _final(move, frame, record, now, failed=not ok)
        reason = problem.as_dict() if ok else {**problem.as_dict(), "cause": record.get("error")}
        payload: dict[str, Any] = {"matched_rule_index": None, "action": {"do": "fail"}, "error": reason}
        events.append(_event("policy.task.evaluated", move, frame, now, payload, status="error"))
        return events
    payload = {"matched_rule_index": index, "action": _action_payload(then)}
    if set_iter:
        payload["set_iter"] = set_iter
    if set_ctx:
        payload["set_ctx"] = set_ctx
    if then.do != "retry":
        if failure_error is not None:
            payload["error"] = failure_error
        elif then.do == "fail" and ok and not move.task.plan.origin:
            payload["error"] = _refusal(move, index).as_dict()
        events = _final(move, frame, record, now, failed=not ok)
        events.append(_event("policy.task.evaluated", move, frame, now, payload))
        return events
    if move.attempt < then.attempts:
        payload["due"] = now + round(_delay(then, move.attempt, record, roll) * MICROS)
        if payload["due"] - now > longest_sleep_s * MICROS:
            payload["suspended"] = True
        kind = "task.attempt.done" if ok else "task.attempt.failed"
        attempt = _event(kind, move, frame, now, {"outcome": record}, attempt=True)
        return [attempt, _event("policy.task.evaluated", move, frame, now, payload, attempt=True)]
    message = f"task {move.task.plan.name} used all {then.attempts} attempts"
    last = record.get("error")
    exhausted = error("limit", message, code="ATTEMPTS").as_dict()
    if last:
        exhausted = {**last, "message": f"{message}: {last['message']}"}
    payload["action"] = {"do": "fail"}
    payload["error"] = exhausted
    events = _final(move, frame, record, now, failed=True)
    events.append(_event("policy.task.evaluated", move, frame, now, payload, status="error"))
    return events


def _refusal(move: Run, index: int | None) -> TaskError:
    """Return the error of a task that succeeded but is failed by its policy."""
    name, policy = move.task.plan.name, move.task.plan.policy
    which = "no rule of its policy matched, and on_unmatched is fail"
    if index is not None and policy is not None:
        rule = policy.rules[index]
        when = "else" if rule.when is None else f"when {rule.when}"
        which = f"rule {index + 1} of its policy{f' at {rule.at}' if rule.at.line else ''} ({when}) says fail"
    return error("exception", f"task {name} ended ok, but {which}", code="POLICY")


def fold(pipeline: Pipeline, step: StepProgram, event: Event) -> None:
    """Apply one event to the pipeline."""
    FOLD[event.type](pipeline, step, event)


def _on_started(pipeline: Pipeline, step: StepProgram, event: Event) -> None:
    pipeline.at = step.index[event.task]
    pipeline.runs = {**pipeline.runs, event.task: event.task_run}
    pipeline.total_runs += 1
    pipeline.direct = False
    if "rounds" in event.payload:
        pipeline.rounds = {**pipeline.rounds, **event.payload["rounds"]}
    pipeline.attempt = 1
    pipeline.in_flight = True
    pipeline.due = 0
    pipeline.since = event.at


def _on_attempt_started(pipeline: Pipeline, _: StepProgram, event: Event) -> None:
    pipeline.attempt = event.attempt
    pipeline.in_flight = True
    pipeline.due = 0
    pipeline.since = event.at


def _on_attempt_ended(pipeline: Pipeline, _step: StepProgram, _event: Event) -> None:
    pipeline.in_flight = False


def _on_ended(pipeline: Pipeline, step: StepProgram, event: Event) -> None:
    record = event.payload["outcome"]
    pipeline.results = {**pipeline.results, event.task: record}
    pipeline.prev = event.task
    pipeline.in_flight = False
    pipeline.attempt = 0
    # This task comes next until its policy decides otherwise.
    pipeline.direct = step.tasks[step.index[event.task]].plan.policy is not None
    if not pipeline.direct:
        if event.type == "task.done":
            pipeline.at += 1
        else:
            _fail(pipeline, record.get("error"))


def _on_policy(pipeline: Pipeline, step: StepProgram, event: Event) -> None:
    payload = event.payload
    if "set_iter" in payload or "set_iter_refs" in payload:
        plain, refs = payload.get("set_iter") or {}, payload.get("set_iter_refs") or {}
        # The last value wins, however it is stored.
        pipeline.iter = {name: value for name, value in pipeline.iter.items() if name not in refs} | plain
        pipeline.stored = {name: ref for name, ref in pipeline.stored.items() if name not in plain} | refs
    if "set_ctx" in payload:
        reducers = step.names.reducers
        pipeline.ctx = extended(reducers, pipeline.ctx, payload["set_ctx"])
        problem = refused(reducers, payload["set_ctx"])
        if problem is not None:
            _fail(pipeline, problem.as_dict())
            return
    action = payload["action"]
    match action["do"]:
        case "retry":
            pipeline.attempt = event.attempt + 1
            pipeline.due = payload["due"]
        case "continue":
            pipeline.at += 1
            pipeline.direct = False
        case "jump":
            pipeline.at = step.index[action["to"]]
            pipeline.direct = True
        case "break":
            pipeline.state = "done"
        case _:
            last = pipeline.results[event.task].get("error")
            origin = step.tasks[step.index[event.task]].plan.origin
            message = origin or f"the policy of task {event.task} chose to fail"
            pipeline.rule = _failing_rule(event)
            _fail(pipeline, payload.get("error") or last or error("exception", message, code="POLICY").as_dict())


def last_record(step: StepProgram, pipeline: Pipeline, *, failed: bool) -> dict[str, Any] | None:
    """Return the outcome record of an ended pipeline: that of its last task.

    If the guards skipped every task, the record has only the status ok.
    """
    if pipeline.prev:
        record: dict[str, Any] = pipeline.results[pipeline.prev]
        return record
    return {"status": OK} if step.plan.flow and not failed else None


def _failing_rule(event: Event) -> int:
    """Return the rule that failed the pipeline, numbered as in `Pipeline.rule`."""
    index = event.payload["matched_rule_index"]
    if index is not None:
        return int(index) + 1
    return UNEVALUABLE if event.status == "error" else UNMATCHED


def _fail(pipeline: Pipeline, problem: dict[str, Any] | None) -> None:
    pipeline.state = "failed"
    pipeline.error = problem


def _on_stored(_pipeline: Pipeline, _step: StepProgram, _event: Event) -> None:
    """Do nothing: the next event has the reference of the stored content."""


#: event type → the function that applies it to a pipeline
FOLD = {
    "task.started": _on_started,
    "task.attempt.started": _on_attempt_started,
    "task.attempt.done": _on_attempt_ended,
    "task.attempt.failed": _on_attempt_ended,
    "task.done": _on_ended,
    "task.failed": _on_ended,
    "policy.task.evaluated": _on_policy,
    "result.stored": _on_stored,
}


def _matched(
    pipeline: Pipeline, move: Run, frame: Frame, record: dict[str, Any]
) -> tuple[int | None, RuleProgram | None, Mapping[str, Any]]:
    """Return the first rule that matches, its index, and the names for its values."""
    scope = task_scope(pipeline, frame, move, record)
    for index, rule in enumerate(move.task.rules):
        if rule.condition.template is None or rule.condition.holds(scope):
            return index, rule, scope
    return None, None, scope


def _changes(scope: Mapping[str, Any], rule: RuleProgram | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Evaluate the values that the rule sets in iter and ctx, in the scope before the change."""
    if rule is None or not (rule.rule.then.set_iter or rule.rule.then.set_ctx):
        return {}, {}
    return rule.set_iter.evaluate(scope), rule.set_ctx.evaluate(scope)


#: Maximum length of the message that a rule gives an error.
_MAX_MESSAGE = 4_000


def _failure(
    pipeline: Pipeline, move: Run, frame: Frame, record: dict[str, Any], rule: RuleProgram | None
) -> dict[str, Any] | None:
    """Return the error of a rule that fails the task with its own message or code; None if it has neither."""
    if rule is None or not (rule.rule.then.message or rule.rule.then.code):
        return None
    own = record.get("error")
    problem = dict(own or error("exception", f"task {move.task.plan.name} ended ok", code="POLICY").as_dict())
    if rule.message is not None:
        value = rule.message.evaluate(task_scope(pipeline, frame, move, record))
        text = value if isinstance(value, str) else encode(value).decode()
        problem["message"] = shortened(text, _MAX_MESSAGE)
    if rule.rule.then.code:
        problem["code"] = rule.rule.then.code
    return {**problem, "cause": own} if own else problem


def _final(move: Run, frame: Frame, record: dict[str, Any], now: int, *, failed: bool) -> list[Event]:
    """Return the end of a task run. After a retry, the last attempt is recorded as well, without its data."""
    events = []
    kind = "task.attempt.done" if record["status"] == OK else "task.attempt.failed"
    if move.attempt > 1 or kind in frame.emit:
        outcome = {key: record[key] for key in ("status", "error", "meta") if key in record}
        events.append(_event(kind, move, frame, now, {"outcome": outcome}, attempt=True))
    kind = "task.failed" if failed else "task.done"
    events.append(_event(kind, move, frame, now, {"outcome": record}))
    return events


def _event(
    kind: str,
    move: Run,
    frame: Frame,
    now: int,
    payload: dict[str, Any],
    *,
    attempt: bool = False,
    status: str = "",
) -> Event:
    return Event(
        type=kind,
        at=now,
        step=frame.step,
        run=frame.run,
        iteration=frame.iteration,
        task=move.task.plan.name,
        task_run=move.task_run,
        attempt=move.attempt if attempt or move.attempt > 1 else 0,
        status=status,
        payload=payload,
    )


def _oversized(values: dict[str, Any], name: str, max_bytes: int, frame: Frame) -> TaskError | None:
    """Return why values cannot be stored: each has a limit, and one event must hold all of them."""
    most = min(max_bytes, frame.event_room)
    total = 0
    for key, value in values.items():
        if isinstance(value, (str, list, dict)) and value:
            size = len(encode(value))
            total += size
            if size > most:
                setting = "limits.max_ctx_bytes" if max_bytes <= frame.event_room else "limits.max_payload_bytes"
                message = f"{name}.{key} is {size} bytes; at most {most} are kept ({setting}); {_way_out(frame)}"
                return error("limit", message, code="MAX_CTX_BYTES")
    if total > frame.event_room:
        message = (
            f"the values of {name} take {total} bytes; one event holds {frame.event_room} (limits.max_payload_bytes); "
            f"{_way_out(frame)}"
        )
        return error("limit", message, code="MAX_PAYLOAD_BYTES")
    return None


def _way_out(frame: Frame) -> str:
    """A hint for large data: return it from the task, so that it is stored by reference."""
    view = frame.step if frame.iteration is None else f"{frame.step}.results"
    return f"let the task return it, and read {{{{ {view} }}}} in later steps"


def _delay(action: Action, attempt: int, record: Mapping[str, Any], roll: float) -> float:
    """Return the seconds before the next attempt; a Retry-After of the server is the minimum."""
    if action.delays:
        delay = action.delays[min(attempt, len(action.delays)) - 1]
    else:
        delay = action.delay * _factor(action.backoff, attempt)
    delay = min(delay, action.max_delay)
    delay += delay * action.jitter * roll
    retry_after_s = (record.get("meta") or {}).get("retry_after_s")
    return max(delay, float(retry_after_s)) if record["status"] == ERROR and retry_after_s else delay


def _factor(backoff: str, attempt: int) -> float:
    return {"none": 1.0, "linear": float(attempt), "exponential": 2.0 ** min(attempt - 1, 62)}[backoff]


def _action_payload(action: Action) -> dict[str, Any]:
    payload: dict[str, Any] = {"do": action.do}
    if action.do == "jump":
        payload["to"] = action.to
    elif action.do == "retry":
        payload.update(attempts=action.attempts, backoff=action.backoff, delay=action.delay)
        if action.delays:
            payload["delays"] = list(action.delays)
    return payload


# Guards of a task list: from the position of a pipeline to its next task.
#
# Invariant: nothing that a condition reads
# changes between two tasks, so evaluating guards again gives the same result, and a round without a task would repeat
# forever. Only the count of rounds changes; it is recorded in the `task.started` of the task that is reached.


class Reached(Struct, frozen=True):
    """The task that guards lead to."""

    #: index of the next task; None at the end of the list or after an error
    index: int | None
    #: changed counts of rounds, by block
    rounds: dict[str, int] = {}
    problem: TaskError | None = None


def follow(guards: Guards, at: int, rounds: Mapping[str, int], scope: Callable[[], Mapping[str, Any]]) -> Reached:
    """Follow the guards from the position after the first `at` tasks to the next task.

    `scope` returns the names for conditions.
    """
    position = guards.position(at)
    counts: dict[str, int] = {}
    again: set[str] = set()
    names: Mapping[str, Any] | None = None
    while position < guards.end:
        code = guards.code[position]
        position += 1
        match code:
            case Reach():
                changed = {name: count for name, count in counts.items() if count != rounds.get(name, 0)}
                return Reached(code.index, changed)
            case Test():
                if names is None and code.condition.template is not None:
                    names = scope()
                try:
                    holds = code.condition.holds(names or {})
                except ExpressionError as failure:
                    return _failed(code.block, _problem(failure))
                if not holds:
                    position = code.otherwise
            case Go():
                position = code.to
            case Begin():
                counts[code.name] = 0
            case Round():
                name = code.block.name
                count = counts.get(name, rounds.get(name, 0)) + 1
                if count > code.max:
                    return _over(code.block)
                counts[name] = count
            case Back():
                name = code.block.name
                if name in again:
                    return _endless(code.block)
                again.add(name)
                position = code.to
    return Reached(None)


def _over(block: Block) -> Reached:
    still = "still true" if block.word == "while" else "still not true"
    message = f"its condition is {still} after {block.max} rounds (max: {block.max})"
    return _failed(block, error("limit", message, code="MAX_ROUNDS"))


def _endless(block: Block) -> Reached:
    if block.max is not None:
        return _over(block)
    message = "a round ran no task, so its condition never changes"
    return _failed(block, error("config", message, code="ENDLESS_ROUNDS"))


def _problem(failure: ExpressionError) -> TaskError:
    if isinstance(failure.__cause__, ResultUnavailable):
        return replace(result_error(failure.__cause__), message=str(failure))
    return error("template", str(failure))


def _failed(block: Block, problem: TaskError) -> Reached:
    return Reached(None, problem=replace(problem, message=f"{block.word} at {block.at}: {problem.message}"))


def asserted(config: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a task of kind `assert`: an error unless all conditions hold.

    The worker runs it without a tool. `that` has the evaluated conditions, `text` their source.
    """
    broken = [text for text, holds in zip(config["text"], config["that"], strict=True) if not holds]
    if not broken:
        return Outcome(result={"checked": len(config["that"])})
    message = config.get("message") or f"does not hold: {'; '.join(broken)}"
    return failed(error("exception", str(message), code=str(config.get("code") or "ASSERT")))
