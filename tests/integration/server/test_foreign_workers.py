"""Workers that know only `POST /api/worker/claim` and `POST /api/events`, on a server with keys."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.server.callers import Caller, bearer, keys_of
from tests.servers.arclog import running

CALLERS = [Caller("engineer", "engineer"), Caller("worker", "worker"), Caller("admin", "admin")]


class World:
    """A server, and one worker that speaks on the wire."""

    def __init__(self, client: httpx2.AsyncClient, keys: dict[str, str]) -> None:
        self.client = client
        self.keys = keys
        self.id = ""
        self.command: dict[str, Any] = {}

    async def ask(self, who: str, method: str, path: str, **more: Any) -> httpx2.Response:
        return await self.client.request(method, path, headers=bearer(self.keys[who]), **more)

    async def start(self, playbook: str, **workload: Any) -> None:
        body = {"playbook": playbook, "workload": workload}
        answer = await self.ask("engineer", "POST", "/api/executions", json=body)
        assert answer.status_code == 201, answer.text
        self.id = answer.json()["execution_id"]

    async def claim(self, wait_s: float = 0.0) -> dict[str, Any]:
        """The next command; {} when there is none."""
        worker = {"worker_id": "w", "kinds": ["noop", "shell", "python"]}
        body = {"worker": worker, "limit": 1, "form": "wire", "wait_s": wait_s}
        answer = await self.ask("worker", "POST", "/api/worker/claim", json=body)
        assert answer.status_code == 200, answer.text
        commands = answer.json()["commands"]
        self.command = commands[0] if commands else {}
        return self.command

    async def post(self, name: str, **more: Any) -> httpx2.Response:
        held = {key: self.command[key] for key in ("command_id", "fence", "execution_id", "step")}
        body = {"event_type": name, "worker_id": "w", **held, **more}
        return await self.ask("worker", "POST", "/api/events", json=body)

    async def send(self, name: str, **more: Any) -> dict[str, Any]:
        answer = await self.post(name, **more)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def refused(self, name: str, **more: Any) -> str:
        answer = await self.post(name, **more)
        assert answer.status_code == 422, answer.text
        detail: str = answer.json()["detail"]
        return detail

    async def run_step(self, payload: Any) -> dict[str, Any]:
        """A whole step of one task that goes well."""
        await self.claim()
        await self.send("step.enter")
        await self.send("task.started")
        await self.send("call.done", payload=payload)
        return await self.send("step.exit", status="COMPLETED")

    async def log(self, *types: str) -> list[dict[str, Any]]:
        path = f"/api/executions/{self.id}/events"
        page = (await self.ask("engineer", "GET", path, params={"type": list(types), "limit": 1000})).json()
        events: list[dict[str, Any]] = page["events"]
        return events

    async def types(self, after: int = 0) -> list[str]:
        return [event["event_type"] for event in await self.log() if event["seq"] > after]

    async def summary(self) -> dict[str, Any]:
        body: dict[str, Any] = (await self.ask("engineer", "GET", f"/api/executions/{self.id}")).json()
        return body


@asynccontextmanager
async def opened(home: Path, **settings: Any) -> AsyncIterator[World]:
    keys = await keys_of(home, CALLERS)
    async with running(home, worker=False, **settings) as server, server.client() as client:
        yield World(client, keys)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened(tmp_path / "home") as runtime:
        yield runtime


TWO = """
metadata: {name: two}
workload: {name: Ada}
executor: {spec: {result: "{{ {'rows': first.data.rows, 'last': second.data} }}"}}
workflow:
  - step: first
    args: {who: "{{ workload.name }}"}
    tool:
      - {name: greet, kind: shell, command: [echo, "hello {{ args.who }}"]}
      - {name: count, kind: shell, command: "wc -l", input: "{{ greet.data }}"}
    next: {arcs: [{step: second, when: "{{ outcome.data.rows > 2 }}", args: {rows: "{{ first.data.rows }}"}}]}
  - step: second
    tool: {kind: noop, data: "{{ args.rows }}"}
