"""A SQL tool with a short call: the command is compiled as a playbook's is, and run on the real database."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arclog.expr.sql.compile import compile_sql
from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.testing.tools import task_context
from arclog.worker.toolbox import Toolbox


class Sql:
    """One tool; `where` are the config keys that every call has."""

    def __init__(self, kind: ToolKind, scratch: Path, settings: Settings | None = None, **where: Any) -> None:
        self.kind = kind
        self.where = where
        self.toolbox = Toolbox({kind.spec.name: kind}, ToolServices(settings or Settings(), scratch / "scratch"))

    def config(self, command: str, scope: Mapping[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        compiled = compile_sql(command, self.kind.spec.dialect, keys.pop("params", None))
        return {"command": compiled.evaluate(scope or {}), **self.where, **keys}

    async def __call__(
        self, command: str, scope: Mapping[str, Any] | None = None, context: TaskContext | None = None, **keys: Any
    ) -> Outcome:
        config = self.config(command, scope, **keys)
        return await self.toolbox.run(self.kind.spec.name, config, context or task_context())

    async def result(self, command: str, scope: Mapping[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        outcome = await self(command, scope, **keys)
        assert outcome.error is None, outcome.error
        result: dict[str, Any] = outcome.result
        return result

    async def rows(self, command: str, scope: Mapping[str, Any] | None = None, **keys: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = (await self.result(command, scope, **keys))["rows"]
        return rows

    async def failure(
        self, command: str, scope: Mapping[str, Any] | None = None, **keys: Any
    ) -> tuple[str, str | None]:
        """Kind and code of the error."""
        outcome = await self(command, scope, **keys)
        assert outcome.status == "error"
        assert outcome.error is not None
        helper = self.kind.spec.helper
        assert outcome.helper[helper] == {"code": outcome.error.code, "rowcount": None}
        return outcome.error.kind, outcome.error.code

    async def message(self, command: str, scope: Mapping[str, Any] | None = None, **keys: Any) -> str:
        outcome = await self(command, scope, **keys)
        assert outcome.error is not None
        return outcome.error.message

    async def close(self) -> None:
        await self.toolbox.close()
