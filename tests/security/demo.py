"""A server that may take 1 GiB with all its processes, under the template, playbook and report bombs of one tenant, while runs of
another one are measured: `./x attack demo` prints a table.

Calm and attack alternate on the same server in rounds of a few seconds, so that both see the same machine, and which of them comes
first alternates, too. The other tenant starts a run every 20 ms. (If it started one as soon as the last had ended, the two tenants
would share a core: any busy neighbour doubles the time of such a run.) Who attacks is a process of its own, of the lowest priority: it stands for another machine. What other programs do to
the machine is seen by two sets of calm rounds: where these differ, nothing can be concluded from the others.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import httpx2
from msgspec import Struct

from tests.security import bombs
from tests.security.cage import Cage
from tests.security.site import ROOT, Site

LIMIT = 1 << 30
#: How often the other tenant starts a run.
PACE_S = 0.02
#: How much longer the other tenant's runs may take.
MOST_RATIO = 2.0
#: How much the p95 of two sets of calm rounds may differ where a verdict is possible.
MOST_DRIFT = 1.5
#: Samples of rounds for the interval of the ratio, and which share of them is in it.
_SAMPLES, _WITHIN = 2000, 0.9
RUN = """
metadata: {name: neighbour}
workflow:
  - {step: start, tool: {kind: noop}, next: {arcs: [{step: last, args: {a: "{{ 6 * 7 }}"}}]}}
  - {step: last, tool: {kind: noop, data: "{{ args.a }}"}}
"""
_EMOJI = "('😀' ~ i) * 1000000"


class Measured(Struct):
    """What came of one demonstration."""

    #: seconds of each run, by round
    calm: list[list[float]]
    attacked: list[list[float]]
    #: runs of the other tenant that did not complete
    failed: int
    #: bombs that were thrown, by kind and what became of them
    thrown: dict[str, int]
    peak: int
    #: processes that were killed for their memory
    kills: int
    died: bool
    how: str

    @property
    def ratio(self) -> float:
        return p(95, joined(self.attacked)) / p(95, joined(self.calm))

    @property
    def interval(self) -> tuple[float, float]:
        """Between which values the ratio is, by drawing rounds again and again (a bootstrap over pairs of rounds)."""
        draw = random.Random(1)
        pairs = list(zip(self.calm, self.attacked, strict=True))
        ratios = []
        for _ in range(_SAMPLES):
            calm, attacked = zip(*draw.choices(pairs, k=len(pairs)), strict=True)
            ratios.append(p(95, joined(attacked)) / p(95, joined(calm)))
        return p(round(50 * (1 - _WITHIN)), ratios), p(round(50 * (1 + _WITHIN)), ratios)

    @property
    def drift(self) -> float:
        """How much the p95 of every other calm round differs from that of the rest: what the machine does by itself."""
        first, second = p(95, joined(self.calm[::2])), p(95, joined(self.calm[1::2] or self.calm))
        return max(first, second) / min(first, second)

    @property
    def is_unharmed(self) -> bool:
        """Whether nothing was killed, every run completed and bombs of every kind were thrown."""
        return not (self.failed or self.kills or self.died) and len(self.kinds) == len(BOMBS)

    @property
    def verdict(self) -> str:
        if not self.is_unharmed:
            return "does not hold"
        if self.interval[1] <= MOST_RATIO:
            return "holds"
        if self.interval[0] > MOST_RATIO and self.drift <= MOST_DRIFT:
            return "does not hold"
        if self.drift > MOST_DRIFT:
            return f"cannot be judged: calm rounds differ by {self.drift:.2f} times among themselves"
        return "holds, by a narrow margin" if self.ratio <= MOST_RATIO else "does not hold, by a narrow margin"

    @property
    def holds(self) -> bool:
        return self.verdict.startswith("holds")

    @property
    def kinds(self) -> set[str]:
        return {name.partition(":")[0] for name in self.thrown}


def p(percent: int, times: list[float]) -> float:
    """The percentile, in seconds."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, round(len(ordered) * percent / 100))]


