"""What became of reports that do not fit: each leaves an informative `command.refused` in the log of its run.

Only the first refused reports of each claim are recorded.
"""

from __future__ import annotations

import logging

from arclog.core.boundary.inputs import Observed, Refused
from arclog.engine.commits.engine import Engine
from arclog.model.data.kept import Kept
from arclog.model.errors import ArclogError
from arclog.model.events import Event

log = logging.getLogger("arclog.engine")

#: Claims whose refusals are counted.
_MOST_CLAIMS = 10_000
_LONGEST_REASON = 1000


class Refusals:
    """Records refused reports."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._most = engine.settings.integer("ingest.max_refusals")
        self._most_in_run = engine.settings.integer("ingest.max_events")
        self._counts: Kept[tuple[int, int], int] = Kept(_MOST_CLAIMS)

    async def note(self, claim: tuple[int, int, int], worker_id: str, refused: Refused) -> None:
        """Record that a report of a claim (execution_id, command_id, fence) was refused. What cannot be recorded is logged:
        the sender is answered all the same.
        """
        execution_id, command_id, fence = claim
        count = (self._counts.get((command_id, fence)) or 0) + 1
        if count > self._most:
            return
        self._counts.replace((command_id, fence), count)
        payload = {"reason": refused.message[:_LONGEST_REASON], "worker_id": worker_id, "source": "server"}
        if refused.event_type:
            payload["refused"] = refused.event_type
        try:
            command = (await self._engine.seen(execution_id)).state.commands.get(command_id)
            event = Event(
                "command.refused", self._engine.clock.now(), command_id=command_id, fence=fence, payload=payload
            )
            if command is not None:
                event.step, event.run = command.step, command.run
            await self._engine.put(execution_id, Observed([event], {}, self._most_in_run))
        except ArclogError as problem:
            log.info("execution %s: a refused report could not be recorded: %s", execution_id, problem)
