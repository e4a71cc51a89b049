"""The work on runs that is marked, since it may kill the process: its numbers and names, and how it is marked while its
code runs.

Invariant: work that is repeated after a crash has the same number, and a run that is begun again the same `start_id`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar
from zlib import crc32

import msgspec

from arclog.core.boundary.inputs import (
    ChildEnded,
    Continue,
    Forked,
    GivenBack,
    Input,
    LeaseEnded,
    Observed,
    Reclaimed,
    Request,
    Signal,
    TimerFired,
    WorkReported,
)
from arclog.model.data.digest import sha256
from arclog.ports.storage.marks import ATTEMPT, STEP_SLOT, Marks
from arclog.ports.storage.store import NewExecution

T = TypeVar("T")

#: Signals that end a run without evaluating anything.
ENDS = frozenset({"CANCEL", "EMERGENCY_STOP"})
#: Work that is not an input: reading the log, and encoding a snapshot.
READING, SNAPSHOT = 1, 10
_NAMES = {READING: "read its log", SNAPSHOT: "encoded a snapshot of its state"}
_KINDS: dict[type, tuple[int, str]] = {
    WorkReported: (2, "took in a worker's report"),
    TimerFired: (3, "fired a timer"),
    LeaseEnded: (4, "ended a lost lease"),
    Reclaimed: (5, "handed a command to another worker"),
    GivenBack: (6, "took a command back"),
    Continue: (7, "went on with it"),
    Signal: (8, "took in a signal"),
    Request: (11, "decided how it begins"),
    Forked: (12, "copied the events of another run"),
    ChildEnded: (13, "took in the end of a run that it called"),
    Observed: (14, "took in events from outside"),
}
_OTHER = (9, "decided on it")
_REPORT = _KINDS[WorkReported][0]
_48_BITS = 0xFFFF_FFFF_FFFF


def work_of(given: Input) -> int:
    """Identify an input that is repeated after a crash: its kind, and its command, timer, child, event or content. Another
    input of the same kind has another number, since its success must not reset the count.
    """
    if isinstance(given, WorkReported):  # most inputs
        return _REPORT | (given.command_id & _48_BITS) << 8
    kind = _KINDS.get(type(given), _OTHER)[0]
    match given:
        case TimerFired():
            return kind | crc32(given.timer_id.encode()) << 8
        case Signal():  # who sends it again gives it another id
            content = [given.signal] if given.signal in ENDS else [given.signal, given.step, given.data]
            return kind | crc32(_encoded(content)) << 8
        case ChildEnded():
            return kind | (given.child & _48_BITS) << 8
        case Observed():
            return kind | (next(iter(given.digests), 0) & _48_BITS) << 8
    return kind | (getattr(given, "command_id", 0) & _48_BITS) << 8


def _encoded(content: Any) -> bytes:
    with suppress(ValueError, TypeError, RecursionError):  # what cannot be encoded is refused later
        return msgspec.json.encode(content)
    return b""


def start_id(new: NewExecution, content: Mapping[str, Any]) -> int:
    """Identify a run that does not exist yet by what it is to do, since each attempt to begin it has another id. The
    number is negative: no run has it.
    """
    described = f"{new.scope.label}\0{new.plan}\0".encode("utf-8", "replace") + _encoded(content)
    return -1 - (int(sha256(described)[:16], 16) >> 1)


def activity(work: int) -> str:
    kind = work & 0xFF & ~ATTEMPT
    if kind in _NAMES:
        return _NAMES[kind]
    return next((name for number, name in _KINDS.values() if number == kind), _OTHER[1])


def was_claimed_before(given: Input | None) -> bool:
    """Return whether an input reports a command that was claimed before: a server may have died of its earlier report."""
    return isinstance(given, WorkReported) and given.fence > 1


class Steps:
    """The marks of the commit, or of the reading of a log, whose code runs now."""

    def __init__(self, marks: Marks) -> None:
        self.begin = marks.begin
        self.end = marks.end
        self.current: Sequence[tuple[int, int]] = ()


class Stepwise(Generic[T]):
    """Runs a coroutine with marks that are set while its code runs, and not while it waits."""

    __slots__ = ("_doing", "_marks", "_steps")

    def __init__(self, steps: Steps, marks: Sequence[tuple[int, int]], doing: Coroutine[Any, Any, T]) -> None:
        self._steps = steps
        self._marks = marks
        self._doing = doing

    def __await__(self) -> Generator[Any, Any, T]:
        steps, marks, doing = self._steps, self._marks, self._doing
        answer: Any = None
        problem: BaseException | None = None
        while True:
            outer = steps.current
            steps.current = marks
            steps.begin(STEP_SLOT, *marks)
            try:
                awaited = doing.send(answer) if problem is None else doing.throw(problem)
            except StopIteration as ended:
                result: T = ended.value
                return result
            finally:
                steps.current = outer
                if outer:
                    steps.begin(STEP_SLOT, *outer)
                else:
                    steps.end(STEP_SLOT)
            answer, problem = None, None
            try:
                answer = yield awaited
            except GeneratorExit:
                doing.close()
                raise
            except BaseException as raised:  # noqa: BLE001 - it belongs to the coroutine
                problem = raised
