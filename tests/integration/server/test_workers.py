"""What a worker on another machine may do, what it may not, and what becomes of answers that nobody gets."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec
import pytest

from arclog.client import AsyncClient
from arclog.client.connection import Connection
from arclog.client.control import RemoteControl
from arclog.client.results import RemoteResults
from arclog.client.transport import Transport
from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound, RequestRejected, ServerUnavailable, StaleFence
from arclog.operations import workers as ops
from arclog.ports import work
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.task_logs import LogLine
from arclog.ports.views.api import ExecuteRequest
from arclog.testing.conformance.control import GPU, OTHER_WORKER, STEPS, WHOLE, WORKER, reported
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.serving.processes import listen
from arclog.wiring.worker import remote_worker
from tests.servers.arclog import running
from tests.servers.workplace import served

PATIENT = Settings({"client.patience_s": 0})


@pytest.fixture
async def embedded_runtime(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(Settings({"home": str(tmp_path)})) as runtime:
        yield runtime


@pytest.fixture
async def url(embedded_runtime: Embedded) -> AsyncIterator[str]:
    async with served(embedded_runtime) as address:
        yield address


@pytest.fixture
def claim_attempted(embedded_runtime: Embedded, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once somebody has claimed."""
    event = asyncio.Event()
    claim = embedded_runtime.engine.store.claim

    async def noted(*args: Any, **options: Any) -> Any:
        event.set()
        return await claim(*args, **options)

    monkeypatch.setattr(embedded_runtime.engine.store, "claim", noted)
    return event


class As:
    """Speaks with a credential."""

    def __init__(self, url: str, token: str = "") -> None:
        self.connection = Connection(url, PATIENT, token=token)
        self.transport = Transport(self.connection)
        self.control = RemoteControl(self.transport)
        self.results = RemoteResults(self.transport, "files", 1 << 30)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()


async def start(embedded_runtime: Embedded) -> int:
    return int((await embedded_runtime.api.execute(ExecuteRequest(playbook=STEPS))).execution_id)


async def test_a_worker_learns_the_lease_and_the_store(url: str) -> None:
    async with As(url) as worker:
        welcome = await worker.control.register(WORKER)
    assert (welcome.lease_s, welcome.results, welcome.results_max_bytes) == (30.0, "files", 16384 << 20)


async def test_answers_to_workers_name_the_server(embedded_runtime: Embedded, url: str) -> None:
    body = msgspec.json.encode(work.ClaimBody(WorkerInfo("far", ("noop",)), 1))
    async with served(embedded_runtime) as another, httpx2.AsyncClient(trust_env=False) as client:
        names = [
            (await client.post(f"{address}{ops.CLAIM.path}", content=body)).headers["arclog-server"]
            for address in (url, url, another)
        ]
        assert "arclog-server" not in (await client.get(f"{url}/api/executions")).headers
    assert names[0] == names[1] != names[2]


async def test_a_request_for_another_process_is_refused(embedded_runtime: Embedded, url: str) -> None:
    await start(embedded_runtime)
    body = msgspec.json.encode(work.ClaimBody(WorkerInfo("far", ("noop",)), 1))
    async with httpx2.AsyncClient(trust_env=False) as client:
        refused = await client.post(f"{url}{ops.CLAIM.path}", content=body, headers={"Arclog-Server": "gone"})
        name = refused.headers["arclog-server"]
        answered = await client.post(f"{url}{ops.CLAIM.path}", content=body, headers={"Arclog-Server": name})
    assert (refused.status_code, refused.json()["title"]) == (421, "MisdirectedRequest")
    assert len(answered.json()["commands"]) == 1


