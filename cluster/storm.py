"""Runs on a cluster while its parts are killed, stopped and wiped at random: what is struck, when, and how, comes from a seed.

Strikes fall until every run was handed in and most have ended; then the cluster is left alone, and every run must end.
Where the cluster has a network of its own (`proxied`), every other strike falls on that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from arclog.client import AsyncClient
from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, ServerUnavailable, StoreUnavailable
from cluster.checks import Verdict, keys_of
from cluster.local import Cluster, Process
from tests.servers.proxy import Mode, Proxy

PLAYBOOK = Path(__file__).with_name("demo.yaml")
#: What comes back from a cluster that is being struck; whoever asks, asks again.
PASSING = (ServerUnavailable, StoreUnavailable, Conflict)
#: Runs that are handed in and not ended, at most.
AT_A_TIME = 100
_SHORTEST_S, _LONGEST_S = 0.1, 1.5
#: How long one request waits for the end of a run.
_LOOK_S = 10.0

T = TypeVar("T")

#: Leases are short, so that a storm of a minute sees many end; a worker may lose many before its task counts as poison.
SETTINGS = {
    "ARCLOG_LEASES_SECONDS": "2",
    "ARCLOG_LEASES_MAX_LOSSES": "1000",
    "ARCLOG_ENGINE_SWEEP_S": "0.2",
    "ARCLOG_ENGINE_IDLE_S": "3",
}
#: Where the network is cut, nobody waits longer for an answer than a cut lasts.
NETWORK_SETTINGS = {
    **SETTINGS,
    "ARCLOG_CLIENT_TIMEOUT_S": "1.5",
    "ARCLOG_STORE_TIMEOUT_S": "1.5",
    "ARCLOG_STORE_CONNECT_TIMEOUT_S": "1",
    "ARCLOG_STORE_PATIENCE_S": "3",
    "ARCLOG_BUS_CONNECT_TIMEOUT_S": "1",
    "ARCLOG_BUS_MAX_RETRY_S": "0.5",
    "ARCLOG_RESULTS_TIMEOUT_S": "2",
    "ARCLOG_ENGINE_DUTY_LEASE_S": "1.5",
}
#: What a client that is cut off waits for.
_CLIENT = Settings({"client.timeout_s": 1.5, "client.patience_s": 3.0, "client.poll_s": 3.0})


class Storm:
    def __init__(self, cluster: Cluster, *, runs: int, strikes: int, seed: int, pause_s: float = 0.0) -> None:
        self._cluster = cluster
        self._runs = runs
        self._strikes = strikes
        self._random = Random(seed)
        self._pause_s = pause_s
        self._ledger = cluster.shared / "ledger"
        self._ledger.touch()
        self._places = asyncio.Semaphore(AT_A_TIME)
        self._calm = asyncio.Event()
        self._ended = 0
        #: what was done to whom, and how often
        self.struck: Counter[str] = Counter()
        #: runs that were in quarantine, and went on by themselves
        self.quarantined: set[str] = set()
        #: between whom the network was struck
        self.cut: Counter[str] = Counter()

    async def rage(self, patience_s: float) -> Verdict:
        """Hand in all runs while strikes fall; what the logs and the ledger say when the last run has ended."""
        async with AsyncClient(self._cluster.url, settings=_CLIENT) as client:
            striking = asyncio.ensure_future(self._strike_all())
            try:
                async with asyncio.timeout(patience_s):
                    runs = await asyncio.gather(*(self._one(client, number) for number in range(self._runs)))
                    await striking
            except TimeoutError:
                raise RuntimeError(f"{self._runs - self._ended} runs are stuck\n{self._cluster.last_words()}") from None
            finally:
                striking.cancel()
                await asyncio.gather(striking, return_exceptions=True)
            verdict, ledger = Verdict(), keys_of(self._ledger)
            for run in runs:
                events = await _patiently(partial(client.events, run, limit=1000))
                verdict.look_at(run, events, ledger)
                if any(_is_quarantine(event) for event in events):
                    self.quarantined.add(run)
            verdict.close(ledger)
            return verdict

    async def _one(self, client: AsyncClient, number: int) -> str:
        """One run from its start, which may have to be asked for several times, to its end."""
        text = PLAYBOOK.read_text(encoding="utf-8")
        workload = {"ledger": str(self._ledger), "order": number, "pause": self._pause_s}
        async with self._places:
            key = f"storm-{number}"
            started = await _patiently(lambda: client.start(text, workload, idempotency_key=key))
            while not await _patiently(lambda: client.ended(started.execution_id, timeout_s=_LOOK_S)):
                pass
            self._ended += 1
            if self._ended > 0.9 * self._runs:
                self._calm.set()
            return started.execution_id

    # -- strikes -------------------------------------------------------------------------------------------------------

    async def _strike_all(self) -> None:
        """One strike after the other: whatever is struck is whole again before the next falls."""
        for _ in range(self._strikes):
            try:
                async with asyncio.timeout(self._random.uniform(_SHORTEST_S, _LONGEST_S)):
                    await self._calm.wait()
            except TimeoutError:
                await self._strike()
            else:
                return

    async def _strike(self) -> None:
        cluster, random = self._cluster, self._random
        away_s = random.uniform(_SHORTEST_S, _LONGEST_S)
        if cluster.network and random.random() < 0.5:
            await self._strike_network(away_s)
            return
        what: list[tuple[str, Callable[[float], Awaitable[None]]]] = [
            *(("server killed", self._killed(server)) for server in cluster.servers),
            *(("worker killed", self._killed(worker)) for worker in cluster.workers),
            ("server stood still past its leases", self._stopped(random.choice(cluster.servers))),
            ("worker stood still past its lease", self._stopped(random.choice(cluster.workers))),
            ("PostgreSQL killed", self._without_postgres),
            ("NATS killed and wiped", self._without_nats),
        ]
        name, strike = random.choice(what)
        self.struck[name] += 1
        await strike(away_s)

    async def _strike_network(self, away_s: float) -> None:
        """Between two that speak to each other; all are whole afterwards."""
        random = self._random
        name, proxy = random.choice(sorted(self._cluster.network.items()))
        mode = random.choice([each for each in Mode if each is not Mode.PASS])
        flaps = random.random() < 0.25
        self.struck[f"network {mode.value}{' and whole in turns' if flaps else ''}"] += 1
        self.cut[name] += 1
        try:
            if flaps:
                await _flap(proxy, mode, random)
            else:
                proxy.be(mode)
                await asyncio.sleep(float(SETTINGS["ARCLOG_LEASES_SECONDS"]) + away_s)
            if random.random() < 0.5:
                proxy.drop()  # what was held is lost; else it arrives late
        finally:
            proxy.be(Mode.PASS)

    @staticmethod
    def _killed(process: Process) -> Callable[[float], Awaitable[None]]:
        async def strike(away_s: float) -> None:
            process.kill()
            await asyncio.sleep(away_s)
            process.start()

        return strike

    @staticmethod
    def _stopped(process: Process) -> Callable[[float], Awaitable[None]]:
        async def strike(away_s: float) -> None:
            process.pause()
            await asyncio.sleep(float(SETTINGS["ARCLOG_LEASES_SECONDS"]) + away_s)
            process.resume()

        return strike

    async def _without_postgres(self, away_s: float) -> None:
        await asyncio.to_thread(self._cluster.postgres.kill)
        await asyncio.sleep(away_s)
        await asyncio.to_thread(self._cluster.postgres.start)

    async def _without_nats(self, away_s: float) -> None:
        nats = self._cluster.nats
        if nats is not None:
            nats.wipe()
            await asyncio.sleep(away_s)
            await asyncio.to_thread(nats.start)


def _is_quarantine(event: dict[str, Any]) -> bool:
    payload = event["payload"]
    return event["event_type"] == "signal.received" and (payload["signal"], payload.get("by")) == ("PAUSE", "arclog")


async def _flap(proxy: Proxy, mode: Mode, random: Random) -> None:
    for _ in range(random.randint(3, 8)):
        proxy.be(mode)
        await asyncio.sleep(random.uniform(0.02, 0.4))
        proxy.be(Mode.PASS)
        await asyncio.sleep(random.uniform(0.02, 0.4))


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await ask()
        except PASSING:
            await asyncio.sleep(0.1)
