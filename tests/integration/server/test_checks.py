"""What an editor asks for: findings with their places, the graph, the schema; and the settings, without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.model.config.settings import TABLE
from tests.servers.arclog import RunningServer, running

GOOD = """\
metadata: {name: good}
workload: {n: 1}
workflow:
  - step: start
    tool: {name: get, kind: python, args: {n: "{{ workload.n }}"}, code: "result = n"}
"""


async def test_findings_have_their_places_and_a_good_playbook_its_graph(server: RunningServer) -> None:
    async with server.client() as client:
        good = (await client.post("/api/check", json={"playbook": GOOD})).json()
        assert good["findings"] == []
        assert good["graph"]["workload"] == {"n": 1}
        (task,) = good["graph"]["steps"][0]["tasks"]
        assert (task["kind"], task["config"]["args"], task["line"]) == ("python", {"n": "{{ workload.n }}"}, 5)
        bad = (await client.post("/api/check", json={"playbook": GOOD.replace("tool:", "tol:")})).json()
        assert bad["graph"] is None
        assert (5, "error") in [(finding["line"], finding["severity"]) for finding in bad["findings"]]
        sent = await client.post("/api/check", content=GOOD, headers={"content-type": "application/yaml"})
        assert sent.json() == good
        for text in ("", "\0", "a: [", "x: " + "[" * 500):
            answer = await client.post("/api/check", json={"playbook": text})
            assert answer.status_code == 200
            assert answer.json()["findings"]
        listed = (await client.get("/api/catalog")).json()
        assert listed["playbooks"] == [], "nothing is kept"


async def test_a_large_playbook_is_checked_in_another_process(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arclog.wiring.serving.server.build", None)
    monkeypatch.setattr("arclog.plan.draw.as_json", None)
    steps = "\n".join(f"  - {{step: s{number}, tool: {{kind: noop}}}}" for number in range(300))
    async with server.client() as client:
        body = (
            await client.post("/api/check", json={"playbook": f"metadata: {{name: a}}\nworkflow:\n{steps}\n"})
        ).json()
    assert len(body["graph"]["steps"]) == 300


async def test_the_schema_knows_the_kinds_that_are_installed(server: RunningServer) -> None:
    async with server.client() as client:
        schema = (await client.get("/api/check/schema")).json()
    assert "workflow" in schema["properties"]


async def test_settings_are_shown_without_passwords(tmp_path: Path) -> None:
    values = {
        "client.server": "https://ada:pass-of-ada@server.example/path",
        "lineage.url": "ada:pass-of-ada@server.example:80",  # an address without a scheme is one as well
        "lineage.auth": "pass-of-ada",
        "overview.stuck_s": 5,
    }
    async with running(tmp_path, worker=False, **values) as server, server.client() as client:
        answer = await client.get("/api/settings")
    rows = {row["name"]: row for row in answer.json()["settings"]}
    assert list(rows) == [row.name for row in TABLE]
    assert (rows["overview.stuck_s"]["value"], rows["overview.stuck_s"]["default"]) == (5, 60)
    assert "pass-of-ada" not in answer.text
    assert rows["client.server"]["value"] == "https://server.example"
