"""A run that wraps a value once more each round ends with a template error: nothing too deep gets into its log."""

from __future__ import annotations

import pytest

from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually

WRAPS = {
    "ctx": """\
    tool:
      name: a
      kind: noop
      spec: {policy: {rules: [{else: {then: {do: jump, to: a, set_ctx: {a: ["{{ ctx.a | default(0) }}"]}}}}]}}
""",
    "iter": """\
    tool:
      name: a
      kind: noop
      spec: {policy: {rules: [{else: {then: {do: jump, to: a, set_iter: {a: {b: "{{ iter.a | default(0) }}"}}}}}]}}
""",
    "args": """\
    args: {a: 0}
    tool: {kind: noop}
    next: {arcs: [{step: start, args: {a: "{{ [args.a] }}"}}]}
""",
}


@pytest.mark.parametrize("place", WRAPS)
def test_a_value_wrapped_each_round_ends_the_run_before_it_is_too_deep_to_read(place: str) -> None:
    async def main() -> None:
        async with World(f"metadata: {{name: deep}}\nworkflow:\n  - step: start\n{WRAPS[place]}") as world:
            state = await world.run()
            assert state.error is not None
            assert (state.error["kind"], state.status) == ("template", "FAILED")
            assert "nested deeper than" in state.error["message"]
            assert await world.terminal_events() == ["playbook.finished"]

    run_virtually(main())
