"""Sessions of browsers: opened with a key or at an issuer, kept in a cookie, ended in time, and of no use to other pages."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx2
import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.model.ids import MICROS
from arclog.model.principal import Principal
from arclog.server.auth.gate import Gate
from arclog.server.auth.oidc import own_place
from arclog.server.auth.sessions import Sessions, cookie_name, is_own_site
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import RunningServer, running
from tests.servers.tokens import AUDIENCE, Issuer
from tests.servers.web import ReceivedRequest, Web, Wire

ADA = Principal("ada", "acme", frozenset({"operator"}), subject="key-k1")
PLAYBOOK = (
    "metadata: {name: waits, path: flows/waits}\nworkflow:\n  - step: start\n    tool: {kind: wait, for_s: 600}\n"
)


@asynccontextmanager
async def signing_in(
    home: Path, *wanted: tuple[str, str], **settings: Any
) -> AsyncIterator[tuple[RunningServer, httpx2.AsyncClient, dict[tuple[str, str], str]]]:
    keys = await make_keys(home, wanted or [("acme", "engineer")])
    async with running(home, worker=False, **settings) as server, server.client() as client:
        yield server, client, keys


async def signed_in(client: httpx2.AsyncClient, key: str) -> dict[str, Any]:
    answer = await client.post("/api/session", json={"key": key})
    assert answer.status_code == 201, answer.text
    me: dict[str, Any] = answer.json()
    return me


# -- keys ----------------------------------------------------------------------------------------------------------------


async def test_a_key_is_exchanged_for_a_cookie_that_no_script_can_read(tmp_path: Path) -> None:
    async with signing_in(tmp_path / "home") as (server, client, keys):
        before = (await client.get("/api/session")).json()
        assert (before["required"], before["methods"], before["me"]) == (True, ["key"], None)
        answer = await client.post("/api/session", json={"key": f" {keys['acme', 'engineer']}\n"})
        cookie = answer.headers["set-cookie"]
        port = urlsplit(server.url).port
        assert cookie.startswith(f"arclog_session_{port}=")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Path=/" in cookie
        assert "Max-Age=28800" in cookie
        assert "Secure" not in cookie  # plain HTTP on loopback
        assert keys["acme", "engineer"] not in cookie
        me = answer.json()
        assert (me["name"], me["tenant"], me["roles"]) == ("acme-engineer", "acme", ["engineer"])
        assert me["expires_at"]
        assert me["denied"]["POST /api/keys"] == "requires the role admin"
        assert "POST /api/executions" not in me["denied"]
        assert list(me["denied_signals"]) == ["EMERGENCY_STOP"]
        assert (await client.get("/api/executions")).status_code == 200
        assert (await client.get("/api/me")).json() == (await client.get("/api/session")).json()["me"] == me


async def test_what_changes_something_needs_the_csrf_token(tmp_path: Path) -> None:
    async with signing_in(tmp_path / "home") as (_, client, keys):
        me = await signed_in(client, keys["acme", "engineer"])
        body = {"playbook": PLAYBOOK}
        for headers in ({}, {"x-arclog-csrf": ""}, {"x-arclog-csrf": "x" * 64}, {"x-arclog-csrf": "ü"}):
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            refused = await client.post("/api/executions", json=body, headers=raw)
            assert refused.status_code == 403, refused.text
            assert "CSRF" in refused.json()["detail"]
        assert (await client.delete("/api/session")).status_code == 403
        assert (await client.get("/api/executions")).json()["executions"] == []
        assert (
            await client.post("/api/executions", json=body, headers={"x-arclog-csrf": me["csrf"]})
        ).status_code == 201
        # A key in the header needs none: no page elsewhere can make a browser send it.
        again = await client.post("/api/executions", json=body, headers=bearer(keys["acme", "engineer"]))
        assert again.status_code == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
async def test_a_page_of_another_site_can_use_no_session(tmp_path: Path, headers: dict[str, str]) -> None:
    async with signing_in(tmp_path / "home") as (_, client, keys):
        key = keys["acme", "engineer"]
        assert (await client.post("/api/session", json={"key": key}, headers=headers)).status_code == 403
        me = await signed_in(client, key)
        own = {"x-arclog-csrf": me["csrf"]}
        assert (await client.get("/api/executions", headers=headers)).status_code == 403
        assert (await client.get("/api/session", headers=headers)).json()["me"] is None
        body = {"playbook": PLAYBOOK}
        assert (await client.post("/api/executions", json=body, headers={**headers, **own})).status_code == 403
        assert (await client.delete("/api/session", headers={**headers, **own})).status_code == 403
        assert (await client.get("/api/executions")).json()["executions"] == []


async def test_a_form_of_another_site_opens_no_session(tmp_path: Path) -> None:
    async with signing_in(tmp_path / "home") as (_, client, keys):
        text = json.dumps({"key": keys["acme", "engineer"]})
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = await client.post("/api/session", content=text, headers={"content-type": kind})
            assert answer.status_code == 422
            assert "set-cookie" not in answer.headers


async def test_signing_out_ends_the_session_on_the_server(tmp_path: Path) -> None:
    async with signing_in(tmp_path / "home") as (server, client, keys):
        me = await signed_in(client, keys["acme", "engineer"])
        stolen = dict(client.cookies)
        answer = await client.delete("/api/session", headers={"x-arclog-csrf": me["csrf"]})
        assert answer.status_code == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]
        async with server.client(cookies=stolen) as thief:
            assert (await thief.get("/api/executions")).status_code == 401
        assert (await client.delete("/api/session")).status_code == 204


async def test_who_may_look_at_nothing_cannot_sign_in(tmp_path: Path) -> None:
    async with signing_in(tmp_path / "home", ("acme", "worker")) as (_, client, keys):
        answer = await client.post("/api/session", json={"key": keys["acme", "worker"]})
        assert answer.status_code == 403
        assert "is required" in answer.json()["detail"]
        assert "set-cookie" not in answer.headers


async def test_a_wrong_key_is_refused_and_counted(tmp_path: Path) -> None:
    async with signing_in(tmp_path / "home", **{"auth.max_failures": 3}) as (_, client, keys):
        for wrong in ("garbage", "ark_0123456789abcdef_" + "x" * 43, "x" * 100_000):
            assert (await client.post("/api/session", json={"key": wrong})).status_code == 401
        assert (await client.post("/api/session", json={"key": "garbage"})).status_code == 429
        assert (await client.get("/api/session")).status_code == 200  # how to sign in is told whatever was tried
        del keys


async def test_sign_ins_and_outs_are_in_the_audit(tmp_path: Path) -> None:
    async with signing_in(tmp_path / "home", ("acme", "admin")) as (_, client, keys):
        await client.post("/api/session", json={"key": "garbage"})
        me = await signed_in(client, keys["acme", "admin"])
        await client.delete("/api/session", headers={"x-arclog-csrf": me["csrf"]})
        entries = (await client.get("/api/audit", headers=bearer(keys["acme", "admin"]))).json()["entries"]
        recorded = [(entry["decision"], entry["principal"], entry["method"], entry["route"]) for entry in entries]
        assert recorded == [
            ("granted", "acme-admin", "DELETE", "/api/session"),
            ("granted", "acme-admin", "POST", "/api/session"),
        ]  # the wrong key was nobody's, and is in no tenant's audit


async def test_tenants_stay_apart(tmp_path: Path) -> None:
    async with signing_in(tmp_path / "home", ("acme", "engineer"), ("globex", "engineer")) as (server, client, keys):
        me = await signed_in(client, keys["acme", "engineer"])
        started = await client.post(
            "/api/executions", json={"playbook": PLAYBOOK}, headers={"x-arclog-csrf": me["csrf"]}
        )
        execution_id = started.json()["execution_id"]
        async with server.client() as other:
            await signed_in(other, keys["globex", "engineer"])
            assert (await other.get("/api/executions")).json()["executions"] == []
            assert (await other.get(f"/api/executions/{execution_id}")).status_code == 404
            for route in ("activity", "failing", "stuck", "approvals", "leases"):
                assert execution_id not in (await other.get(f"/api/{route}")).text


async def test_a_server_that_asks_nobody_has_nothing_to_sign_in_to(control_plane: RunningServer) -> None:
    async with control_plane.client() as client:
        body = (await client.get("/api/session")).json()
        assert (body["required"], body["methods"]) == (False, [])
        assert body["me"]["authenticated"] is False
        assert body["me"]["denied"] == {}
        assert (await client.post("/api/session", json={"key": "x"})).status_code == 409
        assert (await client.get("/api/session", headers={"origin": "https://evil.example"})).json()["me"] is None


async def test_any_server_of_the_store_knows_the_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with signing_in(home) as (_, client, keys):
        me = await signed_in(client, keys["acme", "engineer"])
        (token,) = client.cookies.values()
        async with running(home, worker=False) as other, other.client() as elsewhere:
            name = f"arclog_session_{urlsplit(other.url).port}"
            answer = await elsewhere.get("/api/me", headers={"cookie": f"{name}={token}"})
            assert answer.json() == me


# -- how long -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore(clock=FakeClock())
    await store.open()
    yield store
    await store.close()


async def test_a_session_ends_in_time_and_with_its_key(store: MemoryStore) -> None:
    from arclog.server.auth.keys import make_key

    clock = FakeClock()
    _, key = make_key("ada", ["operator"], "acme", clock.now())
    await store.add_key(key)
    sessions = Sessions(Settings({"auth.session_s": 100, "auth.cache_s": 10}), store, clock)
    token, opened = await sessions.open(ADA, key.key_id)
    assert await sessions.principal(token) == opened
    assert opened.expires_at == clock.now() + 100 * MICROS
    clock.advance(99)
    assert (await sessions.principal(token)).name == "ada"
    clock.advance(1)
    with pytest.raises(Exception, match="has expired; sign in again"):
        await sessions.principal(token)

    token, _ = await sessions.open(ADA, key.key_id)
    await sessions.principal(token)
    await store.revoke_key(key.key_id, clock.now())
    await sessions.principal(token)  # believed for auth.cache_s
    clock.advance(11)
    with pytest.raises(Exception, match="was revoked or has expired; sign in again"):
        await sessions.principal(token)


async def test_what_is_kept_opens_nothing(store: MemoryStore) -> None:
    sessions = Sessions(Settings(), store, FakeClock())
    token, opened = await sessions.open(ADA)
    kept = repr(store._sessions)
    assert token not in kept
    assert opened.csrf not in kept
    (digest,) = store._sessions
    with pytest.raises(Exception, match="no such session"):
        await sessions.principal(digest)


async def test_a_guessed_session_counts_as_a_failure(store: MemoryStore) -> None:
    gate = Gate(Settings({"auth.mode": "required", "auth.max_failures": 2}), store, FakeClock())
    for _ in range(2):
        with pytest.raises(Exception, match="no such session"):
            await gate.authenticate({"host": "h", "cookie": "arclog_session=guess"}, "10.0.0.1")
    with pytest.raises(Exception, match="too many requests"):
        await gate.authenticate({"host": "h", "cookie": "arclog_session=guess"}, "10.0.0.1")


async def test_who_is_signed_in_is_not_shut_out_by_others_at_the_same_address(store: MemoryStore) -> None:
    """Behind a proxy, or a company's address, anybody could lock all browsers out with wrong keys."""
    gate = Gate(Settings({"auth.mode": "required", "auth.max_failures": 2, "auth.cache_s": 0.0}), store, FakeClock())
    token, _ = await gate.sessions.open(ADA)
    signed_in = {"host": "h", "cookie": f"arclog_session={token}"}
    assert (await gate.authenticate(signed_in, "10.0.0.1")).name == "ada"
    for _ in range(3):
        with pytest.raises(Exception, match=r"no such session|too many requests"):
            await gate.authenticate({"host": "h", "cookie": "arclog_session=guess"}, "10.0.0.1")
    assert (await gate.authenticate(signed_in, "10.0.0.1")).name == "ada"
    await gate.sessions.close(token)
    with pytest.raises(Exception, match="too many requests"):
        await gate.authenticate(signed_in, "10.0.0.1")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost:8420", "arclog_session_8420"),
        ("[::1]:8420", "arclog_session_8420"),
        ("arclog.example", "arclog_session"),
        ("[::1]", "arclog_session"),
        ("h:8420;x", "arclog_session"),
        ("", "arclog_session"),
    ],
)
def test_servers_on_one_machine_have_cookies_of_their_own(host: str, name: str) -> None:
    assert cookie_name({"host": host}) == name


