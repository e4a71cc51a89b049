"""The benchmarks: ./x bench [W1 W2 …] [--repeat N] [--quick] [--large] [--markdown] [--json FILE] [--dir FOLDER]
                ./x bench growth …: what each operation costs as the store grows (bench/growth.py)
                ./x bench steady …: a server under steady load with retention (bench/steady.py)
                ./x bench versus …: this tree and another revision by turns (bench/versus.py)

Exit code 1 when a workload comes to a wrong result; never because of a speed.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from bench import report  # noqa: E402  the path is set just above
from bench.harness import Findings, Options, Wrong  # noqa: E402 - its path is set above
from bench.machine import fdatasync_us, loop_ms, machine  # noqa: E402 - its path is set above

WORKLOADS = {
    "W1": "w1_start",
    "W2": "w2_chain",
    "W3": "w3_loop",
    "W4": "w4_runs",
    "W6": "w6_growth",
    "W7": "w7_python",
    "W8": "w8_scale",
    "W9": "w9_http",
    "W10": "w10_transfer",
    "W11": "w11_check",
    "W12": "w12_results",
    "W13": "w13_ingest",
    "W14": "w14_remote",
    "W15": "w15_server",
    "W16": "w16_idle",
    "W17": "w17_bursts",
    "W18": "w18_migrate",
    "W19": "w19_authoring",
    "W20": "w20_history",
    "W21": "w21_claims",
    "P2": "p2_chain",
    "P3": "p3_loop",
    "P4": "p4_runs",
    "P5": "p5_cluster",
    "P6": "p6_processes",
}


def main(argv: list[str]) -> int:
    if argv[:1] == ["growth"]:
        from bench import growth

        return growth.main(argv[1:])
    if argv[:1] == ["steady"]:
        from bench import steady

        return steady.main(argv[1:])
    if argv[:1] == ["versus"]:
        from bench import versus

        return versus.main(argv[1:])
    options = _arguments(argv)
    compileall.compile_dir(os.path.join(ROOT, "src"), quiet=2)
    compileall.compile_dir(os.path.join(ROOT, "bench"), quiet=2)
    about = machine(options.dir)
    findings: list[Findings] = []
    problems: list[str] = []
    for name in [name for name in WORKLOADS if name in (options.workloads or WORKLOADS)]:
        started = time.monotonic()
        print(f"{name} …", end="", file=sys.stderr, flush=True)
        workload = importlib.import_module(f"bench.{WORKLOADS[name]}")
        try:
            findings.append(workload.measure(Options(options.repeat, options.quick, options.dir, options.large)))
        except Wrong as wrong:
            problems.append(f"{name}: {wrong}")
        print(f" {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    about["fdatasync"] += f"; {fdatasync_us(options.dir):.0f} µs after"
    about["python speed"] += f"; {loop_ms():.0f} ms after"
    shown = report.markdown if options.markdown else report.text
    print(shown(findings, about, problems))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(report.as_json(findings, about, problems))
    return 1 if problems else 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x bench", description="Measure arclog beside the floor and a peer.")
    parser.add_argument("workloads", nargs="*", type=str.upper, metavar="W", help=f"of {' '.join(WORKLOADS)}; all")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="rounds that the medians are made of (3)")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does it work at all?")
    parser.add_argument(
        "--large", action="store_true", help="W20: search through 10,000,000 events, too (2 GB of disk)"
    )
    parser.add_argument("--markdown", action="store_true", help="print tables for docs/performance.md")
    parser.add_argument("--json", metavar="FILE", help="write everything there, too")
    parser.add_argument("--dir", default="", metavar="FOLDER", help="where to make the stores; a real disk")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.workloads) - set(WORKLOADS))
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    if options.repeat < 1:
        parser.error("--repeat is at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
