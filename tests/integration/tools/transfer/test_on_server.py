"""Transfers on a server's worker: what is expected elsewhere, with SQLite in another process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.tools.transfer.support import Runner
from tests.integration.tools.transfer.test_concurrent import *  # noqa: F403 - all of its tests
from tests.integration.tools.transfer.test_databases import *  # noqa: F403 - all of its tests
from tests.integration.tools.transfer.test_postgres import *  # noqa: F403 - all of its tests


@pytest.fixture  # type: ignore[no-redef]  # instead of the imported one
async def run(tmp_path: Path) -> AsyncIterator[Runner]:
    runner = Runner(tmp_path, server=True)
    yield runner
    await runner.tool.close()
