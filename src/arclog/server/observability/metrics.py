"""Metrics for Prometheus, in a separate registry, so that two servers in one process do not share it.

Times and counts are recorded as they happen; figures from the store are read when metrics are requested.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from arclog.core.transitions.state import State
from arclog.engine.commits.engine import Engine
from arclog.engine.dispatch.pools import EnginePools
from arclog.engine.duties.publishing import Publisher
from arclog.model.commands import Command, Report, ReportAnswer
from arclog.model.errors import ArclogError
from arclog.model.events import TERMINAL, Event
from arclog.model.ids import MICROS, minted_at_ms
from arclog.ports.bus import Bus
from arclog.ports.control import Control, Until, WorkerInfo
from arclog.server.traffic import Traffic

# ── metrics ───────────────────────────────────────────────────────────────────────────────────────────────────────────


_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

#: The number of pools with metrics.
_MOST_POOLS = 200
#: Figures for autoscalers. A pool has metrics while it has open work, a worker or a limit.
_OF_POOLS = {
    "backlog": "Commands of the pool that wait for a worker.",
    "oldest_seconds": "Age of the oldest waiting command of the pool.",
    "busy": "Commands of the pool that workers hold.",
    "slots": "Commands that the workers of the pool can hold at a time.",
    "workers": "Workers of the pool that were seen recently.",
    "service_seconds": "Average duration of the pool's commands.",
    "wanted_workers": "Recommended number of workers of the pool.",
}


C = TypeVar("C", bound=Control)


class Metrics:
    """The figures of one server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lease_s = engine.settings.number("leases.seconds")
        self.registry = registry = CollectorRegistry()
        self.queue_depth = Gauge(
            "arclog_queue_depth", "Commands that are waiting for a worker.", ["pool"], registry=registry
        )
        self.oldest = Gauge(
            "arclog_oldest_command_age_seconds",
            "Age of the command that has been waiting longest for a worker.",
            ["pool"],
            registry=registry,
        )
        self.claimed = Gauge("arclog_claimed_commands", "Commands that workers hold.", ["pool"], registry=registry)
        self.lease_age = Gauge(
            "arclog_lease_age_seconds",
            "Time since the last heartbeat of the worker that has been silent longest.",
            ["pool"],
            registry=registry,
        )
        self._pools = EnginePools(engine)
        self.of_pools = {
            name: Gauge(f"arclog_pool_{name}", help_text, ["pool"], registry=registry)
            for name, help_text in _OF_POOLS.items()
        }
        self._seconds = {
            "append": Histogram(
                "arclog_append_seconds", "Duration of a durable append.", buckets=_BUCKETS, registry=registry
            ),
            "decision": Histogram(
                "arclog_decision_seconds", "Time to decide one batch of inputs.", buckets=_BUCKETS, registry=registry
            ),
        }
        self.claims = Counter(
            "arclog_claims_total",
            "Commands delivered to workers, including with responses to reports.",
            registry=registry,
        )
        self.reports = Counter(
            "arclog_reports_total", "Reports of workers, by response.", ["answer"], registry=registry
        )
        self.events = Counter("arclog_events_total", "Events appended by this server.", registry=registry)
        self.started = Counter("arclog_executions_started_total", "Runs requested on this server.", registry=registry)
        self.ended = Counter(
            "arclog_executions_ended_total", "Runs that ended on this server.", ["state"], registry=registry
        )
        self.unreadable = Counter(
            "arclog_metrics_store_failures_total",
            "Failed queries of the store for these metrics.",
            registry=registry,
        )
        engine.measured = self._measured
        engine.hints.on_committed.append(self._on_committed)

    def _measured(self, operation: str, seconds: float) -> None:
        self._seconds[operation].observe(seconds)

    def _on_committed(self, state: State, events: Sequence[Event]) -> None:
        self.events.inc(len(events))
        for event in events:
            if event.type == "playbook.execution.requested":
                self.started.inc()
            elif event.type in TERMINAL:
                self.ended.labels(state.status).inc()

    def watch(self, bus: Bus, publisher: Publisher | None) -> None:
        """Add metrics of the bus and of the publishing of events."""
        self.registry.register(_BusFigures(bus, publisher))

    def watch_requests(self, traffic: Traffic) -> None:
        """Add metrics of the requests in progress."""
        self.registry.register(_RequestFigures(traffic))

    async def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        await self._look()
        return generate_latest(self.registry)

    async def _look(self) -> None:
        for gauge in (self.queue_depth, self.oldest, self.claimed, self.lease_age, *self.of_pools.values()):
            gauge.clear()  # a pool without open work has no metrics any more
        try:
            backlog = await self._engine.store.backlog()
            scales = await self._pools.scales()
        except ArclogError:
            self.unreadable.inc()
            return
        now = self._engine.clock.now()
        # The busiest pools only: authors of playbooks can name any number, and Prometheus keeps each label forever.
        backlog = sorted(backlog, key=lambda pool: pool.issued + pool.claimed, reverse=True)[:_MOST_POOLS]
        for scale in sorted(scales, key=lambda view: view.backlog + view.busy, reverse=True)[:_MOST_POOLS]:
            self.of_pools["backlog"].labels(scale.pool).set(scale.backlog)
            self.of_pools["oldest_seconds"].labels(scale.pool).set(scale.oldest_s)
            self.of_pools["busy"].labels(scale.pool).set(scale.busy)
            self.of_pools["slots"].labels(scale.pool).set(scale.slots)
            self.of_pools["workers"].labels(scale.pool).set(scale.workers)
            self.of_pools["service_seconds"].labels(scale.pool).set(scale.service_s)
            self.of_pools["wanted_workers"].labels(scale.pool).set(scale.wanted_workers)
        for counts in backlog:
            self.queue_depth.labels(counts.pool).set(counts.issued)
            self.claimed.labels(counts.pool).set(counts.claimed)
            age = now / MICROS - minted_at_ms(counts.oldest) / 1000 if counts.issued else 0.0
            self.oldest.labels(counts.pool).set(max(0.0, age))
            silent = self._lease_s - (counts.first_lease_end - now) / MICROS if counts.claimed else 0.0
            self.lease_age.labels(counts.pool).set(max(0.0, silent))


