"""Following a run over HTTP: every event once and in order, whatever happens to the connection or the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.server.callers import bearer, make_keys
from tests.integration.server.test_executions import BIG, HELD, HELLO, ended, started, waits_for_approval
from tests.servers.arclog import RunningServer, running


async def frames(answer: httpx2.Response) -> AsyncIterator[tuple[str, Any]]:
    """(id, data) of each event; comments are ('', None)."""
    last = ""
    data: Any = None
    async for line in answer.aiter_lines():
        if line.startswith(":"):
            yield "", None
        elif line.startswith("id: "):
            last = line[4:]
        elif line.startswith("data: "):
            data = json.loads(line[6:])
        elif not line and data is not None:
            yield last, data
            data, last = None, ""


async def followed(client: httpx2.AsyncClient, execution_id: str, headers: Any = None, **params: Any) -> list[Any]:
    return [data async for data in following_events(client, execution_id, headers, **params)]


async def following_events(
    client: httpx2.AsyncClient, execution_id: str, headers: Any = None, **params: Any
) -> AsyncIterator[Any]:
    url = f"/api/executions/{execution_id}/events/stream"
    async with client.stream("GET", url, params=params, headers=headers or {}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for _, data in frames(answer):
            if data is not None:
                yield data


async def test_a_stream_follows_a_run_to_the_end_of_its_log(server: RunningServer) -> None:
    async with server.client() as client:
        execution_id = await started(client, playbook=HELD)
        following = asyncio.ensure_future(followed(client, execution_id))
        await waits_for_approval(client, execution_id)
        assert not following.done()
        await client.post(f"/api/executions/{execution_id}/approve")
        streamed = await following
        whole = (await client.get(f"/api/executions/{execution_id}/events")).json()["events"]
        assert streamed == whole
        assert streamed[-1]["event_type"] == "playbook.processed"


@pytest.mark.parametrize("dialect", ["canonical", "lifecycle", "run", "wire", "legacy"])
async def test_a_stream_resumes_behind_any_event_in_any_dialect(server: RunningServer, dialect: str) -> None:
    async with server.client() as client:
        execution_id = await started(client, playbook=HELLO)
        await ended(client, execution_id)
        url = f"/api/executions/{execution_id}/events/stream"
        whole: list[tuple[str, Any]] = []
        async with client.stream("GET", url, params={"dialect": dialect}) as answer:
            whole = [frame async for frame in frames(answer) if frame[1] is not None]
        listed = (await client.get(url.removesuffix("/stream"), params={"dialect": dialect})).json()["events"]
        assert [data for _, data in whole] == listed
        for index, (mark, _) in enumerate(whole[:-1]):
            if mark:
                rest = [data for _, data in whole[index + 1 :]]
                assert await followed(client, execution_id, {"Last-Event-ID": mark}, dialect=dialect) == rest
                assert await followed(client, execution_id, dialect=dialect, after=mark) == rest
        over = await client.get(url, headers={"Last-Event-ID": "999999"})
        assert over.status_code == 204
        assert (await client.get(url, headers={"Last-Event-ID": "x"})).status_code == 422
        assert (await client.get("/api/executions/123/events/stream")).status_code == 404


async def test_a_stream_with_nothing_to_tell_keeps_alive(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"server.keep_alive_s": 0.1}
    async with running(tmp_path, **settings) as server, server.client() as client:
        execution_id = await started(client, playbook=HELD)
        await waits_for_approval(client, execution_id)
        comments = 0
        async with client.stream("GET", f"/api/executions/{execution_id}/events/stream") as answer:
            async for _, data in frames(answer):
                comments += data is None
                if comments == 4:
                    break


async def test_a_drain_ends_streams_and_long_polls_and_refuses_new_work(tmp_path: Path) -> None:
    async with running(tmp_path) as server, server.client() as client:
        execution_id = await started(client, playbook=HELD)
        await waits_for_approval(client, execution_id)
        head = (await client.get(f"/api/executions/{execution_id}/head")).json()["head"]
        received: asyncio.Queue[Any] = asyncio.Queue()

        async def follow() -> None:
            async for event in following_events(client, execution_id):
                received.put_nowait(event)

        following = asyncio.ensure_future(follow())
        assert [(await received.get())["seq"] for _ in range(head)] == list(range(1, head + 1))
        polling = asyncio.ensure_future(
            client.get(f"/api/executions/{execution_id}/head", params={"after": head, "timeout_s": 50})
        )
        # A request that is still being sent keeps the server up, and is the next one's time to be refused.
        more = asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield b'{"playbook": '
            await more.wait()
            yield json.dumps(HELLO).encode() + b"}"

        sending = asyncio.ensure_future(client.post("/api/executions", content=slowly()))
        while "requests_open 3" not in (await client.get("/metrics")).text:
            pass
        server.stopping.set()
        assert (await polling).json()["head"] == head
        await following
        assert received.empty()
        refused = await client.post("/api/executions", json={"playbook": HELLO})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        more.set()
        assert (await sending).status_code == 201
        await server.stop()
        with pytest.raises(httpx2.ConnectError):
            await client.get("/health")


async def test_a_request_that_never_ends_does_not_keep_the_server_up(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"server.drain_s": 0.1}
    never = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"{"
        await never.wait()

    async with running(tmp_path, **settings) as server, server.client() as client:
        sending = asyncio.ensure_future(client.post("/api/executions", content=stuck()))
        while "requests_open 1" not in (await client.get("/metrics")).text:
            pass
        await server.stop()
        never.set()
        with pytest.raises(httpx2.HTTPError):
            (await sending).raise_for_status()


async def test_overload_is_refused_and_passes(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"server.max_concurrent": 2}
    async with running(tmp_path, **settings) as server, server.client() as client:
        execution_id = await started(client, playbook=HELD)
        await waits_for_approval(client, execution_id)
        streams = [asyncio.ensure_future(followed(client, execution_id)) for _ in range(2)]
        while "requests_open 2" not in (await client.get("/metrics")).text:
            pass
        refused = await client.get(f"/api/executions/{execution_id}/status")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "server.max_concurrent" in refused.json()["detail"]
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        while (await client.get(f"/api/executions/{execution_id}/status")).status_code == 429:
            pass
        assert (await client.post(f"/api/executions/{execution_id}/approve")).status_code == 200
        assert (await ended(client, execution_id))["state"] == "COMPLETED"


async def test_a_large_run_is_streamed_whole(server: RunningServer) -> None:
    async with server.client() as client:
        loop = BIG.replace("range(2000)]", "range(700)]") + (
            "    next: {arcs: [{step: each}]}\n  - step: each\n"
            "    loop: {in: '{{ start.data }}', iterator: item}\n    tool: {kind: noop}\n"
        )
        execution_id = await started(client, playbook=loop)
        streamed = await followed(client, execution_id)
        assert [event["seq"] for event in streamed] == list(range(1, len(streamed) + 1))
        assert len(streamed) > 1000
        assert streamed[-1]["event_type"] == "playbook.processed"


PRINTING = """
metadata: {name: printing}
workflow:
  - step: start
    tool: {kind: shell, command: [sh, -c, "echo one; echo two >&2; echo three"]}
    next: {arcs: [{step: gate}]}
  - step: gate
    tool: {kind: approval}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: shell, command: [echo, four]}
