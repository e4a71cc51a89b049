"""A real server in a process of its own, and runs to look at on it: failed ones, stuck ones, ones that wait for somebody."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx2

from arclog.plan import net
from tests.integration.server.callers import make_keys

_PATIENCE_S = 60
#: A name that would run as code wherever a page takes text for markup.
EVIL = "</script><img src=x onerror=window.hacked=1>"

HELLO = """\
metadata: {name: hello, path: examples/hello}
workload: {name: world}
workflow:
  - step: start
    tool: {kind: noop, data: {text: "hello {{ workload.name }}"}}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: "{{ start.text }}"}
"""
ORDERS = """\
metadata: {name: nightly-orders, path: shop/nightly-orders}
workload: {fail: true, pause: 0}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: fetch}]}
  - step: fetch
    loop: {in: [eu, us, asia], iterator: region}
    tool:
      - name: get
        kind: python
        args: {region: "{{ iter.region }}", fail: "{{ workload.fail }}"}
        code: |
          if fail and region == "eu":
              raise RuntimeError("503 from api.shop: the upstream did not answer within 5 s")
          result = {"orders": 12}
    next: {arcs: [{step: load}]}
  - step: load
    tool: {kind: noop}
"""
#: A loop whose third item fails after a retry, when all others have ended; a step before it that sets ctx, and an arc that is not taken.
IMPORT = """\
metadata: {name: import-orders, path: shop/import-orders}
workload: {count: 8, bad: 3}
workflow:
  - step: start
    desc: Count what there is to import.
    tool:
      - name: count
        kind: noop
        data: {count: "{{ workload.count }}"}
        spec:
          policy:
            rules:
              - else: {then: {do: continue, set_ctx: {counted: "{{ outcome.data.count }}"}}}
    next: {arcs: [{step: nothing, when: "{{ workload.count == 0 }}"}, {step: fetch}]}
  - step: fetch
    loop: {in: "{{ range(workload.count) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 4}}
    tool:
      - name: get
        kind: python
        args: {n: "{{ iter.n }}", bad: "{{ workload.bad }}"}
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' }}"
                then: {do: retry, attempts: 2, delay: 2}
              - else: {then: {do: continue}}
        code: |
          print("order", n)
          if n == bad:
              raise ValueError("order 3 has no total")
          result = {"total": n}
    next: {arcs: [{step: load}]}
  - step: load
    tool: {kind: noop}
  - step: nothing
    tool: {kind: noop}
"""
PARENT = """\
metadata: {name: all-orders, path: shop/all-orders}
workflow:
  - step: call
    tool: {kind: playbook, path: shop/import-orders, args: {count: 2, bad: -1}}
"""
REPORT = """\
metadata: {name: weekly-report, path: finance/weekly-report}
workflow:
  - step: collect
    tool: {kind: shell, command: "echo 'relation \\"invoices\\" does not exist' >&2; exit 3"}
"""
SHIP = """\
metadata: {name: ship-order, path: shop/ship-order}
workflow:
  - step: check
    tool: {kind: noop}
    next: {arcs: [{step: ship}]}
  - step: ship
    tool: {name: ask, kind: approval, prompt: "Ship order 17 to Lisbon for 249 EUR?"}
    next: {arcs: [{step: done}]}
  - step: done
    tool: {kind: noop}
"""
GUARDED = """\
metadata: {name: drop-tenant, path: ops/drop-tenant}
executor: {spec: {policy: {approval: required}}}
workflow:
  - step: start
    tool: {kind: noop}
"""
GPU = """\
metadata: {name: resize-images, path: media/resize-images}
workflow:
  - step: resize
    spec: {pool: gpu}
    tool: {kind: python, code: "result = 1"}
"""
WAIT = """\
metadata: {name: sync-inventory, path: shop/sync-inventory}
workflow:
  - step: poll
    tool: {kind: wait, signal: go}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop}
