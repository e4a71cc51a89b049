"""A canary as the password of every backend: no command, log, answer, check or event shows it, whatever goes wrong.

What readers of addresses say is tested one by one in tests/unit/drivers; here the whole way is gone, with real servers.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from arclog.cli.main import command
from tests.servers.arclog import RunningServer, running
from tests.servers.nats import running_nats
from tests.servers.postgres import Database, running_postgres

#: In two halves, so that a message with one of them is found, too.
CANARY = ("canary", "yranac")
#: Written into an address as they are: most make it one that cannot be read.
RAW = [f"canary{sign}yranac" for sign in ("", "%zz", "/", "@", ":", "?", "?a=", "#", " ", "é✓", "&", "=", ",", "'")]
#: What a server is really given, percent-encoded in the address.
REAL = "canary/@:?#%zz é✓'yranac"

ADDRESSES = {
    "ARCLOG_STORE_URL": ["postgresql://u:{}@127.0.0.1:1/d", "postgresql://127.0.0.1:1,127.0.0.1:2/d?password={}&sslpassword={}"],
    "ARCLOG_STORE_LISTEN_URL": ["postgresql://u:{}@127.0.0.1:1/d", "host=127.0.0.1 port=1 password={} options='-c a.b={}'"],
    "ARCLOG_RESULTS_URL": ["postgresql://u:{}@127.0.0.1:1/d", "s3://u:{}@bucket/x", "other://u:{}@h"],
    "ARCLOG_BUS_URL": ["nats://u:{}@127.0.0.1:1", "nats://{}@127.0.0.1:1", "u:{}@127.0.0.1:1"],
}  # fmt: skip
FLOW = "metadata: {name: p}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
IMPATIENT = {
    "ARCLOG_STORE_PATIENCE_S": "0",
    "ARCLOG_STORE_CONNECT_TIMEOUT_S": "1",
    "ARCLOG_RESULTS_PATIENCE_S": "0",
    "ARCLOG_RESULTS_TIMEOUT_S": "1",
    "ARCLOG_BUS_CONNECT_TIMEOUT_S": "1",
    "ARCLOG_DOCTOR_CHECK_S": "3",
    "ARCLOG_TASKS_CONFINEMENT": "off",
    "ARCLOG_DEBUG": "1",
}


def assert_hidden(text: str, case: str = "") -> None:
    for part in CANARY:
        assert part not in text, f"{case}: {text}"


@pytest.mark.parametrize("variable", ADDRESSES)
@pytest.mark.parametrize("words", ["run flow.yaml", "list --json", "doctor --json", "server --port 0"])
def test_no_command_shows_a_password(
    variable: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With an address that cannot be read, or whose server is not there."""
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    for name, value in IMPATIENT.items():
        monkeypatch.setenv(name, value)
    if variable != "ARCLOG_STORE_URL" and (variable != "ARCLOG_RESULTS_URL" or words.startswith("server")):
        # A bus is used only where other servers may be; and no server must start here.
        monkeypatch.setenv("ARCLOG_STORE_URL", "postgresql://u:canary%2Fyranac@127.0.0.1:1/d")
    for form in ADDRESSES[variable]:
        for password in RAW:
            monkeypatch.setenv(variable, form.format(password, password))
            code = command(words.split())
            shown = capfd.readouterr()
            assert_hidden(shown.out + shown.err, f"{words} with {form.format(password, password)!r}")
            if variable == "ARCLOG_STORE_URL":
                assert code != 0
                assert shown.out or shown.err


# -- real servers that go away ---------------------------------------------------------------------------------------------


def _with_password(database: Database) -> str:
    """An address of the database for a user with the canary as password."""
    quoted = REAL.replace("'", "''")
    database.rows(f"CREATE ROLE bird LOGIN SUPERUSER PASSWORD '{quoted}'")
    return f"postgresql://bird:{quote(REAL, safe='')}@{database.host}:{database.port}/{database.dbname}"


async def _answers(server: RunningServer) -> str:
    """What anybody and an admin of a server without keys are answered."""
    async with server.client() as client:
        paths = ("/ready", "/health", "/metrics", "/api/executions", "/api/settings", "/api/doctor")
        return "".join([(await client.get(path)).text for path in paths])


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    caplog.set_level(logging.DEBUG)

    def text() -> str:
        shown = capfd.readouterr()
        return caplog.text + shown.out + shown.err

    return text


