"""Dashboard, alerts and scaling ask only for figures, with labels, that a real server tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from arclog.cli.args import parser_of
from tests.servers.arclog import RunningServer, running
from tests.servers.nats import running_nats

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/arclog.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
#: What Prometheus adds to everything that it collects.
ADDED = {"job", "instance", "le"}
GPU = "metadata: {name: gpu}\nworkflow: [{step: start, spec: {pool: gpu}, tool: {kind: noop}}]\n"
NOOP = "metadata: {name: plain}\nworkflow: [{step: start, tool: {kind: noop}}]\n"


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    expressions = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    expressions += [(rule["alert"], rule["expr"]) for rule in RULES]
    chart = (DEPLOY / "helm/arclog/templates/workers.yaml").read_text()
    scaling = re.findall(r"(?m)^\s+query: (.*)$", chart)
    assert len(scaling) == 1
    return [*expressions, ("keda", scaling[0].replace("{{ $worker.pool }}", "gpu"))]


def selectors(expression: Any) -> Iterator[Any]:
    """Every metric that an expression names."""
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector", "args", "param"):
        inner = getattr(expression, name, None)
        for child in inner if isinstance(inner, list) else [inner]:
            if child is not None and not isinstance(child, str | float | int):
                yield from selectors(child)


def grouped(expression: Any) -> Iterator[str]:
    """Labels that an aggregation groups by."""
    yield from re.findall(r"\w+", " ".join(re.findall(r"\b(?:by|on|without|ignoring) \(([^)]*)\)", expression)))


@pytest.fixture
async def metrics(tmp_path: Path) -> dict[str, set[str]]:
    """Every metric of a real server that has worked and has work left, and its labels."""
    with running_nats() as nats:
        settings: dict[str, Any] = {"bus.url": nats.url}
        async with running(tmp_path / "home", **settings) as server:
            await _work(server)
            async with server.client() as client:
                text = (await client.get("/metrics")).text
    names: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    return names


async def _work(server: RunningServer) -> None:
    async with server.client() as client:
        for playbook in (NOOP, GPU):
            answer = await client.post("/api/execute", json={"playbook": playbook})
            execution_id = answer.json()["execution_id"]
            if playbook is NOOP:
                async with client.stream("GET", f"/api/executions/{execution_id}/events/stream") as stream:
                    async for _ in stream.aiter_lines():
                        pass


def test_every_figure_that_is_asked_for_is_told(metrics: dict[str, set[str]]):
    wrong = []
    for where, query in queries():
        expression = promql_parser.parse(query.replace("$__rate_interval", "5m").replace("$job", ".*"))
        selectors_used = list(selectors(expression))
        assert selectors_used, f"{where} asks for nothing: {query}"
        for selector in selectors_used:
            if selector.name not in metrics:
                wrong.append(f"{where}: there is no {selector.name}")
                continue
            labels = {matcher.name for matcher in selector.matchers.matchers} | set(grouped(query))
            missing = labels - metrics[selector.name] - ADDED
            # A label that belongs to another metric of the same query is checked there.
            others = set().union(*(metrics.get(other.name, set()) for other in selectors_used))
            if missing - others:
                wrong.append(f"{where}: {selector.name} has no label {', '.join(missing - others)}")
    assert wrong == []


def test_the_test_above_would_find_a_wrong_name(metrics: dict[str, set[str]]):
    expression = promql_parser.parse(
        'sum by (pool) (rate(arclog_nonsense_total{colour="red"}[5m])) / arclog_queue_depth'
    )
    assert {selector.name for selector in selectors(expression)} == {"arclog_nonsense_total", "arclog_queue_depth"}
    assert "arclog_nonsense_total" not in metrics
    assert "colour" not in metrics["arclog_queue_depth"]


def test_every_figure_of_a_server_is_shown_somewhere(metrics: dict[str, set[str]]):
    expressions = " ".join(query for _, query in queries())
    forgotten = {
        name
        for name in metrics
        if name.startswith("arclog_") and not name.endswith(("_created", "_sum", "_count")) and name not in expressions
    }
    assert forgotten == set()


def test_panels_can_be_read():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels():
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] == "${datasource}"
    taken = {
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    }
    area = sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in DASHBOARD["panels"])
    assert len(taken) == area, "panels overlap"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alerts_say_what_and_what_to_do(rule: dict[str, Any]):
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "action"}
    labels = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert labels <= set(grouped(rule["expr"])) | ({"instance"} if " by " not in rule["expr"] else set())
    for words in re.findall(r"`arclog ([^`]*)`", rule["annotations"]["action"]):
        command, *rest = words.split()
        parser_of(command).parse(rest)


def test_provisioning_and_prometheus_read_what_is_there():
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/arclog.yaml").read_text())
    assert provider["providers"][0]["type"] == "file"
    prometheus = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    assert all((DEPLOY / "prometheus" / name).exists() for name in prometheus["rule_files"])
