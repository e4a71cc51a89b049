"""Someone starts arclog in his own home folder: what tasks of others, and his own, do with the files there."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.server.callers import Caller, bearer, keys_of
from tests.servers.ports import free_port

ARCLOG = (sys.executable, "-m", "arclog.cli.main")
CALLERS = [Caller("engineer", "engineer"), Caller("admin", "admin"), Caller("worker", "worker")]
PATIENCE_S = 60
#: The file that a task makes → the task. Each is in the folder of `place`, or where relative paths are if that is ''.
MADE: dict[str, dict[str, Any]] = {
    ".ssh/authorized_keys": {"kind": "object", "action": "put", "url": "{place}{file}", "content": "ssh-ed25519 AAAA"},
    ".bashrc": {"kind": "transfer", "rows": [{"a": "b"}], "target": {"kind": "csv", "path": "{place}{file}"}},
    "lines.ndjson": {"kind": "transfer", "rows": [{"a": "b"}], "target": {"kind": "ndjson", "path": "{place}{file}"}},
    "table.parquet": {"kind": "transfer", "rows": [{"a": 1}], "target": {"kind": "parquet", "path": "{place}{file}"}},
    "moved.db": {
        "kind": "transfer",
        "rows": [{"a": 1}],
        "target": {"kind": "sqlite", "database": "{place}{file}", "table": "t", "create": True},
    },
    "data.db": {"kind": "sqlite", "database": "{place}{file}", "command": "CREATE TABLE t (a)"},
    "attached.db": {
        "kind": "sqlite",
        "database": ":memory:",
        "transaction": False,
        "command": "ATTACH '{place}{file}' AS a; CREATE TABLE a.t (a)",
    },
    "data.duckdb": {"kind": "duckdb", "database": "{place}{file}", "command": "CREATE TABLE t (a INTEGER)"},
    "copied.csv": {"kind": "duckdb", "command": "COPY (SELECT 1 AS a) TO '{place}{file}'"},
}


def playbook_of(file: str, place: str = "") -> str:
    """A playbook, in JSON, that makes one file."""
    task = json.dumps(MADE[file]).replace("{place}", place).replace("{file}", file)
    return f'{{"metadata": {{"name": "a"}}, "workflow": [{{"step": "start", "tool": {task}}}]}}'


def files_in(folder: Path) -> set[str]:
    """All files below a folder, without those of arclog's home and of the folder `files`."""
    own = (folder / ".arclog", folder / "files")
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not any(path.is_relative_to(other) for other in own)
    }


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    """The home folder of the operator, who has an ssh folder and starts arclog there."""
    (tmp_path / "operator" / ".ssh").mkdir(parents=True)
    return tmp_path / "operator"


class Site:
    """A server whose worker, or that itself, was started in the home folder of the operator."""

    def __init__(self, client: httpx2.AsyncClient, key: str) -> None:
        self._client = client
        self._headers = bearer(key) if key else {}

    async def run(self, playbook: str) -> tuple[str, str]:
        """State and error of a run."""
        answer = await self._client.post("/api/executions", json={"playbook": playbook}, headers=self._headers)
        assert answer.status_code == 201, answer.text
        path = f"/api/executions/{answer.json()['execution_id']}"
        async with asyncio.timeout(PATIENCE_S):
            while not (await self._ask(f"{path}/head", until="ended", timeout_s=5))["ended"]:
                pass
        summary = await self._ask(path)
        return summary["state"], json.dumps(summary.get("error"))

    async def _ask(self, path: str, **params: Any) -> Any:
        answer = await self._client.get(path, params=params, headers=self._headers)
        assert answer.status_code == 200, answer.text
        return answer.json()


