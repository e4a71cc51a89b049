"""Where attacks are carried out: a real server with two tenants, something to steal, and a watch over what it suffers.

The watch asks for `/health` and lets the other tenant run something all the time: both must be answered, and every run must
complete. A server that takes more memory than it may have is killed, as the kernel would do it, and started again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from tests.security.cage import Cage
from tests.security.names import Names

ROOT = Path(__file__).parents[2]
CANARY = "canary-2c81e6f0"
#: A number that is a secret; written so that no id or time holds it.
NUMBER = "7730915"
#: Most memory of the server.
MOST_BYTES = 1 << 30
#: Longest that `/health` may take while an attack is under way, the other tenant's run, and one of the attacker's, on a machine that is
#: not overloaded.
STALL_S = 5.0
DELAY_S = 15.0
RUN_S = 60.0
NOOP = "metadata: {name: neighbour}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
#: An address of its own that http tasks may reach, and one that they may not.
ALLOWED, FORBIDDEN = "127.0.0.2", "127.0.0.1"
#: Where the name server of the attacker answers: an address for each process, since all of them need the same port.
NAMES = f"127.53.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
SETTINGS = {
    "http.allow_networks": f"{ALLOWED}/32",
    "network.allow_networks": "none",
    "postgres.allow_networks": f"{ALLOWED}/32",
    "tasks.allow_networks": "none",
    "tasks.max_memory_bytes": 1 << 30,
    "python.build_networks": "public",
    "python.offline": True,
    "server.max_concurrent": 200,
    "auth.max_failures": 100_000,
}


def overload() -> float:
    """How many times longer things take than on a machine with two processes for each core."""
    return max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


def health_problem(client: httpx2.Client, url: str, *, path: str = "/health") -> str:
    """What was wrong with the server's answer; '' when nothing was."""
    try:
        answer = client.get(f"{url}{path}")
    except httpx2.HTTPError as problem:
        return f"{path} was not answered: {type(problem).__name__} {problem}".rstrip()
    return "" if answer.status_code == 200 else f"{path} was answered with HTTP {answer.status_code}"


def neighbour_problem(client: httpx2.Client, url: str, key: str, most_s: float) -> str:
    """Start a run of the other tenant and wait for its end. What was wrong with it; '' when it completed within `most_s`."""
    headers = {"authorization": f"Bearer {key}"}
    runs, end = f"{url}/api/executions", time.monotonic() + most_s
    doing = "started"
    try:
        answer = client.post(runs, json={"playbook": NOOP}, headers=headers)
        if answer.status_code != 201:
            return f"a run of the other tenant was refused: HTTP {answer.status_code} {answer.text[:100]}".rstrip()
        run = f"{runs}/{answer.json()['execution_id']}"
        doing = "followed"
        while (left_s := end - time.monotonic()) > 0:
            until: dict[str, str | float] = {"until": "ended", "timeout_s": min(left_s, 20)}
            answer = client.get(f"{run}/head", params=until, headers=headers)
            if answer.status_code != 200:
                return f"a run of the other tenant could not be followed: HTTP {answer.status_code} {answer.text[:100]}".rstrip()
            if answer.json().get("ended"):
                answer = client.get(run, headers=headers)
                summary = answer.json() if answer.status_code == 200 else {"state": f"HTTP {answer.status_code}"}
                state = summary.get("state") or summary.get("status")
                return "" if state == "COMPLETED" else f"a run of the other tenant ended as {state}"
    except (httpx2.HTTPError, KeyError, ValueError) as problem:
        return f"a run of the other tenant could not be {doing}: {type(problem).__name__} {problem}".rstrip()
    return f"a run of the other tenant did not end within {most_s:.0f} s"


