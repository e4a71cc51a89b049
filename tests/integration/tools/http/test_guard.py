"""Where http tasks may not go, however it is spelled, and where a setting lets them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arclog.drivers.failure import Failure
from arclog.drivers.http.guard import Guard, carried, why_closed
from arclog.model.errors import SettingsError
from tests.integration.tools.http.conftest import Task
from tests.servers.web import Web

CLOSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.168.1.1", "198.18.0.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.1", "203.0.113.1",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001::1",
    "2001:db8::1", "3fff::1", "100::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1",
]  # fmt: skip
OPEN = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "126.255.255.255", "128.0.0.1", "168.63.129.17", "172.15.255.255",
    "172.32.0.1", "192.167.1.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "64:ff9b::8.8.8.8",
    "::ffff:8.8.8.8", "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("address", CLOSED)
def test_closed(address: str) -> None:
    assert why_closed(ip_address(address))
    assert not Guard("").permits(ip_address(address), address)


@pytest.mark.parametrize("address", OPEN)
def test_open(address: str) -> None:
    assert not why_closed(ip_address(address))


@given(st.integers(0, 2**32 - 1))
def test_what_python_calls_private_is_closed_also_inside_ipv6(number: int) -> None:
    plain = ip_address(number)
    for outer in (f"::ffff:{plain}", f"64:ff9b::{plain}"):
        inside = ip_address(outer)
        assert carried(inside) == plain  # type: ignore[arg-type]  # an IPv6Address by its spelling
        assert why_closed(inside) == why_closed(plain)
    if not plain.is_global or plain.is_multicast:
        assert why_closed(plain)


@pytest.mark.parametrize(
    ("allowed", "address", "host"),
    [
        ("loopback", "127.9.9.9", "x"),
        ("loopback", "::1", "x"),
        ("loopback", "::ffff:127.0.0.1", "x"),
        ("private", "10.1.1.1", "x"),
        ("private", "fd00::1", "x"),
        ("10.1.0.0/16, 192.168.1.7", "192.168.1.7", "x"),
        ("Intern.Example", "10.0.0.1", "intern.example."),
        ("*.corp.example", "10.0.0.1", "a.b.corp.example"),
        ("fe80::/10", "fe80::1%eth0", "x"),
        ("169.254.169.254", "169.254.169.254", "x"),
        ("169.254.169.254", "::ffff:169.254.169.254", "x"),
        ("fd00:ec2::254", "fd00:ec2::254%1", "x"),
        ("64:ff9b::/96", "64:ff9b::10.0.0.1", "x"),
        ("metadata.example", "169.254.169.254", "metadata.example"),
    ],
)
def test_what_the_setting_adds(allowed: str, address: str, host: str) -> None:
    assert Guard(allowed).permits(ip_address(address), host)


@pytest.mark.parametrize(
    ("allowed", "address", "host"),
    [
        ("none", "127.0.0.1", "x"),
        ("loopback", "10.0.0.1", "x"),
        ("private", "169.254.169.254", "x"),
        ("private", "fd00:ec2::254", "x"),
        ("private", "fd00:ec2::254%1", "x"),
        ("fd00::/8, fd00:ec2::/32", "fd20:ce::254%eth0", "x"),
        ("64:ff9b::/96", "64:ff9b::a9fe:a9fe", "x"),
        ("::ffff:0:0/96", "::ffff:100.100.100.200", "x"),
        ("169.254.0.0/16", "169.254.169.254", "x"),
        ("0.0.0.0/0", "169.254.169.254", "x"),
        ("0.0.0.0/0", "::ffff:169.254.169.254", "x"),
        ("100.64.0.0/10", "100.100.100.200", "x"),
        ("10.1.0.0/16", "10.2.0.1", "x"),
        ("intern.example", "10.0.0.1", "evil-intern.example"),
        ("intern.example", "10.0.0.1", "intern.example.evil"),
        ("*.corp.example", "10.0.0.1", "corp.example"),
        ("*.corp.example", "10.0.0.1", "evilcorp.example"),
    ],
)
def test_what_it_does_not(allowed: str, address: str, host: str) -> None:
    assert not Guard(allowed).permits(ip_address(address), host)


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "10.0.0.1/8", "300.1.1.1", "fe80:::1", "127.1"])
def test_a_network_that_is_none(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"http\.allow_networks"):
        Guard(wrong)


SPELLINGS = [
    "http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/",
    "http://017700000001/", "http://localhost/", "http://LOCALHOST./", "http://127.0.0.1./", "http://[::1]/",
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:0:0:1]/", "http://0/", "http://[::]/",
    "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1:8080/", "https://127.0.0.1/",
]  # fmt: skip


@pytest.mark.parametrize("url", SPELLINGS)
async def test_spellings_of_closed_addresses(task: Task, url: str) -> None:
    task.set(http__allow_networks="none")
    outcome = await task(url)
    assert outcome.error is not None
    assert outcome.error.kind in ("config", "connection")
    if outcome.error.kind == "connection":
        assert outcome.error.code == "DNS"  # this machine's resolver does not know the spelling
    else:
        assert outcome.error.code == "ADDRESS_REFUSED"
        assert "http.allow_networks" in outcome.error.message
        assert not outcome.error.retryable


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "localhost", "[::ffff:127.0.0.1]"])
async def test_the_same_spellings_reach_a_server_that_may_be_reached(web: Web, task: Task, host: str) -> None:
    web.answers("/x", json=1)
    outcome = await task(web.url("/x", host))
    assert outcome.status == "ok"
    assert web.requests[0].headers["host"].startswith(host)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("file:///etc/passwd", "neither http:// nor https://"),
        ("ftp://example.com/", "neither http:// nor https://"),
        ("gopher://127.0.0.1:6379/_FLUSHALL", "neither http:// nor https://"),
        ("//example.com/", "neither http:// nor https://"),
        ("example.com", "neither http:// nor https://"),
        ("", "neither http:// nor https://"),
        ("http://", "names no host"),
        ("http:///path", "names no host"),
        ("http://user:hunter2@example.com/", "declare a keychain entry"),
        ("http://example.com@127.0.0.1/", "declare a keychain entry"),
        ("http://good.example\\@127.0.0.1/", "declare a keychain entry"),
        ("http://127.0.0.1%00.example.com/", "names no host"),
        ("http://a b/", "names no host"),
        ("http://exa\0mple.com/", "not a web address"),
        ("http://example.com/\r\nX: y", "not a web address"),
        ("http://example.com\r\n/", "not a web address"),
        ("http://①②⑦.⓪.⓪.①/", "not a web address"),
        ("http://0177.0.0.1/", "not a web address"),
        ("http://[::1/", "not a web address"),
        ("http://example.com:99999/", "a port that does not exist"),
        ("http://example.com:0/", "a port that does not exist"),
        ("http://example.com/\ud800", "not a web address"),
    ],
)
async def test_addresses_that_are_none(task: Task, url: str, says: str) -> None:
    outcome = await task(url)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("config", False)
    assert says in outcome.error.message
    assert "hunter2" not in outcome.error.message


class Names:
    """A resolver that answers differently every time, as a rebinding attack does."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        del host, port
        return self.answers.pop(0)


