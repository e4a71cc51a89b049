"""Where tasks run, as people meet it: `arclog run` works where they stand, a server in folders of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.test_cli import arclog, summary_of
from tests.e2e.test_up import up
from tests.integration.server.test_executions import ended, started

FILES = f"""
metadata: {{name: files}}
executor: {{spec: {{result: "{{{{ [write.data, read.stdout, inside.stdout] }}}}"}}}}
workflow:
  - step: write
    tool:
      kind: python
      code: |
        import os
        with open("x.csv", "w") as file:
            file.write("a,b")
        result = os.getcwd()
    next: {{arcs: [{{step: read}}]}}
  - step: read
    tool: {{kind: shell, command: 'cat x.csv || echo none'}}
    next: {{arcs: [{{step: inside}}]}}
  - step: inside
    tool: {{kind: shell, check: false, command: ["{sys.executable}", -m, arclog.cli.main, run, none.yaml]}}
"""


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ARCLOG_"):
            monkeypatch.delenv(name)
    return tmp_path


def is_there(path: str) -> bool:
    return Path(path).exists()


def test_arclog_run_works_where_it_was_started(where: Path) -> None:
    (where / "files.yaml").write_text(FILES)
    folder, text, _ = summary_of("run", "files.yaml")["result"]
    assert (folder, text) == (str(where), "a,b")
    assert (where / "x.csv").read_text() == "a,b"


def test_arclog_can_be_called_from_a_task(where: Path) -> None:
    """What tasks find in their environment is not an unknown setting."""
    (where / "none.yaml").write_text("metadata: {name: none}\nworkflow: [{step: start, tool: {kind: noop}}]\n")
    (where / "files.yaml").write_text(FILES)
    assert "none" in summary_of("run", "files.yaml")["result"][2]


def test_a_folder_that_is_not_there(where: Path) -> None:
    (where / "files.yaml").write_text(FILES)
    done = arclog("run", "files.yaml", ARCLOG_WORKER_WORKDIR="nowhere")
    assert done.returncode != 0
    assert "worker.workdir: there is no folder" in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_servers_worker_gives_each_task_a_folder(where: Path) -> None:
    server = await up(where / "home")
    try:
        async with server.client() as client:
            summary = await ended(client, await started(client, playbook=FILES))
        assert summary["state"] == "COMPLETED"
        folder, text, _ = summary["result"]
        assert text == "none\n"
        assert folder != str(where)
        assert not is_there(folder)
        assert not is_there(f"{where}/x.csv")
    finally:
        await server.stopped(signal.SIGKILL)


ASKS = """
metadata: {name: asks}
workload: {url: ""}
workflow:
  - step: start
    tool:
      kind: python
      args: {url: "{{ workload.url }}"}
      code: |
        from urllib.request import urlopen
        result = urlopen(url + "/health").status
"""


@pytest.mark.parametrize("networks", ["", "none"])
async def test_tasks_of_a_server_on_this_machine_have_the_network_unless_it_is_taken(
    where: Path, monkeypatch: pytest.MonkeyPatch, networks: str
) -> None:
    if networks:
        monkeypatch.setenv("ARCLOG_TASKS_ALLOW_NETWORKS", networks)
    server = await up(where / "home")
    try:
        async with server.client() as client:
            workload = {"url": str(client.base_url).rstrip("/")}
            summary = await ended(client, await started(client, playbook=ASKS, workload=workload))
        if networks:
            assert "confined tasks have no network here (setting tasks.allow_networks)" in summary["error"]["message"]
        else:
            assert (summary["state"], summary["result"]) == ("COMPLETED", 200)
    finally:
        await server.stopped(signal.SIGKILL)
