"""One run: its answer first, live, and linked to."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.browser import stage
from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-2")

FAILS = """
metadata: {name: verified}
workflow:
  - step: start
    tool: {kind: noop, data: 1}
    next: {arcs: [{step: verify}]}
  - step: verify
    tool: {kind: assert, that: start.data > 1, message: too few}
"""


def test_a_failed_run_opens_on_its_cause(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['orders']}")
    expect(page.get_by_text("fetch → item 0 → task get:")).to_be_visible()
    expect(page.get_by_text("503 from api.shop").first).to_be_visible()
    details = page.get_by_role("complementary", name="Details of the selection")
    expect(
        details.get_by_text("attempt 1")
    ).to_be_visible()  # without a click: the task that failed, with its traceback
    page.get_by_role("button", name="Show event", exact=True).click()
    expect(page).to_have_url(re.compile(r"seq=\d+.*step=fetch.*item=0"))
    expect(details.get_by_text("loop.iteration.failed").first).to_be_visible()
    page.reload()
    expect(details.get_by_text("loop.iteration.failed").first).to_be_visible()
    page.get_by_role("button", name=re.compile("^Source line ")).click()
    expect(page.get_by_label("Source of the playbook").locator("[data-failed=true]")).to_contain_text(
        "raise RuntimeError"
    )


def test_a_cause_that_was_asked_for_too_early_is_asked_for_again(page: Page, furnished: Furnished) -> None:
    """The run ends between the answer to why it has not ended and the answer that it has. Servers may be behind for a while."""
    run = furnished.made["orders"]
    early: dict[str, object] = {
        "execution_id": run, "state": "RUNNING", "summary": "fetch is running", "waits": [], "cause": None, "next": [],
        "problems": [],
    }  # fmt: skip
    page.route(f"**/api/executions/{run}/why", lambda route: route.fulfill(json=early), times=4)
    page.goto(f"{furnished.url}/runs/{run}")
    expect(page.get_by_text("fetch → item 0 → task get:")).to_be_visible()


def test_graph_chart_events_and_source_share_one_selection(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['import']}")
    graph = page.get_by_role("group", name="Graph of the run")
    graph.get_by_text("start", exact=True).click()
    expect(page).to_have_url(re.compile("step=start"))
    details = page.get_by_role("complementary", name="Details of the selection")
    expect(details.get_by_role("heading", name="start")).to_be_visible()
    expect(details.get_by_text("Count what there is to import.")).to_be_visible()
    # The template beside the value that it came to, the rule that matched, and why the other arc was not taken.
    inputs = details.get_by_role("row", name=re.compile("^data"))
    expect(inputs).to_contain_text("{{ workload.count }}")
    expect(inputs).to_contain_text('"count": 8')
    expect(details.get_by_text("matched")).to_be_visible()
    expect(details.get_by_text("did not match")).to_be_visible()
    events = page.get_by_role("table", name="Events")
    expect(events.get_by_role("row").nth(1)).to_contain_text("step.scheduled")
    page.get_by_role("group", name="Steps over time").get_by_role("button", name=re.compile("^fetch ?, failed")).click()
    expect(page).to_have_url(re.compile("step=fetch"))
    expect(details.get_by_role("heading", name="fetch")).to_be_visible()
    page.get_by_role("tab", name="Source").click()
    expect(page.get_by_label("Source of the playbook").locator("[data-selected=true]").first).to_contain_text(
        "step: fetch"
    )


def test_a_loop_shows_the_details_of_the_item_that_failed_first(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['import']}?step=fetch")
    details = page.get_by_role("complementary", name="Details of the selection")
    expect(details.get_by_text("Below: item 3")).to_be_visible()
    expect(details.get_by_text("order 3 has no total").first).to_be_visible()


def test_a_loop_opens_on_its_failed_items(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['import']}")
    chart = page.get_by_role("group", name="Steps over time")
    chart.get_by_role("button", name="Items of fetch").click()
    # Items that were under way when it failed may have been ended as failed, too.
    expect(chart.get_by_role("button", name=re.compile("^item")).first).to_contain_text("failed")
    expect(chart.get_by_role("button", name=re.compile("^item 3 ?, failed"))).to_be_visible()
    page.get_by_role("tab", name="Items").click()
    items = page.get_by_role("table", name="Items").get_by_role("row")
    expect(items.nth(1)).to_contain_text("failed")
    items.filter(has_text=re.compile("^failed3")).click()
    expect(page).to_have_url(re.compile("item=3"))
    details = page.get_by_role("complementary", name="Details of the selection")
    expect(details.get_by_text("order 3 has no total").first).to_be_visible()
    page.get_by_role("tab", name="Logs").click()
    lines = page.get_by_role("table", name="Lines")
    expect(lines.get_by_text("order 3", exact=True).first).to_be_visible()
    expect(lines.get_by_text("order 1", exact=True)).to_have_count(0)


def test_time_goes_back_and_forth(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.made["import"]
    page.goto(f"{furnished.url}/runs/{execution_id}?tab=data")
    data = page.get_by_role("group", name="Data of the run")
    expect(data.get_by_text("counted")).to_be_visible()
    moment = page.get_by_role("slider", name="Moment of the run")
    moment.fill("5")
    expect(page).to_have_url(re.compile("seq=5"))
    expect(data.get_by_text("counted")).to_have_count(0)
    expect(page.get_by_text(re.compile("^event 5 of"))).to_be_visible()
    expect(page.get_by_role("group", name="Graph of the run").get_by_label("Step start, queued")).to_be_visible()
    page.keyboard.press("m")  # a first mark
    page.locator("h1").click()
    page.keyboard.press("e")
    changes = data.get_by_role("table")
    expect(changes.get_by_role("row", name=re.compile(r"^ctx.counted – 8"))).to_be_visible()
    expect(changes.get_by_role("row", name=re.compile(r"^state RUNNING FAILED"))).to_be_visible()
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile(r"seq=\d\d"))
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()  # it stops at the end
    expect(page).not_to_have_url(re.compile("seq="))


def test_called_runs_open_in_place(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['parent']}?tab=children")
    called = page.get_by_role("group", name="Child runs")
    called.get_by_role("button", name=re.compile("^Steps of import-orders")).click()
    expect(called.get_by_role("link", name="load")).to_be_visible()
    called.get_by_role("link", name=re.compile("^import-orders")).click()
    expect(page.get_by_text("Parent")).to_be_visible()


def test_a_run_is_followed_live(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(stage.WAIT, until="command.completed")
    page.goto(f"{furnished.url}/runs/{execution_id}")
    expect(page.get_by_text("waits for signal go")).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    furnished.server.signal(execution_id, "go")
    expect(page.get_by_role("table", name="Events").get_by_text("playbook.finished")).to_be_visible()
    expect(page.locator("header").get_by_text("completed")).to_be_visible()
    expect(page.get_by_role("button", name="Run again")).to_be_visible()


def test_a_run_is_paused_resumed_and_cancelled(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(stage.WAIT, until="command.completed")
    page.goto(f"{furnished.url}/runs/{execution_id}")
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(page.get_by_role("dialog")).to_have_count(0)  # its own button is called Cancel, too
    page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Cancel", exact=True)).to_be_disabled()
    dialog.get_by_label("Reason").fill("it's enough")
    expect(dialog.get_by_text(f"arclog cancel {execution_id} --reason 'it'\\''s enough'")).to_be_visible()
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("header").get_by_text("cancelled")).to_be_visible()


def test_a_run_again_leads_to_the_new_run(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(stage.HELLO)
    page.goto(f"{furnished.url}/runs/{execution_id}")
    page.get_by_role("button", name="Run again").wait_for()
    page.keyboard.press("r")
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(page).to_have_url(re.compile(rf"/runs/(?!{execution_id})\d+"))
    expect(page.locator("header").get_by_text("completed")).to_be_visible()


def test_a_new_run_goes_on_from_what_was_recorded(page: Page, furnished: Furnished) -> None:
    failed = furnished.server.run(FAILS)
    page.goto(f"{furnished.url}/runs/{failed}")
    page.get_by_role("button", name="Retry failed").click()
    dialog = page.get_by_role("dialog", name="Retry failed?")
    expect(dialog.get_by_text(f"arclog retry {failed} --failed")).to_be_visible()
    dialog.get_by_role("button", name="Retry failed").click()
    expect(page.get_by_text("Retry of")).to_be_visible()
    expect(page.locator("header").get_by_role("link", name=failed)).to_be_visible()

    page.goto(f"{furnished.url}/runs/{failed}?step=verify")
    page.get_by_role("button", name="Retry from verify").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry from verify").click()
    expect(page.get_by_text("Retry of")).to_be_visible()

    hello = furnished.server.run(stage.HELLO)
    page.goto(f"{furnished.url}/runs/{hello}?seq=4")
    page.get_by_role("button", name="Fork after event 4").click()
    dialog = page.get_by_role("dialog", name="Fork after event 4?")
    expect(dialog.get_by_text(f"arclog fork {hello} --at 4")).to_be_visible()
    dialog.get_by_role("button", name="Fork after event 4").click()
    expect(page.get_by_text("Fork of")).to_be_visible()
    expect(page.locator("header").get_by_text("completed")).to_be_visible()


def test_an_approval_is_decided_where_it_is_waited_for(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(stage.SHIP, until="command.completed")
    page.goto(f"{furnished.url}/runs/{execution_id}")
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.locator("header").get_by_text("completed")).to_be_visible()


def test_a_run_that_is_not_there_is_said(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/380452616754167808")
    expect(page.get_by_role("alert")).to_contain_text("Run 380452616754167808 was not found")
    page.goto(f"{furnished.url}/nowhere/at/all")
    expect(page.get_by_text("Page not found")).to_be_visible()


def test_names_that_are_markup_are_text(page: Page, furnished: Furnished) -> None:
    for path in ("/", "/runs", f"/runs/{furnished.made['evil']}", f"/runs?q={stage.EVIL}"):
        page.goto(furnished.url + path)
        expect(page.get_by_text(stage.EVIL).first).to_be_visible()
        assert page.locator("img").count() == 0
    assert page.evaluate("() => window.hacked") is None
    page.keyboard.press("ControlOrMeta+k")
    page.get_by_role("combobox", name="Search pages").fill("script")
    expect(page.get_by_role("option").filter(has_text=stage.EVIL).first).to_be_visible()


def test_a_step_whose_name_is_markup_is_text_in_every_view(
    page: Page, furnished: Furnished, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The checker takes no such name; a log that another program made might have one."""
    page.goto(f"{furnished.url}/new-playbook")
    page.get_by_role("textbox", name="Playbook source").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(stage.WAIT.replace("poll", f"'{stage.EVIL}'"))
    expect(page.get_by_role("list", name="Findings").get_by_text(stage.EVIL).first).to_be_visible()
    with furnished.server.client() as client:
        exported = client.get(f"/api/executions/{furnished.made['import']}/export").content
    renamed = stage.rewritten(exported, lambda _, body: body.replace(b"fetch", stage.EVIL.encode()))
    with stage.server(tmp_path_factory.mktemp("markup")) as server:
        with server.client() as client:
            client.post("/api/import", content=renamed).raise_for_status()
        run = f"{server.url}/runs/{furnished.made['import']}"
        page.goto(f"{run}?{urlencode({'step': stage.EVIL})}")
        expect(page.get_by_label(re.compile(f"^Step {re.escape(stage.EVIL)}"))).to_be_visible()
        for tab in ("Items", "Logs", "Data", "Source", "Lineage", "History", "Events"):
            page.get_by_role("tab", name=tab).click()
            expect(page.get_by_role("tab", name=tab, selected=True)).to_be_visible()
            expect(page.get_by_role("tabpanel").locator("[aria-label=Loading]")).to_have_count(0)
            assert page.locator("img").count() == 0, tab
        expect(page.get_by_role("table", name="Events").get_by_text(stage.EVIL).first).to_be_visible()
        page.goto(f"{server.url}/runs")
        expect(page.get_by_role("link", name="import-orders")).to_be_visible()
    assert page.evaluate("() => window.hacked") is None


def test_a_step_that_waits_is_drawn_as_waiting(page: Page, furnished: Furnished) -> None:
    for run, step, reason in (("ship", "ship", "for approval"), ("wait", "poll", "for go")):
        page.goto(f"{furnished.url}/runs/{furnished.made[run]}")
        expect(page.get_by_label(f"Step {step}, waiting, {reason}")).to_be_visible()
        expect(page.get_by_role("button", name=re.compile(f"^{step} , waiting"))).to_be_visible()


def test_a_theme_is_chosen_and_kept(page: Page, furnished: Furnished) -> None:
    page.goto(furnished.url)
    page.get_by_role("button", name="Dark theme").click()
    dark = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    page.reload()
    page.get_by_role("button", name="Light theme").wait_for()
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == dark
    page.get_by_role("button", name="Account").click()
    page.get_by_role("button", name="System").click()
    assert page.evaluate("() => localStorage.length") == 0
