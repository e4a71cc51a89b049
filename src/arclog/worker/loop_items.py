"""Evaluates a `loop.in` that reads stored data, which the server cannot read, and reports its items.

A stored list is reported by reference. Any other large value is stored as a list first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

from msgspec.json import encode

from arclog.core.flow.loops import not_a_list, too_many
from arclog.core.flow.pipeline import Frame
from arclog.core.flow.scopes import items_scope
from arclog.core.transitions.iterations import are_stored, as_payload, item_at, stored_item
from arclog.expr import Stored
from arclog.model.commands import Expansion, LoopWork
from arclog.model.errors import ExpressionError, ResultUnavailable
from arclog.model.events import Event
from arclog.model.outcome import TaskError, error, result_error
from arclog.plan.net import Limits
from arclog.plan.program import StepProgram
from arclog.worker.evaluation import template_error
from arclog.worker.reading import StoredReader, SyncReader
from arclog.worker.storing import Storing, TaskResults


class Expanding:
    """Expands the loops of one command's step."""

    def __init__(
        self,
        step: StepProgram,
        limits: Limits,
        sync_reader: SyncReader,
        reader: StoredReader,
        storing: Storing,
        results: TaskResults,
    ) -> None:
        self._step = step
        self._limits = limits
        self._sync_reader = sync_reader
        self._reader = reader
        self._storing = storing
        self._results = results

    async def events(self, expansion: Expansion, frame: Frame, now: int) -> list[Event]:
        """Return the events to report: the items, or the failure."""
        scope = items_scope(frame, expansion.event)
        try:
            items = await self._sync_reader.run(lambda: self._evaluated(scope))
            if isinstance(items, TaskError):
                return [_failed(frame, now, items)]
            return await self._events_of(items, frame, now)
        except ExpressionError as failure:
            return [_failed(frame, now, template_error(failure))]
        except ResultUnavailable as problem:
            return [_failed(frame, now, result_error(problem))]

    def _evaluated(self, scope: Any) -> Any:
        """Return a list, a range, a stored list, or the error."""
        items = self._step.items_at(0).evaluate_items(scope)
        if isinstance(items, Stored) and (not _is_list(items) or self._step.loop.inner is not None):
            # The server needs the items of an outer loop to evaluate the inner ones.
            items = items.plain()
        if not isinstance(items, list | range | Stored):
            return not_a_list(self._step.name, items)
        return too_many(self._step.name, self._reader.length(items), self._limits.max_iterations) or items

    async def _events_of(self, collection: Any, frame: Frame, now: int) -> list[Event]:
        events: list[Event] = []
        if isinstance(collection, Stored):
            total = await self._sync_reader.run(lambda: self._reader.length(collection))
            items: Any = {"ref": dict(collection.ref)}
        else:
            total, items = len(collection), as_payload(collection)
            size = len(encode(items))
            if size > self._limits.inline_max_bytes and isinstance(collection, list):
                if self._step.loop.inner is not None:
                    most = self._limits.inline_max_bytes
                    message = f"the items of the outer loop of step {self._step.name} take {size} bytes; at most {most} are kept (results.inline_max_bytes)"
                    return [_failed(frame, now, error("limit", message, code="OUTER_ITEMS"))]
                ref, stored = await self._storing.items(frame, collection, self._results, now)
                items = {"ref": ref}
                events.append(stored)
        payload = {"items": items, "total": total}
        return [*events, Event("result.manifest.updated", now, step=frame.step, run=frame.run, payload=payload)]


def _is_list(stored: Stored) -> bool:
    return stored.is_list or (stored.is_whole and stored.ref["kind"] == "loop")


def _failed(frame: Frame, now: int, problem: TaskError) -> Event:
    return Event("step.failed", now, step=frame.step, run=frame.run, payload={"error": problem.as_dict()})


_ITEMS_AT_A_TIME = 200
#: Number of blocks kept in memory. Iterations run in order or in parallel, so few blocks are in use at a time.
_BLOCKS = 4


class Items:
    """The items of one command's chunk of a loop."""

    def __init__(self, loop: LoopWork, reader: StoredReader) -> None:
        self._loop = loop
        self._reader = reader
        self._blocks: OrderedDict[int, list[Any]] = OrderedDict()
        self._lock = asyncio.Lock()

    async def at(self, index: int) -> Any:
        """Return the item of an iteration. Raises ResultUnavailable."""
        loop = self._loop
        if not are_stored(loop.items):
            return item_at(loop.items, index - loop.first)
        at = stored_item(loop.items, index - loop.first)["index"]
        number = at // _ITEMS_AT_A_TIME
        async with self._lock:
            block = self._blocks.get(number)
            if block is None:
                first = number * _ITEMS_AT_A_TIME
                block = await self._reader.part(loop.items["ref"], first, first + _ITEMS_AT_A_TIME)
                self._blocks[number] = block
                while len(self._blocks) > _BLOCKS:
                    self._blocks.popitem(last=False)
        return block[at % _ITEMS_AT_A_TIME]
