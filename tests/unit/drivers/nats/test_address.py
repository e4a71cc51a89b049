"""Addresses of NATS servers and logins: read, or refused without repeating them."""

from __future__ import annotations

import pytest

from arclog.drivers.nats.address import AddressError, Login, Server, creds_login, servers_of

SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
CREDS = (
    "-----BEGIN NATS USER JWT-----\neyJ.a.b\n------END NATS USER JWT------\n\n"
    f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
)


@pytest.mark.parametrize(
    ("text", "servers", "login"),
    [
        ("nats://h", ["nats://h:4222"], Login()),
        ("h:4333", ["nats://h:4333"], Login()),
        ("tls://h", ["tls://h:4222"], Login()),
        ("nats://[::1]:9/", ["nats://[::1]:9"], Login()),
        ("nats://u:a%20b%40@h", ["nats://h:4222"], Login(user="u", password="a b@")),
        ("nats://u:p@w:/?x@h", ["nats://h:4222"], Login(user="u", password="p@w:/?x")),
        ("nats://u:@h", ["nats://h:4222"], Login(user="u")),
        ("nats://tok%2Fen@h", ["nats://h:4222"], Login(token="tok/en")),
        ("tls://u:p@a, b:1 ,tls://c", ["tls://a:4222", "tls://b:1", "tls://c:4222"], Login(user="u", password="p")),
    ],
)
def test_addresses(text: str, servers: list[str], login: Login) -> None:
    servers_read, login_read = servers_of(text)
    assert [str(server) for server in servers_read] == servers
    assert login_read == login


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not an address of a NATS server"),
        ("http://h", "not an address of a NATS server"),
        ("nats://", "not an address of a NATS server"),
        ("nats://u:canary@h:port", "not an address of a NATS server"),
        ("nats://u:canary@h:99999", "not an address of a NATS server"),
        ("nats://u:canary@h/path", "not an address of a NATS server"),
        ("nats://h?token=canary", "not an address of a NATS server"),
        ("nats://h?token=can@ary", r"a \?name= before an @"),
        ("nats://a,nats://u:canary@b", "in the first of several"),
        ("nats://u:can,ary@h", "not an address of a NATS server"),
        ("nats://a,tls://b", "are mixed"),
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(text: str, message: str) -> None:
    with pytest.raises(AddressError, match=message) as refused:
        servers_of(text)
    assert "can" not in str(refused.value)
    assert "ary" not in str(refused.value)


def test_a_login_in_the_clients_words() -> None:
    assert Login().options() == {}
    assert Login(user="u", password="p").options() == {"user": "u", "password": "p"}
    assert Login(user="u").options() == {"user": "u", "password": ""}
    assert Login(token="t").options() == {"token": "t"}
    assert Login(seed=SEED, token="t").options() == {"token": "t", "nkeys_seed_str": SEED}
    signed = Login(jwt="eyJ", seed=SEED).options()
    assert bytes(signed["user_jwt_cb"]()) == b"eyJ"
    assert len(signed["signature_cb"]("nonce")) == 88
    assert "eyJ" not in repr(Login(jwt="eyJ", seed=SEED, password="p"))


def test_the_login_of_a_creds_file() -> None:
    assert creds_login(CREDS) == Login(jwt="eyJ.a.b", seed=SEED)
    for text in ("", "canary", CREDS.partition("-----BEGIN USER")[0]):
        with pytest.raises(AddressError, match=r"not a \.creds file") as refused:
            creds_login(text)
        assert "canary" not in str(refused.value)


@pytest.mark.parametrize("seed", ["canary", "SUcanary", f"{SEED}canary"])
def test_a_seed_that_is_none_is_refused_without_repeating_it(seed: str) -> None:
    with pytest.raises(AddressError, match="not an NKEY of a user") as refused:
        Login(seed=seed).options()
    assert "canary" not in str(refused.value)


def test_how_a_server_is_shown() -> None:
    assert str(Server("::1", 4222, encrypted=True)) == "tls://[::1]:4222"
