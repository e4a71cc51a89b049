"""A server that fires schedules and delivers webhooks is killed with -9 at random moments and started again: every time of
every schedule runs exactly once, every ended run is told of at least once and rightly signed, and nothing is left over.

CHAOS_SEED and CHAOS_SERVER_KILLS choose other moments and more of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from arclog.client import Client
from arclog.client.webhooks import Seen, verify
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError
from arclog.ports.storage.outbox import DELIVERED
from arclog.ports.storage.schedules import NewSchedule, ScheduleView
from arclog.ports.views.api import RegisterRequest
from arclog.wiring.embedded import Embedded, embedded
from tests.servers.ports import free_port
from tests.servers.web import ReceivedRequest, Web, Wire

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("CHAOS_SEED", "20261116"))
KILLS = int(os.environ.get("CHAOS_SERVER_KILLS", "4"))
DEADLINE_S = 90.0
SECRET = "signs what is told"
#: one in so many requests is refused, to be tried again
REFUSED = 7
PLAYBOOK = """
metadata: {{name: told, path: chaos/told}}
keychain: [{{name: hook_key, kind: env, var: HOOK_KEY}}]
executor: {{spec: {{webhooks: [{{url: '{url}', secret: hook_key}}]}}}}
workload: {{schedule: {{name: '', due: ''}}}}
workflow:
  - step: start
    tool: {{kind: noop, data: "{{{{ workload.schedule.due }}}}"}}
