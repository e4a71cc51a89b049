"""examples/foreign_worker.py as people run it: a program of its own, without arclog and without packages, at a server with keys."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import httpx2
import pytest

from tests.integration.server.callers import Caller, bearer, keys_of
from tests.servers.arclog import RunningServer, running

EXAMPLE = Path(__file__).parents[2] / "examples" / "foreign_worker.py"
CALLERS = [
    Caller("engineer", "engineer"),
    Caller("admin", "admin"),
    Caller("worker", "worker"),
    Caller("other", "worker"),
]
PATIENCE_S = 60


class Site:
    """A server with keys, and foreign workers as processes."""

    def __init__(self, server: RunningServer, client: httpx2.AsyncClient, keys: dict[str, str], folder: Path) -> None:
        self.server = server
        self.client = client
        self.keys = keys
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        #: processes of tasks whose worker was killed
        self.left_behind: list[int] = []

    def work(self, caller: str = "worker", url: str = "", name: str = "w") -> subprocess.Popen[bytes]:
        # -I -S: neither this project nor any installed package can be imported.
        command = [sys.executable, "-I", "-S", str(EXAMPLE), "--server", url or self.server.url, "--worker-id", name]
        environment = {"PATH": os.environ["PATH"], "ARCLOG_TOKEN": self.keys[caller]}
        process = subprocess.Popen(command, cwd=self.folder, env=environment, start_new_session=True)
        self.processes.append(process)
        return process

    async def ask(self, caller: str, method: str, path: str, **more: Any) -> Any:
        answer = await self.client.request(method, path, headers=bearer(self.keys[caller]), **more)
        assert answer.status_code < 300, answer.text
        return answer.json()

    async def start(self, playbook: str) -> str:
        execution_id: str = (await self.ask("engineer", "POST", "/api/executions", json={"playbook": playbook}))[
            "execution_id"
        ]
        return execution_id

    async def log(self, execution_id: str, *types: str) -> list[dict[str, Any]]:
        params = {"limit": 1000, "type": list(types)}
        events: list[dict[str, Any]] = (
            await self.ask("engineer", "GET", f"/api/executions/{execution_id}/events", params=params)
        )["events"]
        return events

    async def ended(self, execution_id: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            path = f"/api/executions/{execution_id}/head"
            while not (await self.ask("engineer", "GET", path, params={"until": "ended", "timeout_s": 5}))["ended"]:
                pass
        answer: dict[str, Any] = await self.ask("engineer", "GET", f"/api/executions/{execution_id}")
        return answer

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        codes = [process.wait(PATIENCE_S) for process in self.processes]
        for number in self.left_behind:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        assert {*codes} <= {0, 1, -signal.SIGKILL}, "a worker that is told to stop ends by itself"


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[Site]:
    home = folder / "home"
    keys = await keys_of(home, CALLERS)
    values = {"leases.seconds": 1.0, "engine.sweep_s": 0.05, **settings}
    async with running(home, worker=False, **values) as server, server.client() as client:
        site = Site(server, client, keys, folder)
        try:
            yield site
        finally:
            await asyncio.to_thread(site.close)


@pytest.fixture
def example() -> ModuleType:
    """The program as a module, to send what it would not send by itself."""
    spec = importlib.util.spec_from_file_location("foreign_worker", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_needs_nothing_but_python() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(EXAMPLE), "--help"], capture_output=True, check=True, text=True
    )
    assert "--worker-id" in done.stdout
    imported = [line.split()[1] for line in EXAMPLE.read_text().splitlines() if line.startswith(("import ", "from "))]
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names}


# -- killed and restarted ---------------------------------------------------------------------------------------------

#: A task for which the folder has a pipe hangs at its first attempt, after it has said so, and goes through at the next.
STEP = """
  - step: {name}
    tool:
      kind: shell
      command: "[ -p hang-{name} ] && mv hang-{name} hung-{name} && echo $$ > hung-{name} && exec sleep 600; echo {number}"
    next: {{arcs: [{{step: {after}}}]}}
"""
NAMES = ("one", "two", "three", "four")
FIVE = f"""
metadata: {{name: five, path: flows/five}}
executor: {{spec: {{result: "{{{{ one.data ~ two.data ~ three.data ~ four.data ~ five.data }}}}"}}}}
workflow:
{"".join(STEP.format(name=NAMES[n], number=n + 1, after=(*NAMES, "five")[n + 1]) for n in range(4))}
  - {{step: five, tool: {{kind: shell, command: echo 5}}}}
