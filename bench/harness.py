"""What every workload needs: children that are timed, contenders that take turns, medians, and what is reported.

Law: this process stays small (standard library only), because a child's peak memory starts at its parent's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHILDREN = os.path.join(ROOT, "bench", "children")
#: nothing here takes this long, unless it hangs
TIMEOUT_S = 180.0

Sample = dict[str, Any]


class Wrong(Exception):
    """A workload produced a wrong result, so its figures are not valid."""


def expect(what: str, actual: object, wanted: object) -> None:
    if actual != wanted:
        raise Wrong(f"{what}: got {actual!r}, expected {wanted!r}")


# ── what is reported ─────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Spread:
    """A median and the range that it comes from."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Goal:
    #: "<=" or ">="
    sign: str
    bound: float

    def met(self, value: float) -> bool:
        return value <= self.bound if self.sign == "<=" else value >= self.bound

    def verdict(self, spread: Spread) -> str:
        """Return whether the goal is met, or that the rounds disagree."""
        verdicts = {self.met(value) for value in (spread.value, spread.low, spread.high)}
        return "unclear: rounds disagree" if len(verdicts) > 1 else "met" if verdicts.pop() else "MISSED"


@dataclass(frozen=True)
class Line:
    """One line of the report."""

    what: str
    spread: Spread
    #: '×' for a ratio
    unit: str
    goal: Goal | None = None
    digits: int = 2


@dataclass
class Findings:
    """The result of a workload: ratios and goals first, then the figures that they come from."""

    workload: str
    title: str
    ratios: list[Line] = field(default_factory=list)
    figures: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Options:
    repeat: int = 3
    quick: bool = False
    #: where stores are made; must be on a real disk
    folder: str = ""
    #: also with stores of 10,000,000 events (W20)
    large: bool = False

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


# ── taking turns ─────────────────────────────────────────────────────────────────────────────────────────────────


class Samples:
    """What one contender's rounds gave."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = samples

    def of(self, key: str, scale: float = 1.0) -> Spread:
        return spread([sample[key] * scale for sample in self.samples])

    def over(self, other: Samples, key: str) -> Spread:
        """How many times as much as the other: ratio of the medians, range of the rounds' own ratios."""
        rounds = [mine[key] / its[key] for mine, its in zip(self.samples, other.samples, strict=True)]
        return Spread(self.of(key).value / other.of(key).value, min(rounds), max(rounds))

    def best_over(self, other: Samples, key: str) -> Spread:
        """The same of the best rounds: other work on the machine only ever adds."""
        return spread([self.of(key).low / other.of(key).low])


def spread(values: list[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def interleaved(rounds: int, contenders: Mapping[str, Callable[[], Sample]]) -> dict[str, Samples]:
    """Every contender once a round, each round beginning with another one: slow minutes hit all alike."""
    names = list(contenders)
    taken: dict[str, list[Sample]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            try:
                taken[name].append(contenders[name]())
            except Wrong as wrong:
                raise Wrong(f"{name}: {wrong}") from None
    return {name: Samples(samples) for name, samples in taken.items()}


# ── children ─────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Ran:
    """A process that came to its end."""

    wall_s: float
    #: of its largest process
    rss_mib: float
    stdout: str


def run(command: list[str], folder: str, **variables: str) -> Ran:
    """Run a program in `folder`, away from the settings of whoever started us; Wrong unless it exits with 0."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ARCLOG_", "DBOS", "PYTHON"))}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaints:
        started = time.perf_counter()
        env.update(variables, BENCH_T0=repr(time.time()))
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=complaints
        )
        code, rss_kib = _reap(process)
        wall_s = time.perf_counter() - started
        output.seek(0)
        complaints.seek(0)
        stdout = output.read()
        if code:
            tail = "\n".join((complaints.read() + stdout).strip().splitlines()[-15:])
            raise Wrong(f"{' '.join(command)} exited with {code}:\n{tail}")
    return Ran(wall_s, rss_kib / 1024, stdout)


def _reap(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> tuple[int, float]:
    """Wait with the child's resource use; kill what hangs. Exit code and peak KiB."""
    import threading

    killer = threading.Timer(TIMEOUT_S, process.kill)
    killer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    peak = usage.ru_maxrss / 1024 if sys.platform == "darwin" else usage.ru_maxrss
    return process.returncode, peak


def child(script: str, *args: str, folder: str, **variables: str) -> Sample:
    """Run one of bench/children in `folder`; what it printed, and its wall_s and rss_mib."""
    ran = run([sys.executable, os.path.join(CHILDREN, script), *args], folder, **variables)
    try:
        answer = json.loads(ran.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise Wrong(f"{script} printed no answer: {ran.stdout[-500:]!r}") from None
    return {**answer, "wall_s": ran.wall_s, "rss_mib": ran.rss_mib}


def in_new_folder(options: Options, work: Callable[[str], Sample]) -> Callable[[], Sample]:
    """A contender that gets an empty folder every time; what it wrote is on the disk before the next one starts."""

    def contender() -> Sample:
        with tempfile.TemporaryDirectory(dir=options.folder or None, prefix="arclog-bench-") as folder:
            sample = work(folder)
        os.sync()
        return sample

    return contender


def write(folder: str, name: str, text: str) -> str:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def dbos_is_there() -> bool:
    return importlib.util.find_spec("dbos") is not None
