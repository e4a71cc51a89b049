"""Tokens of an issuer: good ones are taken, and everything that is not exactly right is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError, StoreUnavailable, Unauthenticated
from arclog.server.auth.gate import Gate
from arclog.server.auth.tokens import KeySet, Tokens, tokens_of
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from tests.integration.server.callers import bearer
from tests.servers.tokens import AUDIENCE, ISSUER, Issuer

CONFIGURED = {"auth.jwt_issuer": ISSUER, "auth.jwt_audience": AUDIENCE}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    issuer = Issuer()
    for algorithm in ("RS256", "ES256", "EdDSA"):
        issuer.add(algorithm, algorithm)
    return issuer


@pytest.fixture
def tokens(issuer: Issuer, tmp_path: Path) -> Tokens:
    return _tokens(issuer.jwks(), tmp_path)


def _tokens(jwks: Any, folder: Path, **settings: Any) -> Tokens:
    file = folder / "jwks.json"
    file.write_text(json.dumps(jwks))
    made = tokens_of(Settings({**CONFIGURED, "auth.jwt_keys": str(file), **settings}), FakeClock())
    assert made is not None
    return made


@pytest.mark.parametrize("kid", ["RS256", "ES256", "EdDSA"])
async def test_a_good_token_is_taken(tokens: Tokens, issuer: Issuer, kid: str) -> None:
    principal = await tokens.prove(issuer.token(kid))
    assert (principal.name, principal.tenant, principal.roles) == ("ada", "acme", frozenset({"operator"}))


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": int(time.time()) - 31}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "refused"),
        ({"nbf": int(time.time()) + 3600}, "not yet valid"),
        ({"iat": int(time.time()) + 3600}, "not yet valid"),
        ({"aud": "another"}, r"[Aa]udience"),
        ({"aud": None}, "aud"),
        ({"aud": [1]}, "refused"),
        ({"iss": "https://issuer.example.evil"}, "issuer"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "sub"),
        ({"sub": "a\nb"}, "sub"),
        ({"tenant": None}, "tenant"),
        ({"tenant": ["acme"]}, "tenant"),
        ({"tenant": "acme/other"}, "tenant"),
        ({"tenant": ""}, "tenant"),
    ],
)
async def test_a_token_that_is_not_right_is_refused(
    tokens: Tokens, issuer: Issuer, claims: dict[str, Any], why: str
) -> None:
    with pytest.raises(Unauthenticated, match=why):
        await tokens.prove(issuer.token("ES256", **claims))


async def test_clocks_may_be_a_little_apart(tokens: Tokens, issuer: Issuer) -> None:
    now = int(time.time())
    await tokens.prove(issuer.token("ES256", exp=now - 10, nbf=now + 10))


async def test_a_token_without_a_signature_is_refused(tokens: Tokens, issuer: Issuer) -> None:
    _, body, signature = issuer.token("ES256").split(".")
    for algorithm in ("none", "None", "NONE", "", None, ["ES256"], 5):
        head = _part({"alg": algorithm, "typ": "JWT", "kid": "ES256"})
        for text in (f"{head}.{body}.", f"{head}.{body}.{signature}"):
            with pytest.raises(Unauthenticated):
                await tokens.prove(text)


async def test_nobody_signs_with_what_everybody_may_read(issuer: Issuer, tmp_path: Path) -> None:
    """HS256 with the public key as the secret, in each form that it is published in."""
    jwks = issuer.jwks()
    tokens = _tokens(jwks, tmp_path)
    _, body, _ = issuer.token("RS256").split(".")
    public = issuer.keys["RS256"][1].public_key()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    secrets = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(jwks["keys"][0]).encode(),
    ]
    for secret in secrets:
        for algorithm in ("HS256", "RS256"):
            head = _part({"alg": algorithm, "kid": "RS256"})
            signature = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest()
            with pytest.raises(Unauthenticated):
                await tokens.prove(f"{head}.{body}.{_text(signature)}")


async def test_a_secret_in_the_set_is_not_used(issuer: Issuer, tmp_path: Path) -> None:
    import jwt

    secret = b"s" * 32
    jwks = {"keys": [*issuer.jwks()["keys"], {"kty": "oct", "kid": "shared", "alg": "HS256", "k": _text(secret)}]}
    tokens = _tokens(jwks, tmp_path)
    claims = jwt.decode(issuer.token("ES256"), options={"verify_signature": False})
    with pytest.raises(Unauthenticated):
        await tokens.prove(jwt.encode(claims, secret, "HS256", headers={"kid": "shared"}))


async def test_a_key_of_another_kind_does_not_fit(tokens: Tokens, issuer: Issuer) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.prove(issuer.token("ES256", header={"kid": "RS256"}))
    _, body, signature = issuer.token("ES256").split(".")
    kids: list[Any] = [5, None, ["ES256"], {}]
    for kid in kids:
        with pytest.raises(Unauthenticated):
            await tokens.prove(f"{_part({'alg': 'ES256', 'kid': kid})}.{body}.{signature}")


async def test_a_key_in_the_token_itself_proves_nothing(tokens: Tokens) -> None:
    stranger = Issuer()
    stranger.add("ES256")
    jwk = stranger.jwks()["keys"][0]
    for header in ({}, {"jwk": jwk}, {"jku": "https://evil.example/jwks"}, {"kid": "ES256", "jwk": jwk}):
        with pytest.raises(Unauthenticated):
            await tokens.prove(stranger.token("ES256", header=header))


@pytest.mark.parametrize("text", ["x", "a.b", "a.b.c", "....", "eyJ.eyJ.x", "é.é.é", "\x00", "a" * 16_000])
async def test_garbage_is_refused(tokens: Tokens, text: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens.prove(text)


async def test_a_token_that_nests_too_deep_is_refused(tokens: Tokens, issuer: Issuer) -> None:
    head, body, signature = issuer.token("ES256").split(".")
    deep = _text(b"[" * 11_000)
    for text in (f"{deep}.{body}.{signature}", f"{head}.{deep}.{signature}"):
        with pytest.raises(Unauthenticated):
            await tokens.prove(text)


async def test_a_changed_token_is_refused(tokens: Tokens, issuer: Issuer) -> None:
    head, body, signature = issuer.token("ES256").split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    for changed in ({**claims, "roles": ["admin"]}, {**claims, "tenant": "other"}):
        with pytest.raises(Unauthenticated, match=r"[Ss]ignature"):
            await tokens.prove(f"{head}.{_part(changed)}.{signature}")


@pytest.mark.parametrize(
    ("settings", "claims", "found"),
    [
        ({}, {"roles": ["operator", "boss", 5, None]}, {"operator"}),
        ({}, {"roles": "viewer  producer"}, {"viewer", "producer"}),
        ({}, {"roles": None}, set()),
        ({}, {"roles": {"admin": True}}, set()),
        ({}, {"roles": ["Admin", "ADMIN", " admin"]}, set()),
        ({"auth.jwt_roles_claim": "realm.roles"}, {"realm": {"roles": ["viewer"]}}, {"viewer"}),
        ({"auth.jwt_roles_claim": "https://a.example/roles"}, {"https://a.example/roles": ["viewer"]}, {"viewer"}),
    ],
)
async def test_roles_come_from_a_claim(
    issuer: Issuer, tmp_path: Path, settings: dict[str, str], claims: dict[str, Any], found: set[str]
) -> None:
    tokens = _tokens(issuer.jwks(), tmp_path, **settings)
    assert (await tokens.prove(issuer.token("ES256", **claims))).roles == found


# -- the set of keys --------------------------------------------------------------------------------------------------


@pytest.fixture
async def published() -> AsyncIterator[tuple[Issuer, KeySet, FakeClock]]:
    issuer, clock = Issuer(), FakeClock()
    issuer.add("first")
    async with issuer.published() as address:
        yield issuer, KeySet(Settings({**CONFIGURED, "auth.jwt_keys": address}), clock), clock


async def test_a_new_key_is_found_and_an_old_one_forgotten(published: tuple[Issuer, KeySet, FakeClock]) -> None:
    issuer, keys, clock = published
    assert await keys.find("first", "ES256") is not None
    issuer.add("second")
    assert await keys.find("second", "ES256") is None  # looked a moment ago
    clock.advance(10)
    assert await keys.find("second", "ES256") is not None
    assert issuer.fetched == 2
    del issuer.keys["first"]
    assert await keys.find("first", "ES256") is not None
    clock.advance(300)
    assert await keys.find("first", "ES256") is None


async def test_unknown_keys_do_not_make_a_server_ask_all_the_time(
    published: tuple[Issuer, KeySet, FakeClock],
) -> None:
    issuer, keys, _ = published
    for n in range(50):
        assert await keys.find(f"unknown {n}", "ES256") is None
    assert issuer.fetched == 1


async def test_an_issuer_that_is_away_does_not_shut_people_out(published: tuple[Issuer, KeySet, FakeClock]) -> None:
    issuer, keys, clock = published
    assert await keys.find("first", "ES256") is not None
    issuer.keys.clear()  # its answer has no usable key
    clock.advance(300)
    assert await keys.find("first", "ES256") is not None


async def test_keys_are_not_fetched_from_where_the_process_must_not_go() -> None:
    issuer = Issuer()
    issuer.add("first")
    async with issuer.published() as address:
        settings = Settings({**CONFIGURED, "auth.jwt_keys": address, "network.allow_networks": "none"})
        with pytest.raises(StoreUnavailable, match=r"network\.allow_networks"):
            await KeySet(settings, FakeClock()).find("first", "ES256")
        assert issuer.fetched == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"keys": {}}', b'{"keys": []}', b'{"keys": [5, null, {}]}', b"x" * 300_000],
)
async def test_a_set_that_is_none_is_said_so(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(content)
    keys = KeySet(Settings({**CONFIGURED, "auth.jwt_keys": str(file)}), FakeClock())
    with pytest.raises(StoreUnavailable, match=r"jwks\.json"):
        await keys.find("a", "ES256")


async def test_keys_that_may_not_be_used_are_passed_over(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from jwt.algorithms import ECAlgorithm, RSAAlgorithm

    issuer = Issuer()
    issuer.add("good")
    weak = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True)
    private = ECAlgorithm.to_jwk(issuer.keys["good"][1], as_dict=True)
    (good,) = issuer.jwks()["keys"]
    file = tmp_path / "jwks.json"
    listed = [{**weak, "kid": "weak"}, {**private, "kid": "private"}, {**good, "kid": "enc", "use": "enc"}, good]
    file.write_text(json.dumps({"keys": listed}))
    keys = KeySet(Settings({**CONFIGURED, "auth.jwt_keys": str(file)}), FakeClock())
    assert await keys.find("good", "ES256") is not None
    for kid in ("private", "enc"):
        assert await keys.find(kid, "ES256") is None
    assert await keys.find("weak", "RS256") is None
    assert await keys.find("", "ES256") is not None  # the only one that is left


@pytest.mark.parametrize("missing", ["auth.jwt_issuer", "auth.jwt_audience", "auth.jwt_keys"])
def test_half_a_configuration_is_none(missing: str) -> None:
    values = {**CONFIGURED, "auth.jwt_keys": "jwks.json"}
    del values[missing]
    with pytest.raises(SettingsError, match=missing):
        tokens_of(Settings(values), FakeClock())


def test_keys_come_by_https() -> None:
    with pytest.raises(SettingsError, match="not https"):
        tokens_of(Settings({**CONFIGURED, "auth.jwt_keys": "http://issuer.example/jwks"}), FakeClock())


async def test_tokens_make_a_server_require_them(issuer: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps(issuer.jwks()))
    clock = FakeClock()
    settings = Settings({**CONFIGURED, "auth.jwt_keys": str(file)})
    store = MemoryStore(clock=clock, settings=settings)
    await store.open()
    gate = Gate(settings, store, clock)
    await gate.check_address("0.0.0.0")
    with pytest.raises(Unauthenticated):
        await gate.authenticate({"host": "127.0.0.1"}, "127.0.0.1")
    assert (await gate.authenticate(bearer(issuer.token("ES256")), "127.0.0.1")).tenant == "acme"
    with pytest.raises(Unauthenticated, match="max_token_bytes"):
        await gate.authenticate(bearer(issuer.token("ES256", padding="x" * 20_000)), "127.0.0.1")
    with pytest.raises(SettingsError, match="change one of them"):
        Gate(Settings({**CONFIGURED, "auth.jwt_keys": str(file), "auth.mode": "none"}), store, clock)


def _part(value: Any) -> str:
    return _text(json.dumps(value).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