"""


async def test_a_claim_says_all_that_a_worker_needs(world: World) -> None:
    await world.start(TWO, name="Grace")
    command = await world.claim()
    assert (command["step"], command["step_run_id"], command["args"]) == ("first", "step:first:run:1", {"who": "Grace"})
    assert (command["execution_id"], command["scope"]) == (world.id, "acme/default/local")
    assert all(isinstance(command[key], str) for key in ("command_id", "execution_id"))
    assert command["lease_until"].endswith("Z")
    following = command["next"]
    assert (following["task"], following["kind"], following["config"]) == (
        "greet",
        "shell",
        {"command": ["echo", "hello Grace"]},
    )
    await world.send("step.enter")
    await world.send("task.started")
    answer = await world.send("call.done", payload="hello Grace")
    assert (answer["closed"], answer["next"]["task"]) == (False, "count")
    assert answer["next"]["config"] == {"command": "wc -l", "input": "hello Grace"}
    await world.send("task.started")
    answer = await world.send("call.done", payload={"rows": 3})
    assert (answer["closed"], answer["next"]) == (False, None)
    assert (await world.send("step.exit", status="COMPLETED"))["closed"] is True
    following = (await world.claim())["next"]
    assert following["config"] == {"data": 3}
    for name, more in (("step.enter", {}), ("task.started", {}), ("call.done", {"payload": 3}), ("step.exit", {})):
        await world.send(name, **more)
    summary = await world.summary()
    assert (summary["state"], summary["result"]) == ("COMPLETED", {"rows": 3, "last": 3})


KEYCHAIN = """
metadata: {name: keychain}
keychain: [{name: crm, kind: secret}]
workflow:
  - {step: start, tool: {kind: noop, data: "{{ keychain.crm.value }}"}}
"""


async def test_a_config_that_only_a_worker_can_render_says_so(world: World) -> None:
    await world.ask("engineer", "PUT", "/api/credentials/crm", json={"value": "s3cret-value"})
    await world.start(KEYCHAIN)
    answer = await world.claim()
    assert ("config" in answer["next"], "keychain" in answer["next"]["problem"]) == (False, True)
    assert "s3cret" not in json.dumps(answer)


# -- outcomes ---------------------------------------------------------------------------------------------------------

RETRIES = """
metadata: {name: retries}
workflow:
  - step: start
    tool:
      name: flaky
      kind: shell
      command: "exit 1"
      spec:
        policy:
          rules:
            - {when: "{{ outcome.status == 'error' and outcome.error.retryable }}", then: {do: retry, attempts: 3, delay: 0.001}}
            - {when: "{{ outcome.status == 'error' }}", then: {do: fail}}
            - else: {then: {do: continue, set_ctx: {tries: "{{ _attempt }}"}}}
    next: {arcs: [{step: end, when: "{{ event.name == 'step.done' }}"}]}
  - {step: end, tool: {kind: noop}}
"""


async def test_the_server_evaluates_the_policy_of_a_task(world: World) -> None:
    await world.start(RETRIES)
    for attempt in (1, 2):
        command = await world.claim(10.0)
        assert command["next"].get("attempt", 1) == attempt
        if not command.get("started"):
            await world.send("step.enter")
        await world.send("task.started")
        answer = await world.send("call.error", payload={"error": {"kind": "connection", "message": "no"}})
        assert (answer["event_type"], answer["closed"]) == ("task.attempt.failed", True), (
            "a timer brings the next attempt"
        )
    command = await world.claim(10.0)
    assert command["next"]["attempt"] == 3
    started = await world.send("task.started")
    assert started["event_type"] == "task.attempt.started"
    done = await world.send("call.done", payload={"ok": True})
    assert (done["event_type"], done["next"]) == ("task.done", None)
    by_seq = {event["seq"]: event["event_type"] for event in await world.log()}
    assert by_seq[done["seq"]] == "task.done"
    await world.send("step.exit")
    assert (await world.summary())["ctx"] == {"tries": 3}
    attempts = await world.log("task.attempt.started", "task.attempt.failed", "task.attempt.done")
    assert [(attempt["event_type"], attempt["attempt"]) for attempt in attempts] == [
        ("task.attempt.failed", 1),
        ("task.attempt.started", 2),
        ("task.attempt.failed", 2),
        ("task.attempt.started", 3),
        ("task.attempt.done", 3),
    ]


async def test_an_error_fails_the_task_the_step_and_the_run(world: World) -> None:
    await world.start("metadata: {name: fails}\nworkflow:\n  - {step: start, tool: {kind: shell, command: x}}\n")
    await world.claim()
    await world.send("step.enter")
    await world.send("task.started")
    answer = await world.send("call.error", payload={"error": {"message": "boom", "code": "E1"}, "stdout": "…"})
    assert (answer["closed"], answer["next"], answer["error"]["message"]) == (False, None, "boom")
    assert "has failed" in await world.refused("step.exit", status="COMPLETED")
    await world.send("step.exit", status="FAILED")
    summary = await world.summary()
    assert summary["state"] == "FAILED"
    error = {key: summary["error"][key] for key in ("kind", "message", "code", "retryable")}
    assert error == {"kind": "exception", "message": "boom", "code": "E1", "retryable": False}
    (failed,) = await world.log("task.failed")
    assert failed["payload"]["outcome"]["result"] == {"stdout": "…"}


LOOP = """
metadata: {name: loop}
workflow:
  - step: each
    loop: {in: [1, 2], iterator: n}
    tool: {kind: noop, data: "{{ iter.n * 10 }}"}
    next: {arcs: [{step: end, args: {all: "{{ each.results }}"}}]}
  - {step: end, tool: {kind: noop, data: "{{ args.all }}"}}
