"""Signing in: with a key, for a while, with what a role may, and never with what belongs to another tenant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import stage
from tests.browser.conftest import Watched
from tests.browser.test_axe import problems_of
from tests.integration.server.callers import bearer

pytestmark = pytest.mark.xdist_group("browser-2")


class Closed:
    """A server that asks who one is, with keys."""

    def __init__(self, server: stage.Server, keys: dict[tuple[str, str], str]) -> None:
        self.server = server
        self.keys = keys
        self.url = server.url

    def run(self, tenant: str, playbook: str = stage.HELLO) -> str:
        with self.server.client(headers=bearer(self.keys[tenant, "engineer"])) as client:
            answer = client.post("/api/executions", json={"playbook": playbook})
            answer.raise_for_status()
            execution_id: str = answer.json()["execution_id"]
            return execution_id


@pytest.fixture(scope="module")
def closed(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    home = tmp_path_factory.mktemp("closed")
    wanted = [(tenant, role) for tenant in ("acme", "globex") for role in ("engineer", "viewer", "operator")]
    keys = stage.keys(home, wanted)
    with stage.server(home, **{"auth.cache_s": "0.2", "auth.max_failures": "1000"}) as server:
        yield Closed(server, keys)


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def test_a_key_opens_the_console_and_is_kept_nowhere(page: Page, context: BrowserContext, closed: Closed) -> None:
    page.goto(f"{closed.url}/runs?state=FAILED")
    sign_in(page, "ark_0123456789abcdef_" + "x" * 43)
    expect(page.get_by_role("alert")).to_contain_text("invalid API key")
    sign_in(page, closed.keys["acme", "engineer"])
    expect(page.get_by_role("button", name="Account: acme-engineer@acme")).to_be_visible()
    expect(page).to_have_url(f"{closed.url}/runs?state=FAILED")
    stored = page.evaluate("() => [{...localStorage}, {...sessionStorage}, document.cookie]")
    assert stored == [{}, {}, ""]
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert closed.keys["acme", "engineer"] not in cookie["value"]
    page.reload()
    expect(page.get_by_role("button", name="Account: acme-engineer@acme")).to_be_visible()


def test_an_expired_session_is_renewed_without_losing_the_place(
    page: Page, context: BrowserContext, closed: Closed, watched: Watched
) -> None:
    execution_id = closed.run("acme", stage.WAIT)
    page.goto(f"{closed.url}/runs/{execution_id}")
    sign_in(page, closed.keys["acme", "engineer"])
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_label("Reason").fill("half a senten")
    # The session ends on the server, as it does when its time is over.
    (cookie,) = context.cookies()
    with closed.server.client(cookies={cookie["name"]: cookie["value"]}) as client:
        csrf = client.get("/api/me").json()["csrf"]
        client.delete("/api/session", headers={"x-arclog-csrf": csrf}).raise_for_status()
    dialog = page.get_by_role("dialog", name="Sign in again")
    expect(dialog).to_be_visible()
    dialog.get_by_label("API key").fill(closed.keys["acme", "engineer"])
    dialog.get_by_role("button", name="Sign in").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_label("Reason")).to_have_value("half a senten")
    page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("header").get_by_text("cancelled")).to_be_visible()
    expect(page.get_by_text("execution.cancelled")).to_be_visible()
    watched.expected.append("401")


def test_signing_out_is_heard_in_every_tab(
    page: Page, context: BrowserContext, closed: Closed, watched: Watched
) -> None:
    page.goto(closed.url)
    sign_in(page, closed.keys["acme", "viewer"])
    other = context.new_page()
    watched.follow(other)
    other.goto(f"{closed.url}/runs")
    expect(other.get_by_role("button", name="Account: acme-viewer@acme")).to_be_visible()
    page.get_by_role("button", name="Account: acme-viewer@acme").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    expect(other.get_by_role("dialog", name="Sign in again")).to_be_visible()
    # Somebody else signs in: nothing of who was there before is left, in no tab.
    secret = closed.run("acme", stage.HELLO.replace("name: hello,", "name: secret-of-acme,"))
    sign_in(page, closed.keys["globex", "viewer"])
    expect(other.get_by_role("button", name="Account: globex-viewer@globex")).to_be_visible()
    expect(other.get_by_text("No runs yet")).to_be_visible()
    other.goto(f"{closed.url}/runs/{secret}")
    expect(other.get_by_role("alert")).to_contain_text("was not found")
    expect(other.get_by_text("secret-of-acme")).to_have_count(0)


def test_what_a_role_may_not_do_is_said(page: Page, closed: Closed) -> None:
    execution_id = closed.run("acme", stage.SHIP)
    page.goto(f"{closed.url}/runs/{execution_id}")
    sign_in(page, closed.keys["acme", "viewer"])
    cancel = page.get_by_role("button", name="Cancel", exact=True)
    expect(cancel).to_have_attribute("aria-disabled", "true")
    cancel.click(force=True)
    expect(page.get_by_text("requires the role admin or engineer or operator").first).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Approve")).to_have_attribute("aria-disabled", "true")


def test_people_sign_in_at_the_issuer(
    new_page: Callable[..., Page], built: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.integration.server.test_sessions import Provider
    from tests.servers.web import ReceivedRequest, Web, Wire

    with Web() as web:
        provider = Provider(web)

        async def authorize(request: ReceivedRequest, wire: Wire) -> None:
            """Whoever comes is ada, and goes back at once."""
            provider.request = dict(request.query)
            where = f"{provider.request['redirect_uri']}?code=good&state={provider.request['state']}"
            await wire.answer(302, b"", {"Location": where})

        web.route("/authorize")(authorize)
        settings = {name: str(value) for name, value in provider.settings().items()}
        with stage.server(tmp_path_factory.mktemp("oidc"), **settings) as server:
            page = new_page()
            page.goto(f"{server.url}/runs?q=x")
            page.get_by_role("link", name=f"Sign in at {urlsplit(provider.url).netloc}").click()
            expect(page.get_by_role("button", name="Account: ada@acme")).to_be_visible()
            expect(page).to_have_url(f"{server.url}/runs?q=x")
            provider.claims = {"tenant": None}
            page.get_by_role("button", name="Account: ada@acme").click()
            page.get_by_role("button", name="Sign out").click()
            page.get_by_role("link", name=re.compile("Sign in at")).click()
            expect(page.get_by_role("alert")).to_contain_text("names no tenant")
            expect(page).to_have_url(f"{server.url}/")


def test_the_form_to_sign_in_is_accessible(new_page: Callable[..., Page], closed: Closed, axe_source: str) -> None:
    page = new_page(bypass_csp=True)
    page.goto(closed.url)
    page.get_by_label("API key").wait_for()
    assert problems_of(page, axe_source) == []
