"""Addresses: the parts that messages show, and hosts of this machine."""

from __future__ import annotations

import pytest

from arclog.drivers.addresses import HIDDEN, is_loopback, secrets_of, shown, without_logins


def test_what_is_shown_of_an_address() -> None:
    assert shown("https://u:p@hooks.example.com:8443/T0/secret?x=1#y") == "https://hooks.example.com:8443"
    assert shown("nats://[::1]:4222") == "nats://[::1]:4222"
    assert shown("host:80/path") == "host:80"
    assert shown("http://u:12/34@host") == HIDDEN
    assert shown("") == HIDDEN


def test_secrets_of_an_address() -> None:
    assert {"u:p%40", "u", "p%40", "p@", "t%20k", "t k"} <= set(secrets_of("http://u:p%40@h/v1?token=t%20k"))
    assert secrets_of("http://h/v1/traces") == []


def test_texts_of_other_programs_lose_their_logins() -> None:
    message = "error: http://u:ca@nary/x@pypi.example/simple and 'https://token@h/y' gave 401, see https://h/z"
    assert (
        without_logins(message) == "error: http://…@pypi.example/simple and 'https://…@h/y' gave 401, see https://h/z"
    )


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"])
def test_hosts_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "localhost.example", "10.0.0.1", "0.0.0.0", "[::]", "127.0.0.1.example"])
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)