@asynccontextmanager
async def started(*words: str, cwd: Path, log: Path, **variables: str) -> AsyncIterator[str]:
    """A command of arclog in a process of its own, and its first line."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
    environment = {**clean, "HOME": str(cwd), **variables}
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *ARCLOG, *words, cwd=cwd, env=environment, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode()
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), PATIENCE_S)


@asynccontextmanager
async def site(kind: str, operator: Path, **variables: str) -> AsyncIterator[Site]:
    """`kind`: worker (`arclog server`, and a worker in the operator's home folder), up (`arclog up` for others), own (`arclog up`
    on loopback).
    """
    log = operator.parent / "log"
    keys = {} if kind == "own" else await keys_of(operator / ".arclog", CALLERS)
    async with AsyncExitStack() as stack:
        if kind == "worker":
            server = await stack.enter_async_context(
                started("server", "--port", "0", "--json", cwd=operator, log=log, **variables)
            )
            url = json.loads(server)["url"]
            more = {"ARCLOG_SERVER": url, "ARCLOG_TOKEN": keys["worker"], **variables}
            worker = started("worker", "--home", str(operator / ".arclog" / "w"), cwd=operator, log=log, **more)
            assert "serves" in await stack.enter_async_context(worker), log.read_text()
        else:
            port = free_port()
            host = "127.0.0.1" if kind == "own" else "0.0.0.0"
            up = started("up", "--host", host, "--port", str(port), "--json", cwd=operator, log=log, **variables)
            assert json.loads(await stack.enter_async_context(up)), log.read_text()
            url = f"http://127.0.0.1:{port}"
        client = httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S, trust_env=False, verify=False)
        yield Site(await stack.enter_async_context(client), keys.get("engineer", ""))


@pytest.mark.parametrize("kind", ["worker", "up"])
async def test_tasks_of_others_open_no_file_of_the_operator(operator: Path, kind: str) -> None:
    async with site(kind, operator) as server:
        for place in ("", f"{operator}/"):
            for file in MADE:
                state, error = await server.run(playbook_of(file, place))
                assert state == "FAILED", (file, place)
                assert "object.file_root" in error, (file, place, error)
                assert files_in(operator) == set(), (file, place)
        # What needs no file works.
        for tool in (
            {"kind": "sqlite", "database": ":memory:", "command": "SELECT 1 AS one"},
            {"kind": "duckdb", "command": "SELECT 1 AS one"},
        ):
            body = json.dumps({"metadata": {"name": "a"}, "workflow": [{"step": "start", "tool": tool}]})
            assert await server.run(body) == ("COMPLETED", "null")


@pytest.mark.parametrize("kind", ["worker", "up"])
async def test_tasks_of_others_share_the_folder_that_the_operator_names(operator: Path, kind: str) -> None:
    (operator / "files").mkdir()
    async with site(kind, operator, ARCLOG_OBJECT_FILE_ROOT="~/files") as server:
        for place in ("", f"{operator}/files/absolute-"):
            for file in MADE:
                if place and file.startswith(".ssh"):
                    continue
                assert await server.run(playbook_of(file, place)) == ("COMPLETED", "null"), (file, place)
                assert (operator / "files" / f"{place.rpartition('/')[2]}{file}").exists(), (file, place)
        for file in MADE:
            state, error = await server.run(playbook_of(file, "../"))
            # In place of the folder for temporary files, where tests are, DuckDB's process has one of its own.
            assert state == "FAILED" or file == "copied.csv", (file, error)
            assert files_in(operator) == set(), file


async def test_arclog_up_on_loopback_uses_the_folder_where_it_was_started(operator: Path) -> None:
    async with site("own", operator) as server:
        for file in MADE:
            assert await server.run(playbook_of(file)) == ("COMPLETED", "null"), file
            assert file in files_in(operator)


async def test_arclog_run_uses_the_folder_where_it_was_started(operator: Path) -> None:
    for file in MADE:
        (operator.parent / "p.yaml").write_text(playbook_of(file))
        async with started("run", "../p.yaml", "--json", cwd=operator, log=operator.parent / "log") as line:
            assert "COMPLETED" in line or json.loads(line), line
        assert file in files_in(operator), (operator.parent / "log").read_text()
