"""Groups: inputs to many executions, and starts of many runs, that are decided together and committed together.

Law: what a group commits is what its inputs would have led to one by one. Each execution has its own compare-and-set; one that is
refused, that another input has reached first, or that needs more than a decision on the event loop, takes the usual way afterwards.
So a group saves work for the common case, and no rule depends on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from arclog.core.boundary.inputs import Input
from arclog.engine.commits.batch import Answer, Batch
from arclog.engine.commits.live_states import Live
from arclog.engine.duties.end_notices import news_of
from arclog.engine.history.imported import is_imported
from arclog.model.errors import Conflict, StoreError
from arclog.ports.storage.store import Append, Appended

if TYPE_CHECKING:
    from arclog.engine.commits.engine import Engine


class _Decided(NamedTuple):
    """An input of a group that was decided and is to be committed."""

    index: int
    live: Live
    batch: Batch
    append: Append


class Groups:
    """Groups of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def put(self, inputs: Sequence[tuple[int, Input]]) -> list[Answer | Exception]:
        """See `Engine.put_all`."""
        engine = self._engine
        if engine.minter.is_over:
            await engine.minter.renew()
        folded = await self._folded([each for each, _ in inputs if engine.live.kept(each) is None])
        answers = await self._commit(self._decide(inputs, folded))
        left = [index for index in range(len(inputs)) if index not in answers]
        if left:
            usual = await asyncio.gather(*(_outcome(engine.put(*inputs[index])) for index in left))
            answers.update(zip(left, usual, strict=True))
        return [answers[index] for index in range(len(inputs))]

    async def _folded(self, execution_ids: Sequence[int]) -> dict[int, Live]:
        """The states of these executions, read from the store. What cannot be read is missing: the usual way finds out why."""
        if not execution_ids:
            return {}
        states = await asyncio.gather(*map(self._engine.live.folded, execution_ids), return_exceptions=True)
        return {state.state.execution_id: state for state in states if isinstance(state, Live)}

    def _decide(self, inputs: Sequence[tuple[int, Input]], folded: dict[int, Live]) -> list[_Decided]:
        """Decide what can be decided at once. Its executions are reserved."""
        engine = self._engine
        decided: list[_Decided] = []
        for index, (execution_id, given) in enumerate(inputs):
            live = engine.live.kept(execution_id) or folded.get(execution_id)
            if live is None or not self._is_plain(live) or not engine.reserve(execution_id):
                continue
            head = live.state.head
            try:
                batch = engine.deciding.at_once(live.program, live.state, [(given, None)])
            except Exception:  # noqa: BLE001 - it comes again on the usual way, which knows what to do
                engine.live.drop(execution_id)
                engine.release(execution_id)
                continue
            if not batch.events:  # refused: on the usual way the store is looked at first
                engine.release(execution_id)
                continue
            tell = news_of(live.program.plan, live.state, batch.events, live.record.new)
            decided.append(_Decided(index, live, batch, batch.append(live.state, expected=head, tell=tell)))
        return decided

    def _is_plain(self, live: Live) -> bool:
        """Whether nothing has to be asked before an input is decided on this state."""
        engine, execution_id = self._engine, live.state.execution_id
        return not (
            engine.is_watched(execution_id)
            or engine.live.is_contended(execution_id)
            or engine.deciding.is_heavy(live.program)
            or is_imported(live.record.new)
        )

    async def _commit(self, decided: Sequence[_Decided]) -> dict[int, Answer | Exception]:
        """Commit decisions; the answers by index, without those that are to be made again."""
        engine = self._engine
        answers: dict[int, Answer | Exception] = {}
        if not decided:
            return answers
        try:
            outcomes = await engine.append_all([each.append for each in decided])
        except BaseException:
            for each in decided:
                engine.live.drop(each.append.execution_id)
                engine.release(each.append.execution_id)
            raise
        for each, outcome in zip(decided, outcomes, strict=True):
            execution_id = each.append.execution_id
            if isinstance(outcome, Appended):
                engine.live.put(each.live)
                engine.committed(each.live, each.batch)
                answers[each.index] = each.batch.answers[0]
            else:
                engine.live.drop(execution_id)
                if isinstance(outcome, StoreError) and not isinstance(outcome, Conflict):
                    answers[each.index] = outcome
            engine.release(execution_id)
        return answers


async def _outcome(work: Awaitable[Answer]) -> Answer | Exception:
    try:
        return await work
    except Exception as problem:  # noqa: BLE001 - it is the answer
        return problem
