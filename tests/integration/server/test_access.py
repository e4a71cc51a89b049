"""Who may call what, on the real server: every route by every role, by nobody, and by another tenant."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from arclog.model.errors import InvariantBroken, SettingsError
from arclog.model.principal import ROLES
from arclog.operations.operation import Operation
from arclog.operations.table import OPERATIONS
from arclog.server.dispatch import Routes
from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import RunningServer, running

ROUTES = [(operation.method, operation) for operation in OPERATIONS]
#: The only ones that anybody may call.
PUBLIC = {
    "/",
    "/api/docs",
    "/api/openapi.json",
    "/health",
    "/ready",
    "/metrics",
    "/api/session",
    "/api/session/oidc",
    "/api/session/callback",
}
GARBAGE = ("ark_0123456789abcdef_" + "x" * 43, "garbage", "eyJhbGciOiJub25lIn0.e30.", "null")
PLAYBOOK = """\
metadata: {name: waits, path: flows/waits}
workflow:
  - step: start
    tool: {kind: wait, for_s: 600}
"""
STORES = """\
metadata: {name: stores}
workflow:
  - step: start
    tool: {kind: python, code: "result = 'secret of acme ' * 10000"}
"""


class World:
    """A server with a key for each role of two tenants."""

    def __init__(self, server: RunningServer, keys: dict[tuple[str, str], str], client: httpx2.AsyncClient) -> None:
        self.server = server
        self.keys = keys
        self.client = client

    async def ask(self, method: str, path: str, caller: str = "", tenant: str = "acme", **more: Any) -> httpx2.Response:
        headers = {**(bearer(self.keys[tenant, caller]) if caller else {}), **more.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **more)

    async def start(self, playbook: str = PLAYBOOK) -> str:
        answer = await self.ask("POST", "/api/execute", "engineer", json={"playbook": playbook})
        assert answer.status_code == 201, answer.text
        execution_id: str = answer.json()["execution_id"]
        return execution_id


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with _world(tmp_path / "home") as world:
        yield world


@asynccontextmanager
async def _world(home: Path, *, worker: bool = False, **settings: Any) -> AsyncIterator[World]:
    keys = await make_keys(home, [(tenant, role) for tenant in ("acme", "globex") for role in ROLES])
    async with (
        running(home, worker=worker, **{"auth.max_failures": 1_000_000, "scope.tenant": "acme", **settings}) as server,
        server.client() as client,
    ):
        yield World(server, keys, client)


def _filled(operation: Operation[Any], **given: str) -> str:
    """The operation's path with something in each of its places, and in the parameters that it requires."""
    names = dict.fromkeys(operation.path_names, "1")
    path = operation.path.format(**{**names, **{key: value for key, value in given.items() if key in names}})
    required = [
        field.encode_name
        for field in msgspec.structs.fields(operation.params)
        if field.required and field.encode_name not in names
    ]
    return path + ("?" + "&".join(f"{name}=1" for name in required) if required else "")


# -- every route ------------------------------------------------------------------------------------------------------


def test_the_walk_walks() -> None:
    assert len(ROUTES) > 20
    assert {route.path for _, route in ROUTES if route.access is None} <= PUBLIC


async def test_every_route_by_every_role_and_by_nobody(world: World) -> None:
    wrong: list[Any] = []
    for method, route in ROUTES:
        roles = route.access
        path = _filled(route)
        answers = {"nobody": await world.ask(method, path)}
        for text in GARBAGE:
            answers[text] = await world.ask(method, path, headers=bearer(text))
        for caller, answer in answers.items():
            if (answer.status_code == 401) == (roles is None):
                wrong.append((method, path, caller, answer.status_code))
            if roles is not None and answer.headers.get("www-authenticate") != "Bearer":
                wrong.append((method, path, caller, "no WWW-Authenticate"))
        for role in ROLES:
            answer = await world.ask(method, path, role, json={} if method != "GET" else None)
            allowed = roles is None or role == "admin" or role in roles
            if answer.status_code == 401 or answer.status_code >= 500 or (answer.status_code == 403) == allowed:
                wrong.append((method, path, role, answer.status_code))
    assert wrong == []


