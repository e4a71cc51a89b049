"""Commands of arclog for tests, each a process of its own that starts without its imports.

Most of the processor time of a short command goes into starting Python and importing arclog. Here one process for each test process
imports what every command needs and forks for each command (command_parent.py): the command has its own process, arguments,
environment, working directory, streams and exit code, as it has on a shell.

A test for which the start itself matters starts `ARCLOG` with `subprocess`: one about imports, signals or a terminal, or one that goes on
while the command runs.
"""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

#: A new interpreter that runs one command.
ARCLOG = [sys.executable, "-m", "arclog.cli.main"]
PATIENCE_S = 60
#: Variables that Python and the C library read when they start.
_READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "TZ", "MALLOC_")
_ROOT = Path(__file__).parents[2]
#: What fits into a pipe that nobody reads.
_PIPE_BYTES = 1 << 16


class CommandParent:
    """The process that forks for each command. It ends with the process that started it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.command_parent", str(theirs.fileno())],
                cwd=_ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def run(
        self, words: Sequence[str], env: Mapping[str, str], cwd: str, streams: Sequence[IO[bytes] | int], timeout: float
    ) -> int:
        """Run one command with these streams and return its exit code, or the negative number of the signal that ended it."""
        request = json.dumps({"words": list(words), "env": dict(env), "cwd": cwd}).encode()
        descriptors = array.array("i", [stream if isinstance(stream, int) else stream.fileno() for stream in streams])
        self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        pid = self._answer()
        self._socket.settimeout(timeout)
        try:
            return self._answer()
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._answer()  # so that the next answer is the next command's
            raise
        finally:
            self._socket.settimeout(None)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def _answer(self) -> int:
        answer = self._socket.recv(100)
        assert answer, "the process that starts commands has ended"
        return int(answer)


#: By the variables that were read when they started.
_parents: dict[frozenset[tuple[str, str]], CommandParent] = {}


def run_bytes(
    *words: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    timeout: float = PATIENCE_S,
) -> subprocess.CompletedProcess[bytes]:
    """Run `arclog WORDS` to its end. `env` and `cwd` are those of the test where they are not given."""
    assert len(stdin) <= _PIPE_BYTES, "start the command with subprocess: nobody reads what is written to it here"
    env = os.environ if env is None else env
    parent = _parent_for(env)
    reader, writer = os.pipe()
    os.write(writer, stdin)
    os.close(writer)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            code = parent.run(words, env, str(cwd or Path.cwd()), (reader, out, err), timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(["arclog", *words], timeout, _content(out), _content(err)) from None
        finally:
            os.close(reader)
        return subprocess.CompletedProcess(["arclog", *words], code, _content(out), _content(err))


def run_text(
    *words: str,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | str | None = None,
    timeout: float = PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """The same with texts."""
    done = run_bytes(*words, stdin=stdin.encode(), env=env, cwd=cwd, timeout=timeout)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    while _parents:
        _parents.popitem()[1].close()


def _parent_for(env: Mapping[str, str]) -> CommandParent:
    read_at_start = frozenset((name, value) for name, value in env.items() if name.startswith(_READ_AT_START))
    if read_at_start not in _parents:
        _parents[read_at_start] = CommandParent(env)
    return _parents[read_at_start]


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