"""


async def test_what_tasks_print_is_followed_to_the_runs_end(server: RunningServer) -> None:
    async with server.client() as client:
        execution_id = await started(client, playbook=PRINTING)
        url = f"/api/executions/{execution_id}/logs/stream"
        texts, marks = [], []
        async with client.stream("GET", url) as answer:
            async for mark, line in frames(answer):
                if line is None:
                    continue
                texts.append(line["text"].strip())
                marks.append(mark)
                assert mark == str(line["position"])
                if len(texts) == 3:
                    await waits_for_approval(client, execution_id)
                    await client.post(f"/api/executions/{execution_id}/approve")
        assert sorted(texts[:3]) == ["one", "three", "two"]
        assert texts[3:] == ["four"]
        for how in ({"headers": {"Last-Event-ID": marks[2]}}, {"params": {"after": marks[2]}}):
            async with client.stream("GET", url, **how) as answer:  # type: ignore[arg-type]  # headers or params
                assert [line["text"].strip() async for _, line in frames(answer) if line] == ["four"]
        async with client.stream("GET", url, params={"step": "start", "stream": "stderr"}) as answer:
            assert [line["text"].strip() async for _, line in frames(answer) if line] == ["two"]
        assert (await client.get(url, params={"step": "nosuch"})).status_code == 422
        assert (await client.get(url, params={"stream": "nosuch"})).status_code == 422
        assert (await client.get("/api/executions/123/logs/stream")).status_code == 404


@pytest.mark.parametrize("what", ["events", "logs"])
async def test_a_stream_ends_with_the_right_to_it(tmp_path: Path, what: str) -> None:
    keys = await make_keys(tmp_path, [("default", "admin"), ("default", "viewer")])
    admin, viewer = bearer(keys["default", "admin"]), bearer(keys["default", "viewer"])
    settings: dict[str, Any] = {"auth.cache_s": 0.1}
    async with running(tmp_path, **settings) as server, server.client() as client:
        answer = await client.post("/api/executions", json={"playbook": HELD}, headers=admin)
        url = f"/api/executions/{answer.json()['execution_id']}/{what}/stream"
        async with (
            client.stream("GET", url, headers=viewer) as ending,
            client.stream("GET", url, headers=admin) as going_on,
        ):
            last = ""
            async for line in ending.aiter_lines():
                if line.startswith(":") and not last:
                    key_id = keys["default", "viewer"].split("_")[1]
                    assert (await client.delete(f"/api/keys/{key_id}", headers=admin)).status_code == 200
                last = line or last
            assert "was revoked" in json.loads(last.removeprefix("data: "))["detail"]
            assert going_on.status_code == 200
            assert (await client.get(url, headers=viewer)).status_code == 401
            await client.post(url.replace(f"{what}/stream", "cancel"), json={"reason": "enough"}, headers=admin)
            assert "denied" not in "".join([line async for line in going_on.aiter_lines()])


LONG = """
metadata: {name: long}
workflow:
  - step: start
    loop: {in: "{{ range(150) | list }}", iterator: n}
    tool: {kind: noop, data: "{{ iter.n }}"}
    next: {arcs: [{step: hold}]}
  - step: hold
    spec: {pool: nowhere}
    tool: {kind: noop}