async def test_a_name_is_resolved_once_and_what_was_checked_is_what_is_connected_to() -> None:
    names = Names(["93.184.216.34"], ["127.0.0.1"])
    assert await Guard("", names).addresses("rebind.example", 80) == ["93.184.216.34"]
    assert len(names.answers) == 1


async def test_of_mixed_answers_only_open_addresses_are_left() -> None:
    names = Names(["10.0.0.1", "8.8.8.8", "::1", "8.8.8.8"], ["10.0.0.1", "::1"])
    guard = Guard("", names)
    assert await guard.addresses("mixed.example", 80) == ["8.8.8.8"]
    with pytest.raises(Failure, match=r"mixed.example \(10.0.0.1\) is private"):
        await guard.addresses("mixed.example", 80)


async def test_a_name_without_an_address(task: Task) -> None:
    outcome = await task("http://no-such-name.invalid/")
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("connection", "DNS")
    with pytest.raises(Failure, match="no address"):
        await Guard("", Names([])).addresses("x", 80)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "x" * 300, "a..b"])
async def test_names_that_cannot_be(task: Task, host: str) -> None:
    outcome = await task(f"http://{host}/")
    assert outcome.error is not None
    assert outcome.error.code == "DNS"


async def test_proxies_of_the_environment_are_used_only_when_told(
    web: Web, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Web() as proxy:
        web.answers("/x", json="direct")
        proxy.answers("/x", json="proxied")
        monkeypatch.setenv("http_proxy", proxy.url().replace("http://", "http://u:p%40@"))
        monkeypatch.delenv("no_proxy", raising=False)

        assert (await task(web.url("/x"))).result["data"] == "direct"
        task.set(http__trust_env=True)
        assert (await task(web.url("/x"))).result["data"] == "proxied"
        assert proxy.requests[0].target == web.url("/x")
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic dTpwQA=="
        refused = await task("http://10.0.0.1/x")
        assert refused.error is not None
        assert refused.error.code == "ADDRESS_REFUSED"
        monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
        task.set(http__trust_env=True)
        unknown = await task(web.url("/x"))
        assert unknown.error is not None
        assert "http.trust_env" in unknown.error.message
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        task.set(http__trust_env=True)
        assert (await task(web.url("/x"))).result["data"] == "direct"


async def test_a_dead_address_leaves_time_for_the_next(web: Web, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.2 has nobody at this port, 127.0.0.1 has."""
    web.answers("/x", json=1)
    real = socket.getaddrinfo

    def two(host: str, *rest: object, **more: object) -> object:
        if host != "two.example":
            return real(host, *rest, **more)  # type: ignore[arg-type]  # handed on as it came
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, web.port)) for address in ("127.0.0.2", "127.0.0.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    outcome = await task(web.url("/x", "two.example"))
    assert outcome.status == "ok"
    assert web.requests[0].headers["host"] == f"two.example:{web.port}"
