"""Home: what needs attention first, what runs, how it went, what comes next."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser import stage
from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-1")


def test_what_needs_attention_comes_first(page: Page, furnished: Furnished) -> None:
    page.goto(furnished.url)
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention.get_by_text("Ship order 17 to Lisbon for 249 EUR?")).to_be_visible()
    expect(attention.get_by_text("waiting for approval to start")).to_be_visible()
    expect(attention.get_by_text("waits for a worker of pool gpu that supports python; no worker")).to_be_visible()
    expect(attention.get_by_role("link", name="failed 3 times in a row")).to_be_visible()
    expect(attention.get_by_text('exit code 3: relation "invoices" does not exist')).to_be_visible()
    running = page.get_by_role("region", name="In progress")
    expect(running.get_by_role("link", name="sync-inventory")).to_be_visible()
    ended = page.get_by_role("region", name="Finished runs")
    expect(ended.get_by_role("img", name=re.compile("Runs that ended"))).to_be_visible()
    upcoming = page.get_by_role("region", name="Next scheduled runs")
    expect(upcoming.get_by_role("listitem").first).to_contain_text("hello-hourly")


def test_a_span_of_time_is_in_the_address(page: Page, furnished: Furnished) -> None:
    page.goto(furnished.url)
    page.get_by_label("Time span").select_option("7d")
    expect(page).to_have_url(re.compile(r"span=7d"))
    page.reload()
    expect(page.get_by_label("Time span")).to_have_value("7d")


def test_somebody_approves_without_leaving_the_page(page: Page, furnished: Furnished) -> None:
    mine = stage.SHIP.replace("Ship order 17 to Lisbon for 249 EUR?", "Ship order 99?").replace("ship-order", "ship-99")
    execution_id = furnished.server.run(mine, until="command.completed")
    page.goto(furnished.url)
    item = page.get_by_role("listitem").filter(has_text="Ship order 99?")
    item.get_by_role("button", name="Approve").click()
    dialog = page.get_by_role("dialog", name="Approve ship-99?")
    expect(dialog.get_by_text(f"arclog approve {execution_id}")).to_be_visible()
    dialog.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("ship-99: approved")).to_be_visible()
    expect(item).to_have_count(0)
    furnished.server.wait_for(execution_id, "playbook.finished")


def test_a_rejection_has_a_reason(page: Page, furnished: Furnished) -> None:
    mine = stage.SHIP.replace("Ship order 17", "Ship order 98").replace("ship-order", "ship-98")
    execution_id = furnished.server.run(mine, until="command.completed")
    page.goto(furnished.url)
    page.get_by_role("listitem").filter(has_text="Ship order 98").get_by_role("button", name="Reject").click()
    dialog = page.get_by_role("dialog", name="Reject ship-98?")
    expect(dialog.get_by_role("button", name="Reject")).to_be_disabled()
    dialog.get_by_label("Reason").fill("out of stock")
    dialog.get_by_role("button", name="Reject").click()
    expect(page.get_by_text("ship-98: rejected")).to_be_visible()
    furnished.server.wait_for(execution_id, "playbook.finished")
    with furnished.server.client() as client:
        assert "out of stock" in client.get(f"/api/executions/{execution_id}/events").text


def test_an_empty_home_says_how_to_begin(
    new_page: Callable[..., Page], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with stage.server(tmp_path_factory.mktemp("empty")) as server:
        page = new_page()
        page.goto(server.url)
        expect(page.get_by_text("No runs yet")).to_be_visible()
        expect(page.get_by_text(f"arclog run examples/hello.yaml --server {server.url}")).to_be_visible()
