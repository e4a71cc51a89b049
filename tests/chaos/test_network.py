"""The network between any two of a cluster is cut, in each way that networks are: what is promised all the same."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.client import AsyncClient
from arclog.model.config.settings import Settings
from arclog.model.errors import ServerUnavailable
from cluster.checks import Verdict, keys_of
from cluster.local import Cluster, Process, Server
from cluster.storm import NETWORK_SETTINGS
from tests.servers.proxy import Mode
from tests.servers.replay import Replay

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 100.0
#: As they are told to the client: whoever takes longer hangs.
CLIENT = Settings({"client.timeout_s": 1.5, "client.patience_s": 20.0, "client.poll_s": 1.0})
#: Logs are kept as they are, so that what passes can be read on its way: this stands in what a task gave, and nowhere else.
SETTINGS = {**NETWORK_SETTINGS, "ARCLOG_STORE_COMPRESS_MIN_BYTES": str(1 << 20)}
RESULT = b'"stdout":'
#: a task, a timer, a loop, a task; each task writes its key before it ends
PLAYBOOK = """\
metadata: {name: cut}
workload: {ledger: /dev/null, pause: 0, rest: 0.1}
workflow:
  - step: first
    tool: &write
      kind: shell
      command: [sh, -c, 'echo "$1" >> "$2"; sleep "$3"; printf "%s" "$1"', sh, "{{ _task.key }}", "{{ workload.ledger }}", "{{ workload.pause | string }}"]
    next: {arcs: [{step: rest}]}
  - step: rest
    tool: {kind: wait, for_s: "{{ workload.rest }}"}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(2) }}", iterator: i}
    tool: *write
    next: {arcs: [{step: last}]}
  - step: last
    tool: *write
"""


class Site:
    """A cluster with a worker, another one that a test may start, and what runs on it."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, pools=(("default",),), settings=SETTINGS, proxied=True)
        try:
            self.cluster.start()
        except BaseException:
            self.cluster.close()
            raise
        self.spare: Process = self.cluster.worker("spare", ("default",))
        self._count = 0

    @property
    def servers(self) -> list[Server]:
        return self.cluster.servers

    def be(self, mode: Mode, *names: str) -> None:
        for name in names:
            self.cluster.network[name].be(mode)

    def whole(self) -> None:
        for proxy in self.cluster.network.values():
            proxy.be(Mode.PASS)
        self.spare.kill()
        self.until(lambda: all(server.is_ready() for server in self.servers), "all is well again")

    def ledger(self) -> Path:
        """A new one for a run, or for a few."""
        self._count += 1
        path = self.cluster.shared / f"ledger-{self._count}"
        path.touch()
        return path

    def until(self, happened: Any, what: str) -> None:
        self.cluster.wait_until(happened, what, PATIENCE_S)

    def ask(self, server: Server, path: str, body: Any = None) -> tuple[int, Any]:
        """At this server, past the network."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{server.url}{path}", data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def begin(self, server: Server, ledger: Path, **workload: Any) -> str:
        body = {"playbook": PLAYBOOK, "workload": {"ledger": str(ledger), **workload}}
        status, answer_body = self.ask(server, "/api/execute", body)
        assert status == 201, answer_body
        execution_id: str = answer_body["execution_id"]
        return execution_id

    def judged(self, server: Server, ledger: Path, run: str, tasks: int = 4) -> list[dict[str, Any]]:
        """Wait for the run's end; its log is the ledger."""
        self.until(lambda: self.ask(server, f"/api/executions/{run}/status")[1]["ended_at"], f"run {run} has ended")
        events = self.events(server, run)
        verdict = Verdict()
        verdict.look_at(run, events, keys_of(ledger))
        verdict.close(keys_of(ledger))
        assert not verdict.problems, "\n".join(verdict.problems) + self.cluster.last_words()
        assert verdict.tasks == tasks
        return events

    def events(self, server: Server, run: str) -> list[dict[str, Any]]:
        status, answer_body = self.ask(server, f"/api/executions/{run}/events?limit=1000")
        assert status == 200, answer_body
        events: list[dict[str, Any]] = answer_body["events"]
        return events

    def log_count(self, process: Process, words: str) -> int:
        return process.log.read_text(errors="replace").count(words)


@pytest.fixture(scope="module")
def one_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("network"))
    try:
        yield site
    finally:
        site.spare.kill()
        site.cluster.close()


@pytest.fixture
def site(one_site: Site) -> Iterator[Site]:
    yield one_site
    one_site.whole()


def test_a_commit_that_was_sent_and_whose_answer_was_cut_off_happened_once(site: Site) -> None:
    first, ledger = site.servers[0], site.ledger()
    ways = [site.cluster.network[f"{server.name} to postgres"] for server in site.servers]
    for way in ways:
        way.cut_at(RESULT, Mode.ONLY_THERE)
    run = site.begin(first, ledger)
    # That a server got no answer for so long that it asks what became of it is its own affair: it cannot, as yet.
    reported = (
        f"SELECT 1 FROM arclog.log WHERE execution_id = {run} AND position('{RESULT.decode()}'::bytea IN body) > 0"
    )
    site.until(lambda: site.cluster.database.rows(reported), "PostgreSQL has committed what the worker reported")
    assert Mode.ONLY_THERE in [way.mode for way in ways], "the answer was cut off"
    for way in ways:
        way.be(Mode.RESET)
        way.be(Mode.PASS)
    site.judged(first, ledger, run)


