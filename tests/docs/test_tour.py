"""The tour of docs/server.md: its commands, run as they stand against a real server, with a worker beside it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.arclog import RunningServer

ROOT = Path(__file__).parents[2]
DEFAULT = "http://127.0.0.1:8420"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_all_of_it_with_keys_a_worker_and_a_schedule(server: RunningServer) -> None:
    section = (ROOT / "docs/server.md").read_text(encoding="utf-8").split("## A tour with curl")[1].split("\n## ")[0]
    (script,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    assert DEFAULT in script
    assert "./x arclog worker" in script
    script = script.replace(DEFAULT, server.url).replace("./x arclog", f"{sys.executable} -m arclog.cli.main")
    # Each answer on a line of its own, and none of them an error.
    script = "set -eu -o pipefail\n" + script.replace("curl -sS ", "curl --fail-with-body -w '\\n' -sS ").replace(
        "curl --fail-with-body -w '\\n' -sS -o /dev/null", "curl -sS -o /dev/null"
    )
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", script, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(90):
            raw, wrong = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    text = raw.decode()
    assert process.returncode == 0, wrong.decode() + text
    assert "without a key: 401" in text
    streamed = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert [event.get("step") for event in streamed] == ["here", "there", None]
    assert streamed[-1]["event_type"] == "playbook.finished"
    answers: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    (status,) = [answer for answer in answers if "completion_inferred" in answer]
    assert (len(status), status["state"]) == (7, "COMPLETED")
    pages = [answer["events"] for answer in answers if "events" in answer]
    assert [len(page) for page in pages[:2]] == [2, 2]
    assert {event["event_type"] for event in pages[1]} == {"step.exit"}
    assert [event["eventType"] for event in pages[2]][0::5] == ["RunStarted", "RunCompleted"]
    (lines,) = [answer["lines"] for answer in answers if "lines" in answer]
    assert [line["text"] for line in lines] == ["here", "there"]
    states = [answer["state"] for answer in answers if answer.get("accepted") is True]
    assert states[-1] == "CANCELLED"
    assert len(states) == 3
    (fired,) = [answer["executions"] for answer in answers if "executions" in answer]
    assert len(fired) == 2
    (audit,) = [answer["entries"] for answer in answers if "entries" in answer]
    assert audit[0]["principal"] == "ada"
    assert answers[-1]["name"] == "gpu-1"
    assert answers[-1]["revoked_at"]
