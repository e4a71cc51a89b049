"""What looks at many runs, on the real server: bounded, and of the caller's tenant alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2

from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import running

STUCK = """\
metadata: {name: stuck, path: media/stuck}
workflow:
  - step: resize
    spec: {pool: gpu}
    tool: {kind: python, code: "result = 1"}
"""
ASKS = "metadata: {name: asks}\nworkflow:\n  - step: start\n    tool: {kind: approval, prompt: 'Go?'}\n"
#: Runs until it is cancelled.
HELD = """\
metadata: {name: held}
workflow:
  - step: hold
    tool: {kind: python, code: "import threading; threading.Event().wait()"}
"""
HELLO = "metadata: {name: hello}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"


async def started(client: httpx2.AsyncClient, playbook: str, **more: Any) -> str:
    answer = await client.post("/api/executions", json={"playbook": playbook}, **more)
    assert answer.status_code == 201, answer.text
    execution_id: str = answer.json()["execution_id"]
    return execution_id


async def test_work_that_no_worker_takes_is_told_with_the_reason(tmp_path: Path) -> None:
    settings = {"overview.stuck_s": 0}
    async with running(tmp_path / "home", worker=False, **settings) as server, server.client() as client:
        first = await started(client, STUCK)
        await started(client, STUCK)
        other = await started(client, HELLO)
        runs = (await client.get("/api/stuck")).json()["runs"]
        assert [(run["run"]["execution_id"], run["step"], run["pool"]) for run in runs] == [
            (first, "resize", "gpu"),  # one for its lane: the other run waits behind it
            (other, "start", "default"),
        ]
        assert "waits for a worker of pool gpu that supports python" in runs[0]["why"]
        assert len((await client.get("/api/stuck", params={"limit": 1})).json()["runs"]) == 1
    async with running(tmp_path / "home", worker=False) as server, server.client() as client:
        assert (await client.get("/api/stuck")).json()["runs"] == []  # nothing has waited for a minute


async def test_a_search_looks_at_so_many_runs_at_a_time(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "home", worker=False, **{"overview.search_runs": 3}) as server,
        server.client() as client,
    ):
        wanted = await started(client, STUCK)
        made = [await started(client, HELLO) for _ in range(4)]
        first = (await client.get("/api/executions", params={"q": "media/"})).json()
        assert (first["executions"], first["next"]) == ([], made[1])
        second = (await client.get("/api/executions", params={"q": "media/", "before": first["next"]})).json()
        assert [run["execution_id"] for run in second["executions"]] == [wanted]
        assert second["next"] is None
        assert (await client.get("/api/executions", params={"q": "x" * 201})).status_code == 422
        assert (await client.get("/api/executions", params={"since": "soon"})).status_code == 422
        assert (await client.get("/api/executions", params={"level": "odd"})).status_code == 422


async def test_each_tenant_sees_its_own(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keys = await make_keys(home, [("acme", "engineer"), ("globex", "viewer")])
    settings: dict[str, Any] = {"overview.stuck_s": 0, "scope.tenant": "acme"}
    async with running(home, **settings) as server, server.client() as client:
        mine, theirs = bearer(keys["acme", "engineer"]), bearer(keys["globex", "viewer"])
        ended = await started(client, HELLO, headers=mine)
        approval_run = await started(client, ASKS, headers=mine)
        stuck = await started(client, STUCK, headers=mine)
        ending: dict[str, str | int] = {"until": "ended", "timeout_s": 20}
        await client.get(f"/api/executions/{ended}/head", params=ending, headers=mine)
        while not (await client.get("/api/approvals", headers=mine)).json()["approvals"]:
            await client.get(f"/api/executions/{approval_run}/head", params={"after": 1, "timeout_s": 1}, headers=mine)
        assert (await client.get("/api/stuck", headers=mine)).json()["runs"][0]["run"]["execution_id"] == stuck
        assert (await client.get("/api/activity", headers=mine)).json()["hours"][-1]["completed"] == 1
        assert (await client.get("/api/activity", headers=theirs)).json()["hours"] == []
        for route, rows in (("stuck", "runs"), ("approvals", "approvals"), ("failing", "playbooks")):
            assert (await client.get(f"/api/{route}", headers=theirs)).json()[rows] == []
        for text in (ended, "hello", approval_run):
            answer_of_search = await client.get("/api/executions", params={"q": text}, headers=theirs)
            assert answer_of_search.json() == {"executions": [], "next": None}


async def test_leases_name_worker_work_and_end_and_stay_within_a_tenant(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keys = await make_keys(home, [("acme", "engineer"), ("globex", "viewer")])
    settings: dict[str, Any] = {"scope.tenant": "acme"}
    async with running(home, **settings) as server, server.client() as client:
        mine, theirs = bearer(keys["acme", "engineer"]), bearer(keys["globex", "viewer"])
        execution_id = await started(client, HELD, headers=mine)
        head = f"/api/executions/{execution_id}/head"
        seen = 0
        while not (leases := (await client.get("/api/leases", headers=mine)).json()["leases"]):
            params = {"after": seen, "timeout_s": 20}
            seen = (await client.get(head, params=params, headers=mine)).json()["head"]
        (lease,) = leases
        assert (lease["run"]["execution_id"], lease["step"], lease["step_run"]) == (execution_id, "hold", 1)
        assert (lease["pool"], lease["claims"]) == ("default", 1)
        assert lease["until"] > lease["run"]["started_at"]
        workers = (await client.get("/api/workers", headers=mine)).json()["workers"]
        assert lease["worker_id"] in {worker["worker_id"] for worker in workers}
        assert (await client.get("/api/leases", headers=theirs)).json() == {"leases": []}
        stop = {"signal": "CANCEL", "reason": "enough"}
        await client.post(f"/api/executions/{execution_id}/signal", json=stop, headers=mine)
        await client.get(head, params={"until": "ended", "timeout_s": 20}, headers=mine)
        assert (await client.get("/api/leases", headers=mine)).json() == {"leases": []}
