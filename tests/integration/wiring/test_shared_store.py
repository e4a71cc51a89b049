"""A store that other machines share: nobody's worker is declared dead by a look at this machine, and its clock counts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.clocks import StoreClock
from arclog.wiring.embedded import embedded
from tests.servers.postgres import Database

PLAYBOOK = "metadata: {name: one}\nworkflow:\n  - step: s\n    tool: {kind: noop}\n"


def settings(home: Path, url: str = "") -> Settings:
    return Settings({"home": str(home), "store.url": url})


@pytest.mark.parametrize("shared", [False, True])
async def test_a_worker_of_another_home_is_left_its_lease(
    tmp_path: Path, shared: bool, request: pytest.FixtureRequest
) -> None:
    url = ""
    if shared:
        pytest.importorskip("arclog.stores.postgres")
        database: Database = request.getfixturevalue("postgres")
        url = database.dsn
    homes = (tmp_path / "a", tmp_path / "b") if shared else (tmp_path / "a", tmp_path / "a")
    async with embedded(settings(homes[0], url)) as a, embedded(settings(homes[1], url)) as b:
        execution_id = (await a.api.execute(ExecuteRequest(playbook=PLAYBOOK))).execution_id
        # It has no lock file in either home: here it is gone, elsewhere nothing is known of it.
        worker = WorkerInfo(f"{socket.gethostname()}-1-abcdef", ("noop",))
        assert len(await a.control.claim(worker, 1)) == 1
        await b.free_dead()
        (record,) = await b.engine.store.commands(int(execution_id))
        assert record.state == ("claimed" if shared else "issued")
        held = await b.take_over(execution_id)
        assert (worker.worker_id in held) is shared
        assert isinstance(b.engine.clock, StoreClock) is shared
