"""A name server of an attacker: what it answers changes from one question to the next.

| name | addresses |
| --- | --- |
| `rebind.test` | the allowed one, then the forbidden one, and so on |
| `both.test` | the forbidden and the allowed one |
| `forbidden.test` | the forbidden one |
| `mapped.test` | the forbidden one, written as IPv6 |

A process in a mount namespace of its own asks it after `ask_here`. Both need root.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import tempfile
import threading
from collections import Counter
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

_A, _AAAA = 1, 28
_MS_BIND = 0x1000


class Names:
    """Answers on port 53 of one address."""

    def __init__(self, address: str, allowed: str, forbidden: str) -> None:
        self.address = address
        self.queries: Counter[str] = Counter()
        self._allowed, self._forbidden = allowed, forbidden
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        # It stays while processes have it mounted: confinement cannot show tasks a file that was removed.
        with tempfile.NamedTemporaryFile("w", prefix="arclog-names-", delete=False) as file:
            file.write(f"nameserver {address}\noptions timeout:2 attempts:2\n")
        self.file = Path(file.name)
        self.file.chmod(0o644)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                question, sender = self._socket.recvfrom(4096)
                if not question:
                    return
                self._socket.sendto(self._answer(question), sender)

    def _answer(self, question: bytes) -> bytes:
        labels, at = [], 12
        while size := question[at]:
            labels.append(question[at + 1 : at + 1 + size].decode("latin-1"))
            at += 1 + size
        kind = struct.unpack_from("!H", question, at + 1)[0]
        end = at + 5
        addresses = self._addresses(".".join(labels).lower(), kind)
        head = question[:2] + struct.pack("!HHHHH", 0x8580, 1, len(addresses), 0, 0)
        records = b"".join(
            struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(packed)) + packed
            for packed in (ip_address(address).packed for address in addresses)
        )
        return head + question[12:end] + records

    def _addresses(self, name: str, kind: int) -> list[str]:
        if kind == _AAAA:
            return [str(IPv6Address(f"::ffff:{self._forbidden}"))] if name == "mapped.test" else []
        if kind != _A:
            return []
        self.queries[name] += 1
        return {
            "rebind.test": [(self._forbidden, self._allowed)[self.queries[name] % 2]],
            "both.test": [self._forbidden, self._allowed],
            "forbidden.test": [self._forbidden],
        }.get(name, [])

    def close(self) -> None:
        # A thread that waits for a question would keep the port, though the socket is closed.
        self._socket.sendto(b"", (self.address, self._socket.getsockname()[1]))
        self._thread.join(10)
        self._socket.close()
        self.file.unlink()


def ask_here(file: str) -> None:
    """Have this process, which has a mount namespace of its own, ask the name server that the file names."""
    libc = ctypes.CDLL(None, use_errno=True)
    target = Path("/etc/resolv.conf").resolve()
    if libc.mount(file.encode(), str(target).encode(), None, ctypes.c_ulong(_MS_BIND), None):
        raise OSError(ctypes.get_errno(), "cannot replace resolv.conf")
