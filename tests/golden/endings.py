"""Runs that end while something of them is open, one for each way in which that can happen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from arclog.core.boundary.inputs import Abort
from arclog.model.config.settings import Settings
from arclog.model.outcome import error
from arclog.ports.views.api import SignalRequest
from arclog.testing.harness import World

BRANCHES = """
metadata: {name: branches}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: wait}, {step: quick}, {step: slow}, {step: queued}]}
  - step: quick
    tool:
      - name: note
        kind: act
        takes: 2
        spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {noted: true}}}}]}}
      - {name: work, kind: act, takes: 20, fail_attempts: FAILURES}
  - {step: slow, tool: [{name: before, kind: act, returns: 1}, {name: work, kind: act, takes: 100}]}
  - {step: queued, tool: {kind: act}}
  - {step: wait, tool: {name: ask, kind: approval}}
"""
LOOP = """
metadata: {name: loops}
executor: {spec: {ctx: {total: {reducer: sum, initial: 0}}}}
workflow:
  - step: start
    loop: {in: [0, 1, 2, 3, 4, 5, 6, 7], iterator: n, spec: SPEC}
    spec: POLICY
    tool:
      - name: note
        kind: act
        takes: "{{ 1 + iter.n }}"
        returns: "{{ iter.n }}"
        fail_attempts: "{{ 1 if iter.n == FAILING else 0 }}"
        spec: {policy: {rules: [{when: "{{ outcome.status == 'ok' }}", then: {do: continue, set_ctx: {total: 1, "k": true}}}, {else: {then: {do: fail}}}]}}
      - {name: work, kind: act, takes: 3, returns: "{{ iter.n }}"}
    next: {arcs: [{step: after, when: "{{ event.name == 'step.failed' }}"}, {step: after}]}
  - step: after
    tool: {kind: act, takes: 1, returns: "{{ start.results | default('none') }}"}
"""
NESTED = """
metadata: {name: nested}
workflow:
  - step: start
    loop:
      in: [0, 1, 2]
      iterator: a
      spec: {mode: parallel, max_in_flight: 2}
      loop: {in: [0, 1], iterator: b, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: act, name: work, takes: "{{ 5 * (1 + iter.parent.a + iter.b) }}", fail_attempts: "{{ 1 if iter.parent.a == 2 and FAILURES else 0 }}"}
"""
RETRYING = """
metadata: {name: retrying}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: near}, {step: far}, {step: again}]}
  - step: near
    tool: {name: flaky, kind: act, fail_attempts: 9, spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 9, delay: 50}}, {else: {then: {do: continue}}}]}}}
  - step: far
    tool: {name: flaky, kind: act, fail_attempts: 9, spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 9, delay: 250}}, {else: {then: {do: continue}}}]}}}
  - step: again
    tool: {name: flaky, kind: act, takes: 15, fail_attempts: 1, spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 9, delay: 1}}, {else: {then: {do: continue}}}]}}}
"""
LATE = """
metadata: {name: late}
workflow:
  - step: start
    spec: {policy: {lifecycle: {timeout_s: 10}}}
    tool: [{name: before, kind: act, returns: 1}, {name: work, kind: act, takes: 100}]
    next: {arcs: [{step: after, when: "{{ event.name == 'step.failed' }}"}]}
  - {step: after, tool: {kind: noop, data: "{{ start.error.kind | default('none') }}"}}
"""
TASKS = """
metadata: {name: tasks}
workflow:
  - step: start
    tool: [{name: a, kind: act, takes: 10, returns: 1}, {name: b, kind: act, takes: 10, returns: 2}]
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: act, takes: 10, returns: "{{ start.status }} {{ start.data }}"}}
"""
COUNTED = """
metadata: {name: counted}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}, {step: d}]}
  - {step: a, tool: {kind: act, takes: 1}, next: {arcs: [{step: join}]}}
  - {step: b, tool: {kind: act, takes: 2}, next: {arcs: [{step: join}]}}
  - {step: c, tool: {kind: act, takes: 3}, next: {arcs: [{step: join}]}}
  - {step: d, tool: {kind: act, takes: 40}, next: {arcs: [{step: join}]}}
  - {step: join, spec: {join: {count: 2}}, tool: {kind: act, takes: 5}}
"""
JOIN = """
metadata: {name: joined}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}
  - {step: a, tool: {kind: act, takes: 1}, next: {arcs: [{step: join}]}}
  - {step: b, tool: {kind: act, takes: 40}, next: {arcs: [{step: join}]}}
  - {step: c, tool: {kind: act, takes: 20, fail_attempts: 1}}
  - {step: join, spec: {join: all}, tool: {kind: act}}
