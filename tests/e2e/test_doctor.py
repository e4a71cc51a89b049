"""`arclog doctor` finds what is wrong: each state is provoked on a real server, store or bus."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
from pathlib import Path
from typing import Any

import apsw
import pytest

from arclog.cli.main import command
from arclog.engine.duties.doctor import examined
from arclog.model.errors import StoreUnavailable
from arclog.model.ids import MICROS
from arclog.ports.storage.task_logs import LogLine
from arclog.ports.views.checks import FAIL, OK, Check
from arclog.stores.sqlite import SqliteStore
from arclog.wiring.clocks import SystemClock
from arclog.wiring.homes.folders import prepare_home
from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import RunningServer, running
from tests.servers.nats import NatsServer, running_nats
from tests.servers.postgres import Database, running_postgres
from tests.servers.web import Web

HOUR = 3600 * MICROS
GPU = "metadata: {name: gpu}\nworkflow: [{step: start, spec: {pool: gpu}, tool: {kind: noop}}]\n"
LIMITED = """\
metadata: {name: limited, path: flows/limited}
executor: {spec: {timeout_s: 60}}
workflow: [{step: start, tool: {kind: noop}}]
"""


def output_of(*words: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = command(list(words))
    return code, out.getvalue()


async def diagnosis(*words: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code of `doctor`, and its checks by name; on a thread: the server is on this loop."""
    code, text = await asyncio.to_thread(output_of, "doctor", "--json", *words)
    return code, {check["name"]: check for check in json.loads(text)["checks"]}


async def start(server: RunningServer, playbook: str, **more: Any) -> str:
    async with server.client() as client:
        answer = await client.post("/api/execute", json={"playbook": playbook}, **more)
        assert answer.status_code == 201, answer.text
        execution_id: str = answer.json()["execution_id"]
        return execution_id


