"""python -m bench.scale.measure [--steps N] [--runs N]: what one step costs, into inputs.json.

A real server on a real PostgreSQL and a real worker, as processes of their own, run chains of noop steps. Costs are CPU
times and bytes, counted by the kernel and by PostgreSQL: they depend little on what else the machine does. The publisher's
time is the CPU of bare JetStream publishes of the same size, many at a time: a floor that ours can come near to.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psycopg

from bench.harness import expect
from bench.machine import fdatasync_us, machine
from bench.playbooks import chain
from bench.postgres import postgres
from bench.scale.model import INPUTS, Inputs, save
from tests.servers.nats import running_nats

ARCLOG = [sys.executable, "-m", "arclog.cli.main"]
_TICKS = os.sysconf("SC_CLK_TCK")
_AT_ONCE = 200


def measure(runs: int, steps: int, folder: str, tries: int = 10, published: int = 20_000) -> Inputs:
    with postgres() as url, tempfile.TemporaryDirectory(prefix="arclog-scale-") as home:
        env = {**os.environ, "ARCLOG_STORE_URL": url, "ARCLOG_HOME": home, "ARCLOG_SERVER_LOG_LEVEL": "error"}
        server = subprocess.Popen([*ARCLOG, "server", "--port", "0", "--json"], env=env, stdout=subprocess.PIPE)
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["url"]
        env["ARCLOG_WORKER_SLOTS"] = str(runs)
        worker = subprocess.Popen([*ARCLOG, "worker", "--server", address, "--quiet"], env=env)
        try:
            _run(address, 2, steps)  # programs compiled, statements prepared, pages there
            before = _looked(url, server.pid, address)
            _run(address, runs, steps)
            after = _looked(url, server.pid, address)
        finally:
            for process in (worker, server):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
            server.stdout.close()
    done = runs * steps
    grown = {name: after[name] - before[name] for name in before}
    body = grown["stored"] / max(1.0, grown["events"])
    return Inputs(
        events=grown["events"] / done,
        server_cpu_s=grown["server_cpu"] / done,
        database_cpu_s=grown["database_cpu"] / done,
        transactions=grown["commits"] / done,
        wal_bytes=grown["wal"] / done,
        stored_bytes=grown["stored"] / done,
        # The least is the disk's own time; the rest is its neighbours'.
        fsync_s=min(fdatasync_us(folder) for _ in range(tries)) / 1e6,
        publish_s=asyncio.run(_publish(round(body), published)),
        messages=grown["events"] / done + 1,
    )


def _run(address: str, runs: int, steps: int) -> None:
    """So many chains at a time, to their ends."""
    playbook = chain(steps)
    ids = [_ask(f"{address}/api/execute", {"playbook": playbook})["execution_id"] for _ in range(runs)]
    for execution_id in ids:
        while not (status := _ask(f"{address}/api/executions/{execution_id}/head?until=ended&timeout_s=20"))["ended"]:
            pass
        state = _ask(f"{address}/api/executions/{execution_id}/status")["state"]
        expect("how a run ended", state, "COMPLETED")
        expect("whether it has events", status["head"] > steps, True)


def _ask(url: str, body: Any = None) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, raw, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _looked(url: str, server: int, address: str) -> dict[str, float]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")  # so that each look sees the same writes of whole pages begin
        row = connection.execute(
            "SELECT pg_current_wal_insert_lsn() - '0/0', pg_database_size(current_database()), pg_backend_pid(), "
            "(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())"
        ).fetchone()
        assert row is not None
        wal, stored, backend, commits = row
        return {
            "wal": float(wal),
            "stored": float(stored),
            "commits": float(commits),
            "server_cpu": _cpu(server),
            "database_cpu": _family_cpu(_parent(backend)),
            "events": _metric(address, "arclog_events_total"),
        }


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _cpu(pid: int) -> float:
    found = _stat(pid)
    return (int(found[11]) + int(found[12])) / _TICKS


def _family_cpu(postmaster: int) -> float:
    """Of a process, its children, and those of them that have ended."""
    total = _cpu(postmaster) + sum(map(int, _stat(postmaster)[13:15])) / _TICKS
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                total += _cpu(int(entry.name)) if _parent(int(entry.name)) == postmaster else 0.0
            except OSError:
                continue  # it has just ended
    return total


def _metric(address: str, name: str) -> float:
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


async def _publish(size: int, times: int) -> float:
    """Seconds of CPU, which is what bounds it, for one acknowledged publish, many at a time."""
    import nats

    with running_nats() as server:
        connection = await nats.connect(server.url)
        try:
            stream = connection.jetstream(publish_async_max_pending=_AT_ONCE)
            await stream.add_stream(name="events", subjects=["events.>"])
            body = b"x" * max(1, size)
            began = time.process_time()
            for first in range(0, times, _AT_ONCE):
                acks = [
                    await stream.publish_async("events.step.done", body, headers={"Nats-Msg-Id": f"{first}-{n}"})
                    for n in range(_AT_ONCE)
                ]
                await asyncio.gather(*acks)
            return (time.process_time() - began) / times
        finally:
            await connection.close()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="chains at a time")
    parser.add_argument("--steps", type=int, default=100, help="steps of each")
    parser.add_argument("--output", type=Path, default=INPUTS)
    options = parser.parse_args(argv)
    found = measure(options.runs, options.steps, tempfile.gettempdir())
    about = machine(tempfile.gettempdir())
    kept = {
        name: about[name]
        for name in ("date", "cores", "processor", "system", "python", "disk", "load before", "commit")
    }
    save(found, {**kept, "runs x steps": f"{options.runs} x {options.steps}"}, options.output)
    print(options.output.read_text(encoding="utf-8"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
