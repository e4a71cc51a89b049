"""The addresses that this process may connect to for its playbooks: the public internet, and the networks that a
setting such as `http.allow_networks` adds.

Invariant: the check applies to the address that the connection uses, never to a name or its spelling. A name is
resolved once for each connection, and the connection goes to one of the addresses that passed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from arclog.drivers.failure import Failure, refused
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.model.outcome import error

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
#: (host, port) → addresses as text
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

SETTING = "http.allow_networks"
#: The word for the public internet, in settings that do not allow it by default.
PUBLIC = "public"
#: Metadata services of cloud platforms. A network in the settings does not open them; only a single address or a name
#: does.
METADATA_SERVICES = (
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
)  # fmt: skip

# fmt: off
#: Closed IPv4 networks, each with the reason. The first match counts.
_CLOSED_V4: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this host"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by a carrier"),
    ("127.0.0.0/8", "loopback"),
    ("168.63.129.16/32", "a cloud platform's own"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "for documentation"),
    ("192.88.99.0/24", "reserved"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
)
_CLOSED_V6: tuple[tuple[str, str], ...] = (
    ("::/128", "this host"),
    ("::1/128", "loopback"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "for documentation"),
    ("3fff::/20", "for documentation"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "private"),
    ("ff00::/8", "multicast"),
)
#: IPv6 networks whose addresses contain an IPv4 address, and its offset in bits from the right.
_CARRIERS: tuple[tuple[str, int], ...] = (
    ("::ffff:0:0/96", 0),
    ("::ffff:0:0:0/96", 0),
    ("64:ff9b::/96", 0),
    ("2002::/16", 80),
)
#: Words that stand for networks in the setting.
_WORDS: dict[str, tuple[str, ...]] = {
    "none": (),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}
# fmt: on
_V4 = [(IPv4Network(text), why) for text, why in _CLOSED_V4]
_V6 = [(IPv6Network(text), why) for text, why in _CLOSED_V6]
_CARRYING = [(IPv6Network(text), shift) for text, shift in _CARRIERS]
_GLOBAL_V6 = IPv6Network("2000::/3")
_METADATA = frozenset(map(ip_address, METADATA_SERVICES))


def why_closed(address: Address) -> str:
    """Return why an address is not on the public internet, or '' if it is."""
    if isinstance(address, IPv6Address):
        inner = carried(address)
        if inner is not None:
            return why_closed(inner)
        if address not in _GLOBAL_V6:
            return next((why for network, why in _V6 if address in network), "reserved")
        return next((why for network, why in _V6 if address in network), "")
    return next((why for network, why in _V4 if address in network), "")


def carried(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that traffic to this IPv6 address reaches, if the address contains one."""
    for network, shift in _CARRYING:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFF_FFFF)
    return None


def listed_networks(text: str, setting: str) -> dict[str, Any]:
    """Return the networks of a setting that allows only what it lists (`public` stands for the public internet), in a
    form for checks in other processes. Raises SettingsError.
    """
    words = [word for part in text.split(",") if (word := part.strip().lower())]
    names: list[str] = []
    for word in words:
        if word in _WORDS:
            names += _WORDS[word]
        elif word != PUBLIC:
            try:
                names.append(str(ip_network(word)))
            except ValueError as problem:
                raise SettingsError(
                    f"{setting}: {word!r} is not a network ({problem}); it is `all`, `none`, or a list of networks, addresses and "
                    f"the words {PUBLIC}, {', '.join(word for word in _WORDS if word != 'none')}"
                ) from None
    return {
        "open": names,
        "public": PUBLIC in words,
        "closed": [network for network, _ in (*_CLOSED_V4, *_CLOSED_V6)],
        "carriers": [list(carrier) for carrier in _CARRIERS],
        "metadata": list(METADATA_SERVICES),
    }


def guard_of(settings: Settings, setting: str, caller: str, *more: str) -> Guard:
    """Return the guard of a setting; an empty setting means that of `http.allow_networks`. `more` is allowed as
    well.
    """
    allowed = settings.text(setting) or settings.text(SETTING)
    return Guard(",".join((allowed, *more)), setting=setting, caller=caller)


class Guard:
    """Resolves host names to addresses that may be connected to."""

    def __init__(
        self, allowed: str, resolver: Resolver | None = None, *, setting: str = SETTING, caller: str = "http tasks"
    ) -> None:
        self._setting = setting
        self._caller = caller
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._resolver = resolver or _resolved
        for word in (part.strip().lower() for part in allowed.split(",")):
            if word:
                self._allow(word)

    def _allow(self, word: str) -> None:
        if word in _WORDS:
            self._networks += map(ip_network, _WORDS[word])
            return
        try:
            self._networks.append(ip_network(word))
        except ValueError as problem:
            # A word of only digits, dots, colons or a slash was meant as a network.
            if "/" in word or ":" in word or not any(letter.isalpha() for letter in word):
                raise SettingsError(f"{self._setting}: {word!r} is not a network ({problem})") from None
            self._names.add(word.rstrip("."))

    def permits(self, address: Address, host: str) -> bool:
        """Return whether connections to this address are allowed."""
        if not why_closed(address) or self._is_allowed(host):
            return True
        candidates: list[Address] = [address]
        if isinstance(address, IPv6Address):
            # A zone (%1) makes another address for Python, and not for the kernel.
            inner = carried(address)
            candidates = [IPv6Address(int(address)), *([] if inner is None else [inner])]
        is_metadata = not _METADATA.isdisjoint(candidates)
        return any(
            candidate in network and (not is_metadata or network.num_addresses == 1)
            for candidate in candidates
            for network in self._networks
            if network.version == candidate.version
        )

    def _is_allowed(self, host: str) -> bool:
        name = host.rstrip(".").lower()
        if name in self._names:
            return True
        return any(name.endswith(suffix[1:]) for suffix in self._names if suffix.startswith("*."))

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the permitted addresses of a host, at least one. Raises Failure if there is none."""
        literal = _literal(host)
        resolved = [literal] if literal is not None else await self._ask(host, port)
        permitted = [candidate for candidate in resolved if self.permits(candidate, host)]
        if permitted:
            return [str(candidate) for candidate in permitted]
        address = resolved[0]
        where = host if literal is not None else f"{host} ({address})"
        message = (
            f"{where} is {why_closed(address)}: {self._caller} reach only public addresses and those that the setting "
            f"{self._setting} names"
        )
        raise refused(message, code="ADDRESS_REFUSED")

    async def _ask(self, host: str, port: int) -> list[Address]:
        try:
            texts = await self._resolver(host, port)
        except (OSError, UnicodeError) as problem:
            why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            message = f"the name {host} cannot be resolved: {why}"
            raise Failure(error("connection", message, code="DNS")) from None
        resolved = [ip_address(text) for text in dict.fromkeys(texts)]
        if not resolved:
            raise Failure(error("connection", f"the name {host} has no address", code="DNS"))
        return resolved


def _literal(host: str) -> Address | None:
    """Return the address if the host is one in its usual spelling. The resolver handles others (`127.1`,
    `0x7f000001`).
    """
    try:
        return ip_address(host)
    except ValueError:
        return None


async def _resolved(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in infos]