def test_the_public_address_is_a_name_of_ours() -> None:
    headers = {"host": "10.0.0.7:8420", "origin": "https://arclog.example"}
    assert not is_own_site(headers)
    assert is_own_site(headers, "arclog.example")
    assert not is_own_site(headers, "arclog.example.evil.example")
    assert not is_own_site({"host": "", "origin": "null"})


async def test_a_cookie_is_for_tls_alone_where_browsers_speak_it(store: MemoryStore) -> None:
    public = Sessions(Settings({"server.public_url": "https://arclog.example"}), store, FakeClock())
    assert public.cookie({"host": "h"}, "http", "t").endswith("; Secure")
    assert public.cookie({"host": "h"}, "http", "t").startswith("__Host-arclog_session=t; Path=/;")
    planted = {"host": "h", "cookie": "arclog_session=of-a-site-beside-it; __Host-arclog_session=own"}
    assert public.token_of(planted) == "own"
    assert Sessions(Settings(), store, FakeClock()).cookie({"host": "h"}, "https", "t").endswith("; Secure")


# -- at an issuer -------------------------------------------------------------------------------------------------------


class Provider:
    """An OIDC issuer: gives codes for whoever its claims say, and tokens for codes."""

    def __init__(self, web: Web) -> None:
        self.url = web.url("").rstrip("/")
        self.keys = Issuer()
        self.keys.add("k")
        self.claims: dict[str, Any] = {}
        self.access_token = "opaque"
        self.request: dict[str, str] = {}
        self.form: dict[str, str] = {}
        self.client = ""
        web.answers(
            "/.well-known/openid-configuration",
            json={
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/jwks",
            },
        )
        web.answers("/jwks", json=self.keys.jwks())
        web.route("/token")(self._token)

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "auth.jwt_issuer": self.url,
            "auth.jwt_audience": AUDIENCE,
            "auth.jwt_keys": f"{self.url}/jwks",
            "auth.oidc_client_id": "console",
            **more,
        }

    async def _token(self, request: ReceivedRequest, wire: Wire) -> None:
        self.form = dict(parse_qsl(request.body.decode()))
        self.client = request.headers.get("authorization", "")
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.form["code_verifier"].encode()).digest()).rstrip(b"=")
        if self.form["code"] != "good" or challenge.decode() != self.request["code_challenge"]:
            await wire.answer(400, b'{"error": "invalid_grant"}', {"content-type": "application/json"})
            return
        claims = {"iss": self.url, "aud": "console", "nonce": self.request["nonce"], **self.claims}
        body = {"id_token": self.keys.token("k", **claims), "access_token": self.access_token, "token_type": "Bearer"}
        await wire.answer(200, json.dumps(body).encode(), {"content-type": "application/json"})