"""


class Site:
    """A home, the server on it (now and then), and the receiver of its webhooks."""

    def __init__(self, folder: Path, web: Web) -> None:
        self.home = folder / "home"
        self.output = folder / "output"
        self.web = web
        self.port = free_port()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
        self.environment = {
            **clean,
            "HOOK_KEY": SECRET,
            "ARCLOG_HOME": str(self.home),
            "ARCLOG_SERVER_PORT": str(self.port),
            "ARCLOG_ENGINE_SWEEP_S": "0.1",
            "ARCLOG_LEASES_MAX_LOSSES": "1000",
            "ARCLOG_SCHEDULES_LEASE_S": "1",
            # A loaded machine must not make a time too late: whatever went by is made up for.
            "ARCLOG_SCHEDULES_MAX_CATCH_UP": "1000",
            "ARCLOG_WEBHOOKS_TIMEOUT_S": "1",
            "ARCLOG_WEBHOOKS_FIRST_RETRY_S": "0.1",
            "ARCLOG_WEBHOOKS_MAX_RETRY_S": "0.5",
            "ARCLOG_WEBHOOKS_MAX_ATTEMPTS": "1000",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "arclog.cli.main", "up"]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=output, stderr=output, start_new_session=True
            )

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def until(self, happened: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not happened():
            assert self.process is None or self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < end, self.output.read_text()[-20_000:]
            time.sleep(0.05)

    def listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.port}")

    def ask(self, question: Callable[[Embedded], Any]) -> Any:
        async def go() -> Any:
            async with embedded(Settings({"home": str(self.home)}), read_only=True) as runtime:
                return await question(runtime)

        return asyncio.run(go())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Web() as web:
        site = Site(tmp_path, web)
        try:
            yield site
        finally:
            site.kill()


def test_killed_while_it_fires_and_delivers(site: Site) -> None:
    random = Random(SEED)
    print(f"CHAOS_SEED={SEED} CHAOS_SERVER_KILLS={KILLS}")
    count = 0

    @site.web.route("/hook")
    async def hook(_: ReceivedRequest, wire: Wire) -> None:
        nonlocal count
        count += 1
        await wire.answer(503 if count % REFUSED == 0 else 204)

    site.start()
    site.until(site.listens)
    past = (datetime.now(UTC) - timedelta(days=3)).replace(minute=0, second=0, microsecond=0)
    with site.client() as client:
        client.register(RegisterRequest(PLAYBOOK.format(url=site.web.url("/hook"))))
        for name, cron in (
            ("every_second", "* * * * * *"),
            ("odd_seconds", "1/2 * * * * *"),
            ("backfilled", "0 * * * *"),
        ):
            client.schedules.add(NewSchedule(name, cron, "chaos/told", catch_up="all", overlap="queue"))
        backfilled = client.schedules.backfill("backfilled", _text(past), _text(past + timedelta(hours=30)))
    assert len(backfilled) == 31
    moments = []
    for _ in range(KILLS):
        moments.append(round(random.uniform(0.4, 2.5), 3))
        time.sleep(moments[-1])  # the moment of the kill is what is tried out here
        site.kill()
        site.start()
    print(f"killed after {moments}")
    site.until(site.listens)
    with site.client() as client:
        site.until(lambda: not _waits(client, "backfilled"))
        site.until(lambda: all(_fired_often(client, name) for name in ("every_second", "odd_seconds")))
        # What still waits of the others stays there: what ran has no gap all the same.
        views = [client.schedules.pause(name) for name in ("backfilled", "every_second", "odd_seconds")]
    site.until(lambda: site.ask(_all_told))
    _checked(site, views, backfilled)
    assert site.process is not None
    site.process.terminate()
    assert site.process.wait(DEADLINE_S) == 0


def _waits(client: Client, name: str) -> bool:
    try:
        return bool(client.schedules.show(name).queued)
    except ArclogError:
        return True


def _fired_often(client: Client, name: str) -> bool:
    """Whether its runs span some kills: on a busy machine, a server may be killed before it fires anything."""
    view = client.schedules.show(name)
    if view.last_due is None:
        return False
    span = datetime.fromisoformat(view.last_due) - datetime.fromisoformat(view.created_at)
    return span > timedelta(seconds=2 * KILLS)


async def _all_told(embedded_runtime: Embedded) -> bool:
    for run in await embedded_runtime.api.list(limit=10_000):
        events = await embedded_runtime.api.events(run.execution_id, limit=1000)
        if events[-1]["event_type"] != "playbook.processed":
            return False
    return True


def _checked(site: Site, views: list[ScheduleView], asked: list[str]) -> None:
    ran: Counter[tuple[str, str]] = Counter()
    runs: set[str] = set()

    async def look(embedded_runtime: Embedded) -> None:
        for run in await embedded_runtime.api.list(limit=10_000):
            runs.add(run.execution_id)
            events = await embedded_runtime.api.events(run.execution_id, limit=1000)
            types = Counter(event["event_type"] for event in events)
            assert run.state == "COMPLETED"
            assert (types["playbook.finished"], types["playbook.processed"]) == (1, 1)
            schedule = events[0]["payload"]["workload"]["schedule"]
            ran[schedule["name"], schedule["due"]] += 1
            (delivery,) = await embedded_runtime.engine.store.deliveries(int(run.execution_id))
            assert delivery.state == DELIVERED

    site.ask(look)
    assert set(ran.values()) == {1}, [time for time, count in ran.items() if count > 1]
    by_name = {view.name: sorted(due for name, due in ran if name == view.name) for view in views}
    assert [view.skipped for view in views] == [0, 0, 0], [view.note for view in views]
    assert set(asked) <= set(by_name["backfilled"])
    for name, step in (("every_second", 1), ("odd_seconds", 2)):
        times = [datetime.fromisoformat(due) for due in by_name[name]]
        assert len(times) > KILLS / 2
        gaps = {later - earlier for earlier, later in pairwise(times)}
        assert gaps == {timedelta(seconds=step)}, f"{name}: a time is missing"
    received: set[str] = set()
    for request in site.web.requests:
        verified = verify(SECRET, request.headers, request.body, seen=Seen())
        assert (verified["event"], verified["delivery"]) == ("playbook.completed", f"{verified['execution_id']}-1")
        received.add(verified["execution_id"])
    assert received == runs
    print(f"{len(runs)} runs, {len(site.web.requests)} webhooks")


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
