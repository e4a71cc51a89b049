"""API keys: made, proved, remembered, ended; and addresses that guess."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import NotAllowed, RequestRejected, SettingsError, TooManyRequests, Unauthenticated
from arclog.ports.storage.access import KeyRecord
from arclog.server.auth import keys as keys_module
from arclog.server.auth.gate import Failures, Gate
from arclog.server.auth.keys import Keys, make_key
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from tests.integration.server.callers import bearer

HERE = {"host": "127.0.0.1:8420"}


class World:
    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.settings = Settings(settings)
        self.store = MemoryStore(clock=self.clock, settings=self.settings)
        self.gate = Gate(self.settings, self.store, self.clock)

    async def key(self, role: str = "operator", tenant: str = "acme", **more: Any) -> tuple[str, KeyRecord]:
        text, record = make_key("ci", [role], tenant, self.clock.now(), **more)
        await self.store.add_key(record)
        return text, record


@pytest.fixture
async def world() -> World:
    world = World()
    await world.store.open()
    return world


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[KeyRecord | None]:
    """What argon2 was asked about from now on."""
    requests: list[KeyRecord | None] = []
    verify = Keys._verify

    def counted(keys: Keys, text: str, record: KeyRecord | None) -> bool:
        requests.append(record)
        return verify(keys, text, record)

    monkeypatch.setattr(Keys, "_verify", counted)
    return requests


async def test_a_key_says_who_its_holder_is(world: World) -> None:
    text, record = await world.key(project="shop", environment="live")
    principal = await world.gate.authenticate(bearer(text), "10.0.0.1")
    assert (principal.name, principal.tenant, principal.roles) == ("ci", "acme", frozenset({"operator"}))
    assert (principal.project, principal.environment) == ("shop", "live")
    secret = text.rpartition("_")[2]
    assert text == f"ark_{record.key_id}_{secret}"
    assert secret not in repr(record)
    assert record.hash.startswith("$argon2id$")


@pytest.mark.parametrize("change", ["secret", "id", "both", "short", "long", "unicode", "empty"])
async def test_what_is_not_the_key_is_nobodys(world: World, change: str) -> None:
    text, record = await world.key()
    other, _ = make_key("x", ["admin"], "acme", 1)
    _, _, secret = text.split("_")
    wrong = {
        "secret": f"ark_{record.key_id}_{other.split('_')[2]}",
        "id": f"ark_{other.split('_')[1]}_{secret}",
        "both": other,
        "short": text[:-1],
        "long": text + "a",
        "unicode": text[:-1] + "é",
        "empty": "ark_",
    }[change]
    with pytest.raises(Unauthenticated, match="invalid API key"):
        await world.gate.authenticate(bearer(wrong), "10.0.0.1")


@pytest.mark.parametrize("header", ["", "Basic YTpi", "Bearer", "Bearer ", "bearer  ", "Token x"])
async def test_no_credential_is_nobody(world: World, header: str) -> None:
    await world.key()
    with pytest.raises(Unauthenticated):
        await world.gate.authenticate({"authorization": header, **HERE}, "127.0.0.1")


async def test_a_revoked_key_ends_within_the_cache_time(world: World) -> None:
    text, record = await world.key()
    await world.gate.authenticate(bearer(text), "10.0.0.1")
    await world.store.revoke_key(record.key_id, world.clock.now())
    await world.gate.authenticate(bearer(text), "10.0.0.1")  # still believed
    world.clock.advance(10)
    with pytest.raises(Unauthenticated, match="revoked"):
        await world.gate.authenticate(bearer(text), "10.0.0.1")


async def test_a_key_expires_on_the_dot(world: World) -> None:
    text, _ = await world.key(expires_at=world.clock.now() + 5_000_000)
    await world.gate.authenticate(bearer(text), "10.0.0.1")
    world.clock.advance(5)
    with pytest.raises(Unauthenticated, match="expired"):
        await world.gate.authenticate(bearer(text), "10.0.0.1")


async def test_argon2_is_asked_once_a_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = await world.key()
    verifications = _counted(monkeypatch)
    for _ in range(3):
        await world.gate.authenticate(bearer(text), "10.0.0.1")
        world.clock.advance(60)
    assert len(verifications) == 1


async def test_of_many_who_come_with_one_key_at_once_none_is_sent_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart all who follow a run come back together."""
    verifications = _counted(monkeypatch)
    text, _ = await world.key()
    results = await asyncio.gather(*(world.gate.authenticate(bearer(text), "10.0.0.1") for _ in range(300)))
    assert {principal.name for principal in results} == {"ci"}
    assert len(verifications) == 1
    wrong = f"ark_{'0' * 16}_{'0' * 43}"
    refused = await asyncio.gather(
        *(world.gate.authenticate(bearer(wrong), "10.0.0.2") for _ in range(100)), return_exceptions=True
    )
    assert {type(error) for error in refused} <= {Unauthenticated, TooManyRequests}
    assert len(verifications) <= 3


async def test_remembered_keys_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "_REMEMBERED", 2)
    texts = [(await world.key())[0] for _ in range(3)]
    keys = Keys(world.store, world.clock, world.settings)
    for text in texts:
        await keys.prove(text)
    assert await keys.cached(texts[0]) is None
    assert await keys.cached(texts[2]) is not None