async def through(
    client: httpx2.AsyncClient, provider: Provider, code: str = "good", place: str = "/runs"
) -> httpx2.Response:
    """A sign-in, as a browser goes through it; what the callback answers."""
    begun = await client.get("/api/session/oidc", params={"next": place})
    assert begun.status_code == 303, begun.text
    login = begun.headers["set-cookie"]
    assert "HttpOnly" in login
    assert "SameSite=Lax" in login
    provider.request = dict(parse_qsl(urlsplit(begun.headers["location"]).query))
    params = {"code": code, "state": provider.request["state"]}
    cookie = {"cookie": login.partition(";")[0]}
    # The issuer's page sends the browser back: a navigation from another site.
    return await client.get("/api/session/callback", params=params, headers={"sec-fetch-site": "cross-site", **cookie})


async def test_people_sign_in_at_the_issuer(tmp_path: Path) -> None:
    with Web() as web:
        provider = Provider(web)
        async with running(tmp_path / "home", worker=False, **provider.settings()) as server, server.client() as client:
            body = (await client.get("/api/session")).json()
            assert body["methods"] == ["key", "oidc"]
            assert body["issuer"] == urlsplit(provider.url).netloc
            back = await through(client, provider, place="/runs?state=FAILED")
            assert (back.status_code, back.headers["location"]) == (303, "/runs?state=FAILED")
            assert provider.request["response_type"] == "code"
            assert provider.request["code_challenge_method"] == "S256"
            assert provider.request["redirect_uri"] == f"{server.url}/api/session/callback"
            assert provider.form["redirect_uri"] == provider.request["redirect_uri"]
            me = (await client.get("/api/me")).json()
            assert (me["name"], me["tenant"], me["roles"]) == ("ada", "acme", ["operator"])
            assert me["expires_at"]