class _RequestFigures(Collector):
    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        now, streams = self._traffic.now, self._traffic.streams
        yield GaugeMetricFamily("arclog_http_requests_open", "Requests in progress, including streams.", now)
        yield GaugeMetricFamily("arclog_http_streams_open", "Clients that follow a run.", streams)


class _BusFigures(Collector):
    """Collects figures when metrics are requested."""

    def __init__(self, bus: Bus, publisher: Publisher | None) -> None:
        self._bus = bus
        self._publisher = publisher

    def collect(self) -> Iterator[Metric]:
        now = self._bus.figures()
        yield GaugeMetricFamily("arclog_bus_connected", "Whether the bus between servers is available.", now.connected)
        yield CounterMetricFamily("arclog_bus_notices_told", "Notifications sent to other servers.", value=now.sent)
        yield CounterMetricFamily(
            "arclog_bus_notices_heard", "Notifications received from other servers.", value=now.received
        )
        yield CounterMetricFamily(
            "arclog_bus_dropped", "Notifications dropped because the bus was unavailable or slow.", value=now.dropped
        )
        yield CounterMetricFamily("arclog_bus_connections_lost", "Lost connections to the bus.", value=now.lost)
        if self._publisher is not None:
            published, failed = self._publisher.published, self._publisher.failures
            yield GaugeMetricFamily(
                "arclog_events_publishing", "Whether this server publishes events.", self._publisher.on_duty
            )
            yield CounterMetricFamily("arclog_events_published", "Events accepted by the bus.", value=published)
            yield CounterMetricFamily("arclog_events_publish_failures", "Events refused by the bus.", value=failed)


