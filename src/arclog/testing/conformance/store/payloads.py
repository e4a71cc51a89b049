"""Rules of content: any JSON comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arclog.ports.storage.store import Timer
from arclog.testing.conformance.store.base import Rules, World, event

_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
_LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
_JSON = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXT, inner, max_size=5))

#: the rules are inherited by each store's own class, and the store lives through all examples: both are meant
_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]

_LISTED: list[Any] = [
    {"nul": "a\x00b", "\x00": 1, "": None},
    {"lone": "\ud800", "\udfff": ["\udc80 ü"], "pair": "\U0001f600"},
    {"ints": [2**63 - 1, -(2**63), 2**63, 2**64, -(2**63) - 1, 10**300]},
    {"floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e22, 123456789.123456789]},
    {"long": "ü" * 300_000},
    {"text": '"\\/\b\f\n\r\t\u2028\u2029\x7f'},
    {"many": {str(n): n for n in range(5000)}},
]


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for n in range(levels):
        value = [value] if n % 2 else {"k": value}
    return value


class PayloadRules(Rules):
    @given(payload=st.dictionaries(_TEXT, _JSON, max_size=5))
    @settings(max_examples=60, deadline=None, suppress_health_check=_SHARED)
    async def test_any_payload_comes_back(self, world: World, payload: dict[str, Any]) -> None:
        await _check(world, payload)

    @pytest.mark.parametrize("payload", _LISTED, ids=lambda payload: next(iter(payload)))
    async def test_odd_payloads_come_back(self, world: World, payload: dict[str, Any]) -> None:
        await _check(world, payload)

    async def test_deep_payloads_come_back(self, world: World) -> None:
        await _check(world, {"deep": deep(200)})

    async def test_one_odd_payload_among_many_events(self, world: World) -> None:
        events = [event("task.done", "a", 1, payload={"n": n}) for n in range(600)]
        events[300] = event("task.done", "a", 1, payload={"x": "\ud800"})
        execution_id = await world.create(*events)
        assert [each.event for each in await world.store.events(execution_id)] == events


async def _check(world: World, payload: dict[str, Any]) -> None:
    execution_id = await world.create(event("task.done", payload=payload), set_timers=[Timer(0, "t", 1, payload)])
    (stored,) = await world.store.events(execution_id)
    assert repr(stored.event.payload) == repr(payload)  # tells 1 from 1.0 and True, 0.0 from -0.0
    timers = await world.store.due_timers(1, limit=100_000)
    assert repr([each.payload for each in timers if each.execution_id == execution_id]) == repr([payload])
