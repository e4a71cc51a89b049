"""Time limits of tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec import Struct

from arclog.model.kinds import KindSpec
from arclog.model.outcome import Outcome
from arclog.model.settings import Settings
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.testing.tools import task_context
from arclog.testing.virtual import run_virtually
from arclog.worker.toolbox import Toolbox


class Slow:
    """Never ends; says where it was when it is stopped."""

    Config: type[Struct] = Struct

    async def run(self, _config: Any, context: TaskContext) -> Outcome:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            context.stopped["py"] = {"traceback": "in the middle"}
            raise
        raise AssertionError

    async def execution_ended(self, execution_id: str) -> None: ...

    async def close(self) -> None: ...


def test_the_outcome_of_a_task_that_took_too_long_says_where_it_was() -> None:
    kind = ToolKind(KindSpec(name="slow", summary="", fields=()), lambda _: Slow())
    toolbox = Toolbox({"slow": kind}, ToolServices(Settings(), Path("/nowhere")))

    async def main() -> Outcome:
        return await toolbox.run("slow", {}, task_context(timeout_s=5.0))

    outcome = run_virtually(main())
    assert outcome.error is not None
    assert outcome.error.kind == "timeout"
    assert outcome.helper == {"py": {"traceback": "in the middle"}}