"""


@pytest.mark.parametrize("dialect", ["lifecycle", "wire", "run"])
async def test_pages_of_a_long_log_are_told_from_where_the_last_one_ended(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    from arclog.engine.views.api import EngineApi
    from arclog.server.streams import events as telling

    read = 0
    events = EngineApi.events

    async def counted(self: EngineApi, *what: Any, **more: Any) -> list[dict[str, Any]]:
        nonlocal read
        page_of_events = await events(self, *what, **more)
        read += len(page_of_events)
        return page_of_events

    async with server.client() as client:
        execution_id = await started(client, playbook=LONG)
        url = f"/api/executions/{execution_id}/events"
        async with client.stream("GET", f"{url}/stream", params={"type": "step.scheduled"}) as answer:
            async for _, scheduled in frames(answer):
                if scheduled is not None and scheduled["step"] == "hold":
                    break
        whole = (await client.get(url, params={"dialect": dialect})).json()["events"]
        named = {whole[-1].get("event_type") or whole[-1].get("eventType") or whole[-1]["name"]}
        head = (await client.get(f"/api/executions/{execution_id}/head")).json()["head"]
        monkeypatch.setattr(telling, "_PAGE", 10)
        monkeypatch.setattr(EngineApi, "events", counted)
        for names in ([], sorted(named)):
            wanted = (await client.get(url, params={"dialect": dialect, "type": names})).json()["events"]
            assert names or wanted == whole
            read, after, pages, records = 0, 0, 0, []
            while True:
                params: dict[str, Any] = {"dialect": dialect, "type": names, "after": after, "limit": 4}
                page = (await client.get(url, params=params)).json()
                records += page["events"]
                after, pages = page["next"], pages + 1
                if not page["more"]:
                    break
            assert records == wanted
            # Each page reads a few rows more than it tells; from the beginning they would be thousands.
            assert read <= 40 * pages + head, (read, pages)
        # Who goes back, or where nobody was, is told the same.
        for after in (0, 3, whole[len(whole) // 2].get("seq", 5)):
            page = (await client.get(url, params={"dialect": dialect, "after": after, "limit": 1000})).json()["events"]
            assert page == whole[len(whole) - len(page) :]
