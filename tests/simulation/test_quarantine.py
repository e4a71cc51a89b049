"""A decision that breaks a rule ends its own run and no other, also when what is open cannot be ended one by one."""

from __future__ import annotations

import asyncio

import pytest

from arclog.core.flow import routing
from arclog.core.transitions import closing
from arclog.model.errors import InvariantBroken
from arclog.ports.storage.store import StoredEvent
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually

TEXT = """
metadata: {name: broken}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: quick}, {step: slow}]}
  - {step: quick, tool: {kind: act, takes: 5}}
  - {step: slow, tool: {kind: act, takes: 50}}
"""


def broken(*_: object) -> None:
    raise InvariantBroken("a rule is broken")


async def events_of_broken_run() -> list[StoredEvent]:
    async with World(TEXT) as world:
        going = asyncio.ensure_future(world.run())
        await asyncio.sleep(2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(routing, "route", broken)
            state = await going
        assert (state.status, (state.error or {})["kind"]) == ("FAILED", "internal")
        assert "a rule is broken" in (state.error or {})["message"]
        return await world.stored()


def test_the_run_ends_and_its_log_is_closed() -> None:
    async def main() -> None:
        check_log(await events_of_broken_run(), "broken")

    run_virtually(main())


def test_it_ends_even_if_what_is_open_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "end_step_runs", broken)

    async def main() -> None:
        types = [stored.event.type for stored in await events_of_broken_run()]
        assert types[-3:] == ["workflow.finished", "playbook.finished", "playbook.processed"]
        assert "step.failed" not in types

    run_virtually(main())
