"""The addresses that a relay may connect to, and a DNS server that returns only those addresses.

The lists of networks come from the worker (`sandbox.confinement_settings`), as text.
"""

# Stand-alone and light: the package has another name where it runs.

from __future__ import annotations

import _queue
import _socket
import _thread
import struct
from typing import Any

# ── networks ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_V4_BYTES = 4
#: IPv6 addresses on the public internet begin with these three bits.
_PUBLIC_V6 = (0x2000 << 112, 125, 16)

#: (address as a number, bits to shift before comparing, length in bytes)
_Network = tuple[int, int, int]


class Networks:
    """Decides by the bytes of an address, as passed to the kernel."""

    def __init__(self, spec: dict[str, Any]) -> None:
        """`spec` has the open networks, whether the public internet is open, the networks that are not public, networks
        whose addresses contain an IPv4 address (with its offset in bits from the right), and addresses that only their
        own entry opens.
        """
        self._open = [_network(text) for text in spec["open"]]
        self._is_public: bool = spec["public"]
        self._closed = [_network(text) for text in spec["closed"]]
        self._carriers: list[tuple[_Network, int]] = [(_network(text), shift) for text, shift in spec["carriers"]]
        self._single = {_network(text)[::2] for text in spec["metadata"]}

    def permits(self, address: bytes) -> bool:
        """Return whether connections to this address are allowed."""
        meant = [(int.from_bytes(address, "big"), len(address))]
        inner = self._carried(*meant[0])
        if inner is not None:
            meant.append((inner, _V4_BYTES))
        if self._is_public and not self._is_closed(*meant[-1]):
            return True
        is_metadata = not self._single.isdisjoint(meant)
        return any(
            _holds(network, *candidate) and (not is_metadata or _is_single(network))
            for candidate in meant
            for network in self._open
        )

    def _carried(self, number: int, size: int) -> int | None:
        for network, shift in self._carriers:
            if _holds(network, number, size):
                return number >> shift & 0xFFFF_FFFF
        return None

    def _is_closed(self, number: int, size: int) -> bool:
        if size != _V4_BYTES and not _holds(_PUBLIC_V6, number, size):
            return True
        return any(_holds(network, number, size) for network in self._closed)


def is_own_loopback(address: bytes) -> bool:
    """Return whether an address is on the sandbox's own machine: loopback, or all zeros."""
    if address[:12] == bytes(10) + b"\xff\xff":
        address = address[12:]
    if len(address) == _V4_BYTES:
        return address[0] == 127 or not any(address)
    return not any(address[:-1]) and address[-1] in (0, 1)


def _network(text: str) -> _Network:
    base, _, bits = text.partition("/")
    packed = _socket.inet_pton(_socket.AF_INET6 if ":" in base else _socket.AF_INET, base)
    return int.from_bytes(packed, "big"), len(packed) * 8 - int(bits or len(packed) * 8), len(packed)


def _holds(network: _Network, number: int, size: int) -> bool:
    base, shift, length = network
    return size == length and number >> shift == base >> shift


def _is_single(network: _Network) -> bool:
    return network[1] == 0


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Answers a sandbox's DNS queries through the resolver of the machine. Answers contain only addresses that tasks may
# reach.

_HEADER = struct.Struct("!6H")
_ANSWER = struct.Struct("!HHHIH")
_A, _AAAA, _IN = 1, 28, 1
_FAMILIES = {_A: _socket.AF_INET, _AAAA: _socket.AF_INET6}
#: The flags of a response: recursion was requested and is available.
_FLAGS = 0x8180
_NO_ERROR, _FORMAT_ERROR, _FAILURE, _NO_NAME = 0, 1, 2, 3
_TTL_S = 30
#: Maximum number of addresses in a response, so that it fits into a datagram of 512 bytes.
_MOST_ADDRESSES = 12
_MOST_QUESTION = 512
#: Maximum number of waiting queries. More are dropped; clients send them again.
_MOST_WAITING = 64
_THREADS = 4
_POINTER_TO_NAME = 0xC00C


class Names:
    """Answers DNS queries on a socket in the sandbox's network."""

    def __init__(self, sock: _socket.socket, networks: Networks) -> None:
        self._socket = sock
        self._networks = networks
        self._waiting: _queue.SimpleQueue[tuple[bytes, Any]] = _queue.SimpleQueue()
        self._threads = 0

    def receive(self) -> None:
        """Receive a query; a thread answers it."""
        try:
            question = self._socket.recvfrom(_MOST_QUESTION)
        except OSError:
            return
        if self._waiting.qsize() >= _MOST_WAITING:
            return
        self._waiting.put(question)
        if self._threads < _THREADS:
            self._threads += 1
            _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        while True:
            question, sender = self._waiting.get()
            try:
                answer = self._answer(question)
                if answer:
                    self._socket.sendto(answer, sender)
            except OSError:
                continue

    def _answer(self, message: bytes) -> bytes:
        """Return the response to a message, or b"" if it is not a query."""
        if len(message) < _HEADER.size or message[2] & 0x80:
            return b""
        number, _, questions = _HEADER.unpack_from(message)[:3]
        asked = question_of(message) if questions == 1 else None
        if asked is None:
            return _HEADER.pack(number, _FLAGS | _FORMAT_ERROR, 0, 0, 0, 0)
        name, kind, end = asked
        code, addresses = self._resolve(name, kind)
        body = b"".join(
            _ANSWER.pack(_POINTER_TO_NAME, kind, _IN, _TTL_S, len(address)) + address for address in addresses
        )
        return _HEADER.pack(number, _FLAGS | code, 1, len(addresses), 0, 0) + message[_HEADER.size : end] + body

    def _resolve(self, name: str, kind: int) -> tuple[int, list[bytes]]:
        try:
            infos = _socket.getaddrinfo(name, None, _socket.AF_UNSPEC, _socket.SOCK_STREAM)
        except _socket.gaierror as problem:
            return (_FAILURE if problem.errno == _socket.EAI_AGAIN else _NO_NAME), []
        except (OSError, UnicodeError):
            return _NO_NAME, []
        family = _FAMILIES.get(kind)
        packed = [_socket.inet_pton(info[0], str(info[4][0]).partition("%")[0]) for info in infos if info[0] == family]
        return _NO_ERROR, [address for address in dict.fromkeys(packed) if self._networks.permits(address)][
            :_MOST_ADDRESSES
        ]


def question_of(message: bytes) -> tuple[str, int, int] | None:
    """Return name, type and end of the query in a message, or None if it is invalid."""
    labels = []
    at = _HEADER.size
    while at < len(message) and message[at]:
        size = message[at]
        label = message[at + 1 : at + 1 + size]
        if size > 63 or len(label) < size or not label.isascii() or b"." in label or b"\0" in label:
            return None
        labels.append(label.decode())
        at += 1 + size
    if len(message) < at + 5 or not labels:
        return None
    kind, group = struct.unpack_from("!HH", message, at + 1)
    return (".".join(labels), kind, at + 5) if group == _IN else None
