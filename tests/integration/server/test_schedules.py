"""Schedules over HTTP, on a real server that fires them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from arclog.cli.main import command
from arclog.client.asynchronous import AsyncClient
from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, NotFound
from arclog.ports.storage.schedules import NewSchedule
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import embedded
from tests.servers.arclog import RunningServer, running

pytest_plugins = ["tests.servers.arclog"]

PLAYBOOK = "metadata: {name: tidy, path: flows/tidy}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
#: settings
OFTEN: dict[str, Any] = {"engine.sweep_s": 0.05}
NEW = {"name": "often", "cron": "* * * * * *", "path": "flows/tidy", "workload": {"a": 1}}


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """A home whose catalog has the playbook."""
    async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
        await runtime.api.execute(ExecuteRequest(PLAYBOOK))
    return tmp_path / "home"


async def test_a_schedule_is_kept_shown_paused_and_removed(home: Path) -> None:
    async with running(home, worker=False) as server, server.client() as client:
        made = await client.post("/api/schedules", json={**NEW, "cron": "0 6 * * *", "tz": "Europe/Berlin"})
        assert made.status_code == 201
        assert made.json()["next_due"].endswith(("T05:00:00.000000Z", "T04:00:00.000000Z"))
        assert (await client.post("/api/schedules", json={**NEW, "cron": "0 6 * * *"})).status_code == 409
        assert (await client.get("/api/schedules/often")).json() == made.json()
        listed = (await client.get("/api/schedules")).json()
        assert listed == {"schedules": [made.json()], "next": None}
        assert (await client.post("/api/schedules/often/pause")).json()["paused"] is True
        resumed = (await client.post("/api/schedules/often/resume")).json()
        assert (resumed["paused"], resumed["next_due"]) == (False, made.json()["next_due"])
        span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
        queued = await client.post("/api/schedules/often/backfill", json=span)
        assert (queued.status_code, queued.json()) == (202, {"queued": ["2026-01-01T05:00:00.000000Z"]})
        assert (await client.delete("/api/schedules/often")).status_code == 204
        assert (await client.get("/api/schedules/often")).status_code == 404


async def test_client_and_command_line_speak_to_a_server(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def arclog(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(command, [*words, "--server", server.url])
        output = capsys.readouterr()
        return code, output.out, output.err

    async with running(home, worker=False) as server, AsyncClient(server.url) as client:
        made = await client.schedules.add(NewSchedule("daily", "0 6 * * *", "flows/tidy", workload={"a": [1]}))
        assert await client.schedules.list() == [made]
        assert await client.schedules.show("daily") == made
        assert (await client.schedules.pause("daily")).paused
        assert not (await client.schedules.resume("daily")).paused
        assert await client.schedules.backfill("daily", "2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z") == [
            "2026-01-01T06:00:00.000000Z"
        ]
        with pytest.raises(Conflict):
            await client.schedules.add(NewSchedule("daily", "0 6 * * *", "flows/tidy"))
        with pytest.raises(NotFound, match="no schedule 'a b'"):
            await client.schedules.remove("a b")
        code, out, _ = await arclog(
            "schedule", "add", "weekly", "--cron", "0 6 * * 1", "--path", "flows/tidy", "--json"
        )
        assert (code, json.loads(out)["cron"]) == (0, "0 6 * * 1")
        code, out, _ = await arclog("schedule", "list", "--json")
        assert [load["name"] for load in json.loads(out)] == ["daily", "weekly"]
        assert (await arclog("schedule", "rm", "weekly"))[0] == 0
        code, _, err = await arclog("schedule", "show", "weekly")
        assert (code, "no schedule 'weekly'" in err) == (2, True)


async def test_pages_of_schedules(home: Path) -> None:
    async with running(home, worker=False) as server, server.client() as client:
        for name in ("a", "b", "c"):
            await client.post("/api/schedules", json={**NEW, "name": name, "cron": "0 6 * * *"})
        first = (await client.get("/api/schedules?limit=2")).json()
        assert ([schedule["name"] for schedule in first["schedules"]], first["next"]) == (["a", "b"], "b")
        second = (await client.get("/api/schedules?limit=2&after=b")).json()
        assert ([schedule["name"] for schedule in second["schedules"]], second["next"]) == (["c"], None)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({**NEW, "path": "flows/unknown"}, 404),
        ({**NEW, "cron": "soon"}, 422),
        ({**NEW, "tz": "Mars/Base"}, 422),
        ({**NEW, "overlap": "never"}, 422),
        ({**NEW, "nmae": "x"}, 422),
        ({**NEW, "workload": []}, 422),
        ({"name": "x"}, 422),
        ([], 422),
    ],
)
async def test_what_cannot_be_is_a_problem(home: Path, body: object, status: int) -> None:
    async with running(home, worker=False) as server, server.client() as client:
        answer = await client.post("/api/schedules", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


@pytest.mark.parametrize("name", ["%ff", "%00", "%ed%a0%80", "x" * 3000, "..%2f..", "%2e%2e"])
async def test_strange_names_are_not_there(home: Path, name: str) -> None:
    async with running(home, worker=False) as server, server.client() as client:
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause")):
            answer = await client.request(method, f"/api/schedules/{name}{path}")
            assert answer.status_code in (404, 405, 422), (method, answer.text)
        assert (await client.get(f"/api/schedules?after={name}")).status_code in (200, 422)


async def test_a_schedule_fires_and_goes_on_after_a_restart(home: Path) -> None:
    async def fired(server: RunningServer, others_than: str | None) -> str:
        async with server.client() as client:
            while True:
                shown = (await client.get("/api/schedules/often")).json()
                if shown["last_execution"] not in (None, others_than):
                    execution_id: str = shown["last_execution"]
                    return execution_id
                await asyncio.sleep(0.05)

    async with asyncio.timeout(60):
        async with running(home, **OFTEN) as server:
            async with server.client() as client:
                assert (await client.post("/api/schedules", json=NEW)).status_code == 201
            first = await fired(server, None)
        async with running(home, **OFTEN) as server:
            second = await fired(server, first)
    async with embedded(Settings({"home": str(home)}), read_only=True) as runtime:
        for execution_id in (first, second):
            (request_event,) = await runtime.api.events(execution_id, limit=1)
            assert request_event["payload"]["workload"]["schedule"]["name"] == "often"
            assert request_event["payload"]["workload"]["schedule"]["due"] <= request_event["timestamp"]