async def test_every_route_that_names_a_run_hides_it_from_another_tenant(world: World) -> None:
    execution_id = await world.start()
    about = (await world.ask("GET", f"/api/executions/{execution_id}", "viewer")).json()
    body = {"signal": "CANCEL", "reason": "mine now", "step": "start"}
    named = 0
    wrong: list[Any] = []
    for method, route in ROUTES:
        names = set(route.path_names)
        if not names & {"execution_id", "run_id"}:
            continue
        named += 1
        theirs = _filled(route, execution_id=execution_id, run_id=about["run_id"])
        nobodys = _filled(route, execution_id="123456789", run_id="7d3e5bd1-7f0f-4a0e-9d5a-3a6f2e0c9b11")
        more: dict[str, Any] = {"json": body} if method != "GET" else {}
        for role in ("admin", "worker", "producer", "operator"):
            seen = await world.ask(method, theirs, role, "globex", **more)
            none = await world.ask(method, nobodys, role, "globex", **more)
            if seen.status_code != none.status_code or seen.status_code not in (403, 404, 409, 422):
                wrong.append((method, theirs, role, seen.status_code, none.status_code))
            if role == "admin" and method == "GET" and seen.status_code != 404:
                wrong.append((method, theirs, role, seen.status_code))
            if "waits" in seen.text or "acme" in seen.text:
                wrong.append((method, theirs, role, seen.text))
    assert wrong == []
    assert named > 10
    status = (await world.ask("GET", f"/api/executions/{execution_id}/status", "viewer")).json()
    assert status["state"] == "RUNNING"
    events = (await world.ask("GET", f"/api/executions/{execution_id}/events", "viewer")).json()["events"]
    assert "signal.received" not in {event["event_type"] for event in events}


def test_an_operation_states_who_may_call_it_and_has_a_handler() -> None:
    with pytest.raises(TypeError, match="access"):
        Operation(name="x.open", method="GET", path="/open", tag="", text="Open.")  # type: ignore[call-arg]  # the point
    unhandled: Operation[None] = Operation(name="x.open", method="GET", path="/open", access=None, tag="", text="Open.")
    with pytest.raises(InvariantBroken, match=r"x\.open has no handler"):
        Routes([unhandled])


# -- tenants ----------------------------------------------------------------------------------------------------------


async def test_a_tenant_sees_and_changes_its_own_alone(world: World) -> None:
    execution_id = await world.start()
    assert (await world.ask("GET", "/api/executions", "viewer", "globex")).json()["executions"] == []
    assert len((await world.ask("GET", "/api/executions", "viewer")).json()["executions"]) == 1
    assert (await world.ask("GET", "/api/catalog", "viewer", "globex")).json()["playbooks"] == []
    assert len((await world.ask("GET", "/api/catalog", "viewer")).json()["playbooks"]) == 1
    for path in ("/api/catalog/show", "/api/catalog/versions"):
        assert (await world.ask("GET", path, "viewer", "globex", params={"path": "flows/waits"})).status_code == 404
    answer = await world.ask("POST", "/api/execute", "operator", "globex", json={"path": "flows/waits"})
    assert answer.status_code == 404
    # The same path, the same text: a version of its own.
    answer = await world.ask("POST", "/api/execute", "engineer", "globex", json={"playbook": PLAYBOOK})
    assert answer.status_code == 201
    (listed,) = (await world.ask("GET", "/api/executions", "viewer", "globex")).json()["executions"]
    assert (listed["version"], listed["execution_id"]) == ("1", answer.json()["execution_id"])
    (event, *_) = (await world.ask("GET", f"/api/executions/{execution_id}/events", "viewer")).json()["events"]
    assert event["tenant_id"] == "acme"


async def test_stored_results_are_the_tenants_own(tmp_path: Path) -> None:
    async with _world(tmp_path / "home", worker=True, **{"results.keep_s": 0}) as world:
        execution_id = await world.start(STORES)
        async with asyncio.timeout(60):
            while True:
                answer = await world.ask("GET", f"/api/executions/{execution_id}/head", "viewer", params={"wait_s": 5})
                if answer.json()["ended"]:
                    break
        (stored,) = (await world.ask("GET", f"/api/executions/{execution_id}/results", "viewer")).json()["results"]
        for path in ("/api/result", "/api/result/resolve"):
            mine = await world.ask("GET", path, "viewer", params={"ref": stored["ref"]})
            assert mine.status_code == 200
            theirs = await world.ask("GET", path, "admin", "globex", params={"ref": stored["ref"]})
            assert (theirs.status_code, "secret of" in theirs.text) == (404, False)
        assert (await world.ask("POST", "/api/gc", "admin", "globex")).json()["results"] == 0
        assert (await world.ask("POST", "/api/gc", "admin")).json()["results"] == 1


