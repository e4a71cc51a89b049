"""SQLite plans a statement of the store once, whatever its parameters are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from arclog.model.ids import MAX_ID
from arclog.stores.sqlite.connection.connect import open_reader, open_writer
from arclog.stores.sqlite.queries import SQL


@pytest.mark.parametrize("opened", [open_writer, open_reader])
def test_statements_are_planned_once(tmp_path: Path, opened: Callable[[str, float], apsw.Connection]) -> None:
    path = str(tmp_path / "arclog.db")
    open_writer(path, 1.0).close()
    connection = opened(path, 1.0)
    asked = 0

    def note(*_: object) -> int:
        nonlocal asked
        asked += 1
        return apsw.SQLITE_OK

    connection.authorizer = note  # SQLite asks while it plans
    planning: list[int] = []
    for tenant in ("", "a", "b", "c"):
        before = asked
        connection.execute(SQL["next_lane"], ("default", tenant, "", "", -MAX_ID)).fetchall()
        planning.append(asked - before)
    connection.close()

    assert planning[0] > 0
    assert planning[1:] == [0, 0, 0]
