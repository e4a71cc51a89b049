"""A process for DuckDB that cannot be started leaves nothing behind."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.sandbox.folders import Folders
from arclog.sandbox.launcher import Launcher
from arclog.tools.sql import duckdb_host


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_settings_that_are_refused_leave_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that is left open fails this test: warnings are errors, and the collection shows them here."""

    def refuse(_: Settings) -> str:
        raise SettingsError("duckdb.paths: there is no such folder")

    monkeypatch.setattr(duckdb_host, "data_root", refuse)
    gc.collect()  # what earlier tests have left
    before = open_files()
    with pytest.raises(SettingsError):
        duckdb_host.Host(Launcher(), Folders(Settings(), tmp_path), None, Settings(), "default")
    gc.collect()
    assert open_files() == before