@pytest.mark.parametrize(
    "scope", [{"tenant": "acme"}, {"tenantId": "acme"}, {"project": "acme/x"}, {"environment": "../acme"}]
)
async def test_a_caller_cannot_choose_a_tenant(world: World, scope: dict[str, str]) -> None:
    body = {"playbook": PLAYBOOK, "scope": scope}
    assert (await world.ask("POST", "/api/execute", "engineer", "globex", json=body)).status_code == 422


async def test_neither_headers_nor_queries_choose_a_tenant(world: World) -> None:
    await world.start()
    headers = {"x-tenant": "acme", "x-tenant-id": "acme", "tenant": "acme", "x-forwarded-user": "acme-admin"}
    params = {"tenant": "acme", "tenant_id": "acme", "tenantId": "acme"}
    answer = await world.ask("GET", "/api/executions", "viewer", "globex", headers=headers, params=params)
    assert answer.json()["executions"] == []


async def test_an_idempotency_key_is_the_tenants_own(world: World) -> None:
    body = {"playbook": PLAYBOOK, "idempotency_key": "k"}
    first = await world.ask("POST", "/api/execute", "engineer", json=body)
    again = await world.ask("POST", "/api/execute", "engineer", json=body)
    other = await world.ask("POST", "/api/execute", "engineer", "globex", json=body)
    assert again.json()["execution_id"] == first.json()["execution_id"]
    assert (other.status_code, other.json()["execution_id"] != first.json()["execution_id"]) == (201, True)


# -- roles beyond the route -------------------------------------------------------------------------------------------


async def test_an_operator_starts_what_is_registered_and_brings_nothing_along(world: World) -> None:
    await world.start()
    for path in ("/api/execute", "/api/executions"):
        answer = await world.ask("POST", path, "operator", json={"playbook": PLAYBOOK})
        assert (answer.status_code, answer.json()["title"]) == (403, "NotAllowed")
        assert (await world.ask("POST", path, "operator", json={"path": "flows/waits"})).status_code == 201


@pytest.mark.parametrize(
    ("signal", "role", "allowed"),
    [
        ("PAUSE", "operator", True),
        ("CANCEL", "operator", True),
        ("CUSTOM", "operator", True),
        ("SKIP_STEP", "operator", False),
        ("SKIP_STEP", "engineer", True),
        ("UPDATE_PARAMS", "operator", False),
        ("UPDATE_PARAMS", "engineer", True),
        ("EMERGENCY_STOP", "operator", False),
        ("EMERGENCY_STOP", "engineer", False),
        ("EMERGENCY_STOP", "admin", True),
        ("PAUSE", "viewer", False),
        ("PAUSE", "worker", False),
        ("PAUSE", "producer", False),
    ],
)
async def test_signals_have_roles_of_their_own(world: World, signal: str, role: str, allowed: bool) -> None:
    execution_id = await world.start()
    body = {"signal": signal, "reason": "r", "step": "start", "data": {"a": 1}, "by": "somebody else"}
    answer = await world.ask("POST", f"/api/executions/{execution_id}/signal", role, json=body)
    assert answer.status_code == (200 if allowed else 403), answer.text
    events = (await world.ask("GET", f"/api/executions/{execution_id}/events", "viewer")).json()["events"]
    signals = [event["payload"]["by"] for event in events if event["event_type"] == "signal.received"]
    assert signals == ([f"acme-{role}"] if allowed else [])


async def test_skip_is_an_engineers_by_its_own_route_too(world: World) -> None:
    execution_id = await world.start()
    path, body = f"/api/executions/{execution_id}/skip", {"step": "start", "reason": "r"}
    assert (await world.ask("POST", path, "operator", json=body)).status_code == 403
    assert (await world.ask("POST", path, "engineer", json=body)).status_code == 200


# -- keys and the audit -----------------------------------------------------------------------------------------------


