"""No error of connecting has a secret of its address, whatever the server or a library says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from arclog.drivers.postgres import connect as driver
from arclog.drivers.postgres.address import address_of
from arclog.drivers.postgres.refusals import state_of

ADDRESS = address_of("postgresql://u:canary%2Fyranac@127.0.0.1:1/d?sslpassword=key-4711")


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Callable[[psycopg.Error], None]:
    """Makes connecting fail with an error."""

    def refuse(error: psycopg.Error) -> None:
        async def connect(*_: Any, **__: Any) -> None:
            raise error

        def connect_blocking(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr("psycopg.AsyncConnection.connect", connect)
        monkeypatch.setattr("psycopg.Connection.connect", connect_blocking)

    return refuse


async def _errors() -> list[psycopg.Error]:
    with pytest.raises(psycopg.Error) as waited:
        await driver.connect(ADDRESS)
    with pytest.raises(psycopg.Error) as blocked:
        driver.connect_blocking(ADDRESS, 1)
    return [waited.value, blocked.value]


@pytest.mark.parametrize("secret", ["canary/yranac", "canary%2Fyranac", "key-4711"])
async def test_a_secret_in_an_error_is_masked(refusing: Callable[[psycopg.Error], None], secret: str) -> None:
    refusing(psycopg.OperationalError(f'FATAL:  password authentication failed, you sent "{secret}"'))
    for error in await _errors():
        assert type(error) is psycopg.OperationalError
        assert secret not in str(error)
        assert "[redacted:" in str(error)
        assert state_of(error) == "28P01"
        assert error.__cause__ is None
        assert error.__suppress_context__


async def test_what_an_error_means_is_known_behind_a_mask(refusing: Callable[[psycopg.Error], None]) -> None:
    refusing(psycopg.OperationalError("FATAL:  password authentication failed"))
    with pytest.raises(psycopg.OperationalError) as raised:
        await driver.connect(address_of("postgresql://u:password@127.0.0.1/d"))
    assert "password" not in str(raised.value).replace("[redacted:password]", "")
    assert state_of(raised.value) == "28P01"


async def test_an_error_without_a_secret_is_raised_as_it_is(refusing: Callable[[psycopg.Error], None]) -> None:
    own = psycopg.OperationalError("connection refused")
    refusing(own)
    assert all(error is own for error in await _errors())


def test_keywords_for_a_connection_that_is_watched() -> None:
    watched = driver.keepalives(30.0)
    assert watched == {
        "keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000,
    }  # fmt: skip
    assert driver.keepalives(0.1)["keepalives_interval"] == 1
    assert driver.timeout_of(0.2) == 2
    assert driver.timeout_of(7.4) == 7
