"""What an event costs to apply does not grow with the log. Counted, not timed: calls of Python code, and sizes of the state."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.engine.commits import snapshots
from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.plan.program import Program
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually

LAPS = 300

CYCLE = f"""
metadata: {{name: cycle}}
workflow:
  - step: start
    tool: {{kind: noop}}
    next: {{arcs: [{{step: back, when: "{{{{ (args.lap | default(1000)) < {1000 + LAPS} }}}}", args: {{lap: "{{{{ (args.lap | default(1000)) + 1 }}}}"}}}}]}}
  - step: back
    tool: {{kind: noop}}
    next: {{arcs: [{{step: start, args: {{lap: "{{{{ args.lap }}}}"}}}}]}}
"""

LOOP = f"""
metadata: {{name: loop}}
workflow:
  - step: start
    loop: {{in: "{{{{ range({LAPS * 2}) }}}}", iterator: item}}
    tool: {{kind: noop}}
"""

JUMPS = f"""
metadata: {{name: jumps}}
workflow:
  - step: start
    tool:
      - name: again
        kind: noop
        spec:
          policy:
            rules:
              - when: "{{{{ (iter.n | default(0)) < {LAPS * 2} }}}}"
                then: {{do: jump, to: again, set_iter: {{n: "{{{{ (iter.n | default(0)) + 1 }}}}"}}}}
              - else: {{then: {{do: continue}}}}
"""


def _calls(program: Program, state: State, events: Sequence[Event]) -> int:
    """Calls of Python and C functions while the events are applied."""
    calls = 0

    def count(_frame: FrameType, what: str, _arg: Any) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    sys.setprofile(count)
    try:
        for event in events:
            apply(program, state, event)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("text", [CYCLE, LOOP, JUMPS], ids=["cycle of steps", "loop", "jumps"])
def test_the_last_tenth_of_a_log_costs_what_the_second_did(text: str) -> None:
    async def main() -> tuple[Program, list[Event], int]:
        async with World(text, settings=Settings({"engine.snapshot_events": 0})) as world:
            await world.run()
            return world.program, await world.events(), world.execution_id

    program, events, execution_id = run_virtually(main())
    state = State(execution_id=execution_id)
    tenth = len(events) // 10
    calls: list[int] = []
    sizes: list[int] = []
    for first in range(0, tenth * 10, tenth):
        calls.append(_calls(program, state, events[first : first + tenth]))
        sizes.append(len(snapshots.encode_state(state)))
    # The first and the last tenth also hold the beginning and the end of the run.
    middle = calls[1:-1]
    assert max(middle) - min(middle) <= 0.02 * max(middle) + 40, calls
    # Nor does the state, which a snapshot writes down: what is over leaves nothing behind but numbers with more digits.
    # Sizes differ by what is open where the tenths are cut: a step run with its command, or a token.
    assert max(sizes[1:-1]) - min(sizes[1:-1]) <= 1000, sizes
