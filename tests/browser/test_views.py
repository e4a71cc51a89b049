"""Panels of a run's page: the graph of many steps, the chart of times, the list of events, and what a run came to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import stage
from tests.browser.conftest import Furnished

pytestmark = pytest.mark.xdist_group("browser-2")

SHARDS = 40
#: Many steps between the same two.
FAN_OUT = json.dumps(
    {
        "metadata": {"name": "fan-out", "path": "load/fan-out"},
        "workflow": [
            {
                "step": "start",
                "tool": {"kind": "noop"},
                "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": f"shard_{n:02}"} for n in range(SHARDS)]},
            },
            *(
                {"step": f"shard_{n:02}", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": "gather"}]}}
                for n in range(SHARDS)
            ),
            {"step": "gather", "spec": {"join": "all"}, "tool": {"kind": "noop"}},
        ],
    }
)
#: A step that leads to itself, and to the one before it.
CYCLE = """\
metadata: {name: cycle, path: load/cycle}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: poll, args: {n: 1}}]}
  - step: poll
    tool: {kind: noop}
    next: {arcs: [{step: poll, when: "{{ args.n < 3 }}", args: {n: "{{ args.n + 1 }}"}}, {step: done}]}
  - step: done
    tool: {kind: noop}
"""


def test_many_steps_between_the_same_two_are_one_node(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(FAN_OUT)
    page.goto(f"{furnished.url}/runs/{execution_id}")
    graph = page.get_by_role("group", name="Graph of the run")
    group = graph.get_by_label(f"shard_00 … shard_39, {SHARDS} steps · {SHARDS} ✓")
    expect(group).to_be_visible()
    expect(graph.locator(".react-flow__node")).to_have_count(3)
    expect(graph.locator(".react-flow__edge")).to_have_count(2)
    # The squares are steps: one is selected by a click, by its name, or elsewhere on the page.
    graph.locator("rect[data-step=shard_07]").click()
    expect(page).to_have_url(re.compile("step=shard_07"))
    graph.get_by_label("Find a step").fill("shard_1")
    expect(graph.get_by_role("status")).to_have_text("10")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("step=shard_11"))
    expect(graph.get_by_role("status")).to_have_text("2 of 10")
    expect(graph.locator("rect[data-chosen]")).to_have_attribute("data-step", "shard_11")
    group.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("step=shard_00"))
    # The past of a group is that of its steps.
    page.goto(f"{furnished.url}/runs/{execution_id}?seq=5")
    expect(graph.get_by_label(f"shard_00 … shard_39, {SHARDS} steps", exact=True)).to_be_visible()


def test_an_arc_that_leads_back_is_drawn_above_its_steps(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(CYCLE)
    page.goto(f"{furnished.url}/runs/{execution_id}")
    graph = page.get_by_role("group", name="Graph of the run")
    poll = graph.get_by_label("Step poll, done, 3 times")
    expect(poll).to_be_visible()
    arcs = graph.locator(".react-flow__edge-path")
    expect(arcs).to_have_count(3)
    node = poll.bounding_box()
    boxes = [arc.bounding_box() for arc in arcs.all()]
    assert node is not None
    assert sum(box is not None and box["y"] < node["y"] for box in boxes) == 1, boxes


def test_events_are_found_narrowed_by_time_and_downloaded(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.made["import"]
    page.goto(f"{furnished.url}/runs/{execution_id}")
    events = page.get_by_role("table", name="Events")
    # The list opens where the run failed.
    expect(events.locator("[data-chosen]")).to_contain_text("loop.iteration.failed")
    expect(events.locator("[data-chosen]")).to_be_in_viewport()
    page.get_by_label("Find events").fill("attempt.failed")
    expect(page).to_have_url(re.compile("find=attempt.failed"))
    expect(events.get_by_role("row")).to_have_count(3)  # the head, and two attempts
    page.get_by_role("button", name="Clear search").click()
    page.get_by_role("button", name="Compact").click()
    expect(events.get_by_role("cell", name="command.issued")).to_have_count(0)
    expect(events.get_by_role("cell", name="playbook.started")).to_have_count(1)
    page.get_by_role("button", name="Compact").click()
    # A drag over the chart keeps the events of that time.
    chart = page.get_by_role("group", name="Steps over time")
    box = chart.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] * 0.7, box["y"] + box["height"] - 12
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + box["width"] * 0.28, y, steps=4)  # to the events at its end
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"range=\d+-\d+"))
    expect(events.get_by_role("cell", name="playbook.started")).to_have_count(0)
    page.reload()
    expect(chart.get_by_test_id("range")).to_be_visible()
    page.get_by_role("button", name="Show events of all times").click()
    expect(page).not_to_have_url(re.compile("range="))
    with furnished.server.client() as client:
        head = client.get(f"/api/executions/{execution_id}/head").json()["head"]
    with page.expect_download() as download:
        page.get_by_role("button", name="Download events").click()
    assert download.value.suggested_filename == f"{execution_id}.jsonl"
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, head + 1))


def test_events_are_shown_with_the_names_of_a_dialect(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['import']}?seq=3")
    details = page.get_by_role("complementary", name="Details of the selection")
    expect(details.get_by_text("playbook.started").first).to_be_visible()
    page.get_by_label("Names of events").select_option("wire")
    expect(page).to_have_url(re.compile("dialect=wire"))
    expect(details.get_by_text("playbook.initialized").first).to_be_visible()
    page.get_by_role("tabpanel").get_by_role("button", name="Show as CLI, curl or Python").click()
    expect(page.get_by_text(f"arclog events {furnished.made['import']} --dialect wire")).to_be_visible()


def test_the_chart_is_zoomed_with_keys_and_explains_what_it_shows(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['import']}")
    chart = page.get_by_role("region", name="Time", exact=True)
    expect(chart.get_by_text("back-off")).to_be_visible()
    expect(chart.get_by_text("child run")).to_have_count(0)  # it called none
    expect(chart.get_by_role("button", name="Zoom out")).to_be_disabled()
    page.keyboard.press("+")
    expect(chart.get_by_role("button", name="Zoom out")).to_be_enabled()
    page.keyboard.press("-")
    expect(chart.get_by_role("button", name="Zoom out")).to_be_disabled()


def test_a_completed_run_shows_its_result_and_its_schedule(page: Page, furnished: Furnished) -> None:
    due = {"name": "hello-nightly", "due": "2026-01-31T02:00:00Z"}
    execution_id = furnished.server.run(stage.HELLO, schedule=due)
    page.goto(f"{furnished.url}/runs/{execution_id}")
    details = page.get_by_role("complementary", name="Details of the selection")
    expect(details.get_by_role("heading", name="Result")).to_be_visible()
    expect(details).to_contain_text("hello world")
    expect(page.locator("header dl").get_by_role("link", name="hello-nightly")).to_be_visible()


def test_a_long_error_leaves_room_for_the_rest(page: Page, furnished: Furnished) -> None:
    text = "raise RuntimeError('no ' * 2000)"
    playbook = {
        "metadata": {"name": "long-error"},
        "workflow": [{"step": "a", "tool": {"kind": "python", "code": text}}],
    }
    execution_id = furnished.server.run(json.dumps(playbook))
    page.goto(f"{furnished.url}/runs/{execution_id}")
    banner = page.locator("[data-banner=failed]")
    expect(banner.get_by_role("button", name="Show all")).to_be_visible()
    short = banner.bounding_box()
    banner.get_by_role("button", name="Show all").click()
    expect(banner.get_by_role("button", name="Show less")).to_be_visible()
    long = banner.bounding_box()
    assert short is not None
    assert long is not None
    assert short["height"] < 200 < long["height"]


def test_items_are_ordered_and_show_how_they_ended(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['import']}?tab=items&step=fetch")
    items = page.get_by_role("table", name="Items")
    expect(items.get_by_role("row").nth(1)).to_contain_text("failed")
    page.get_by_label("Order of items").select_option("by number")
    expect(items.get_by_role("row").nth(1).get_by_role("cell").nth(1)).to_have_text("0")
    expect(items.get_by_role("row").nth(8).get_by_role("cell").nth(1)).to_have_text("7")
    page.get_by_label("Order of items").select_option("longest first")
    expect(items.get_by_role("row").nth(1)).to_contain_text("failed")  # it was tried twice
    # The moment at which an item failed: the loop still runs, the item does not.
    items.get_by_role("row").nth(1).click()
    title = page.get_by_role("complementary", name="Details of the selection").get_by_role("heading", name="fetch")
    expect(title).to_contain_text("item 3")
    expect(title).to_contain_text("failed")


def test_a_failure_is_compared_with_the_last_run_that_completed(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs/{furnished.made['orders']}")
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("link", name="Compare with the last run that completed").click()
    expect(page).to_have_url(re.compile(f"a={furnished.made['good']}&b={furnished.made['orders']}"))
    expect(page.get_by_text("workload.fail differs")).to_be_visible()
