"""Logs of real runs as readers get them: every golden playbook, and runs that were paused, retried, skipped, killed …"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from arclog.ports.views.api import SignalRequest
from arclog.testing.harness import World
from arclog.testing.laws import SUBJECT, rendered_log
from arclog.testing.virtual import run_virtually

__all__ = ["NAMES", "SUBJECT", "log_of", "records", "rendered_log"]

GOLDEN = Path(__file__).parents[2] / "golden" / "playbooks"

Log = list[dict[str, Any]]
Script = Callable[[World], Awaitable[None]]

THREE_TASKS = """
metadata: {name: three}
workflow:
  - step: start
    tool:
      - {name: a, kind: act, takes: 10, returns: 1}
      - {name: b, kind: act, takes: 10, returns: 2}
      - {name: c, kind: act, takes: 10, returns: 3}
"""
BEST_EFFORT = """
metadata: {name: best}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: bad}, {step: slow}]}
  - step: bad
    spec: {policy: {failure: {mode: best_effort}}}
    tool: {kind: act, returns: 7, fail_attempts: "{{ 0 if ctx.fixed | default(false) else 1 }}"}
  - {step: slow, tool: {kind: act, takes: 100}}
"""
CYCLE = """
metadata: {name: cycle}
workflow:
  - step: start
    tool:
      kind: act
      returns: "{{ ctx.n | default(0) + 1 }}"
      spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {n: "{{ outcome.data }}"}}}}]}}
    next: {arcs: [{step: start, when: "{{ ctx.n < 3 }}"}]}
"""
HANDLED = """
metadata: {name: handled}
workflow:
  - step: start
    tool:
      kind: act
      fail_attempts: 9
      spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
"""
SLOW_RETRY = """
metadata: {name: slow}
workflow:
  - step: start
    spec: {policy: {lifecycle: {timeout_s: 30}}}
    tool:
      kind: act
      fail_attempts: 9
      spec: {policy: {rules: [{else: {then: {do: retry, attempts: 3, delay: 50}}}]}}
"""
PARALLEL = """
metadata: {name: parallel}
workflow:
  - step: start
    loop: {in: "{{ range(12) }}", iterator: i, spec: {mode: parallel, max_in_flight: 3}}
    tool: {kind: act, takes: 2, returns: "{{ iter.i }}"}
"""
APPROVAL = """
metadata: {name: careful}
executor: {spec: {policy: {approval: required}}}
workflow:
  - {step: start, tool: {kind: noop}}
"""


async def signal_run(world: World, signal: str, **more: Any) -> None:
    number = len(await world.stored())
    request = SignalRequest(signal, f"sig-{number}", "because", **more)
    answer = await world.current_life.api.signal(str(world.execution_id), request)
    assert answer.accepted, answer.message


async def _paused_twice(world: World) -> None:
    for _ in range(2):
        await asyncio.sleep(5)
        await signal_run(world, "PAUSE")
        await asyncio.sleep(50)
        await signal_run(world, "RESUME")


async def _withdrawn_pause(world: World) -> None:
    await asyncio.sleep(5)
    await signal_run(world, "PAUSE")
    await signal_run(world, "RESUME")


async def _restarted(world: World) -> None:
    await asyncio.sleep(5)
    await signal_run(world, "RETRY_STEP", step="start")


async def _restarted_at_once(world: World) -> None:
    """Claimed, and nothing reported yet."""
    await asyncio.sleep(0.1)
    assert [command.state for command in await world.store.commands(world.execution_id)] == ["claimed"]
    await signal_run(world, "RETRY_STEP", step="start")


async def _fired_again(world: World) -> None:
    await asyncio.sleep(5)
    await signal_run(world, "UPDATE_PARAMS", data={"fixed": True})
    await signal_run(world, "RETRY_STEP", step="bad")


async def _skipped(world: World) -> None:
    await asyncio.sleep(15)
    await signal_run(world, "SKIP_STEP", step="start")


async def _cancelled(world: World) -> None:
    await asyncio.sleep(15)
    await signal_run(world, "CANCEL")


async def _approved(world: World) -> None:
    await asyncio.sleep(15)
    await signal_run(world, "APPROVE")


async def _lost(world: World) -> None:
    """The process dies in the second task; the next one takes the work over."""
    await asyncio.sleep(15)
    await world.crash()
    life = world.begin_life()
    await world.free(life)
    life.start_sweeper()
    life.start_worker("second")


async def _nothing(world: World) -> None:
    pass


STORIES: dict[str, tuple[str, Script]] = {
    "paused_twice": (THREE_TASKS, _paused_twice),
    "withdrawn_pause": (THREE_TASKS, _withdrawn_pause),
    "restarted": (THREE_TASKS, _restarted),
    "restarted_at_once": (THREE_TASKS, _restarted_at_once),
    "fired_again": (BEST_EFFORT, _fired_again),
    "skipped": (THREE_TASKS, _skipped),
    "cancelled": (THREE_TASKS, _cancelled),
    "lost_lease": (THREE_TASKS, _lost),
    "approved": (APPROVAL, _approved),
    "cycle": (CYCLE, _nothing),
    "handled": (HANDLED, _nothing),
    "slow_retry": (SLOW_RETRY, _nothing),
    "parallel_loop_of_twelve": (PARALLEL, _nothing),
    "parallel_loop_lost": (PARALLEL.replace("takes: 2", "takes: 10"), _lost),
}
NAMES = sorted([path.stem for path in GOLDEN.glob("*.yaml")] + list(STORIES))


@lru_cache(maxsize=128)
def log_of(name: str) -> tuple[dict[str, Any], ...]:
    """Envelopes of a whole run; do not change them."""
    text, script = STORIES[name] if name in STORIES else ((GOLDEN / f"{name}.yaml").read_text("utf-8"), _nothing)

    async def main() -> Log:
        async with World(text) as world:
            life = world.begin_life()
            await world.start()
            life.start_sweeper()
            life.start_worker("first")
            await script(world)
            await world.current_life.api.ended(str(world.execution_id), timeout_s=7000)
            return await world.current_life.api.events(str(world.execution_id), limit=100_000)

    log: Log = run_virtually(main())
    assert log[-1]["event_type"] == "playbook.processed"
    return tuple(log)


def records(dialect: str, name: str) -> list[dict[str, Any]]:
    return [record.record for record in rendered_log(dialect, log_of(name))]
