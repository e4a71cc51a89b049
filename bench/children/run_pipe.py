"""The floor under an isolated python task: a line of JSON to another Python process and a line back.

Usage: run_pipe.py COUNT
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import median
from typing import Any

OTHER_SIDE = """
import json, sys
def main():
    return 1
for line in sys.stdin:
    print(json.dumps({"n": json.loads(line)["n"], "result": main()}), flush=True)
"""


def answer() -> int:
    return 1


def measured(count: int) -> dict[str, Any]:
    with subprocess.Popen([sys.executable, "-c", OTHER_SIDE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        times: list[float] = []
        right = 0
        for number in range(count + 1):
            started = time.perf_counter()
            other.stdin.write(json.dumps({"n": number}).encode() + b"\n")
            other.stdin.flush()
            right += json.loads(other.stdout.readline()) == {"n": number, "result": 1}
            times.append((time.perf_counter() - started) * 1000)
    calls = 100_000
    started = time.perf_counter()
    for _ in range(calls):
        answer()
    call_ms = (time.perf_counter() - started) * 1000 / calls
    return {"task_ms": median(times[1:]), "call_ms": call_ms, "right": right - 1}


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
