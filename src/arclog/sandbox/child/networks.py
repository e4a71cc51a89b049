"""Which addresses a relay connects to. The lists come from the worker (`sandbox.confinement`), as text."""

# Stand-alone and light: the package has another name where it runs.

from __future__ import annotations

import _socket
from typing import Any

_V4_BYTES = 4
#: IPv6 addresses on the public internet begin with these three bits.
_PUBLIC_V6 = (0x2000 << 112, 125, 16)

#: (the address as a number, how far to shift before comparing, its length in bytes)
_Network = tuple[int, int, int]


class Networks:
    """Decides by the bytes of an address, as the kernel gets them."""

    def __init__(self, spec: dict[str, Any]) -> None:
        """`spec`: networks that are open, whether the public internet is, what is not public, networks whose addresses carry
        an IPv4 address (with its distance from the right), and addresses that only an entry of their own opens.
        """
        self._open = [_network(text) for text in spec["open"]]
        self._is_public: bool = spec["public"]
        self._closed = [_network(text) for text in spec["closed"]]
        self._carriers: list[tuple[_Network, int]] = [(_network(text), shift) for text, shift in spec["carriers"]]
        self._single = {_network(text)[::2] for text in spec["metadata"]}

    def permits(self, address: bytes) -> bool:
        """Whether a connection may be made to this address."""
        meant = [(int.from_bytes(address, "big"), len(address))]
        inner = self._carried(*meant[0])
        if inner is not None:
            meant.append((inner, _V4_BYTES))
        if self._is_public and not self._is_closed(*meant[-1]):
            return True
        return any(
            _holds(network, *each) and (each not in self._single or _is_single(network))
            for each in meant
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
    """Whether an address is the sandbox's own machine: loopback, or no address at all."""
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
