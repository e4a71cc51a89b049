"""Keys that are bound to a project or an environment: they act there, and what belongs to another one is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from arclog.model.config.settings import Settings
from arclog.model.principal import ROLES
from arclog.operations.operation import ADMIN, BUILD
from arclog.wiring.worker import remote_worker
from tests.integration.server.callers import Caller, bearer, keys_of
from tests.integration.server.test_access import ROUTES, _filled
from tests.servers.arclog import RunningServer, running

WAITS = """
metadata: {name: waits, path: flows/waits}
workflow:
  - step: start
    tool: {kind: wait, for_s: 600}
"""
NOOP = "metadata: {name: quick, path: flows/quick}\nworkflow:\n  - {step: start, tool: {kind: noop, data: 1}}\n"
FAILS = 'metadata: {name: fails, path: flows/fails}\nworkflow:\n  - {step: start, loop: {in: "{{ 1 / 0 }}", iterator: n}, tool: {kind: noop}}\n'
ASKS = "metadata: {name: asks, path: flows/asks}\nexecutor: {spec: {policy: {approval: required}}}\nworkflow:\n  - {step: start, tool: {kind: noop}}\n"
STORES = """
metadata: {name: stores, path: flows/stores}
workflow:
  - step: start
    tool: {kind: python, code: "result = 'of prod ' * 20000"}
"""
USES = """
metadata: {name: uses, path: flows/uses}
keychain: [{name: crm, kind: secret}]
workflow:
  - step: start
    tool: {kind: noop, data: {n: "{{ keychain.crm.value | length }}"}}
