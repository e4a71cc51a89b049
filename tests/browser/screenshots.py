"""Pictures of every view, in both themes, wide and narrow: `./x ui screenshots [FOLDER] [NAME …]`.

They are for people who look at them: nothing is compared. `./x ui screenshots --docs` takes those in docs/images anew.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser import chromium, stage

SIZES = {"1280": (1280, 800), "390": (390, 844)}
THEMES = ("light", "dark")
#: Pictures in the documentation: view, width, height, theme.
DOCS = {
    "console-run": ("run-loop", 1280, 800, "light"),
    "console-time": ("run-time", 1280, 800, "dark"),
    "console-playbook": ("playbook", 1280, 640, "light"),
    "console-phone": ("home", 390, 700, "dark"),
}


def _settled(page: Page) -> None:
    page.locator("main").wait_for()
    page.wait_for_load_state("networkidle") if "/runs/" not in page.url else page.wait_for_timeout(800)
    expect(page.locator("[aria-label=Loading]")).to_have_count(0)
    page.wait_for_timeout(400)  # transitions, and what comes a moment later


def views(made: dict[str, str]) -> dict[str, str]:
    """Address by name."""
    return {
        "home": "/",
        "runs": "/runs",
        "runs-failed": "/runs?state=FAILED",
        "runs-none": "/runs?q=no such run",
        "runs-events": "/runs/events?entity=task&where=status == 'error'",
        "run-failed": f"/runs/{made['orders']}",
        "run-waiting": f"/runs/{made['ship']}",
        "run-signal": f"/runs/{made['wait']}",
        "run-evil": f"/runs/{made.get('evil', '')}",
        "run-loop": f"/runs/{made['import']}",
        "run-time": f"/runs/{made['import']}?seq=30&from=5&tab=data",
        "run-items": f"/runs/{made['import']}?step=fetch&tab=items",
        "run-logs": f"/runs/{made['import']}?tab=logs",
        "run-source": f"/runs/{made['import']}?step=fetch&tab=source",
        "run-calls": f"/runs/{made['parent']}?tab=children",
        "run-lineage": f"/runs/{made['import']}?tab=lineage&value=ctx.counted",
        "run-history": f"/runs/{made['import']}?tab=history",
        "compare": f"/runs/compare?a={made['good']}&b={made['orders']}",
        "playbooks": "/playbooks",
        "playbook": "/playbook/shop/import-orders?step=fetch",
        "playbook-versions": "/playbook/shop/import-orders?tab=versions",
        "playbook-stats": "/playbook/shop/nightly-orders?tab=stats",
        "playbook-run": "/playbook/shop/import-orders?run=true",
        "playbook-simulate": "/playbook/shop/import-orders?tab=simulate",
        "approvals": "/approvals",
        "schedules": "/schedules",
        "work": "/work",
        "settings": "/settings",
        "settings-credentials": "/settings?tab=credentials",
        "settings-audit": "/settings?tab=audit",
        "settings-keys": "/settings?tab=keys",
        "settings-all": "/settings?tab=settings",
        "not-found": "/nowhere",
    }


def taken(browser: Browser, server: stage.Server, made: dict[str, str], folder: Path, wanted: set[str]) -> None:
    for theme in THEMES:
        for size, (width, height) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
                device_scale_factor=1,
                has_touch=size == "390",
            )
            page = context.new_page()

            def shot(name: str, page: Page = page, theme: str = theme, size: str = size) -> None:
                _settled(page)
                page.screenshot(path=folder / f"{name}-{size}-{theme}.png")

            for name, path in views(made).items():
                if wanted and name not in wanted:
                    continue
                page.goto(server.url + path)
                shot(name)
            if not wanted or "selected" in wanted:
                page.goto(f"{server.url}/runs")
                for n in range(2):
                    page.get_by_role("checkbox", name="Select ").nth(n).check()
                shot("runs-selected")
                page.get_by_role("button", name="Cancel", exact=True).last.click()
                shot("runs-cancel")
            if not wanted or "history" in wanted:
                page.goto(f"{server.url}/runs/{made['import']}?tab=history")
                page.get_by_role("button", name="Replay", exact=True).click()
                page.get_by_role("button", name="Simulate", exact=True).click()
                shot("run-replayed")
                page.get_by_role("button", name="Retry failed").click()
                page.get_by_label("Playbook of the new run").select_option("Edited text …")
                shot("run-retry")
            if not wanted or "palette" in wanted:
                page.goto(f"{server.url}/")
                _settled(page)
                page.keyboard.press("ControlOrMeta+k")
                page.get_by_role("combobox", name="Search pages").fill("or")
                shot("palette")
                page.keyboard.press("Escape")
                page.keyboard.press("?")
                shot("keys")
            context.close()


def for_docs(browser: Browser, server: stage.Server, made: dict[str, str], folder: Path) -> None:
    for name, (view, width, height, theme) in DOCS.items():
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if theme == "dark" else "light"
        )
        page = context.new_page()
        page.goto(server.url + views(made)[view])
        _settled(page)
        page.screenshot(path=folder / f"{name}.png")
        context.close()


def signed_out(browser: Browser, server: stage.Server, folder: Path) -> None:
    for theme in THEMES:
        for size, (width, height) in SIZES.items():
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme="dark" if theme == "dark" else "light"
            )
            page = context.new_page()
            page.goto(server.url)
            _settled(page)
            page.screenshot(path=folder / f"sign-in-{size}-{theme}.png")
            context.close()


def main(argv: list[str]) -> int:
    docs = argv[:1] == ["--docs"]
    folder = Path("docs/images" if docs else argv[0] if argv else "ui/screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set(argv[1:])
    with tempfile.TemporaryDirectory() as home, chromium.running() as browser:
        with stage.server(Path(home) / "furnished") as server:
            made = stage.furnish(server, completed=30, markup=not docs)
            if docs:
                for_docs(browser, server, made, folder)
                return 0
            taken(browser, server, made, folder, wanted)
        if not wanted or "empty" in wanted:
            with stage.server(Path(home) / "empty") as server:
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                page.goto(server.url)
                _settled(page)
                page.screenshot(path=folder / "home-empty-1280-light.png")
        if not wanted or "sign-in" in wanted:
            with stage.server(Path(home) / "closed", **{"auth.mode": "required"}) as server:
                signed_out(browser, server, folder)
    print(f"pictures are in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
