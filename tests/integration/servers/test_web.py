"""The web server that other tests rely on leaves nothing open."""

import gc
import socket
from pathlib import Path

import pytest

from tests.servers.certs import certificate
from tests.servers.web import Web


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_connections_that_come_while_it_stops_are_closed(encrypted: bool, tmp_path: Path) -> None:
    """A socket that is left open fails this test: warnings are errors, and the collection shows them here."""
    made = certificate(tmp_path, "127.0.0.1") if encrypted else None
    for _ in range(20):
        with Web(made) as web:
            clients = [socket.create_connection((web.host, web.port)) for _ in range(3)]
        for client in clients:
            client.close()
    gc.collect()
