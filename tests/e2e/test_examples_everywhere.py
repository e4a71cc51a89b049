"""The same playbook at every size: each example leaves the same log on SQLite in one process and on PostgreSQL + NATS with a
server and a worker of their own, but for ids, times, and the order in which things beside each other happened.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from arclog.client import AsyncClient
from arclog.model.config.settings import Settings
from arclog.ports.views.api import Api, ExecuteRequest, SignalRequest
from arclog.wiring.embedded import embedded
from cluster.local import Cluster
from tests.e2e.test_cli import EXAMPLES, ROOT, SERVED, TOLD
from tests.servers.nats import running_nats

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
#: What differs from run to run wherever it happens.
PASSING = {
    *(
        "event_id",
        "execution_id",
        "run_id",
        "cause_id",
        "command_id",
        "worker_id",
        "signal_id",
        "child",
        "plan",
        "fence",
    ),
    *(
        "seq",
        "report",
        "timestamp",
        "persisted_at",
        "duration_ms",
        "waited_ms",
        "waited_s",
        "due",
        "until",
        "lease_until",
        "by",
    ),
    *("store", "compression"),  # how a result store keeps what it is given
    *("port", "etag", "last_modified", "date"),
}
#: An example that asks a program outside, which may not be up yet: how often it asks is not a matter of the engine.
ASKING = {"paginated_api"}
#: Ids, hashes, and what programs made up: folders, ports, times.
MADE_UP = re.compile(
    r"\b\d{17,19}\b|\b[0-9a-f]{64}\b|\b[0-9a-f]{12}\b|(/tmp/|\./|transfer-|tmp\.)[\w./-]+"
    r"|\$JS\.ACK\.[\w.-]+|20\d\d-\d\d-\d\dT[\d:.]+Z|^\d{5}$|127\.0\.0\.1:\d+|\d\d/\w{3}/\d{4} \d\d:\d\d:\d\d|\"port\": \d+"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # As in one process: tasks run where the worker was started, share a folder for temporary files, and have the network.
    reachable = {
        "ARCLOG_HTTP_ALLOW_NETWORKS": "loopback",
        "ARCLOG_WORKER_WORKDIR": ".",
        "ARCLOG_TASKS_ALLOW_WRITE": tempfile.gettempdir(),
        "ARCLOG_OBJECT_FILE_ROOT": str(tmp_path_factory.mktemp("files")),
        "ARCLOG_TASKS_ALLOW_NETWORKS": "all",
    }
    folder = tmp_path_factory.mktemp("cluster")
    # Workers do not start where tasks could create it, and they write to the folder for temporary files.
    (folder / "arclog.toml").touch()
    cluster = Cluster(folder, servers=1, pools=[["default"]], settings=reachable)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


async def log_of(api: Api, name: str) -> tuple[Any, dict[str, Any]]:
    """An example's result, and its events, in order for each thing that does one thing after the other."""
    with running_nats() if name in SERVED else nullcontext() as server:
        return await _log_of(api, name, {} if server is None else {"servers": server.url})


async def _log_of(api: Api, name: str, workload: dict[str, str]) -> tuple[Any, dict[str, Any]]:
    execution_id = (await api.execute(request_of(name, workload))).execution_id
    if name in TOLD:
        await approve_if_waiting(api, execution_id)
    await asyncio.wait_for(api.ended(execution_id), PATIENCE_S)
    by_place: dict[str, Any] = {}
    tokens: dict[int, str] = {}
    for event in await api.events(execution_id, limit=100_000):
        name_tokens(event, tokens)
        if name in ASKING and event["event_type"].startswith(("task.attempt.", "policy.task.")):
            continue
        place = event.get("iteration_id") or event.get("step_run_id") or event["entity_type"]
        by_place.setdefault(place, []).append(tidied(event, PASSING | {"attempt"} if name in ASKING else PASSING))
    return (await api.summary(execution_id)).result, dict(sorted(by_place.items()))


def name_tokens(event: dict[str, Any], tokens: dict[int, str]) -> None:
    """Tokens are numbered in the order in which steps end; here they are called by where they come from and go to."""
    payload = event.get("payload") or {}
    for selected in payload.get("selected", ()):
        name = tokens[selected["token"]] = f"{event.get('step_run_id')} {selected['arc']} {selected['step']}"
        selected["token"] = name
    if "tokens" in payload:
        payload["tokens"] = sorted(tokens.get(number, str(number)) for number in payload["tokens"])


def request_of(name: str, workload: dict[str, str]) -> ExecuteRequest:
    text = (ROOT / f"examples/{name}.yaml").read_text(encoding="utf-8")
    parts = {
        f"examples/parts/{path.name}": path.read_text(encoding="utf-8") for path in (ROOT / "examples/parts").iterdir()
    }
    return ExecuteRequest(text, f"examples/{name}.yaml", files=parts, workload=workload)


async def approve_if_waiting(api: Api, execution_id: str) -> None:
    """Approve a run as soon as it waits."""
    async with asyncio.timeout(PATIENCE_S):
        while not (await api.why(execution_id)).waits:  # noqa: ASYNC110 - a server can only be asked again
            await asyncio.sleep(0.05)
    await api.signal(execution_id, SignalRequest("APPROVE", "yes", "looks right"))


def tidied(value: Any, passing: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: tidied(part, passing) for key, part in value.items() if key not in passing}
    if isinstance(value, list):
        return [tidied(part, passing) for part in value]
    return MADE_UP.sub("*", value) if isinstance(value, str) else value


@pytest.mark.parametrize("name", sorted(EXAMPLES))
async def test_an_example_leaves_the_same_log_at_every_size(
    name: str, tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # examples make files where they run
    async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
        await runtime.start_worker()
        alone = await log_of(runtime.api, name)
    async with AsyncClient(cluster.url) as there:
        together = await log_of(there, name)
    assert alone[0] == together[0] == EXAMPLES[name]
    assert json.dumps(alone[1], indent=1).splitlines() == json.dumps(together[1], indent=1).splitlines()
