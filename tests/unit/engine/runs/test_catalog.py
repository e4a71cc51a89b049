"""`executor.spec.schedules`: applied when a playbook is registered, replaced and removed by its next version."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.runs.schedules import EngineSchedules
from arclog.engine.views.api import EngineApi
from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, PlaybookError, RequestRejected
from arclog.ports.boundary import Boundary
from arclog.ports.views.api import ExecuteRequest, RegisterRequest
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from arclog.tools import noop


def book(*schedules: str, path: str = "flows/tidy", more: str = "") -> str:
    spec = f"{{schedules: [{', '.join(schedules)}]{more}}}"
    return f"""
metadata: {{name: tidy, path: {path}}}
executor: {{spec: {spec}}}
workflow: [{{step: start, tool: {{kind: noop}}}}]
"""


class Place:
    def __init__(self, store: MemoryStore, clock: FakeClock) -> None:
        self.engine = Engine(store, clock, Settings(), Minter(clock, 1))
        self.api = EngineApi(self.engine, {"noop": noop.KIND.spec}, MemoryResults())
        self.schedules = EngineSchedules(self.engine, Boundary.owner(self.engine.settings, "default"))

    async def register(self, text: str) -> None:
        await self.api.register(RegisterRequest(text))

    async def names(self) -> list[str]:
        return [schedule.name for schedule in await self.schedules.list()]


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    await store.open()
    place = Place(store, clock)
    yield place
    await place.engine.close()
    await store.close()


async def test_a_registered_playbook_has_its_schedules(place: Place) -> None:
    await place.register(book("{cron: '0 6 * * *', tz: Europe/Berlin, workload: {n: 1}, overlap: queue}"))
    (listed,) = await place.schedules.list()
    assert (listed.name, listed.cron, listed.tz, listed.path) == (
        "flows.tidy",
        "0 6 * * *",
        "Europe/Berlin",
        "flows/tidy",
    )
    assert (listed.workload, listed.overlap, listed.catch_up) == ({"n": 1}, "queue", "last")
    assert listed.next_due is not None


async def test_a_run_of_a_file_applies_none(place: Place) -> None:
    await place.api.execute(ExecuteRequest(book("{cron: '0 6 * * *'}")))
    assert await place.names() == []


async def test_the_next_version_replaces_and_removes_them(place: Place) -> None:
    await place.register(book("{name: early, cron: '0 6 * * *'}", "{name: late, cron: '0 20 * * *'}"))
    await place.schedules.pause("late")
    await place.register(book("{name: late, cron: '0 21 * * *'}", "{name: noon, cron: '0 12 * * *'}"))
    assert await place.names() == ["late", "noon"]
    late = await place.schedules.show("late")
    assert (late.cron, late.paused) == ("0 21 * * *", True)
    await place.register(book())
    assert await place.names() == []


async def test_the_same_text_again_changes_nothing(place: Place) -> None:
    text = book("{name: early, cron: '0 6 * * *'}")
    await place.register(text)
    before = await place.engine.store.schedule("default", "early")
    await place.register(text)
    assert await place.engine.store.schedule("default", "early") == before


async def test_a_name_of_another_playbook_is_refused_and_nothing_registered(place: Place) -> None:
    await place.register(book("{name: early, cron: '0 6 * * *'}"))
    with pytest.raises(Conflict, match="schedule early belongs to flows/tidy"):
        await place.register(book("{name: early, cron: '0 7 * * *'}", path="flows/other"))
    assert [entry.path for entry in await place.api.catalog()] == ["flows/tidy"]


async def test_a_secret_input_is_not_written_into_a_schedule(place: Place) -> None:
    with pytest.raises(RequestRejected, match="n: is a secret, and schedules"):
        await place.register(book("{cron: '0 6 * * *', workload: {n: xyz}}", more=", inputs: {n: {type: secret}}"))


async def test_a_workload_that_breaks_the_inputs_is_refused(place: Place) -> None:
    with pytest.raises(RequestRejected, match=r"schedule .*: the workload does not fit .* n: expected an integer"):
        await place.register(book("{cron: '0 6 * * *', workload: {n: x}}", more=", inputs: {n: {type: integer}}"))
    assert await place.api.catalog() == []


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("{cron: '61 * * * *'}", "cron: '61"),
        ("{cron: '0 6 * *'}", "five fields"),
        ("{cron: '0 6 31 2 *'}", "Bad day-of-month"),
        ("{cron: '0 6 * * *', tz: Europe/Berlon}", "no time zone"),
        ("{name: a b, cron: '0 6 * * *'}", "not a valid name of a schedule"),
        ("{tz: UTC}", "needs the key 'cron'"),
        ("{cron: '0 6 * * *'}, {cron: '0 7 * * *'}", "flows.tidy"),
    ],
)
async def test_what_can_never_fire_is_found_by_check(place: Place, schedule: str, message: str) -> None:
    with pytest.raises(PlaybookError, match=message):
        await place.register(book(schedule))


async def test_a_playbook_that_declares_too_many_schedules_is_not_registered(place: Place) -> None:
    declared = [f"{{name: s{number}, cron: '0 6 * * *'}}" for number in range(3)]
    place.engine.settings = Settings({"schedules.max_per_tenant": 2})
    with pytest.raises(RequestRejected, match=r"has 0 schedules and cannot have 3 more: schedules.max_per_tenant is 2"):
        await place.register(book(*declared))
    assert await place.api.catalog() == []
    for _ in range(2):
        await place.register(book(*declared[:2]))
    with pytest.raises(RequestRejected, match=r"schedules\.max_per_tenant"):
        await place.register(book(*declared))
    assert await place.names() == ["s0", "s1"]
