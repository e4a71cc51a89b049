"""From a forked guard to a runner: every limit and every cut to the outside is made here, before user code is seen.

A spec with `argv` becomes that program, one with `databases` serves DuckDB, one with `probe` writes what is in force;
any other becomes the python runner.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH208, TID252

from __future__ import annotations

import _socket
import faulthandler
import json
import os
import resource
import signal
from collections.abc import Callable
from typing import Any, NoReturn

from . import confine, kernel
from . import runner as python
from .places import Places

_NOFILE = 1024
_STDERR = 2
#: What a zygote has loaded for its runners, by the key of a spec.
services: dict[str, Callable[[_socket.socket], NoReturn]] = {}


def runner(
    spec: dict[str, Any], facts: confine.Facts, files: list[int], failure: int, *, guard: int, stack: int
) -> NoReturn:
    """Become the runner. `files` are the task socket or stdin, stdout and stderr; `failure` takes a last word, `stack`
    where python code is when the guard asks.
    """
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        kernel.prctl(kernel.PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        kernel.prctl(kernel.DUMPABLE, 1)
        if "argv" in spec:
            _program(spec, facts, files)
        elif "probe" in spec:
            _probe(spec, facts, files)
        elif "databases" in spec:
            _databases(spec, facts, files, failure)
        else:
            _python(spec, facts, files, failure, stack)
    except confine.NotConfined as problem:
        os.write(failure, f"confinement {problem}".encode()[:4000])
    except BaseException as problem:  # noqa: BLE001 - the last line of defence: the guard must hear of it
        number = getattr(problem, "errno", None) or 0
        os.write(failure, f"{number} {type(problem).__name__}: {problem}".encode("utf-8", "replace")[:4000])
    os._exit(127)


def _program(spec: dict[str, Any], facts: confine.Facts, files: list[int]) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for target, file in enumerate(files):
        os.dup2(file, target)
    kernel.close_at_exec(_STDERR + 1)
    os.chdir(spec["cwd"])
    if facts:
        _limit(resource.RLIMIT_CORE, 0)
        confine.drop(spec, facts)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


def _probe(spec: dict[str, Any], facts: confine.Facts, files: list[int]) -> None:
    """Write what is in force here."""
    confine.drop(spec, facts)
    os.write(files[1], json.dumps(facts).encode())
    os._exit(0)


def _databases(spec: dict[str, Any], facts: confine.Facts, files: list[int], failure: int) -> None:
    control = _alone("arclog-duckdb", spec, files, (failure, *_relayed(facts)))
    try:
        os.chdir(spec["cwd"])
    except OSError:  # out of reach, and so is every relative path
        os.chdir(spec["folder"])
    _limit(resource.RLIMIT_CORE, 0)
    if facts:
        confine.drop(spec, facts)
    os.close(failure)
    services["databases"](control)


def _python(spec: dict[str, Any], facts: confine.Facts, files: list[int], failure: int, stack: int) -> None:
    # Orphans of user code become our children: so "has a child" is the whole question at the end of a task.
    kernel.prctl(kernel.SUBREAPER, 1)
    tasks = _alone("arclog-python", spec, files, (failure, stack, *_relayed(facts)))
    os.chdir(spec["scratch"])
    for kind, value in (
        (resource.RLIMIT_AS, spec["max_memory_bytes"]),
        (resource.RLIMIT_FSIZE, spec["max_file_bytes"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _NOFILE),
    ):
        _limit(kind, value)
    if facts:
        confine.drop(spec, facts)
    if spec.get("site"):
        # Packages may run code when they are merely found (.pth files): here, not in the zygote that all share.
        import site

        site.main()
    os.close(failure)
    # Written by the signal's handler itself: also when the task holds the interpreter, or hangs in the kernel.
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    python.serve(tasks, Places(spec), int(spec["max_result_bytes"]), spec["limits"])


def _alone(name: str, spec: dict[str, Any], files: list[int], kept: tuple[int, ...]) -> _socket.socket:
    """Leave a forked interpreter nothing of ours but its standard streams, the socket to the worker and what is `kept`."""
    kernel.set_name(name)
    kernel.prctl(kernel.NO_NEW_PRIVS, 1)
    os.environ.clear()
    os.environ.update(spec["env"])
    sock = _socket.socket(fileno=os.dup(files[0]))
    null = os.open(os.devnull, os.O_RDONLY)
    for target, file in enumerate((null, files[1], files[2])):
        os.dup2(file, target)
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > _STDERR and int(entry) not in (sock.fileno(), *kept):
            _close(int(entry))
    return sock


def _relayed(facts: confine.Facts) -> list[int]:
    """The file by which the relay gets the filter's questions, if there is one."""
    started = facts.get("relay")
    return [] if started is None else [started.channel.fileno()]


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (wanted, wanted))


def _close(file: int) -> None:
    try:
        os.close(file)
    except OSError:  # the listing's own file
        return
