"""The kind as data: what `arclog check` says of a task, and what happens without its driver."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.plan.build import build
from arclog.ports.tool import ToolServices
from arclog.testing.tools import task_context
from arclog.tools.nats.kind import KIND, OPS, NatsConfig
from arclog.worker.toolbox import Toolbox


def findings(task: str) -> list[tuple[str, str]]:
    text = f"metadata: {{name: p}}\nworkflow:\n  - {{step: start, tool: {{kind: nats, servers: 'nats://x', {task}}}}}\n"
    made = build(text, "p.yaml", {"nats": KIND.spec}, Settings())
    return [(finding.code, finding.message) for finding in made.findings if finding.severity == "error"]


def test_every_key_belongs_to_an_operation() -> None:
    named = {key for op in OPS for key in (*op.needs, *op.takes)}
    declared = {field.name for field in KIND.spec.fields}
    assert named == declared - {"op", "servers", "inbox_prefix"}
    assert declared == set(NatsConfig.__struct_fields__)


@pytest.mark.parametrize(
    ("task", "code", "said"),
    [
        ("op: kv_get, key: k", "missing-key", "op kv_get needs the key 'bucket'"),
        ("op: ack", "missing-key", "op ack needs the key 'messages'"),
        ("op: ack, messages: [], subject: a", "unknown-key", "subject belongs to op publish, request, not to ack"),
        ("op: publish, subject: a, data: 1, ack: now", "unknown-key", "ack belongs to op fetch, not to publish"),
        ("op: kv_watch, bucket: b", "bad-value", "'kv_watch' is none of publish"),
        ("op: fetch, stream: s, consumer: c, ack: never", "bad-value", "'never' is none of later, now"),
    ],
)
def test_what_check_says(task: str, code: str, said: str) -> None:
    ((result, message),) = findings(task)
    assert result == code
    assert said in message


@pytest.mark.parametrize(
    "task",
    [
        "op: publish, subject: a, data: 1",
        "op: publish, messages: '{{ workload }}', stream: true",
        "op: fetch, stream: s, consumer: c, ack: '{{ workload.how }}'",
        "op: kv_update, bucket: b, key: k, data: null, revision: '{{ workload.n }}'",
    ],
)
def test_what_check_has_nothing_to_say_of(task: str) -> None:
    assert findings(task) == []


async def test_without_its_driver_a_task_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("arclog.tools.nats.", "arclog.drivers.nats."))]:
        if name not in ("arclog.tools.nats.kind", "arclog.tools.nats.failure"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    toolbox = Toolbox({"nats": KIND}, ToolServices(Settings(), tmp_path))
    outcome = await toolbox.run("nats", {"op": "publish", "subject": "a", "data": 1}, task_context())
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("config", "MISSING_EXTRA")
    assert "pip install 'arclog[nats]'" in outcome.error.message
    await toolbox.execution_ended("1")
    await toolbox.close()
