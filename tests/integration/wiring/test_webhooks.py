"""Webhooks from a run's end to a real receiver: signed, repeated until they are taken, given up loudly."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.client.webhooks import Seen, verify
from arclog.core.boundary.inputs import ParentNotified
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.duties.webhooks import Outbox
from arclog.engine.runs.children import Children
from arclog.engine.views.api import EngineApi
from arclog.model.config.settings import Settings
from arclog.ports.storage.outbox import DEAD, DELIVERED, PENDING, Delivery
from arclog.ports.views.api import ExecuteRequest
from arclog.results.memory import MemoryResults
from arclog.secrets.keychain import LocalSecrets
from arclog.secrets.store import HomeVault, LocalStore
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from arclog.tools import noop
from arclog.wiring.embedded import embedded
from arclog.wiring.senders.webhooks import WebhookSender
from tests.servers.mail import Mail
from tests.servers.web import Web

SECRET = "signs it all"


def playbook(*hooks: str, more: str = "") -> str:
    return f"""
metadata: {{name: told, path: flows/told}}
keychain: [{{name: hook_key, kind: env, var: HOOK_KEY}}]
executor: {{spec: {{webhooks: [{", ".join(hooks)}]{more}}}}}
workflow: [{{step: start, tool: {{kind: noop}}}}]
"""


def hook(url: str, on: str = "") -> str:
    return f"{{url: '{url}', secret: hook_key{f', on: [{on}]' if on else ''}}}"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_KEY", SECRET)


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        yield web


class Server:
    """Engine and outbox; what comes through the store survives it."""

    def __init__(self, store: MemoryStore, clock: FakeClock, home: Path, **settings: Any) -> None:
        values = {"webhooks.allow_networks": "loopback", "webhooks.timeout_s": 5.0, **settings}
        self.settings = Settings(values)
        self.store, self.clock = store, clock
        kept = LocalStore(home, self.settings)
        secrets = LocalSecrets((HomeVault(kept),), kept.seal, self.settings, clock)
        self.engine = Engine(store, clock, self.settings, Minter(clock, 1), secrets)
        self.children = Children(self.engine)
        self.api = EngineApi(self.engine, {"noop": noop.KIND.spec}, MemoryResults())
        self.sender = WebhookSender(self.settings)
        self.outbox = Outbox(self.engine, self.children, secrets, self.sender.send)

    async def ended(self, text: str) -> str:
        """A run that was started and cancelled."""
        started = await self.api.execute(ExecuteRequest(text))
        await self.api.cancel(started.execution_id, "enough")
        return started.execution_id

    async def deliveries(self, execution_id: str) -> list[Delivery]:
        return list(await self.store.deliveries(int(execution_id)))

    async def last(self, execution_id: str) -> str:
        events = await self.api.events(execution_id)
        return str(events[-1]["event_type"])

    async def processed(self, execution_id: str) -> None:
        """Return once all was taken care of."""
        with self.engine.hints.on_append(int(execution_id)) as news:
            while await self.last(execution_id) != "playbook.processed":
                assert await news.heard(30)

    async def close(self) -> None:
        await self.engine.close()
        await self.children.close()
        await self.sender.close()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., Server]]:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    await store.open()
    made: list[Server] = []

    def one(**settings: Any) -> Server:
        made.append(Server(store, clock, tmp_path, **settings))
        return made[-1]

    yield one
    for server in made:
        await server.close()
    await store.close()


async def test_a_webhook_is_signed_and_says_how_the_run_ended(make: Callable[..., Server], web: Web) -> None:
    web.answers("/hook")
    server = make()
    run = await server.ended(playbook(hook(web.url("/hook"))))
    assert await server.last(run) == "execution.cancelled"  # not processed: somebody is still to be told
    await server.outbox.deliver()
    (request,) = web.requests
    verified = verify(SECRET, request.headers, request.body, seen=Seen(), now=server.clock.now() / 1e6)
    assert (verified["event"], verified["state"], verified["execution_id"]) == ("execution.cancelled", "CANCELLED", run)
    assert (verified["path"], verified["version"], verified["delivery"]) == ("flows/told", "1", f"{run}-1")
    assert verified["error"]["message"] == "enough"
    assert request.headers["arclog-event"] == "execution.cancelled"
    assert [delivery.state for delivery in await server.deliveries(run)] == [DELIVERED]
    assert await server.last(run) == "playbook.processed"
    await server.outbox.deliver()
    assert len(web.requests) == 1
    events = [event["event_type"] for event in await server.api.events(run)]
    assert events.count("playbook.processed") == 1


async def test_only_the_ends_that_were_asked_for(make: Callable[..., Server], web: Web) -> None:
    web.answers("/hook")
    server = make()
    none = await server.ended(playbook(hook(web.url("/hook"), "completed, failed")))
    assert await server.last(none) == "playbook.processed"
    assert await server.deliveries(none) == []
    run = await server.ended(playbook(hook(web.url("/hook"), "failed"), hook(web.url("/hook"), "cancelled")))
    assert len(await server.deliveries(run)) == 1


async def test_a_receiver_that_is_down_then_500_then_fine(make: Callable[..., Server], web: Web) -> None:
    with Web() as gone:
        address = gone.url("/hook")
    server = make(**{"webhooks.first_retry_s": 5.0})
    run = await server.ended(playbook(hook(address)))
    await server.outbox.deliver()
    (first,) = await server.deliveries(run)
    assert (first.state, first.attempts) == (PENDING, 1)
    assert "ConnectError" in first.problem
    with Web(port=gone.port) as back:
        back.answers("/hook", status=500)
        server.clock.advance(4.9)
        await server.outbox.deliver()
        assert back.requests == []  # never early
        server.clock.advance(0.1)
        await server.outbox.deliver()
        (second,) = await server.deliveries(run)
        assert (second.attempts, second.problem) == (2, "the answer was 500")
        assert second.due - server.clock.now() == 10_000_000  # twice the first pause
        back.answers("/hook", status=204)
        server.clock.advance(10)
        await server.outbox.deliver()
        assert [delivery.state for delivery in await server.deliveries(run)] == [DELIVERED]
        bodies = {request.body for request in back.requests}
        stamps = [request.headers["arclog-timestamp"] for request in back.requests]
        assert (len(bodies), len(set(stamps))) == (1, 2)  # the same news, signed anew
        assert len({request.headers["arclog-delivery"] for request in back.requests}) == 1


async def test_a_slow_receiver_is_not_waited_for_and_holds_up_nobody(make: Callable[..., Server], web: Web) -> None:
    web.stalls("/slow")
    web.answers("/quick")
    server = make(**{"webhooks.timeout_s": 3.0})  # the quick one answers within it on a machine under load, too
    run = await server.ended(playbook(hook(web.url("/slow")), hook(web.url("/quick"))))
    await server.outbox.deliver()
    slow, quick = await server.deliveries(run)
    assert (slow.state, quick.state) == (PENDING, DELIVERED)
    assert "webhooks.timeout_s" in slow.problem
    assert await server.last(run) == "execution.cancelled"


async def test_one_receiver_that_stands_still_holds_up_no_other(make: Callable[..., Server], web: Web) -> None:
    """Far more than fit at a time, the slow ones first: all others are told while it still has its two in hand."""
    web.stalls("/slow")
    with Web() as other:
        other.answers("/quick")
        settings = {"webhooks.max_concurrent": 4, "webhooks.max_per_receiver": 2, "webhooks.timeout_s": 60.0}
        server = make(**settings)
        slow = [await server.ended(playbook(hook(web.url("/slow")))) for _ in range(10)]
        quick = [await server.ended(playbook(hook(other.url("/quick")))) for _ in range(20)]
        sending = asyncio.ensure_future(server.outbox.run())
        for run in quick:
            await server.processed(run)
        assert (len(web.requests), len(other.requests)) == (2, 20)
        late = await server.ended(playbook(hook(other.url("/quick"))))
        await server.processed(late)
        assert {(await server.deliveries(run))[0].state for run in slow} == {PENDING}
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert len(web.requests) == 2, "no more than its share"


async def test_a_redirect_is_refused(make: Callable[..., Server], web: Web) -> None:
    web.answers("/hook", status=302, headers={"Location": web.url("/other")})
    web.answers("/other")
    server = make()
    run = await server.ended(playbook(hook(web.url("/hook"))))
    await server.outbox.deliver()
    (only,) = await server.deliveries(run)
    assert (only.state, [request.path for request in web.requests]) == (PENDING, ["/hook"])
    assert "no redirects" in only.problem


@pytest.mark.parametrize(
    "url",
    ["http://169.254.169.254/latest", "http://[::ffff:127.0.0.1]:{port}/", "http://127.1:{port}/", "http://10.0.0.1/"],
)
async def test_what_a_server_must_not_reach_is_refused(make: Callable[..., Server], web: Web, url: str) -> None:
    server = make(**{"webhooks.allow_networks": "none"})
    run = await server.ended(playbook(hook(url.format(port=web.port))))
    await server.outbox.deliver()
    (only,) = await server.deliveries(run)
    assert web.requests == []
    assert "webhooks.allow_networks" in only.problem


async def test_given_up_loudly_and_then_the_run_is_taken_care_of(
    make: Callable[..., Server], web: Web, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("WARNING", "arclog")
    monkeypatch.setattr(logging.getLogger("arclog"), "propagate", True)  # a command may have been run here
    web.answers("/hook", status=410)
    server = make(**{"webhooks.max_attempts": 3, "webhooks.max_retry_s": 6.0})
    run = await server.ended(playbook(hook(web.url("/hook"))))
    for _ in range(5):
        await server.outbox.deliver()
        server.clock.advance(6)
    (only,) = await server.deliveries(run)
    assert (only.state, only.attempts, len(web.requests)) == (DEAD, 3, 3)
    assert "abandoned after 3 attempts (webhooks.max_attempts)" in caplog.text
    assert await server.last(run) == "playbook.processed"


async def test_a_crash_after_it_was_taken_sends_it_again(
    make: Callable[..., Server], web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.answers("/hook")
    server = make()
    run = await server.ended(playbook(hook(web.url("/hook"))))

    async def crash(_: Delivery) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(server.store, "attempted", crash)
        with pytest.raises(asyncio.CancelledError):
            await server.outbox.deliver()
    after = make()
    await after.outbox.deliver()
    assert len(web.requests) == 1  # somebody may still have it in hand
    after.clock.advance(60)
    await after.outbox.deliver()
    assert len(web.requests) == 2
    assert web.requests[0].headers["arclog-delivery"] == web.requests[1].headers["arclog-delivery"]
    assert await after.last(run) == "playbook.processed"


async def test_a_crash_before_the_log_says_so_is_made_good(
    make: Callable[..., Server], web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.answers("/hook")
    server = make()
    run = await server.ended(playbook(hook(web.url("/hook"))))

    async def crash(*_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(server.engine, "put", crash)
        with pytest.raises(asyncio.CancelledError):
            await server.outbox.deliver()
    assert await server.last(run) == "execution.cancelled"
    after = make()
    await after.outbox.deliver()
    await after.outbox.deliver()
    assert await after.last(run) == "playbook.processed"
    assert (await after.engine.put(int(run), ParentNotified())).refused is not None


async def test_a_secret_that_is_gone_is_looked_for_again(
    make: Callable[..., Server], web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.answers("/hook")
    server = make()
    run = await server.ended(playbook(hook(web.url("/hook"))))
    monkeypatch.delenv("HOOK_KEY")
    await server.outbox.deliver()
    (only,) = await server.deliveries(run)
    assert (only.state, web.requests) == (PENDING, [])
    assert "HOOK_KEY" in only.problem
    monkeypatch.setenv("HOOK_KEY", SECRET)
    server.clock.advance(60)
    await server.outbox.deliver()
    assert await server.last(run) == "playbook.processed"


CHILD = """
metadata: {{name: parent}}
workflow: [{{step: start, tool: {{kind: playbook, path: flows/told}}}}]
"""


async def test_runs_and_their_children_in_one_process(web: Web, tmp_path: Path) -> None:
    web.answers("/hook")
    settings = Settings({"home": str(tmp_path)})
    async with embedded(settings) as runtime:
        await runtime.start_worker()
        alone = await runtime.api.execute(ExecuteRequest(playbook(hook(web.url("/hook")))))
        assert await runtime.api.ended(alone.execution_id, timeout_s=30)
        parent = await runtime.api.execute(ExecuteRequest(CHILD.format()))
        assert await runtime.api.ended(parent.execution_id, timeout_s=30)
    # Leaving finishes what is under way.
    async with embedded(settings, read_only=True) as runtime:
        runs = await runtime.api.list()
        assert len(runs) == 3
        for run in runs:
            events = [event["event_type"] for event in await runtime.api.events(run.execution_id)]
            assert events[-1] == "playbook.processed"
            assert events.count("playbook.processed") == 1
    seen = Seen()
    deliveries = [verify(SECRET, request.headers, request.body, seen=seen) for request in web.requests]
    assert {run["execution_id"] for run in deliveries} == {run.execution_id for run in runs if run.name == "told"}
    assert {delivery["event"] for delivery in deliveries} == {"playbook.completed"}


# -- notifications ----------------------------------------------------------------------------------------------------


def notified(spec: str, task: str = "{kind: assert, that: 'false', message: 'no rows'}") -> str:
    return f"""