def not_well(checks: dict[str, dict[str, str]]) -> set[str]:
    assert all(check.get("remedy") for check in checks.values() if check["status"] != "ok")
    return {name for name, check in checks.items() if check["status"] != "ok"}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the clock of arclog, not that of this process, run ahead."""
    now, monotonic = SystemClock.now, SystemClock.monotonic

    def ahead(by: int) -> None:
        monkeypatch.setattr(SystemClock, "now", lambda self: now(self) + by)
        monkeypatch.setattr(SystemClock, "monotonic", lambda _: monotonic() + by / MICROS)

    return ahead


# -- at a server ------------------------------------------------------------------------------------------------------


async def test_a_server_in_good_health(server: RunningServer):
    code, checks = await diagnosis("--server", server.url)
    assert code == 0
    assert not_well(checks) == set()
    assert {"server", "ready", "access", "version", "server's clock", "store", "disk", "clock", "results"} <= set(
        checks
    )
    assert {"pools", "leases", "timers", "schedules", "webhooks", "runs"} <= set(checks)
    assert "every commit synced" in checks["store"]["detail"]


async def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and never listened on
        code, checks = await diagnosis("--server", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (code, list(checks)) == (1, ["server"])
    assert "cannot be reached" in checks["server"]["detail"]
    assert "start it" in checks["server"]["remedy"]


async def test_several_servers_are_each_looked_at(server: RunningServer):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{taken.getsockname()[1]}"
        code, checks = await diagnosis("--server", f"http://{gone},{server.url}")
    address = server.url.partition("://")[2]
    assert (code, not_well(checks)) == (1, {f"{gone} server"})
    assert {f"{address} server", f"{address} version", "store", "timers"} <= set(checks)


async def test_keys_that_are_wrong_missing_or_too_small(tmp_path: Path):
    keys = await make_keys(tmp_path / "home", [("default", "viewer"), ("default", "admin")])
    async with running(tmp_path / "home", worker=False) as server:
        for role, text in [("none", ""), ("wrong", "ark_0123456789abcdef_" + "x" * 43)]:
            (tmp_path / role).write_text(text)
        for (_, role), text in keys.items():
            (tmp_path / role).write_text(text)
        for role, message in [("none", "authentication required"), ("wrong", "key"), ("viewer", "role admin")]:
            code, checks = await diagnosis("--server", server.url, "--token-file", str(tmp_path / role))
            assert code == 1
            assert not_well(checks) == {"access"}
            assert message in checks["access"]["detail"]
            assert "--role admin" in checks["access"]["remedy"]
            assert "x" * 43 not in str(checks)
        code, checks = await diagnosis("--server", server.url, "--token-file", str(tmp_path / "admin"))
        assert (code, not_well(checks)) == (0, set())


async def test_something_else_answers():
    with Web() as web:
        web.answers("/health", json={"status": "ok"})
        web.answers("/ready", json={"status": "ready"})
        web.answers("/api/doctor", json={"hello": "world"})
        code, checks = await diagnosis("--server", web.url("/").rstrip("/"))
    assert (code, not_well(checks)) == (1, {"version"})


async def test_a_server_of_another_version():
    with Web() as web:
        now = SystemClock().now()
        web.answers("/health", json={})
        web.answers("/ready", json={})
        web.answers("/api/doctor", json={"version": "0.0.1", "protocol": 99, "now": now, "checks": []})
        code, checks = await diagnosis("--server", web.url("/").rstrip("/"))
    assert (code, not_well(checks)) == (1, {"version"})
    assert "protocol 99" in checks["version"]["detail"]


async def test_a_server_whose_clock_is_an_hour_off(tmp_path: Path, later: Any):
    later(-HOUR)
    async with running(tmp_path / "home", worker=False) as server:
        code, checks = await diagnosis("--server", server.url)
    assert code == 0
    assert not_well(checks) == {"server's clock"}
    seconds, _, rest = checks["server's clock"]["detail"].partition(" s ")
    assert rest.startswith("behind")
    # What is known for certain: less by the time that the answer took.
    assert 3000 < float(seconds) <= 3600


async def test_a_pool_without_a_worker(tmp_path: Path):
    async with running(tmp_path / "home", worker=True, **{"doctor.waiting_s": 0}) as server:
        await start(server, GPU)
        code, checks = await diagnosis("--server", server.url)
        assert (code, not_well(checks)) == (1, {"pool gpu"})
        assert checks["pool gpu"]["detail"].startswith("1 waiting, 0 with workers")
        assert "--pool gpu" in checks["pool gpu"]["remedy"]


async def test_a_duty_that_nobody_has(tmp_path: Path):
    home, now = tmp_path / "home", SystemClock().now()
    async with running(home, worker=False) as server:
        store = SqliteStore(home / "arclog.db", clock=SystemClock())
        await store.open()
        await store.lease_duty("of-old", "gone", now - 2 * HOUR, now - HOUR)
        await store.lease_duty("of-now", "there", now, now + HOUR)
        await store.close()
        code, checks = await diagnosis("--server", server.url)
        assert (code, not_well(checks)) == (0, {"duty of-old"})
        assert "there holds it until" in checks["duty of-now"]["detail"]
    # Where no server runs, nobody has to.
    code, checks = await diagnosis("--home", str(home))
    assert (code, not_well(checks)) == (0, set())


async def test_a_webhook_that_was_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOOK_KEY", "correct horse battery staple")
    with Web() as web:
        web.answers("/hook", status=500)
        told_of = f"""\
