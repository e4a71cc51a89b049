"""Credentials over HTTP: kept, used by a run, never told."""

from __future__ import annotations

from pathlib import Path

from tests.servers.arclog import running
from tests.unit.server.callers import bearer, make_keys

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
        bearer(keys[who]) for who in (("default", "engineer"), ("default", "viewer"), ("acme", "engineer"))
    )
    async with running(home) as server, server.client() as client:
        kept = await client.put("/api/credentials/crm", json={"value": SECRET}, headers=engineer)
        assert (kept.status_code, kept.json()["name"], kept.json()["scope"]) == (200, "crm", "default")
        assert (await client.put("/api/credentials/crm", json={"value": "x"}, headers=viewer)).status_code == 403
        assert (await client.put("/api/credentials/a%20b", json={"value": "x"}, headers=engineer)).status_code == 422
        listed = await client.get("/api/credentials", headers=viewer)
        assert [one["name"] for one in listed.json()["credentials"]] == ["crm"]
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