async def test_an_unknown_id_is_checked_as_slowly_as_a_known_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a key exists must not show in the time that an answer takes: argon2 is asked all the same."""
    await world.key()
    verifications = _counted(monkeypatch)
    for wrong in (make_key("x", ["admin"], "t", 1)[0], "ark_nonsense"):
        with pytest.raises(Unauthenticated):
            await world.gate.authenticate(bearer(wrong), "10.0.0.1")
    assert verifications == [None, None]


async def test_an_address_that_guesses_must_wait_and_others_need_not() -> None:
    world = World(**{"auth.max_failures": 3})
    await world.store.open()
    valid_key, _ = await world.key()
    fresh, _ = await world.key()
    await world.gate.authenticate(bearer(valid_key), "10.0.0.1")
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await world.gate.authenticate(bearer("ark_guess"), "10.0.0.1")
    with pytest.raises(TooManyRequests) as refused:
        await world.gate.authenticate(bearer("ark_guess"), "10.0.0.1")
    assert refused.value.retry_after_s == 60
    with pytest.raises(TooManyRequests):  # right or wrong: it is not even looked at
        await world.gate.authenticate(bearer(fresh), "10.0.0.1")
    with pytest.raises(TooManyRequests):
        await world.gate.authenticate({}, "10.0.0.1")
    await world.gate.authenticate(bearer(valid_key), "10.0.0.1")  # proved before: nobody else's guesses shut it out
    await world.gate.authenticate(bearer(fresh), "10.0.0.2")
    world.clock.advance(60)
    await world.gate.authenticate(bearer(fresh), "10.0.0.1")


def test_failures_are_counted_by_network_and_forgotten() -> None:
    clock = FakeClock()
    failures = Failures(clock, 1)
    failures.note("2001:db8::1")
    with pytest.raises(TooManyRequests):
        failures.check("2001:db8::ffff")
    failures.check("2001:db8:0:1::1")
    failures.note("::ffff:10.0.0.1")
    with pytest.raises(TooManyRequests):
        failures.check("10.0.0.1")
    for n in range(20_000):
        failures.note(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert len(failures._counts) == 10_000


@pytest.mark.parametrize(
    "given",
    [
        {"roles": ["boss"]},
        {"roles": []},
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 129},
        {"tenant": "a/b"},
        {"tenant": ""},
        {"project": "../x"},
        {"environment": "é"},
        {"expires_at": 5},
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(given: dict[str, Any]) -> None:
    good: dict[str, Any] = {"name": "ci", "roles": ["viewer"], "tenant": "acme", "now": 10}
    with pytest.raises(RequestRejected):
        make_key(**{**good, **given})


# -- without authentication -------------------------------------------------------------------------------------------


async def test_without_keys_everybody_on_this_machine_may_everything(world: World) -> None:
    principal = await world.gate.authenticate(HERE, "127.0.0.1")
    assert (principal.tenant, "admin" in principal.roles) == ("default", True)


async def test_the_first_key_closes_a_server_that_runs_and_the_last_does_not_open_it(world: World) -> None:
    await world.gate.authenticate(HERE, "127.0.0.1")
    _, record = await world.key()
    world.clock.advance(10)
    with pytest.raises(Unauthenticated):
        await world.gate.authenticate(HERE, "127.0.0.1")
    await world.store.revoke_key(record.key_id, world.clock.now())
    world.clock.advance(10)
    with pytest.raises(Unauthenticated):
        await world.gate.authenticate(HERE, "127.0.0.1")
    again = Gate(world.settings, world.store, world.clock)
    with pytest.raises(Unauthenticated):
        await again.authenticate(HERE, "127.0.0.1")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "evil.example"},
        {"host": "evil.example:8420"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example:8420"},
        {"host": "10.0.0.1"},
        {"host": "[::2]:8420"},
        {**HERE, "origin": "https://evil.example"},
        {**HERE, "origin": "null"},
        {**HERE, "origin": "http://127.0.0.1:3000"},
        {**HERE, "sec-fetch-site": "cross-site"},
        {**HERE, "sec-fetch-site": "same-site"},
    ],
)
async def test_without_authentication_no_page_of_another_site_is_answered(
    world: World, headers: dict[str, str]
) -> None:
    with pytest.raises(NotAllowed):
        await world.gate.authenticate(headers, "127.0.0.1")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost"},
        {"host": "LOCALHOST:8420"},
        {"host": "127.0.0.2:1"},
        {"host": "[::1]:8420"},
        {**HERE, "origin": "http://127.0.0.1:8420", "sec-fetch-site": "same-origin"},
        {**HERE, "sec-fetch-site": "none"},
    ],
)
async def test_without_authentication_this_machine_is_answered(world: World, headers: dict[str, str]) -> None:
    await world.gate.authenticate(headers, "127.0.0.1")


async def test_required_means_that_a_server_without_keys_lets_nobody_in() -> None:
    world = World(**{"auth.mode": "required"})
    await world.store.open()
    with pytest.raises(Unauthenticated):
        await world.gate.authenticate(HERE, "127.0.0.1")


async def test_none_means_that_keys_are_not_asked_for() -> None:
    world = World(**{"auth.mode": "none"})
    await world.store.open()
    await world.key()
    await world.gate.authenticate(HERE, "127.0.0.1")


async def test_an_address_that_others_reach_needs_authentication(world: World) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        await world.gate.check_address(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "arclog.example", ""):
        with pytest.raises(SettingsError, match="arclog key create"):
            await world.gate.check_address(host)
    _, record = await world.key()
    await world.store.revoke_key(record.key_id, 1)
    await world.gate.check_address("0.0.0.0")
    open_gate = Gate(Settings({"auth.mode": "none"}), world.store, world.clock)
    with pytest.raises(SettingsError, match=r"auth\.mode is none"):
        await open_gate.check_address("0.0.0.0")
