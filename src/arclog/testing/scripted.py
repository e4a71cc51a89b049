"""Tools whose behaviour is defined in the playbook, and the ledger of their effects.

`act` is effectful, `peek` is not; otherwise they are the same. Their effect on the world is a line in the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from arclog.model.config.kinds import KindSpec
from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome, error, failed
from arclog.ports.tool import TaskContext, ToolKind, ToolServices


@dataclass(slots=True)
class Call:
    """One run of a tool: its effect happens at once, its answer may never come."""

    key: str
    step: str
    task: str
    run: int
    attempt: int
    #: the life of the process that made it, from 1
    life: int
    effectful: bool = True
    #: the tool has finished; its answer may still be lost
    answered: bool = False


@dataclass(slots=True)
class Ledger:
    """The effects on the outside world."""

    calls: list[Call] = field(default_factory=list)

    def times(self) -> dict[tuple[str, int], int]:
        """Return how often each attempt of each task run was made."""
        times: dict[tuple[str, int], int] = {}
        for call in self.calls:
            times[call.key, call.attempt] = times.get((call.key, call.attempt), 0) + 1
        return times


class ActConfig(Struct, frozen=True):
    """A scripted task."""

    #: the value that it returns
    returns: Any = None
    #: its first n attempts fail
    fail_attempts: int = 0
    #: error kind of a failure
    error: str = "exception"
    #: duration in seconds
    takes: float = 0.0


#: May answer instead of the script, block, or stop the world; None means the script applies.
Hook = Callable[[Call, TaskContext], Awaitable[Outcome | None]]


class ScriptedTool:
    """Behaves as the task's config describes."""

    Config: type[Struct] = ActConfig

    def __init__(self, ledger: Ledger, life: int, hook: Hook | None, *, effectful: bool) -> None:
        self._ledger = ledger
        self._life = life
        self._hook = hook
        self._effectful = effectful

    async def run(self, config: ActConfig, context: TaskContext) -> Outcome:
        call = Call(context.key, context.step, context.task, context.run, context.attempt, self._life, self._effectful)
        self._ledger.calls.append(call)
        if self._hook is not None:
            answer = await self._hook(call, context)
            if answer is not None:
                call.answered = True
                return answer
        if config.takes:
            await asyncio.sleep(config.takes)
        call.answered = True
        if context.attempt <= config.fail_attempts:
            return failed(error(config.error, f"attempt {context.attempt} of {context.task} fails as scripted"))
        return Outcome(result=config.returns)

    async def execution_ended(self, execution_id: str) -> None:
        """Nothing to release for a run."""

    async def close(self) -> None:
        """Nothing to close."""


_FIELDS = (
    Field("returns", "any", "What the task returns.", template=True),
    Field("fail_attempts", "integer", "Its first n attempts fail.", template=True),
    Field("error", "string", "Error kind of a failure."),
    Field("takes", "number", "Seconds that it takes.", template=True),
)

ACT = KindSpec(name="act", summary="Scripted, effectful.", fields=_FIELDS)
PEEK = KindSpec(name="peek", summary="Scripted, without effect.", fields=_FIELDS, effectful=False)


def scripted_kinds(ledger: Ledger, life: int, hook: Hook | None = None) -> dict[str, ToolKind]:
    """The scripted kinds for one life of a worker."""

    def kind(spec: KindSpec) -> ToolKind:
        def opened(_: ToolServices) -> ScriptedTool:
            return ScriptedTool(ledger, life, hook, effectful=spec.effectful)

        return ToolKind(spec, opened)

    return {spec.name: kind(spec) for spec in (ACT, PEEK)}