def joined(rounds: Sequence[list[float]]) -> list[float]:
    return [seconds for times in rounds for seconds in times]


def demonstrated(rounds: int = 6, seconds: float = 5.0, kinds: Sequence[str] = ()) -> Measured:
    """Measure so many rounds of so many seconds, each once calm and once under attack by bombs of these kinds (all by default)."""
    cage = Cage(LIMIT)
    site = Site(cage=cage)
    attacker = _Attacker(site, kinds or list(BOMBS))
    measured = Measured([], [], 0, {}, 0, 0, died=False, how=cage.how)
    try:
        _runs(site, 1.0)
        for number in range(rounds):
            for attacked in (False, True) if number % 2 == 0 else (True, False):
                if attacked:
                    attacker.go()
                took, failed = _runs(site, seconds)
                (measured.attacked if attacked else measured.calm).append(took)
                measured.failed += failed
                if attacked:
                    attacker.pause()
        measured.died = not site.alive()
        measured.peak, measured.kills = cage.peak, cage.kills
        measured.thrown = attacker.close()
        return measured
    finally:
        attacker.close()
        site.close()
        cage.close()


def _runs(site: Site, seconds: float) -> tuple[list[float], int]:
    """Start a run every PACE_S, if the one before has ended, and return how long each took and how many did not complete."""
    took, failed = [], 0
    client = site.client("victim", "engineer")
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        try:
            run = client.post("/api/executions", json={"playbook": RUN}).json()["execution_id"]
            head = client.get(f"/api/executions/{run}/head", params={"until": "ended", "timeout_s": 30}).json()
            failed += not head.get("ended")
        except (httpx2.HTTPError, KeyError, ValueError):
            failed += 1
        took.append(time.perf_counter() - begun)
        time.sleep(max(0.0, PACE_S - took[-1]))
    return took, failed


def table(found: Measured) -> str:
    calm, attacked = joined(found.calm), joined(found.attacked)
    low, high = found.interval
    rows = [
        ("runs of the other tenant that completed", len(calm), len(attacked) - found.failed),
        *((f"p{at}", f"{p(at, calm) * 1e3:.1f} ms", f"{p(at, attacked) * 1e3:.1f} ms") for at in (50, 95)),
        ("p95, times as long", f"{found.drift:.2f} among themselves", f"{found.ratio:.2f} ({low:.2f} to {high:.2f})"),
        ("most memory of all processes", "", f"{found.peak >> 20} of {LIMIT >> 20} MiB, held by {found.how}"),
        ("processes killed", "", found.kills + found.died),
        (f"p95 at most {MOST_RATIO:g} times as long, nothing killed", "", found.verdict),
        *((f"bombs: {name.replace(':', ',')}", "", count) for name, count in sorted(found.thrown.items())),
    ]
    lines = ["| | calm | under attack |", "| --- | ---: | ---: |"]
    return "\n".join([*lines, *(f"| {name} | {calm} | {attacked} |" for name, calm, attacked in rows)])


# --- the attacker, in its own process ----------------------------------------------------------------------------------


