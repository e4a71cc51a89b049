"""Recorded runs in the console: replayed, simulated, traced, carried elsewhere, and gone on with by another playbook."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import stage
from tests.browser.conftest import Furnished
from tests.servers.web import Web

pytestmark = pytest.mark.xdist_group("browser-1")

#: A number from outside, doubled on its way to the result; above a limit it takes andifferent path.
PRICE = """\
metadata: {{name: price, path: shop/price}}
workload: {{url: "{url}"}}
executor: {{spec: {{result: {{total: "{{{{ ctx.total }}}}"}}}}}}
workflow:
  - step: fetch
    tool:
      name: ask
      kind: http
      url: "{{{{ workload.url }}}}"
      spec:
        policy:
          rules:
            - else: {{then: {{do: continue, set_ctx: {{total: "{{{{ outcome.data.price * 2 }}}}"}}}}}}
    next: {{arcs: [{{step: dear, when: "{{{{ ctx.total > {limit} }}}}"}}, {{step: cheap}}]}}
  - step: dear
    tool: {{kind: noop}}
  - step: cheap
    tool: {{kind: noop}}
"""
BATCH = """\
metadata: {name: batch, path: shop/batch}
workflow:
  - step: each
    loop: {in: "{{ range(20) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 20}}
    tool:
      name: take
      kind: noop
      data: "{{ iter.n }}"
      spec:
        policy:
          rules:
            - when: "{{ iter.n >= 17 }}"
              then: {do: fail, message: "order {{ iter.n }} has no total"}
            - else: {then: {do: continue}}
"""
SUM = """\
  - step: sum
    tool: {kind: noop, data: "{{ each.results | sum }}"}
"""


@pytest.fixture
def priced(furnished: Furnished) -> tuple[str, str]:
    """A run whose result came from an HTTP response, and the text of its playbook."""
    with Web() as web:
        web.answers("/price", body=b'{"price": 21}', headers={"content-type": "application/json"})
        playbook = PRICE.format(url=web.url("/price"), limit=100)
        return furnished.server.run(playbook), playbook


def test_a_value_is_followed_to_the_response_it_came_from(
    page: Page, furnished: Furnished, priced: tuple[str, str]
) -> None:
    execution_id, _ = priced
    page.goto(f"{furnished.url}/runs/{execution_id}?tab=data")
    page.get_by_role("tabpanel").get_by_role("button", name="Where does result.total come from?").click()
    expect(page).to_have_url(re.compile(r"tab=lineage.*value=result\.total"))
    tree = page.get_by_role("list", name="Where result.total comes from")
    expect(tree.get_by_text("{{ outcome.data.price * 2 }}")).to_be_visible()
    expect(tree.get_by_text(re.compile(r"url: http://127\.0\.0\.1:\d+/price"))).to_be_visible()
    # The chain leads to events and to the author's lines, and the address to the chain.
    page.reload()
    tree.get_by_role("link", name=re.compile(r"^event \d+")).last.click()
    expect(page).to_have_url(re.compile(r"seq=\d+"))
    tree.get_by_role("link", name=re.compile(r"line \d+|:\d+$")).first.click()
    expect(page.get_by_label("Source of the playbook").locator("[data-target=true]")).to_be_visible()
    page.get_by_role("tab", name="Lineage").click()
    data = page.get_by_role("table", name="Datasets read and written")
    expect(data.get_by_role("row").filter(has_text="/price")).to_contain_text("fetch")
    page.get_by_role("textbox", name="Value").fill("nothing.of.it")
    page.get_by_role("button", name="Trace").click()
    expect(page.get_by_role("region", name="Trace a value").get_by_role("alert")).to_contain_text("has no value")


def test_the_items_of_a_loop_are_named_where_a_value_comes_from(page: Page, furnished: Furnished) -> None:
    many = BATCH.replace("shop/batch", "mine/many").replace("range(20)", "range(120)").replace(">= 17", ">= 999")
    execution_id = furnished.server.run(many + "    next: {arcs: [{step: sum}]}\n" + SUM)
    page.goto(f"{furnished.url}/runs/{execution_id}?tab=lineage&value=result")
    tree = page.get_by_role("list", name="Where result comes from")
    expect(tree.get_by_text("item 7", exact=True).first).to_be_visible()
    expect(tree.get_by_text("item 60", exact=True)).to_have_count(0)  # a page of thousands of links would be slow
    tree.get_by_role("button", name="… 70 more").click()
    expect(tree.get_by_text("item 119", exact=True).first).to_be_visible()


def test_a_changed_condition_is_simulated_on_recorded_runs(
    page: Page, furnished: Furnished, priced: tuple[str, str]
) -> None:
    execution_id, playbook = priced
    page.goto(f"{furnished.url}/playbook/shop/price")
    page.get_by_role("textbox", name="Playbook source").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")  # Chromium styles what replaces a selection, which the page's policy refuses
    page.keyboard.insert_text(playbook.replace("ctx.total > 100", "ctx.total > 40"))
    expect(page.get_by_text("No problems found.")).to_be_visible()
    page.get_by_role("link", name="Simulate").click()
    page.get_by_role("button", name="Simulate", exact=True).click()
    row = page.get_by_role("table", name="Runs with a different outcome").get_by_role("row", name=execution_id)
    expect(row).to_contain_text("different path")
    expect(row).to_contain_text("after step fetch the run went to cheap; it would go to dear")
    page.get_by_role("link", name="Editor").click()  # what was typed is still there
    expect(page.get_by_role("textbox", name="Playbook source")).to_contain_text("ctx.total > 40")
    page.get_by_role("link", name="Simulate").click()
    page.get_by_label("Playbook to simulate").select_option("v1")
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.get_by_text(re.compile(r"would take the same path to the same result"))).to_be_visible()
    page.goto(f"{furnished.url}/runs/{execution_id}?tab=history")
    page.get_by_role("button", name="Simulate", exact=True).click()
    expect(page.get_by_text("1 run would take the same path to the same result.")).to_be_visible()


def _altered(name: str, body: bytes) -> bytes:
    """A log as if another release had decided otherwise."""
    if name != "log.jsonl":
        return body
    assert b'"mode":"exclusive"' in body
    return body.replace(b'"mode":"exclusive"', b'"mode":"inclusive"')


def test_a_run_is_exported_and_imported_elsewhere_and_replayed(
    page: Page, new_page: Callable[..., Page], furnished: Furnished, tmp_path: Path
) -> None:
    execution_id = furnished.made["import"]
    page.goto(f"{furnished.url}/runs/{execution_id}?tab=history")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("The log replays without differences.")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    assert download.value.suggested_filename == f"{execution_id}.arclog"
    exported = Path(download.value.path()).read_bytes()
    (tmp_path / "other.arclog").write_bytes(stage.rewritten(exported, _altered))
    (tmp_path / "damaged.arclog").write_bytes(exported[:-200])
    with stage.server(tmp_path / "home") as elsewhere:
        other = new_page()
        other.goto(f"{elsewhere.url}/runs")
        other.get_by_role("button", name="Import").click()
        dialog = other.get_by_role("dialog")
        dialog.get_by_label("Exported file").set_input_files(tmp_path / "damaged.arclog")
        dialog.get_by_role("button", name="Import", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("this is not an exported run, or the file was cut off")
        dialog.get_by_label("Exported file").set_input_files(tmp_path / "other.arclog")
        expect(dialog.get_by_text("arclog import other.arclog")).to_be_visible()
        expect(dialog.get_by_role("alert")).to_have_count(0)  # that was about the other file
        dialog.get_by_role("button", name="Import", exact=True).click()
        expect(other).to_have_url(re.compile(f"/runs/{execution_id}"))
        expect(other.get_by_text("imported, read-only")).to_be_visible()
        expect(other.get_by_text("fetch → item 3 → task get")).to_be_visible()  # all views are there
        other.get_by_role("button", name="Run again").click(force=True)  # it cannot be used, and says why
        expect(other.get_by_text("This run was imported and is read-only here")).to_be_visible()
        other.get_by_role("tab", name="History").click()
        other.get_by_role("button", name="Replay", exact=True).click()
        expect(other.get_by_text(re.compile("First difference at event"))).to_be_visible()
        expect(other.get_by_label("Recorded event")).to_contain_text("inclusive")
        expect(other.get_by_label("Event decided now")).to_contain_text("exclusive")
        other.goto(f"{elsewhere.url}/runs")
        expect(other.get_by_role("row").filter(has_text="import-orders")).to_contain_text("imported, read-only")
        other.goto(elsewhere.url)  # it failed elsewhere: nobody has to look after it here
        expect(other.get_by_text("No failing playbooks, stuck runs or pending approvals.")).to_be_visible()
        # After an upgrade all runs are checked at once.
        elsewhere.run(stage.HELLO)
        other.goto(f"{elsewhere.url}/settings")
        check = other.get_by_role("region", name="Replay recorded runs")
        check.get_by_role("button", name="Replay", exact=True).click()
        expect(check.get_by_text("1 run would be decided differently.")).to_be_visible()
        expect(check.get_by_text(re.compile(r"^2 runs and \d+ events checked$"))).to_be_visible()
        check.get_by_label("Runs to replay").select_option("All runs")
        check.get_by_role("button", name="Show as CLI").click()
        expect(other.get_by_text("arclog replay --all --server")).to_be_visible()
        other.keyboard.press("Escape")
        check.get_by_role("list", name="Runs that differ").get_by_role("link").click()
        expect(other).to_have_url(re.compile(rf"/runs/{execution_id}\?.*tab=history"))


def test_what_failed_is_retried_with_a_changed_playbook(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(BATCH)
    page.goto(f"{furnished.url}/runs/{execution_id}")
    page.get_by_role("button", name="Retry failed").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Playbook of the new run").select_option("Edited text …")
    text = dialog.get_by_role("textbox", name="Playbook source")
    expect(text).to_contain_text("iter.n >= 17")
    text.click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(BATCH.replace("iter.n >= 17", "iter.n >= 99"))
    expect(dialog.get_by_text("No problems found.")).to_be_visible()
    expect(dialog.get_by_text(f"arclog retry {execution_id} --failed --playbook changed.yaml")).to_be_visible()
    dialog.get_by_role("button", name="Retry failed").click()
    expect(page.locator("header").get_by_text("completed")).to_be_visible()
    expect(page.get_by_text("Retry of")).to_be_visible()
    expect(page.get_by_label(re.compile(r"^Step each, done, 20 ✓"))).to_be_visible()
    # Three items ran, seventeen were kept, and the page says so; the comparison says where the runs part.
    facts = page.locator("header dl")
    expect(facts.locator("div").filter(has_text="Kept from it")).to_contain_text("17 items")
    expect(facts.locator("div").filter(has_text="Ran here")).to_contain_text("3 items")
    page.get_by_role("tab", name="Items").click()
    expect(page.get_by_text("20 items: 17 kept, 3 ran here")).to_be_visible()
    expect(page.get_by_role("table", name="Items").get_by_role("row").nth(3)).to_contain_text("ran here")
    kept = re.search(r"/runs/(\d+)", page.url)
    assert kept is not None
    with furnished.server.client() as client:
        params = {"type": "task.started"}
        tasks = client.get(f"/api/executions/{kept.group(1)}/events", params=params).json()["events"]
        origin = client.get(f"/api/executions/{kept.group(1)}").json()["origin"]
    assert sum(event["seq"] > origin["events"] for event in tasks) == 3
    page.goto(f"{furnished.url}/runs/compare?a={execution_id}&b={kept.group(1)}")
    expect(page.get_by_text(re.compile("First difference: each"))).to_be_visible()
    expect(page.get_by_role("region", name="Playbook changes")).to_contain_text("step changed: each")
    # The list says of which run it is a retry, and the old run leads to those that were made from it.
    page.goto(f"{furnished.url}/runs/{execution_id}")
    made = page.locator("header dl").locator("div").filter(has_text="Retries and forks")
    made.get_by_role("link", name="1").click()
    expect(page).to_have_url(re.compile(rf"/runs\?origin=.*{execution_id}"))
    expect(page.get_by_text(f"Retries and forks of {execution_id}")).to_be_visible()
    table = page.get_by_role("table", name="Runs")
    expect(table.get_by_role("row")).to_have_count(2)
    mark = table.get_by_role("link", name=f"retry of {execution_id}")
    expect(mark).to_have_text("retry")
    mark.click()
    expect(page).to_have_url(re.compile(rf"/runs/{execution_id}\?seq={origin['seq']}"))


def test_a_fork_takes_changed_values_and_renamed_steps(page: Page, furnished: Furnished) -> None:
    execution_id = furnished.server.run(stage.HELLO)
    with furnished.server.client() as client:
        params = {"type": "step.scheduled"}
        scheduled = client.get(f"/api/executions/{execution_id}/events", params=params).json()["events"]
    page.goto(f"{furnished.url}/runs/{execution_id}?seq={scheduled[-1]['seq']}")
    page.get_by_role("button", name="Fork after event").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Playbook of the new run").select_option("Edited text …")
    expect(dialog.get_by_role("textbox", name="Playbook source")).to_contain_text("step: end")
    dialog.get_by_role("textbox", name="Playbook source").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(stage.HELLO.replace("step: end", "step: finish").replace("examples/", "mine/"))
    expect(dialog.get_by_text("No problems found.")).to_be_visible()
    fork = dialog.get_by_role("button", name="Fork after event")
    fork.click()
    expect(dialog.get_by_role("alert")).to_contain_text("end")  # the recorded state has no place for it
    dialog.get_by_text("Change workload values or step names").click()
    values = dialog.get_by_label("Workload values, one PATH=VALUE per line")
    values.fill("name")
    expect(dialog.get_by_text('"name" is not PATH=VALUE, as in limit=100')).to_be_visible()
    expect(fork).to_be_disabled()
    values.fill("name=Ada")
    dialog.get_by_label("Renamed steps, one OLD=NEW per line").fill("end=finish")
    expect(dialog.get_by_text("--set name=Ada --map end=finish")).to_be_visible()
    fork.click()
    expect(page.locator("header").get_by_text("completed")).to_be_visible()
    expect(page.get_by_text("Fork of")).to_be_visible()
    expect(page.get_by_label(re.compile("^Step finish, done"))).to_be_visible()
    page.get_by_role("tab", name="Data").click()
    expect(page.get_by_role("group", name="Workload")).to_contain_text("Ada")


def test_runs_that_differ_in_one_item_alone_are_compared(page: Page, furnished: Furnished) -> None:
    some = BATCH.replace("shop/batch", "mine/batch") + "    spec: {policy: {failure: {mode: best_effort}}}\n"
    failed = furnished.server.run(some)
    good = furnished.server.run(some.replace("iter.n >= 17", "iter.n >= 99"))
    page.goto(f"{furnished.url}/runs/compare?a={failed}&b={good}")
    expect(
        page.get_by_text("First difference: each: item 17 of step each failed in the first run only")
    ).to_be_visible()
    # Such a run has completed; what failed in it can be retried.
    page.goto(f"{furnished.url}/runs/{failed}")
    expect(page.get_by_text("step each: 17 ok, 3 failed")).to_be_visible()
    expect(page.get_by_role("button", name="Retry failed")).to_be_visible()


def test_an_event_that_does_not_exist_is_said_and_cannot_be_forked(
    new_page: Callable[..., Page], furnished: Furnished
) -> None:
    page = new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{furnished.url}/runs/{furnished.made['hello']}?seq=999999&tab=history")
    expect(page.get_by_text("This run has no event 999,999")).to_be_visible()
    expect(page.get_by_role("button", name="Fork after")).to_have_count(0)
    # A link to a tab leads to it, also where it is below everything else, and so does the banner of a failed run.
    expect(page.get_by_role("heading", name="Replay")).to_be_in_viewport()
    page.goto(f"{furnished.url}/runs/{furnished.made['import']}")
    page.get_by_role("button", name="Show event", exact=True).click()
    expect(page.get_by_role("tab", name="Events")).to_be_in_viewport()
    expect(page.get_by_role("row").filter(has_text="task.failed").first).to_be_in_viewport()


def test_events_of_all_runs_are_searched(page: Page, furnished: Furnished) -> None:
    page.goto(f"{furnished.url}/runs")
    page.get_by_role("link", name="Search events").click()
    page.get_by_label("Event types").fill("task.failed")
    page.get_by_label("Condition").fill("status == 'error'")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page).to_have_url(re.compile(r"/runs/events\?type=task.failed&where="))
    table = page.get_by_role("table", name="Events")
    failed = table.get_by_role("row").filter(has_text="order 3 has no total").first
    expect(failed).to_contain_text("fetch · item 3 · get")
    page.get_by_role("button", name="Show as CLI").click()
    expect(page.get_by_text(re.compile(r"arclog events --type task.failed --since .* --where"))).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_label("Condition").fill("1 +")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("1 +")
    page.get_by_label("Condition").fill("")
    page.get_by_role("button", name="Search", exact=True).click()
    failed.get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"/runs/\d+\?.*seq=\d+"))
