"""Events published from the log: all of them, in order per run, by reference only, whatever fails in between."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import nats
import pytest
from nats.js.api import ConsumerConfig

from arclog.engine.duties.publishing import DUTY, Publisher
from arclog.engine.runs.ingest import EngineIngest
from arclog.model.config.settings import Settings
from arclog.model.errors import BusUnavailable
from arclog.model.ids import MICROS
from arclog.model.principal import Principal
from arclog.ports.boundary import Boundary
from arclog.ports.bus import Message
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import Embedded, embedded
from tests.servers.nats import NatsServer, running_nats

CANARY = "c4nary"
PLAYBOOK = f"""
metadata: {{name: published, path: flows/published}}
workload: {{said: {CANARY}-default}}
workflow:
  - step: start
    args: {{said: {CANARY}-args}}
    loop: {{in: [{CANARY}-1, {CANARY}-2], iterator: item}}
    tool:
      - name: work
        kind: noop
        data: "{CANARY}-{{{{ iter.item }}}}"
        spec: {{policy: {{rules: [{{else: {{then: {{do: continue, set_ctx: {{said: {CANARY}-ctx}}}}}}}}]}}}}
    next: {{arcs: [{{step: end, args: {{said: {CANARY}-arc}}}}]}}
  - step: end
    tool: {{kind: noop, data: {CANARY}-result}}