"""

#: Items of a run with 50,000 events.
LARGE_ITEMS = 10_000


def large(items: int = LARGE_ITEMS) -> str:
    """A loop of five events an item, whose tenth item from the end fails."""
    return f"""\
metadata: {{name: large, path: load/large}}
workflow:
  - step: start
    tool: {{kind: noop}}
    next: {{arcs: [{{step: each}}]}}
  - step: each
    loop: {{in: "{{{{ range({items}) | list }}}}", iterator: n, spec: {{mode: parallel, max_in_flight: 8}}}}
    tool:
      name: take
      kind: noop
      data: "{{{{ iter.n }}}}"
      spec:
        policy:
          rules:
            - when: "{{{{ iter.n == {items - 10} }}}}"
              then: {{do: fail, message: "item {items - 10} is bad"}}
            - else: {{then: {{do: continue}}}}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool: {{kind: noop}}
"""


def evil(name: str = EVIL) -> str:
    """A playbook whose name, prompt and error are markup."""
    return json.dumps(
        {
            "metadata": {"name": name, "path": "evil/evil"},
            "workflow": [
                {"step": "start", "tool": {"kind": "python", "code": f"raise RuntimeError({name!r})"}},
            ],
        }
    )


def rewritten(archive: bytes, change: Callable[[str, bytes], bytes]) -> bytes:
    """An exported run whose parts another program has changed, with checksums that fit. `change` gets name and content of a part."""
    with zipfile.ZipFile(BytesIO(archive)) as before:
        parts = {name: before.read(name) for name in before.namelist()}
    manifest = json.loads(parts["manifest.json"])
    for part in manifest["parts"]:
        body = parts[part["name"]] = change(part["name"], parts[part["name"]])
        part["sha256"], part["bytes"] = hashlib.sha256(body).hexdigest(), len(body)
        if part["name"] == "plan.json":
            manifest["plan"] = net.digest(body)
    parts["manifest.json"] = json.dumps(manifest).encode()
    parts["manifest.sha256"] = hashlib.sha256(parts["manifest.json"]).hexdigest().encode()
    target = BytesIO()
    with zipfile.ZipFile(target, "w") as after:
        for name, body in parts.items():
            after.writestr(name, body)
    return target.getvalue()


class Server:
    """`arclog up` in a process of its own. It can be killed, and started again at the same address."""

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        self._env = {
            **os.environ,
            "ARCLOG_HOME": str(home),
            "ARCLOG_SERVER_LOG_LEVEL": "error",
            "ARCLOG_OVERVIEW_STUCK_S": "0",
            **{f"ARCLOG_{name.replace('.', '_').upper()}": value for name, value in settings.items()},
        }
        self.url = ""
        self._port = "0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = (sys.executable, "-m", "arclog.cli.main", "up", "--port", self._port, "--json")
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=self._env)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the server did not start"
        self.url = json.loads(line)["url"]
        self._port = self.url.rpartition(":")[2]

    def kill(self) -> None:
        """Without a word to anybody."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._ended()

    def _ended(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.wait(_PATIENCE_S)
        self._process.stdout.close()

    def client(self, **more: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, trust_env=False, verify=False, timeout=_PATIENCE_S, **more)

    def run(self, playbook: str, *, until: str = "ended", **workload: Any) -> str:
        """Start a run; its id once it has ended, or (`until` is a type of event) once that has happened."""
        with self.client() as client:
            answer = client.post("/api/executions", json={"playbook": playbook, "workload": workload})
            answer.raise_for_status()
            execution_id: str = answer.json()["execution_id"]
            if until == "ended":
                client.get(f"/api/executions/{execution_id}/head", params={"until": "ended", "timeout_s": _PATIENCE_S})
            elif until:
                self.wait_for(execution_id, until)
            return execution_id

    def wait_for(self, execution_id: str, event_type: str, count: int = 1) -> None:
        """Until the run has so many events of a type."""
        deadline, head = time.monotonic() + _PATIENCE_S, 0
        with self.client() as client:
            while time.monotonic() < deadline:
                body = client.get(f"/api/executions/{execution_id}/events", params={"type": event_type}).json()
                if len(body["events"]) >= count:
                    return
                params = {"after": head, "timeout_s": 5}
                head = client.get(f"/api/executions/{execution_id}/head", params=params).json()["head"]
        raise AssertionError(f"no {event_type} came in {execution_id}")

    def steps(self, execution_id: str) -> int:
        """Step runs of a run so far."""
        with self.client() as client:
            steps = client.get(f"/api/executions/{execution_id}").json()["steps"]
        return sum(step["runs"] for step in steps.values())

    def cpu_share(self, seconds: float) -> float:
        """How much of a core the server's process takes, over so many seconds."""
        assert self._process is not None
        before, begun = _cpu_s(self._process.pid), time.monotonic()
        time.sleep(seconds)
        return (_cpu_s(self._process.pid) - before) / (time.monotonic() - begun)

    def signal(self, execution_id: str, name: str, **more: Any) -> None:
        with self.client() as client:
            body = {"signal": name, **more}
            client.post(f"/api/executions/{execution_id}/signal", json=body).raise_for_status()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def crowded(home: Path, count: int = 100_000) -> Iterator[Server]:
    """A server with many runs, put straight into its store."""
    import apsw

    with server(home) as empty:
        first = int(empty.run(HELLO))
    connection = apsw.Connection(str(home / "arclog.db"))
    names = [row[1] for row in connection.execute("PRAGMA table_info(executions)")]
    columns = ", ".join(names)
    taken = {
        "execution_id": f"{first} - n",
        "run_id": "'r' || n",
        "path": "'flows/p' || (n % 50)",
        "name": "'flow-' || (n % 50)",
    }
    values = ", ".join(taken.get(name, name) for name in names)
    connection.execute(
        f"INSERT INTO executions ({columns}) SELECT {values} FROM executions, "
        f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) SELECT n FROM c)"
    )
    connection.close()
    with server(home) as filled:
        yield filled


