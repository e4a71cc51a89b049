"""Who a task is to a server: every sort of credential, encryption, and what is never shown."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nkeys  # type: ignore[import-untyped]  # it has no types
import pytest

from arclog.ports.secrets import Credential
from tests.integration.tools.nats.conftest import Open, Runner
from tests.servers.certs import certificate
from tests.servers.nats import NatsServer, running_nats

PASSWORD = "CANARYpass"


def seed(prefix: bytes, number: int) -> str:
    """An NKEY's seed, the same in each run."""
    raw = hashlib.sha256(b"arclog" + prefix + bytes([number])).digest()
    return str(nkeys.encode_seed(raw, prefix[0]).decode())


def public(text: str) -> str:
    return str(nkeys.from_seed(bytearray(text.encode())).public_key.decode())


USER_SEED = seed(bytes([nkeys.PREFIX_BYTE_USER]), 1)


def credential(kind: str = "secret", **fields: Any) -> Credential:
    return Credential("login", kind, fields, tuple(str(value) for value in fields.values()))


def value(text: str) -> Credential:
    return credential(value=text)


# -- names, passwords, keys and tokens

USERS = f"""
accounts {{
  A {{
    jetstream: enabled
    users: [
      {{user: ada, password: "{PASSWORD}"}}
      {{nkey: "{public(USER_SEED)}"}}
      {{user: bob, password: "{PASSWORD}", permissions: {{publish: ["open.>"], subscribe: ["mine.>"]}}}}
    ]
  }}
  B {{ users: [{{user: eve, password: "{PASSWORD}"}}] }}
}}
"""


@pytest.fixture(scope="module")
def users() -> Iterator[NatsServer]:
    with running_nats(config=USERS) as server:
        yield server


def logged_in(opened: Open, url: str, auth: Credential | None, **settings: Any) -> Runner:
    run = opened(url, **settings)
    run.auth = auth
    return run


ADA = credential("basic", username="ada", password=PASSWORD)
BOB = credential("basic", username="bob", password=PASSWORD)
EVE = credential("basic", username="eve", password=PASSWORD)


@pytest.mark.parametrize(
    "auth",
    [
        ADA,
        value(json.dumps({"user": "ada", "password": PASSWORD})),
        credential(username="ada", password=PASSWORD),
        value(USER_SEED),
        credential(seed=USER_SEED),
    ],
)
async def test_logins_that_a_server_takes(opened: Open, users: NatsServer, auth: Credential) -> None:
    run = logged_in(opened, users.url, auth)
    assert await run.data("publish", subject="x", data=1) == {"published": 1}


async def test_a_server_and_its_login_out_of_a_credential(opened: Open, users: NatsServer) -> None:
    url = f"nats://ada:{PASSWORD}@127.0.0.1:{users.port}"
    for auth in (value(url), credential(url=url), credential(servers=[users.url], user="ada", password=PASSWORD)):
        run = logged_in(opened, "", auth)
        assert await run.data("publish", subject="x", data=1) == {"published": 1}
    # What the task names goes before what the credential names; the login is the credential's.
    run = logged_in(opened, users.url, value(f"nats://ada:{PASSWORD}@127.0.0.1:9"))
    assert await run.data("publish", subject="x", data=1) == {"published": 1}


async def test_a_token(opened: Open) -> None:
    with running_nats(config=f'authorization {{ token: "{PASSWORD}" }}') as server:
        for auth in (
            value(PASSWORD),
            credential("bearer", token=PASSWORD, value=PASSWORD, header=f"Bearer {PASSWORD}"),
            value(f"nats://{PASSWORD}@127.0.0.1:{server.port}"),
        ):
            run = logged_in(opened, server.url, auth)
            assert await run.data("publish", subject="x", data=1) == {"published": 1}


