"""Servers that are not there, go away, come back, are old, or must not be reached."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from arclog.model.errors import SettingsError
from tests.integration.tools.nats.conftest import Open, Runner
from tests.servers.nats import NatsServer, running_nats

PUBLISH: dict[str, Any] = {"subject": "x", "data": 1}


async def listening(server: NatsServer, subject: str) -> tuple[Client, asyncio.Event]:
    """Somebody who hears and never answers, and whether something came."""
    client = await nats.connect(server.url, pending_size=1, allow_reconnect=False, error_cb=_quiet)
    came = asyncio.Event()

    async def hear(_: object) -> None:
        came.set()

    await client.subscribe(subject, cb=hear)
    await client.flush()
    return client, came


async def _quiet(_: Exception) -> None:
    """A server that is killed is not a news here."""


# -- servers that go away


async def test_a_server_killed_under_a_request(opened: Open) -> None:
    with running_nats() as server:
        run = opened(server.url)
        client, came = await listening(server, "ask")
        going = asyncio.ensure_future(run.failure("request", subject="ask", wait_s=60))
        await came.wait()
        server.kill()
        problem = await going
        await client.close()
        assert (problem.kind, problem.code, problem.retryable) == ("connection", "CONNECTION_LOST", True)
        assert "it is unknown whether it performed the operation" in problem.message
        problem = await run.failure("publish", **PUBLISH)
        assert (problem.kind, problem.code, problem.retryable) == ("connection", "CONNECTION", True)
        assert problem.message == f"{server.url}: Connection refused"
        server.start()
        assert await run.data("publish", **PUBLISH) == {"published": 1}


async def test_a_server_killed_under_a_fetch_and_back_with_its_stream(opened: Open) -> None:
    with running_nats() as server:
        run = opened(server.url)
        client = await nats.connect(server.url, allow_reconnect=False, error_cb=_quiet)
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        await js.add_consumer("S", durable_name="c", ack_wait=60)
        going = asyncio.ensure_future(run.failure("fetch", stream="S", consumer="c", wait_s=60))
        while not (await js.consumer_info("S", "c")).num_waiting:
            pass  # each look is an exchange with the server
        server.kill()
        assert (await going).code == "CONNECTION_LOST"
        await client.close()
        server.start()
        await run.data("publish", subject="s", data=7, stream="S")
        assert [row["data"] for row in await run.data("fetch", stream="S", consumer="c", wait_s=10)] == [7]


async def test_a_server_killed_under_a_list_and_a_retry_that_completes_it(opened: Open) -> None:
    with running_nats() as server:
        run = opened(server.url)
        async with await nats.connect(server.url, allow_reconnect=False, error_cb=_quiet) as client:
            await client.jetstream().add_stream(name="S", subjects=["s"])
        task = {"subject": "s", "messages": [{"data": index} for index in range(1000)], "stream": True, "run_key": "k"}
        advance = run.recorder.advance
        run.recorder.advance = lambda *_: server.kill()  # type: ignore[method-assign]  # when some have arrived
        problem = await run.failure("publish", **task)
        assert (problem.kind, problem.retryable) == ("connection", True)
        run.recorder.advance = advance  # type: ignore[method-assign]
        server.start()
        done = await run.data("publish", **task)
        assert (done["published"], done["seq"]) == (1000, 1000)
        assert done["duplicates"] >= 256
        async with await nats.connect(server.url) as client:
            js = client.jetstream()
            assert (await js.stream_info("S")).state.messages == 1000
            assert [int((await js.get_msg("S", seq)).data or b"") for seq in (1, 256, 1000)] == [0, 255, 999]


async def test_an_idle_connection_that_broke_is_not_used(opened: Open) -> None:
    with running_nats() as server:
        run = opened(server.url)
        await run.data("publish", **PUBLISH)
        server.kill()
        server.start()
        outcomes = [await run("publish", **PUBLISH) for _ in range(2)]
        # The first may still find the old connection; it says so, and the next has a new one.
        assert outcomes[0].error is None or outcomes[0].error.retryable
        assert outcomes[1].error is None


async def test_a_server_that_is_frozen_and_thaws(opened: Open) -> None:
    with running_nats() as server:
        run = opened(server.url, nats__connect_timeout_s=1.5)
        await run.data("publish", **PUBLISH)
        process = server._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # noqa: ASYNC222 - until it stands still
        try:
            assert (await run.failure("request", subject="ask", wait_s=0.05)).kind == "timeout"
            problem = await run.failure("publish", **PUBLISH)
            assert (problem.kind, problem.code, problem.retryable) == ("timeout", "CONNECT", True)
        finally:
            process.send_signal(signal.SIGCONT)
        assert await run.data("publish", **PUBLISH) == {"published": 1}


async def test_the_next_server_where_the_first_is_not_there(run: Runner) -> None:
    for servers in (f"nats://127.0.0.1:9, {run.url}", ["nats://127.0.0.1:9", run.url], ["nats://no.invalid", run.url]):
        assert await run.data("publish", servers=servers, **PUBLISH) == {"published": 1}


async def test_an_unused_connection_is_closed(opened: Open) -> None:
    left = asyncio.Event()
    async with speaking(info(), left=left) as url:
        await opened(url, nats__idle_s=0).data("publish", **PUBLISH)
        await left.wait()
        left.clear()
        run = opened(url, nats__idle_s=0.001)
        await run.data("publish", **PUBLISH)
        await left.wait()


async def test_a_tool_that_is_closed_ends_what_waits(opened: Open) -> None:
    with running_nats() as server:
        run = opened(server.url)
        client, came = await listening(server, "ask")
        going = asyncio.ensure_future(run.failure("request", subject="ask", wait_s=60))
        await came.wait()
        await run.tool.close()
        assert (await going).code == "CONNECTION_LOST"
        await client.close()


async def test_tasks_that_begin_together_share_one_connection(opened: Open) -> None:
    with running_nats("-m", "-1") as server:
        run = opened(server.url)
        client, came = await listening(server, "ask")
        del came
        asking = [asyncio.ensure_future(run("request", subject="ask", wait_s=60)) for _ in range(10)]
        await run.data("publish", **PUBLISH)
        assert client.client_id is not None
        mine = await nats.connect(server.url)
        # Numbered in the order of their connection: the listener, the tasks' one, and this.
        assert mine.client_id == client.client_id + 2
        await mine.close()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await client.close()


async def test_tasks_that_begin_together_share_a_failure(opened: Open) -> None:
    """Not one after the other, each with a patience of its own."""
    greeted = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        greeted += 1
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        run = opened(url, nats__connect_timeout_s=0.1)
        problems = await asyncio.gather(*(run.failure("publish", **PUBLISH) for _ in range(5)))
        assert {problem.kind for problem in problems} == {"timeout"}
        assert greeted == 1


async def test_a_task_cancelled_while_it_connects(opened: Open) -> None:
    reached, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await reader.read()
        writer.close()
        left.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        run = opened(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        going = asyncio.ensure_future(run("publish", **PUBLISH))
        await reached.wait()
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        await left.wait()


# -- servers that are none, or old


@asynccontextmanager
async def speaking(*lines: bytes, left: asyncio.Event | None = None) -> AsyncIterator[str]:
    """A server that greets with this, and answers pings; `left` tells that somebody hung up."""
    clients: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        clients.add(writer)
        writer.writelines(lines)
        while line := await reader.readline():
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
        writer.close()
        if left is not None:
            left.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in clients:
            writer.close()
        await server.wait_closed()


def info(**changed: object) -> bytes:
    fields = {"server_id": "x", "version": "2.10.0", "max_payload": 1000, "headers": True, "proto": 1, **changed}
    return b"INFO " + json.dumps(fields).encode() + b"\r\n"


async def test_an_old_server_is_not_asked_for_what_it_would_ignore(opened: Open) -> None:
    async with speaking(info()) as url:
        run = opened(url)
        problem = await run.failure("publish", subject="x", data=1, stream=True, ttl_s=5)
        assert (problem.kind, problem.code) == ("config", "SERVER_VERSION")
        assert "ttl_s needs a server from 2.11.0 on, and this is 2.10.0" in problem.message
        assert await run.data("publish", **PUBLISH) == {"published": 1}
        await run.tool.close()


async def test_a_server_that_is_too_old(opened: Open) -> None:
    async with speaking(info(version="2.1.9", headers=False)) as url:
        problem = await opened(url).failure("publish", **PUBLISH)
        assert (problem.kind, problem.code) == ("config", "SERVER_VERSION")


async def test_servers_that_a_server_tells_of_are_not_gone_to(opened: Open) -> None:
    reached = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    trap = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = trap.sockets[0].getsockname()[1]
    async with speaking(info(connect_urls=[f"127.0.0.1:{port}"])) as url:
        run = opened(url)
        await run.data("publish", **PUBLISH)
    assert (await run.failure("publish", **PUBLISH)).kind == "connection"
    assert not reached.is_set()
    trap.close()
    await trap.wait_closed()


async def test_something_that_is_no_nats_server(opened: Open) -> None:
    async with speaking(b"HTTP/1.1 200 OK\r\n") as url:
        problem = await opened(url).failure("publish", **PUBLISH)
        assert problem.kind == "connection", problem


async def test_a_server_that_says_nothing(opened: Open) -> None:
    async with speaking() as url:
        problem = await opened(url, nats__connect_timeout_s=0.05).failure("publish", **PUBLISH)
        assert (problem.kind, problem.retryable) == ("timeout", True)
        assert "nats.connect_timeout_s" in problem.message


# -- servers that must not be reached


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("", "a nats task needs a server"),
        ("nats://user:CANARY@127.0.0.1:4222", "must not contain credentials; use `auth`"),
        ("nats://CANARY@127.0.0.1:4222", "must not contain credentials; use `auth`"),
        ("ws://127.0.0.1:4222", "is not an address of a NATS server"),
        ("nats://127.0.0.1:4222/CANARY", "is not an address of a NATS server"),
        ("nats://:4222", "is not an address of a NATS server"),
        ("nats://127.0.0.1:4222, , tls://", "is not an address of a NATS server"),
        ("nats://127.0.0.1:99999", "is not an address of a NATS server"),
    ],
)
async def test_what_is_no_address(run: Runner, servers: str, said: str) -> None:
    problem = await run.failure("publish", servers=servers, **PUBLISH)
    assert (problem.kind, problem.retryable) == ("config", False)
    assert said in problem.message
    assert "CANARY" not in problem.message


async def test_addresses_that_the_setting_does_not_name(opened: Open, run: Runner) -> None:
    problem = await opened(run.url, nats__allow_networks="none").failure("publish", **PUBLISH)
    assert (problem.kind, problem.code, problem.retryable) == ("config", "ADDRESS_REFUSED", False)
    assert (
        "nats tasks reach only public addresses and those that the setting nats.allow_networks names" in problem.message
    )
    problem = await run.failure("publish", servers="nats://169.254.169.254", **PUBLISH)
    assert (problem.code, "link-local" in problem.message) == ("ADDRESS_REFUSED", True)
    with pytest.raises(SettingsError, match=r"nats\.allow_networks"):
        opened(run.url, nats__allow_networks="10.0.0.0/99")
