"""Groups: inputs to many executions, and starts of many runs, that are decided and committed together.

Invariant: a group commits the same events as its inputs would one by one. Each execution has its own compare-and-set.
An input that is refused, that loses to another input, or that needs more than a decision on the event loop is processed
individually afterwards. So a group saves work in the common case, and nothing else depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import Struct

from arclog.core.boundary.inputs import Input, Request, TakeSlot
from arclog.core.transitions.state import State
from arclog.engine.commits.batch import Answer, Batch, end_notices
from arclog.engine.commits.live_states import Live
from arclog.expr import OutOfTurn
from arclog.model.errors import ArclogError, Conflict, StoreError
from arclog.plan.program import Program
from arclog.ports.storage.store import Append, Appended, NewExecution, is_imported

if TYPE_CHECKING:
    from arclog.engine.commits.engine import Engine


T = TypeVar("T")

#: Number of decisions after which the event loop is yielded.
_TURN = 16


class _Decided(Struct, frozen=True):
    """An input of a group that was decided and is to be committed."""

    #: index of its input in the group
    place: int
    live: Live
    batch: Batch
    append: Append


class _First(Struct, frozen=True):
    """The first decision of a run, which is to be committed."""

    #: index of its input in the group
    place: int
    state: State
    batch: Batch
    append: Append


class Start(NamedTuple):
    """A run that is to be started."""

    program: Program
    new: NewExecution
    request: Request
    #: what repeated attempts have in common: see `Engine.start`
    content: Mapping[str, Any]


class Groups:
    """Groups of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, inputs: Sequence[tuple[int, Input]]) -> list[Answer | Exception]:
        """See `Engine.put_all`."""
        engine = self._engine
        if engine.minter.is_over:
            await engine.minter.renew()
        folded = await self._folded(
            [execution_id for execution_id, _ in inputs if engine.live.kept(execution_id) is None]
        )
        answers = await self._commit(await self._decide(inputs, folded))
        left = [index for index in range(len(inputs)) if index not in answers]
        if left:
            usual = await asyncio.gather(*(captured(engine.put(*inputs[index])) for index in left))
            answers.update(zip(left, usual, strict=True))
        return [answers[index] for index in range(len(inputs))]

    async def start(self, starts: Sequence[Start]) -> list[int | Exception]:
        """See `Engine.start_all`."""
        engine = self._engine
        if engine.minter.is_over:
            await engine.minter.renew()
        decided: list[_First] = []
        for index, start in enumerate(starts):
            if index and index % _TURN == 0:
                await asyncio.sleep(0)
            mark = engine.starts.mark(start.new, start.content)
            if not (
                engine.asks_for_secrets(start.program)
                or engine.deciding.is_heavy(start.program)
                or engine.is_watched(mark)
            ):
                decided += self._first(index, start, mark)
        answers: dict[int, int | Exception] = {}
        outcomes = await engine.append_all([decision.append for decision in decided]) if decided else []
        for decision, outcome in zip(decided, outcomes, strict=True):
            if isinstance(outcome, Exception):
                answers[decision.place] = outcome
                continue
            execution_id = answers[decision.place] = decision.append.execution_id
            engine.begun(starts[decision.place].program, decision.state, decision.batch, decision.append, outcome)
            if decision.state.pending_for == "slot":
                taken = await captured(engine.put(execution_id, TakeSlot()))
                answers[decision.place] = taken if isinstance(taken, Exception) else execution_id
        left = [index for index in range(len(starts)) if index not in answers]
        usual = await asyncio.gather(*(captured(engine.start(*starts[index])) for index in left))
        answers.update(zip(left, usual, strict=True))
        return [answers[index] for index in range(len(starts))]

    def _first(self, index: int, start: Start, mark: int) -> Iterator[_First]:
        """Yield the first decision of a run; nothing if it must be made individually."""
        state = State(execution_id=self._engine.minter.next_id(), scope=start.request.scope)
        try:
            batch = self._engine.deciding.at_once(start.program, state, [(start.request, None)], marked_as=mark)
        except (Exception, OutOfTurn):  # noqa: BLE001 - it comes again on the usual way, which knows what to do
            return
        deliveries = end_notices(start.program.plan, state, batch.events, start.new)
        yield _First(index, state, batch, batch.append(state, expected=0, new=start.new, deliveries=deliveries))

    async def _folded(self, execution_ids: Sequence[int]) -> dict[int, Live]:
        """Return the states of these executions, read from the store. A state that cannot be read is missing; the
        individual attempt reports why.
        """
        if not execution_ids:
            return {}
        states = await asyncio.gather(*map(self._engine.live.folded, execution_ids), return_exceptions=True)
        return {state.state.execution_id: state for state in states if isinstance(state, Live)}

    async def _decide(self, inputs: Sequence[tuple[int, Input]], folded: dict[int, Live]) -> list[_Decided]:
        """Decide the inputs that can be decided at once, yielding to the event loop regularly. Their executions are
        reserved.
        """
        decided: list[_Decided] = []
        try:
            for index, (execution_id, given) in enumerate(inputs):
                if index and index % _TURN == 0:
                    await asyncio.sleep(0)
                live = self._engine.live.kept(execution_id) or folded.get(execution_id)
                if live is not None and self._is_plain(live) and self._engine.reserve(execution_id):
                    append = self._decided(live, given)
                    if append is not None:
                        decided.append(_Decided(index, live, *append))
        except BaseException:
            self._give_up(decided)
            raise
        return decided

    def _decided(self, live: Live, given: Input) -> tuple[Batch, Append] | None:
        """Return the decision on one input and its append; None if it must be made individually."""
        engine, program, state = self._engine, live.program, live.state
        execution_id, head = state.execution_id, state.head
        try:
            batch = engine.deciding.at_once(program, state, [(given, None)])
        except (Exception, OutOfTurn):  # noqa: BLE001 - it comes again on the usual way, which knows what to do
            engine.live.drop(execution_id)
            engine.release(execution_id)
            return None
        if not batch.events:  # refused: the individual attempt reads the store first
            engine.release(execution_id)
            return None
        deliveries = end_notices(program.plan, state, batch.events, live.record.new)
        return batch, batch.append(state, expected=head, deliveries=deliveries)

    def _give_up(self, decided: Sequence[_Decided]) -> None:
        for decision in decided:
            self._engine.live.drop(decision.append.execution_id)
            self._engine.release(decision.append.execution_id)

    def _is_plain(self, live: Live) -> bool:
        """Return whether an input can be decided on this state without further queries."""
        engine, execution_id = self._engine, live.record.execution_id
        return not (
            engine.is_watched(execution_id)
            or engine.live.is_contended(execution_id)
            or engine.deciding.is_heavy(live.program)
            or is_imported(live.record.new)
        )

    async def _commit(self, decided: Sequence[_Decided]) -> dict[int, Answer | Exception]:
        """Commit decisions. Return the answers by index, without those of decisions that have to be made again."""
        engine = self._engine
        answers: dict[int, Answer | Exception] = {}
        if not decided:
            return answers
        try:
            outcomes = await engine.append_all([decision.append for decision in decided])
        except BaseException:
            self._give_up(decided)
            raise
        for decision, outcome in zip(decided, outcomes, strict=True):
            execution_id = decision.append.execution_id
            if isinstance(outcome, Appended):
                if engine.live.kept(execution_id) is not decision.live:
                    engine.live.put(decision.live)
                engine.committed(decision.live, decision.batch)
                if engine.live.kept(execution_id) is decision.live:  # most timers end their run
                    engine.live.grew(decision.live, outcome.decoded_bytes)
                answers[decision.place] = decision.batch.answers[0]
            else:
                engine.live.drop(execution_id)
                if isinstance(outcome, StoreError) and not isinstance(outcome, Conflict):
                    answers[decision.place] = outcome
            engine.release(execution_id)
        return answers


async def captured(work: Awaitable[T]) -> T | Exception:
    """Return the result or the exception of awaited work."""
    try:
        return await work
    except Exception as problem:  # noqa: BLE001 - it is the answer
        return problem


Item = TypeVar("Item")

#: Number of groups in progress at the same time: while one is committed, the next is decided.
GROUPS = 2


def batched(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """Yield the items in order, in slices of `size`."""
    return (items[first : first + size] for first in range(0, len(items), size))


async def in_groups(items: Iterable[Item], work: Callable[[Item], Awaitable[None]], at_once: int) -> None:
    """Do the work for each item in order, `at_once` of them concurrently. After an error no further item begins, and
    the error is raised.
    """
    left = iter(items)
    problems: list[ArclogError] = []

    async def sequentially() -> None:
        for item in left:
            if problems:
                return
            try:
                await work(item)
            except ArclogError as problem:
                problems.append(problem)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(sequentially())
    if problems:
        raise problems[0]
