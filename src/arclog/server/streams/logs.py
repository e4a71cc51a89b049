"""What a run's tasks print, as server-sent events: every line once and in order, to the run's end.

The id of a message is the line's position: who was cut off goes on behind it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from arclog.ports.storage.task_logs import LogFilter
from arclog.ports.views.api import Api
from arclog.server.services import Services
from arclog.server.streams.events import KEEP_ALIVE
from arclog.server.streams.waiting import unless_stopping

_PAGE = 500
#: Lines are written without a word to anybody: they are looked for so often.
_LOOK_S = 0.25


async def log_stream(
    services: Services, api: Api, execution_id: str, where: LogFilter, after: int
) -> AsyncGenerator[bytes, None]:
    """Lines behind a position, to the run's end or the server's."""
    clock, keep_alive_s = services.clock, services.settings.number("server.keep_alive_s")
    yield KEEP_ALIVE
    told_at = clock.monotonic()
    head = 0
    while not services.draining():
        # Asked before the lines are: what a run printed is there before its end is.
        over = (await api.status(execution_id)).ended_at is not None
        while page := await api.logs(execution_id, after=after, limit=_PAGE, where=where):
            after = page[-1]["position"]
            yield b"".join(map(_frame, page))
            told_at = clock.monotonic()
            if len(page) < _PAGE or services.draining():
                break
        if over:
            return
        if clock.monotonic() - told_at >= keep_alive_s:
            yield KEEP_ALIVE
            told_at = clock.monotonic()
        head = await unless_stopping(services, api.wait(execution_id, after=head, timeout_s=_LOOK_S)) or head


def _frame(line: dict[str, Any]) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (line["position"], msgspec.json.encode(line))
