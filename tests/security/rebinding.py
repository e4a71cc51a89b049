"""Asks every sender of a server for an address whose name is an attacker's: `python -m tests.security.rebinding PORT` prints what
each of them got. It parts from the machine first; `test_rebinding` starts it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import requests

from arclog.model.config.settings import Settings
from arclog.server.auth.tokens import fetch
from arclog.server.observability.tracing import Tracing
from arclog.wiring.senders.lineage import LineagePoster
from arclog.wiring.senders.webhooks import WebhookSender
from tests.security.names import ask_here
from tests.security.site import ALLOWED
from tests.security.target import part_from_the_machine

ROUNDS = 6


def settings_of(url: str) -> Settings:
    only = f"{ALLOWED}/32"
    return Settings(
        {
            "network.allow_networks": only,
            "webhooks.allow_networks": only,
            "lineage.allow_networks": only,
            "lineage.url": url,
            "telemetry.otlp_endpoint": url,
        }
    )


async def webhook(url: str) -> str:
    sender = WebhookSender(settings_of(url))
    try:
        return await sender.send(url, b"{}", {"x-arclog-delivery": "1"})
    finally:
        await sender.close()


async def lineage(url: str) -> str:
    poster = LineagePoster(settings_of(url))
    try:
        return (await poster.post(b"{}"))[0]
    finally:
        await poster.close()


async def keys(url: str) -> str:
    try:
        return str(await fetch(settings_of(url), url, timeout_s=5))
    except (OSError, ValueError) as problem:
        return str(problem)


_sessions: list[requests.Session] = []


class _KnownSession(requests.Session):
    def __init__(self) -> None:
        super().__init__()
        _sessions.append(self)


async def traces(url: str) -> str:
    requests.Session = _KnownSession  # type: ignore[misc]  # the one that the exporter is given
    engine = SimpleNamespace(settings=settings_of(url), hints=SimpleNamespace(on_committed=[]))
    tracing = Tracing(engine)  # type: ignore[arg-type]  # what it needs of one
    try:
        # The exporter would try again and again; its session has the way out.
        answer = await asyncio.to_thread(_sessions[-1].post, url, data=b"{}", timeout=5)
        return f"the answer was {answer.status_code}"
    except OSError as problem:
        return type(problem).__name__
    finally:
        await tracing.close(1.0)


SENDERS: dict[str, Callable[[str], Awaitable[str]]] = {
    "webhooks": webhook,
    "lineage": lineage,
    "keys of a token issuer": keys,
    "traces": traces,
}


async def main(port: int) -> None:
    got: dict[str, dict[str, list[str]]] = {}
    for name in ("rebind.test", "both.test", "forbidden.test", "mapped.test"):
        for sender, send in SENDERS.items():
            answers = [await send(f"http://{name}:{port}/") for _ in range(ROUNDS)]
            got.setdefault(name, {})[sender] = answers
    print(json.dumps(got))


if __name__ == "__main__":
    part_from_the_machine()
    ask_here(sys.argv[2])
    asyncio.run(main(int(sys.argv[1])))
