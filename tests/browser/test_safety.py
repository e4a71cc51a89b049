"""A page of another site can neither read nor control a server, and the console's own pages run nothing but their own code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import stage
from tests.browser.conftest import Furnished, Watched
from tests.servers.web import Web

pytestmark = pytest.mark.xdist_group("browser-1")

#: What a page elsewhere tries: to read, to start a run in every way that needs no permission, and to frame the console.
ATTACK = """\
<!doctype html><title>evil</title><h1>kittens</h1>
<form id="form" method="post" enctype="text/plain" target="frame"><input name='{"playbook": "%s", "x": "' value='"}'></form>
<iframe name="frame" id="frame"></iframe><iframe id="framed"></iframe>
<script>
async function attack(url, body) {
  const tried = {};
  const attempt = async (name, init, path = "/api/executions") => {
    try { const answer = await fetch(url + path, init); tried[name] = answer.type + " " + answer.status + " " + (await answer.text()).slice(0, 80); }
    catch (error) { tried[name] = "refused: " + error.message; }
  };
  await attempt("read", {});
  await attempt("read with cookies", { credentials: "include" });
  await attempt("read blindly", { mode: "no-cors", credentials: "include" });
  await attempt("me", { credentials: "include" }, "/api/session");
  await attempt("start as text", { method: "POST", mode: "no-cors", credentials: "include", headers: { "content-type": "text/plain" }, body });
  await attempt("start as yaml", { method: "POST", credentials: "include", headers: { "content-type": "application/yaml" }, body });
  await attempt("start as json", { method: "POST", credentials: "include", headers: { "content-type": "application/json", "x-arclog-csrf": "x" }, body });
  await attempt("sign out", { method: "DELETE", credentials: "include" }, "/api/session");
  tried.beacon = navigator.sendBeacon(url + "/api/executions", body);
  document.getElementById("form").action = url + "/api/executions";
  document.getElementById("form").submit();
  document.getElementById("framed").src = url + "/";
  try { const stream = new EventSource(url + "/api/executions/1/events/stream"); stream.close(); } catch {}
  await new Promise((resolve) => setTimeout(resolve, 500));
  return tried;
}
</script>
"""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """Another site: an origin of its own, on this very machine."""
    with Web() as web:
        web.answers("/", body=ATTACK.encode(), headers={"content-type": "text/html"})
        yield web.url("/")


def attacked(page: Page, elsewhere: str, url: str, watched: Watched) -> dict[str, str | bool]:
    watched.expected += [
        "CORS",
        "Refused to frame",
        "frame-ancestors",
        "violates the following",
        "Failed to load",
        "refused to connect",
    ]
    page.goto(elsewhere)
    body = '{"playbook": "metadata: {name: stolen}\\nworkflow:\\n  - step: start\\n    tool: {kind: noop}\\n"}'
    tried: dict[str, str | bool] = page.evaluate("([url, body]) => attack(url, body)", [url, body])
    return tried


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_open_server_is_closed_to_other_sites(
    page: Page, furnished: Furnished, elsewhere: str, watched: Watched, host: str
) -> None:
    tried = attacked(page, elsewhere, furnished.url.replace("127.0.0.1", host), watched)
    assert all(text is True or "refused" in str(text) or str(text).startswith("opaque 0") for text in tried.values()), (
        tried
    )
    with furnished.server.client() as client:
        assert client.get("/api/executions", params={"q": "stolen"}).json()["executions"] == []


def test_a_session_is_of_no_use_to_other_sites(
    page: Page,
    context: BrowserContext,
    elsewhere: str,
    watched: Watched,
    built: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("signed")
    key = stage.keys(home, [("acme", "engineer")])["acme", "engineer"]
    with stage.server(home, **{"auth.max_failures": "1000"}) as server:
        page.goto(server.url)
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="Account")).to_be_visible()
        other = context.new_page()
        watched.follow(other)
        # The same host, another port: browsers call that the same site, and send cookies along.
        assert urlsplit(elsewhere).hostname == urlsplit(server.url).hostname
        tried = attacked(other, elsewhere, server.url, watched)
        assert all(
            text is True or "refused" in str(text) or str(text).startswith("opaque 0") for text in tried.values()
        ), tried
        page.reload()
        expect(page.get_by_role("button", name="Account: acme-engineer@acme")).to_be_visible()
        expect(page.get_by_text("No runs yet")).to_be_visible()


def test_the_console_is_in_no_frame(page: Page, furnished: Furnished, elsewhere: str, watched: Watched) -> None:
    attacked(page, elsewhere, furnished.url, watched)
    framed = page.frame_locator("#framed")
    assert framed.get_by_role("navigation").count() == 0


def test_no_other_code_runs_in_the_page(page: Page, furnished: Furnished, watched: Watched) -> None:
    answer = page.goto(furnished.url)
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert re.search(r"script-src 'self';", policy)
    page.locator("main").wait_for()
    refused = page.evaluate(
        """async () => {
          const seen = [];
          document.addEventListener("securitypolicyviolation", (event) => seen.push(event.violatedDirective));
          const script = document.createElement("script");
          try { script.textContent = "window.hacked = 1"; document.body.append(script); } catch (error) { seen.push(error.name); }
          try { document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hacked = 2'>"); } catch (error) { seen.push(error.name); }
          // Not here: what a debugger evaluates may evaluate, too.
          try { setTimeout("window.hacked = 3", 0); } catch (error) { seen.push(error.name); }
          try { await fetch("https://elsewhere.example/"); } catch (error) { seen.push("fetch"); }
          await new Promise((resolve) => setTimeout(resolve, 100));
          return [seen, window.hacked ?? null];
        }"""
    )
    watched.expected += [
        "Content Security Policy",
        "requires 'Trusted",
        "violates",
        "TrustedScript",
        "elsewhere.example",
    ]
    assert refused[1] is None
    assert {"TypeError", "fetch"} <= set(refused[0])


def test_an_open_server_has_no_page_for_other_names(furnished: Furnished) -> None:
    page = {"accept": "text/html"}
    with furnished.server.client() as client:
        for path in ("/", "/runs", "/early.js", "/api/executions"):
            assert client.get(path, headers=page).status_code == 200, path
            # By a name that somebody else's DNS says is this machine.
            refused = client.get(path, headers={**page, "host": f"rebound.example:{urlsplit(furnished.url).port}"})
            assert refused.status_code == 403, path
            assert "127.0.0.1" in refused.json()["detail"]
        # A link on another site may lead here.
        linked = {**page, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
        assert client.get("/runs", headers=linked).status_code == 200
