"""Imports what every command of arclog needs, then forks for each command that it is asked for (commands.py).

Run as a program with the number of a socket. A request is a JSON object with `words`, `env` and `cwd`, and the descriptors of the command's
streams; the answers are the process id of the command and, when it has ended, its exit code.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from importlib import import_module
from typing import Any

from arclog.cli.startup import import_packages

#: Modules that most commands import; the others are imported by the commands themselves.
_SHARED = (
    *("arclog.cli.args", "arclog.cli.main", "arclog.cli.runs.run", "arclog.cli.runs.attached"),
    *("arclog.wiring.embedded", "arclog.stores.sqlite.store", "arclog.tools.noop", "arclog.tools.python"),
)
_MOST_BYTES = 1 << 20


def answer_requests(requests: socket.socket) -> None:
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, _MOST_BYTES, 3)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            become(json.loads(request), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(str(pid).encode())
        status = os.waitpid(pid, 0)[1]
        requests.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the command in this process, which then ends."""
    for stream, descriptor in enumerate(descriptors):
        os.dup2(descriptor, stream)
    os.closerange(3, max(descriptors) + 1)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = os.getcwd()  # noqa: PTH109 - as `python -m` does
    sys.argv = ["arclog", *request["words"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from arclog.cli.main import main

    main()


def run() -> None:
    import_packages()
    for name in _SHARED:
        import_module(name)
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the requests ends this process, whatever a terminal sends
    gc.freeze()
    answer_requests(requests)


if __name__ == "__main__":
    run()
