"""Playbooks: found, edited with findings where they belong, saved as a version, compared, and run."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import stage
from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-1")


def test_the_catalog_shows_the_last_runs_of_each(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/playbooks")
    row = page.get_by_role("row").filter(has_text="shop/nightly-orders")
    expect(row.get_by_role("link", name="Last runs of shop/nightly-orders: 1 completed, 3 failed")).to_be_visible()
    page.get_by_label("Search playbooks").fill("import")
    expect(page.get_by_role("row").filter(has_text="shop/nightly-orders")).to_have_count(0)
    page.get_by_role("link", name="shop/import-orders", exact=True).click()
    expect(page.get_by_role("heading", name="shop/import-orders")).to_be_visible()


def test_a_playbook_is_run_from_a_phone(new_page: Callable[..., Page], furnished: Furnished) -> None:
    page = new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{furnished.url}/playbooks?q=import-orders")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("dialog", name="Run shop/import-orders")).to_be_visible()


def test_a_playbook_is_edited_saved_compared_and_run(page: Page, furnished: Furnished) -> None:
    with furnished.server.client() as client:
        mine = stage.HELLO.replace("examples/hello", "mine/edited")
        client.post("/api/catalog", json={"playbook": mine}).raise_for_status()
    page.goto(f"{furnished.url}/playbook/mine/edited")
    graph = page.get_by_role("group", name="Graph of the playbook")
    expect(graph.get_by_text("start", exact=True)).to_be_visible()
    editor = page.get_by_role("textbox", name="Playbook source")
    save = page.get_by_role("button", name=re.compile("^Save as v"))
    expect(save).to_be_disabled()
    # A finding stands in the list, and the graph follows what is typed.
    editor.click()
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.insert_text("  - stp: later\n")
    expect(page.get_by_role("list", name="Findings").get_by_text("stp")).to_be_visible()
    page.keyboard.press("ControlOrMeta+z")
    page.keyboard.press("ControlOrMeta+End")
    page.keyboard.insert_text("  - step: later\n    tool: {kind: noop}\n")
    expect(graph.get_by_text("later", exact=True)).to_be_visible()
    save.click()
    expect(page.get_by_text("mine/edited v2 is registered")).to_be_visible()
    # Selecting a step in the graph selects it in the text.
    graph.get_by_text("end", exact=True).click()
    expect(page).to_have_url(re.compile("step=end"))
    page.get_by_role("link", name="Versions").click()
    page.get_by_role("link", name="changes").click()
    expect(page.get_by_role("group", name="Changes from v1 to v2").get_by_text("+  - step: later")).to_be_visible()
    expect(page.get_by_role("group", name=re.compile("^Graph of what changed")).get_by_text("added")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("name").fill("Ada")
    expect(dialog.get_by_text("--set name=Ada")).to_be_visible()
    dialog.get_by_role("button", name="Start").click()
    expect(page).to_have_url(re.compile(r"/runs/\d+"))
    expect(page.locator("header").get_by_text("completed")).to_be_visible()


def test_a_text_that_is_an_older_version_is_opened_as_that_version(page: Page, furnished: Furnished) -> None:
    first = stage.HELLO.replace("examples/hello", "mine/undone")
    with furnished.server.client() as client:
        for text in (first, first.replace("world", "moon")):
            client.post("/api/catalog", json={"playbook": text}).raise_for_status()
    page.goto(f"{furnished.url}/playbook/mine/undone")
    expect(page.get_by_role("textbox", name="Playbook source")).to_contain_text("moon")
    page.get_by_role("textbox", name="Playbook source").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(first)
    page.get_by_role("button", name="Save as v3").click()
    expect(page.get_by_text("This text is v1 already")).to_be_visible()
    expect(page).to_have_url(re.compile("version=1"))
    expect(page.get_by_role("textbox", name="Playbook source")).to_contain_text("world")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("dialog").get_by_text("arclog run mine/undone@1")).to_be_visible()


def test_statistics_show_what_is_slow_and_what_fails(page: Page, furnished: Furnished) -> None:
    playbook = stage.ORDERS.replace("shop/nightly-orders", "mine/counted")
    furnished.server.run(playbook, fail=False)
    failed = furnished.server.run(playbook)
    page.goto(f"{furnished.url}/playbook/mine/counted")
    page.get_by_role("link", name="Stats").click()
    facts = page.locator("dl").filter(has_text="Success rate")
    expect(facts.locator("div").filter(has_text="Success rate")).to_contain_text("50 %")
    expect(facts.locator("div").filter(has_text="Most failing step")).to_contain_text("fetchfailed 1 of 2 times")
    expect(page.get_by_role("img", name=re.compile("^Runs by day, 30 days. The highest has 2"))).to_be_visible()
    steps = page.get_by_role("table", name="Steps of these runs")
    expect(steps.get_by_role("row", name=re.compile("^fetch"))).to_contain_text("1 (50 %)")
    # What is chosen is in the address, and in the command of a script.
    page.get_by_label("Order of the steps").select_option("Most failing first")
    expect(steps.get_by_role("row").nth(1)).to_contain_text("fetch")
    page.get_by_label("Period").select_option("All time")
    expect(page).to_have_url(re.compile("order=failing.*period=all|period=all.*order=failing"))
    page.reload()
    expect(page.get_by_label("Period")).to_have_value("all")
    expect(page.get_by_role("img", name=re.compile("^Runs by day, 7 days"))).to_be_visible()
    page.get_by_text("Days as a table").click()
    expect(page.get_by_role("table", name="Runs by day").get_by_role("row")).to_have_count(2)
    page.get_by_role("main").get_by_role("button", name="Show as CLI").last.click()
    expect(page.get_by_text("arclog stats mine/counted --last 1000 --server")).to_be_visible()
    page.keyboard.press("Escape")
    # The counts lead to the runs, and a time to the run that took it.
    facts.get_by_role("link", name="1 failed").click()
    expect(page.get_by_role("row").filter(has_text="nightly-orders")).to_have_count(1)
    page.go_back()
    steps.get_by_role("link", name=re.compile("^Slowest load: ")).click()
    expect(page).to_have_url(re.compile(r"/runs/\d+\?step=load"))
    assert failed not in page.url  # it failed before that step


def test_statistics_without_a_run_say_so(page: Page, furnished: Furnished) -> None:
    with furnished.server.client() as client:
        never = stage.HELLO.replace("examples/hello", "mine/never")
        client.post("/api/catalog", json={"playbook": never}).raise_for_status()
    page.goto(f"{furnished.url}/playbook/mine/never?tab=stats")
    expect(page.get_by_text("No runs yet")).to_be_visible()
    expect(page.get_by_text(f"arclog run mine/never --server {furnished.url}")).to_be_visible()
    # As if it were much later: all runs are older than the period.
    later = re.compile(r"since=\d{4}")
    page.route("**/api/stats?*since=*", lambda route: route.continue_(url=later.sub("since=2999", route.request.url)))
    page.goto(f"{furnished.url}/playbook/shop/import-orders?tab=stats&period=7d")
    expect(page.get_by_text("No runs in the last 7 days")).to_be_visible()
    page.get_by_role("button", name="Show all time").click()
    expect(page.get_by_role("table", name="Steps of these runs")).to_be_visible()


def test_versions_have_no_empty_box_on_a_phone(new_page: Callable[..., Page], furnished: Furnished) -> None:
    lines = ",\n".join(f'      "line {n}"' for n in range(60))
    first = stage.HELLO.replace("examples/hello", "mine/small")
    second = first.replace('data: "{{ start.text }}"', f"data: [\n{lines}]")
    assert first != second
    with furnished.server.client() as client:
        for text in (first, second):
            client.post("/api/catalog", json={"playbook": text}).raise_for_status()
    page = new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{furnished.url}/playbook/mine/small?tab=versions")
    versions = page.get_by_role("region", name="Versions")
    expect(versions.get_by_role("listitem")).to_have_count(2)
    assert _height(versions) < 120  # two lines, and no space below them
    # However long the text of the changes is, the graph is there.
    graph = page.get_by_role("group", name="Graph of what changed from v1 to v2")
    expect(graph.get_by_text("end", exact=True)).to_be_visible()
    assert _height(graph) > 150
    expect(page.get_by_role("group", name="Changes from v1 to v2")).to_contain_text("line 59")
    page.goto(f"{furnished.url}/playbook/mine/small?tab=versions&version=1")
    expect(page.get_by_text("This is the first version.")).to_be_visible()
    assert _height(page.get_by_role("region", name="Changes")) < 80


def _height(part: Locator) -> float:
    box = part.bounding_box()
    assert box is not None
    return box["height"]


def test_a_value_that_is_no_json_is_said(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/playbook/shop/import-orders?run=true")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("count").fill("many")
    expect(dialog.get_by_text("Write a number.")).to_be_visible()
    dialog.get_by_role("button", name="Start").click()
    expect(page).to_have_url(re.compile("/playbook/"))  # nothing was started


GREET = """\
metadata: {name: greet, path: mine/greet}
executor:
  spec:
    inputs:
      region: {type: string, required: true, enum: [north, south], description: Where the order goes.}
      limit: {type: integer, default: 10}
      token: {type: secret, required: true}
