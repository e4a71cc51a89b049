"""The engine's side of `ports.api`, where a signal makes a new run."""

from __future__ import annotations

from arclog.model.status import COMPLETED
from arclog.ports.views.api import ExecuteRequest, SignalRequest
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually

CHILD = "{metadata: {name: child}, workflow: [{step: start, tool: {kind: noop, data: from the child}}]}"
PARENT = "{metadata: {name: parent}, workflow: [{step: start, tool: {kind: playbook, file: child.yaml}}]}"


def test_a_run_that_is_run_again_calls_the_same_files() -> None:
    async def main() -> None:
        async with World(PARENT) as world:
            life = world.begin_life()
            life.start_sweeper()
            life.start_worker()
            request = ExecuteRequest(playbook=PARENT, file="parent.yaml", files={"child.yaml": CHILD})
            first = (await life.api.execute(request)).execution_id
            await life.api.ended(first)
            again = (await life.api.signal(first, SignalRequest("RETRY_RUN"))).started
            assert again is not None
            await life.api.ended(again)
            for started in (first, again):
                summary = await life.api.summary(started)
                assert (summary.state, summary.result) == (COMPLETED, "from the child"), summary.error
            await life.children.settle(1000.0)

    run_virtually(main())