async def test_an_access_token_that_the_server_takes_says_who_it_is(tmp_path: Path) -> None:
    with Web() as web:
        provider = Provider(web)
        provider.claims = {"tenant": None, "roles": None}
        provider.access_token = provider.keys.token("k", iss=provider.url, roles=["viewer"])
        settings = provider.settings(**{"auth.oidc_client_secret": "hush"})
        async with running(tmp_path / "home", worker=False, **settings) as server, server.client() as client:
            await through(client, provider)
            assert (await client.get("/api/me")).json()["roles"] == ["viewer"]
            assert provider.client == "Basic " + base64.b64encode(b"console:hush").decode()


@pytest.mark.parametrize(
    ("claims", "code", "why"),
    [
        ({}, "bad", "invalid_grant"),
        ({"nonce": "other"}, "good", "another sign-in"),
        ({"aud": "somebody"}, "good", "refused"),
        ({"exp": 1}, "good", "refused"),
        ({"tenant": None}, "good", "names no tenant"),
        ({"roles": ["worker"]}, "good", "is required"),
    ],
    ids=["code", "nonce", "audience", "expired", "tenant", "role"],
)
async def test_a_sign_in_that_is_not_right_opens_nothing(
    tmp_path: Path, claims: dict[str, Any], code: str, why: str
) -> None:
    with Web() as web:
        provider = Provider(web)
        provider.claims = claims
        async with running(tmp_path / "home", worker=False, **provider.settings()) as server, server.client() as client:
            back = await through(client, provider, code)
            assert back.status_code == 303
            where = urlsplit(back.headers["location"])
            assert (where.scheme, where.netloc, where.path) == ("", "", "/")
            assert why in parse_qs(where.query)["sign_in"][0]
            assert (await client.get("/api/session")).json()["me"] is None


