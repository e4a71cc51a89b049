"""The README's tour of the HTTP API: its commands, run as they stand against a real server."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.servers.arclog import RunningServer

ROOT = Path(__file__).parents[2]
DEFAULT = "http://127.0.0.1:8420"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_tour_over_http(server: RunningServer, tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Over HTTP")[1].split("\n## ")[0]
    (script,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert DEFAULT in script
    script = "set -eu\n" + script.replace(DEFAULT, server.url).replace("curl -sS", "curl --fail-with-body -w '\\n' -sS")
    # What runs in the background writes to a file of its own: in one pipe, its lines would be cut by those of the others.
    stream = tmp_path / "stream"
    assert script.count("/events/stream &") == 1
    script = script.replace("/events/stream &", f"/events/stream > {stream} &")
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", script, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode() + output.decode()
    lines = output.decode().splitlines()
    streamed = [
        json.loads(line[6:])["event_type"] for line in stream.read_text().splitlines() if line.startswith("data: ")
    ]
    assert streamed[0] == "playbook.execution.requested"
    assert {"playbook.paused", "playbook.resumed"} <= set(streamed)
    assert streamed[-1] == "playbook.processed"
    answers = [json.loads(line) for line in lines if line.startswith("{")]
    assert answers[0]["path"] == "wait"
    assert answers[-1]["state"] == "CANCELLED"
    pages = [answer["events"] for answer in answers if "events" in answer]
    assert len(pages) == 3
    assert any("runSeq" in event for event in pages[2])