def test_a_worker_cut_off_past_its_lease_reports_late_and_is_refused(site: Site) -> None:
    first, ledger = site.servers[0], site.ledger()
    refusals = [site.log_count(server, "lease lost") for server in site.servers]
    run = site.begin(first, ledger, pause=0.3)
    site.until(lambda: keys_of(ledger), "the worker is at its first task")
    # What it did is sent, and stays on the way.
    site.be(Mode.BLACK_HOLE, "worker-1 to server-1", "worker-1 to server-2")
    site.spare.start()
    events = site.judged(first, ledger, run)
    assert "lease_lost" in [
        event["payload"].get("reason") for event in events if event["event_type"] == "command.issued"
    ]
    site.be(Mode.PASS, "worker-1 to server-1", "worker-1 to server-2")
    site.until(lambda: [site.log_count(server, "lease lost") for server in site.servers] != refusals, "it is refused")
    assert site.events(first, run) == events, "what it said late changed nothing"
    site.spare.kill()
    again = site.ledger()
    site.judged(first, again, site.begin(first, again))


def test_a_server_cut_off_from_postgresql_loses_its_duties_and_says_so(site: Site) -> None:
    def owner() -> Server:
        [(name,)] = site.cluster.database.rows("SELECT owner FROM arclog.duties WHERE duty = 'timers'")
        return next(server for server in site.servers if f"-{server.pid}-" in name)

    cut = owner()
    other = next(server for server in site.servers if server is not cut)
    site.be(Mode.BLACK_HOLE, f"{cut.name} to postgres")
    site.until(lambda: site.ask(cut, "/ready")[0] == 503, "it says that it is not ready")
    site.until(lambda: owner() is other, "the other one has the timers")
    ledger = site.ledger()
    # Nothing hangs, and the refusal is not a secret's end.
    status, answer_body = site.ask(cut, "/api/execute", {"playbook": PLAYBOOK, "workload": {"ledger": str(ledger)}})
    assert status == 503, answer_body
    assert "horse" not in json.dumps(answer_body)
    run = site.begin(other, ledger)
    site.judged(other, ledger, run)
    site.be(Mode.PASS, f"{cut.name} to postgres")
    site.until(cut.is_ready, "it is ready again")
    assert site.events(cut, run) == site.events(other, run)


@pytest.mark.parametrize("mode", [Mode.RESET, Mode.BLACK_HOLE], ids=lambda mode: mode.value)
def test_a_bus_that_is_cut_costs_time_alone(site: Site, mode: Mode) -> None:
    site.be(mode, "server-1 to nats", "server-2 to nats")
    for server in site.servers:
        ledger = site.ledger()
        site.judged(server, ledger, site.begin(server, ledger))


@pytest.mark.parametrize("mode", [Mode.BLACK_HOLE, Mode.ONLY_THERE, Mode.ONLY_BACK], ids=lambda mode: mode.value)
def test_a_client_that_is_cut_off_hears_so(site: Site, mode: Mode) -> None:
    site.be(mode, "client to server-1", "client to server-2")

    async def ask() -> None:
        async with AsyncClient(site.cluster.url, settings=CLIENT.replaced(client__patience_s=0.0)) as client:
            with pytest.raises(ServerUnavailable, match=r"did not answer within 1\.5 s"):
                await client.status("1")

    asyncio.run(asyncio.wait_for(ask(), PATIENCE_S))


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode is not Mode.PASS], ids=lambda mode: mode.value)
@pytest.mark.parametrize("whom", ["client", "worker-1", "postgres"])
def test_with_one_way_cut_for_good_runs_go_on_by_the_other_server(site: Site, whom: str, mode: Mode) -> None:
    """The cut falls in the middle of a run, and nothing is whole again until it has ended."""
    ledger = site.ledger()

    def way() -> str:
        if whom == "postgres":
            return "server-1 to postgres"
        # The one that it has taken.
        ways = [f"{whom} to {server.name}" for server in site.servers]
        return max(ways, key=lambda name: site.cluster.network[name].connections)

    async def go() -> str:
        async with AsyncClient(site.cluster.url, settings=CLIENT) as client:
            client._connection._at = 0
            workload = {"ledger": str(ledger), "pause": 0.1}
            # Its key makes it one run, however often it is asked for.
            started = await client.start(PLAYBOOK, workload, idempotency_key=ledger.name)
            await asyncio.to_thread(site.until, lambda: keys_of(ledger), "the first task is under way")
            site.be(mode, way())
            async with asyncio.timeout(PATIENCE_S):
                await client.ended(started.execution_id)
            return started.execution_id

    run = asyncio.run(go())
    site.judged(site.servers[1], ledger, run)


def test_reports_claims_and_heartbeats_that_arrive_twice_and_out_of_order_count_once(site: Site) -> None:
    server = site.servers[0]
    replay = Replay(server.port)
    twice = site.cluster.worker("twice", ("default",), replay.url)
    site.cluster.workers[0].stop()
    try:
        twice.start()
        ledgers = [site.ledger() for _ in range(5)]
        runs = [site.begin(server, ledger, pause=0.1) for ledger in ledgers]
        for ledger, run in zip(ledgers, runs, strict=True):
            site.judged(server, ledger, run)
        seen = {path.rpartition("/")[2] for path, _ in replay.answers}
        assert {"claim", "report"} <= seen
        assert not [status for _, status in replay.answers if status >= 500], replay.answers
    finally:
        twice.kill()
        replay.close()
        site.cluster.workers[0].start()
