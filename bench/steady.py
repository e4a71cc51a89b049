"""Steady load: ./x bench steady [--minutes 10] [--rate 25] [--retention 60] [--svg FILE] [--json FILE] [--dir FOLDER]

A server on SQLite takes so many runs a second and forgets those that ended longer ago than the retention. Every few seconds the
size of its file and of its write-ahead log, its memory and the latencies of runs are noted; at the end it is said whether the
goals were met, and all of it is drawn. The server measures what its collections hold (bench/children/run_steady.py): the event loop
and the writer, at most 10 ms at a time, and how many runs a second they remove meanwhile. Then the load ends and all runs are
collected: how fast, beside the rate of the load.
Exit code 1 when a run did not complete; never because of a figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench import machine

_MIB = 1024 * 1024
SAMPLE_S = 5.0
#: how often a server looks for runs that go
GC_EVERY_S = 10.0
STEPS = 3
#: runs under way at most: a machine that is too slow for the rate shows it by `runs/s`
AT_A_TIME = 64
FILE_GOAL, WAL_GOAL_MIB, PACE_GOAL, HOLD_GOAL_MS = 1.2, 64.0, 2.0, 10.0
#: the server that is measured
_SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "children", "run_steady.py")
PLAYBOOK = "metadata: {name: steady}\nworkflow:\n" + "".join(
    f"  - step: s{number}\n    tool: {{kind: noop}}\n"
    + (f"    next: {{arcs: [{{step: s{number + 1}}}]}}\n" if number + 1 < STEPS else "")
    for number in range(STEPS)
)


@dataclass(frozen=True)
class Sample:
    """What was seen at one moment."""

    at_s: float
    file_mib: float
    wal_mib: float
    live_mib: float
    memory_mib: float
    runs: int
    p50_ms: float
    p99_ms: float


def main(argv: list[str]) -> int:
    options = _arguments(argv)
    about = machine.machine(options.dir)
    with tempfile.TemporaryDirectory(dir=options.dir or None, prefix="arclog-bench-") as folder:
        samples, failed, holds, pace = asyncio.run(_measure(folder, options))
    print(report(samples, failed, holds, pace, options.rate, about))
    if options.svg:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(drawn(samples, options.rate))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            seen = [asdict(sample) for sample in samples]
            json.dump({"machine": about, "gc_per_s": pace, "collections": holds, "samples": seen}, file, indent=1)
    return 1 if failed else 0


async def _measure(
    folder: str, options: argparse.Namespace
) -> tuple[list[Sample], Counter[str], dict[str, Any] | None, float]:
    home, figures = os.path.join(folder, "home"), os.path.join(folder, "figures.json")
    env = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
    env |= {
        "ARCLOG_HOME": home,
        "ARCLOG_STORE_RETENTION_S": str(options.retention),
        "ARCLOG_GC_EVERY_S": str(min(GC_EVERY_S, options.retention)),
    }
    command = [sys.executable, _SERVER, figures, "up", "--port", "0", "--json"]
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    server = await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=nowhere)
    assert server.stdout is not None
    try:
        url = json.loads(await server.stdout.readline())["url"]
        draining = asyncio.ensure_future(server.stdout.read())  # a full pipe would stop it
        samples, failed = await _load(url, home, server.pid, options)
    finally:
        server.terminate()
        await server.wait()
    await draining
    holds = await asyncio.to_thread(_holds, figures)
    return samples, failed, holds, await asyncio.to_thread(_collected, home, env)


async def _load(url: str, home: str, pid: int, options: argparse.Namespace) -> tuple[list[Sample], Counter[str]]:
    import httpx2

    samples: list[Sample] = []
    latencies: list[float] = []
    failed: Counter[str] = Counter()
    under_way: set[asyncio.Task[None]] = set()
    limits = httpx2.Limits(max_connections=None)

    async with httpx2.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as client:

        async def run() -> None:
            began = time.perf_counter()
            answer = await client.post("/api/executions", json={"playbook": PLAYBOOK})
            answer.raise_for_status()
            is_complete = False
            path = f"/api/executions/{answer.json()['execution_id']}/events/stream"
            async with client.stream("GET", path) as events:
                events.raise_for_status()
                async for line in events.aiter_lines():
                    is_complete = is_complete or "playbook.finished" in line
            latencies.append((time.perf_counter() - began) * 1000)
            if not is_complete:
                failed["the stream of its events ended before the run"] += 1

        def ended(task: asyncio.Task[None]) -> None:
            under_way.discard(task)
            if (problem := task.exception()) is not None:
                failed[f"{type(problem).__name__}: {problem}"] += 1

        began = time.monotonic()
        noted, sent = began, 0
        while (now := time.monotonic()) < began + options.minutes * 60:
            while sent < (now - began) * options.rate and len(under_way) < AT_A_TIME:
                task = asyncio.ensure_future(run())
                under_way.add(task)
                task.add_done_callback(ended)
                sent += 1
            if now >= noted + SAMPLE_S:
                seen, latencies[:] = sorted(latencies), []
                samples.append(_seen(now - began, home, pid, seen, len(seen)))
                noted = now
            await asyncio.sleep(0.5 / options.rate)
        await asyncio.gather(*under_way, return_exceptions=True)
    return samples, failed


def _seen(at_s: float, home: str, pid: int, latencies: Sequence[float], runs: int) -> Sample:
    import apsw

    file = os.path.join(home, "arclog.db")
    connection = apsw.Connection(file, flags=apsw.SQLITE_OPEN_READONLY)
    pages, free, size = (connection.pragma(name) for name in ("page_count", "freelist_count", "page_size"))
    connection.close()
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        memory = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    wal = os.path.getsize(f"{file}-wal") if os.path.exists(f"{file}-wal") else 0
    p50, p99 = (latencies[len(latencies) * part // 100] if latencies else 0.0 for part in (50, 99))
    live = (pages - free) * size
    return Sample(at_s, os.path.getsize(file) / _MIB, wal / _MIB, live / _MIB, memory / _MIB, runs, p50, p99)


def _holds(file: str) -> dict[str, Any] | None:
    """The figures of the server's collections; None if there was none."""
    if not os.path.exists(file):
        return None
    with open(file, encoding="utf-8") as text:
        figures: dict[str, Any] = json.load(text)
    return figures