"""


@asynccontextmanager
async def opened(home: Path, url: str = "", settings: dict[str, Any] | None = None) -> AsyncIterator[Embedded]:
    own = uuid.uuid4().hex[:12]
    names = {"bus.prefix": own, "bus.events_subject": f"{own}.events"} if url else {}
    values = {"home": str(home), "bus.url": url, "bus.max_retry_s": 0.1, **names, **(settings or {})}
    async with embedded(Settings(values)) as runtime:
        yield runtime


async def ran(embedded_runtime: Embedded, count: int, playbook: str = PLAYBOOK) -> list[int]:
    """Runs, side by side, to the end of their logs."""
    request = ExecuteRequest(playbook, workload={"mine": f"{CANARY}-mine"})
    started = [await embedded_runtime.api.execute(request) for _ in range(count)]
    for started_run in started:
        head = 0
        async with asyncio.timeout(60):
            while not await embedded_runtime.api.events(
                started_run.execution_id, limit=1, types=("playbook.processed",)
            ):
                head = await embedded_runtime.api.wait(started_run.execution_id, after=head, timeout_s=1.0)
    return [int(run.execution_id) for run in started]


async def logged(embedded_runtime: Embedded) -> dict[int, list[int]]:
    """Every seq of every run, as the log has them."""
    seqs: dict[int, list[int]] = defaultdict(list)
    after = 0
    while page := await embedded_runtime.engine.store.tail(after=after, limit=1000):
        for row in page:
            seqs[row.execution_id] += [event.seq for event in row.events]
        after = page[-1].position
    return dict(seqs)


class Recorder:
    """A topic that keeps what it is given, and may do otherwise before that."""

    def __init__(self, before: Callable[[Message], Any] | None = None) -> None:
        self.kept: list[Message] = []
        self._before = before

    async def publish(self, message: Message) -> None:
        await asyncio.sleep(0)
        if self._before is not None:
            waits = self._before(message)
            if waits is not None:
                await waits
        self.kept.append(message)

    def first_seen(self) -> dict[int, list[int]]:
        """Of each run, its seqs in the order in which each was kept for the first time."""
        seqs: dict[int, list[int]] = defaultdict(list)
        for message in self.kept:
            seq = int(message.headers["seq"])
            if seq not in seqs[int(message.headers["execution_id"])]:
                seqs[int(message.headers["execution_id"])].append(seq)
        return dict(seqs)


async def test_everything_is_published_in_order_and_noted(tmp_path: Path) -> None:
    async with opened(tmp_path) as runtime:
        await runtime.start_worker()
        await ran(runtime, 5)
        topic = Recorder()
        await Publisher(runtime.engine, topic, "a").settle(60)
        assert topic.first_seen() == await logged(runtime)
        assert len(topic.kept) == sum(map(len, (await logged(runtime)).values()))
        store = runtime.engine.store
        assert await store.position(DUTY) == (await store.tail(limit=10_000))[-1].position
        # Given up at the end, and nothing is left for whoever comes next.
        later = Recorder()
        await Publisher(runtime.engine, later, "b").settle(60)
        assert later.kept == []


async def test_what_was_imported_is_not_published_a_second_time(tmp_path: Path) -> None:
    """Whoever listens would take what happened elsewhere, long ago or never, for something that happens now."""
    async with opened(tmp_path / "here") as runtime, opened(tmp_path / "there") as other_runtime:
        await runtime.start_worker()
        (number,) = await ran(runtime, 1)
        body = b"".join([chunk async for chunk in runtime.api.export(str(number))])
        await other_runtime.api.import_run(BytesIO(body))
        topic = Recorder()
        await Publisher(other_runtime.engine, topic, "a").settle(60)
        assert topic.kept == []
        store = other_runtime.engine.store
        assert await store.position(DUTY) == (await store.tail(limit=10_000))[-1].position


async def test_what_a_producer_says_is_on_subjects_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as runtime:
        await runtime.start_worker()
        (number,) = await ran(runtime, 1)
        ingest = EngineIngest(runtime.engine)
        etl = Boundary.of(Principal("etl", "default", frozenset({"producer"})), runtime.engine.settings)
        meta = {"note": CANARY, "producer": "somebody else"}
        for name in ("playbook_completed", "execution_cancelled", "playbook.paused"):
            await ingest.event({"execution_id": number, "event_type": name, "meta": meta}, etl)
        topic = Recorder()
        await Publisher(runtime.engine, topic, "a").settle(60)
    bodies = [(message.subject, json.loads(message.body)) for message in topic.kept]
    produced = [(subject, body) for subject, body in bodies if body["source"] == "producer"]
    assert [(subject, body["meta"]) for subject, body in produced] == [
        ("noetl.events.producer.playbook.finished", {"legacy_type": "playbook_completed", "producer": "etl"}),
        ("noetl.events.producer.execution.cancelled", {"legacy_type": "execution_cancelled", "producer": "etl"}),
        ("noetl.events.producer.playbook.paused", {"producer": "etl"}),
    ]
    assert [subject for subject, _ in bodies].count("noetl.events.playbook.finished") == 1


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_fails_nothing_is_left_out_and_the_order_is_kept(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)

    def before(_: Message) -> None:
        drawn = chance.random()
        if drawn < 0.15:
            raise BusUnavailable("as drawn")
        if drawn < 0.25:
            # Kept, but nobody hears of it.
            topic.kept.append(_)
            raise BusUnavailable("no acknowledgement came")

    async with opened(tmp_path, settings={"bus.publish_rows": chance.choice((1, 3, 50))}) as runtime:
        await runtime.start_worker()
        await ran(runtime, 4)
        topic = Recorder(before)
        publishers = [Publisher(runtime.engine, topic, "a")]
        for _ in range(1000):
            if chance.random() < 0.1:
                # The process dies without a word; its lease is over at once, for the test.
                now = await runtime.engine.store.time()
                await runtime.engine.store.lease_duty(DUTY, "a", now, now)
                publishers.append(Publisher(runtime.engine, topic, "a"))
            try:
                await publishers[-1].publish()
                break
            except BusUnavailable:
                continue
        assert topic.first_seen() == await logged(runtime)


async def test_one_server_publishes_and_one_that_was_stopped_past_its_lease_moves_nothing(tmp_path: Path) -> None:
    stopped, woken = asyncio.Event(), asyncio.Event()

    def stop(message: Message) -> Any:
        if message.message_id == third:
            stopped.set()
            return woken.wait()
        return None

    async with opened(tmp_path, settings={"bus.publish_lease_s": 60}) as runtime:
        await runtime.start_worker()
        (number,) = await ran(runtime, 1)
        third = f"{number}-3"
        store = runtime.engine.store
        paused, other = Recorder(stop), Recorder()
        first, second = Publisher(runtime.engine, paused, "first"), Publisher(runtime.engine, other, "second")
        publishing = asyncio.ensure_future(first.publish())
        await stopped.wait()
        await second.publish()
        assert (first.on_duty, second.on_duty, other.kept) == (True, False, [])
        # Its lease ends meanwhile, as it would after a minute.
        await store.lease_duty(DUTY, "first", await store.time(), await store.time())
        await second.publish()
        assert other.first_seen() == await logged(runtime)
        noted = await store.position(DUTY)
        assert noted > 0
        woken.set()
        await publishing
        assert not first.on_duty
        assert await store.position(DUTY) == noted


async def test_a_lease_that_was_lost_is_noticed_before_the_next_page(tmp_path: Path) -> None:
    async with opened(tmp_path, settings={"bus.publish_rows": 1, "bus.publish_lease_s": 60}) as runtime:
        await runtime.start_worker()
        await ran(runtime, 1)
        store, topic = runtime.engine.store, Recorder()
        publisher = Publisher(runtime.engine, topic, "slow")
        await publisher.publish()
        count = len(topic.kept)
        now = await store.time()
        await store.lease_duty(DUTY, "slow", now, now)
        assert await store.lease_duty(DUTY, "fast", now, now + 600 * MICROS)
        await ran(runtime, 1)
        publisher._leased_at -= 30  # it slept
        await publisher.publish()
        assert (publisher.on_duty, len(topic.kept)) == (False, count)


# -- a real NATS -----------------------------------------------------------------------------------------------------------


async def read(
    url: str, settings: Settings, count: int = 0, wanted: Mapping[int, list[int]] | None = None
) -> list[Any]:
    """The stream's first messages: this many, and until these events of runs are among them."""
    runs = wanted or {}
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        name = f"{settings.text('bus.prefix')}-events"
        messages: list[Any] = []
        async with asyncio.timeout(60):
            subscription = None
            while subscription is None:
                try:
                    subscription = await stream.pull_subscribe("", stream=name, config=ConsumerConfig())
                except nats.js.errors.NotFoundError:  # the server is not there yet, after a wipe
                    await asyncio.sleep(0.01)
            while len(messages) < count or any(
                not set(by_run(messages).get(number, ())).issuperset(seqs) for number, seqs in runs.items()
            ):
                try:
                    messages += await subscription.fetch(100, timeout=0.2)
                except nats.errors.TimeoutError:
                    continue
        return messages
    finally:
        await client.close()