class _Attacker:
    """Throws bombs from another process while it is told to."""

    def __init__(self, site: Site, kinds: Sequence[str]) -> None:
        keys = {f"{tenant}/{role}": key for (tenant, role), key in site.keys.items() if tenant == "mallory"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.security.demo", site.url, json.dumps(keys), *kinds],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()
        self._thrown: dict[str, int] = {}

    def go(self) -> None:
        """Begin; the first bombs are on their way when it returns."""
        self._say("go")

    def pause(self) -> None:
        """Stop; all bombs have been answered when it returns."""
        self._say("pause")

    def close(self) -> dict[str, int]:
        """What was thrown."""
        if self._process.poll() is None:
            with suppress(OSError, ValueError):
                self._thrown = json.loads(self._say("end"))
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        return self._thrown

    def _say(self, word: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def _template(where: str) -> Callable[[int], tuple[str, str, bytes]]:
    body = bombs.gathered(_EMOJI, where=where)
    return lambda number: (
        "engineer",
        "/api/executions",
        json.dumps({"playbook": body.replace("bomb", f"bomb{number}", 1)}).encode(),
    )


def _playbook(path: str) -> Callable[[int], tuple[str, str, bytes]]:
    text = bombs.joins()
    # Another text each time: one that was compiled before is known.
    return lambda number: (
        "engineer",
        path,
        json.dumps({"playbook": text.replace('"joins"', f'"joins{number}"', 1)}).encode(),
    )


def _report() -> Callable[[int], tuple[str, str, bytes]]:
    small, large = bombs.report().encode(), bombs.report(30_000_000).encode()
    return lambda number: ("worker", "/api/worker/report", large if number % 4 == 0 else small)


#: Role, path and body of the bomb of a number, by kind.
BOMBS: dict[str, Callable[[], Callable[[int], tuple[str, str, bytes]]]] = {
    "template": lambda: _template("arc"),
    "template behind a timer": lambda: _template("timer"),
    "playbook": lambda: _playbook("/api/executions"),
    "playbook that is only checked": lambda: _playbook("/api/check"),
    "report": _report,
}


class _Thrower:
    """Throws bombs of one kind, one after the other."""

    def __init__(self, kind: str, url: str, keys: dict[str, str], going: threading.Event, thrown: Counter[str]) -> None:
        self._kind, self._url, self._keys, self._going, self._thrown = kind, url, keys, going, thrown
        self._made = BOMBS[kind]()
        self.idle = threading.Event()
        self.idle.set()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._throw, daemon=True)
        self._thread.start()

    def _throw(self) -> None:
        number = 0
        with httpx2.Client(base_url=self._url, timeout=60, trust_env=False, verify=False) as client:
            while not self._done.is_set():
                if not self._going.wait(0.1):
                    continue
                self.idle.clear()
                while self._going.is_set():
                    self._thrown[f"{self._kind}: {self._one(client, number)}"] += 1
                    number += 1
                self.idle.set()

    def _one(self, client: httpx2.Client, number: int) -> str:
        role, path, body = self._made(number)
        headers = {"authorization": f"Bearer {self._keys[f'mallory/{role}']}", "content-type": "application/json"}
        try:
            answer = client.post(path, content=body, headers=headers)
            if answer.status_code != 201 or path != "/api/executions":
                return f"HTTP {answer.status_code}"
            run: Any = answer.json()["execution_id"]
            ended = client.get(
                f"/api/executions/{run}/head", params={"until": "ended", "timeout_s": 5}, headers=headers
            )
            if not ended.json().get("ended"):
                client.post(f"/api/executions/{run}/cancel", json={"reason": "enough"}, headers=headers)
                return "it does not end"
            return str(client.get(f"/api/executions/{run}", headers=headers).json().get("state"))
        except (httpx2.HTTPError, ValueError) as problem:
            return type(problem).__name__

    def close(self) -> None:
        self._done.set()
        self._thread.join(70)


def attack(url: str, keys: dict[str, str], kinds: Sequence[str]) -> None:
    """Throw bombs of these kinds while the lines of standard input say so."""
    # Below everything else that runs here, whatever priority that has: on another machine it would take nothing from it.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    going: threading.Event = threading.Event()
    thrown: Counter[str] = Counter()
    throwers = [_Thrower(kind, url, keys, going, thrown) for kind in kinds]
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "go":
            going.set()
        else:
            going.clear()
            for thrower in throwers:
                thrower.idle.wait(70)
        if line.strip() == "end":
            for thrower in throwers:
                thrower.close()
            break
        print("done", flush=True)
    print(json.dumps(thrown), flush=True)


if __name__ == "__main__":
    attack(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:])
