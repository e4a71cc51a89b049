"""The consumer of docs/bus.md reads what a real server publishes to a real NATS."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from arclog.client import AsyncClient
from arclog.ports.views.api import ExecuteRequest
from tests.servers.arclog import running
from tests.servers.nats import running_nats

PAGE = Path(__file__).parents[2] / "docs/bus.md"


async def test_the_consumer_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (matches,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)

    def told() -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})
        return out.getvalue()

    with running_nats() as nats:
        monkeypatch.setenv("NATS_URL", nats.url)
        settings: dict[str, Any] = {"bus.url": nats.url}
        async with running(tmp_path / "home", **settings) as server, AsyncClient(server.url) as client:
            consuming = asyncio.ensure_future(asyncio.to_thread(told))
            await client.execute(
                ExecuteRequest("metadata: {name: hello}\nworkflow: [{step: start, tool: {kind: noop}}]")
            )
            assert await consuming == matches
