"""Shared parts of the rules: an Api, and short ways to start runs."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.ports.views.api import Api, ExecuteRequest, Status

#: Longer than anything here takes. A rule that waits this long has failed.
PATIENCE_S = 60.0
UNKNOWN = "380452616754167808"

HELLO = """\
metadata: {name: hello}
workload: {name: world}
workflow:
  - step: start
    tool: {kind: noop, data: {text: "hello {{ workload.name }}"}}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: "{{ start.text }}"}
"""
#: waits for the signal `go`, then ends with the data of the signal
WAITING = """\
metadata: {name: waiting}
workflow:
  - step: start
    tool: {kind: wait, signal: go}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: 1}
"""


class Rules:
    """Base of all groups of rules: the fixture."""

    @pytest.fixture
    async def api(self) -> Api:
        pytest.fail("a subclass of ApiContract gives api")


async def started(api: Api, playbook: str = HELLO, **workload: Any) -> str:
    return (await api.execute(ExecuteRequest(playbook=playbook, workload=workload))).execution_id


async def ended_run(api: Api, playbook: str = HELLO, **workload: Any) -> str:
    """A run that has ended."""
    execution_id = await started(api, playbook, **workload)
    await ended(api, execution_id)
    return execution_id


async def ended(api: Api, execution_id: str) -> Status:
    assert await api.ended(execution_id, timeout_s=PATIENCE_S), "the run does not end"
    return await api.status(execution_id)


async def until_event(api: Api, execution_id: str, event_type: str) -> dict[str, Any]:
    """Return the first event of a type, waiting until it exists."""
    head = 0
    while True:
        events = await api.events(execution_id, types=(event_type,))
        if events:
            return events[0]
        now = await api.wait(execution_id, after=head, timeout_s=PATIENCE_S)
        assert now > head, f"no {event_type} comes"
        head = now
