"""Who holds a command: the key that claimed it and, inside that key, one worker. Nobody else speaks for it, by any route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.server.callers import Caller, bearer, keys_of
from tests.servers.arclog import running

TWO_STEPS = """
metadata: {name: two, path: flows/two}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: after, args: {rows: "{{ outcome.data.rows }}"}}]}
  - step: after
    tool: {kind: noop}
"""
CALLERS = [
    Caller("engineer", "engineer"),
    Caller("viewer", "viewer"),
    Caller("admin", "admin"),
    Caller("mine", "worker"),
    Caller("other", "worker"),
    Caller("foreign", "worker", "globex"),
]


class World:
    """A run on a server with keys, whose first command the key `mine` holds as worker w-1."""

    def __init__(self, client: httpx2.AsyncClient, keys: dict[str, str]) -> None:
        self.client = client
        self.keys = keys
        self.id = ""
        self.command: dict[str, Any] = {}

    async def ask(self, caller: str, method: str, path: str, **more: Any) -> httpx2.Response:
        return await self.client.request(method, path, headers=bearer(self.keys[caller]), **more)

    async def claim(self, caller: str = "mine", worker: str = "w-1") -> dict[str, Any]:
        body = {"worker": {"worker_id": worker, "kinds": ["noop"]}, "limit": 1}
        commands = (await self.ask(caller, "POST", "/api/worker/claim", json=body)).json().get("commands", [])
        command: dict[str, Any] = commands[0] if commands else {}
        return command

    async def send(self, caller: str, name: str, **more: Any) -> httpx2.Response:
        held = {"command_id": self.command["command_id"], "fence": self.command["fence"], "worker_id": "w-1"}
        body = {"execution_id": self.id, "event_type": name, "step": self.command["step"], **held, **more}
        body = {key: value for key, value in body.items() if value is not None}
        return await self.ask(caller, "POST", "/api/events", json=body)

    def report(self, n: int = 1, worker: str = "w-1") -> dict[str, Any]:
        step, run = self.command["step"], self.command["run"]
        started = {"t": "step.started", "@": 1_800_000_000_000_000, "s": step, "r": run}
        about = {"execution_id": int(self.id), "command_id": self.command["command_id"], "fence": self.command["fence"]}
        return {"worker_id": worker, **about, "n": n, "events": [started]}

    async def log(self) -> list[dict[str, Any]]:
        page = (await self.ask("viewer", "GET", f"/api/executions/{self.id}/events")).json()
        events: list[dict[str, Any]] = page["events"]
        return events

    async def denials(self) -> list[tuple[str, str]]:
        page = (await self.ask("admin", "GET", "/api/audit", params={"decision": "denied"})).json()
        return [(entry["principal"], entry["route"]) for entry in page["entries"]]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    home = tmp_path / "home"
    keys = await keys_of(home, CALLERS)
    async with running(home, worker=False) as server, server.client() as client:
        world = World(client, keys)
        started = await world.ask("engineer", "POST", "/api/executions", json={"playbook": TWO_STEPS})
        world.id = started.json()["execution_id"]
        world.command = await world.claim()
        yield world


async def test_a_worker_reports_on_the_wire_for_the_command_that_it_holds(world: World) -> None:
    for name, more in (
        ("step.enter", {}),
        ("task.started", {}),
        ("call.done", {"payload": {"rows": 3}}),
        ("step.exit", {"status": "COMPLETED"}),
    ):
        answer = await world.send("mine", name, **more)
        assert (answer.status_code, answer.json()["informative"]) == (200, False), answer.text
    assert answer.json()["closed"] is True
    log = await world.log()
    (done,) = [event for event in log if event["event_type"] == "task.done"]
    assert (done["task"], done["payload"]["outcome"]["data"], done["source"]) == ("start_task", {"rows": 3}, "worker")
    assert done["worker_id"].startswith("w-1@acme/key-"), "the credential is a part of the name"
    following = await world.claim()
    assert (following["step"], following["args"]) == ("after", {"rows": 3})


async def test_a_worker_need_not_say_which_of_its_keys_workers_it_is(world: World) -> None:
    assert (await world.send("mine", "step.enter", worker_id=None)).status_code == 200
    assert (await world.send("mine", "task.started", worker_id="w-2")).status_code == 409


FORGED = [{}, {"worker_id": None}, {"worker_id": "w-2"}]


@pytest.mark.parametrize("caller", ["other", "foreign"])
@pytest.mark.parametrize("forged", FORGED)
async def test_another_key_cannot_report_on_the_wire(world: World, caller: str, forged: dict[str, Any]) -> None:
    before = await world.log()
    refused = 404 if caller == "foreign" else 409
    for name in ("step.enter", "call.done", "step.exit", "command.started", "command.failed", "policy.task.evaluated"):
        more = {"payload": {"action": {"do": "fail"}}} if name.startswith("policy") else {}
        answer = await world.send(caller, name, **forged, **more)
        assert answer.status_code == refused, answer.text
    item = {"event_type": "step.enter", "step": "start", "fence": 1, "command_id": world.command["command_id"]}
    batch = {"execution_id": world.id, "worker_id": "w-1", "events": [item, item]}
    answer = await world.ask(caller, "POST", "/api/events/batch", json=batch)
    assert [result["status"] for result in answer.json()["results"]] == [refused, refused]
    assert await world.log() == before
    if caller == "other":
        denials = await world.denials()
        assert denials.count(("other", "/api/events")) == 6
        assert denials.count(("other", "/api/events/batch")) == 1
    assert (await world.send("mine", "step.enter")).status_code == 200


async def test_the_holders_full_name_in_a_body_is_no_name_of_a_worker(world: World) -> None:
    await world.send("mine", "step.enter")
    name = (await world.log())[-1]["worker_id"]
    assert "@" in name
    for caller in ("mine", "other"):
        answer = await world.send(caller, "task.started", worker_id=name)
        assert (answer.status_code, "worker_id" in answer.json()["detail"]) == (422, True)


@pytest.mark.parametrize("worker", ["w-1", "w-2"])
async def test_another_key_cannot_report_on_the_workers_routes(world: World, worker: str) -> None:
    before = await world.log()
    answer = await world.ask("other", "POST", "/api/worker/report", json=world.report(worker=worker))
    assert (answer.status_code, answer.json()["title"]) == (409, "StaleFence")
    held = [[world.command["command_id"], world.command["fence"]]]
    beat = await world.ask("other", "POST", "/api/worker/heartbeat", json={"worker_id": worker, "held": held})
    assert beat.json()["commands"] == [world.command["command_id"]], "it is not its own"
    about = {key: world.report()[key] for key in ("execution_id", "command_id", "fence")}
    back = await world.ask("other", "POST", "/api/worker/give-back", json={"worker_id": worker, **about})
    assert back.status_code == 409
    assert await world.log() == before
    assert set(await world.denials()) == {("other", "/api/worker/report"), ("other", "/api/worker/give-back")}
    assert (await world.ask("mine", "POST", "/api/worker/report", json=world.report())).status_code == 200


async def test_nobody_reports_for_a_command_that_nobody_holds(world: World) -> None:
    """The next fence is easily guessed: that does not make one the holder."""
    about = {key: world.report()[key] for key in ("execution_id", "command_id", "fence")}
    back = await world.ask("mine", "POST", "/api/worker/give-back", json={"worker_id": "w-1", **about})
    assert back.status_code == 200
    before = await world.log()
    world.command["fence"] = 2
    for caller in ("mine", "other"):
        assert (await world.ask(caller, "POST", "/api/worker/report", json=world.report())).status_code == 409
        assert (await world.send(caller, "step.enter")).status_code == 409
        body = {"worker_id": "w-1", **about, "fence": 2}
        assert (await world.ask(caller, "POST", "/api/worker/give-back", json=body)).status_code == 409
    assert await world.log() == before
    world.command = await world.claim("other", "w-1")
    assert world.command["fence"] == 2
    assert (await world.send("other", "step.enter")).status_code == 200


async def test_what_a_report_was_granted_is_for_whoever_sent_it(world: World) -> None:
    step, run = world.command["step"], world.command["run"]
    at = {"@": 1_800_000_000_000_000, "s": step, "r": run}
    task = {**at, "k": "start_task", "kr": 1}
    outcome = {"p": {"outcome": {"status": "ok", "result": {"rows": 1}}}}
    whole = [{"t": "step.started", **at}, {"t": "task.started", **task}, {"t": "task.done", **task, **outcome}]
    report = {**world.report(), "events": [*whole, {"t": "step.done", **at}], "wants": 1}
    mine = await world.ask("mine", "POST", "/api/worker/report", json=report)
    assert [command["step"] for command in mine.json()["commands"]] == ["after"]
    again = await world.ask("mine", "POST", "/api/worker/report", json=report)
    assert again.json()["commands"] == mine.json()["commands"]
    other = await world.ask("other", "POST", "/api/worker/report", json=report)
    assert (other.status_code, other.json()) == (200, {"accepted": 1, "closed": True})


async def test_a_late_report_is_its_last_holders(world: World) -> None:
    await world.send("mine", "step.enter")
    cancelled = await world.ask("engineer", "POST", f"/api/executions/{world.id}/cancel", json={"reason": "enough"})
    assert cancelled.status_code == 200
    before = await world.log()
    assert (await world.send("other", "call.done")).status_code == 409
    assert (await world.log()) == before
    late = await world.send("mine", "call.done", payload={"rows": 1})
    assert (late.status_code, late.json()["informative"], late.json()["closed"]) == (200, True, True)
    event = (await world.log())[-1]
    assert (event["source"], event["worker_id"].partition("@")[0], event["informative"]) == ("worker", "w-1", True)
    assert ("other", "/api/events") in await world.denials()


async def test_a_report_is_numbered_from_one(world: World) -> None:
    answer = await world.ask("mine", "POST", "/api/worker/report", json=world.report(n=0))
    assert answer.status_code == 422
    assert (await world.ask("mine", "POST", "/api/worker/report", json=world.report(n=1))).json() == {"accepted": 1}
