"""What only the bus over LISTEN and NOTIFY has: addresses, refusals, and connections that die."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from arclog.buses.postgres import PostgresBus
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.ports.bus import Notice
from arclog.testing.conformance.bus import Ear, until
from arclog.wiring.backends import choose_bus
from tests.servers.postgres import Database
from tests.servers.proxy import Mode, Proxy


async def opened(settings: Settings) -> Ear:
    ear = Ear(PostgresBus(settings))
    await ear.bus.open(ear.hear)
    return ear


def test_an_address_that_is_none_is_refused_without_its_password() -> None:
    for name in ("store.url", "store.listen_url"):
        with pytest.raises(SettingsError, match="ARCLOG_" + name.replace(".", "_").upper()) as raised:
            PostgresBus(Settings({"store.url": "postgresql://a/b", name: "postgresql://joe:hunter2@[host/x"}))
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(("part", "other"), [("correct", "hunter2"), ("test_", "nowhere_")])
async def test_who_will_never_get_in_is_told_so(postgres: Database, part: str, other: str) -> None:
    with pytest.raises(SettingsError, match="ARCLOG_STORE_URL: ") as raised:
        await opened(Settings({"store.url": postgres.dsn.replace(part, other)}))
    assert "hunter2" not in str(raised.value)


async def test_notices_go_by_the_listening_address(postgres: Database, caplog: pytest.LogCaptureFixture) -> None:
    pooler = "postgresql://joe:hunter2@127.0.0.1:1/pool"
    settings = Settings({"store.url": pooler, "store.listen_url": postgres.dsn})
    a, b = await opened(settings), await opened(settings)
    a.bus.notify(Notice(moved=((1, 2),)))
    await b.until(lambda ear: ear.heads == {1: 2})
    await a.bus.close()
    await b.bus.close()
    away = await opened(Settings({"store.url": pooler}))
    assert not away.bus.figures().connected
    await away.bus.close()
    assert "hunter2" not in caplog.text


async def test_connections_that_an_operator_ends_are_made_anew(
    postgres: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "arclog.bus")
    settings = Settings({"store.url": postgres.dsn, "bus.max_retry_s": 0.05})
    a, b = await opened(settings), await opened(settings)
    killed = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'arclog bus'"
    assert len(postgres.rows(killed)) == 4
    for ear in (a, b):
        await until(lambda ear=ear: ear.bus.figures().lost == 1 and ear.bus.figures().connected)  # type: ignore[misc]  # a lambda's default cannot be typed
    a.bus.notify(Notice(moved=((1, 1),)))
    await b.until(lambda ear: ear.heads)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO", "INFO"]
    await a.bus.close()
    await b.bus.close()


async def test_a_connection_that_stands_and_carries_nothing_is_made_anew(postgres: Database) -> None:
    proxy = Proxy(postgres.port)
    try:
        far = Settings(
            {
                "store.url": replace(postgres, port=proxy.port).dsn,
                "bus.max_retry_s": 0.05,
                "bus.connect_timeout_s": 0.5,
            }
        )
        a, b = await opened(far), await opened(Settings({"store.url": postgres.dsn}))
        proxy.be(Mode.BLACK_HOLE)
        a.bus.notify(Notice(moved=((1, 1),)))
        await until(lambda: a.bus.figures().lost >= 1)
        proxy.drop()
        proxy.be(Mode.PASS)
        await until(lambda: a.bus.figures().connected)
        a.bus.notify(Notice(moved=((2, 1),)))
        await b.until(lambda ear: 2 in ear.heads)
        await a.bus.close()
        await b.bus.close()
    finally:
        proxy.close()


async def test_the_settings_choose_the_bus(postgres: Database) -> None:
    assert choose_bus(Settings()) is None
    assert isinstance(choose_bus(Settings({"store.url": postgres.dsn})), PostgresBus)
    chosen = choose_bus(Settings({"store.url": postgres.dsn, "bus.url": "nats://host"}))
    assert type(chosen).__name__ == "NatsBus"
    with pytest.raises(SettingsError, match="not an address of a NATS server"):
        choose_bus(Settings({"bus.url": "kafka://host"}))
