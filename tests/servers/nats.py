"""A real NATS server with JetStream for tests, from a package alone.

- `nats_server` is one server for a test process; whoever writes to it names its own streams and subjects.
- A test that stops, kills or wipes its server makes one of its own: `with running_nats() as server: …`.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.ports import free_port

_START_S = 60


class NatsServer:
    """One server in a folder of its own, on a port that it keeps."""

    def __init__(self, *options: str, config: str = "", jetstream: bool = True) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="arclog-nats-"))
        self.port = free_port()
        self._options = [*options, *(("-js", "-sd", str(self.folder / "data")) if jetstream else ())]
        if config:
            (self.folder / "server.conf").write_text(config)
            self._options += ["-c", str(self.folder / "server.conf")]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(Path(sys.prefix) / "bin" / "nats-server"),
                    *("-a", "127.0.0.1", "-p", str(self.port)),
                    *self._options,
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                if probe.recv(4) == b"INFO":
                    return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"NATS did not start:\n{(self.folder / 'server.log').read_text()[-4000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once; `start` brings it back on the same port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop it where it is, as a machine that hangs: connections stay, nothing is read. Only its end helps."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def wipe(self) -> None:
        """Kill it and lose everything that it kept."""
        self.kill()
        shutil.rmtree(self.folder / "data", ignore_errors=True)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def running_nats(*options: str, config: str = "", jetstream: bool = True) -> Iterator[NatsServer]:
    server = NatsServer(*options, config=config, jetstream=jetstream)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    with running_nats() as server:
        yield server
