"""Accessibility by axe-core, in both themes, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.conftest import Furnished

#: What axe looks for in the light theme.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
#: What another theme can change.
COLOURS = ["color-contrast"]
#: What stands around every view is looked at once; of a run, the parts that every tab has as well.
VIEW, TAB = "main", "[aria-label='Run details']"
#: Rows of long tables and lists are all made alike: the first ones are looked at.
ALIKE = [["tr:nth-child(n+10)"], ["li:nth-child(n+12)"], ["[role=row]:nth-child(n+10)"]]
AXE = """([part, alike, only]) => axe.run(
  { include: part ? [[part]] : document, exclude: alike },
  { runOnly: only, resultTypes: ['violations'], preload: false },
)"""


def problems_of(page: Page, axe_source: str, part: str = "") -> list[str]:
    """What axe finds wrong with a page, or with a part of it, in both themes."""
    page.locator("h1, h2").first.wait_for(state="attached")
    expect(page.locator("[aria-label=Loading]")).to_have_count(0)
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(axe_source)
    problems: list[str] = []
    for theme, only in (("light", {"type": "tag", "values": TAGS}), ("dark", {"type": "rule", "values": COLOURS})):
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        value = page.evaluate(AXE, [part, ALIKE, only])
        problems += [
            f"{theme}: {rule['id']} ({rule['impact']}): {node['target']} {node['failureSummary']}"
            for rule in value["violations"]
            for node in rule["nodes"][:3]
        ]
    page.emulate_media(color_scheme="light")
    return problems


#: Address, and the part of it that no other has.
VIEWS = {
    "/": "",
    "/runs": VIEW,
    "/playbooks": VIEW,
    "/playbook/shop/import-orders": VIEW,
    "/playbook/shop/import-orders?tab=versions": VIEW,
    "/playbook/shop/import-orders?tab=stats": VIEW,
    "/playbook/shop/import-orders?tab=simulate": VIEW,
    "/playbook/shop/import-orders?run=true": "dialog",
    "/approvals": VIEW,
    "/schedules": VIEW,
    "/work": VIEW,
    "/settings": VIEW,
    "/settings?tab=credentials": VIEW,
    "/settings?tab=keys": VIEW,
    "/settings?tab=audit": VIEW,
    "/settings?tab=settings": VIEW,
    "/nowhere": VIEW,
}


def views_of_runs(made: dict[str, str]) -> dict[str, str]:
    return {
        f"/runs/{made['import']}?seq=30&tab=data&from=5": "",
        f"/runs/{made['import']}?step=fetch&tab=items": TAB,
        f"/runs/{made['import']}?step=fetch&tab=source": TAB,
        f"/runs/{made['import']}?tab=logs": TAB,
        f"/runs/{made['import']}?tab=lineage&value=ctx.counted": TAB,
        f"/runs/{made['import']}?tab=history": TAB,
        f"/runs/{made['ship']}": VIEW,
        f"/runs/{made['parent']}?tab=children": TAB,
        f"/runs/compare?a={made['good']}&b={made['orders']}": VIEW,
        "/runs?q=none": VIEW,
        f"/runs/{made['evil']}": VIEW,
    }


WIDE: ViewportSize = {"width": 1280, "height": 844}
NARROW: ViewportSize = {"width": 390, "height": 844}
SIZES = pytest.mark.parametrize("size", [WIDE, pytest.param(NARROW, marks=pytest.mark.soak)], ids=["1280", "390"])
GO = """async (path) => {
  history.pushState({}, "", path);
  for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame);
}"""
OVERFLOW = """() => {
  const { scrollWidth, scrollHeight } = document.documentElement;
  const main = document.querySelector("main");
  return [
    ...(scrollWidth > innerWidth || scrollHeight > innerHeight ? [`the page takes ${scrollWidth} × ${scrollHeight}`] : []),
    ...(main.scrollWidth > main.clientWidth ? [`the view is ${main.scrollWidth} wide`] : []),
  ];
}"""


def checked(page: Page, furnished: Furnished, axe_source: str, views: dict[str, str]) -> dict[str, list[str]]:
    problems: dict[str, list[str]] = {}
    for path, part in views.items():
        if urlsplit(path).path == urlsplit(page.url).path:
            page.evaluate(GO, path)  # as a link does
        else:
            page.goto(furnished.url + path)
        page.locator("main").wait_for()
        if part:
            page.locator(part).wait_for()
        problems[path] = problems_of(page, axe_source, part)
        if page.viewport_size == WIDE:
            page.set_viewport_size(NARROW)
            problems[path] += overflow_of(page)
            page.set_viewport_size(WIDE)
    return problems


def overflow_of(page: Page) -> list[str]:
    """What does not fit on the screen."""
    page.locator("main").wait_for()
    expect(page.locator("[aria-label=Loading]")).to_have_count(0)
    value: list[str] = page.evaluate(OVERFLOW)
    return value


@SIZES
@pytest.mark.xdist_group("browser-2")
def test_every_view_of_runs(
    new_page: Callable[..., Page], furnished: Furnished, axe_source: str, size: ViewportSize
) -> None:
    page = new_page(viewport=size, reduced_motion="reduce", bypass_csp=True)
    problems = checked(page, furnished, axe_source, views_of_runs(furnished.made))
    assert not any(problems.values()), {path: violations for path, violations in problems.items() if violations}


@SIZES
@pytest.mark.xdist_group("browser-1")
def test_every_other_view(
    new_page: Callable[..., Page], furnished: Furnished, axe_source: str, size: ViewportSize
) -> None:
    page = new_page(viewport=size, reduced_motion="reduce", bypass_csp=True)
    problems = checked(page, furnished, axe_source, VIEWS)
    page.goto(f"{furnished.url}/runs")
    page.get_by_role("button", name="Import").click()
    problems["import"] = problems_of(page, axe_source, "dialog")
    page.keyboard.press("Escape")
    page.get_by_role("checkbox", name="Select ").first.check()
    page.get_by_role("toolbar").get_by_role("button", name="Run again").click()
    problems["dialog"] = problems_of(page, axe_source, "dialog")
    page.keyboard.press("Escape")
    page.keyboard.press("ControlOrMeta+k")
    problems["palette"] = problems_of(page, axe_source, "dialog")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("all shortcuts").wait_for()
    problems["keys"] = problems_of(page, axe_source, "dialog")
    assert not any(problems.values()), {path: violations for path, violations in problems.items() if violations}


@pytest.mark.soak  # the tests above do it for pages that become narrow; here they are opened so
@pytest.mark.xdist_group("browser-2")
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
def test_nothing_is_wider_than_the_screen(
    new_page: Callable[..., Page], furnished: Furnished, size: ViewportSize
) -> None:
    page = new_page(viewport=size)
    for path in (*VIEWS, *views_of_runs(furnished.made)):
        page.goto(furnished.url + path)
        assert overflow_of(page) == [], path
