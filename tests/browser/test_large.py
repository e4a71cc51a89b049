"""Runs that are larger or odder than most: 50,000 events, 10,000 items, a megabyte of text, and data that is hard to show."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser import stage
from tests.browser.chromium import received_by
from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-1")

#: The item that fails.
BAD = stage.LARGE_ITEMS - 10
#: What a page may receive before somebody scrolls.
MOST_BYTES = 1_000_000
#: How long all of its outline may take on a machine that is busy with other tests; `./x bench console` measures.
BUSY_MS = 60_000
#: Rows of a table in the page, however long the table is.
MOST_ROWS = 80
#: 200 levels, a megabyte, characters that cannot be seen or turn what follows, and markup.
ODD = {
    "metadata": {"name": "odd-data", "path": "load/odd-data"},
    "workflow": [
        {
            "step": "make",
            "tool": {
                "kind": "python",
                "code": 'deep = "bottom"\n'
                'for n in range(200):\n    deep = {"level": deep}\n'
                'result = {"nul": "a\\0b", "turned": "\\u202etxt.exe\\u202c שלום", "deep": deep, '
                f'"markup": {stage.EVIL!r}, "big": "x" * 1_000_000}}\n',
            },
            "next": {"arcs": [{"step": "keep"}]},
        },
        {
            "step": "keep",
            "tool": {
                "name": "keep",
                "kind": "noop",
                "data": {name: f"{{{{ make.{name} }}}}" for name in ("nul", "turned", "deep", "markup")},
                "spec": {
                    "policy": {
                        "rules": [{"else": {"then": {"do": "continue", "set_ctx": {"kept": "{{ outcome.data }}"}}}}]
                    }
                },
            },
        },
    ],
}


def test_a_run_of_fifty_thousand_events_is_as_easy_as_a_small_one(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(stage.large())
    with furnished.server.client() as client:
        head = client.get(f"/api/executions/{execution_id}/head").json()["head"]
    assert head >= 5 * BAD
    received = received_by(page)
    page.goto(f"{furnished.url}/runs/{execution_id}")
    expect(page.get_by_text(f"each → item {BAD} → task take")).to_be_visible()
    expect(page.get_by_text(f"event {head:,} of {head:,}")).to_be_visible(timeout=BUSY_MS)
    # Items that run when it fails are cancelled, and count like it.
    expect(page.get_by_label(re.compile(r"^Step each, failed, [\d,]+ ✓ [1-8] ✗"))).to_be_visible()
    expect(page.locator(".react-flow__edge-path")).to_have_count(2)  # arcs stay, however often their steps change
    assert received() < MOST_BYTES
    # The list of events has its end within reach, and few rows.
    events = page.get_by_role("table", name="Events")
    expect(events).to_have_attribute("aria-rowcount", str(head + 1))
    page.get_by_role("group", name="Events").evaluate("(list) => { list.scrollTop = list.scrollHeight; }")
    expect(events.get_by_text("playbook.finished")).to_be_visible()
    assert events.get_by_role("row").count() < MOST_ROWS
    # The middle of its past.
    page.get_by_role("slider", name="Moment of the run").fill(str(head // 2))
    expect(page).to_have_url(re.compile(rf"seq={head // 2}\b"))
    expect(page.get_by_label(re.compile(r"^Step each, running, [\d,]+ ✓ of 10,000"))).to_be_visible()
    # Its items, the failed one first.
    page.goto(f"{furnished.url}/runs/{execution_id}?step=each&tab=items")
    items = page.get_by_role("table", name="Items")
    expect(items.get_by_role("row").nth(1)).to_contain_text(str(BAD), timeout=BUSY_MS)
    expect(items.get_by_role("row").nth(1)).to_contain_text("failed")
    assert items.get_by_role("row").count() < MOST_ROWS
    page.get_by_role("button", name="Items of each").click()
    chart = page.get_by_role("group", name="Steps over time")
    expect(chart.get_by_role("button", name=re.compile("^item")).first).to_contain_text("failed")
    assert chart.get_by_role("button").count() < 200


def test_odd_data_is_shown_as_data(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(json.dumps(ODD), text="x" * 200_000)
    page.goto(f"{furnished.url}/runs/{execution_id}?tab=data")
    data = page.get_by_role("group", name="Data of the run")
    expect(data.get_by_text("a␀b").first).to_be_visible()
    # What would turn the characters after it is written out.
    expect(data.get_by_text(r"\u202etxt.exe\u202c").first).to_be_visible()
    expect(data.get_by_text(stage.EVIL).first).to_be_visible()
    for _ in range(20):  # level by level, as deep as somebody wants
        data.get_by_role("button", name=re.compile(r"^▸ \{ 1 \}")).first.click()
    # A long text is cut, and opened on demand; one of a megabyte is a stored result.
    page.goto(f"{furnished.url}/runs/{execution_id}?seq=1")
    details = page.get_by_role("complementary", name="Details of the selection")
    details.get_by_role("button", name="▸ { 1 }").click()
    more = details.get_by_role("button", name=re.compile(r"more characters$"))
    expect(more.first).to_be_visible()
    assert page.evaluate("() => document.body.innerText.length") < 20_000
    page.goto(f"{furnished.url}/runs/{execution_id}?step=make")
    expect(details.get_by_role("heading", name="make_task")).to_be_visible()
    assert page.evaluate("() => document.body.innerText.length") < 20_000
    assert page.evaluate("() => window.hacked") is None
    assert page.locator("img").count() == 0