@pytest.mark.parametrize(
    "auth",
    [
        None,
        value("CANARYwrong"),
        credential("basic", username="ada", password="CANARYwrong"),
        value(seed(bytes([nkeys.PREFIX_BYTE_USER]), 2)),
    ],
)
async def test_a_login_that_a_server_does_not_take(opened: Open, users: NatsServer, auth: Credential | None) -> None:
    problem = await logged_in(opened, users.url, auth).failure("publish", subject="x", data=1)
    assert (problem.kind, problem.code, problem.retryable) == ("auth", "LOGIN", False)
    assert "Authorization Violation" in problem.message
    assert ("the task has no `auth`" in problem.message) is (auth is None)
    assert "CANARY" not in problem.message


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        (credential("postgres_credential", host="h"), "has no login"),
        (credential(username="ada"), "has no login"),
        (value("-----BEGIN NATS USER JWT-----\nCANARY\n------END NATS USER JWT------\n"), "is not a .creds file"),
        (credential(seed="SUCANARY"), "is not an NKEY of a user"),
        (value("nats://CANARY:CANARY@h:port"), "is not an address of a NATS server"),
        (value("nats://h/CANARY"), "is not an address of a NATS server"),
    ],
)
async def test_a_credential_that_does_not_suit(opened: Open, users: NatsServer, auth: Credential, said: str) -> None:
    problem = await logged_in(opened, users.url, auth).failure("publish", subject="x", data=1)
    assert (problem.kind, problem.retryable) == ("config", False)
    assert said in problem.message
    assert "CANARY" not in problem.message


async def test_a_credentials_server_is_never_shown(opened: Open) -> None:
    auth = value("nats://u:p@CANARY.invalid:4222")
    problem = await logged_in(opened, "", auth).failure("publish", subject="x", data=1)
    assert (problem.kind, problem.code) == ("connection", "DNS")
    assert "the server of auth 'login'" in problem.message
    assert "canary" not in problem.message.lower()


# -- what a login may do


async def test_a_subject_that_a_login_may_not_publish_to(opened: Open, users: NatsServer) -> None:
    run = logged_in(opened, users.url, BOB)
    assert await run.data("publish", subject="open.a", data=1) == {"published": 1}
    for config in ({"subject": "Closed.a", "data": 1}, {"messages": [{"subject": "open.b"}, {"subject": "Closed.b"}]}):
        problem = await run.failure("publish", **config)
        assert (problem.kind, problem.code, problem.retryable) == ("auth", "PERMISSION", False)
        assert "is not allowed to publish" in problem.message
    assert await run.data("publish", subject="open.a", data=1) == {"published": 1}


async def test_answers_that_a_login_may_not_receive(opened: Open, users: NatsServer) -> None:
    run = logged_in(opened, users.url, BOB)
    for _ in range(2):  # also on the connection that knows it by now
        problem = await run.failure("request", subject="open.a")
        assert (problem.kind, problem.code) == ("auth", "PERMISSION")
        assert "inbox_prefix" in problem.message
    assert await run.data("publish", subject="open.a", data=1) == {"published": 1}
    problem = await run.failure("request", subject="open.a", inbox_prefix="mine")
    assert problem.code == "NO_RESPONDERS"
    problem = await run.failure("request", subject="Closed.a", inbox_prefix="mine")
    assert problem.code == "PERMISSION"


@pytest.mark.parametrize(
    ("op", "config"),
    [
        ("publish", {"subject": "x", "data": 1, "stream": True}),
        ("fetch", {"stream": "S", "consumer": "c"}),
        ("kv_get", {"bucket": "b", "key": "k"}),
        ("kv_put", {"bucket": "b", "key": "k", "data": 1}),
        ("kv_keys", {"bucket": "b"}),
    ],
)
async def test_an_account_without_jetstream(opened: Open, users: NatsServer, op: str, config: dict[str, Any]) -> None:
    problem = await logged_in(opened, users.url, EVE).failure(op, **config)
    assert (problem.kind, problem.code, problem.retryable) == ("config", "NO_JETSTREAM", False)


async def test_scopes_and_logins_share_no_connection(opened: Open, users: NatsServer) -> None:
    run = logged_in(opened, users.url, ADA)
    await run.data("publish", subject="x", data=1)
    run.scope = "other/default/local"
    await run.data("publish", subject="x", data=1)
    run.auth = value(USER_SEED)
    await run.data("publish", subject="x", data=1)
    run.auth = credential("basic", username="ada", password="CANARYwrong")
    assert (await run.failure("publish", subject="x", data=1)).code == "LOGIN"


# -- operators, accounts and users by JWT


def jwt(claims: dict[str, Any], signer: str) -> str:
    pair = nkeys.from_seed(bytearray(signer.encode()))
    body = {"iat": 1_700_000_000, "iss": public(signer), "jti": "x", **claims}

    def part(data: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")

    head = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(body)}"
    return f"{head}.{base64.urlsafe_b64encode(pair.sign(head.encode())).decode().rstrip('=')}"


