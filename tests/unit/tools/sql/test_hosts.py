"""Processes for databases: one that cannot be started leaves nothing behind, and a hostile one is refused."""

from __future__ import annotations

import gc
import socket
from contextlib import closing
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.sandbox.child import wire
from arclog.sandbox.folders import Folders
from arclog.sandbox.launcher import Launcher
from arclog.tools.sql import hosts
from arclog.tools.sql.duckdb_host import DUCKDB
from arclog.tools.sql.failures import SqlFailure


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_settings_that_are_refused_leave_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that is left open fails this test: warnings are errors, and the collection shows them here."""

    def refuse(_: Settings) -> str:
        raise SettingsError("duckdb.paths: there is no such folder")

    monkeypatch.setattr(hosts, "data_root", refuse)
    gc.collect()  # what earlier tests have left
    before = open_files()
    with pytest.raises(SettingsError):
        hosts.Host(DUCKDB, Launcher(), Folders(Settings(), tmp_path), None, Settings(), "default")
    gc.collect()
    assert open_files() == before


class Gone(Exception):
    """What a connection raises if its process cannot go on."""


class Process:
    """A host whose process sends what a test wants."""

    label = "SQLite"
    row_bytes, most_bytes = 1000, 2000

    def __init__(self) -> None:
        self.was_killed = False

    def failure(self) -> Exception:
        self.was_killed = True
        return Gone()

    def kill(self) -> None:
        self.was_killed = True


def answered(frame: bytes) -> tuple[Process, hosts.Connection, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.sendall(frame)
    process = Process()
    return process, hosts.Connection(process, 1, ours), theirs  # type: ignore[arg-type]  # only what is used of it


def test_a_frame_of_a_hostile_process_is_not_received() -> None:
    """Its size is refused before memory is allocated for it."""
    process, connection, theirs = answered(wire.LENGTHS.pack(2, 1 << 40, 0))
    with closing(connection._socket), theirs, pytest.raises(Gone):
        connection.do("fetch")
    assert process.was_killed


@pytest.mark.parametrize(
    "body",
    [b"\xc0", b"\xdd\xff\xff\xff\xff", b"\xdd\x00\x00\x00\x03" + 3 * b"\x90", b"\xdd\x00\x00\x00\x01", b"\x91" * 1000],
)
def test_rows_of_a_hostile_process_are_refused(body: bytes) -> None:
    process, connection, theirs = answered(wire.LENGTHS.pack(2, len(body), 0) + b"{}" + body)
    with closing(connection._socket), theirs, pytest.raises(SqlFailure, match="invalid rows"):
        connection.fetch(2)
    assert process.was_killed
