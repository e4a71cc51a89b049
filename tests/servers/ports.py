"""Ports for servers that are started by a test and told their port."""

from __future__ import annotations

import itertools
import os
import re
import socket

#: Below those that the kernel gives to connections (32,768 and up): a connection of another test cannot take the port before
#: its server is there.
_FIRST, _BLOCK, _BLOCKS = 12_000, 2_000, 10
#: Each test process has a block of its own. Several test runs on one machine begin at different places.
_process = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
_numbers = itertools.count(os.getpid() * 17)


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, another one each time."""
    while True:
        port = _FIRST + _process % _BLOCKS * _BLOCK + next(_numbers) % _BLOCK
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
