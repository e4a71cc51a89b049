"""Every result store as people meet it: `arclog run`, `result` and `gc` as real processes, with the store in the settings."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.commands import run_bytes
from tests.servers.nats import NatsServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import s3_server

PLAYBOOK = """
metadata: {name: large}
workflow:
  - step: start
    tool:
      kind: python
      code: "result = [{'id': n, 'text': 'some text ' * 5} for n in range(20_000)]"
    next: {arcs: [{step: sum}]}
  - step: sum
    tool:
      kind: python
      args: {rows: "{{ start.data }}"}
      code: "result = sum(row['id'] for row in rows)"
"""


@pytest.fixture(params=["postgres", "nats", "s3"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The settings of a result store, as environment."""
    monkeypatch.delenv("ARCLOG_HOME", raising=False)
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        database = server.create()
        yield {"ARCLOG_RESULTS_URL": database.dsn}
        server.drop(database)
    elif request.param == "nats":
        nats: NatsServer = request.getfixturevalue("nats_server")
        bucket = f"e2e-{os.urandom(4).hex()}"
        yield {"ARCLOG_RESULTS_URL": "nats", "ARCLOG_BUS_URL": nats.url, "ARCLOG_RESULTS_BUCKET": bucket}
    else:
        with s3_server() as s3:
            url = f"s3://{s3.bucket('results')}/here?endpoint={s3.endpoint}&region=us-east-1"
            yield {"ARCLOG_RESULTS_URL": url, "AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK"}


def test_run_read_and_collect(tmp_path: Path, place: dict[str, str]) -> None:
    (tmp_path / "large.yaml").write_text(PLAYBOOK)

    def arclog(*words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
        return run_bytes(*words, cwd=tmp_path, env={**os.environ, **place, **env})

    done = arclog("run", "large.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == 199_990_000
    assert not (tmp_path / ".arclog" / "results").exists()

    (stored,) = json.loads(arclog("result", "list", "last", "--json").stdout)
    got = arclog("result", "get", stored["ref"])
    assert (got.returncode, got.stdout.count(b"\n")) == (0, 20_000), got.stderr

    # Another store than when it was made.
    lost = arclog("result", "get", stored["ref"], ARCLOG_RESULTS_URL="")
    assert lost.returncode != 0
    assert b"was stored in the result store" in lost.stderr
    assert b"stored in 'files'; restore ARCLOG_RESULTS_URL" in lost.stderr

    gone = arclog("gc", "--json", ARCLOG_RESULTS_ORPHAN_GRACE_S="0", ARCLOG_RESULTS_KEEP_S="0")
    assert gone.returncode == 0, gone.stderr
    assert json.loads(gone.stdout)["contents"] == 1
    assert b"was removed by gc" in arclog("result", "get", stored["ref"]).stderr


def test_a_store_that_is_away_fails_the_task_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text(PLAYBOOK)
    env = {
        "ARCLOG_RESULTS_URL": "nats",
        "ARCLOG_BUS_URL": "nats://someone:s3cr3t@127.0.0.1:1",
        "ARCLOG_RESULTS_PATIENCE_S": "0.2",
    }
    done = run_bytes("run", "large.yaml", "--json", cwd=tmp_path, env={**os.environ, **env})
    body = json.loads(done.stdout)
    assert (done.returncode, body["error"]["kind"], body["error"]["retryable"]) == (1, "result", True)
    assert "NATS nats://127.0.0.1:1 cannot be reached" in body["error"]["message"]
    assert b"s3cr3t" not in done.stdout + done.stderr
