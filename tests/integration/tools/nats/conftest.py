"""What the tests of kind nats share: a runner of tasks, and somebody else on the same server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome, TaskError
from arclog.ports.secrets import Credential
from arclog.results.memory import MemoryResults
from arclog.testing.tools import Recorder, task_context
from arclog.tools.nats.kind import NatsConfig
from arclog.tools.nats.tool import NatsTool
from tests.servers.nats import NatsServer


class Runner:
    """Runs tasks with one tool and one result store on one server; each task has a key of its own unless it is told."""

    def __init__(self, url: str, **settings: Any) -> None:
        changed = {name.replace("__", "."): value for name, value in settings.items()}
        self.tool = NatsTool(Settings(changed))
        self.url = url
        self.auth: Credential | None = None
        self.results = MemoryResults()
        self.recorder = Recorder()
        self.inline_max_bytes = 1000
        self.scope = "default/default/local"
        self._keys = count(1)

    async def __call__(self, op: str, *, run_key: str = "", **config: Any) -> Outcome:
        typed = msgspec.convert({"op": op, "servers": self.url, **config}, NatsConfig)
        context = task_context(
            self.recorder,
            results=self.results,
            inline_max_bytes=self.inline_max_bytes,
            auth=self.auth,
            key=run_key or f"key{next(self._keys)}",
            scope=self.scope,
        )
        return await self.tool.run(typed, context)

    async def result(self, op: str, **config: Any) -> Any:
        outcome = await self(op, **config)
        assert outcome.error is None, outcome.error
        return outcome.result

    async def data(self, op: str, **config: Any) -> Any:
        return (await self.result(op, **config))["data"]

    async def failure(self, op: str, **config: Any) -> TaskError:
        outcome = await self(op, **config)
        assert outcome.error is not None, outcome.result
        return outcome.error


Open = Callable[..., Runner]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Makes runners, and closes their tools."""
    made: list[Runner] = []

    def runner(url: str, **settings: Any) -> Runner:
        made.append(Runner(url, **settings))
        return made[-1]

    yield runner
    for connection in made:
        await connection.tool.close()


@pytest.fixture
def run(nats_server: NatsServer, opened: Open) -> Runner:
    return opened(nats_server.url)


@pytest.fixture
async def other(nats_server: NatsServer) -> AsyncIterator[Client]:
    """Somebody else on the same server."""
    # Without a buffer what it says comes in order; with one, the client's pings overtake its subscriptions.
    client = await nats.connect(nats_server.url, pending_size=1)
    yield client
    await client.close()


@pytest.fixture
def js(other: Client) -> JetStreamContext:
    return other.jetstream()


_NAMES = count(1)


@pytest.fixture
def name() -> str:
    """A name that no other test uses on the shared server."""
    return f"t{next(_NAMES)}"


@pytest.fixture
async def stream(js: JetStreamContext, name: str) -> str:
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    return name


Answering = Callable[[Any], Awaitable[None]]