async def test_an_admin_makes_lists_and_revokes_keys_of_its_tenant(world: World) -> None:
    request = {"name": "robot", "roles": ["viewer"], "expires_in_s": 3600}
    answer = await world.ask("POST", "/api/keys", "admin", json=request)
    assert answer.status_code == 201
    made = answer.json()
    assert (made["about"]["tenant"], made["about"]["roles"]) == ("acme", ["viewer"])
    assert (await world.ask("GET", "/api/executions", headers=bearer(made["key"]))).status_code == 200
    listed = await world.ask("GET", "/api/keys", "admin")
    assert len(listed.json()["keys"]) == len(ROLES) + 1
    assert "argon2" not in listed.text
    assert made["key"] not in listed.text
    key_id = made["about"]["key_id"]
    assert (await world.ask("DELETE", f"/api/keys/{key_id}", "admin", "globex")).status_code == 404
    assert (await world.ask("DELETE", f"/api/keys/{key_id}", "admin")).json()["revoked_at"] is not None
    for wrong in ({"name": "x", "roles": ["boss"]}, {"name": "x", "roles": ["admin"], "tenant": "globex"}, {}):
        assert (await world.ask("POST", "/api/keys", "admin", json=wrong)).status_code == 422


async def test_what_was_granted_and_denied_is_kept(world: World) -> None:
    execution_id = await world.start()
    await world.ask("POST", f"/api/executions/{execution_id}/pause", "viewer", json={})
    await world.ask("POST", f"/api/executions/{execution_id}/pause", "operator", json={"reason": "r"})
    await world.ask("POST", f"/api/executions/{execution_id}/skip", "operator", json={"step": "start", "reason": "r"})
    await world.ask("GET", f"/api/executions/{execution_id}/status", "viewer")
    await world.ask("GET", "/api/keys", "viewer")
    page = (await world.ask("GET", "/api/audit", "admin")).json()
    recorded = [(entry["principal"], entry["decision"], entry["method"], entry["route"]) for entry in page["entries"]]
    run = "/api/executions/{execution_id}"
    assert recorded == [
        ("acme-viewer", "denied", "GET", "/api/keys"),
        ("acme-operator", "denied", "POST", f"{run}/skip"),
        ("acme-operator", "granted", "POST", f"{run}/skip"),
        ("acme-operator", "granted", "POST", f"{run}/pause"),
        ("acme-viewer", "denied", "POST", f"{run}/pause"),
        ("acme-engineer", "granted", "POST", "/api/execute"),
    ]
    denied = page["entries"][1]
    assert (denied["target"], denied["address"], denied["tenant"]) == (
        f"execution_id={execution_id}",
        "127.0.0.1",
        "acme",
    )
    assert "SKIP_STEP" in denied["reason"]
    assert page["next"] is None
    assert (await world.ask("GET", "/api/audit", "admin", "globex")).json()["entries"] == []
    first = (await world.ask("GET", "/api/audit", "admin", params={"limit": 2, "decision": "denied"})).json()
    rest = await world.ask("GET", "/api/audit", "admin", params={"decision": "denied", "before": first["next"]})
    assert [entry["route"] for entry in rest.json()["entries"]] == [f"{run}/pause"]


# -- the door itself --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "/api/executions",
        "/api/executions/",
        "//api/executions",
        "/api//executions",
        "/./api/executions",
        "/health/../api/executions",
        "/health/..%2fapi/executions",
        "/health%2f..%2fapi%2fexecutions",
        "/api%2fexecutions",
        "/api/executions%2f",
        "/api/executions%00",
        "/api/executions;/health",
        "/health;/../api/executions",
        "/API/EXECUTIONS",
        "/api/executions?/health",
        "/api/executions#/health",
        "/api\\executions",
        "http://127.0.0.1/api/executions",
        "http://evil.example/health/../api/executions",
        "*",
    ],
)
async def test_no_spelling_of_a_path_gets_around_the_door(world: World, target: str) -> None:
    await world.start()
    for host in ("127.0.0.1", "localhost", "evil.example", "/health", ""):
        head, body = await _raw(world.server.url, f"GET {target} HTTP/1.1", f"Host: {host}")
        assert int(head.split()[1]) in (400, 401, 404, 405), (target, host, head)
        assert b"waits" not in body
        assert b"location:" not in head.lower()


@pytest.mark.parametrize("path", ["/health/", "/healthz", "/health/x", "/health.json", "/health%2fx", "/ready/"])
async def test_public_is_exact(world: World, path: str) -> None:
    head, _ = await _raw(world.server.url, f"GET {path} HTTP/1.1", "Host: x")
    assert int(head.split()[1]) == 404


