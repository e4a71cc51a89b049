"""FILE HOME PROCESSES RUNS: `arclog server --processes N` on PostgreSQL and one worker over HTTP; so many runs at the same time.
Prints how long all of them took, and the CPU time of every part, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg

from arclog.wiring.process import run

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from bench.children.run_arclog import read

#: connections of the program that starts the runs, each with one request at a time
AT_A_TIME = 32
LOOK_S = 0.05
#: until PostgreSQL has counted the transactions of all its processes
COUNTED_S = 1.5
TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
OVER = "SELECT count(*) FILTER (WHERE over), count(*) FILTER (WHERE state = 'COMPLETED') FROM arclog.executions"


async def processes(file: str, home: str, count: int, runs: int) -> dict[str, Any]:
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    server = await _started(pipe, "server", "--port", "0", "--json", "--home", home, "--processes", str(count))
    assert server.stdout is not None
    url = json.loads(await server.stdout.readline())["url"]
    draining = asyncio.ensure_future(server.stdout.read())  # a full pipe would stop it
    worker = await _started(nowhere, "worker", "--server", url, "--slots", str(runs))
    request = _request(url, {"playbook": read(file)})
    try:
        async with await psycopg.AsyncConnection.connect(os.environ["ARCLOG_STORE_URL"], autocommit=True) as connection:

            async def until(wanted: int) -> int:
                while True:
                    over, completed = await (await connection.execute(OVER)).fetchone() or (0, 0)
                    if over >= wanted:
                        return int(completed)
                    await asyncio.sleep(LOOK_S)

            await _start(url, request, count * 4)  # every process is warm
            await until(count * 4)

            async def used() -> dict[str, float]:
                """The CPU time of each part so far, in seconds, and the transactions of the database."""
                await asyncio.sleep(COUNTED_S)
                [transactions] = await (await connection.execute(TRANSACTIONS)).fetchone() or (0,)
                postgres = _stat(connection.info.backend_pid)[1]  # the parent of every process of the server
                servers = _children(server.pid) if count > 1 else [server.pid]
                return {
                    "server": sum(map(_cpu_s, servers)),
                    "postgres": sum(map(_cpu_s, _children(postgres))) + _cpu_s(postgres, ended=True),
                    "worker": _cpu_s(worker.pid),
                    "generator": sum(os.times()[:2]),
                    "transactions": float(transactions),
                }

            before = await used()
            began = time.perf_counter()
            await _start(url, request, runs)
            completed = await until(count * 4 + runs) - count * 4
            run_s = time.perf_counter() - began
            after = await used()
            spent = {f"{part}_each": (after[part] - before[part]) / runs for part in before}
            return {"run_s": run_s, "completed": completed, **spent}
    finally:
        for process in (worker, server):
            process.terminate()
            await process.wait()
        await draining


def _request(url: str, body: dict[str, Any]) -> bytes:
    """The request that starts a run. It is written by hand: a general HTTP client would take as much CPU time for it as the
    worker takes for a run, on cores that the server shares.
    """
    content = json.dumps(body).encode()
    head = f"POST /api/executions HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def _start(url: str, request: bytes, runs: int) -> None:
    """Start runs, over several connections at the same time. A connection waits for each answer before its next request."""
    left = iter(range(runs))
    await asyncio.gather(*(_send(url, request, left) for _ in range(min(AT_A_TIME, runs))))


async def _send(url: str, request: bytes, left: Iterator[int]) -> None:
    """Send the request over one connection, as long as there are runs left to start."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        for _ in left:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            answer = await reader.readexactly(length)
            if not head.startswith(b"http/1.1 2"):
                raise RuntimeError(f"a run was not started: {answer.decode()}")
    finally:
        writer.close()
        await writer.wait_closed()


def _stat(pid: int) -> list[int]:
    """The state (as 0) and the numbers of a process behind it, as in proc(5); none if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return [0, *map(int, file.read().rpartition(")")[2].split()[1:])]
    except OSError:
        return []


def _cpu_s(pid: int, *, ended: bool = False) -> float:
    """The CPU time of a process, or of its children that have ended."""
    fields = _stat(pid)[13:15] if ended else _stat(pid)[11:13]
    return sum(fields) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [child_pid for child_pid in pids if _stat(child_pid)[1:2] == [pid]]


async def _started(stdout: int, *words: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "arclog.cli.main", *words)
    return await asyncio.create_subprocess_exec(*command, stdout=stdout, stderr=asyncio.subprocess.DEVNULL)


if __name__ == "__main__":
    print(json.dumps(run(processes(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