metadata: {{name: told, path: flows/told}}
keychain: [{{name: hook_key, kind: env, var: HOOK_KEY}}]
executor: {{spec: {{{spec}}}}}
workflow: [{{step: start, tool: {task}}}]
"""


async def run_to_its_end(tmp_path: Path, text: str, **settings: Any) -> None:
    """A run with its worker in this process; notifications are sent before it leaves."""
    values = {"home": str(tmp_path / "home"), "webhooks.allow_networks": "loopback", **settings}
    async with embedded(Settings(values)) as runtime:
        await runtime.start_worker()
        started = await runtime.api.execute(ExecuteRequest(text))
        assert await runtime.api.ended(started.execution_id, timeout_s=30)


async def test_a_failed_run_tells_those_who_asked_for_failures(tmp_path: Path, web: Web) -> None:
    web.answers("/plain")
    web.answers("/signed")
    web.answers("/never")
    spec = (
        f"on_failure: [{{webhook: '{web.url('/plain')}'}}, {{webhook: '{web.url('/signed')}', secret: hook_key}}], "
        f"on_success: [{{webhook: '{web.url('/never')}'}}]"
    )
    await run_to_its_end(tmp_path, notified(spec))
    by_path = {request.path: request for request in web.requests}
    assert sorted(by_path) == ["/plain", "/signed"]
    assert "arclog-signature" not in by_path["/plain"].headers
    assert json.loads(by_path["/plain"].body)["error"]["message"] == "no rows"
    signed = by_path["/signed"]
    assert verify(SECRET, signed.headers, signed.body, seen=Seen())["state"] == "FAILED"


async def test_an_e_mail_says_what_happened(tmp_path: Path) -> None:
    with Mail() as mail:
        mail.refusals = 1
        settings = {
            "smtp.host": "127.0.0.1",
            "smtp.port": mail.port,
            "smtp.security": "none",
            "smtp.sender": "arclog@example.org",
            "webhooks.first_retry_s": 0.0,
        }
        spec = "on_failure: [{email: [ops@example.org, ada@example.org]}], on_success: [{email: x@example.org}]"
        await run_to_its_end(tmp_path, notified(spec), **settings)
    (message,) = mail.messages
    assert mail.recipients[-1] == ["ops@example.org", "ada@example.org"]
    assert (message["subject"], message["from"]) == ("told: failed", "arclog@example.org")
    text = message.get_content()
    assert "playbook: flows/told" in text
    assert "error in step start: exception: no rows" in text


async def test_without_a_mail_server_an_e_mail_is_a_delivery_that_failed(make: Callable[..., Server]) -> None:
    server = make()
    run = await server.ended(notified("on_failure: [{email: a@b.org}]", "{kind: noop}"))
    assert await server.deliveries(run) == []  # cancelled is not a failure
    assert await server.sender.send("mailto:a@b.org", b"{}", {"arclog-delivery": "1-1"}) == (
        "no mail server is set (smtp.host)"
    )
