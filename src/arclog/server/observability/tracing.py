"""Traces of runs by OTLP over HTTP: created from a run's log after it has ended, so that neither the core nor a restart
is affected. Telemetry never delays a run: spans that cannot be sent are dropped and logged. The exporter has its own
HTTP client, which connects through the forwarder, whose guard checks the destination.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from arclog import __version__
from arclog.core.transitions.state import State
from arclog.dialects.spans import TYPES, Span, Spans
from arclog.drivers.addresses import HIDDEN, secrets_of, shown
from arclog.engine.commits.engine import Engine
from arclog.model.data.redact import Redactor
from arclog.model.errors import ArclogError, SettingsError
from arclog.model.events import TERMINAL, Event
from arclog.model.ids import span_id, trace_id
from arclog.ports.storage.store import ExecutionRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

log = logging.getLogger("arclog.server")

_PAGE = 1000
#: Spans in one request.
_BATCH = 512


class Tracing:
    """Exports the runs that end here. Created only if `telemetry.otlp_endpoint` is set, so that nothing is imported
    otherwise.
    """

    def __init__(self, engine: Engine) -> None:
        import requests
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        from arclog.drivers.http.client import uses_proxies
        from arclog.drivers.http.forward import Forwarder
        from arclog.drivers.http.guard import guard_of

        settings = engine.settings
        endpoint = settings.text("telemetry.otlp_endpoint")
        if shown(endpoint) == HIDDEN or not endpoint.startswith(("http://", "https://")):
            raise SettingsError(
                "ARCLOG_TELEMETRY_OTLP_ENDPOINT is not the address of a collector; use http://127.0.0.1:4318/v1/traces"
            )
        self._words = _Words(endpoint)
        self._engine = engine
        self._most = settings.integer("telemetry.max_spans")
        self._ended: asyncio.Queue[int] = asyncio.Queue(settings.integer("telemetry.max_pending"))
        timeout_s = settings.number("telemetry.timeout_s")
        self._forwarder = Forwarder()
        session = requests.Session()
        session.trust_env = uses_proxies(settings)
        if not session.trust_env:
            route = self._forwarder.open_route(guard_of(settings, "network.allow_networks", "traces"), timeout_s)
            session.proxies = dict.fromkeys(("http", "https"), self._forwarder.address(route))
        self._exporter = OTLPSpanExporter(endpoint, timeout=timeout_s, session=session)
        self._resource = Resource.create({"service.name": "arclog", "service.version": __version__})
        engine.hints.on_committed.append(self._on_committed)

    def _on_committed(self, state: State, events: Sequence[Event]) -> None:
        if state.terminal is None or not any(event.type in TERMINAL for event in events):
            return
        try:
            self._ended.put_nowait(state.execution_id)
        except asyncio.QueueFull:
            log.warning(
                "run %s: its trace is dropped: too many traces are pending (telemetry.max_pending)", state.execution_id
            )

    async def run(self) -> None:
        """Export runs as they end, until cancelled."""
        while True:
            execution_id = await self._ended.get()
            try:
                await self._export(execution_id)
            except ArclogError as problem:
                log.warning("run %s: its trace is dropped: %s", execution_id, problem)
            except Exception as problem:  # noqa: BLE001 - whatever the exporter does, later traces must go out
                # Its message may contain the collector's address, with a token.
                log.error("run %s: its trace is dropped: %s", execution_id, type(problem).__name__)
            finally:
                self._ended.task_done()

    async def close(self, timeout_s: float) -> None:
        """Send waiting spans, as far as there is time, then close."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ended.join()
        await asyncio.to_thread(self._exporter.shutdown)
        await asyncio.to_thread(self._forwarder.close)
        self._words.end()

    async def _export(self, execution_id: int) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        store = self._engine.store
        record = await store.execution(execution_id)
        if record is None:
            return
        spans = Spans(execution_id, record.new.name, self._most, _about(record))
        after = 0
        while page := await store.events(execution_id, after=after, limit=_PAGE, types=TYPES):
            for stored in page:
                if not stored.event.informative:
                    spans.take(stored.event)
            after = page[-1].seq
        if spans.dropped:
            log.warning("run %s: %d spans omitted (telemetry.max_spans)", execution_id, spans.dropped)
        made = [_readable(span, execution_id, self._resource) for span in spans.all()]
        for first in range(0, len(made), _BATCH):
            sent = await asyncio.to_thread(self._exporter.export, made[first : first + _BATCH])
            if sent is not SpanExportResult.SUCCESS:
                log.warning("run %s: its trace is dropped: the collector did not accept it", execution_id)
                return


class _Words(logging.Handler):
    """Passes the exporter's log messages to our log, without the secrets of the collector's address."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._redactor = Redactor.of(dict.fromkeys(secrets_of(endpoint), "telemetry.otlp_endpoint"))
        self._source = logging.getLogger("opentelemetry")
        self._propagated = self._source.propagate
        self._source.propagate = False
        self._source.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        log.log(record.levelno, "traces: %s", self._redactor.text(text) if self._redactor else text)

    def end(self) -> None:
        self._source.removeHandler(self)
        self._source.propagate = self._propagated


def _about(record: ExecutionRecord) -> dict[str, Any]:
    new = record.new
    return {
        "arclog.execution_id": str(record.execution_id),
        "arclog.run_id": new.run_id,
        "arclog.path": new.path,
        "arclog.version": new.version,
        "arclog.tenant_id": new.scope.tenant,
        "arclog.project_id": new.scope.project,
        "arclog.environment_id": new.scope.environment,
    }


def _readable(span: Span, execution_id: int, resource: Any) -> ReadableSpan:
    from opentelemetry.sdk.trace import Event as Moment
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

    sampled = TraceFlags(TraceFlags.SAMPLED)

    def context(of: str | int, span: int) -> SpanContext:
        return SpanContext(trace_id(of), span, is_remote=False, trace_flags=sampled)

    links = () if span.caller is None else (Link(context(span.caller[0], span_id(span.caller[1]))),)
    status = Status(StatusCode.OK) if span.error is None else Status(StatusCode.ERROR, span.error)
    return ReadableSpan(
        span.name,
        context=context(execution_id, span.id),
        parent=None if span.parent is None else context(execution_id, span.parent),
        resource=resource,
        attributes=span.attributes,
        events=[Moment(moment.name, moment.attributes, moment.at * 1000) for moment in span.moments],
        links=links,
        status=status,
        start_time=span.start * 1000,
        end_time=(span.end or span.start) * 1000,
        instrumentation_scope=InstrumentationScope("arclog", __version__),
    )