"""
PARENT = """
metadata: {name: parent}
workflow:
  - {step: start, tool: {name: call, kind: playbook, path: tasks}}
"""

PARALLEL = "{mode: parallel, max_in_flight: 4}"
LOCAL = "{mode: parallel, max_in_flight: 4, policy: {exec: local}}"
SEQUENTIAL = "{mode: sequential}"


def loop(spec: str, *, failing: int = -1, policy: str = "{}") -> str:
    return LOOP.replace("SPEC", spec).replace("FAILING", str(failing)).replace("POLICY", policy)


@dataclass
class Ending:
    """A run, and what is done to it at which second."""

    playbook: str
    signals: list[tuple[float, SignalRequest]] = field(default_factory=list)
    #: the worker is lost so often that its command is given up
    poison: bool = False
    #: the engine itself gives the run up at this second
    abort_at: float = 0.0
    #: commands that a worker runs at a time; what is beyond waits for one
    slots: int = 8


def _signal(signal: str, **more: Any) -> SignalRequest:
    return SignalRequest(signal, f"{signal.lower()}-1", "enough", **more)


TIMEOUT = "{policy: {lifecycle: {timeout_s: 5.5}}}"
ENDINGS: dict[str, Ending] = {
    "cancel": Ending(BRANCHES.replace("FAILURES", "0"), [(5, _signal("CANCEL"))], slots=2),
    "cancel_while_paused": Ending(
        BRANCHES.replace("FAILURES", "0"), [(5, _signal("PAUSE")), (130, _signal("CANCEL"))], slots=2
    ),
    "emergency_stop": Ending(BRANCHES.replace("FAILURES", "0"), [(5, _signal("EMERGENCY_STOP"))], slots=2),
    "fail_fast": Ending(BRANCHES.replace("FAILURES", "1"), slots=2),
    "run_timeout": Ending(
        BRANCHES.replace("FAILURES", "0").replace("workflow:", "executor: {spec: {timeout_s: 8}}\nworkflow:"), slots=2
    ),
    "abort": Ending(BRANCHES.replace("FAILURES", "0"), abort_at=5, slots=2),
    "poison": Ending(TASKS, poison=True),
    "step_timeout": Ending(LATE),
    "skip": Ending(TASKS, [(15, _signal("SKIP_STEP", step="start"))]),
    "skip_loop": Ending(loop(PARALLEL), [(5.5, _signal("SKIP_STEP", step="start"))]),
    "retry_in_flight": Ending(TASKS, [(15, _signal("RETRY_STEP", step="start"))]),
    "cancel_retrying": Ending(RETRYING, [(20, _signal("CANCEL"))]),
    "loop_fails": Ending(loop(PARALLEL, failing=4)),
    "loop_fails_local": Ending(loop(LOCAL, failing=4)),
    "loop_fails_sequential": Ending(loop(SEQUENTIAL, failing=2)),
    "loop_timeout": Ending(loop(PARALLEL, policy=TIMEOUT)),
    "loop_timeout_local": Ending(loop(LOCAL, policy=TIMEOUT)),
    "cancel_loop": Ending(loop(PARALLEL), [(5.5, _signal("CANCEL"))]),
    "cancel_loop_local": Ending(loop(LOCAL), [(5.5, _signal("CANCEL"))]),
    "nested_loop_fails": Ending(NESTED.replace("FAILURES", "true")),
    "cancel_nested_loop": Ending(NESTED.replace("FAILURES", "false"), [(7, _signal("CANCEL"))]),
    "counted_join": Ending(COUNTED),
    "cancel_counted_join": Ending(COUNTED, [(4, _signal("CANCEL"))]),
    "waiting_join": Ending(JOIN),
    "cancel_child": Ending(PARENT, [(5, _signal("CANCEL"))]),
}


async def run(ending: Ending) -> World:
    """The world of the run, once it has ended; whoever calls closes it."""
    settings = Settings({"leases.max_losses": 2 if ending.poison else 5, "worker.slots": ending.slots})
    world = World(ending.playbook, settings=settings)
    await world.__aenter__()
    await world.register(TASKS)
    going = asyncio.ensure_future(world.run())
    for at, request in ending.signals:
        await asyncio.sleep(at - asyncio.get_running_loop().time())
        answer = await world.current_life.api.signal(str(world.execution_id), request)
        assert answer.accepted, answer.message
    if ending.abort_at:
        await asyncio.sleep(ending.abort_at)
        await world.current_life.engine.put(world.execution_id, Abort(error("internal", "something is broken")))
    if ending.poison:
        for seconds in (12, 3):
            await asyncio.sleep(seconds)
            (record,) = await world.current_life.store.commands(world.execution_id)
            await world.current_life.control.end_lease(record)
    await going
    await world.current_life.children.settle(1000.0)
    return world
