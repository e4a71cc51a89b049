"""Runs for the tests of the source documents: the real engine and worker over a store in memory, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from arclog.core.transitions.state import State
from arclog.model.config.settings import Settings
from arclog.model.errors import Finding
from arclog.plan.build import build
from arclog.plan.net import Plan, StepPlan
from arclog.ports.views.api import SignalAnswer, SignalRequest, Status
from arclog.testing.harness import SPECS, World
from arclog.testing.laws import check_log, rendered_log
from arclog.testing.scripted import Call
from arclog.testing.virtual import run_virtually
from tests.unit.plan.kinds import KINDS

Record = dict[str, Any]
Script = Callable[[World], Awaitable[None]]


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    #: full envelopes, in seq order
    log: tuple[Record, ...]
    state: State
    status: Status
    calls: list[Call]

    def of(self, *types: str) -> list[Record]:
        return [event for event in self.log if event["event_type"] in types]

    def only(self, event_type: str) -> Record:
        (event,) = self.of(event_type)
        return event

    @property
    def types(self) -> list[str]:
        return [event["event_type"] for event in self.log]

    def in_dialect(self, dialect: str) -> list[Record]:
        return [item.record for item in rendered_log(dialect, self.log)]


def ran(text: str, script: Script | None = None, *, settings: Record | None = None, **options: Any) -> Ran:
    """Run a playbook to its end. `script` is awaited while a worker works on it."""

    async def main() -> Ran:
        async with World(text, settings=Settings(settings or {}), **options) as world:
            life = world.begin_life()
            await world.start()
            life.start_sweeper()
            life.start_worker("worker-a")
            if script is not None:
                await script(world)
            execution_id = str(world.execution_id)
            assert await world.current_life.api.ended(execution_id, timeout_s=7000), await world.current_life.api.why(
                execution_id
            )
            check_log(await world.stored(), "test")
            log = await world.current_life.api.events(execution_id, limit=100_000)
            status = await world.current_life.api.status(execution_id)
            return Ran(tuple(log), await world.state(), status, world.ledger.calls)

    return run_virtually(main())


@lru_cache(maxsize=64)
def once(text: str, script: Script | None = None) -> Ran:
    """The same, for tests that look at different sides of one run."""
    return ran(text, script)


async def signal(world: World, name: str, signal_id: str = "", **more: Any) -> SignalAnswer:
    request = SignalRequest(name, signal_id, more.pop("reason", "because"), **more)
    return await world.current_life.api.signal(str(world.execution_id), request)


# -- the language -----------------------------------------------------------------------------------------------------


def checked(text: str, kinds: Any = None) -> tuple[Plan | None, list[Finding]]:
    """A playbook as `arclog check` sees it."""
    made = build(text, "p.yaml", kinds or {**KINDS, **SPECS})
    return made.plan, made.findings


def plan_of(text: str) -> Plan:
    plan, findings = checked(text)
    assert plan is not None, [str(finding) for finding in findings]
    return plan


def step_of(body: str, before: str = "") -> StepPlan:
    """The plan of one step called `one`."""
    return plan_of(playbook(body, before)).steps[0]


def playbook(body: str, before: str = "") -> str:
    """One step called `one`, written without its name."""
    inner = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"metadata: {{name: p}}\n{before}workflow:\n  - step: one\n{inner}"


def errors(text: str) -> list[str]:
    """Codes of the errors that `check` finds."""
    return [finding.code for finding in checked(text)[1] if finding.severity == "error"]