workflow:
  - step: start
    tool: {kind: shell, command: 'test "$TOKEN" = open-sesame-42', env: {TOKEN: "{{ keychain.token.value }}"}}
"""


def test_a_form_has_a_field_for_each_declared_input_and_keeps_secrets_out_of_sight(
    page: Page, furnished: Furnished
) -> None:
    with furnished.server.client() as client:
        client.post("/api/catalog", json={"playbook": GREET}).raise_for_status()
    page.goto(f"{furnished.url}/playbook/mine/greet?run=true")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Where the order goes.")).to_be_visible()
    token = dialog.get_by_label("token (required)")
    expect(token).to_have_attribute("type", "password")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog.get_by_text("A value is needed.")).to_have_count(2)
    dialog.get_by_label("region").select_option("south")
    token.fill("open-sesame-42")
    expect(dialog.get_by_text("--set 'token=…'")).to_be_visible()
    assert "sesame" not in page.url + dialog.inner_text()
    dialog.get_by_role("button", name="Start").click()
    expect(page).to_have_url(re.compile(r"/runs/\d+"))
    expect(page.locator("header").get_by_text("completed")).to_be_visible()
    kept = page.evaluate("() => JSON.stringify([{...localStorage}, {...sessionStorage}, history.state, location.href])")
    assert "sesame" not in kept


def test_two_runs_are_compared(page: Page, furnished: Furnished) -> None:
    made = furnished.made
    page.goto(f"{furnished.url}/runs/compare?b={made['orders']}")
    page.get_by_role("link", name=re.compile(r"\d{15,}")).first.click()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    good = furnished.server.run(stage.ORDERS, fail=False)
    page.goto(f"{furnished.url}/runs/compare?a={good}&b={made['orders']}")
    # What they were asked for differs already: that is the cause.
    expect(page.get_by_text(re.compile("First difference: the start"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^load done"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(r"^workload\.fail"))).to_contain_text("true")