"""


async def test_a_loop_goes_on_where_the_worker_before_was(world: World) -> None:
    await world.start(LOOP)
    await world.claim()
    await world.send("step.enter")
    await world.send("loop.iteration.started", iteration=0)
    await world.send("task.started", iteration=0)
    await world.send("command.failed")
    command = await world.claim()
    (under_way,) = command["loop"]["under_way"]
    assert (under_way["iteration"], under_way["next"]["in_flight"]) == ("0", True)
    assert (command["loop"]["first"], command["loop"]["last"], command["started"]) == (1, 2, True)
    await world.send("call.done", iteration="0", payload=10)
    await world.send("loop.iteration.done", iteration=under_way["iteration"])


async def test_a_worker_runs_the_iterations_of_a_loop(world: World) -> None:
    await world.start(LOOP)
    command = await world.claim()
    assert command["loop"] == {"first": 0, "last": 2, "total": 2}
    await world.send("step.enter")
    for index in range(2):
        begun = await world.send("loop.iteration.started", iteration=index)
        assert begun["next"]["config"] == {"data": (index + 1) * 10}
        await world.send("task.started", iteration=index)
        await world.send("call.done", iteration=index, payload=(index + 1) * 10)
        answer = await world.send("loop.iteration.done", iteration=index)
    assert answer["closed"] is True
    assert (await world.claim())["next"]["config"] == {"data": [10, 20]}


WAITS = """
metadata: {name: waits}
workflow:
  - step: start
    tool:
      - {name: nap, kind: wait, for_s: "{{ 0.01 }}"}
      - {name: after, kind: noop, data: 1}
"""


async def test_the_engine_takes_over_the_tasks_that_are_its_own(world: World) -> None:
    await world.start(WAITS)
    await world.claim()
    await world.send("step.enter")
    answer = await world.send("task.started")
    assert (answer["closed"], answer["next"]) == (True, None), "the wait holds no worker"
    command = await world.claim(10.0)
    assert (command["started"], command["next"]["task"]) == (True, "after")
    await world.send("task.started")
    await world.send("call.done", payload=1)
    await world.send("step.exit")
    assert (await world.summary())["state"] == "COMPLETED"


# -- results by reference ---------------------------------------------------------------------------------------------

LARGE = """
metadata: {name: large}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: end, when: "{{ start.data.n == 2000 }}"}]}
  - {step: end, tool: {kind: noop}}