async def test_a_server_whose_postgresql_goes_away_shows_no_password(tmp_path: Path, logged: Callable[[], str]) -> None:
    with running_postgres(unsafe=True) as database:
        url = _with_password(database.create())
        settings = {
            "store.url": url, "results.url": "postgres", "store.unsafe": True, "store.patience_s": 0.2,
            "results.patience_s": 0.0, "server.ready_s": 1.0, "doctor.check_s": 3.0, "bus.max_retry_s": 0.1,
            "tasks.confinement": "off",
        }  # fmt: skip
        async with running(tmp_path / "home", worker=False, **settings) as server:
            shown = await _answers(server)
            assert '"ready"' in shown
            database.stop()
            try:
                async with server.client() as client:
                    assert (await client.get("/ready")).status_code == 503
                shown += await _answers(server)
                text = logged()
                assert "PostgreSQL notifications: " in text, "the bus has lost its connection, and says so"
            finally:
                database.start()
        assert_hidden(shown + text + logged())


async def test_a_server_whose_nats_goes_away_shows_no_password(tmp_path: Path, logged: Callable[[], str]) -> None:
    config = f"authorization {{ user: bird, password: {json.dumps(REAL, ensure_ascii=False)} }}"
    with running_nats(config=config) as nats, running_postgres(unsafe=True) as database:
        bus = nats.url.replace("//", f"//bird:{quote(REAL, safe='')}@")
        settings = {
            "store.url": database.create().dsn, "store.unsafe": True, "bus.url": bus, "results.url": "nats",
            "bus.max_retry_s": 0.1, "bus.connect_timeout_s": 2.0, "results.patience_s": 0.0, "results.timeout_s": 2.0,
            "doctor.check_s": 5.0, "tasks.confinement": "off",
        }  # fmt: skip
        async with running(tmp_path / "home", worker=False, **settings) as server:
            shown = await _answers(server)
            nats.kill()
            text = ""
            async with asyncio.timeout(60):
                while "NATS" not in text:
                    text += logged()
                    await asyncio.sleep(0.02)  # a log notifies nobody
            shown += await _answers(server)
        assert_hidden(shown + text + logged())


# -- tasks -------------------------------------------------------------------------------------------------------------------


def _playbook(tool: dict[str, Any]) -> str:
    entry = {"name": "db", "kind": "env", "var": "BIRD"}
    return json.dumps({"metadata": {"name": "p"}, "keychain": [entry], "workflow": [{"step": "start", "tool": tool}]})


@pytest.mark.parametrize("kind", ["postgres", "transfer", "nats"])
def test_no_event_of_a_task_shows_a_password(
    kind: str, postgres: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Credentials of a keychain entry that cannot be read, are refused, or lead to no server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCLOG_SQL_CONNECT_TIMEOUT_S", "2")
    monkeypatch.setenv("ARCLOG_HTTP_ALLOW_NETWORKS", "loopback")
    refused = f"postgresql://postgres:{quote(REAL, safe='')}@{postgres.host}:{postgres.port}/{postgres.dbname}"
    scheme = "nats" if kind == "nats" else "postgresql"
    credentials = [f"{scheme}://u:{password}@127.0.0.1:1" for password in RAW]
    if kind != "nats":
        credentials += [refused, "host=127.0.0.1 port=1 user=u password='canary yranac' sslpassword=canary"]
    tools: dict[str, dict[str, Any]] = {
        "postgres": {"kind": "postgres", "auth": "db", "command": "SELECT 1"},
        "transfer": {
            "kind": "transfer", "rows": [{"a": 1}], "target": {"kind": "postgres", "dsn": "{{ keychain.db.value }}", "table": "t"},
        },
        "nats": {"kind": "nats", "op": "publish", "auth": "db", "subject": "a", "data": 1},
    }  # fmt: skip
    Path("flow.yaml").write_text(_playbook(tools[kind]))
    for credential in credentials:
        monkeypatch.setenv("BIRD", credential)
        assert command(["run", "flow.yaml", "--json"]) == 1
        shown = capfd.readouterr()
        execution_id = json.loads(shown.out)["execution_id"]
        for words in (["events", execution_id, "--json"], ["status", execution_id], ["why", execution_id]):
            command(words)
        answers = capfd.readouterr()
        assert "start" in answers.out
        assert_hidden(shown.out + shown.err + answers.out + answers.err, credential)
