"""Kind sqlite on a server's worker: what its unit tests expect, with SQLite in another process."""

from __future__ import annotations

import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.confinement_settings import for_server
from arclog.tools.sqlite import KIND
from tests.unit.tools.sql.support import Sql
from tests.unit.tools.test_sqlite import *  # noqa: F403 - all of its tests


@pytest.fixture  # type: ignore[no-redef]  # instead of the imported one
async def sql(tmp_path):
    own = {"home": str(tmp_path / "home"), "object.file_root": str(tmp_path), "sql.busy_timeout_s": 20}
    tool = Sql(KIND, tmp_path / "scratch", for_server(Settings(own)), database=str(tmp_path / "a.db"))
    yield tool
    await tool.close()
