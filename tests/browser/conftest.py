"""A browser and a furnished server for all tests of this folder, each once a process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

from tests.browser import chromium, stage

#: Longer than anything here takes, also on a machine that is busy with other things; a test that waits so long has failed.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


#: The first test of a process builds the console and fills a server: on a busy machine that takes longer than any test may.
FIRST_TEST_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.timeout(FIRST_TEST_S))


@pytest.fixture(scope="session")
def built() -> None:
    """The console, as it is in the sources now."""
    subprocess.run([chromium.ROOT / "x", "ui", "build"], check=True)


class Furnished:
    """A server with something of everything on it; tests that change it do so with runs of their own."""

    def __init__(self, server: stage.Server, made: dict[str, str]) -> None:
        self.server = server
        self.made = made
        self.url = server.url


class Shared:
    """What the tests of this folder share in a process, until a test of another folder comes: Playwright has a loop that runs in
    this thread, and asynchronous tests have one of their own.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._browser: Browser | None = None
        self._furnished: Furnished | None = None

    def browser(self) -> Browser:
        if self._browser is None:
            self._browser = self._open.enter_context(chromium.running())
        return self._browser

    def furnished(self, home: Path) -> Furnished:
        if self._furnished is None:
            server = self._open.enter_context(stage.server(home))
            self._furnished = Furnished(server, stage.furnish(server))
        return self._furnished

    def close(self) -> None:
        self._browser = self._furnished = None
        self._open.close()


SHARED = Shared()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.path.parent != item.path.parent:
        SHARED.close()


@pytest.fixture
def browser(built: None) -> Browser:
    return SHARED.browser()


@pytest.fixture
def furnished(built: None, tmp_path_factory: pytest.TempPathFactory) -> Furnished:
    return SHARED.furnished(tmp_path_factory.mktemp("furnished"))


class Watched:
    """What a page must never do: throw, break its policy, or speak to anybody but its server."""

    def __init__(self) -> None:
        self.troubles: list[str] = []
        #: texts of messages that a test brings about itself
        self.expected: list[str] = []

    def follow(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.troubles.append(f"thrown: {error}"))
        page.on("console", self._on_console)
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        # The browser itself tells of every answer that is not a success.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.troubles.append(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        host = urlsplit(request.url).hostname
        if host not in ("127.0.0.1", "localhost", None):
            self.troubles.append(f"request to {request.url}")

    def check(self) -> None:
        left = [trouble for trouble in self.troubles if not any(text in trouble for text in self.expected)]
        assert not left, left


@pytest.fixture
def watched() -> Iterator[Watched]:
    one = Watched()
    yield one
    one.check()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, watched: Watched) -> Page:
    page = context.new_page()
    watched.follow(page)
    return page


@pytest.fixture
def new_page(browser: Browser, watched: Watched) -> Iterator[Callable[..., Page]]:
    """A page in a context of its own, with options of the context."""
    contexts: list[BrowserContext] = []

    def make(**options: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})  # type: ignore[arg-type]  # as Playwright takes them
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        watched.follow(page)
        return page

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def axe_source() -> str:
    chromium.place()  # installs the packages of this folder, axe among them
    script = Path(__file__).parent / "node_modules/axe-core/axe.min.js"
    if not script.exists():
        subprocess.run([chromium.ROOT / "x", "ui", "browser"], check=True, stdout=subprocess.DEVNULL)
    return script.read_text(encoding="utf-8")