"""


async def test_a_playbook_of_five_steps_ends_while_its_worker_is_killed_and_restarted(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        for name in ("two", "four"):
            os.mkfifo(tmp_path / f"hang-{name}")
        hanging = {name: os.open(tmp_path / f"hang-{name}", os.O_RDWR) for name in ("two", "four")}
        execution_id = await site.start(FIVE)
        for pipe in hanging.values():
            worker = site.work()
            site.left_behind.append(int(await asyncio.to_thread(os.read, pipe, 100)))
            os.close(pipe)
            os.killpg(worker.pid, signal.SIGKILL)
            await asyncio.to_thread(worker.wait)
        site.work()
        summary = await site.ended(execution_id)
        assert (summary["state"], summary["result"]) == ("COMPLETED", "12345")
        log = await site.log(execution_id)
        types = [event["event_type"] for event in log]
        assert (types.count("step.done"), types.count("task.started"), types.count("task.done")) == (5, 5, 5)
        lost = [event for event in log if event["event_type"] == "command.issued"]
        assert [(reissued["step"], reissued["payload"]["reason"]) for reissued in lost] == [
            ("two", "lease_lost"),
            ("four", "lease_lost"),
        ]
        assert "command.refused" not in types
        holders = {event["worker_id"] for event in log if event["event_type"] == "task.done" and "worker_id" in event}
        assert holders
        assert all(name.startswith("w@acme/key-") for name in holders)


# -- every outcome ----------------------------------------------------------------------------------------------------

OUTCOMES = """
metadata: {name: outcomes, path: flows/outcomes}
workload: {base: ""}
executor: {spec: {result: "{{ {'total': collect.data, 'flaky': ctx.tries, 'size': large.data.size} }}"}}
workflow:
  - step: start
    tool: {kind: noop, data: {numbers: [1, 2, 3]}}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ start.data.numbers }}", iterator: n}
    tool: {kind: shell, command: [sh, -c, 'echo $(($0 * 10))', "{{ iter.n }}"], parse: json}
    next: {arcs: [{step: collect}]}
  - step: collect
    tool: {kind: noop, data: "{{ each.results | sum }}"}
    next: {arcs: [{step: flaky}]}
  - step: flaky
    tool:
      kind: shell
      command: "echo x >> tries; [ $(wc -l < tries) -ge 3 ] || { echo not yet >&2; exit 7; }; echo done"
      spec:
        policy:
          rules:
            - {when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 5, delay: 0.01}}
            - else: {then: {do: continue, set_ctx: {tries: "{{ _attempt }}"}}}
    next: {arcs: [{step: large}]}
  - step: large
    tool: {kind: shell, command: [sh, -c, 'head -c 200000 /dev/zero | tr "\\\\0" x | sed "s/.*/{\\"size\\": 7, \\"text\\": \\"&\\"}/"'], parse: json}
    next: {arcs: [{step: fails, when: "{{ outcome.data.size == 7 }}"}]}
  - step: fails
    tool: {kind: shell, command: "echo no luck >&2; exit 3"}
    next: {arcs: [{step: breaks, when: "{{ event.name == 'step.failed' }}"}]}
  - step: breaks
    tool: {kind: shell, command: []}
    next: {arcs: [{step: nap, when: "{{ event.name == 'step.failed' }}"}]}
  - step: nap
    tool: [{name: wait, kind: wait, for_s: 0.01}, {name: after, kind: noop}]
