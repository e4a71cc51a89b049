"""The outline of a log: every event once and in order, without payloads, in a fraction of the size; resumed without a gap."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from arclog.server.streams.outline import outline
from tests.servers.arclog import RunningServer

LOOP = """\
metadata: {name: loop}
workflow:
  - step: start
    tool: {kind: noop, data: "{{ 'x' * 1000 }}"}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(20) | list }}", iterator: n}
    tool: {kind: noop, data: "{{ iter.n }}"}
"""


def parts_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def events_of(parts: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
    """Seq, type and step of each event that the parts tell of."""
    return [
        (part["first"] + index, *part["kinds"][kind][:2]) for part in parts for index, kind in enumerate(part["what"])
    ]


@pytest.fixture
async def run(server: RunningServer) -> str:
    async with server.client() as client:
        started = (await client.post("/api/executions", json={"playbook": LOOP})).json()
        execution_id: str = started["execution_id"]
        await client.get(f"/api/executions/{execution_id}/head", params={"until": "ended", "timeout_s": 20})
    return execution_id


async def streamed(client: httpx2.AsyncClient, execution_id: str, **headers: str) -> httpx2.Response:
    return await client.get(f"/api/executions/{execution_id}/outline/stream", headers=headers)


async def test_it_tells_of_every_event_once_and_in_order(server: RunningServer, run: str) -> None:
    async with server.client() as client:
        answer = await streamed(client, run)
        events = (await client.get(f"/api/executions/{run}/events", params={"limit": 1000})).json()["events"]
    expected = [(event["seq"], event["event_type"], event.get("step", "")) for event in events]
    parts = parts_of(answer.text)
    assert events_of(parts) == expected
    items = [item for part in parts for item in part["item"] if item != -1]
    assert set(items) == set(range(20))
    routed = [more for part in parts for more in part["more"].values() if "selected" in more]
    assert routed[0]["selected"][0]["step"] == "each"
    assert len(answer.content) < len(json.dumps(events)) / 10


async def test_it_is_resumed_behind_the_last_part(server: RunningServer, run: str) -> None:
    async with server.client() as client:
        whole = events_of(parts_of((await streamed(client, run)).text))
        rest = await streamed(client, run, **{"last-event-id": "10"})
        assert events_of(parts_of(rest.text)) == whole[10:]
        over = await streamed(client, run, **{"last-event-id": str(len(whole))})
        assert over.status_code == 204


def test_seqs_that_are_missing_begin_a_new_part() -> None:
    at = "2026-01-31T12:00:00.000000Z"
    events: list[dict[str, Any]] = [
        {"seq": seq, "event_type": "step.started", "timestamp": at, "payload": {}} for seq in (1, 2, 5)
    ]
    assert [(part["first"], len(part["what"])) for part in outline(events)] == [(1, 2), (5, 1)]
    assert outline([]) == []


async def test_it_is_packed_for_browsers_and_read_part_by_part(server: RunningServer, run: str) -> None:
    async with server.client() as client:
        plain = await streamed(client, run, **{"accept-encoding": "identity"})
        packed = await streamed(client, run, **{"accept-encoding": "gzip"})
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.text == plain.text


def test_rules_are_kept_only_where_they_did_something() -> None:
    at = "2026-01-31T12:00:00.000000Z"
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("policy.task.evaluated", {"matched_rule_index": 0, "action": {"do": "continue"}}),
        ("policy.task.evaluated", {"matched_rule_index": 0, "action": {"do": "retry", "attempts": 3}}),
        ("policy.admit.evaluated", {"matched_rule_index": None, "allowed": True}),
        ("policy.admit.evaluated", {"matched_rule_index": 0, "allowed": False}),
    ]
    events: list[dict[str, Any]] = [
        {"seq": seq, "event_type": kind, "timestamp": at, "payload": payload}
        for seq, (kind, payload) in enumerate(payloads, 1)
    ]
    (part,) = outline(events)
    assert part["more"] == {"2": {"action": {"do": "retry"}}, "4": {"allowed": False}}


def test_it_tells_that_a_task_waits_and_until_when() -> None:
    about = {"timestamp": "2026-01-31T12:00:00.000000Z", "event_type": "command.completed", "step": "ship"}
    waits = {"reason": "suspended", "wait": "ship:1", "until": 1_769_860_800_000_000, "source": "server"}
    (part,) = outline([{**about, "seq": 1, "payload": waits}, {**about, "seq": 2, "payload": {"source": "worker"}}])
    assert part["more"] == {"1": {"waits": True, "until": 1_769_860_800_000_000}}
