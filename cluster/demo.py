"""./x cluster demo: orders on a cluster of this machine, while a server and a worker are killed.

./x cluster up: the same cluster without the demo, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

from arclog.client import AsyncClient
from arclog.model.errors import ServerUnavailable
from cluster.checks import Verdict, keys_of
from cluster.local import Cluster, Process

PLAYBOOK = Path(__file__).with_name("demo.yaml")
#: a lost worker's commands are given to another after this
LEASE_S = "3"
#: longest time that the orders may take
PATIENCE_S = 300.0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./x cluster", description=__doc__)
    parser.add_argument("what", choices=("demo", "up"))
    parser.add_argument("--orders", type=int, default=60, metavar="N", help="runs of the demo (60)")
    parser.add_argument("--folder", default="", help="where logs and homes go; else a new one that is removed")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="arclog-cluster-") as new:
        folder = Path(options.folder or new)
        folder.mkdir(parents=True, exist_ok=True)
        return _play(options, folder)


def _play(options: argparse.Namespace, folder: Path) -> int:
    say("starting PostgreSQL and NATS from their packages, two servers, three workers in the pools default and heavy …")
    cluster = Cluster(folder, settings={"ARCLOG_LEASES_SECONDS": LEASE_S})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        cluster.start()
        say(f"servers   {cluster.url}")
        say(f"database  {cluster.database.host}:{cluster.database.port}")
        say(f"nats      {cluster.nats.url if cluster.nats else 'none'}")
        say(f"logs      {folder}")
        if options.what == "up":
            say(f"\nARCLOG_SERVER={cluster.url} arclog list\nCtrl-C ends it, and removes what it made.")
            signal.pause()
            return 0
        return asyncio.run(Demo(cluster, options.orders).run())
    except KeyboardInterrupt:
        return 0 if options.what == "up" else 130
    finally:
        cluster.close()


class Demo:
    def __init__(self, cluster: Cluster, orders: int) -> None:
        self._cluster = cluster
        self._orders = orders
        self._ledger = cluster.shared / "ledger"
        self._ledger.touch()
        self._ended = 0
        self._news = asyncio.Event()

    async def run(self) -> int:
        began = time.monotonic()
        say(f"\n{self._orders} orders, six tasks each, are handed to whichever server answers:")
        async with AsyncClient(self._cluster.url) as client:
            runs = await asyncio.gather(*(self._order(client, number) for number in range(self._orders)))
            following = [asyncio.ensure_future(self._follow(client, run)) for run in runs]
            for share, process, what in (
                (0.2, self._cluster.servers[0], "a server"),
                (0.5, self._cluster.workers[0], "a worker"),
            ):
                await self._until(share)
                await self._strike(process, what)
            states = await asyncio.wait_for(asyncio.gather(*following), PATIENCE_S)
            say(f"all {len(runs)} orders have ended after {time.monotonic() - began:.1f} s")
            verdict = await self._judged(client, runs)
        lines = [
            f"  {states.count('COMPLETED')} of {len(runs)} runs completed, each with one terminal event",
            f"  {verdict.tasks} tasks done in the log, the same {len(keys_of(self._ledger))} in the ledger outside",
            f"  {verdict.leases_lost} leases were lost with the worker, {verdict.repeated} tasks were done again",
        ]
        say("\n".join(lines))
        for problem in verdict.problems:
            say(f"  ✗ {problem}")
        if verdict.problems or states.count("COMPLETED") != len(runs):
            say(self._cluster.last_words())
            return 1
        say("✓ nothing was lost, nothing is stuck, no result counts twice")
        return 0

    async def _order(self, client: AsyncClient, number: int) -> str:
        """Start a run; its key makes it one run, however often it has to be asked for."""
        text = PLAYBOOK.read_text(encoding="utf-8")
        workload = {"ledger": str(self._ledger), "order": number}
        while True:
            try:
                return (await client.start(text, workload, idempotency_key=f"order-{number}")).execution_id
            except ServerUnavailable:
                await asyncio.sleep(0.1)

    async def _follow(self, client: AsyncClient, execution_id: str) -> str:
        while True:
            try:
                await client.ended(execution_id, timeout_s=PATIENCE_S)
                state = (await client.status(execution_id)).state
            except ServerUnavailable:
                await asyncio.sleep(0.1)
            else:
                self._ended += 1
                self._news.set()
                return state

    async def _until(self, share: float) -> None:
        while self._ended < share * self._orders:
            self._news.clear()
            await self._news.wait()

    async def _strike(self, process: Process, what: str) -> None:
        say(f"{self._ended:3} orders done: kill -9 {process.name} ({what}, pid {process.pid})")
        process.kill()
        await asyncio.sleep(1.0)
        process.start()
        say(f"{self._ended:3} orders done: {process.name} is started again")

    async def _judged(self, client: AsyncClient, runs: list[str]) -> Verdict:
        verdict, ledger = Verdict(), keys_of(self._ledger)
        for run in runs:
            verdict.look_at(run, await client.events(run, limit=1000), ledger)
        verdict.close(ledger)
        return verdict


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
