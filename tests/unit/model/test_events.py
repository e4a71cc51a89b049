"""Events of other releases: an older one's log replays, a newer one's is left alone and everything else goes on."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from arclog.dialects.names import DIALECTS
from arclog.model import events
from arclog.model.config.settings import Settings
from arclog.model.envelope import Subject, widen
from arclog.model.errors import NewerLog
from arclog.model.events import BITS, LIFTS, MARKED, REGISTRY, Event, EventType, is_newer, lifted
from arclog.plan import net
from arclog.ports.views.api import ExecuteRequest, SignalRequest
from arclog.server.streams.events import RunEvents
from arclog.stores import rows
from arclog.wiring.embedded import Embedded, embedded

PLAYBOOK = """\
metadata: {name: old}
workflow:
  - step: ask
    tool: {kind: approval, prompt: "go on?"}
    next: {arcs: [{step: last}]}
  - step: last
    tool: {kind: noop, data: done}
"""
FUTURE = "playbook.teleported"


@pytest.fixture
def raised() -> Iterator[None]:
    """This release has changed what a signal's payload looks like: `signal` was called `name` before."""
    before = REGISTRY["signal.received"]
    REGISTRY["signal.received"] = replace(before, version=2)
    LIFTS["signal.received", 1] = lambda payload: {
        **{key: value for key, value in payload.items() if key != "name"},
        "signal": payload.get("name") or payload["signal"],
    }
    yield
    REGISTRY["signal.received"] = before
    LIFTS.clear()


@asynccontextmanager
async def working(home: Path) -> AsyncIterator[Embedded]:
    async with embedded(Settings({"home": str(home), "engine.sweep_s": 0.05})) as runtime:
        await runtime.start_worker()
        yield runtime


async def started(embedded_runtime: Embedded) -> str:
    execution_id = (await embedded_runtime.api.execute(ExecuteRequest(playbook=PLAYBOOK))).execution_id
    head = 0
    while (
        not (await embedded_runtime.api.why(execution_id)).waits
        or (await embedded_runtime.api.why(execution_id)).waits[0].what != "approval"
    ):
        head = await embedded_runtime.api.wait(execution_id, after=head)
    return execution_id


def test_an_event_is_lifted_version_by_version(raised: None) -> None:
    old = Event("signal.received", 1, payload={"name": "PAUSE", "by": "me"})
    assert not is_newer(old)
    new = lifted(old)
    assert (new.payload, new.version) == ({"signal": "PAUSE", "by": "me"}, 2)
    assert lifted(new) is new
    assert is_newer(replace(new, version=3))
    assert is_newer(Event(FUTURE, 1))
    assert lifted(Event(FUTURE, 1)).version == 1


async def test_a_log_of_an_older_release_replays_and_goes_on(tmp_path: Path) -> None:
    async with working(tmp_path) as runtime:
        execution_id = await started(runtime)
        await runtime.api.signal(execution_id, SignalRequest("UPDATE_PARAMS", "s1", data={"x": 1}))
    # What this release wrote is an older release's from now on.
    before = REGISTRY["signal.received"]
    REGISTRY["signal.received"] = replace(before, version=2)
    LIFTS["signal.received", 1] = lambda payload: {**payload, "lifted": True}
    try:
        async with working(tmp_path) as runtime:
            events = await runtime.api.events(execution_id, types=("signal.received",))
            assert [event["payload"].get("lifted") for event in events] == [True]
            assert (await runtime.api.signal(execution_id, SignalRequest("APPROVE", "s2"))).accepted
            assert await runtime.api.ended(execution_id, timeout_s=30)
            assert (await runtime.api.summary(execution_id)).state == "COMPLETED"
    finally:
        REGISTRY["signal.received"] = before
        LIFTS.clear()


@asynccontextmanager
async def a_newer_release(embedded_runtime: Embedded, execution_id: str) -> AsyncIterator[None]:
    """One that knows a type more has written it into a log."""
    record = await embedded_runtime.engine.store.execution(int(execution_id))
    assert record is not None
    REGISTRY[FUTURE] = EventType(FUTURE, 60, "playbook", ("server",), ("success",), "It is elsewhere now.")
    BITS[FUTURE] = 1 << 60
    rows._KINDS[FUTURE] = (BITS[FUTURE], None)
    try:
        from arclog.ports.storage.store import Append

        event = Event(FUTURE, embedded_runtime.engine.clock.now(), payload={"to": "mars"})
        base = embedded_runtime.engine.minter.next_id()
        await embedded_runtime.engine.store.append(Append(record.execution_id, record.head, [event], base, record.now))
    finally:
        del REGISTRY[FUTURE], BITS[FUTURE], rows._KINDS[FUTURE]
    yield


async def test_a_run_of_the_future_is_left_alone_and_the_others_go_on(tmp_path: Path, caplog) -> None:
    async with working(tmp_path) as runtime:
        theirs, ours = await started(runtime), await started(runtime)
        with caplog.at_level(logging.ERROR, "arclog"):
            async with a_newer_release(runtime, theirs):
                record = await runtime.engine.store.execution(int(theirs))
                assert record is not None
                head = record.head
                for _ in range(2):
                    with pytest.raises(NewerLog, match=r"playbook\.teleported.*newer arclog wrote.*update it"):
                        await runtime.api.signal(theirs, SignalRequest("APPROVE", "s1"))
        messages = [record for record in caplog.records if "newer arclog wrote" in record.getMessage()]
        assert len(messages) == 1, "an operator hears of it, once"
        assert (await runtime.api.signal(ours, SignalRequest("APPROVE", "s1"))).accepted
        assert await runtime.api.ended(ours, timeout_s=30)
        # Whoever only reads is served, in every dialect.
        assert (await runtime.api.status(theirs)).state == "RUNNING"
        event = (await runtime.api.events(theirs))[-1]
        assert (event["event_type"], event["event_alias"], event["payload"]) == (
            FUTURE,
            "PlaybookTeleported",
            {"to": "mars"},
        )
        for dialect in DIALECTS:
            page = await RunEvents(runtime.api, theirs, dialect, []).page(0, 1000)
            assert page.events
        record = await runtime.engine.store.execution(int(theirs))
        assert record is not None
        assert record.head == head, "nothing was appended"


def test_whoever_reads_an_unknown_type_gets_its_name() -> None:
    full = widen(Event("moon.landed", 1, step="s", run=1), Subject(7, "x"), 1, 2, 3)
    assert (full["entity_type"], full["status"], full["source"]) == ("moon", "success", "server")
    assert "moon.landed" not in MARKED
    assert events.kind_of("moon.landed").bit == -1


def test_a_plan_of_a_newer_release_is_refused() -> None:
    plan = net.Plan("future", "start", (), format=net.FORMAT + 1)
    with pytest.raises(NewerLog, match="the plan of 'future' has format"):
        net.decode(net.encode(plan))
    assert net.decode(net.encode(net.Plan("now", "start", (), format=net.FORMAT))).name == "now"
