"""The tools of one worker, opened when they are first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from arclog.model.config.kinds import KindSpec, kind_rules
from arclog.model.errors import MissingExtra
from arclog.model.outcome import Outcome, error, failed
from arclog.ports.tool import TaskContext, Tool, ToolKind, ToolServices

#: Kinds that run the author's code in separate processes.
CONFINED = frozenset({"python", "shell", "duckdb", "transfer"})
#: The error message for a second tenant.
UNCONFINED = (
    "this worker runs tasks of several tenants, and its confinement is weaker than `standard`; see `arclog doctor`, "
    "run a separate worker for each tenant, or set tasks.share_unconfined"
)


class Toolbox:
    """Runs attempts by kind; one Tool object per kind."""

    def __init__(self, kinds: Mapping[str, ToolKind], services: ToolServices) -> None:
        self._kinds = kinds
        self._services = services
        self._rules = kind_rules(services.settings, kinds)
        #: whether tasks are weakly confined, so that processes of only one tenant run here
        self.serves_one_tenant = False
        self._tenant: str | None = None
        self._open: dict[str, Tool] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._kinds)

    def prepare(self, kind: str) -> Tool:
        """Return the tool of a kind, opened. Raises MissingExtra if its driver is not installed."""
        tool = self._open.get(kind)
        if tool is None:
            tool = self._open[kind] = self._kinds[kind].open(self._services)
        return tool

    def is_at_once(self, kind: str) -> bool:
        return self._kinds[kind].spec.at_once

    @property
    def scratch(self) -> Path:
        """The private folder of the worker."""
        return self._services.scratch

    def no_path(self, kind: str) -> str:
        """Return why tasks of a kind cannot use the path of a file, or ''."""
        tool = self._kinds.get(kind)
        return no_path(None if tool is None else tool.spec)

    async def run(self, kind: str, config: Mapping[str, Any], context: TaskContext) -> Outcome:
        """Run one attempt within its time limit. Raises only if it is cancelled from outside."""
        if refusal := self._refusal(kind, context.scope.partition("/")[0]):
            return failed(error("config", f"task {context.task}: {refusal}", code="KIND"))
        try:
            tool = self.prepare(kind)
            try:
                typed = msgspec.convert(config, tool.Config)
            except msgspec.ValidationError as problem:
                return failed(error("config", f"task {context.task}: {problem}"))
            if self.is_at_once(kind):
                return await tool.run(typed, context)
            return await self._within_limit(tool, typed, context)
        except MissingExtra as missing:
            return failed(error("config", str(missing), code="MISSING_EXTRA"))

    async def _within_limit(self, tool: Tool, typed: Any, context: TaskContext) -> Outcome:
        limit = asyncio.timeout(context.timeout_s)
        try:
            async with limit:
                return await tool.run(typed, context)
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"task {context.task} took longer than {context.timeout_s:g} s (spec.timeout)"
            return failed(error("timeout", message), **context.stopped)

    def _refusal(self, kind: str, tenant: str) -> str:
        """Return why a tenant's task must not run here, or ''."""
        if refusal := self._rules.refusal(kind, tenant):
            return refusal
        if self.serves_one_tenant and kind in CONFINED:
            self._tenant = tenant if self._tenant is None else self._tenant
            if tenant != self._tenant:
                return UNCONFINED
        return ""

    async def execution_ended(self, execution_id: str) -> None:
        for tool in list(self._open.values()):  # a copy: another command may open a tool meanwhile
            await tool.execution_ended(execution_id)

    async def close(self) -> None:
        tools, self._open = list(self._open.values()), {}
        await asyncio.gather(*(tool.close() for tool in tools), return_exceptions=True)


def no_path(spec: KindSpec | None) -> str:
    """Return why tasks of a kind cannot use the path of a file, or ''."""
    if spec is None or spec.opens_files:
        return ""
    by_ref = " and ".join(spec.by_ref)
    instead = f"; as the whole value of {by_ref} it is the file's content" if by_ref else ""
    return f"a {spec.name} task opens no files: read the file in a python or shell task{instead}"
