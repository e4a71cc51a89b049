"""A NATS server with JetStream for a workload, from the same package as the tests'."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from bench.harness import Wrong


@contextlib.contextmanager
def nats() -> Iterator[str]:
    """Its address; everything that it keeps is gone afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    binary = os.path.join(sys.prefix, "bin", "nats-server")
    with tempfile.TemporaryDirectory(prefix="arclog-bench-nats-") as folder:
        words = [binary, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder]
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_for(port, process)
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(500):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise Wrong("NATS did not start")