def by_run(messages: Sequence[Any]) -> dict[int, list[int]]:
    seqs: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        seqs[int(message.headers["execution_id"])].append(int(message.headers["seq"]))
    return dict(seqs)


async def test_events_of_runs_are_in_the_stream(tmp_path: Path, nats_server: NatsServer) -> None:
    async with opened(tmp_path, nats_server.url) as runtime:
        await runtime.start_worker()
        runs = await ran(runtime, 3)
        log = {number: await runtime.api.events(str(number), limit=1000) for number in runs}
        settings = runtime.engine.settings
        messages = await read(nats_server.url, settings, sum(map(len, log.values())))
    subject = settings.text("bus.events_subject")
    for number, events in log.items():
        own = [message for message in messages if message.headers["execution_id"] == str(number)]
        bodies = [json.loads(own_message.data) for own_message in own]
        assert [own_message.subject for own_message in own] == [f"{subject}.{event['event_type']}" for event in events]
        assert [own_message.headers["Nats-Msg-Id"] for own_message in own] == [
            f"{number}-{event['seq']}" for event in events
        ]
        for body, event in zip(bodies, events, strict=True):
            assert {**body, "payload": None} == {**event, "payload": None}
            assert set(body["payload"]) <= set(event["payload"])
    text = b"\n".join(message.data for message in messages).decode()
    assert CANARY not in text
    assert '"path":"flows/published"' in text
    assert '"selected":[{"step":"end"' in text


async def test_nats_wiped_in_the_middle_gets_everything_from_there_on(tmp_path: Path) -> None:
    with running_nats() as server:
        async with opened(tmp_path, server.url) as runtime:
            await runtime.start_worker()
            (first,) = await ran(runtime, 1)
            settings = runtime.engine.settings
            await read(server.url, settings, len(await runtime.api.events(str(first), limit=1000)))
            server.wipe()
            (second,) = await ran(runtime, 1)
            server.start()
            (third,) = await ran(runtime, 1)
            wanted = {number: (await logged(runtime))[number] for number in (second, third)}
            # Events of the first run come again if NATS was wiped before their position was noted.
            published = by_run(await read(server.url, settings, wanted=wanted))
            assert {number: sorted(set(published[number])) for number in wanted} == wanted
            assert {number: list(dict.fromkeys(published[number])) for number in wanted} == wanted


async def test_the_stream_takes_an_event_once(tmp_path: Path, nats_server: NatsServer) -> None:
    async with opened(tmp_path, nats_server.url) as runtime:
        await runtime.start_worker()
        await ran(runtime, 1)
        log = await logged(runtime)
        settings = runtime.engine.settings
        await read(nats_server.url, settings, sum(map(len, log.values())))
        assert runtime.relay is not None
        assert runtime.relay.bus.topic is not None
        # The same rows again, as after a crash before the position was noted.
        again = Publisher(runtime.engine, runtime.relay.bus.topic, "again")
        assert await again.send(await runtime.engine.store.tail(limit=1000)) > 0
        (marker,) = await ran(runtime, 1)
        events = await runtime.api.events(str(marker), limit=1000)
        messages = await read(nats_server.url, settings, sum(map(len, log.values())) + len(events))
        assert by_run(messages) == {**log, marker: [event["seq"] for event in events]}
