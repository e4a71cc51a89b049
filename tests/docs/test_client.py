"""The examples of docs/client.md do what the page says, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.servers.arclog import RunningServer

PAGE = Path(__file__).parents[2] / "docs/client.md"
_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Each piece of code with the output that the page shows behind it."""
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == ["python", "text"] * (len(blocks) // 2)
    return [(code, output) for (_, code), (_, output) in zip(blocks[::2], blocks[1::2], strict=True)]


async def test_the_examples_print_what_the_page_shows(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARCLOG_SERVER", server.url)
    names: dict[str, object] = {"__name__": "example"}

    def printed(code: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(PAGE), "exec"), names)
        return out.getvalue()

    for code, output in examples():
        assert await asyncio.to_thread(printed, code) == output, code


def test_the_examples_import_public_modules_alone() -> None:
    imports = re.findall(r"^(?:from|import) (arclog[\w.]*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(imports) <= {"arclog", "arclog.client", "arclog.client.webhooks", "arclog.errors"}
