"""Operations: approvals, schedules, pools and workers, credentials, keys, health and settings."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import stage
from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-1")


def test_approvals_are_decided_in_the_inbox(page: Page, furnished: Furnished) -> None:
    mine = stage.SHIP.replace("order 17", "order 4711")
    execution_id = furnished.server.run(mine, until="command.completed")
    page.goto(f"{furnished.url}/approvals")
    item = page.get_by_role("listitem").filter(has_text="Ship order 4711")
    item.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(item).to_have_count(0)
    furnished.server.wait_for(execution_id, "playbook.finished")


def test_a_schedule_is_added_paused_backfilled_and_removed(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/schedules")
    expect(page.get_by_role("row").filter(has_text="orders-nightly")).to_be_visible()
    page.get_by_role("button", name="Add schedule").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("mine")
    dialog.get_by_label("Playbook").fill("shop/import-orders")
    dialog.get_by_label("Cron expression").fill("0 3 * * *")
    expect(dialog.get_by_text("arclog schedule add mine --cron '0 3 * * *' --path shop/import-orders")).to_be_visible()
    dialog.get_by_role("button", name="Add", exact=True).click()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=re.compile("^mine")))
    row.get_by_role("button", name="Pause").click()
    expect(row.get_by_text("paused")).to_be_visible()
    row.get_by_role("button", name="Backfill").click()
    dialog.get_by_label("From").fill("2026-01-01T00:00")
    dialog.get_by_label("To").fill("2026-01-02T12:00")
    dialog.get_by_role("button", name="Backfill").click()
    expect(page.get_by_text("mine catches up")).to_be_visible()
    row.get_by_role("button", name="Remove").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)


def test_pools_workers_and_what_waits_are_shown(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/work")
    pools = page.get_by_role("table", name="Pools")
    expect(pools.get_by_role("row", name=re.compile("^gpu 1"))).to_contain_text("no worker")
    waits = page.get_by_role("table", name="Waiting work")
    expect(waits.get_by_role("row", name=re.compile("^resize-images"))).to_contain_text("gpu")
    workers = page.get_by_role("table", name="Workers")
    expect(workers.get_by_role("row").nth(1)).to_contain_text("python")
    workers.get_by_role("button", name="Drain").first.click()
    expect(page.get_by_role("dialog").get_by_text("arclog worker drain")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("img", name=re.compile("^Events: "))).to_be_visible()


def test_health_credentials_keys_audit_and_settings_are_shown(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/settings")
    checks = page.get_by_role("table", name="Health checks")
    expect(checks.get_by_role("row").filter(has_text="store").first).to_contain_text("SQLite")
    page.get_by_role("link", name="Credentials").click()
    expect(page.get_by_text("No credentials")).to_be_visible()
    page.get_by_role("link", name="API keys").click()
    expect(page.get_by_text("No API keys")).to_be_visible()
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("link", name="Audit")).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="All settings").click()
    changed = page.get_by_role("row").filter(has_text="ARCLOG_OVERVIEW_STUCK_S")
    expect(changed).to_contain_text("default: 60")
    field = page.get_by_label("Search settings")
    field.fill("session_s")
    expect(page.get_by_role("row").filter(has_text="auth.session_s")).to_be_visible()
    # The search icon is inside its field.
    box, icon = field.bounding_box(), page.locator("main svg.lucide-search").bounding_box()
    assert box
    assert icon
    assert box["y"] < icon["y"] < icon["y"] + icon["height"] < box["y"] + box["height"]


def test_health_checks_that_fail_come_first(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/settings")
    checks = page.get_by_role("table", name="Health checks")
    expect(checks.get_by_role("row").first).to_contain_text("pool gpu")
    expect(checks.get_by_role("row").last).to_contain_text("ok")


def test_the_audit_log_has_the_address_that_was_asked(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/settings?tab=audit")
    row = page.get_by_text(f"POST /api/executions/{furnished.made['cancelled']}/signal")
    expect(row.first).to_be_visible()


def test_the_style_sheets_are_in_order(page: Page, furnished: Furnished) -> None:
    """Sheets that are loaded with a view come before those of the page: the order of layers must not depend on it."""
    page.goto(f"{furnished.url}/playbook/shop/import-orders")
    run = page.get_by_role("button", name="Run", exact=True)
    run.wait_for()
    colour = run.evaluate("(button) => getComputedStyle(button).backgroundColor")
    assert colour not in ("rgba(0, 0, 0, 0)", "transparent")
