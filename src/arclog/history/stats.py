"""Statistics over the runs of a playbook: success rate, durations of runs and steps, and their change by day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec import Struct

from arclog.model.events import Event, is_closing
from arclog.model.ids import timestamp


class RunFacts(Struct, frozen=True):
    """One run."""

    execution_id: str
    state: str
    #: microseconds since 1970
    created_at: int
    #: None if it has not ended
    took_ms: int | None
    #: its step.done and step.failed events
    ends: Sequence[Event]


class StepStats(Struct, frozen=True):
    step: str
    #: number of step runs that were not cut short by the end of the run, and of those that failed
    runs: int
    failed: int
    p50_ms: int | None
    p95_ms: int | None
    #: the longest step run, and the run to which it belongs
    slowest_ms: int | None
    slowest_in: str


class DayStats(Struct, frozen=True):
    """The runs that were requested on one day (UTC)."""

    day: str
    runs: int
    failed: int
    p50_ms: int | None


class Stats(Struct, frozen=True):
    runs: int
    #: by state
    states: dict[str, int]
    #: completed runs divided by completed and failed ones; None if there are neither
    success_rate: float | None
    p50_ms: int | None
    p95_ms: int | None
    #: the slowest first, by p95
    steps: list[StepStats]
    #: the latest first
    days: list[DayStats]


def stats(runs: Sequence[RunFacts]) -> Stats:
    """Return the statistics of runs, which are given newest first."""
    states: dict[str, int] = {}
    for run in runs:
        states[run.state] = states.get(run.state, 0) + 1
    ended = states.get("COMPLETED", 0) + states.get("FAILED", 0)
    took = [run.took_ms for run in runs if run.took_ms is not None and run.state == "COMPLETED"]
    return Stats(
        runs=len(runs),
        states=states,
        success_rate=round(states.get("COMPLETED", 0) / ended, 4) if ended else None,
        p50_ms=percentile(took, 50),
        p95_ms=percentile(took, 95),
        steps=_steps(runs),
        days=[_day(day, list(group)) for day, group in groupby(runs, lambda run: timestamp(run.created_at)[:10])],
    )


def percentile(values: Iterable[int], part: int) -> int | None:
    """Return the smallest value that is not exceeded by at least `part` per cent of the values; None if there
    are none.
    """
    ordered = sorted(values)
    return ordered[-(-len(ordered) * part // 100) - 1] if ordered else None


def _steps(runs: Sequence[RunFacts]) -> list[StepStats]:
    took: dict[str, list[tuple[int, str]]] = {}
    failed: dict[str, int] = {}
    for run in runs:
        for event in run.ends:
            if event.informative or is_closing(event):
                continue
            took.setdefault(event.step, []).append((round(event.duration_ms or 0), run.execution_id))
            failed[event.step] = failed.get(event.step, 0) + (event.type == "step.failed")
    stats: list[StepStats] = []
    for step, durations in took.items():
        times = [ms for ms, _ in durations]
        slowest = max(durations)
        stats.append(
            StepStats(step, len(durations), failed[step], percentile(times, 50), percentile(times, 95), *slowest)
        )
    return sorted(stats, key=lambda stat: (-(stat.p95_ms or 0), stat.step))


def _day(day: str, runs: Sequence[RunFacts]) -> DayStats:
    took = [run.took_ms for run in runs if run.took_ms is not None and run.state == "COMPLETED"]
    return DayStats(day, len(runs), sum(run.state == "FAILED" for run in runs), percentile(took, 50))