def keys(home: Path, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """API keys for each (tenant, role), made before the server starts. In a thread: Playwright has the loop of this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(make_keys(home, wanted))).result()


@contextmanager
def server(home: Path, **settings: str) -> Iterator[Server]:
    server = Server(home, **settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def furnish(server: Server, *, completed: int = 6, markup: bool = True) -> dict[str, str]:
    """Something of everything; ids by name. `markup`: also a run whose name is markup."""
    made: dict[str, str] = {}
    for _ in range(completed):
        made["hello"] = server.run(HELLO)
    made["good"] = server.run(ORDERS, fail=False)
    for _ in range(3):
        made["orders"] = server.run(ORDERS)
    made["report"] = server.run(REPORT)
    made["import"] = server.run(IMPORT)
    with server.client() as client:
        client.post("/api/catalog", json={"playbook": IMPORT}).raise_for_status()
        client.post("/api/catalog", json={"playbook": ORDERS}).raise_for_status()
    made["parent"] = server.run(PARENT)
    if markup:
        made["evil"] = server.run(evil())
    made["ship"] = server.run(SHIP, until="command.completed")
    made["guarded"] = server.run(GUARDED, until="playbook.request.evaluated")
    made["gpu"] = server.run(GPU, until="step.scheduled")
    made["wait"] = server.run(WAIT, until="command.completed")
    cancelled = server.run(WAIT, until="command.completed")
    server.signal(cancelled, "CANCEL", reason="wrong warehouse")
    made["cancelled"] = cancelled
    with server.client() as client:
        for name, cron, path in (
            ("orders-nightly", "0 2 * * *", "shop/nightly-orders"),
            ("report-weekly", "30 6 * * 1", "finance/weekly-report"),
            ("hello-hourly", "0 * * * *", "examples/hello"),
        ):
            client.post("/api/schedules", json={"name": name, "cron": cron, "path": path}).raise_for_status()
    return made