async def test_a_method_is_what_the_request_line_says(world: World) -> None:
    execution_id = await world.start()
    path = f"/api/executions/{execution_id}/cancel"
    for name in ("x-http-method-override", "x-http-method", "x-method-override"):
        answer = await world.ask("GET", path, "operator", headers={name: "POST"}, params={"_method": "POST"})
        assert answer.status_code == 405
        answer = await world.ask("POST", "/api/keys", "viewer", headers={name: "GET"})
        assert answer.status_code == 403
    for method in ("HEAD", "OPTIONS", "TRACE", "PATCH", "CONNECT", "FOO"):
        head, body = await _raw(world.server.url, f"{method} /api/executions HTTP/1.1", "Host: x")
        assert int(head.split()[1]) in (400, 401, 404, 405), head
        assert b"waits" not in body


async def test_a_credential_comes_in_one_header_and_nowhere_else(world: World) -> None:
    key = world.keys["acme", "admin"]
    elsewhere: list[dict[str, Any]] = [
        {"params": {"token": key, "access_token": key, "api_key": key}},
        {"headers": {"x-api-key": key}},
        {"headers": {"cookie": f"token={key}; authorization=Bearer {key}"}},
        {"headers": {"authorization": f"Basic {key}"}},
        {"headers": {"authorization": key}},
        {"headers": {"proxy-authorization": f"Bearer {key}"}},
    ]
    for more in elsewhere:
        assert (await world.ask("GET", "/api/executions", **more)).status_code == 401
    head, _ = await _raw(
        world.server.url,
        "GET /api/executions HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {key}",
        "Authorization: Bearer other",
    )
    assert int(head.split()[1]) == 401


async def test_answers_say_how_browsers_shall_treat_them(world: World) -> None:
    origin = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for method, path in (("GET", "/health"), ("GET", "/api/executions"), ("GET", "/nothing"), ("OPTIONS", "/api/keys")):
        for caller in ("", "viewer"):
            answer = await world.ask(method, path, caller, headers=origin)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
            assert "set-cookie" not in answer.headers
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert "server" not in answer.headers


async def test_what_a_forwarded_header_says_of_an_address_is_not_believed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keys = await make_keys(home, [("acme", "admin")])
    async with running(home, worker=False, **{"auth.max_failures": 2}) as server, server.client() as client:
        answers = []
        for n in range(4):
            headers = {**bearer("ark_guess"), "x-forwarded-for": f"10.0.0.{n}"}
            answers.append(await client.get("/api/executions", headers=headers))
        assert [answer.status_code for answer in answers] == [401, 401, 429, 429]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 60
        assert answers[-1].headers["content-type"] == "application/problem+json"
        assert (await client.get("/health")).status_code == 200
    async with (
        running(home, worker=False, **{"auth.max_failures": 1, "server.trusted_proxies": "127.0.0.1"}) as server,
        server.client() as client,
    ):
        for n in range(3):
            headers = {**bearer("ark_guess"), "x-forwarded-for": f"10.0.0.{n}"}
            assert (await client.get("/api/executions", headers=headers)).status_code == 401
        mine = bearer(keys["acme", "admin"])
        entries = (await client.get("/api/audit", headers=mine)).json()["entries"]
        assert entries == []  # nobody's requests are no tenant's


async def test_a_server_that_others_reach_does_not_start_without_authentication(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(SettingsError, match="arclog key create"):
        async with running(home, worker=False, **{"server.host": "0.0.0.0"}):
            pass
    await make_keys(home, [("acme", "admin")])
    with pytest.raises(SettingsError, match=r"auth\.mode is none"):
        async with running(home, worker=False, **{"server.host": "0.0.0.0", "auth.mode": "none"}):
            pass
    async with running(home, worker=False, **{"server.host": "0.0.0.0"}) as server, server.client() as client:
        assert (await client.get("/api/executions")).status_code == 401


async def test_without_authentication_a_page_cannot_start_runs(server: RunningServer) -> None:
    async with server.client() as client:
        body = {"playbook": PLAYBOOK}
        for headers in (
            {"origin": "https://evil.example", "content-type": "text/plain"},
            {"host": "evil.example"},
            {"sec-fetch-site": "cross-site"},
        ):
            answer = await client.post("/api/execute", json=body, headers=headers)
            assert answer.status_code == 403
        assert (await client.get("/api/executions")).json()["executions"] == []
        assert (await client.post("/api/execute", json=body)).status_code == 201


async def _raw(url: str, *lines: str) -> tuple[bytes, bytes]:
    """The head and the body of the answer to a request as it is written here."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        await writer.drain()
        async with asyncio.timeout(30):
            answer = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body
