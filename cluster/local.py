"""PostgreSQL, NATS, servers and workers as processes of this machine, each of which can be killed and started again.

Everything listens on free loopback ports and lives in one folder. Servers and workers are ordinary `arclog server` and
`arclog worker` commands: what they are told here is what an operator would tell them. `proxied` puts a network that can be
cut between any two of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.servers.nats import NatsServer
from tests.servers.ports import free_port
from tests.servers.postgres import Database, PostgresServer
from tests.servers.proxy import Proxy

#: Two workers for ordinary steps, one for those that say `pool: heavy`.
POOLS = (("default",), ("default",), ("heavy",))
START_S = 60.0
_CLIENT = "client"


class Process:
    """A command that can be killed and started again."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = command
        self._environment = environment
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End it, and what it started, at once: no goodbye."""
        self._signal(signal.SIGKILL)
        self._gone()

    def stop(self) -> None:
        """Ask it to finish, and wait until it has."""
        self._signal(signal.SIGTERM)
        self._gone()

    def pause(self) -> None:
        """Let it stand still, as a machine that hangs."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _gone(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None


class Server(Process):
    """An `arclog server` on a port that it keeps."""

    def __init__(self, name: str, environment: Mapping[str, str], folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        own = {**environment, "ARCLOG_SERVER_PORT": str(self.port), "ARCLOG_HOME": str(folder / name)}
        super().__init__(name, [sys.executable, "-m", "arclog.cli.main", "server"], own, folder)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


class Cluster:
    """Truth in one database, hints over NATS, any number of servers and workers around them."""

    def __init__(
        self,
        folder: Path,
        *,
        servers: int = 2,
        pools: Sequence[Sequence[str]] = POOLS,
        with_nats: bool = True,
        settings: Mapping[str, str] | None = None,
        proxied: bool = False,
    ) -> None:
        """`settings`: environment variables for servers and workers."""
        self.folder = folder
        #: where tasks of every worker may write
        self.shared = folder / "shared"
        self.shared.mkdir(exist_ok=True)
        self._proxied = proxied
        #: by who speaks and to whom, as in `server-1 to postgres`; empty when they speak to each other directly
        self.network: dict[str, Proxy] = {}
        self.postgres = PostgresServer("max_connections=200")
        self.nats: NatsServer | None = None
        self.servers: list[Server] = []
        self.workers: list[Process] = []
        try:
            self.database: Database = self.postgres.create()
            self.nats = NatsServer() if with_nats else None
            clean = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
            self.environment = {
                **clean,
                "ARCLOG_RESULTS_URL": "postgres",
                # Made with the first credential that a server is given; all open it.
                "ARCLOG_SECRETS_KEY_FILE": str(folder / "secrets.key"),
                "ARCLOG_TASKS_ALLOW_WRITE": str(self.shared),
                **(settings or {}),
            }
            self.servers = [self._server(f"server-{n}") for n in range(1, servers + 1)]
            self.url_for(_CLIENT)  # its network stands from the beginning, as the others' does
            for number, each in enumerate(pools, 1):
                self.workers.append(self.worker(f"worker-{number}", each))
        except BaseException:
            self.close()
            raise

    def _server(self, name: str) -> Server:
        port = self._way(name, "postgres", self.database.port)
        environment = {**self.environment, "ARCLOG_STORE_URL": replace(self.database, port=port).dsn}
        if self.nats is not None:
            environment["ARCLOG_BUS_URL"] = f"nats://127.0.0.1:{self._way(name, 'nats', self.nats.port)}"
        return Server(name, environment, self.folder)

    def worker(self, name: str, pools: Sequence[str], url: str = "") -> Process:
        """One that is yet to be started, and is its caller's to end."""
        url = url or self.url_for(name)
        environment = {**self.environment, "ARCLOG_SERVER": url, "ARCLOG_HOME": str(self.folder / name)}
        # A worker has no results of its own: they are its servers', as are store and bus.
        environment.pop("ARCLOG_RESULTS_URL")
        serving = [part for pool in pools for part in ("--pool", pool)]
        return Process(name, [sys.executable, "-m", "arclog.cli.main", "worker", *serving], environment, self.folder)

    def _way(self, who: str, whom: str, port: int) -> int:
        """The port by which one speaks to another."""
        if not self._proxied:
            return port
        name = f"{who} to {whom}"
        if name not in self.network:
            self.network[name] = Proxy(port)
        return self.network[name].port

    @property
    def url(self) -> str:
        """All servers, as clients are told."""
        return self.url_for(_CLIENT)

    def url_for(self, who: str) -> str:
        ports = [self._way(who, server.name, server.port) for server in self.servers]
        return ",".join(f"http://127.0.0.1:{port}" for port in ports)

    @property
    def processes(self) -> list[Process]:
        return [*self.servers, *self.workers]

    def start(self) -> None:
        for server in self.servers:
            server.start()
        self.wait_until(lambda: all(server.is_ready() for server in self.servers), "the servers are ready")
        for worker in self.workers:
            worker.start()

    def wait_until(self, happened: Callable[[], bool], what: str, seconds: float = START_S) -> None:
        """Wait for something that the processes bring about; their logs tell why it does not happen."""
        deadline = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {seconds:g} s not yet: {what}\n{self.last_words()}")
            time.sleep(0.02)

    def last_words(self, size: int = 2000) -> str:
        said = [(each.name, each.log.read_text(errors="replace")) for each in self.processes if each.log.exists()]
        return "\n".join(f"-- {name}\n{text[-size:]}" for name, text in said if text)

    def close(self) -> None:
        for process in self.processes:
            process.resume()
            process.kill()
        for proxy in self.network.values():
            proxy.close()
        if self.nats is not None:
            self.nats.close()
        self.postgres.close()