async def test_a_large_request_for_another_process_is_refused_before_it_is_read(url: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST {ops.REPORT.path} HTTP/1.1\r\nHost: {host}\r\nArclog-Server: gone\r\nContent-Length: 30000000\r\n\r\n"
    writer.write(head.encode() + b" " * 1_000_000)
    async with asyncio.timeout(10):
        assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 421 Misdirected Request\r\n"
    writer.close()


async def test_another_protocol_and_an_odd_name_are_refused(url: str) -> None:
    async with As(url) as worker:
        with pytest.raises(RequestRejected, match="speaks protocol 2, this server 1"):
            await worker.transport.once(ops.REGISTER, work.RegisterWorkerBody(WORKER, 2))
        for odd in ("", "a@b", "a/b", "a b", "x" * 129):
            with pytest.raises(RequestRejected, match="worker_id"):
                await worker.control.register(WorkerInfo(odd, ("noop",)))


async def test_a_worker_with_more_slots_than_a_claim_takes_gets_work(embedded_runtime: Embedded, url: str) -> None:
    async with As(url) as worker:
        await start(embedded_runtime)
        async with asyncio.timeout(60):
            assert len(await worker.control.claim(WORKER, work.MOST_COMMANDS + 1)) == 1


async def test_nobody_speaks_for_anothers_command(embedded_runtime: Embedded, url: str) -> None:
    async with As(url, "default/a") as a, As(url, "default/b") as b:
        await start(embedded_runtime)
        (command,) = await a.control.claim(WORKER, 1)
        with pytest.raises(StaleFence, match="not held by this worker"):
            await b.control.report(reported(command, 1, *WHOLE))  # even under its name
        with pytest.raises(StaleFence):
            await b.control.give_back("one", command.execution_id, command.command_id, command.fence)
        held = [(command.command_id, command.fence)]
        assert await b.control.heartbeat("one", held) == [command.command_id]
        with pytest.raises(StaleFence):
            await a.control.report(reported(command, 1, *WHOLE, worker=OTHER_WORKER))
        assert (await a.control.report(reported(command, 1, *WHOLE))).accepted == 1


async def test_who_holds_a_command_is_known_after_a_restart(tmp_path: Path) -> None:
    settings = Settings({"home": str(tmp_path)})
    async with embedded(settings) as runtime, served(runtime) as url, As(url, "default/a") as a:
        await start(runtime)
        (command,) = await a.control.claim(WORKER, 1)
    async with (
        embedded(settings) as runtime,
        served(runtime) as url,
        As(url, "default/a") as a,
        As(url, "default/b") as b,
    ):
        with pytest.raises(StaleFence):
            await b.control.report(reported(command, 1, *WHOLE))
        answer = await a.control.report(reported(command, 1, *WHOLE, wants=1))
        assert answer.commands == [], "what it serves is not known here yet"
        assert [command.step for command in await a.control.claim(WORKER, 1)] == ["second"]


async def test_a_tenant_sees_nothing_of_another(embedded_runtime: Embedded, url: str) -> None:
    async with As(url, "default/a") as mine, As(url, "other/a") as theirs:
        execution_id = await start(embedded_runtime)
        assert await theirs.control.claim(WORKER, 1) == []
        (command,) = await mine.control.claim(WORKER, 1)
        with pytest.raises(NotFound):
            await theirs.control.loop_results(execution_id, "first", 1, 0, 10)
        with pytest.raises(NotFound):
            await theirs.control.write_logs([LogLine(execution_id, 1, "first", 1, "t", 1, 1, "log", "forged")])
        await mine.control.give_back("one", execution_id, command.command_id, command.fence)
        with pytest.raises(NotFound):
            await theirs.control.report(reported(command, 1, *WHOLE))
        writer = mine.results.writer("default")
        await writer.write(b"mine")
        content = await writer.commit()
        for call in (
            theirs.results.find("default", content.sha256),
            theirs.results.items("default", content.sha256, 0, 1),
            anext(theirs.results.chunks("default", content.sha256)),
            theirs.results.writer("default").commit(),
        ):
            with pytest.raises(NotFound):
                await call
        assert await theirs.results.find("other", content.sha256) is None


async def test_only_an_admin_removes_results(embedded_runtime: Embedded, url: str) -> None:
    async with httpx2.AsyncClient(verify=False, base_url=url, headers={"Authorization": "Bearer default/a"}) as client:
        for method, path in (("DELETE", ""), ("GET", "/all"), ("DELETE", "/leftovers")):
            params: dict[str, str | int] = {"tenant": "default", "sha256": "0", "older_than": 0}
            answer = await client.request(method, f"{work.ROOT}/results{path}", params=params)
            assert answer.status_code == 403, (method, path)


async def test_a_claim_whose_answer_was_lost_is_answered_again(embedded_runtime: Embedded, url: str) -> None:
    await start(embedded_runtime)
    await start(embedded_runtime)
    async with httpx2.AsyncClient(verify=False, base_url=url) as client:

        async def claim(n: int) -> list[int]:
            body = msgspec.json.encode(work.ClaimBody(WORKER, 1, 0.0, n))
            answer = await client.post(f"{work.ROOT}/claim", content=body)
            return [command.command_id for command in msgspec.json.decode(answer.content, type=work.Claimed).commands]

        first = await claim(1)
        assert len(first) == 1
        assert await claim(1) == first
        second = await claim(2)
        assert len(second) == 1
        assert second != first


async def test_a_claim_that_arrives_twice_at_once_is_one(
    embedded_runtime: Embedded, url: str, claim_attempted: asyncio.Event
) -> None:
    """Both wait when the first of two commands comes."""
    async with httpx2.AsyncClient(verify=False, base_url=url, timeout=60) as client:
        body = msgspec.json.encode(work.ClaimBody(WORKER, 1, 20.0, 1))
        twice = [asyncio.ensure_future(client.post(f"{work.ROOT}/claim", content=body)) for _ in range(2)]
        await claim_attempted.wait()
        await start(embedded_runtime)
        await start(embedded_runtime)
        first, second = [
            msgspec.json.decode(answer.content, type=work.Claimed) for answer in await asyncio.gather(*twice)
        ]
        assert len(first.commands) == 1
        assert first == second


async def test_a_claim_that_a_later_one_has_overtaken_takes_nothing(embedded_runtime: Embedded, url: str) -> None:
    await start(embedded_runtime)
    async with httpx2.AsyncClient(verify=False, base_url=url) as client:

        async def claim(n: int) -> list[int]:
            body = msgspec.json.encode(work.ClaimBody(WORKER, 1, 0.0, n))
            answer = await client.post(f"{work.ROOT}/claim", content=body)
            return [command.command_id for command in msgspec.json.decode(answer.content, type=work.Claimed).commands]

        first = await claim(2)
        assert len(first) == 1
        await start(embedded_runtime)
        assert await claim(1) == [], "nobody waits for it any more"
        assert len(await claim(3)) == 1


async def test_a_claim_of_somebody_who_is_gone_takes_nothing(
    embedded_runtime: Embedded, url: str, claim_attempted: asyncio.Event
) -> None:
    async with As(url) as gone:
        claiming = asyncio.ensure_future(gone.control.claim(WORKER, 1, 20.0))
        await claim_attempted.wait()
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
    await start(embedded_runtime)
    async with As(url) as other:
        (command,) = await other.control.claim(OTHER_WORKER, 1, 20.0)
    assert command.step == "first"
    assert command.fence in (1, 2), "taken once by the one who was gone at most, and given back at once"


async def test_a_long_poll_ends_when_the_server_drains(
    embedded_runtime: Embedded, claim_attempted: asyncio.Event
) -> None:
    async with served(embedded_runtime) as url:
        worker = As(url)
        claiming = asyncio.ensure_future(worker.control.claim(GPU, 1, 60.0))
        looking = asyncio.ensure_future(worker.control.revoked("gpu", 60.0))
        await claim_attempted.wait()
        both: asyncio.Future[list[Any]] = asyncio.gather(claiming, looking)  # type: ignore[assignment]  # two kinds of lists
    assert list(await both) == [[], []]
    await worker.connection.close()


async def test_a_server_that_is_not_there_is_asked_until_it_is(embedded_runtime: Embedded) -> None:
    async with served(embedded_runtime) as url:
        pass
    async with As(url) as worker:
        with pytest.raises(ServerUnavailable):
            await worker.control.heartbeat("one", [(1, 1)])
        with pytest.raises(ServerUnavailable):
            await worker.control.revoked("one", 0.0)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"worker": 1}', b'{"worker_id": 1, "held": [[1]]}', b"\xff", b"[" * 60_000]
)
@pytest.mark.parametrize(
    "call", ["register", "claim", "report", "heartbeat", "give-back", "revoked", "loop-results", "logs"]
)
async def test_what_does_not_fit_is_422(url: str, call: str, body: bytes) -> None:
    async with httpx2.AsyncClient(verify=False, base_url=url) as client:
        answer = await client.post(f"{work.ROOT}/{call}", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


@pytest.mark.parametrize(("limit", "wait_s"), [(0, 0.0), (-1, 0.0), (10**6, 0.0), (1, -1.0)])
async def test_odd_claims_are_422(url: str, limit: int, wait_s: float) -> None:
    async with httpx2.AsyncClient(verify=False, base_url=url) as client:
        body = msgspec.json.encode(work.ClaimBody(WORKER, limit, wait_s))
        assert (await client.post(f"{work.ROOT}/claim", content=body)).status_code == 422


async def test_content_that_arrives_changed_is_not_kept(embedded_runtime: Embedded, url: str) -> None:
    async with httpx2.AsyncClient(verify=False, base_url=url) as client:
        params = {"tenant": "t", "sha256": hashlib.sha256(b"sent").hexdigest()}
        answer = await client.post(f"{work.ROOT}/results", params=params, content=b"SENT")
        assert answer.status_code == 422
        assert "does not match its sha256" in answer.json()["detail"]
        lines = {**params, "listed": "true", "sha256": hashlib.sha256(b"{\n").hexdigest()}
        assert (await client.post(f"{work.ROOT}/results", params=lines, content=b"{\n")).status_code == 422
    assert [blob async for blob in embedded_runtime.results.all()] == []
    assert await embedded_runtime.results.leftovers(1 << 62) == 0


async def test_a_report_over_its_limit_is_413(embedded_runtime: Embedded) -> None:
    async with served(embedded_runtime, Settings({"server.max_events_bytes": 1 << 20})) as url, As(url) as worker:
        await start(embedded_runtime)
        (command,) = await worker.control.claim(WORKER, 1)
        report = reported(command, 1, *WHOLE)
        report.events[2].payload["outcome"]["result"] = "x" * (1 << 20)
        with pytest.raises(RequestRejected, match=r"server\.max_events_bytes"):
            await worker.control.report(report)


async def test_items_come_page_by_page(url: str) -> None:
    async with As(url) as worker:
        items = ["x" * 50_000 + str(number) for number in range(300)]
        writer = worker.results.writer("t", listed=True)
        await writer.add(items)
        content = await writer.commit()
        assert await worker.results.items("t", content.sha256, 0, 1 << 62) == items
        assert await worker.results.items("t", content.sha256, 297, 299) == items[297:299]


def test_small_answers_are_sent_at_once() -> None:
    """asyncio sets TCP_NODELAY on accepted sockets only if the listener names its protocol."""
    listener = listen(Settings({"server.port": 0}))
    try:
        assert listener.proto == socket.IPPROTO_TCP
    finally:
        listener.close()


KEYCHAIN = """
metadata: {name: k}
keychain: [{name: token, kind: env, var: ONLY_THE_WORKER_HAS_IT}]
workflow:
  - step: start
    tool: {kind: shell, command: [sh, -c, 'printf %s "$X" | wc -c'], env: {X: "{{ keychain.token.value }}"}}
"""


async def test_credentials_are_the_workers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without a worker neither needs nor looks for them."""
    settings = Settings({"home": str(tmp_path / "worker")})
    async with running(tmp_path / "home", worker=False) as server, AsyncClient(server.url) as client:
        run = await client.start(KEYCHAIN)
        monkeypatch.setenv("ONLY_THE_WORKER_HAS_IT", "hunter2")
        async with remote_worker(settings, server.url, "", ["default"]) as worker:
            working = asyncio.ensure_future(worker.run())
            assert await client.ended(run.execution_id, timeout_s=30)
            worker.leave()
            await working
        summary = await client.summary(run.execution_id)
        assert (summary.state, summary.result["stdout"].strip()) == ("COMPLETED", "7")
        assert "hunter2" not in str(await client.events(run.execution_id))
