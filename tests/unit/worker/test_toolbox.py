"""Time limits of tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec import Struct

from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
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


class Quick(Slow):
    """Ends at once."""

    async def run(self, _config: Any, context: TaskContext) -> Outcome:
        return Outcome(result=context.scope)


def _of_tenants(*tenants: str, kinds: str = "", one: bool = False) -> list[str]:
    """The codes of tasks of kind shell, one after the other; '' for those that ran."""
    tool = ToolKind(KindSpec(name="shell", summary="", fields=()), lambda _: Quick())
    toolbox = Toolbox({"shell": tool}, ToolServices(Settings({"tasks.kinds": kinds}), Path("/nowhere")))
    toolbox.serves_one_tenant = one

    async def main() -> list[str]:
        done = [await toolbox.run("shell", {}, task_context(scope=f"{tenant}/default/default")) for tenant in tenants]
        return [(outcome.error.code or "") if outcome.error else "" for outcome in done]

    return run_virtually(main())


def test_a_kind_that_is_switched_off_or_for_others_does_not_run() -> None:
    assert _of_tenants("acme", "globex", kinds="shell: none") == ["KIND", "KIND"]
    assert _of_tenants("acme", "globex", kinds="shell: acme") == ["", "KIND"]


def test_where_tasks_are_not_kept_apart_those_of_one_tenant_run() -> None:
    assert _of_tenants("acme", "globex", "acme", one=True) == ["", "KIND", ""]
    assert _of_tenants("acme", "globex", "acme") == ["", "", ""]