def _collected(home: str, env: dict[str, str]) -> float:
    """Runs that `arclog gc` forgets in a second when it has to forget all of them."""
    import apsw

    env = {**env, "ARCLOG_STORE_RETENTION_S": "0.001"}
    connection = apsw.Connection(os.path.join(home, "arclog.db"))
    before = connection.execute("SELECT count(*) FROM executions").get
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "arclog", "gc"],
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    took = time.perf_counter() - began
    left = connection.execute("SELECT count(*) FROM executions").get
    connection.close()
    return float((before - left) / took)


def report(
    samples: Sequence[Sample],
    failed: Counter[str],
    holds: dict[str, Any] | None,
    pace: float,
    rate: float,
    about: dict[str, str],
) -> str:
    last = samples[-1]
    largest_wal = max(sample.wal_mib for sample in samples)
    lines = [
        f"{'at':>6}  {'file':>9}  {'live data':>9}  {'WAL':>8}  {'memory':>8}  {'runs/s':>7}  {'p50':>8}  {'p99':>9}",
        *(
            f"{sample.at_s:5.0f}s  {sample.file_mib:5.1f} MiB  {sample.live_mib:5.1f} MiB  {sample.wal_mib:4.1f} MiB  "
            f"{sample.memory_mib:4.0f} MiB  {sample.runs / SAMPLE_S:7.1f}  {sample.p50_ms:5.1f} ms  {sample.p99_ms:6.1f} ms"
            for sample in samples[:: max(len(samples) // 30, 1)]
        ),
        "",
        _verdict("file ÷ live data at the end", last.file_mib / last.live_mib, FILE_GOAL, "×"),
        _verdict("largest write-ahead log", largest_wal, WAL_GOAL_MIB, "MiB"),
        *_of_collections(holds, rate),
        _verdict("collecting all after the load ÷ the load's rate", pace / rate, PACE_GOAL, "×", least=True),
        f"runs that did not complete: {failed.total()}",
        *(f"  {count} × {reason}" for reason, count in failed.most_common()),
        "",
        *(f"{name} {value}" for name, value in about.items()),
    ]
    return "\n".join(lines)


def _of_collections(holds: dict[str, Any] | None, rate: float) -> list[str]:
    """What the collections of the server held, and how fast they were."""
    if holds is None or not holds["collected"]:
        return ["collections under load: none removed a run; the run has to last longer than the retention"]
    during, otherwise = holds["collecting"], holds["otherwise"]
    ms, long = 1000, f"{holds['long_transactions']} of {holds['transactions']}"
    return [
        _verdict("longest hold of the event loop in a collection", during["longest_s"] * ms, HOLD_GOAL_MS, "ms"),
        *(
            f"  {when}: longest {held['longest_s'] * ms:.1f} ms, of processor time {held['longest_cpu_s'] * ms:.1f} ms; "
            f"{held['long']} of more than {HOLD_GOAL_MS:g} ms in {held['seconds']:.1f} s"
            for when, held in (("in collections", during), ("between collections", otherwise))
        ),
        _verdict("longest transaction of a collection", holds["longest_transaction_s"] * ms, HOLD_GOAL_MS, "ms"),
        f"  of processor time {holds['longest_transaction_cpu_s'] * ms:.1f} ms; {long} took more than {HOLD_GOAL_MS:g} ms",
        _verdict(
            "collecting under load ÷ the load's rate",
            holds["collected"] / holds["collecting_s"] / rate,
            PACE_GOAL,
            "×",
            least=True,
        ),
        f"  {holds['collected']} runs in {holds['collections']} collections of {holds['collecting_s']:.1f} s in all",
    ]


def _verdict(what: str, value: float, goal: float, unit: str, *, least: bool = False) -> str:
    met = value >= goal if least else value <= goal
    return f"{what}: {value:.2f} {unit} (goal {'≥' if least else '≤'} {goal:g}: {'met' if met else 'MISSED'})"


# ── the picture ──────────────────────────────────────────────────────────────────────────────────────────────────


def drawn(samples: Sequence[Sample], rate: float) -> str:
    """The samples over time, as SVG: one panel a unit."""
    panels: list[tuple[str, list[tuple[str, str]]]] = [
        ("store, MiB", [("file_mib", "file"), ("live_mib", "live data"), ("wal_mib", "write-ahead log")]),
        ("memory of the server, MiB", [("memory_mib", "resident")]),
        ("latency of a run, ms", [("p50_ms", "p50"), ("p99_ms", "p99")]),
    ]
    width, height, left, gap = 760, 150, 60, 48
    total = gap + len(panels) * (height + gap)
    end = max(sample.at_s for sample in samples)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{total}" fill="#fff"/>',
        f'<text x="{left}" y="20" font-size="14">{rate:g} runs a second of {STEPS} steps, with retention</text>',
    ]
    colours = ("#0b6e99", "#c4551d", "#6a5acd")
    inner = width - left - 20
    for index, (title, lines) in enumerate(panels):
        top = gap + index * (height + gap)
        most = max(getattr(sample, key) for sample in samples for key, _ in lines) * 1.05 or 1.0
        parts.append(f'<text x="{left}" y="{top - 8}">{title}</text>')
        for share in (0.0, 0.5, 1.0):
            y = top + height * (1 - share)
            parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + inner}" y2="{y:.1f}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{most * share:.3g}</text>')
        for place, (key, label) in enumerate(lines):
            points = " ".join(
                f"{left + inner * sample.at_s / end:.1f},{top + height * (1 - getattr(sample, key) / most):.1f}"
                for sample in samples
            )
            colour = colours[place]
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
            x = left + inner - 130 * (len(lines) - place)
            parts.append(f'<text x="{x}" y="{top - 8}" fill="{colour}">{label}</text>')
        parts.append(
            f'<text x="{left + inner}" y="{top + height + 16}" text-anchor="end">{end / 60:.1f} minutes</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _arguments(argv: list[str]) -> Any:
    parser = argparse.ArgumentParser(prog="./x bench steady", description="A server under steady load with retention.")
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long (10)")
    parser.add_argument("--rate", type=float, default=25.0, metavar="N", help="runs a second (25)")
    parser.add_argument(
        "--retention", type=float, default=60.0, metavar="S", help="seconds that ended runs are kept (60)"
    )
    parser.add_argument("--svg", metavar="FILE", help="draw it there")
    parser.add_argument("--json", metavar="FILE", help="write everything there")
    parser.add_argument("--dir", default="", metavar="FOLDER", help="where to make the store; a real disk")
    return parser.parse_args(argv)