def _send_endlessly(connection: socket.socket, status: int) -> None:
    """Send a body until the other side has had enough."""
    connection.sendall(f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n".encode())
    while True:
        connection.sendall(b"<a>" * 21_845)


def _log_in_endlessly(connection: socket.socket) -> None:
    """Speak PostgreSQL's protocol: accept the login, and send a notice that has no end."""
    connection.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")
    connection.recv(65536)
    connection.sendall(b"N\x3f\0\0\0")
    while True:
        connection.sendall(b"x" * 65_536)


class Trap:
    """A server that nothing may reach (on the address that is forbidden); on the one that is allowed it redirects there."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        #: how often it was reached where it may be
        self.allowed = 0
        self._closed = False
        self._servers = [socket.create_server((FORBIDDEN, 0))]
        self.port: int = self._servers[0].getsockname()[1]
        self._servers.append(socket.create_server((ALLOWED, self.port)))
        with suppress(OSError):
            self._servers.append(socket.create_server(("::1", self.port), family=socket.AF_INET6))
        for server in self._servers:
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    def _serve(self, server: socket.socket) -> None:
        while not self._closed:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(5)
                head = connection.recv(65536).decode("latin-1")
                if connection.getsockname()[0] == ALLOWED:
                    self.allowed += 1
                    if "\0endless\0" in head:
                        _log_in_endlessly(connection)
                    if "/endless" in head.partition("\r\n")[0]:
                        _send_endlessly(connection, 400 if "/endless/error" in head else 200)
                        continue
                    code = head.partition("/redirect/")[2][:3] or "302"
                    where = f"http://{FORBIDDEN}:{self.port}/metadata"
                    connection.sendall(
                        f"HTTP/1.1 {code} Found\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode()
                    )
                else:
                    self.reached.append(head.partition("\r\n")[0])
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    def close(self) -> None:
        self._closed = True
        for server in self._servers:
            server.close()


class Site:
    """The server, its keys, and the watch."""

    def __init__(self, tree: Path = ROOT, cage: Cage | None = None) -> None:
        """`cage` bounds the memory of the server with all its processes; without one, the server's own is watched."""
        self.tree = tree
        self._cage = cage
        self.folder = Path(tempfile.mkdtemp(prefix="arclog-attacked-"))
        self.home = self.folder / "site" / ".arclog"
        self.home.parent.mkdir()
        (self.folder / "data").mkdir()
        self.keys: dict[tuple[str, str], str] = {}
        self.url = ""
        self.trap = Trap()
        #: an attacker's name server, which the server asks; only root can do that
        self.names = Names(NAMES, ALLOWED, FORBIDDEN) if os.geteuid() == 0 else None
        self._key_file = self.folder / "other.key"
        self._key_file.write_text(CANARY)
        self._key_file.chmod(0o600)
        self._sockets = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        for server, address in zip(self._sockets, (f"\0{self.folder.name}", str(self.folder / "socket")), strict=True):
            server.bind(address)
            server.listen()
        self._shared = Path("/dev/shm", self.folder.name)
        self._shared.write_text(CANARY)
        self._setuid = self.folder / "id"
        shutil.copy("/usr/bin/id", self._setuid)
        self._setuid.chmod(0o4755)
        self._process: subprocess.Popen[str] | None = None
        self._done = threading.Event()
        #: what the server suffered since it was looked at last
        self._harm: dict[str, float] = {}
        #: the first thing that each part of the watch found wrong since then
        self._problems: dict[str, str] = {}
        #: of the server that answers now; None while it is stopped or started
        self._serving: object | None = None
        #: how many runs of the neighbour were begun, and how many of them were looked at to their end
        self._begun = self._ended = 0
        self._clients: dict[tuple[str, str], httpx2.Client] = {}
        assert self.start(), (self.folder / "log").read_text()
        self._watch = [
            threading.Thread(target=watch, daemon=True)
            for watch in ((self._watch_health, self._watch_memory, self._watch_neighbour) if cage is None else ())
        ]
        for thread in self._watch:
            thread.start()

    def start(self) -> bool:
        """Start the server; False when it does not come up."""
        own = {
            "object.file_root": str(self.folder / "data"),
            "secrets.key_file": "",
            "python.find_links": str(self.packages),
        }
        settings = {**SETTINGS, **own}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
        environment |= {
            "PYTHONPATH": f"{self.tree / 'src'}{os.pathsep}{ROOT}",
            "CANARY": CANARY,
            "ARCLOG_CANARY": CANARY,
            "NAMES": "" if self.names is None else str(self.names.file),
        }
        self._end()
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.security.target", str(self.home), json.dumps(settings)],
                cwd=self.home.parent,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=None if self._cage is None else self._cage.enter(),  # noqa: PLW1509 - it writes a file, nothing else
            )
        if self._cage is not None:
            self._cage.holds(self._process.pid)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            return False
        answer = json.loads(line)
        self.url = answer["url"]
        self.keys = {(tenant, role): key for tenant, role, key in answer["keys"]}
        self._close_clients()
        self._serving = object()
        return True

    def prey(self) -> dict[str, Any]:
        """What a hostile task looks for, and where it is."""
        listing = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return {
            "canary": CANARY,
            "worker": self.pid,
            "zygotes": [int(number) for number in listing.split()],
            "home": str(self.home),
            "key_file": str(self._key_file),
            "port": self.trap.port,
            "abstract": self.folder.name,
            "socket": str(self.folder / "socket"),
            "shared": self._shared.name,
            "setuid": str(self._setuid),
        }

    @property
    def packages(self) -> Path:
        """The folder of the packages that `requirements` can name."""
        return self.folder / "packages"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def client(self, tenant: str, role: str) -> httpx2.Client:
        """For one caller; `anybody` has no key."""
        client = self._clients.get((tenant, role))
        if client is None:
            headers = {} if tenant == "anybody" else {"authorization": f"Bearer {self.keys[tenant, role]}"}
            client = self._clients[tenant, role] = self.stranger(headers=headers)
        return client

    def stranger(self, **options: Any) -> httpx2.Client:
        """A client of its own, without a key. There is no TLS here, and to load certificates takes 50 ms."""
        return httpx2.Client(**{"base_url": self.url, "timeout": 60.0, "trust_env": False, "verify": False, **options})

    def run(
        self, playbook: str, tenant: str = "mallory", role: str = "engineer", most_s: float | None = None
    ) -> dict[str, Any]:
        """A run to its end: its summary, events and logs; `refused` when it was not taken, `endless` when it takes longer than
        `most_s`; by default, more than any run here takes.
        """
        client = self.client(tenant, role)
        answer = client.post("/api/executions", json={"playbook": playbook})
        if answer.status_code != 201:
            return {"refused": answer.status_code, "text": answer.text}
        run = answer.json()["execution_id"]
        end = time.monotonic() + (RUN_S * overload() if most_s is None else most_s)
        while (
            not client.get(f"/api/executions/{run}/head", params={"until": "ended", "timeout_s": 5}).json().get("ended")
        ):
            if time.monotonic() > end:
                client.post(f"/api/executions/{run}/cancel", json={"reason": "it takes too long"})
                return {"id": run, "endless": True}
        summary = client.get(f"/api/executions/{run}").json()
        events = client.get(f"/api/executions/{run}/events", params={"limit": 1000}).text
        logs = client.get(f"/api/executions/{run}/logs").text
        return {"id": run, "summary": summary, "events": events, "logs": logs}

    def trap_allowed_less_than(self, visits: int) -> bool:
        """Whether the address that is allowed is not reached so often, in some time."""
        end = time.monotonic() + 20
        while self.trap.allowed < visits and time.monotonic() < end:
            time.sleep(0.05)
        return self.trap.allowed < visits

    def harm(self, delay_s: float = DELAY_S) -> str:
        """What the server suffered since this was asked last; '' when nothing. A dead one is started again.

        `delay_s`: longest that a run of the other tenant may take on a machine that is not overloaded.
        """
        messages = []
        self._settle()
        if not self.alive():
            messages.append("the server was killed" if self._harm.get("memory") else "the server died")
            for attempt in range(3):
                if self.start() and self._is_well():
                    break
                messages.append(f"and again after restart {attempt + 1}")
            self._renew()
        harm, self._harm = self._harm, {}
        problems, self._problems = self._problems, {}
        if harm.get("health", 0) > STALL_S * overload():
            messages.append(f"the server stood still for {harm['health']:.0f} s")
        if harm.get("neighbour", 0) > delay_s * overload():
            messages.append(f"a run of the other tenant took {harm['neighbour']:.1f} s")
        return ", ".join([*messages, *problems.values()])

    def wait_for_neighbour(self) -> None:
        """Wait until a run of the other tenant that begins after this call was looked at."""
        self._wait_for_runs(self._begun + 1)

    def _wait_for_runs(self, count: int) -> None:
        end = time.monotonic() + 2 * RUN_S * overload()
        while self._ended < count and time.monotonic() < end:
            time.sleep(0.02)

    def _settle(self) -> None:
        """Wait until the server has got over what was asked of it, or is dead: what it suffers belongs to this attack."""
        with self.stranger(timeout=200) as client:
            for path in ("/health", "/ready"):
                self._look("health", partial(health_problem, client, path=path))
        self._wait_for_runs(self._begun)

    def _is_well(self) -> bool:
        """Whether it lives on for some time after its start."""
        end = time.monotonic() + 6
        while time.monotonic() < end and self.alive():
            time.sleep(0.2)
        return self.alive()

    def _renew(self) -> None:
        """Begin with an empty home."""
        self._end()
        shutil.rmtree(self.home, ignore_errors=True)
        assert self.start()

    # --- the watch ------------------------------------------------------------------------------------------------

    def _watch_health(self) -> None:
        with httpx2.Client(timeout=120, trust_env=False, verify=False) as client:
            while not self._done.wait(0.2):
                self._look("health", partial(health_problem, client))

    def _watch_memory(self) -> None:
        while not self._done.wait(0.05):
            with suppress(OSError, ValueError):
                pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
                if pages * 4096 > MOST_BYTES:
                    self._suffered("memory", pages * 4096)
                    os.kill(self.pid, signal.SIGKILL)

    def _watch_neighbour(self) -> None:
        with httpx2.Client(timeout=120, trust_env=False, verify=False) as client:
            while not self._done.wait(0.5):
                self._begun += 1
                self._look(
                    "neighbour",
                    lambda url: neighbour_problem(client, url, self.keys["victim", "engineer"], RUN_S * overload()),
                )
                self._ended += 1

    def _look(self, name: str, problem_of: Callable[[str], str]) -> None:
        """Record how long a look at the server took and what was wrong; nothing when it was stopped or died meanwhile, which
        `harm` reports by itself.
        """
        serving = self._serving
        if serving is None:
            return
        begun = time.monotonic()
        problem = problem_of(self.url)
        took = time.monotonic() - begun
        # The connections of a process that is killed close before its end is seen.
        if problem:
            self._done.wait(0.5)
        if self._serving is serving and self.alive():
            self._suffered(name, took)
            if problem:
                self._problems.setdefault(name, problem)

    def _suffered(self, name: str, amount: float) -> None:
        self._harm[name] = max(amount, self._harm.get(name, 0))

    def _end(self) -> None:
        self._serving = None
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process is not None and process.stdout is not None:
            process.stdout.close()

    def _close_clients(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients = {}

    def close(self) -> None:
        self._done.set()
        self._close_clients()
        self._end()
        for thread in self._watch:
            thread.join(10)
        self.trap.close()
        if self.names is not None:
            self.names.close()
        self._shared.unlink()
        for server in self._sockets:
            server.close()
        shutil.rmtree(self.folder, ignore_errors=True)
