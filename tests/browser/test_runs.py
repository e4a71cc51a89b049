"""The list of runs: any length, filters in the address, actions on many, and everything by the keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser import stage
from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-1")


def rows(page: Page) -> list[str]:
    return page.get_by_role("table", name="Runs").get_by_role("row").all_inner_texts()[1:]


def test_filters_are_in_the_address_and_come_back_with_it(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs")
    table = page.get_by_role("table", name="Runs")
    expect(table.get_by_role("link", name="sync-inventory").first).to_be_visible()
    page.get_by_role("button", name="Failed").click()
    expect(page).to_have_url(re.compile(r"state=FAILED"))
    expect(table.get_by_role("link", name="hello", exact=True)).to_have_count(0)
    page.get_by_role("searchbox", name="Search runs").fill("RELATION")
    expect(page).to_have_url(re.compile(r"q=RELATION"))
    expect(table.get_by_role("row")).to_have_count(2)
    expect(table.get_by_role("link", name="weekly-report")).to_be_visible()
    page.reload()
    expect(page.get_by_role("searchbox", name="Search runs")).to_have_value("RELATION")
    expect(page.get_by_role("button", name="Failed")).to_have_attribute("aria-pressed", "true")
    expect(table.get_by_role("row")).to_have_count(2)
    page.go_back()
    expect(page.get_by_role("searchbox", name="Search runs")).to_have_value("")


def test_a_search_that_finds_nothing_says_so(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs?q=no+such+run")
    expect(page.get_by_text("No matching runs")).to_be_visible()
    page.get_by_role("button", name="Show all runs").click()
    expect(page.get_by_role("table", name="Runs").get_by_role("link").first).to_be_visible()
    expect(page).to_have_url(f"{furnished.url}/runs")


def test_a_run_that_waits_says_what_for(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs")
    table = page.get_by_role("table", name="Runs")
    row = table.get_by_role("row").filter(has_text="poll").first
    expect(row).to_contain_text("waiting")
    expect(row).to_contain_text("poll · for signal go")
    # One that waits for a worker does not wait by itself.
    expect(table.get_by_role("row").filter(has_text="resize-images")).to_contain_text("running")
    page.goto(furnished.url)
    running = page.get_by_role("region", name="In progress")
    expect(running.get_by_role("listitem").filter(has_text="sync-inventory")).to_contain_text("for signal go")
    page.goto(f"{furnished.url}/runs/{furnished.made['wait']}")
    expect(page.get_by_role("main").locator("header").first).to_contain_text("waiting")


def test_a_run_can_be_imported_on_a_phone(page: Page, furnished: Furnished) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{furnished.url}/runs")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("dialog", name="Import run").get_by_label("Exported file")).to_be_visible()


def test_an_id_leads_to_its_run(page: Page, furnished: Furnished) -> None:
    page.goto(furnished.url)
    page.locator("main").wait_for()
    page.keyboard.press("ControlOrMeta+k")
    page.get_by_role("combobox", name="Search pages").fill(furnished.made["orders"])
    option = page.get_by_role("option").filter(has_text="nightly-orders")
    expect(option).to_be_visible()
    option.click()
    expect(page).to_have_url(f"{furnished.url}/runs/{furnished.made['orders']}")


def test_the_keyboard_is_enough(page: Page, furnished: Furnished) -> None:
    page.goto(furnished.url)
    page.get_by_role("region", name="In progress").get_by_role("link").first.wait_for()
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page).to_have_url(f"{furnished.url}/runs")
    table = page.get_by_role("table", name="Runs")
    table.get_by_role("link").first.wait_for()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("weekly")
    page.keyboard.press("Escape")
    expect(table.get_by_role("row")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("toolbar", name="Selected runs")).to_contain_text("1 run selected")
    page.keyboard.press("Escape")
    expect(page.get_by_role("toolbar", name="Selected runs")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"/runs/{furnished.made['report']}"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("go to Runs")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(r"/runs\?q=weekly"))


def test_several_runs_are_cancelled_at_once(page: Page, furnished: Furnished) -> None:
    mine = stage.WAIT.replace("sync-inventory", "bulk-cancel")
    made = [furnished.server.run(mine, until="command.completed") for _ in range(3)]
    furnished.server.signal(made[0], "CANCEL", reason="earlier")
    page.goto(f"{furnished.url}/runs?q=bulk-cancel")
    boxes = page.get_by_role("checkbox", name=re.compile("Select bulk-cancel"))
    expect(boxes).to_have_count(3)
    boxes.first.check()
    boxes.last.click(modifiers=["Shift"])
    expect(page.get_by_role("toolbar", name="Selected runs")).to_contain_text("3 runs selected")
    page.get_by_role("toolbar").get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel 2 runs?")
    expect(dialog).to_contain_text("1 run has already ended and will not be changed.")
    dialog.get_by_label("Reason").fill("the warehouse moved")
    dialog.get_by_role("button", name="Cancel 2 runs").click()
    expect(page.get_by_text("2 runs cancelled")).to_be_visible()
    expect(page.get_by_role("table", name="Runs").get_by_text("cancelled", exact=True)).to_have_count(3)
    expect(page.get_by_role("toolbar", name="Selected runs")).to_have_count(0)


def test_several_runs_are_run_again(page: Page, furnished: Furnished) -> None:
    mine = stage.REPORT.replace("weekly-report", "bulk-retry")
    for _ in range(2):
        furnished.server.run(mine)
    page.goto(f"{furnished.url}/runs?q=bulk-retry")
    boxes = page.get_by_role("checkbox", name=re.compile("Select bulk-retry"))
    expect(boxes).to_have_count(2)
    for n in range(2):
        boxes.nth(n).check()
    page.keyboard.press("r")
    page.get_by_role("dialog", name="Run again 2 runs?").get_by_role("button", name="Run again 2 runs").click()
    expect(page.get_by_text("2 runs started again")).to_be_visible()
    expect(boxes).to_have_count(4)


def test_two_runs_are_chosen_to_be_compared(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs?q=nightly-orders")
    boxes = page.get_by_role("checkbox", name=re.compile("Select nightly-orders"))
    boxes.first.check()
    compare = page.get_by_role("toolbar").get_by_role("button", name="Compare")
    expect(compare).to_have_attribute("aria-disabled", "true")
    compare.click(force=True)  # it says why not
    expect(page.get_by_text("select exactly two")).to_be_visible()
    boxes.nth(1).check()
    compare.click()
    expect(page).to_have_url(re.compile(r"/runs/compare\?a=\d+&b=\d+"))


def test_every_list_has_its_form_for_scripts(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs?state=FAILED&q=api.shop")
    page.get_by_role("button", name="Show as CLI, curl or Python").click()
    box = page.get_by_role("dialog", name="Use from a script")
    expect(box).to_contain_text("arclog list --state failed --search api.shop --level top")
    box.get_by_role("button", name="curl").click()
    expect(box).to_contain_text(f"curl '{furnished.url}/api/executions?q=api.shop&state=FAILED&level=top&limit=100'")
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)


@pytest.fixture(scope="module")
def crowded(built: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[stage.Server]:
    with stage.crowded(tmp_path_factory.mktemp("crowded")) as server:
        yield server


def test_a_list_of_a_hundred_thousand_runs_is_scrolled(page: Page, crowded: stage.Server) -> None:
    page.goto(f"{crowded.url}/runs")
    table = page.get_by_role("table", name="Runs")
    expect(table.get_by_role("link", name="hello")).to_be_visible()
    region = page.get_by_role("group", name="Runs")
    region.focus()
    for _ in range(40):
        page.keyboard.press("End")
        if table.get_attribute("aria-rowcount") not in ("101", "1"):
            break
        page.wait_for_timeout(50)
    expect(table).to_have_attribute("aria-rowcount", re.compile(r"^[2-9]\d\d$"))
    # Only what is in sight is in the page.
    assert table.get_by_role("row").count() < 80
    page.get_by_role("searchbox").fill("flow-49")
    expect(table.get_by_role("link", name="flow-49").first).to_be_visible()
    page.get_by_role("searchbox").fill("in no run")
    expect(page.get_by_text("No matches among the newest runs.")).to_be_visible()
    page.get_by_role("button", name="Search older runs").click()
    expect(page.get_by_role("button", name="Search older runs")).to_be_visible()
