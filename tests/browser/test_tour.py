"""From a failure to its repair without leaving the browser: find the cause, edit the playbook, run it again, compare both runs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-1")

ITEMS = 1_000
BILL = f"""\
metadata: {{name: bill-orders, path: shop/bill-orders}}
workload: {{count: {ITEMS}}}
workflow:
  - step: start
    tool: {{kind: noop}}
    next: {{arcs: [{{step: bill}}]}}
  - step: bill
    loop: {{in: "{{{{ range(workload.count) | list }}}}", iterator: n, spec: {{mode: parallel, max_in_flight: 8}}}}
    tool:
      name: total
      kind: noop
      data: {{order: "{{{{ iter.n }}}}"}}
      spec:
        policy:
          rules:
            - when: "{{{{ outcome.data.order == 637 }}}}"
              then: {{do: fail, message: "order 637 has no total"}}
            - else: {{then: {{do: continue}}}}
    next: {{arcs: [{{step: send}}]}}
  - step: send
    tool: {{kind: noop}}
"""
REPAIRED = BILL.replace('then: {do: fail, message: "order 637 has no total"}', "then: {do: continue}")


def test_a_failed_loop_is_understood_repaired_run_again_and_compared(page: Page, furnished: Furnished) -> None:
    with furnished.server.client() as client:
        client.post("/api/catalog", json={"playbook": BILL}).raise_for_status()
    assert REPAIRED != BILL
    # It is run from the catalog, and fails.
    page.goto(f"{furnished.url}/playbooks")
    page.get_by_role("row").filter(has_text="shop/bill-orders").get_by_role("button", name="Run").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page).to_have_url(re.compile(r"/runs/\d+"))
    expect(page.locator("header").get_by_text("failed", exact=True)).to_be_visible()
    failed = re.search(r"/runs/(\d+)", page.url)
    assert failed is not None
    # The cause is there without a click, its moment with one, and its item is among the first of a thousand.
    expect(page.get_by_text("bill → item 637 → task total")).to_be_visible()
    page.get_by_role("button", name="Show event", exact=True).click()
    expect(page).to_have_url(re.compile(r"step=bill.*item=637"))
    page.get_by_role("tab", name="Items").click()
    page.get_by_role("button", name="clear").click()
    # Items that were under way when the loop ended have failed, too.
    expect(page.get_by_role("table", name="Items").get_by_role("row").filter(has_text="637")).to_contain_text("failed")
    # The playbook is edited, saved as a version and run again.
    page.get_by_role("link", name="shop/bill-orders").click()
    page.get_by_role("textbox", name="Playbook source").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")  # Chromium styles what replaces a selection, which the page's policy refuses
    page.keyboard.insert_text(REPAIRED)
    expect(page.get_by_text("No problems found.")).to_be_visible()
    page.get_by_role("button", name="Save as v2").click()
    expect(page.get_by_text("shop/bill-orders v2 is registered")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page.locator("header").get_by_text("completed")).to_be_visible()
    expect(page.get_by_label(re.compile(r"^Step bill, done, 1,000 ✓"))).to_be_visible()
    # Both are compared: where they part, and how.
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("link", name=failed.group(1)).click()
    # Items that were cut short because of it are not taken for the cause.
    expect(
        page.get_by_text("First difference: bill: item 637 of step bill failed in the first run only")
    ).to_be_visible()
    steps = page.get_by_role("table", name="Steps of both runs")
    expect(steps.get_by_role("row", name=re.compile(r"^send"))).to_contain_text("done")
