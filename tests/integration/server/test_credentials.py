"""Credentials over HTTP: kept, used by a run, never told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import running

SECRET = "s3cret/with+odd=chars"
PLAYBOOK = """
metadata: {name: uses}
keychain: [{name: crm, kind: secret}]
workflow:
  - step: start
    tool: {kind: python, args: {n: "{{ keychain.crm.value | length }}", t: "{{ keychain.crm.value }}"}, code: "result = [n, t]"}
"""


async def test_a_credential_goes_in_is_used_and_never_comes_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    keys = await make_keys(home, [("default", "engineer"), ("default", "viewer"), ("acme", "engineer")])
    engineer, viewer, foreign = (
        bearer(keys[caller]) for caller in (("default", "engineer"), ("default", "viewer"), ("acme", "engineer"))
    )
    async with running(home) as server, server.client() as client:
        kept = await client.put("/api/credentials/crm", json={"value": SECRET}, headers=engineer)
        assert (kept.status_code, kept.json()["name"], kept.json()["scope"]) == (200, "crm", "default")
        assert (await client.put("/api/credentials/crm", json={"value": "x"}, headers=viewer)).status_code == 403
        assert (await client.put("/api/credentials/a%20b", json={"value": "x"}, headers=engineer)).status_code == 422
        listed = await client.get("/api/credentials", headers=viewer)
        assert [credential["name"] for credential in listed.json()["credentials"]] == ["crm"]
        assert (await client.get("/api/credentials", headers=foreign)).json() == {"credentials": []}
        assert (await client.delete("/api/credentials/crm", headers=foreign)).status_code == 404

        started = await client.post("/api/executions", json={"playbook": PLAYBOOK}, headers=engineer)
        execution_id = started.json()["execution_id"]
        stream = await client.get(f"/api/executions/{execution_id}/events/stream", headers=engineer)
        detail = await client.get(f"/api/executions/{execution_id}", headers=engineer)
        assert detail.json()["result"] == [len(SECRET), "[redacted:crm]"]
        for answer in (kept, listed, stream, detail):
            assert SECRET not in answer.text

        assert (await client.delete("/api/credentials/crm", headers=engineer)).json() == {
            "name": "crm",
            "scope": "default",
            "removed": True,
        }
        assert (await client.delete("/api/credentials/crm", headers=engineer)).status_code == 404


ELSEWHERE = """
metadata: {{name: elsewhere}}
keychain:
  - {{name: theirs, kind: env, var: ONLY_ON_THE_OTHER_MACHINE}}
  - {{name: ours, kind: env, var: {ours}}}
  - {{name: unused, kind: env, var: {unused}}}
workflow:
  - step: start
    tool: {{kind: python, args: {{x: "{{{{ keychain.ours.value }}}}"}}, code: "result = len(x)"}}
    next: {{arcs: [{{step: there}}]}}
  - step: there
    spec: {{pool: gpu}}
    tool: {{kind: python, args: {{x: "{{{{ keychain.{used}.value }}}}"}}, code: "result = len(x)"}}
"""


@pytest.mark.parametrize(
    ("used", "ours", "unused", "missing"),
    [
        ("theirs", "PATH", "PATH", ""),
        ("theirs", "NOT_SET_HERE", "PATH", "NOT_SET_HERE"),
        ("theirs", "PATH", "NOT_SET_HERE", "NOT_SET_HERE"),
        ("ours", "PATH", "PATH", "ONLY_ON_THE_OTHER_MACHINE"),
    ],
)
async def test_what_only_another_pool_uses_is_looked_at_there(
    tmp_path: Path, used: str, ours: str, unused: str, missing: str
) -> None:
    async with running(tmp_path / "home") as server, server.client() as client:
        text = ELSEWHERE.format(used=used, ours=ours, unused=unused)
        run = (await client.post("/api/executions", json={"playbook": text})).json()["execution_id"]
        events = (await client.get(f"/api/executions/{run}/events")).json()["events"]
        problems = [event["payload"]["error"]["message"] for event in events if "error" in event["payload"]]
        assert [missing in problem for problem in problems] == [True] * len(problems)
        assert bool(problems) == bool(missing)
        await client.post(f"/api/executions/{run}/cancel", json={"reason": "enough"})
