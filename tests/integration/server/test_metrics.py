"""What a server tells Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.views.api import EngineApi
from arclog.model.commands import Report
from arclog.model.config.settings import Settings
from arclog.model.errors import StaleFence, StoreUnavailable
from arclog.ports.control import WorkerInfo
from arclog.ports.views.api import ExecuteRequest
from arclog.results.memory import MemoryResults
from arclog.server.observability.metrics import Metrics, measured
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from arclog.tools import noop
from tests.servers.arclog import RunningServer

pytest_plugins = ["tests.servers.arclog"]

PLAYBOOK = "metadata: {name: tidy}\nworkflow: [{step: start, tool: {kind: noop}}]\n"


def figures(text: bytes) -> dict[str, float]:
    """`name{label}` → value."""
    values = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            label = ",".join(sample.labels.values())
            values[f"{sample.name}{{{label}}}" if label else sample.name] = sample.value
    return values


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    await store.open()
    engine = Engine(store, clock, Settings({"leases.seconds": 30.0}), Minter(clock, 1))
    yield engine
    await engine.close()
    await store.close()


async def test_queue_ages_claims_and_reports(engine: Engine) -> None:
    clock = engine.clock
    assert isinstance(clock, FakeClock)
    metrics = Metrics(engine)
    control = measured(EngineControl(engine), metrics)
    api = EngineApi(engine, {"noop": noop.KIND.spec}, MemoryResults())
    assert "arclog_queue_depth{default}" not in figures(await metrics.text())
    first = await api.execute(ExecuteRequest(PLAYBOOK))
    clock.advance(5)
    await api.execute(ExecuteRequest(PLAYBOOK))
    clock.advance(2)
    waiting = figures(await metrics.text())
    assert waiting["arclog_queue_depth{default}"] == 2
    assert waiting["arclog_oldest_command_age_seconds{default}"] == pytest.approx(7, abs=0.01)
    assert waiting["arclog_executions_started_total"] == 2
    assert waiting["arclog_append_seconds_count"] == waiting["arclog_decision_seconds_count"] == 2
    (command,) = await control.claim(WorkerInfo("w", ("noop",)), 1)
    clock.advance(11)
    held = figures(await metrics.text())
    assert (held["arclog_queue_depth{default}"], held["arclog_claimed_commands{default}"]) == (1, 1)
    assert held["arclog_lease_age_seconds{default}"] == pytest.approx(11, abs=0.01)
    assert held["arclog_claims_total"] == 1
    stale = Report(
        worker_id="w",
        execution_id=command.execution_id,
        command_id=command.command_id,
        fence=command.fence + 1,
        n=1,
        events=[],
    )
    with pytest.raises(StaleFence):
        await control.report(stale)
    await api.cancel(first.execution_id, "enough")
    after = figures(await metrics.text())
    assert after["arclog_reports_total{StaleFence}"] == 1
    assert after["arclog_executions_ended_total{CANCELLED}"] == 1
    assert after["arclog_events_total"] > 8


async def test_a_store_that_cannot_be_read_leaves_the_other_figures(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics(engine)

    async def broken() -> None:
        raise StoreUnavailable("disk gone")

    monkeypatch.setattr(engine.store, "backlog", broken)
    assert figures(await metrics.text())["arclog_metrics_store_failures_total"] == 1


async def test_two_servers_in_one_process_do_not_meet(engine: Engine) -> None:
    first, other = Metrics(engine), Metrics(engine)
    first.claims.inc(5)
    assert figures(await other.text())["arclog_claims_total"] == 0


async def test_a_server_tells_them(server: RunningServer) -> None:
    async with server.client() as client:
        started = (await client.post("/api/execute", json={"playbook": PLAYBOOK})).json()
        async with client.stream("GET", f"/api/executions/{started['execution_id']}/events/stream") as stream:
            async for _ in stream.aiter_lines():
                pass
        answer = await client.get("/metrics")
        figures_now = figures(answer.content)
        assert figures_now["arclog_executions_ended_total{COMPLETED}"] == 1
        assert figures_now["arclog_append_seconds_count"] >= 2
        assert (figures_now["arclog_claims_total"], figures_now["arclog_reports_total{accepted}"] >= 1) == (1, True)
        assert figures_now["arclog_http_streams_open"] == 0
