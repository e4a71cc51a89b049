"""A target that runs full: an error of kind `limit`, and nothing left of what was begun."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.tools.transfer.support import Runner, sqlite


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 300 kB below the folder that files may lie in."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet", "sqlite", "duckdb"])
async def test_a_full_disk(tmp_path: Path, small: Path, kind: str) -> None:
    rows = [(n, hashlib.sha512(str(n).encode()).hexdigest()) for n in range(10_000)]
    path = sqlite(tmp_path / "s.db", "CREATE TABLE x (n INTEGER, t TEXT)", rows=rows, into="x")
    place: dict[str, Any] = {"path": "small/out"}
    if kind in ("sqlite", "duckdb"):
        place = {"database": str(small / "out"), "table": "t", "create": True}
    run = Runner(tmp_path, transfer__chunk_rows=1000)
    try:
        problem = await run.failure({"kind": "sqlite", "database": path, "table": "x"}, {"kind": kind, **place})
    finally:
        await run.tool.close()
    assert problem.kind == "limit", problem
    assert names(small) == []
