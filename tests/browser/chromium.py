"""A real Chromium: the system's when there is one, else the one that comes inside a package (`./x ui browser`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def place() -> tuple[str, str]:
    """Its path, and a folder of libraries that it needs; '' for none."""
    program = os.environ.get("ARCLOG_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if program:
        return program, ""
    output = subprocess.run([ROOT / "x", "ui", "browser"], stdout=subprocess.PIPE, check=True, text=True).stdout
    unpacked = json.loads(output.splitlines()[-1])
    return unpacked["path"], unpacked["libraries"]


@contextmanager
def running() -> Iterator[Browser]:
    path, libraries = place()
    env: dict[str, str | float | bool] = {**os.environ, **({"LD_LIBRARY_PATH": libraries} if libraries else {})}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], env=env)
        try:
            yield browser
        finally:
            browser.close()


def received_by(page: Page) -> Callable[[], int]:
    """Counts the bytes that a page receives, as they come over the network: packed, and with those of streams that go on."""
    session = page.context.new_cdp_session(page)
    # Chromium tells the packed size of a stream as it goes on, and of everything else at its end.
    going_on: dict[str, int] = {}
    ended: dict[str, int] = {}

    def add(event: dict[str, Any]) -> None:
        going_on[event["requestId"]] = going_on.get(event["requestId"], 0) + event["encodedDataLength"]

    def end(event: dict[str, Any]) -> None:
        ended[event["requestId"]] = event["encodedDataLength"]

    session.on("Network.dataReceived", add)
    session.on("Network.loadingFinished", end)
    session.send("Network.enable")
    return lambda: int(sum({**going_on, **ended}.values()))
