"""Traces: execution → step → task, at a real OTLP receiver, and on into what http tasks ask for."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from arclog.model.ids import span_id, trace_id, traceparent
from arclog.server.observability.tracing import _Words
from tests.servers.arclog import RunningServer, running
from tests.servers.web import Web

PLAYBOOK = """
metadata: {{name: traced, path: flows/traced}}
workflow:
  - step: start
    tool:
      - {{name: ask, kind: http, url: '{url}'}}
    next: {{arcs: [{{step: many}}]}}
  - step: many
    loop: {{in: '{{{{ [1, 2] }}}}', iterator: x}}
    tool: {{kind: noop}}
    next: {{arcs: [{{step: fails}}]}}
  - step: fails
    tool: {{name: bad, kind: shell, command: exit 3, spec: {{policy: {{rules: [
      {{when: "{{{{ outcome.meta.attempt < 2 }}}}", then: {{do: retry, attempts: 2, delay: 0}}}}, {{else: {{then: {{do: fail}}}}}}]}}}}}}
"""


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        web.answers("/v1/traces", kind="application/x-protobuf")
        web.answers("/data", json={"a": 1})
        yield web


def sent_to(web: Web, **more: Any) -> dict[str, Any]:
    return {"telemetry.otlp_endpoint": web.url("/v1/traces"), **more}


def spans(web: Web) -> dict[str, list[Any]]:
    """What the receiver got, by name."""
    by_name: dict[str, list[Any]] = {}
    for received in web.requests:
        if received.path != "/v1/traces":
            continue
        request = ExportTraceServiceRequest()
        request.ParseFromString(received.body)
        for resource in request.resource_spans:
            names = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
            assert names["service.name"] == "arclog"
            for scope in resource.scope_spans:
                for span in scope.spans:
                    by_name.setdefault(span.name, []).append(span)
    return by_name


async def ran(server: RunningServer, text: str) -> str:
    async with server.client() as client:
        started = (await client.post("/api/execute", json={"playbook": text})).json()
        execution_id: str = started["execution_id"]
        async with client.stream("GET", f"/api/executions/{execution_id}/events/stream") as stream:
            async for _ in stream.aiter_lines():
                pass
    return execution_id


async def test_a_run_is_a_trace_of_its_steps_and_tasks(web: Web, tmp_path: Path) -> None:
    async with running(tmp_path / "home", **sent_to(web)) as server:
        run = await ran(server, PLAYBOOK.format(url=web.url("/data")))
    by_name = spans(web)
    assert {name: len(named_spans) for name, named_spans in by_name.items()} == {
        "run traced": 1,
        "step start": 1,
        "task ask": 1,
        "step many": 1,
        "task many_task": 2,
        "step fails": 1,
        "task bad": 1,
    }
    everything = [span for named_spans in by_name.values() for span in named_spans]
    assert {span.trace_id for span in everything} == {trace_id(run).to_bytes(16)}
    assert len({span.span_id for span in everything}) == len(everything)
    (root,), (start,), (ask,), (bad,) = (by_name[name] for name in ("run traced", "step start", "task ask", "task bad"))
    assert root.parent_span_id == b""
    assert (start.parent_span_id, ask.parent_span_id) == (root.span_id, start.span_id)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in everything)
    assert all(root.start_time_unix_nano <= span.start_time_unix_nano for span in everything)
    assert (root.status.code, ask.status.code, bad.status.code) == (2, 1, 2)
    assert [event.name for event in bad.events].count("task.attempt.failed") >= 1
    about = {attribute.key: attribute.value.string_value for attribute in root.attributes}
    assert (about["arclog.execution_id"], about["arclog.path"]) == (run, "flows/traced")
    # What the task asked for is a part of the same trace.
    (traced_request,) = (request for request in web.requests if request.path == "/data")
    assert traced_request.headers["traceparent"] == f"00-{root.trace_id.hex()}-{ask.span_id.hex()}-01"
    assert traced_request.headers["traceparent"] == traceparent(run, f"{run}:start:1::ask:1")


async def test_a_child_links_to_the_task_that_called_it(web: Web, tmp_path: Path) -> None:
    child = "metadata: {name: child, path: flows/child}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
    parent = (
        "metadata: {name: parent}\nworkflow: [{step: start, tool: {name: call, kind: playbook, path: flows/child}}]\n"
    )
    async with running(tmp_path / "home", **sent_to(web)) as server:
        await ran(server, child)
        run = await ran(server, parent)
    by_name = spans(web)
    called = [span for span in by_name["run child"] if span.links]
    assert len(called) == 1
    (link,) = called[0].links
    assert link.trace_id == trace_id(run).to_bytes(16)
    assert link.span_id == by_name["task call"][0].span_id == span_id(f"{run}:start:1::call:1").to_bytes(8)


async def test_too_many_spans_are_left_out_and_said(web: Web, tmp_path: Path) -> None:
    text = (
        "metadata: {name: wide}\nworkflow: [{step: s, loop: {in: '{{ range(20) }}', iterator: x}, tool: {kind: noop}}]"
    )
    async with running(tmp_path / "home", **sent_to(web, **{"telemetry.max_spans": 5})) as server:
        await ran(server, text)
    by_name = spans(web)
    assert sum(map(len, by_name.values())) == 6
    attributes = {attribute.key: attribute.value.int_value for attribute in by_name["run wide"][0].attributes}
    assert attributes["arclog.spans_dropped"] == 16


async def test_a_receiver_that_is_gone_holds_up_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Web() as gone:
        address = gone.url("/v1/traces")
    settings: dict[str, Any] = {"telemetry.otlp_endpoint": address, "telemetry.timeout_s": 0.3}
    async with running(tmp_path / "home", **settings) as server:
        run = await ran(server, "metadata: {name: x}\nworkflow: [{step: s, tool: {kind: noop}}]")
        async with server.client() as client:
            assert (await client.get(f"/api/executions/{run}/status")).json()["state"] == "COMPLETED"
    assert f"run {run}: its trace is dropped" in capsys.readouterr().err


async def test_without_an_endpoint_http_tasks_send_no_trace(web: Web, tmp_path: Path) -> None:
    async with running(tmp_path / "home") as server:
        await ran(server, PLAYBOOK.format(url=web.url("/data")))
    assert all("traceparent" not in request.headers for request in web.requests)
    assert spans(web) == {}


def test_off_imports_nothing() -> None:
    # Of the API alone FastAPI brings a part along.
    code = "import sys, arclog.wiring.serving.server; print([m for m in sys.modules if m.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_exporters_words_hold_no_secret_of_the_address(caplog: pytest.LogCaptureFixture) -> None:
    words = _Words("http://user:canary@127.0.0.1:4318/v1/traces?token=yranac")
    try:
        with caplog.at_level(logging.WARNING):
            logging.getLogger("opentelemetry.exporter.x").error("no answer from /v1/traces?token=%s (canary)", "yranac")
    finally:
        words.end()
    assert "traces: no answer from /v1/traces?token=[redacted:telemetry.otlp_endpoint]" in caplog.text
    assert "canary" not in caplog.text


async def test_traces_go_only_where_the_process_may(web: Web, tmp_path: Path) -> None:
    more = {"network.allow_networks": "none", "telemetry.timeout_s": 0.5}
    async with running(tmp_path / "home", **sent_to(web, **more)) as server:
        await ran(server, PLAYBOOK.format(url=web.url("/data")))
    assert [request.path for request in web.requests] == ["/data"]