"""


async def stored(world: World) -> dict[str, Any]:
    """A large result, uploaded: its reference."""
    body = json.dumps({"n": 2000, "text": "x" * 100_000}).encode()
    sha256 = hashlib.sha256(body).hexdigest()
    params = {"tenant": "acme", "sha256": sha256, "content_type": "application/json"}
    headers = {**bearer(world.keys["worker"]), "content-type": "application/octet-stream"}
    upload = await world.client.post("/api/worker/results", params=params, content=body, headers=headers)
    assert upload.json()["sha256"] == sha256
    ref = f"noetl://execution/{world.id}/result/start.start_task/{sha256}"
    meta = {"bytes": len(body), "sha256": sha256, "shape": "data", "schema_hint": "map"}
    return {"kind": "result_ref", "store": "files", "ref": ref, "meta": meta}


@pytest.mark.parametrize("by_uri", [False, True])
async def test_a_large_result_is_reported_by_reference(world: World, by_uri: bool) -> None:
    await world.start(LARGE)
    await world.claim()
    await world.send("step.enter")
    await world.send("task.started")
    ref, extracted = await stored(world), {"n": 2000}
    too_large = await world.refused("call.done", payload={"text": "x" * 100_000})
    assert "POST /api/worker/results" in too_large
    early = await world.post("call.done", result_kind="ref", result_uri=ref["ref"])
    assert (early.status_code, "result.stored first" in early.json()["detail"]) == (422, True)
    await world.send("result.stored", payload={"result_ref": ref, "extracted": extracted})
    if by_uri:
        await world.send("call.done", result_kind="ref", result_uri=ref["ref"])
    else:
        await world.send("call.done", payload={"result_ref": ref, "extracted": extracted})
    await world.send("step.exit")
    assert (await world.claim())["step"] == "end", "the arc read what was extracted"
    (done,) = await world.log("task.done")
    assert done["payload"]["result_ref"]["ref"] == ref["ref"]
    assert (done["payload"]["result_ref"]["kind"], done["payload"]["extracted"]) == ("result_ref", extracted)
    answer = await world.ask("engineer", "GET", f"/api/executions/{world.id}/events", params={"dialect": "wire"})
    (wire,) = [event for event in answer.json()["events"] if event["event_type"] == "call.done"]
    assert (wire["result_kind"], wire["result_uri"]) == ("ref", ref["ref"])
    content = await world.ask("engineer", "GET", "/api/result/resolve", params={"ref": ref["ref"]})
    assert content.json()["n"] == 2000


async def test_a_reference_of_another_run_is_refused(world: World) -> None:
    await world.start(LARGE)
    await world.claim()
    await world.send("step.enter")
    await world.send("task.started")
    ref = await stored(world)
    other = {**ref, "ref": ref["ref"].replace(world.id, "12345")}
    assert "another execution" in await world.refused("call.done", payload={"result_ref": other})
    answer = await world.post("call.done", result_kind="ref", result_uri="s3://bucket/key")
    assert answer.status_code == 422


# -- order, repetitions, transitions ----------------------------------------------------------------------------------


async def test_what_comes_out_of_order_is_refused_and_recorded(world: World) -> None:
    await world.start(TWO)
    await world.claim()
    assert "before step.started" in await world.refused("task.started")
    await world.send("step.enter")
    assert "has started already" in await world.refused("step.enter")
    assert "has not started" in await world.refused("call.done", payload=1)
    assert "greet has not run" in await world.refused("step.exit")
    await world.send("task.started")
    assert "has not ended" in await world.refused("task.started", task="count")
    assert "has not ended" in await world.refused("step.exit")
    assert "an ok outcome" in await world.refused("call.error", payload={"outcome": {"status": "ok"}})
    problem = {"kind": "x", "message": "y"}
    assert "an error outcome" in await world.refused(
        "call.done", payload={"outcome": {"status": "error", "error": problem}}
    )
    await world.send("call.done", payload=1)
    assert "has ended" in await world.refused("call.done", task="greet", payload=2)
    assert "has ended" in await world.refused("call.error", task="greet", payload={"error": "late"})
    assert "no policy" in await world.refused("policy.task.evaluated", task="greet", payload={"action": {"do": "fail"}})
    left = await world.log("command.refused")
    assert len(left) == 10, "so many are kept of one claim (ingest.max_refusals)"
    assert left[0]["payload"]["reason"].startswith("task.started: ")
    assert {refusal["payload"]["worker_id"].partition("@")[0] for refusal in left} == {"w"}
    types = await world.types()
    assert types.count("task.done") == types.count("task.started") == types.count("step.started") == 1


async def test_a_repeated_event_is_answered_as_before(world: World) -> None:
    await world.start(TWO)
    await world.claim()
    first = await world.send("step.enter", event_id=77)
    again = await world.send("step.enter", event_id="77")
    assert (again["duplicate"], again["seq"]) == (True, first["seq"])
    other = await world.post("step.enter", event_id=77, payload={"other": 1})
    assert other.status_code == 409
    answers = await asyncio.gather(*(world.post("task.started", event_id=78) for _ in range(5)))
    assert [answer.status_code for answer in answers] == [200] * 5
    assert (await world.types()).count("task.started") == 1


# -- giving up --------------------------------------------------------------------------------------------------------


async def test_command_failed_ends_the_command_at_once(world: World) -> None:
    await world.start(RETRIES)
    await world.claim()
    await world.send("step.enter")
    await world.send("task.started")
    before = (await world.log())[-1]["seq"]
    answer = await world.send("command.failed", payload={"error": {"kind": "killed", "message": "out of memory"}})
    assert answer["closed"] is True
    assert await world.types(before) == ["command.failed", "command.issued"]
    failed, issued = (await world.log())[-2:]
    assert (failed["informative"], failed["source"], failed["worker_id"].partition("@")[0]) == (True, "worker", "w")
    assert (issued["payload"]["reason"], issued["payload"]["losses"]) == ("lease_lost", 1)
    assert issued["payload"]["error"]["message"] == "out of memory"
    again = await world.claim()
    assert (again["fence"], again["next"]["in_flight"]) == (2, True), "the same attempt, for whoever comes next"
    late = world.command | {"fence": 1}
    world.command = late
    assert (await world.post("call.done")).status_code == 409


async def test_a_command_that_fails_too_often_is_poison(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", **{"leases.max_losses": 2}) as world:
        await world.start(CONTINUES)
        for _ in range(2):
            await world.claim()
            await world.send("command.failed", payload={"error": "no such tool"})
        summary = await world.summary()
        assert (summary["state"], summary["error"]["kind"]) == ("FAILED", "poison")
        assert "no such tool" in summary["error"]["message"]


@pytest.mark.parametrize(
    "payload", [{"retryable": False, "error": "gone"}, {"error": {"message": "gone", "retryable": False}}]
)
async def test_a_final_command_failed_is_the_failure_of_its_task(world: World, payload: dict[str, Any]) -> None:
    await world.start(RETRIES)
    await world.claim()
    await world.send("step.enter")
    await world.send("task.started")
    before = (await world.log())[-1]["seq"]
    assert (await world.send("command.failed", payload=payload))["closed"] is True
    types = await world.types(before)
    assert types[:4] == ["command.failed", "task.failed", "policy.task.evaluated", "step.failed"]
    (failed,) = await world.log("task.failed")
    assert failed["payload"]["outcome"]["error"] == {
        "kind": "exception", "message": "gone", "code": None, "retryable": False,
    }  # fmt: skip
    assert (await world.summary())["state"] == "FAILED"
    assert await world.claim() == {}


CONTINUES = """
metadata: {name: continues}
workflow:
  - step: start
    tool:
      - {name: may_fail, kind: noop, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}
      - {name: after, kind: noop}
