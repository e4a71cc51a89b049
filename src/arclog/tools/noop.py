"""Kind `noop`: does nothing and returns its `data`. Steps that only route use it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext, ToolKind, ToolServices


class NoopConfig(Struct, frozen=True):
    """A noop task."""

    data: Any = None


class NoopTool:
    """Returns its data."""

    Config: type[Struct] = NoopConfig

    async def run(self, config: NoopConfig, context: TaskContext) -> Outcome:  # noqa: ARG002 - the port's signature
        return Outcome(result=config.data)

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        """Nothing to close."""


def _open(services: ToolServices) -> NoopTool:  # noqa: ARG001 - the port's signature
    return NoopTool()


KIND = ToolKind(
    KindSpec(
        name="noop",
        summary="Does nothing; returns `data`, if given. For steps that only route.",
        fields=(Field("data", "any", "The value that the task returns.", template=True),),
        effectful=False,
        at_once=True,
        auth=(),
    ),
    _open,
)
