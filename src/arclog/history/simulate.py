"""Runs a playbook against the recorded outcomes of a run. No tool is called and nothing is written.

Invariant: `core.transitions.decide` decides the simulated run, and `core.flow.pipeline` runs its tasks, as in a real
run; only the answers of tools come from the log. Commands run in the order in which the recorded ones ended, so that
branches see each other's ctx as they did then.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct

from arclog.core.boundary.inputs import (
    ChildEnded,
    Continue,
    Input,
    Request,
    Signal,
    TakeSlot,
    TimerFired,
    Txn,
    WorkReported,
)
from arclog.core.boundary.projection import command_of
from arclog.core.flow.pipeline import Run, asserted
from arclog.core.flow.waits import RETRY
from arclog.core.transitions.decide import Decision
from arclog.core.transitions.state import OpenCommand, State, Wait
from arclog.core.transitions.timers import DEADLINE, EXECUTION, TIMEOUT, WAIT
from arclog.expr import MISSING, Meter, Reader, path_text
from arclog.history.simulated_tasks import Answer, Answers, Carrying, Place, Unanswered, same_inputs
from arclog.model.commands import Command
from arclog.model.errors import ResultUnavailable
from arclog.model.events import Event
from arclog.model.ids import moved
from arclog.model.outcome import Outcome
from arclog.plan.program import Program, StepProgram, TaskProgram
from arclog.plan.reads import payload_paths, value_at

#: Signals that steer steps and values of a run; others are part of the outcomes of the tasks that waited for them.
_STEERING = frozenset({"RETRY_STEP", "SKIP_STEP", "UPDATE_PARAMS", "CANCEL", "EMERGENCY_STOP"})
_WORKER = "simulation"
_TYPE = attrgetter("type")


class Call(Struct, frozen=True):
    """A call of a simulated run without a recorded answer, or with the answer to a different call."""

    step: str
    run: int
    #: indexes of the loop item
    item: tuple[int, ...]
    task: str
    kind: str
    attempt: int
    reason: str
    #: rendered inputs
    inputs: Any = None


class Limits(Struct, frozen=True):
    """The limits of a simulation."""

    #: events of one simulated run
    max_events: int = 200_000
    #: bytes of a value in ctx
    max_ctx_bytes: int = 65_536
    #: a longer delay before a retry is a timer
    longest_sleep_s: float = 60.0
    extracted_max_bytes: int = 16_384


class Simulated(Struct):
    """A simulated run."""

    state: State
    events: list[Event]
    #: calls without a recorded answer; their steps did not continue
    unanswered: list[Call]
    #: calls that were answered although their inputs or code have changed
    assumed: list[Call]
    #: it was stopped at `Limits.max_events`
    is_cut: bool = False


class Simulation:
    """One run of a program against the answers of a log."""

    def __init__(
        self,
        program: Program,
        execution_id: int,
        answers: Answers,
        recorded: Sequence[Event],
        limits: Limits,
        *,
        strict: bool = False,
        read: Reader | None = None,
        meter: Callable[[], Meter | None] = lambda: None,
    ) -> None:
        """With `strict`, a call whose inputs or code have changed has no answer."""
        self.program = program
        self.answers = answers
        self.state = State(execution_id=execution_id)
        self.limits = limits
        self.events: list[Event] = []
        self.unanswered: list[Call] = []
        self.assumed: list[Call] = []
        self._strict = strict
        self.reader = read
        self._meter = meter
        self._recorded = recorded
        #: the clock of the simulated run
        self.now = recorded[0].at
        #: (order, number, command id) of open commands
        self._ready: list[tuple[int, int, int]] = []
        self._pushed = 0
        #: (index, event) of steering signals that are still to come, the last one first
        self._signals = list(reversed(_steering_signals(recorded)))
        #: step runs with a task that the server ended in the log
        self._late: set[tuple[str, int]] = set()
        self._waiting: set[str] = set()

    def run(self, request: Request) -> Simulated:
        """Run to the end, or as far as the log has answers."""
        self._put(request)
        if self.state.pending_for == "slot":
            self._put(TakeSlot())
        elif self.state.pending_for:
            self._put(Signal("APPROVE", "simulated", by=_WORKER))
        is_cut = False
        while self.state.terminal is None:
            if len(self.events) > self.limits.max_events:
                is_cut = True
                break
            if not self._step():
                break
        # Step runs that ended without these answers did not need them.
        unanswered = [call for call in self.unanswered if self.state.run_of(call.step, call.run) is not None]
        return Simulated(self.state, self.events, unanswered, self.assumed, is_cut)

    def _step(self) -> bool:
        """Take the next action. Return False if there is none."""
        order = self._ready[0][0] if self._ready else None
        if self._signals and (order is None or self._signals[-1][0] < order) and self._signal():
            return True
        if order is not None:
            _, _, command_id = heapq.heappop(self._ready)
            command = self.state.commands.get(command_id)
            if command is not None:
                self._carry_out(command)
            return True
        return self._end_waits() or self._fire()

    # -- inputs -----------------------------------------------------------------------------------------------------------

    def _put(self, incoming: Input) -> Txn:
        return self._take(self._decision().run(incoming))

    def _decision(self) -> Decision:
        base = moved(self.state.execution_id, 1 + len(self.events))
        return Decision(self.program, self.state, self.now, base, self._meter())

    def _take(self, txn: Txn) -> Txn:
        self.events += txn.events
        for work in txn.issue:
            self._push(work.command_id)
        for command_id in txn.release:
            self._push(command_id)
        if txn.more:
            self._put(Continue())
        return txn

    def _push(self, command_id: int) -> None:
        command = self.state.commands.get(command_id)
        if command is None:
            return
        path: tuple[int, ...] = ()
        if command.chunk:
            step_run = self.state.run_of(command.step, command.run)
            chunk = None if step_run is None else step_run.chunks.get(command.chunk)
            if chunk is not None:
                path = (*chunk.path, chunk.last - 1)
        self._pushed += 1
        order = self.answers.order(command.step, command.run, path)
        if path and not order:
            order = self.answers.order(command.step, command.run)
        heapq.heappush(self._ready, (order, self._pushed, command_id))

    def _signal(self) -> bool:
        """Give the run the next signal of the log."""
        index, event = self._signals.pop()
        payload = event.payload
        if payload.get("step"):
            self._come_to(payload["step"])
        self.now = max(self.now, self.answers.at(index))
        signal = Signal(
            payload["signal"],
            payload["signal_id"],
            payload.get("reason", ""),
            payload.get("by", ""),
            payload.get("step", ""),
            payload.get("data"),
            most_kept=1000,
        )
        return self._put(signal).refused is None or bool(self._signals)

    def _come_to(self, step: str) -> None:
        """Run the commands of the step that a signal concerns, as far as the log has answers."""
        mine = [
            entry
            for entry in self._ready
            if entry[2] in self.state.commands and self.state.commands[entry[2]].step == step
        ]
        for entry in mine:
            self._ready.remove(entry)
            self._carry_out(self.state.commands[entry[2]])
        heapq.heapify(self._ready)

    def _end_waits(self) -> bool:
        """Give a task that waits its recorded outcome."""
        answered: list[tuple[int, Wait, dict[str, Any]]] = []
        for key, wait in self.state.waits.items():
            if key in self._waiting or wait.kind == RETRY:
                continue
            place = (wait.step, wait.run, wait.iteration or (), wait.task, wait.task_run)
            answer = self._answer(place, self._attempt_of(wait), None, wait.kind)
            if answer is None or answer.record is None:
                self._waiting.add(key)
                if answer is not None:
                    self._late.add((wait.step, wait.run))
                elif WAIT + key not in self.state.timers:
                    self._miss(place, wait.kind, 1, "it waits, and the log has no end of that wait", wait.config)
                continue
            answered.append((answer.index, wait, answer.record))
        if not answered:
            return False
        index, wait, record = min(answered, key=lambda answer: answer[0])
        self.now = max(self.now, self.answers.at(index))
        return self._put(ChildEnded(wait.key, wait.child, record)).refused is None

    def _attempt_of(self, wait: Wait) -> int:
        step_run = self.state.run_of(wait.step, wait.run)
        if step_run is None:
            return 1
        pipelines = dict(step_run.open_pipelines())
        place = pipelines.get(wait.iteration)
        return 1 if place is None else place.attempt or 1

    def _fire(self) -> bool:
        """Fire the next timer that ends a wait or a delay, or whose time limit also expired in the log."""
        due = [(moment, timer) for timer, moment in self.state.timers.items() if self._ends(timer)]
        if not due:
            return False
        moment, timer = min(due)
        self.now = max(self.now, moment)
        return self._put(TimerFired(timer)).refused is None

    def _ends(self, timer: str) -> bool:
        if timer.startswith(WAIT):
            return True
        if timer == EXECUTION:
            return bool(self._late)
        if timer.startswith((TIMEOUT, DEADLINE)):
            step_run = self.state.open.get(timer.partition(":")[2])
            return step_run is not None and (step_run.step, step_run.run) in self._late
        return False

    # -- carrying out commands ----------------------------------------------------------------------------------------------

    def _carry_out(self, open_command: OpenCommand) -> None:
        command = command_of(self.program, self.state, open_command, 0)
        step = self.program.steps[command.step]
        end = self.answers.order(command.step, command.run)
        if end and command.loop is None:
            self.now = max(self.now, self.answers.at(end))
        Carrying(self, command, step).run()

    def report(self, command: Command, n: int, events: list[Event]) -> bool:
        """Put a piece of a command's report. Return False if the command has ended."""
        if command.command_id not in self.state.commands:
            raise RuntimeError(f"the simulation reported on command {command.command_id}, which is over")
        self._take(self._decision().run_valid(WorkReported(command.command_id, command.fence, n, _WORKER, events)))
        return command.command_id in self.state.commands

    def wait_until(self, due: int) -> None:
        self.now = max(self.now, due)

    def outcome(
        self, place: Place, move: Run, step: StepProgram, config: dict[str, Any] | None, problem: Outcome | None
    ) -> dict[str, Any]:
        """The record of an attempt. Raises Unanswered."""
        plan = move.task.plan
        if problem is not None:
            return self._complete(move, problem)
        if plan.runs_on == "pipeline" and config is not None:
            return self._complete(move, asserted({**config, **move.task.verbatim}))
        if plan.kind == "noop" and config is not None:
            return self._complete(move, Outcome(result=config.get("data")))
        answer = self._answer(place, move.attempt, config, plan.kind)
        if answer is None:
            reason = "no such call was recorded" if move.attempt == 1 else f"attempt {move.attempt} was not recorded"
            self._miss(place, plan.kind, move.attempt, reason, config)
            raise Unanswered
        if answer.record is None:
            self._late.add(place[:2])
            if not self._is_limited(place):
                self._miss(place, plan.kind, move.attempt, "the recorded run ended before this call did", config)
            raise Unanswered
        self.now = max(self.now, self.answers.at(answer.index))
        return self._with_parts(answer.record, move, step)

    def _is_limited(self, place: Place) -> bool:
        key = f"{place[0]}#{place[1]}"
        return any(timer in self.state.timers for timer in (TIMEOUT + key, DEADLINE + key, EXECUTION))

    def _answer(self, place: Place, attempt: int, config: dict[str, Any] | None, kind: str) -> Answer | None:
        call, answer = self.answers.find(place, attempt, config)
        if call is None or answer is None:
            return None
        reason = self._other_question(call.place, call.inputs, place, attempt, config)
        if reason:
            recorded_call = Call(*place[:4], kind, attempt, reason, config)
            if self._strict:
                self.unanswered.append(recorded_call)
                raise Unanswered
            self.assumed.append(recorded_call)
        return answer

    def _other_question(
        self, recorded: Place, inputs: Any, place: Place, attempt: int, config: dict[str, Any] | None
    ) -> str:
        """Return why a recorded answer belongs to a different call; '' if it does not."""
        old = self.answers.task_of(recorded)
        step = self.program.steps[place[0]]
        new = step.tasks[step.index[place[3]]]
        if old is None:
            return ""
        if old.plan.kind != new.plan.kind:
            return f"its kind was {old.plan.kind} then"
        if old.verbatim != new.verbatim:
            changed = sorted(
                key for key in {*old.verbatim, *new.verbatim} if old.verbatim.get(key) != new.verbatim.get(key)
            )
            return f"its {' and '.join(changed)} was another then"
        if config is None or attempt > 1 or new.plan.by_ref or _reads_files(new) or same_inputs(inputs, config):
            return ""
        return "its inputs were others then"

    def _miss(self, place: Place, kind: str, attempt: int, reason: str, inputs: Any) -> None:
        self.unanswered.append(Call(*place[:4], kind, attempt, reason, inputs))

    def _complete(self, move: Run, outcome: Outcome) -> dict[str, Any]:
        record = outcome.as_record()
        for name, fields in move.task.plan.helper.items():
            record.setdefault(name, fields)
        record["meta"] = {"attempt": move.attempt, "duration_ms": 0}
        return record

    def _with_parts(self, record: dict[str, Any], move: Run, step: StepProgram) -> dict[str, Any]:
        """The record with the parts of a stored result that this playbook's routing reads."""
        if "result_ref" not in record or self.reader is None:
            return record
        available = {**(record.get("extracted") or {}), **(record.get("left_out") or {})}
        paths = payload_paths(move.task.plan, self.program.demand[step.name])
        missing = {path_text(path): path for path in paths if path and path_text(path) not in available}
        if not missing:
            return record
        try:
            data = self.reader.whole(record["result_ref"])
        except ResultUnavailable:
            return record
        parts = {name: value_at(data, path, MISSING) for name, path in missing.items()}
        extracted = {name: value for name, value in parts.items() if value is not MISSING}
        left_out = {name: None for name, value in parts.items() if value is MISSING}
        return {
            **record,
            "extracted": {**(record.get("extracted") or {}), **extracted},
            "left_out": {**(record.get("left_out") or {}), **left_out},
        }


def _steering_signals(recorded: Sequence[Event]) -> list[tuple[int, Event]]:
    if "signal.received" not in set(map(_TYPE, recorded)):
        return []
    return [
        (index, event)
        for index, event in enumerate(recorded)
        if event.type == "signal.received" and event.payload.get("signal") in _STEERING and "error" not in event.payload
    ]


def _reads_files(task: TaskProgram) -> bool:
    """Return whether the inputs may contain paths of files, which differ in each attempt."""
    return any(len(path) > 1 and path[1] == "files" for path in task.paths())


def simulate(
    program: Program,
    execution_id: int,
    recorded: Sequence[Event],
    old: Program,
    request: Request,
    renamed: Mapping[str, str],
    limits: Limits,
    *,
    strict: bool = False,
    read: Reader | None = None,
    meter: Callable[[], Meter | None] = lambda: None,
) -> Simulated:
    """Run `program` against the recorded outcomes of a run of `old`."""
    answers = Answers(recorded, old, renamed, program)
    simulation = Simulation(program, execution_id, answers, recorded, limits, strict=strict, read=read, meter=meter)
    return simulation.run(request)
