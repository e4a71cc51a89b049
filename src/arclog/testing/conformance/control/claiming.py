"""Rules of holding a command: claimed by one, kept by heartbeats, given back, taken away."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from arclog.model.commands import Revocation
from arclog.ports.views.api import SignalRequest
from arclog.testing.conformance.control.base import GPU, ONE, TWO, WHOLE, Ground, Rules, reported

#: Nobody waits so long: what is waited for comes at once.
LONG_S = 20.0


class ClaimRules(Rules):
    async def test_a_command_is_one_workers(self, ground: Ground) -> None:
        command = await ground.claimed()
        assert (command.step, command.run, command.fence, command.started) == ("first", 1, 1, False)
        assert await ground.control.claim(TWO, 5) == []

    async def test_a_claim_takes_no_more_than_its_limit(self, ground: Ground) -> None:
        for _ in range(3):
            await ground.start()
        assert len(await ground.control.claim(ONE, 2)) == 2
        assert len(await ground.control.claim(TWO, 2)) == 1

    async def test_a_claim_waits_for_work(self, ground: Ground) -> None:
        claiming = asyncio.ensure_future(ground.control.claim(ONE, 1, LONG_S))
        await asyncio.sleep(0)
        execution_id = await ground.start()
        (command,) = await claiming
        assert command.execution_id == execution_id

    async def test_a_claim_that_finds_nothing_says_so(self, ground: Ground) -> None:
        assert await ground.control.claim(ONE, 1) == []
        assert await ground.control.claim(ONE, 1, 0.01) == []

    async def test_a_worker_gets_what_it_knows_and_serves(self, ground: Ground) -> None:
        await ground.start()
        assert await ground.control.claim(replace(ONE, kinds=("http",)), 1) == []
        assert await ground.control.claim(GPU, 1) == []
        assert await ground.control.claim(replace(ONE, execution_id=1), 1) == []
        assert len(await ground.control.claim(replace(ONE, pools=()), 1)) == 1

    async def test_a_worker_is_what_it_said_last(self, ground: Ground) -> None:
        changes: list[dict[str, Any]] = [{"kinds": ("http",)}, {"pools": ("gpu",)}]
        for change in changes:
            command = await ground.claimed()
            assert await ground.control.claim(replace(ONE, **change), 1) == []
            assert (await ground.control.report(reported(command, 1, *WHOLE, wants=1))).commands == []
            (following,) = await ground.control.claim(ONE, 1)
            answer = await ground.control.report(reported(following, 1, *WHOLE, wants=1))
            assert answer.commands == []  # of another pool
            assert len(await ground.control.claim(GPU, 1)) == 1

    async def test_a_heartbeat_tells_what_was_lost(self, ground: Ground) -> None:
        command = await ground.claimed()
        held = [(command.command_id, command.fence)]
        assert await ground.control.heartbeat("one", held) == []
        assert await ground.control.heartbeat("two", held) == [command.command_id]
        assert await ground.control.heartbeat("one", [(command.command_id, 2), (1, 1)]) == [command.command_id, 1]
        await ground.lapse(command.execution_id)
        assert await ground.control.heartbeat("one", held) == [command.command_id]

    async def test_what_is_given_back_goes_to_the_next(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.control.report(reported(command, 1, "step.started"))
        await ground.control.give_back("one", command.execution_id, command.command_id, command.fence)
        (again,) = await ground.control.claim(TWO, 1)
        assert (again.command_id, again.fence, again.started) == (command.command_id, 2, True)

    async def test_a_lost_lease_goes_to_the_next(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.lapse(command.execution_id)
        (again,) = await ground.control.claim(TWO, 1)
        assert (again.command_id, again.fence) == (command.command_id, 2)

    async def test_a_cancelled_run_is_told_to_whoever_works_on_it(self, ground: Ground) -> None:
        command = await ground.claimed()
        waiting = asyncio.ensure_future(ground.control.revoked("one", LONG_S))
        other = asyncio.ensure_future(ground.control.revoked("two", LONG_S))
        await asyncio.sleep(0)
        await ground.api.cancel(str(command.execution_id), "enough")
        assert await waiting == [Revocation(command.command_id)]
        other.cancel()
        assert await ground.control.revoked("one", 0.0) == []

    async def test_what_happened_while_nobody_asked_is_told_later(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.api.cancel(str(command.execution_id), "enough")
        assert await ground.control.revoked("two", 0.01) == []
        assert await ground.control.revoked("one", LONG_S) == [Revocation(command.command_id)]

    async def test_a_pause_is_told_and_answered(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.api.signal(str(command.execution_id), SignalRequest("PAUSE"))
        assert await ground.control.revoked("one", LONG_S) == [Revocation(command.command_id, pause=True)]
        assert (await ground.control.report(reported(command, 1, "step.started"))).pause
        await ground.control.give_back("one", command.execution_id, command.command_id, command.fence)
        assert await ground.control.claim(TWO, 1) == []
        await ground.api.signal(str(command.execution_id), SignalRequest("RESUME"))
        (again,) = await ground.control.claim(TWO, 1)
        assert again.command_id == command.command_id
