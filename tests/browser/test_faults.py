"""What goes wrong around a page: a server that is killed and comes back, and a clock that is wrong."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser import stage
from tests.browser.conftest import Watched

pytestmark = pytest.mark.xdist_group("browser-2")

#: Ten steps, each after a signal: enough events for a gap or a repetition to show.
STEPS = "\n".join(
    ["metadata: {name: long}", "workflow:"]
    + [
        f"  - step: s{n}\n    tool: {{kind: wait, signal: go{n}}}"
        + (f"\n    next: {{arcs: [{{step: s{n + 1}}}]}}" if n < 9 else "")
        for n in range(10)
    ]
)


def _go_on(server: stage.Server, execution_id: str, steps: range) -> None:
    for n in steps:
        server.wait_for(execution_id, "command.completed", count=n + 1)
        server.signal(execution_id, f"go{n}")


def test_a_stream_goes_on_without_gap_or_repetition_when_the_server_is_killed(
    new_page: Callable[..., Page], built: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with stage.server(tmp_path_factory.mktemp("killed")) as server:
        execution_id = server.run(STEPS, until="command.completed")
        page = new_page()
        page.goto(f"{server.url}/runs/{execution_id}")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        _go_on(server, execution_id, range(3))
        server.kill()
        expect(page.get_by_text("reconnecting …", exact=True)).to_be_visible()
        expect(page.get_by_text("Server unreachable, retrying", exact=True)).to_be_visible()
        expect(page.get_by_role("heading", name="long")).to_be_visible()  # what was there stays
        server.start()
        _go_on(server, execution_id, range(3, 10))
        server.wait_for(execution_id, "playbook.processed")
        expect(page.locator("header").get_by_text("completed")).to_be_visible()
        with server.client() as client:
            events = client.get(f"/api/executions/{execution_id}/events").json()["events"]
        region = page.get_by_role("region", name="Run details")
        expect(page.get_by_text(f"event {len(events):,} of {len(events):,}")).to_be_visible()
        # Each once and in order: read all of them off the page.
        table = region.get_by_role("table", name="Events")
        seen: list[int] = []
        scroller = region.get_by_role("group", name="Events")
        deadline = time.monotonic() + 60
        while (not seen or seen[-1] < len(events)) and time.monotonic() < deadline:
            for text in table.get_by_role("row").all_inner_texts()[1:]:
                number = int(text.split()[0].replace(",", ""))
                if not seen or number > seen[-1]:
                    seen.append(number)
            scroller.evaluate("(one) => { one.scrollTop += one.clientHeight / 2; }")
            page.wait_for_timeout(60)
        assert seen == list(range(1, len(events) + 1))


def test_pages_wait_for_a_server_that_is_away(
    new_page: Callable[..., Page], built: None, tmp_path_factory: pytest.TempPathFactory, watched: Watched
) -> None:
    with stage.server(tmp_path_factory.mktemp("late")) as server:
        page = new_page()
        page.goto(server.url)
        expect(page.get_by_text("No runs yet")).to_be_visible()
        server.kill()
        expect(page.get_by_text("Server unreachable, retrying")).to_be_visible()
        page.get_by_role("link", name="Runs", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
        # A view whose code was never loaded.
        page.get_by_role("link", name="Settings", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
        server.start()
        expect(page.get_by_role("table", name="Health checks")).to_be_visible()
        page.get_by_role("link", name="Runs", exact=True).click()
        expect(page.get_by_text("No runs yet")).to_be_visible()
    watched.expected += ["Unable to preload", "dynamically imported module"]


def test_ages_are_told_by_the_servers_clock(
    new_page: Callable[..., Page], built: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with stage.server(tmp_path_factory.mktemp("skewed")) as server:
        server.run(stage.HELLO)
        page = new_page()
        # This browser's clock is two days behind.
        page.add_init_script("{ const now = Date.now; Date.now = () => now() - 2 * 86400000; }")
        page.goto(f"{server.url}/runs")
        row = page.get_by_role("table", name="Runs").get_by_role("row").nth(1)
        expect(row).to_contain_text("ago")
        expect(row).not_to_contain_text(re.compile(r"\d d\b"))
