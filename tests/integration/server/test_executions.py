"""Runs over HTTP: asked for, looked at, told what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.servers.arclog import RunningServer, running

HELLO = """
metadata: {name: hello, path: examples/hello}
workload: {name: world}
workflow:
  - step: start
    tool: {kind: python, code: "print('said'); result = {'greeting': 'hello ' + name}", args: {name: "{{ workload.name }}"}}
"""
#: one step that waits until somebody says so
HELD = """
metadata: {name: held, path: examples/held}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: gate}]}
  - step: gate
    tool: {kind: approval}
"""
BIG = """
metadata: {name: big}
workflow:
  - step: start
    tool: {kind: python, code: "result = [{'n': n, 'text': 'x' * 100} for n in range(2000)]"}
"""


@pytest.fixture
async def client(server: RunningServer):
    async with server.client() as client:
        yield client


async def started(client: httpx2.AsyncClient, **body: Any) -> str:
    answer = await client.post("/api/executions", json=body)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/api/executions/{answer.json()['execution_id']}"
    execution_id: str = answer.json()["execution_id"]
    return execution_id


async def ended(client: httpx2.AsyncClient, execution_id: str) -> dict[str, Any]:
    while True:
        answer = await client.get(f"/api/executions/{execution_id}/head", params={"until": "ended", "timeout_s": 20})
        assert answer.status_code == 200, answer.text
        if answer.json()["ended"]:
            summary: dict[str, Any] = (await client.get(f"/api/executions/{execution_id}")).json()
            return summary


async def waits_for_approval(client: httpx2.AsyncClient, execution_id: str) -> None:
    """Return once the gate is closed."""
    seen = 0
    while True:
        page = (await client.get(f"/api/executions/{execution_id}/events", params={"after": seen})).json()
        if any(event["event_type"] == "wait.started" or event.get("step") == "gate" for event in page["events"]):
            why = (await client.get(f"/api/executions/{execution_id}/why")).json()
            if any(wait["what"] == "approval" for wait in why["waits"]):
                return
        seen = max(seen, page["next"])
        await client.get(f"/api/executions/{execution_id}/head", params={"after": seen, "timeout_s": 20})


async def test_a_run_from_its_request_to_its_end(client: httpx2.AsyncClient) -> None:
    execution_id = await started(client, playbook=HELLO, workload={"name": "Ada"})
    summary = await ended(client, execution_id)
    assert (summary["state"], summary["result"]) == ("COMPLETED", {"greeting": "hello Ada"})

    base = f"/api/executions/{execution_id}"
    status = (await client.get(f"{base}/status")).json()
    assert list(status) == [
        "execution_id", "state", "current_step", "started_at", "ended_at", "terminal_event", "completion_inferred"
    ]  # fmt: skip
    assert (status["terminal_event"], status["completion_inferred"]) == ("playbook.completed", False)
    assert (await client.get(f"{base}/why")).json()["state"] == "COMPLETED"
    assert (await client.get(f"{base}/state", params={"at": 1})).json()["at"] == 1
    assert (await client.get(f"{base}/graph")).json()["name"] == "hello"
    assert (await client.get(f"{base}/graph", params={"format": "mermaid"})).text.startswith("flowchart")
    assert (await client.get(f"{base}/source")).text == HELLO
    lines = (await client.get(f"{base}/logs", params={"step": "start", "stream": "stdout"})).json()["lines"]
    assert [line["text"] for line in lines] == ["said"]
    unknown = await client.get(f"{base}/logs", params={"step": "strt"})
    assert (unknown.status_code, "did you mean start" in unknown.json()["detail"]) == (422, True)
    listed = (await client.get("/api/executions", params={"state": "COMPLETED", "path": "examples/hello"})).json()
    assert [execution["execution_id"] for execution in listed["executions"]] == [execution_id]


TYPED = """
metadata: {name: typed, path: examples/typed}
executor: {spec: {inputs: {n: {type: integer, required: true}, day: {type: date}}, result: "{{ workload.n }}"}}
workflow: [{step: start, tool: {kind: noop}}]
"""


async def test_a_workload_that_breaks_the_inputs_is_refused_with_all_faults(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/executions", json={"playbook": TYPED, "workload": {"day": "soon", "m": 1}})
    assert (answer.status_code, answer.json()["title"]) == (422, "InputsRefused")
    assert [fault["path"] for fault in answer.json()["faults"]] == ["day", "m", "n"]
    assert (await client.get("/api/executions")).json()["executions"] == []
    assert (await client.post("/api/catalog", json={"playbook": TYPED})).status_code == 201
    answer = await client.post("/api/executions", json={"path": "examples/typed", "workload": {"n": "x"}})
    assert (answer.status_code, answer.json()["faults"][0]["path"]) == (422, "n")
    execution_id = await started(client, path="examples/typed", workload={"n": "7"})
    assert (await ended(client, execution_id))["result"] == 7


async def test_a_key_that_nothing_reads_is_named_in_the_answer(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/executions", json={"playbook": HELLO, "workload": {"nmae": "Ada"}})
    assert answer.status_code == 201
    assert answer.json()["warnings"] == ["workload.nmae: nothing in the playbook reads this key; did you mean name?"]
    assert "warnings" not in (await client.post("/api/executions", json={"playbook": HELLO})).json()


async def test_files_come_along_and_are_kept_with_the_version(client: httpx2.AsyncClient) -> None:
    playbook = "metadata: {name: f}\nworkflow: [{step: start, tool: {kind: python, file: jobs/a.py, function: run}}]\n"
    missing = await client.post("/api/catalog", json={"playbook": playbook, "file": "f.yaml"})
    assert (missing.status_code, missing.json()["findings"][0]["code"]) == (422, "missing-file")
    body = {"playbook": playbook, "file": "f.yaml", "files": {"jobs/a.py": "def run():\n    return 1\n"}}
    assert (await client.post("/api/catalog", json=body)).json()["version"] == 1
    body["files"] = {"jobs/a.py": "def run():\n    return 2\n" + "# padding\n" * 1000}
    assert (await client.post("/api/catalog", json=body)).json()["version"] == 2
    results = [await ended(client, await started(client, path="f", version=version)) for version in (1, 2)]
    assert [result["result"] for result in results] == [1, 2]


async def test_a_playbook_may_be_json(client: httpx2.AsyncClient) -> None:
    playbook = {"metadata": {"name": "j"}, "workflow": [{"step": "start", "tool": {"kind": "noop"}}]}
    answer = await client.post("/api/execute", json={"playbook": playbook})
    assert answer.status_code == 201
    assert (await ended(client, answer.json()["execution_id"]))["state"] == "COMPLETED"


async def test_the_same_key_is_the_same_run(client: httpx2.AsyncClient) -> None:
    body = {"playbook": HELLO, "idempotency_key": "order-17", "workload": {"name": "Ada"}}
    first, second = await client.post("/api/execute", json=body), await client.post("/api/execute", json=body)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["execution_id"] == second.json()["execution_id"]
    other = await client.post("/api/execute", json={**body, "workload": {"name": "Bob"}})
    assert (other.status_code, other.json()["title"]) == (409, "Conflict")
    assert len((await client.get("/api/executions")).json()["executions"]) == 1


async def test_a_list_is_paged(client: httpx2.AsyncClient) -> None:
    made = [await started(client, playbook=HELLO) for _ in range(5)]
    listed: list[str] = []
    before = ""
    while True:
        page = (await client.get("/api/executions", params={"limit": 2, "before": before})).json()
        listed += [execution["execution_id"] for execution in page["executions"]]
        if page["next"] is None:
            break
        before = page["next"]
    assert listed == made[::-1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "`playbook`"),
        ({"playbook": HELLO, "path": "x"}, "exactly one of"),
        ({"playbook": "workflow: 3"}, "workflow"),
        ({"playbook": HELLO, "version": 2}, "requires `path`"),
        ({"playbook": HELLO, "workload": [1]}, "workload"),
        ({"playbook": HELLO, "scope": {"tenant": "other"}}, "'tenant'"),
        ({"playbook": HELLO, "scope": {"project": "a b"}}, "scope.project"),
        ({"path": "x", "version": "one"}, "version"),
    ],
)
async def test_a_request_that_cannot_succeed(client: httpx2.AsyncClient, body: dict[str, Any], said: str) -> None:
    answer = await client.post("/api/executions", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert said in answer.json()["detail"]
    assert (await client.get("/api/executions")).json()["executions"] == []


async def test_a_body_that_is_no_json_or_too_large(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/api/executions", content=b"{")).status_code == 422
    large = await client.post("/api/executions", content=b" " * (8 * 1024 * 1024 + 1))
    assert (large.status_code, "server.max_body_bytes" in large.json()["detail"]) == (413, True)

    async def chunks():
        for _ in range(9):
            yield b" " * 1024 * 1024

    assert (await client.post("/api/executions", content=chunks())).status_code == 413


async def test_events_in_every_dialect_page_by_page(client: httpx2.AsyncClient) -> None:
    execution_id = await started(client, playbook=HELLO)
    await ended(client, execution_id)
    base = f"/api/executions/{execution_id}/events"
    for dialect in ("canonical", "lifecycle", "run", "wire", "legacy"):
        whole = (await client.get(base, params={"dialect": dialect})).json()
        assert whole["events"]
        assert not whole["more"]
        for size in (1, 3):
            paged: list[Any] = []
            after = 0
            while True:
                page = (await client.get(base, params={"dialect": dialect, "limit": size, "after": after})).json()
                paged += page["events"]
                after = page["next"]
                if not page["more"]:
                    break
            assert paged == whole["events"], dialect
    for name in ("StepCompleted", "step.done"):
        events = (await client.get(base, params={"type": name})).json()["events"]
        assert [event["event_type"] for event in events] == ["step.done"]
    wrong = await client.get(base, params={"type": "step.dne"})
    assert (wrong.status_code, "did you mean" in wrong.json()["detail"]) == (422, True)
    assert (await client.get(base, params={"dialect": "klingon"})).status_code == 422


async def test_pause_resume_approve_and_cancel(client: httpx2.AsyncClient) -> None:
    first, second = await started(client, playbook=HELD), await started(client, playbook=HELD)
    await waits_for_approval(client, first)
    await waits_for_approval(client, second)
    paused = await client.post(f"/api/executions/{first}/pause", json={"reason": "tea"})
    assert (paused.status_code, paused.json()["accepted"]) == (200, True)
    assert (await client.get(f"/api/executions/{first}/head")).json()["pausing"]
    assert (await client.post(f"/api/executions/{first}/resume")).status_code == 200
    assert (await client.post(f"/api/executions/{first}/approve")).status_code == 200
    assert (await ended(client, first))["state"] == "COMPLETED"

    unreasoned = await client.post(f"/api/executions/{second}/cancel", json={})
    assert (unreasoned.status_code, "reason" in unreasoned.json()["detail"]) == (409, True)
    cancelled = await client.post(f"/api/executions/{second}/cancel", json={"reason": "enough", "signal_id": "c1"})
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "CANCELLED")
    late = await client.post(f"/api/executions/{second}/pause")
    assert (late.status_code, late.headers["content-type"]) == (409, "application/problem+json")
    for name in ("PAUSE", "go"):
        over = await client.post(f"/api/executions/{second}/signal", json={"signal": name})
        assert (over.status_code, over.json()["title"]) == (409, "RunEnded")
        assert over.json()["detail"] == "the execution has ended (CANCELLED)"
    again = await client.post(f"/api/executions/{second}/retry")
    assert again.json()["started"] not in (None, second)
    await client.post(f"/api/executions/{again.json()['started']}/cancel", json={"reason": "enough"})


async def test_a_signal_says_whether_something_waits_for_it(client: httpx2.AsyncClient) -> None:
    execution_id = await started(client, playbook=HELD)
    await waits_for_approval(client, execution_id)
    early = await client.post(f"/api/executions/{execution_id}/signal", json={"signal": "go", "signal_id": "g1"})
    assert (early.status_code, early.json()["accepted"], early.json()["waiting"]) == (200, True, False)
    again = await client.post(f"/api/executions/{execution_id}/signal", json={"signal": "go", "signal_id": "g1"})
    assert again.json() == early.json()
    approved = await client.post(f"/api/executions/{execution_id}/approve")
    assert approved.json()["waiting"] is True
    assert (await ended(client, execution_id))["state"] == "COMPLETED"


async def test_results_whole_and_in_ranges(client: httpx2.AsyncClient) -> None:
    execution_id = await started(client, playbook=BIG)
    await ended(client, execution_id)
    (stored,) = (await client.get(f"/api/executions/{execution_id}/results")).json()["results"]
    ref = {"ref": stored["ref"]}
    assert (await client.get("/api/result", params=ref)).json()["sha256"] == stored["sha256"]
    whole = await client.get("/api/result/resolve", params=ref)
    assert (whole.status_code, len(whole.content), whole.headers["content-disposition"][:10]) == (
        200, stored["bytes"], "attachment"
    )  # fmt: skip
    for byte_range, part in (
        ("bytes=0-9", whole.content[:10]),
        ("bytes=100-", whole.content[100:]),
        ("bytes=-7", whole.content[-7:]),
        (f"bytes=5-{10**17}", whole.content[5:]),
    ):
        answer = await client.get("/api/result/resolve", params=ref, headers={"Range": byte_range})
        assert (answer.status_code, answer.content) == (206, part), byte_range
        first, last = len(whole.content) - len(part) if not byte_range.endswith("9") else 0, 0
        last = first + len(part) - 1
        assert answer.headers["content-range"] == f"bytes {first}-{last}/{stored['bytes']}"
    beyond = await client.get("/api/result/resolve", params=ref, headers={"Range": f"bytes={stored['bytes']}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{stored['bytes']}")
    assert (await client.get("/api/result/resolve", params=ref, headers={"Range": "lines=1-2"})).status_code == 200
    for bad in ("noetl://execution/../../etc/passwd", stored["ref"][:-1] + "0", "%2e%2e", "\0"):
        assert (await client.get("/api/result/resolve", params={"ref": bad})).status_code in (404, 422), bad


async def test_the_catalog(client: httpx2.AsyncClient) -> None:
    first = await client.post("/api/catalog", json={"playbook": HELLO})
    again = await client.post("/api/catalog", json={"playbook": HELLO})
    assert (first.status_code, again.status_code) == (201, 200)
    assert (first.json()["path"], first.json()["version"]) == ("examples/hello", 1)
    changed = await client.post("/api/catalog", json={"playbook": HELLO.replace("'hello '", "'good day '")})
    assert (changed.status_code, changed.json()["version"]) == (201, 2)
    listed = (await client.get("/api/catalog", params={"prefix": "examples/"})).json()
    assert [(playbook["path"], playbook["version"]) for playbook in listed["playbooks"]] == [("examples/hello", 2)]
    versions = (await client.get("/api/catalog/versions", params={"path": "examples/hello"})).json()["versions"]
    assert [version["version"] for version in versions] == [2, 1]
    shown = (await client.get("/api/catalog/show", params={"path": "examples/hello", "version": 1})).json()
    assert shown["source"] == HELLO
    diff = (await client.get("/api/catalog/diff", params={"path": "examples/hello", "from": 1})).json()
    assert ("good day" in diff["diff"], diff["older"], diff["newer"]) == (True, 1, 2)

    pinned = await started(client, path="examples/hello", version=1)
    newest = await started(client, path="examples/hello")
    assert (await ended(client, pinned))["result"] == {"greeting": "hello world"}
    assert (await ended(client, newest))["result"] == {"greeting": "good day world"}

    put_away = await client.post("/api/catalog/archive", json={"path": "examples/hello"})
    assert put_away.json()["archived_at"]
    refused = await client.post("/api/executions", json={"path": "examples/hello"})
    assert (refused.status_code, "archived" in refused.json()["detail"]) == (422, True)
    assert (await client.get("/api/catalog")).json()["playbooks"] == []
    assert len((await client.get("/api/catalog", params={"archived": True})).json()["playbooks"]) == 1
    assert (await client.post("/api/catalog", json={"playbook": HELLO})).status_code == 200
    assert len((await client.get("/api/catalog")).json()["playbooks"]) == 1

    nowhere = await client.post("/api/executions", json={"path": "examples/helo"})
    assert (nowhere.status_code, "did you mean examples/hello" in nowhere.json()["detail"]) == (404, True)
    no_version = await client.post("/api/executions", json={"path": "examples/hello", "version": 9})
    assert (no_version.status_code, "newest is 2" in no_version.json()["detail"]) == (404, True)
    calls = "metadata: {name: c}\nworkflow:\n  - step: a\n    tool: {kind: playbook, file: b.yaml}\n"
    assert (await client.post("/api/catalog", json={"playbook": calls})).status_code == 422


async def test_a_word_that_no_request_has_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/executions", json={"playbook": HELLO, "worklod": {"name": "Ada"}})
    assert (answer.status_code, "worklod" in answer.json()["detail"]) == (422, True)
    assert (await client.get("/api/executions")).json()["executions"] == []


async def test_a_body_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"server.body_timeout_s": 0.1}
    never = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    async with running(tmp_path, **settings) as server, server.client() as client:
        sending = asyncio.ensure_future(client.post("/api/executions", content=stuck()))
        while "requests_open 1" not in (await client.get("/metrics")).text:
            pass
        while "requests_open 0" not in (await client.get("/metrics")).text:
            pass
        never.set()
        with suppress(httpx2.HTTPError):  # a server may close on whoever still sends
            assert (await sending).status_code == 408


async def test_a_playbook_is_sent_as_the_yaml_that_it_is(client: httpx2.AsyncClient) -> None:
    yaml = {"Content-Type": "application/yaml; charset=utf-8"}
    answer = await client.post("/api/execute", content=HELLO, headers=yaml)
    assert answer.status_code == 201
    assert (await ended(client, answer.json()["execution_id"]))["result"] == {"greeting": "hello world"}
    assert (await client.post("/api/catalog", content=HELLO, headers=yaml)).status_code == 200
    assert (await client.post("/api/catalog", content=b"\xff", headers=yaml)).status_code == 422