async def test_a_sign_in_ends_in_the_browser_that_began_it(tmp_path: Path) -> None:
    with Web() as web:
        provider = Provider(web)
        async with running(tmp_path / "home", worker=False, **provider.settings()) as server, server.client() as client:
            begun = await client.get("/api/session/oidc")
            provider.request = dict(parse_qsl(urlsplit(begun.headers["location"]).query))
            params = {"code": "good", "state": provider.request["state"]}
            async with server.client() as other:
                for cookie in ({}, {"cookie": "arclog_login=garbage"}, {"cookie": "arclog_login=e30"}):
                    back = await other.get("/api/session/callback", params=params, headers=cookie)
                    assert "sign_in=" in back.headers["location"]
                    assert (await other.get("/api/session")).json()["me"] is None
            refused = await client.get("/api/session/callback", params={"error": "access_denied"})
            assert "access_denied" in refused.headers["location"]


async def test_the_issuer_is_not_asked_about_anybody_who_comes_again_and_again(tmp_path: Path) -> None:
    """A cookie of a sign-in that was never begun costs nothing to make up."""
    login = dict.fromkeys(("state", "nonce", "verifier", "place", "redirect"), "a")
    cookie = base64.urlsafe_b64encode(json.dumps(login).encode()).decode().rstrip("=")
    with Web() as web:
        provider = Provider(web)
        settings = {**provider.settings(), "auth.max_failures": 3}
        async with running(tmp_path / "home", worker=False, **settings) as server, server.client() as client:
            answers = [
                await client.get(
                    "/api/session/callback",
                    params={"code": "guess", "state": "a"},
                    headers={"cookie": f"arclog_login={cookie}"},
                )
                for _ in range(5)
            ]
    assert [answer.status_code for answer in answers] == [303, 303, 303, 429, 429]


async def test_an_issuer_that_is_away_is_said(tmp_path: Path) -> None:
    with Web() as web:
        provider = Provider(web)
    async with running(tmp_path / "home", worker=False, **provider.settings()) as server, server.client() as client:
        assert (await client.get("/api/session/oidc")).status_code == 503


def test_half_of_the_settings_is_a_mistake() -> None:
    clock = FakeClock()
    with pytest.raises(SettingsError, match=r"requires auth\.jwt_issuer"):
        Gate(Settings({"auth.oidc_client_id": "console"}), MemoryStore(clock=clock), clock)
    tokens = {
        "auth.jwt_issuer": "https://login.example",
        "auth.jwt_audience": "arclog",
        "auth.jwt_keys": "https://login.example/jwks",
        "auth.oidc_client_id": "console",
    }
    for more, message in (
        ({"server.host": "0.0.0.0"}, "requires server.public_url"),
        ({"auth.oidc_scopes": "profile"}, "must include `openid`"),
        ({"auth.jwt_issuer": "http://login.example"}, "is not https"),
    ):
        with pytest.raises(SettingsError, match=message):
            Gate(Settings({**tokens, **more}), MemoryStore(clock=clock), clock)


@pytest.mark.parametrize(
    ("place", "own"),
    [
        ("/runs?state=FAILED#x", "/runs?state=FAILED#x"),
        ("/", "/"),
        ("//evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("/ok\\..", "/"),
        ("javascript:alert(1)", "/"),
        ("runs", "/"),
        ("/a\r\nSet-Cookie: x=1", "/"),
        ("/" + "x" * 3000, "/"),
        ("/api/session/oidc", "/"),
    ],
)
def test_a_sign_in_returns_to_a_page_of_ours(place: str, own: str) -> None:
    assert own_place(place) == own