metadata: {{name: told}}
keychain: [{{name: hook_key, kind: env, var: HOOK_KEY}}]
executor: {{spec: {{webhooks: [{{url: "{web.url("/hook")}", secret: hook_key}}]}}}}
workflow: [{{step: start, tool: {{kind: noop}}}}]
"""
        async with (
            running(tmp_path / "home", worker=True, **{"webhooks.max_attempts": 1}) as server,
            server.client() as client,
        ):
            execution_id = await start(server, told_of)
            processed = False
            async with client.stream("GET", f"/api/executions/{execution_id}/events/stream") as stream:
                async for line in stream.aiter_lines():
                    processed = processed or "playbook.processed" in line
            assert processed
            code, checks = await diagnosis("--server", server.url)
    assert (code, not_well(checks)) == (0, {"webhooks"})
    assert execution_id in checks["webhooks"]["detail"]
    assert "500" in checks["webhooks"]["detail"]


async def test_ids_are_told_to_their_own_tenant_alone(tmp_path: Path):
    keys = await make_keys(
        tmp_path / "home", [(tenant_name, role) for tenant_name in ("acme", "globex") for role in ("admin", "engineer")]
    )
    home = tmp_path / "home"
    async with running(home, worker=False) as server:
        execution_id = await start(
            server, LIMITED.replace("timeout_s: 60", "timeout_s: 6000"), headers=bearer(keys["acme", "engineer"])
        )
    _lose_its_work(home)
    async with (
        running(home, worker=False, **{"doctor.idle_s": 0, "engine.sweep_s": 600}) as server,
        server.client() as client,
    ):
        _lose_its_work(home)
        for tenant, seen in [("acme", True), ("globex", False)]:
            answer = await client.get("/api/doctor", headers=bearer(keys[tenant, "admin"]))
            runs = next(check for check in answer.json()["checks"] if check["name"] == "runs")
            assert runs["status"] == FAIL
            assert (execution_id in runs["detail"]) is seen


# -- on a home, whose server is gone ----------------------------------------------------------------------------------


def _lose_its_work(home: Path) -> None:
    connection = apsw.Connection(str(home / "arclog.db"))
    connection.set_busy_timeout(10_000)  # a server may be writing
    connection.execute("DELETE FROM commands; DELETE FROM timers").fetchall()
    connection.close()


async def test_a_home_that_nobody_looks_after(tmp_path: Path, later: Any):
    home = tmp_path / "home"
    async with running(home, worker=False) as server, server.client() as client:
        await start(server, LIMITED)
        await start(server, GPU)
        answer = await client.post("/api/catalog", json={"playbook": LIMITED})
        assert answer.is_success, answer.text
        new = {"name": "minutely", "cron": "* * * * *", "path": "flows/limited"}
        assert (await client.post("/api/schedules", json=new)).is_success
        worker = {"worker_id": "gone", "kinds": ["noop"], "pools": ["gpu"]}
        await client.post("/api/worker/register", json={"worker": worker, "protocol": 1})
        claimed = await client.post("/api/worker/claim", json={"worker": worker, "limit": 1, "n": 1})
        assert len(claimed.json()["commands"]) == 1, claimed.text
    later(HOUR)
    code, checks = await diagnosis("--home", str(home))
    assert code == 1
    assert not_well(checks) == {"pool default", "leases", "timers", "schedules"} | (not_well(checks) & {"clock"})
    assert "minutely" in checks["schedules"]["detail"]
    assert checks["pool gpu"]["detail"].startswith("0 waiting, 1 with workers")


async def test_a_run_that_nothing_moves(tmp_path: Path, later: Any):
    home = tmp_path / "home"
    async with running(home, worker=False) as server:
        execution_id = await start(server, LIMITED)
    _lose_its_work(home)
    later(HOUR)
    code, checks = await diagnosis("--home", str(home))
    assert (code, "runs" in not_well(checks)) == (1, True)
    assert execution_id in checks["runs"]["detail"]


async def test_a_run_that_waits_for_somebody_is_no_finding(tmp_path: Path, later: Any):
    home = tmp_path / "home"
    waits = "metadata: {name: waits}\nworkflow: [{step: start, tool: {kind: wait, signal: go}}]\n"
    async with running(home) as server, server.client() as client:
        execution_id = await start(server, waits)
        async with client.stream("GET", f"/api/executions/{execution_id}/events/stream") as stream:
            async for line in stream.aiter_lines():
                if '"suspended"' in line:
                    break
    later(HOUR)
    _, checks = await diagnosis("--home", str(home))
    assert checks["runs"]["status"] == "ok"


async def test_a_home_that_is_not_there(tmp_path: Path):
    code, checks = await diagnosis("--home", str(tmp_path / "none"))
    assert (code, not_well(checks)) == (0, {"home"})
    assert "arclog run" in checks["home"]["remedy"]
    assert not (tmp_path / "none").exists()


async def test_a_file_that_is_no_store(tmp_path: Path):
    (tmp_path / "arclog.db").write_bytes(b"no database at all" * 1000)
    code, checks = await diagnosis("--home", str(tmp_path))
    assert (code, not_well(checks)) == (1, {"store"})


@pytest.mark.parametrize(("version", "status"), [(1, "warn"), (999, "fail")])
async def test_a_store_of_another_version_is_left_as_it_is(tmp_path: Path, version: int, status: str):
    async with running(tmp_path):
        pass
    connection = apsw.Connection(str(tmp_path / "arclog.db"))
    connection.pragma("user_version", version)
    connection.close()
    code, checks = await diagnosis("--home", str(tmp_path))
    assert (code, not_well(checks)) == (int(status == "fail"), {"schema"})
    assert checks["schema"]["status"] == status
    connection = apsw.Connection(str(tmp_path / "arclog.db"))
    assert connection.pragma("user_version") == version
    connection.close()


async def kept_home(home: Path) -> Path:
    """A home with a store of some pages; its file."""
    store = SqliteStore(home / "arclog.db", clock=SystemClock())
    prepare_home(home)
    await store.open()
    lines = [LogLine(1, n, "s", 1, "t", 1, 1, "log", f"{n} " * 200) for n in range(300)]
    await store.append_logs(lines)
    await store.close()
    return home / "arclog.db"


async def test_damaged_pages(tmp_path: Path):
    file = await kept_home(tmp_path / "home")
    code, checks = await diagnosis("--home", str(tmp_path / "home"))
    assert (code, checks["pages"]["status"], checks["files"]["status"]) == (0, "ok", "ok")
    body = bytearray(file.read_bytes())
    body[-4096:] = b"\xa5" * 4096  # the first pages hold the schema: without it nothing can be opened
    file.write_bytes(body)
    code, checks = await diagnosis("--home", str(tmp_path / "home"))
    assert (code, checks["pages"]["status"]) == (1, "fail")
    assert "is damaged" in checks["pages"]["detail"]
    assert "restore a backup" in checks["pages"]["remedy"]


@pytest.mark.parametrize("first", [100, 4096], ids=["where the schema begins", "behind it"])
async def test_damaged_pages_of_the_schema(tmp_path: Path, first: int):
    file = await kept_home(tmp_path / "home")
    body = bytearray(file.read_bytes())
    body[first:8192] = b"\xa5" * (8192 - first)
    file.write_bytes(body)
    code, checks = await diagnosis("--home", str(tmp_path / "home"))
    assert (code, checks["pages"]["status"]) == (1, "fail")
    assert f"{file} is damaged" in checks["pages"]["detail"]
    assert "restore a backup" in checks["pages"]["remedy"]


async def test_a_large_file_is_looked_at_for_a_while_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ARCLOG_DOCTOR_PAGES_S", "0")
    await kept_home(tmp_path / "home")
    code, checks = await diagnosis("--home", str(tmp_path / "home"))
    assert (code, checks["pages"]["status"]) == (0, "ok")
    assert "not all pages were checked" in checks["pages"]["detail"]


async def test_a_store_that_lost_its_write_ahead_log(tmp_path: Path):
    file = await kept_home(tmp_path / "home")
    file.with_name("arclog.db-mark").write_text("9\n")
    code, checks = await diagnosis("--home", str(tmp_path / "home"))
    assert (code, checks["store"]["status"]) == (1, "fail")
    assert "lacks commits that were answered" in checks["store"]["detail"]


async def test_a_home_that_others_can_read(tmp_path: Path):
    file = await kept_home(tmp_path / "home")
    file.parent.chmod(0o755)
    file.chmod(0o644)
    code, checks = await diagnosis("--home", str(tmp_path / "home"))
    assert (code, checks["files"]["status"]) == (0, "warn")
    assert f"chmod 700 {file.parent}" in checks["files"]["remedy"]


@pytest.mark.parametrize("root", ["~", "~/..", "/"])
async def test_tasks_that_share_the_home_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str):
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    (tmp_path / "ada").mkdir()
    async with running(tmp_path / "home", worker=False, **{"object.file_root": root}) as server:
        code, checks = await diagnosis("--server", server.url)
    assert (code, not_well(checks)) == (0, {"local files"})
    assert ".ssh/authorized_keys" in checks["local files"]["detail"]
    monkeypatch.setenv("ARCLOG_OBJECT_FILE_ROOT", root)
    code, checks = await diagnosis("--home", str(tmp_path / "home"))
    assert checks["local files"]["status"] == "warn"
    monkeypatch.setenv("ARCLOG_OBJECT_FILE_ROOT", "~/files")
    code, checks = await diagnosis("--home", str(tmp_path / "home"))
    assert checks["local files"]["status"] == "ok"


async def test_a_home_folder_in_which_arclog_up_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is the user's own machine until there are keys for others."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    async with running(tmp_path / "home") as server:
        _, checks = await diagnosis("--server", server.url)
    assert checks["local files"]["status"] == "ok"
    keys = await make_keys(tmp_path / "home", [("default", "admin")])
    (tmp_path / "key").write_text(keys["default", "admin"])
    async with running(tmp_path / "home") as server:
        _, checks = await diagnosis("--server", server.url, "--token-file", str(tmp_path / "key"))
    assert checks["local files"]["status"] == "warn"


async def test_results_that_cannot_be_written(tmp_path: Path):
    home = tmp_path / "home"
    async with running(home):
        pass
    (home / "results").write_text("a file where the folder should be")
    code, checks = await diagnosis("--home", str(home))
    assert (code, not_well(checks)) == (1, {"results"})


async def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with running(tmp_path):
        pass
    monkeypatch.setenv("ARCLOG_DOCTOR_MIN_FREE_BYTES", str(1 << 60))
    code, checks = await diagnosis("--home", str(tmp_path))
    assert (code, not_well(checks)) == (1, {"disk"})


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


async def test_a_server_on_postgresql_in_good_health(tmp_path: Path, postgres: Database):
    settings = {"store.url": postgres.dsn, "results.url": "postgres"}
    async with running(tmp_path / "home", worker=True, **settings) as server:
        code, checks = await diagnosis("--server", server.url)
    assert (code, not_well(checks)) == (0, set())
    assert {"store", "schema", "connections", "transactions", "clock"} <= set(checks)
    assert "fsync on" in checks["store"]["detail"]
    assert "correct" not in str(checks)


async def test_an_empty_database_stays_empty(tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ARCLOG_STORE_URL", postgres.dsn)
    code, checks = await diagnosis()
    assert (code, not_well(checks)) == (0, {"schema"})
    assert postgres.rows("SELECT 1 FROM pg_namespace WHERE nspname = 'arclog'") == []


async def test_postgresql_stopped_below_a_running_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with running_postgres(unsafe=True) as database:
        url = database.create().dsn
        settings = {"store.url": url, "store.unsafe": True, "server.ready_s": 0.5}
        async with running(tmp_path / "home", worker=False, **settings) as server:
            code, checks = await diagnosis("--server", server.url)
            # fsync is off, as it was asked for; large results are where where other servers finds them
            assert (code, not_well(checks)) == (0, {"store", "results"})
            assert "where other servers" in checks["results"]["detail"]
            database.stop()
            monkeypatch.setenv("ARCLOG_STORE_URL", url)
            monkeypatch.setenv("ARCLOG_DOCTOR_CHECK_S", "2")
            try:
                code, checks = await diagnosis("--server", server.url)
                local_code, local = await diagnosis()
            finally:
                database.start()
            assert code == 1
            # Keys are in the store: who asks cannot be told while it is away.
            assert not_well(checks) == {"ready", "findings"}
            assert (local_code, not_well(local)) == (1, {"store"})
            assert "cannot be reached" in local["store"]["detail"]
            assert "horse" not in str(checks)


async def test_no_postgresql_a_wrong_password_and_no_database(postgres: Database, monkeypatch: pytest.MonkeyPatch):
    wrong = [
        (postgres.dsn.replace("correct", "wrong"), "password"),
        (postgres.dsn.replace(postgres.dbname, "nosuch"), "nosuch"),
        (postgres.dsn.replace(f":{postgres.port}/", ":1/"), ""),
    ]
    for url, message in wrong:
        monkeypatch.setenv("ARCLOG_STORE_URL", url)
        code, checks = await diagnosis()
        assert (code, not_well(checks)) == (1, {"store"})
        assert message in checks["store"]["detail"]
        assert "horse" not in str(checks)


async def test_a_transaction_that_holds_the_readers_up(
    tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ARCLOG_STORE_URL", postgres.dsn)
    async with running(tmp_path / "home", worker=False, **{"store.url": postgres.dsn}):
        pass
    monkeypatch.setenv("ARCLOG_DOCTOR_WAITING_S", "0")
    with postgres.connect(autocommit=False) as lingering:
        lingering.execute("SELECT pg_current_xact_id()")
        _, checks = await diagnosis()
    assert "transactions" in not_well(checks)
    assert "pg_terminate_backend" in checks["transactions"]["remedy"]


# -- the bus ----------------------------------------------------------------------------------------------------------


async def _bus(home: Path, url: str, limit_s: float = 5.0) -> dict[str, str]:
    from arclog.model.config.settings import Settings
    from arclog.wiring.doctor import backend_probes

    settings = Settings({"home": str(home), "bus.url": url})
    checks = await examined(backend_probes(settings), limit_s)
    (check,) = [check for check in checks if check.name == "bus"]
    assert "s3cret" not in check.detail
    return {"status": check.status, "detail": check.detail}


async def test_the_bus(tmp_path: Path, nats_server: NatsServer):
    with_password = nats_server.url.replace("nats://", "nats://user:s3cret@")
    well = await _bus(tmp_path, with_password)
    assert well["status"] == "ok"
    assert "with JetStream" in well["detail"]
    assert (await _bus(tmp_path, "http://127.0.0.1:1"))["status"] == "fail"


async def test_a_bus_that_is_gone_or_is_none(tmp_path: Path):
    with running_nats() as server:
        url = server.url
    gone = await _bus(tmp_path, url)
    assert gone["status"] == "warn"
    async with running(tmp_path / "home", worker=False) as other:
        # It waits to be asked, and NATS would speak first.
        wrong = await _bus(tmp_path, other.url.replace("http://", "nats://"), limit_s=0.2)
    assert wrong["status"] == "fail"
    assert "no answer within" in wrong["detail"]


# -- the examination itself -------------------------------------------------------------------------------------------


async def test_a_check_that_hangs_or_breaks_holds_up_no_other():
    async def hangs() -> list[Check]:
        await asyncio.Event().wait()
        return []

    async def breaks() -> list[Check]:
        raise ZeroDivisionError("oops")

    async def refuses() -> list[Check]:
        raise StoreUnavailable("the store is away; start it")

    async def works() -> list[Check]:
        return [Check("works", OK, "fine")]

    checks = await examined([("a", hangs), ("b", breaks), ("c", refuses), ("d", works)], 0.05)
    assert [(check.name, check.status) for check in checks] == [("a", FAIL), ("b", FAIL), ("c", FAIL), ("works", OK)]
    assert "doctor.check_s" in checks[0].detail
    assert "bug" in checks[1].remedy


def test_plain_output_names_what_to_do(tmp_path: Path):
    (tmp_path / "arclog.db").write_bytes(b"no database at all" * 1000)
    code, text = output_of("doctor", "--home", str(tmp_path))
    assert code == 1
    assert text.startswith("fail  store")
    assert "→" in text
    assert "3 checks: 1 failed" in text