"""


async def test_it_runs_a_playbook_with_every_kind_of_outcome(tmp_path: Path) -> None:
    async with opened(tmp_path, **{"leases.max_losses": 2}) as site:
        site.work()
        execution_id = await site.start(OUTCOMES)
        summary = await site.ended(execution_id)
        assert (summary["state"], summary["result"]) == ("COMPLETED", {"total": 60, "flaky": 3, "size": 7})
        log = await site.log(execution_id)
        failed = {event["step"]: event["payload"]["error"] for event in log if event["event_type"] == "step.failed"}
        assert (failed["fails"]["kind"], failed["fails"]["message"]) == ("exception", "exit code 3: no luck")
        assert failed["breaks"]["kind"] == "poison", "its worker gave the command up twice"
        assert "IndexError" in failed["breaks"]["message"]
        (stored,) = [event for event in log if event["event_type"] == "result.stored"]
        ref = stored["payload"]["result_ref"]
        content = await site.ask("engineer", "GET", "/api/result/resolve", params={"ref": ref["ref"]})
        assert (ref["kind"], len(content["text"])) == ("result_ref", 200_000)
        attempts = [event["attempt"] for event in log if event["event_type"] == "task.attempt.failed"]
        assert attempts == [1, 2]
        assert not [event for event in log if event["event_type"] == "command.refused"]


# -- late, repeated, out of order -------------------------------------------------------------------------------------


class Forgetful:
    """Stands before a server and lets the first answer to every event be lost on its way."""

    def __init__(self, url: str) -> None:
        self.lost: set[bytes] = set()
        forgetful = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = urllib.request.Request(url + self.path, body, dict(self.headers.items()), method="POST")
                try:
                    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                        status, content = answer.status, answer.read()
                except urllib.error.HTTPError as problem:
                    status, content = problem.code, problem.read()
                if self.path == "/api/events" and body not in forgetful.lost:
                    forgetful.lost.add(body)
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None: ...

            def finish(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().finish()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


async def test_every_event_may_be_sent_twice(tmp_path: Path) -> None:
    async with opened(tmp_path, **{"leases.seconds": 30.0}) as site:
        with Forgetful(site.server.url) as between:
            site.work(url=between.url)
            execution_id = await site.start(FIVE)
            summary = await site.ended(execution_id)
            assert summary["result"] == "12345"
            await asyncio.to_thread(site.close)
            assert len(between.lost) == 20, "four events of each step, and each of them was sent again"
        types = [event["event_type"] for event in await site.log(execution_id)]
        assert [types.count(name) for name in ("step.started", "task.started", "task.done", "step.done")] == [
            5,
            5,
            5,
            5,
        ]


async def claimed(site: Site, example: ModuleType, caller: str) -> Any:
    """A command in the hands of a key, as the program holds it."""
    server = example.Server(site.server.url, site.keys[caller])
    worker = example.Worker(server, "w", ["default"])
    claim = {"worker": worker.info, "limit": 1, "wait_s": 10, "form": "wire"}
    commands = (await asyncio.to_thread(server.post, "/api/worker/claim", claim))["commands"]
    return example.Command(server, "w", commands[0])


async def test_another_key_is_refused_and_late_or_early_reports_change_nothing(
    tmp_path: Path, example: ModuleType
) -> None:
    async with opened(tmp_path, **{"leases.seconds": 30.0}) as site:
        execution_id = await site.start(FIVE)
        mine = await claimed(site, example, "worker")
        stranger = example.Command(example.Server(site.server.url, site.keys["other"]), "w", mine.about)
        for event_type in ("step.enter", "call.done", "step.exit", "command.failed"):
            with pytest.raises(example.CommandOver, match="409"):
                await asyncio.to_thread(stranger.report, event_type)
        audit = await site.ask("admin", "GET", "/api/audit", params={"decision": "denied"})
        assert [(entry["principal"], entry["route"]) for entry in audit["entries"]] == [("other", "/api/events")] * 4
        # Out of order: a task's end before its start.
        await asyncio.to_thread(mine.report, "step.enter")
        with pytest.raises(example.Refused, match="422"):
            await asyncio.to_thread(mine.report, "call.done", payload=1)
        (refused,) = await site.log(execution_id, "command.refused")
        assert "has not started" in refused["payload"]["reason"]
        # Given up, and taken by somebody else: what comes late is refused.
        with pytest.raises(example.CommandOver):
            await asyncio.to_thread(mine.report, "command.failed", payload={"error": "let another one try"})
        other = await claimed(site, example, "other")
        assert (other.about["command_id"], other.about["fence"]) == (mine.about["command_id"], 2)
        with pytest.raises(example.CommandOver, match="409"):
            await asyncio.to_thread(mine.report, "call.done", payload=1)
        # Cancelled: the holder hears that it is over, and what it says is recorded.
        await site.ask("engineer", "POST", f"/api/executions/{execution_id}/cancel", json={"reason": "enough"})
        with pytest.raises(example.CommandOver, match="last report"):
            await asyncio.to_thread(other.report, "task.started")
        late = (await site.log(execution_id))[-1]
        assert (late["event_type"], late["informative"], late["source"]) == ("task.started", True, "worker")
        assert (await site.ended(execution_id))["state"] == "CANCELLED"


async def test_a_key_that_may_not_work_is_told_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as site:
        done = site.work("engineer")
        assert await asyncio.to_thread(done.wait, 30) == 1
