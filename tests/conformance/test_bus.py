"""Every bus keeps the rules of the port: in one process, over a real NATS, over a real PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from arclog.buses.local import Exchange
from arclog.buses.nats import NatsBus
from arclog.buses.postgres import PostgresBus
from arclog.model.config.settings import Settings
from arclog.ports.bus import Bus
from arclog.testing.conformance.bus import BusContract, Network
from tests.servers.nats import NatsServer, running_nats
from tests.servers.postgres import Database, PostgresServer, running_postgres


class LocalNetwork:
    can_be_lost = False

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}

    def bus(self, settings: Settings) -> Bus:
        return self._exchanges.setdefault(settings.text("bus.prefix"), Exchange()).bus()

    def lose(self) -> None:
        pytest.fail("there is nothing between the buses of one process that could be lost")

    def restore(self) -> None:
        """It was never lost."""


class NatsNetwork:
    can_be_lost = True

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._own = uuid.uuid4().hex[:12]
        self._is_lost = False

    def bus(self, settings: Settings) -> Bus:
        own = f"{settings.text('bus.prefix')}-{self._own}"
        values = {"bus__url": self._server.url, "bus__prefix": own, "bus__publish_events": False}
        return NatsBus(settings.replaced(**values))

    def lose(self) -> None:
        self._is_lost = True
        self._server.wipe()

    def restore(self) -> None:
        if self._is_lost:
            self._server.start()
            self._is_lost = False


class PostgresNetwork:
    can_be_lost = True

    def __init__(self, server: PostgresServer, database: Database) -> None:
        self._server = server
        self._dsn = database.dsn
        self._own = uuid.uuid4().hex[:12]
        self._is_lost = False

    def bus(self, settings: Settings) -> Bus:
        own = f"{settings.text('bus.prefix')}-{self._own}"
        return PostgresBus(settings.replaced(store__url=self._dsn, bus__prefix=own))

    def lose(self) -> None:
        self._is_lost = True
        self._server.kill()

    def restore(self) -> None:
        if self._is_lost:
            self._server.start()
            self._is_lost = False


@pytest.fixture(scope="module")
def mortal_nats() -> Iterator[NatsServer]:
    with running_nats() as server:
        yield server


@pytest.fixture(scope="module")
def mortal_postgres() -> Iterator[tuple[PostgresServer, Database]]:
    with running_postgres(unsafe=True) as server:
        yield server, server.create()


class TestLocalBus(BusContract):
    @pytest.fixture
    def network(self) -> Network:
        return LocalNetwork()


class TestNatsBus(BusContract):
    @pytest.fixture
    def network(self, mortal_nats: NatsServer) -> Iterator[Network]:
        network = NatsNetwork(mortal_nats)
        yield network
        network.restore()


class TestPostgresBus(BusContract):
    @pytest.fixture
    def network(self, mortal_postgres: tuple[PostgresServer, Database]) -> Iterator[Network]:
        network = PostgresNetwork(*mortal_postgres)
        yield network
        network.restore()