def measured(control: C, metrics: Metrics) -> C:
    """The control, with its claims and reports counted."""
    return cast("C", _MeasuredControl(control, metrics))


class _MeasuredControl:
    """Counts two calls and passes all others on."""

    def __init__(self, control: Control, metrics: Metrics) -> None:
        self._control = control
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    async def claim(
        self, worker: WorkerInfo, limit: int, wait_s: float = 0.0, until: Until | None = None
    ) -> list[Command]:
        commands = await self._control.claim(worker, limit, wait_s, until)
        self._metrics.claims.inc(len(commands))
        return commands

    async def report(self, report: Report) -> ReportAnswer:
        try:
            answer = await self._control.report(report)
        except ArclogError as problem:
            self._metrics.reports.labels(type(problem).__name__).inc()
            raise
        self._metrics.reports.labels("accepted").inc()
        self._metrics.claims.inc(len(answer.commands))
        return answer


# ── shared metrics ────────────────────────────────────────────────────────────────────────────────────────────────────
# Metrics of several processes behind one address: each of them answers for all.
#
# Each process writes its own figures to a file periodically, and when it ends. Counts and times of all files are added
# up, including those of processes that are gone, so that no sum decreases; figures from the store are read by the
# process that answers.


_EVERY_S = 1.0
_SUMMED = ("counter", "histogram")
#: Gauges that are summed over the processes.
_PARTS = frozenset({"arclog_events_publishing", "arclog_http_requests_open", "arclog_http_streams_open"})


class SharedMetrics:
    def __init__(self, metrics: Metrics, folder: Path) -> None:
        self._metrics = metrics
        self._folder = folder
        self._own = folder / str(os.getpid())

    @asynccontextmanager
    async def written(self) -> AsyncIterator[None]:
        """Write them periodically while the context is open."""
        writing = asyncio.ensure_future(self._write_on())
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._write()

    async def text(self) -> bytes:
        own = await self._metrics.text()
        return generate_latest(_Sums(own.decode(), self._others()))

    def _others(self) -> dict[int, str]:
        """The figures that other processes wrote, by process id."""
        figures: dict[int, str] = {}
        for path in self._folder.iterdir():
            if path.name.isdigit() and path != self._own:
                with suppress(OSError):
                    figures[int(path.name)] = path.read_text()
        return figures

    async def _write_on(self) -> None:
        while True:
            self._write()
            await asyncio.sleep(_EVERY_S)

    def _write(self) -> None:
        # The supervisor removes the folder when all processes have ended; after a crash, a cleaner does.
        with suppress(OSError):
            draft = self._own.with_suffix(".new")
            draft.write_bytes(generate_latest(self._metrics.registry))
            draft.replace(self._own)


class _Sums(CollectorRegistry):
    """The families of one process, with the sums of all."""

    def __init__(self, own: str, others: dict[int, str]) -> None:
        super().__init__()
        self.register(_Families(own, others))


class _Families(Collector):
    def __init__(self, own: str, others: dict[int, str]) -> None:
        self._own = own
        self._others = others

    def collect(self) -> list[Metric]:
        families = {family.name: family for family in text_string_to_metric_families(self._own)}
        for pid, text in self._others.items():
            for family in text_string_to_metric_families(text):
                if family.type in _SUMMED or (family.name in _PARTS and _is_there(pid)):
                    _add(
                        families.setdefault(family.name, Metric(family.name, family.documentation, family.type)), family
                    )
        return list(families.values())


def _add(into: Metric, family: Metric) -> None:
    positions = {(sample.name, tuple(sorted(sample.labels.items()))): n for n, sample in enumerate(into.samples)}
    for sample in family.samples:
        if sample.name.endswith("_created"):
            continue  # the beginning of each is its own
        at = positions.get((sample.name, tuple(sorted(sample.labels.items()))))
        if at is None:
            into.samples.append(sample)
        else:
            into.samples[at] = into.samples[at]._replace(value=into.samples[at].value + sample.value)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