"""
PROD, DEV = {"project": "shop", "environment": "prod"}, {"project": "shop", "environment": "dev"}
CALLERS = [
    *(Caller(f"all-{role}", role) for role in ROLES),
    *(Caller(f"prod-{role}", role, **PROD) for role in ROLES),
    *(Caller(f"dev-{role}", role, **DEV) for role in ROLES),
    Caller("shop-viewer", "viewer", project="shop"),
    Caller("live-viewer", "viewer", environment="prod"),
]
#: Concern a whole tenant: who is bound to a part of it is refused.
TENANT_WIDE = {
    ("POST", "/api/gc"),
    ("POST", "/api/catalog/archive"),
    ("DELETE", "/api/worker/results"),
    ("GET", "/api/worker/results/all"),
    ("DELETE", "/api/worker/results/leftovers"),
    ("GET", "/api/audit"),
    ("GET", "/api/doctor"),
    ("PUT", "/api/pools/{pool}/limit"),
    ("DELETE", "/api/pools/{pool}/limit"),
    ("PUT", "/api/resources/{name}"),
    ("DELETE", "/api/resources/{name}"),
    ("POST", "/api/workers/drain"),
}
#: Tell nothing of runs: the installation's pools and workers, published schemas, and what anybody may ask.
NOBODYS = {
    "/", "/api/docs", "/api/openapi.json", "/health", "/ready", "/metrics", "/api/schemas", "/api/schemas/{name}", "/api/pools", "/api/pools/{pool}/scale",
    "/api/resources", "/api/workers", "/api/worker/register", "/api/worker/plans/{digest}", "/api/check", "/api/check/schema",
    "/api/settings", "/api/me", "/api/session", "/api/session/oidc", "/api/session/callback",
}  # fmt: skip
#: Each has a test below.
TESTED = {
    "/api/executions", "/api/execute", "/api/runs", "/api/result", "/api/result/resolve", "/api/events", "/api/events/batch",
    "/api/keys", "/api/keys/{key_id}", "/api/credentials", "/api/credentials/{name}", "/api/schedules",
    "/api/schedules/{name}", "/api/schedules/{name}/pause", "/api/schedules/{name}/resume",
    "/api/schedules/{name}/backfill", "/api/worker/claim", "/api/worker/report", "/api/worker/heartbeat",
    "/api/worker/give-back", "/api/worker/revoked", "/api/worker/loop-results", "/api/worker/logs", "/api/worker/secret",
    "/api/catalog", "/api/catalog/versions", "/api/catalog/show", "/api/catalog/diff", "/api/activity", "/api/failing",
    "/api/stuck", "/api/approvals", "/api/stats", "/api/leases", "/api/simulate", "/api/import",
}  # fmt: skip
#: Content is named by its hash, which only those know who were told of it; of whose tenant it is, test_workers looks after.
BY_CONTENT = {"/api/worker/results", "/api/worker/results/items", "/api/worker/results/about"}


class World:
    def __init__(self, server: RunningServer, client: httpx2.AsyncClient, keys: dict[str, str]) -> None:
        self.server = server
        self.client = client
        self.keys = keys

    async def ask(self, caller: str, method: str, path: str, **more: Any) -> httpx2.Response:
        return await self.client.request(method, path, headers=bearer(self.keys[caller]), **more)

    async def start(self, caller: str = "prod-engineer", playbook: str = WAITS, **more: Any) -> dict[str, Any]:
        answer = await self.ask(caller, "POST", "/api/executions", json={"playbook": playbook, **more})
        assert answer.status_code == 201, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def ended(self, execution_id: str) -> dict[str, Any]:
        await self.ask("all-viewer", "GET", f"/api/executions/{execution_id}/events/stream")
        body: dict[str, Any] = (await self.ask("all-viewer", "GET", f"/api/executions/{execution_id}")).json()
        return body

    async def claim(self, caller: str, worker: str = "w") -> list[dict[str, Any]]:
        body = {"worker": {"worker_id": worker, "kinds": ["noop"]}, "limit": 9}
        commands: list[dict[str, Any]] = (
            (await self.ask(caller, "POST", "/api/worker/claim", json=body)).json().get("commands", [])
        )
        return commands


@asynccontextmanager
async def opened(home: Path, **settings: Any) -> AsyncIterator[World]:
    keys = await keys_of(home, CALLERS)
    async with running(home, worker=False, **{"scope.tenant": "acme", **settings}) as server, server.client() as client:
        yield World(server, client, keys)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path / "home") as runtime:
        yield runtime


# -- every route ------------------------------------------------------------------------------------------------------


def test_no_route_is_forgotten() -> None:
    left = [
        (method, route.path)
        for method, route in ROUTES
        if not set(route.path_names) & {"execution_id", "run_id"}
        and (method, route.path) not in TENANT_WIDE
        and route.path not in NOBODYS | TESTED | BY_CONTENT
    ]
    assert left == [], "who is bound to an environment must be kept out of others here, too"


async def test_a_simulation_reads_and_an_import_writes_only_where_the_key_is_bound(world: World) -> None:
    run = await world.start(playbook=NOOP)
    request = {"playbook": NOOP, "runs": [run["execution_id"]]}
    assert (await world.ask("prod-engineer", "POST", "/api/simulate", json=request)).status_code == 200
    assert (await world.ask("dev-engineer", "POST", "/api/simulate", json=request)).status_code == 404
    assert (await world.ask("dev-engineer", "POST", "/api/simulate", json={"playbook": NOOP})).status_code == 404
    file = await world.ask("prod-viewer", "GET", f"/api/executions/{run['execution_id']}/export")
    assert (file.status_code, file.headers["content-type"]) == (200, "application/zip")
    assert (await world.ask("dev-viewer", "POST", "/api/import", content=file.content)).status_code == 403
    # The run is there, elsewhere: it is neither given away nor taken over.
    assert (await world.ask("dev-engineer", "POST", "/api/import", content=file.content)).status_code == 409
    assert (await world.ask("dev-viewer", "GET", f"/api/executions/{run['execution_id']}")).status_code == 404


async def test_every_route_that_names_a_run_hides_it_from_another_environment(world: World) -> None:
    run = await world.start()
    body = {"signal": "CANCEL", "reason": "mine now", "step": "start"}
    named = 0
    wrong: list[Any] = []
    for method, route in ROUTES:
        names = set(route.path_names)
        if not names & {"execution_id", "run_id"}:
            continue
        named += 1
        theirs = _filled(route, execution_id=run["execution_id"], run_id=run["run_id"])
        nobodys = _filled(route, execution_id="123456789", run_id="7d3e5bd1-7f0f-4a0e-9d5a-3a6f2e0c9b11")
        more: dict[str, Any] = {"json": body} if method != "GET" else {}
        for role in ("admin", "engineer", "operator", "viewer"):
            seen = await world.ask(f"dev-{role}", method, theirs, **more)
            none = await world.ask(f"dev-{role}", method, nobodys, **more)
            if seen.status_code != none.status_code or seen.status_code not in (403, 404, 422):
                wrong.append((method, theirs, role, seen.status_code, none.status_code))
            if method == "GET" and seen.status_code != 404:
                wrong.append((method, theirs, role, seen.status_code))
            if "waits" in seen.text or "prod" in seen.text:
                wrong.append((method, theirs, role, seen.text))
    assert wrong == []
    assert named > 10
    for caller in ("prod-viewer", "all-viewer", "shop-viewer", "live-viewer"):
        status = (await world.ask(caller, "GET", f"/api/executions/{run['execution_id']}/status")).json()
        assert status["state"] == "RUNNING"


async def test_what_concerns_the_whole_tenant_is_not_for_who_is_bound(world: World) -> None:
    for method, path in sorted(TENANT_WIDE):
        route = next(candidate for verb, candidate in ROUTES if (verb, candidate.path) == (method, path))
        roles = route.access
        role = "admin" if roles == ADMIN else "engineer"
        assert roles in (ADMIN, BUILD)
        bound = await world.ask(f"prod-{role}", method, _filled(route), json={} if method != "GET" else None)
        assert (bound.status_code, "whole tenant" in bound.json()["detail"]) == (403, True), (method, path)
        free = await world.ask(f"all-{role}", method, _filled(route), json={} if method != "GET" else None)
        assert free.status_code != 403, (method, path)
    entries = (await world.ask("all-admin", "GET", "/api/audit", params={"decision": "denied"})).json()["entries"]
    assert len(entries) == len(TENANT_WIDE)


# -- what needs attention ---------------------------------------------------------------------------------------------


async def test_what_needs_attention_is_told_to_those_who_see_the_run(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", **{"overview.stuck_s": 0}) as world:
        failed = await world.start(playbook=FAILS)
        assert (await world.ended(failed["execution_id"]))["state"] == "FAILED"
        approval_run = await world.start(playbook=ASKS)
        stuck = await world.start(playbook=NOOP)

        async def told(caller: str) -> list[Any]:
            async def asked(route: str) -> Any:
                answer = await world.ask(caller, "GET", route)
                assert answer.status_code == 200, answer.text
                return answer.json()

            return [
                [playbook["last"]["execution_id"] for playbook in (await asked("/api/failing"))["playbooks"]],
                [run["run"]["execution_id"] for run in (await asked("/api/stuck"))["runs"]],
                [approval["run"]["execution_id"] for approval in (await asked("/api/approvals"))["approvals"]],
                sum(hour["failed"] for hour in (await asked("/api/activity"))["hours"]),
                (await world.ask(caller, "GET", "/api/stats", params={"path": "flows/fails"})).status_code,
            ]

        everything = [[failed["execution_id"]], [stuck["execution_id"]], [approval_run["execution_id"]], 1, 200]
        for caller in ("prod-viewer", "all-viewer", "shop-viewer", "live-viewer"):
            assert await told(caller) == everything, caller
        assert await told("dev-viewer") == [[], [], [], 0, 404]
        assert len(await world.claim("prod-worker")) == 1
        for caller, leases in (("prod-viewer", 1), ("all-viewer", 1), ("live-viewer", 1), ("dev-viewer", 0)):
            assert len((await world.ask(caller, "GET", "/api/leases")).json()["leases"]) == leases, caller


# -- runs -------------------------------------------------------------------------------------------------------------


async def test_runs_are_started_where_the_key_is_bound_and_nowhere_else(world: World) -> None:
    run = await world.start("dev-engineer")
    about = (await world.ask("dev-viewer", "GET", f"/api/runs/{run['run_id']}/status")).json()
    assert (about["projectId"], about["environmentId"]) == ("shop", "dev")
    await world.start("dev-engineer", scope=DEV)
    for scope in (PROD, {"environment": "prod"}, {"project": "other"}, {**DEV, "project": "other"}):
        for route in ("/api/executions", "/api/execute"):
            answer = await world.ask("dev-engineer", "POST", route, json={"playbook": WAITS, "scope": scope})
            assert (answer.status_code, "is bound to" in answer.json()["detail"]) == (403, True), scope
        named = {"projectId": scope.get("project", ""), "environmentId": scope.get("environment", "")}
        answer = await world.ask("dev-engineer", "POST", "/api/runs", json={"playbook": WAITS, **named})
        assert answer.status_code == 403
    mine = (await world.ask("dev-viewer", "GET", "/api/executions")).json()["executions"]
    assert len(mine) == 2
    assert (await world.ask("prod-viewer", "GET", "/api/executions")).json()["executions"] == []
    assert len((await world.ask("shop-viewer", "GET", "/api/executions")).json()["executions"]) == 2
    assert (await world.ask("live-viewer", "GET", "/api/executions")).json()["executions"] == []
    denied = (await world.ask("all-admin", "GET", "/api/audit", params={"decision": "denied"})).json()["entries"]
    assert {entry["principal"] for entry in denied} == {"dev-engineer"}


async def test_a_run_names_its_own_tenant_or_none(world: World) -> None:
    body = {"playbook": WAITS, "tenantId": "acme"}
    assert (await world.ask("dev-engineer", "POST", "/api/runs", json=body)).json()["tenantId"] == "acme"
    foreign = await world.ask("dev-engineer", "POST", "/api/runs", json={**body, "tenantId": "globex"})
    assert foreign.status_code == 404
    for odd in ({"tenant": "acme"}, {"tenantID": "globex"}, {"environment": "prod"}):
        answer = await world.ask("dev-engineer", "POST", "/api/runs", json={"playbook": WAITS, **odd})
        assert (answer.status_code, next(iter(odd)) in answer.json()["detail"]) == (422, True)
    run = (await world.ask("dev-engineer", "POST", "/api/runs", json=body)).json()["runId"]
    for path, sent in (
        ("cancel", {"reason": "x", "force": True}),
        ("signal", {"type": "PAUSE", "signalId": "s", "x": 1}),
    ):
        assert (await world.ask("dev-operator", "POST", f"/api/runs/{run}/{path}", json=sent)).status_code == 422


async def test_what_a_bound_key_registers_is_run_in_its_environment_only(world: World) -> None:
    """Else whoever may write playbooks for dev would run code with the secrets of prod."""
    shared = "metadata: {name: job, path: flows/job}\nworkflow:\n  - {step: start, tool: {kind: noop, data: VALUE}}\n"
    registered = await world.ask(
        "all-engineer", "POST", "/api/catalog", json={"playbook": shared.replace("VALUE", "shared")}
    )
    assert registered.json()["version"] == 1
    mine = await world.ask("dev-engineer", "POST", "/api/catalog", json={"playbook": shared.replace("VALUE", "dev")})
    assert mine.json()["version"] == 2
    await world.start("dev-engineer", shared.replace("VALUE", "inline"))

    async def versions(caller: str) -> list[int]:
        answer = await world.ask(caller, "GET", "/api/catalog/versions", params={"path": "flows/job"})
        return [version["version"] for version in answer.json()["versions"]]

    async def pinned(caller: str, **more: Any) -> tuple[int, str]:
        answer = await world.ask(caller, "POST", "/api/runs", json={"planId": "flows/job", **more})
        return answer.status_code, answer.json().get("planVersion", "")

    assert [await versions(caller) for caller in ("dev-viewer", "prod-viewer", "all-viewer")] == [
        [3, 2, 1],
        [1],
        [3, 2, 1],
    ]
    assert await pinned("dev-operator") == (201, "3")
    assert await pinned("prod-operator") == (201, "1")
    assert await pinned("prod-operator", planVersion="2") == (404, "")
    assert await pinned("all-operator", projectId="shop", environmentId="prod") == (201, "1")
    assert await pinned("all-operator", projectId="shop", environmentId="dev") == (201, "3")
    for path in ("show", "diff"):
        params = {"path": "flows/job", "version": 2, "from": 1, "to": 2}
        assert (await world.ask("prod-viewer", "GET", f"/api/catalog/{path}", params=params)).status_code == 404
        assert (await world.ask("dev-viewer", "GET", f"/api/catalog/{path}", params=params)).status_code == 200
    schedule = {"name": "s", "cron": "0 6 * * *", "path": "flows/job", "version": 2}
    assert (await world.ask("prod-engineer", "POST", "/api/schedules", json=schedule)).status_code == 404
    assert (await world.ask("dev-engineer", "POST", "/api/schedules", json=schedule)).status_code == 201
    only = await world.ask(
        "dev-engineer", "POST", "/api/catalog", json={"playbook": shared.replace("flows/job", "flows/own")}
    )
    assert only.status_code == 201
    listed = {
        caller: [playbook["path"] for playbook in (await world.ask(caller, "GET", "/api/catalog")).json()["playbooks"]]
        for caller in ("dev-viewer", "prod-viewer")
    }
    assert listed == {"dev-viewer": ["flows/job", "flows/own"], "prod-viewer": ["flows/job"]}


async def test_an_idempotency_key_is_the_environments_own(world: World) -> None:
    first = await world.start("dev-engineer", idempotency_key="k")
    two = await world.start("prod-engineer", idempotency_key="k")
    assert first["execution_id"] != two["execution_id"]


async def test_events_from_outside_stay_in_their_environment(world: World) -> None:
    run = await world.start()
    event = {"execution_id": run["execution_id"], "event_type": "call.done", "step": "start"}
    for caller, status in (("dev-producer", 404), ("dev-admin", 404), ("prod-producer", 200), ("all-producer", 200)):
        assert (await world.ask(caller, "POST", "/api/events", json=event)).status_code == status, caller
        batch = await world.ask(caller, "POST", "/api/events/batch", json={"events": [event]})
        assert [result["status"] for result in batch.json()["results"]] == [status]
    held = {"command_id": 5, "fence": 1}
    assert (await world.ask("dev-worker", "POST", "/api/events", json={**event, **held})).status_code == 404
    assert (await world.ask("prod-worker", "POST", "/api/events", json={**event, **held})).status_code == 409


async def test_a_search_across_runs_keeps_to_what_the_key_reaches(world: World) -> None:
    runs = {place: (await world.start(f"{place}-engineer"))["execution_id"] for place in ("prod", "dev")}
    for types in (["playbook.started"], ["RunStarted"], ["step.scheduled"], []):
        for caller, owners in (
            ("prod-viewer", {runs["prod"]}),
            ("dev-admin", {runs["dev"]}),
            ("shop-viewer", {*runs.values()}),
        ):
            answer = await world.ask(caller, "GET", "/api/events", params={"type": types, "limit": 1000})
            assert {event["execution_id"] for event in answer.json()["events"]} == owners, (types, caller)
            for only in ({"entity": "playbook"}, {"where": "execution_id"}):
                answer = await world.ask(caller, "GET", "/api/events", params={**only, "limit": 1000})
                assert {event["execution_id"] for event in answer.json()["events"]} == owners, (only, caller)
    theirs = {"where": f"execution_id == '{runs['prod']}'"}
    assert (await world.ask("dev-admin", "GET", "/api/events", params=theirs)).json()["events"] == []
    assert (await world.ask("prod-worker", "GET", "/api/events")).status_code == 403


# -- workers ----------------------------------------------------------------------------------------------------------


async def test_a_worker_gets_the_commands_of_its_environment(world: World) -> None:
    runs = {place: await world.start(f"{place}-engineer", NOOP) for place in ("prod", "dev")}
    other = await world.start("all-engineer", NOOP, scope={"project": "bakery", "environment": "prod"})
    (mine,) = await world.claim("dev-worker")
    assert str(mine["execution_id"]) == runs["dev"]["execution_id"]
    assert await world.claim("dev-worker") == []
    (theirs,) = await world.claim("prod-worker")
    assert str(theirs["execution_id"]) == runs["prod"]["execution_id"]
    (rest,) = await world.claim("all-worker")
    assert str(rest["execution_id"]) == other["execution_id"]
    about = {"execution_id": theirs["execution_id"], "command_id": theirs["command_id"], "fence": theirs["fence"]}
    event = {"t": "step.started", "@": 1_800_000_000_000_000, "s": "start", "r": 1}
    report = {"worker_id": "w", **about, "n": 1, "events": [event]}
    assert (await world.ask("dev-worker", "POST", "/api/worker/report", json=report)).status_code == 404
    back = await world.ask("dev-worker", "POST", "/api/worker/give-back", json={"worker_id": "w", **about})
    assert back.status_code == 404
    held = [[theirs["command_id"], theirs["fence"]]]
    beat = await world.ask("dev-worker", "POST", "/api/worker/heartbeat", json={"worker_id": "w", "held": held})
    assert beat.json()["commands"] == [theirs["command_id"]]
    request = {"worker_id": "w", "wait_s": 0, "held": [[theirs["execution_id"], *held[0]]]}
    assert (await world.ask("dev-worker", "POST", "/api/worker/revoked", json=request)).json() == {}
    loop = {"execution_id": theirs["execution_id"], "step": "start", "run": 1, "after": 0, "limit": 5}
    assert (await world.ask("dev-worker", "POST", "/api/worker/loop-results", json=loop)).status_code == 404
    line = {
        "execution_id": theirs["execution_id"], "at": 1, "step": "start", "run": 1, "task": "t", "task_run": 1,
        "attempt": 1, "stream": "log", "text": "forged",
    }  # fmt: skip
    assert (await world.ask("dev-worker", "POST", "/api/worker/logs", json={"lines": [line]})).status_code == 404
    assert (await world.ask("prod-worker", "POST", "/api/worker/report", json=report)).status_code == 200


@asynccontextmanager
async def working(world: World, caller: str, home: Path, **settings: Any) -> AsyncIterator[None]:
    values = Settings({"home": str(home), **settings})
    async with remote_worker(values, world.server.url, world.keys[caller], ["default"]) as worker:
        task = asyncio.ensure_future(worker.run())
        yield
        worker.leave()
        await task


async def test_two_environments_with_the_same_secret_name_never_mix(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as world:
        for place, value in (("prod", "p" * 11), ("dev", "d" * 5)):
            kept = await world.ask(f"{place}-engineer", "PUT", "/api/credentials/crm", json={"value": value})
            assert (kept.status_code, kept.json()["scope"]) == (200, f"acme/shop/{place}")
        key = {"secrets.key_file": str(tmp_path / "home" / "secrets.key")}
        for place in ("prod", "dev"):
            scope = f"acme/shop/{place}"
            other = "dev" if place == "prod" else "prod"
            answer_of_server = await world.ask(
                f"{place}-worker", "POST", "/api/worker/secret", json={"name": "crm", "scope": scope}
            )
            assert answer_of_server.json()["secret"]["info"]["scope"] == scope
            for wrong in (f"acme/shop/{other}", "acme/shop", "acme", f"acme/bakery/{place}"):
                body = {"name": "crm", "scope": wrong}
                refused = await world.ask(f"{place}-worker", "POST", "/api/worker/secret", json=body)
                assert refused.status_code == 404, wrong
            listed = (await world.ask(f"{place}-viewer", "GET", "/api/credentials")).json()["credentials"]
            assert [entry["scope"] for entry in listed] == [scope]
        runs = {place: await world.start(f"{place}-engineer", USES) for place in ("prod", "dev")}
        async with working(world, "all-worker", tmp_path / "worker", **key):
            ended = {place: await world.ended(run["execution_id"]) for place, run in runs.items()}
        assert {place: entry["result"] for place, entry in ended.items()} == {"prod": {"n": 11}, "dev": {"n": 5}}
        for body in (
            {"value": "x1"} | {"environment": "prod"},
            {"value": "x1"} | {"project": "bakery"},
        ):
            answer = await world.ask("dev-engineer", "PUT", "/api/credentials/crm", json=body)
            assert answer.status_code == 403, body
        gone = await world.ask("dev-engineer", "DELETE", "/api/credentials/crm", params=PROD)
        assert gone.status_code == 403
        half = await world.ask("all-engineer", "PUT", "/api/credentials/x", json={"value": "x1", "environment": "prod"})
        assert half.status_code == 422
        assert (await world.ask("all-engineer", "PUT", "/api/credentials/all", json={"value": "x1"})).status_code == 200
        listed = (await world.ask("dev-viewer", "GET", "/api/credentials")).json()["credentials"]
        assert [entry["name"] for entry in listed] == ["all", "crm"], "what is valid in the whole tenant is valid there"
        assert (await world.ask("dev-engineer", "DELETE", "/api/credentials/crm")).status_code == 200
        assert (await world.ask("dev-engineer", "DELETE", "/api/credentials/all")).status_code == 404


# -- results, schedules, keys -----------------------------------------------------------------------------------------


async def test_stored_results_are_the_environments_own(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as world:
        run = await world.start("prod-engineer", STORES)
        async with working(world, "prod-worker", tmp_path / "worker"):
            assert (await world.ended(run["execution_id"]))["state"] == "COMPLETED"
        path = f"/api/executions/{run['execution_id']}/results"
        (stored,) = (await world.ask("prod-viewer", "GET", path)).json()["results"]
        assert (await world.ask("dev-viewer", "GET", path)).status_code == 404
        for route in ("/api/result", "/api/result/resolve"):
            params = {"ref": stored["ref"]}
            mine = await world.ask("prod-viewer", "GET", route, params=params)
            theirs = await world.ask("dev-admin", "GET", route, params=params)
            assert (mine.status_code, theirs.status_code, "of prod" in theirs.text) == (200, 404, False)
            assert (await world.ask("all-viewer", "GET", route, params=params)).status_code == 200


async def test_schedules_are_the_environments_own(world: World) -> None:
    await world.ask("all-engineer", "POST", "/api/catalog", json={"playbook": NOOP})
    new = {"name": "nightly", "cron": "0 6 * * *", "path": "flows/quick"}
    for place in ("prod", "dev"):
        answer = await world.ask(f"{place}-engineer", "POST", "/api/schedules", json={**new, "name": f"of-{place}"})
        assert answer.status_code == 201, answer.text
    listed = (await world.ask("dev-viewer", "GET", "/api/schedules")).json()["schedules"]
    assert [entry["name"] for entry in listed] == ["of-dev"]
    page = (await world.ask("prod-viewer", "GET", "/api/schedules", params={"limit": 1})).json()
    assert ([schedule["name"] for schedule in page["schedules"]], page["next"]) == (["of-prod"], None)
    span = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-02T00:00:00Z"}
    for method, path, body in (
        ("GET", "", None),
        ("POST", "/pause", {}),
        ("POST", "/resume", {}),
        ("POST", "/backfill", span),
        ("DELETE", "", None),
    ):
        answer = await world.ask("dev-engineer", method, f"/api/schedules/of-prod{path}", json=body)
        assert answer.status_code == 404, (method, path)
    assert len((await world.ask("all-viewer", "GET", "/api/schedules")).json()["schedules"]) == 2
    assert (await world.ask("prod-engineer", "DELETE", "/api/schedules/of-prod")).status_code == 204


async def test_who_is_bound_makes_and_sees_keys_of_its_own_environment(world: World) -> None:
    made = (await world.ask("dev-admin", "POST", "/api/keys", json={"name": "new", "roles": ["viewer"]})).json()
    assert (made["about"]["project"], made["about"]["environment"]) == ("shop", "dev")
    for place in (PROD, {"project": "bakery"}):
        body = {"name": "new", "roles": ["admin"], **place}
        assert (await world.ask("dev-admin", "POST", "/api/keys", json=body)).status_code == 403
    seen = (await world.ask("dev-admin", "GET", "/api/keys")).json()["keys"]
    assert {(key["project"], key["environment"]) for key in seen} == {("shop", "dev")}
    everything = (await world.ask("all-admin", "GET", "/api/keys")).json()["keys"]
    other = next(result for result in everything if result["environment"] == "prod")
    assert (await world.ask("dev-admin", "DELETE", f"/api/keys/{other['key_id']}")).status_code == 404
    assert (await world.ask("dev-admin", "DELETE", f"/api/keys/{made['about']['key_id']}")).status_code == 200