async def test_a_creds_file(opened: Open, tmp_path: Path) -> None:
    operator = seed(bytes([nkeys.PREFIX_BYTE_OPERATOR]), 1)
    account = seed(bytes([nkeys.PREFIX_BYTE_ACCOUNT]), 1)
    system = seed(bytes([nkeys.PREFIX_BYTE_ACCOUNT]), 2)
    every = {"subs": -1, "data": -1, "payload": -1}
    limits = {**every, "imports": -1, "exports": -1, "conn": -1, "leaf": -1, "wildcards": True}

    def of_account(text: str) -> str:
        return jwt({"sub": public(text), "nats": {"type": "account", "version": 2, "limits": limits}}, operator)

    own = jwt({"sub": public(operator), "name": "O", "nats": {"type": "operator", "version": 2}}, operator)
    of_user = jwt({"sub": public(USER_SEED), "name": "U", "nats": {"type": "user", "version": 2, **every}}, account)
    (tmp_path / "operator.jwt").write_text(own)
    preloaded = ", ".join(f"{public(keys)}: {of_account(keys)}" for keys in (account, system))
    config = f"""
operator: "{tmp_path}/operator.jwt"
system_account: {public(system)}
resolver: MEMORY
resolver_preload: {{ {preloaded} }}
"""
    creds = (
        f"-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n"
        f"************************* IMPORTANT *************************\n"
        f"-----BEGIN USER NKEY SEED-----\n{USER_SEED}\n------END USER NKEY SEED------\n"
    )
    with running_nats(config=config) as server:
        for auth in (value(creds), credential("file", value=creds), credential(jwt=of_user, seed=USER_SEED)):
            run = logged_in(opened, server.url, auth)
            assert await run.data("publish", subject="x", data=1) == {"published": 1}
        other = creds.replace(USER_SEED, seed(bytes([nkeys.PREFIX_BYTE_USER]), 2))
        problem = await logged_in(opened, server.url, value(other)).failure("publish", subject="x", data=1)
        assert (problem.kind, problem.code) == ("auth", "LOGIN")


# -- encryption


def encrypting(folder: Path, *, more: str = "") -> str:
    """The limit is higher than the usual 2 s: with `allow_non_tls`, a server goes on in the clear when a busy client's handshake
    has not begun by then.
    """
    made = certificate(folder)
    return f'tls {{ cert_file: "{made.chain}", key_file: "{made.key}", timeout: 60 }}\n{more}'


@pytest.mark.parametrize("scheme", ["nats", "tls"])
@pytest.mark.parametrize("more", ["", "allow_non_tls: true"])
async def test_an_encrypted_connection(opened: Open, tmp_path: Path, scheme: str, more: str) -> None:
    config = encrypting(tmp_path, more=more)
    with running_nats(config=config) as server:
        for host in ("127.0.0.1", "localhost"):
            url = f"{scheme}://{host}:{server.port}"
            run = opened(url, nats__ca_file=str(tmp_path / "authority.pem"))
            assert await run.data("publish", subject="x", data=1) == {"published": 1}
        if scheme == "tls" or not more:
            problem = await opened(url).failure("publish", subject="x", data=1)
            assert (problem.kind, problem.code, problem.retryable) == ("connection", "CERTIFICATE", False)
            assert "nats.ca_file" in problem.message


async def test_nothing_is_said_in_the_clear_where_encryption_was_asked_for(opened: Open, users: NatsServer) -> None:
    run = logged_in(opened, f"tls://127.0.0.1:{users.port}", ADA)
    problem = await run.failure("publish", subject="x", data=1)
    assert (problem.kind, problem.code, problem.retryable) == ("connection", "TLS", False)
    assert "does not encrypt" in problem.message


async def test_a_certificate_for_another_name(opened: Open, tmp_path: Path) -> None:
    made = certificate(tmp_path, "elsewhere.example")
    with running_nats(config=f'tls {{ cert_file: "{made.chain}", key_file: "{made.key}" }}') as server:
        run = opened(f"tls://127.0.0.1:{server.port}", nats__ca_file=str(made.authority))
        assert (await run.failure("publish", subject="x", data=1)).code == "CERTIFICATE"


async def test_authorities_that_cannot_be_read(opened: Open, tmp_path: Path) -> None:
    with running_nats(config=encrypting(tmp_path)) as server:
        run = opened(server.url, nats__ca_file=str(tmp_path / "none.pem"))
        problem = await run.failure("publish", subject="x", data=1)
        assert problem.kind == "config"
        assert "nats.ca_file" in problem.message
