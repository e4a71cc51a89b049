"""A TCP balancer for tests: each new connection goes to the next server that takes it."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import Counter
from collections.abc import Sequence


class Balancer:
    """Listens on a free loopback port until `close`."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._turns = itertools.cycle(ports)
        self._count = len(ports)
        #: connections by the port that they went to
        self.served: Counter[int] = Counter()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = self._connected()
                if far is None:
                    near.close()
                    continue
                self._open |= {near, far}
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _connected(self) -> socket.socket | None:
        for _ in range(self._count):
            port = next(self._turns)
            with contextlib.suppress(OSError):
                far = socket.create_connection(("127.0.0.1", port), 1)
                far.settimeout(None)
                self.served[port] += 1
                return far
        return None

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for command in self._open:
            with contextlib.suppress(OSError):
                command.shutdown(socket.SHUT_RDWR)
            command.close()
        self._thread.join(5)