"""


async def test_the_tasks_policy_decides_on_a_final_failure(world: World) -> None:
    await world.start(CONTINUES)
    await world.claim()
    await world.send("step.enter")
    await world.send("task.started")
    await world.send("command.failed", payload={"retryable": False})
    command = await world.claim()
    assert (command["next"]["task"], command["started"]) == ("after", True)
    await world.send("task.started")
    await world.send("call.done")
    await world.send("step.exit")
    assert (await world.summary())["state"] == "COMPLETED"
    answer = await world.ask("engineer", "GET", f"/api/executions/{world.id}/events", params={"dialect": "lifecycle"})
    lives: dict[str, list[str]] = {}
    for event in answer.json()["events"]:
        if event["event_type"].startswith("command."):
            lives.setdefault(event["command_id"], []).append(event["status"])
    assert list(lives.values()) == [
        ["ISSUED", "CLAIMED", "RUNNING", "FAILED"],
        ["ISSUED", "CLAIMED", "RUNNING", "COMPLETED"],
    ]


async def test_a_final_failure_before_any_task_fails_the_step(world: World) -> None:
    await world.start(CONTINUES)
    await world.claim()
    before = (await world.log())[-1]["seq"]
    await world.send("command.failed", payload={"retryable": False, "error": "no shell here"})
    assert (await world.types(before))[:2] == ["command.failed", "step.failed"]
    assert (await world.summary())["error"]["message"] == "no shell here"


ROUNDS = """
metadata: {name: rounds}
workflow:
  - step: start
    tool:
      - until:
          when: "{{ page.n >= 2 }}"
          max: MAX
          do:
            - {name: page, kind: shell, command: fetch}
      - choose:
          - {when: "{{ page.n > 100 }}", then: [{name: many, kind: shell, command: many}]}
          - {else: [{name: few, kind: shell, command: few}]}
"""


async def test_the_server_asks_guards_for_the_worker(world: World) -> None:
    await world.start(ROUNDS.replace("MAX", "5"))
    command = await world.claim()
    assert command["next"]["task"] == "page"
    await world.send("step.enter")
    for n in (1, 2):
        assert (await world.send("task.started"))["event_type"] == "task.started"
        answer = await world.send("call.done", payload={"n": n})
        assert answer["next"]["task"] == ("page" if n == 1 else "few")
    await world.send("task.started")
    assert (await world.send("call.done", payload={}))["next"] is None
    await world.send("step.exit")
    assert (await world.summary())["state"] == "COMPLETED"
    started = await world.log("task.started")
    assert [task_run["task_run_id"] for task_run in started] == ["task:page:run:1", "task:page:run:2", "task:few:run:1"]


async def test_rounds_past_their_limit_are_the_failure_that_the_worker_reports(world: World) -> None:
    await world.start(ROUNDS.replace("MAX", "1"))
    await world.claim()
    await world.send("step.enter")
    await world.send("task.started")
    answer = await world.send("call.done", payload={"n": 1})
    assert (answer["next"], answer["error"]["code"]) == (None, "MAX_ROUNDS")
    await world.send("step.exit", status="FAILED")
    assert (await world.summary())["error"]["code"] == "MAX_ROUNDS"
