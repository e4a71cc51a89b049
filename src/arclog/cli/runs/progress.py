"""The progress of a run, built from its events: running steps, their progress and duration. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import filterfalse
from typing import Any

import msgspec

from arclog.cli.render import Out, clip, duration, one_line, width_of
from arclog.model.ids import micros
from arclog.model.outcome import is_consequence

# ── bars ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Progress bars: amount, rate and remaining time. No I/O.

WIDTH = 24
#: a rate over less time than this is too inexact
_SHORTEST_S = 0.2
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Report(msgspec.Struct, frozen=True):
    """Progress that a task reported, as its line in the log has it."""

    done: float
    total: float | None = None
    unit: str = ""


class Reported:
    """The progress that a task reports, from the first to the latest."""

    __slots__ = ("_begun", "_first", "at", "attempt", "report")

    def __init__(self, attempt: tuple[Any, ...], report: Report, at: int) -> None:
        #: identifies the attempt that reports it
        self.attempt = attempt
        self.report = report
        self.at = at
        self._first = report.done
        self._begun = at

    def advance(self, report: Report, at: int) -> None:
        if report.done < self.report.done:  # it started again
            self._first, self._begun = report.done, at
        self.report = report
        self.at = at

    @property
    def rate(self) -> float:
        """Per second; 0 while it is unknown."""
        seconds = (self.at - self._begun) / 1e6
        return (self.report.done - self._first) / seconds if seconds > _SHORTEST_S else 0.0

    @property
    def text(self) -> str:
        """Amount, rate and remaining time."""
        report = self.report
        facts = [_count(report)]
        if self.rate > 0:
            facts.append(f"{_amount(self.rate, report.unit, rate=True)}/s")
            if report.total:
                facts.append(f"{duration(max(0.0, report.total - report.done) / self.rate)} left")
        return " · ".join(facts)

    def line(self, columns: int, branch: str, out: Out) -> str:
        report, text = self.report, self.text
        if not report.total:
            return f"{out.paint(branch, 'dim')}   {out.paint(clip(text, max(columns - 8, 10)), 'dim')}"
        return bar(report.done / report.total, text, columns, branch, out)


def reported(line: Mapping[str, Any]) -> Report | None:
    """The content of a line of the stream `progress`; None if it is invalid."""
    try:
        return msgspec.json.decode(line["text"], type=Report)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def reported_text(text: str) -> str:
    """The same as text, for the log."""
    progress = reported({"text": text})
    return text if progress is None else _count(progress)


def bar(part: float, text: str, columns: int, branch: str, out: Out) -> str:
    """A line with a bar that is filled to a part, followed by text."""
    filled = max(0, min(WIDTH, int(part * WIDTH)))
    drawn = out.paint("█" * filled, "green") + out.paint("░" * (WIDTH - filled), "dim")
    return f"{out.paint(branch, 'dim')}   {drawn} {out.paint(clip(text, max(columns - WIDTH - 8, 10)), 'dim')}"


def per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def _count(report: Report) -> str:
    """`12/48 rows`, `3.0 MiB/1.0 GiB`, or without a total `12 rows`."""
    done = _amount(report.done, report.unit)
    text = done if report.total is None else f"{done}/{_amount(report.total, report.unit)}"
    return text if _is_bytes(report.unit) or not report.unit else f"{text} {report.unit}"


def _amount(number: float, unit: str, *, rate: bool = False) -> str:
    if _is_bytes(unit):
        power = 0
        while number >= 1024 and power < len(_SIZES) - 1:
            number /= 1024
            power += 1
        return f"{number:.0f} {_SIZES[power]}" if power == 0 else f"{number:.1f} {_SIZES[power]}"
    if rate:
        return per_second(number).removesuffix("/s")
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"


def _is_bytes(unit: str) -> bool:
    return unit.lower() in ("b", "byte", "bytes")


# ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: The event types that the display of a run needs.
SHOWN_TYPES = (
    "playbook.request.evaluated",
    "playbook.started",
    "playbook.paused",
    "playbook.resumed",
    "signal.received",
    "playbook.finished",
    "execution.cancelled",
    "step.scheduled",
    "step.started",
    "step.done",
    "step.failed",
    "task.started",
    "task.attempt.started",
    "loop.started",
    "loop.iteration.done",
    "loop.iteration.failed",
    "loop.done",
    "policy.admit.evaluated",
    "policy.task.evaluated",
    "command.completed",
)
#: The subset that is needed after the run has ended: the rest is detail of work in progress.
FINAL_TYPES = tuple(
    name
    for name in SHOWN_TYPES
    if not name.startswith(("task.", "loop.iteration.", "command.")) and name != "policy.task.evaluated"
)
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class Loop:
    """The progress of the loop in a step's latest run."""

    __slots__ = ("done", "failed", "in_order", "since", "total")

    def __init__(self, total: int, since: int, *, in_order: bool) -> None:
        self.total = total
        self.since = since
        #: items end in their order, so that the index shows how many are done
        self.in_order = in_order
        self.done = 0
        self.failed = 0

    @property
    def text(self) -> str:
        """`997 ok, 3 failed`, or `12/20 items` when none failed."""
        if self.failed:
            return f"{self.done - self.failed:,} ok, {self.failed:,} failed"
        return f"{self.done:,}/{self.total:,} items"


class Step:
    """One step, all its runs together."""

    __slots__ = ("attempt", "due", "error", "loop", "name", "open", "reported", "runs", "seconds", "since", "started",
                 "status", "task", "waits")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        #: queued | running | done | failed | skipped | cancelled
        self.status = "queued"
        #: a worker has begun the latest run
        self.started = False
        #: its task waits for a time, a signal, an approval or a child
        self.waits = False
        self.runs = 0
        #: when each open run was scheduled, by step_run_id
        self.open: dict[str, int] = {}
        self.since = 0
        #: of the latest ended run
        self.seconds: float | None = None
        self.task = ""
        self.attempt = 1
        #: when the next retry is due
        self.due = 0
        self.loop: Loop | None = None
        #: the progress of its tasks, by name; that of earlier attempts is dropped
        self.reported: dict[str, Reported] = {}
        self.error = ""

    @property
    def shown_report(self) -> Reported | None:
        """The report of the running task; in a loop the bar shows the loop."""
        if not self.open or self.loop is not None:
            return None
        return self.reported.get(self.task)


class Progress:
    """The displayed data of one run. `apply` takes its events in order."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self.ended = False
        #: the state that stops the whole run: 'pausing', 'paused', 'waits for approval'; '' if there is none
        self.held = ""
        #: steps whose run ended since they were last taken: (step, run, status, seconds, error or failed items)
        self.ends: list[tuple[str, int, str, float | None, str]] = []

    def apply(self, event: Mapping[str, Any]) -> None:
        kind = event["event_type"]
        if event.get("informative"):
            return  # an event from outside, which is not part of the run's own work
        if kind in ("playbook.finished", "execution.cancelled"):
            self.ended = True
            self.held = ""
            for unfinished in self.steps.values():
                if unfinished.open:
                    unfinished.open.clear()
                    unfinished.status = "cancelled"
            return
        if kind.startswith(("playbook.", "signal.")):
            self.held = _held(kind, event, self.held)
            return
        name = event.get("step")
        if not name:
            return
        step = self.steps.get(name)
        if step is None:
            if kind == "policy.admit.evaluated" and event.get("status") != "skipped":
                return
            step = self.steps[name] = Step(name)
        getattr(self, "_" + kind.replace(".", "_"), _ignore)(step, event, micros(event["timestamp"]))

    def advance(self, line: Mapping[str, Any]) -> None:
        """Take a line of the stream `progress`."""
        step, report = self.steps.get(line["step"]), reported(line)
        if step is None or report is None:
            return
        attempt = (line.get("step_run"), line.get("task_run"), line["attempt"], line.get("iteration"))
        at = micros(line["timestamp"])
        previous = step.reported.get(line["task"])
        if previous is None or previous.attempt != attempt:
            step.reported[line["task"]] = Reported(attempt, report, at)
        else:
            previous.advance(report, at)

    def _policy_admit_evaluated(self, step: Step, event: Mapping[str, Any], _at: int) -> None:
        if event.get("status") == "skipped" and not step.open:
            step.status = "skipped"

    def _step_scheduled(self, step: Step, event: Mapping[str, Any], at: int) -> None:
        step.runs += 1
        step.open[event.get("step_run_id", "")] = at
        step.status, step.started, step.waits = "queued", False, False
        step.since = at
        step.task, step.attempt, step.due, step.loop, step.error = "", 1, 0, None, ""
        step.reported.clear()

    def _step_started(self, step: Step, event: Mapping[str, Any], at: int) -> None:
        run = event.get("step_run_id", "")
        if run in step.open:
            step.open[run] = step.since = at
            step.status, step.started = "running", True

    def _step_done(self, step: Step, event: Mapping[str, Any], at: int) -> None:
        self._end(step, event, at, "skipped" if event.get("status") == "skipped" else "done")

    def _step_failed(self, step: Step, event: Mapping[str, Any], at: int) -> None:
        error = event.get("payload", {}).get("error") or {}
        step.error = one_line(f"{error.get('kind', 'error')}: {error.get('message', '')}") if error else "failed"
        self._end(step, event, at, "cancelled" if is_consequence(error) else "failed")

    def _end(self, step: Step, event: Mapping[str, Any], at: int, status: str) -> None:
        run_id = event.get("step_run_id", "")
        since = step.open.pop(run_id, None)
        duration_ms = event.get("duration_ms")
        if duration_ms is not None:
            step.seconds = duration_ms / 1000
        elif since is not None:
            step.seconds = (at - since) / 1e6
        if not step.open:
            step.status = status
        run = run_id.rpartition(":")[2]
        detail = step.error if status == "failed" else step.loop.text if step.loop and step.loop.failed else ""
        self.ends.append((step.name, int(run) if run.isdigit() else step.runs, status, step.seconds, detail))

    def _task_started(self, step: Step, event: Mapping[str, Any], _at: int) -> None:
        step.task = event.get("task", "")
        step.attempt = event.get("attempt") or 1
        step.due = 0
        step.waits = False

    def _command_completed(self, step: Step, event: Mapping[str, Any], _at: int) -> None:
        step.waits = event.get("payload", {}).get("reason") == "suspended"

    _task_attempt_started = _task_started

    def _policy_task_evaluated(self, step: Step, event: Mapping[str, Any], _at: int) -> None:
        step.due = event.get("payload", {}).get("due") or 0

    def _loop_started(self, step: Step, event: Mapping[str, Any], at: int) -> None:
        payload = event.get("payload", {})
        if event.get("iteration_id"):
            return  # of a nested loop: only the outermost items are counted
        step.loop = Loop(int(payload.get("total") or 0), at, in_order=payload.get("mode", "sequential") == "sequential")

    def _loop_iteration_done(self, step: Step, event: Mapping[str, Any], _at: int) -> None:
        loop = step.loop
        path = event.get("iteration_id", "").rpartition(":")[2]
        if loop is None or "." in path:
            return
        loop.done += 1
        if loop.in_order and path.isdigit():
            loop.done = max(loop.done, int(path) + 1)

    def _loop_iteration_failed(self, step: Step, event: Mapping[str, Any], at: int) -> None:
        error = event.get("payload", {}).get("error") or {}
        if step.loop is None or "." in event.get("iteration_id", "") or is_consequence(error):
            return
        self._loop_iteration_done(step, event, at)
        step.loop.failed += 1

    def _loop_done(self, step: Step, event: Mapping[str, Any], _at: int) -> None:
        payload = event.get("payload", {})
        if step.loop is not None and not event.get("iteration_id"):
            step.loop.total = int(payload.get("total") or step.loop.total)
            step.loop.failed = int(payload.get("failed") or 0)
            step.loop.done = step.loop.total


def _held(kind: str, event: Mapping[str, Any], before: str) -> str:
    payload = event.get("payload", {})
    if kind == "playbook.request.evaluated":
        return "waits for approval" if payload.get("waits_for") == "approval" else ""
    if kind == "playbook.paused":
        return "paused"
    if kind != "signal.received":
        return ""
    if event.get("status") != "error" and payload.get("signal") == "PAUSE":
        return "pausing"
    return "" if event.get("status") != "error" and payload.get("signal") == "RESUME" else before


def _ignore(_step: Step, _event: Mapping[str, Any], _at: int) -> None:
    """Ignore an event type that does not change the display."""


def tree(progress: Progress, now: int, columns: int, most_lines: int, out: Out) -> list[str]:
    """Return the steps as lines. If not all fit, the steps that ended first are omitted."""
    steps = _fitting(list(progress.steps.values()), max(most_lines, 3))
    hidden = len(progress.steps) - len(steps)
    name_width = min(max((width_of(step.name) for step in steps), default=0), 40)
    lines = [out.paint(f"├─ … {hidden:,} more", "dim")] if hidden else []
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        lines.append(_step_line(step, now, columns, name_width, "└─" if last else "├─", out))
        below = _bar_line(step, now, columns, "  " if last else "│ ", out)
        if below:
            lines.append(below)
    if progress.held:
        lines.append(out.paint(f"‖ {progress.held}", "yellow"))
    return lines


def _fitting(steps: list[Step], room: int) -> list[Step]:
    """Return as many steps as fit, in order: the running ones first, then the latest."""
    if sum(map(_height, steps)) <= room:
        return steps
    room_left = room - 1  # a line shows how many are hidden
    names = set()
    latest_first = steps[::-1]
    for step in (*filter(_is_open, latest_first), *filterfalse(_is_open, latest_first)):
        room_left -= _height(step)
        if room_left < 0:
            break
        names.add(step.name)
    return [step for step in steps if step.name in names]


def _is_open(step: Step) -> bool:
    return bool(step.open)


def _height(step: Step) -> int:
    return 2 if step.open and (step.loop is not None or step.shown_report is not None) else 1


def _step_line(step: Step, now: int, columns: int, name_width: int, branch: str, out: Out) -> str:
    if step.open:
        frame = out.paint(_FRAMES[now // 100_000 % len(_FRAMES)], "cyan")
        mark = frame if step.started and not step.waits else out.mark("queued")
        seconds: float | None = (now - step.since) / 1e6
    else:
        mark = out.mark(step.status)
        seconds = step.seconds
    name = clip(step.name, name_width)
    facts = []
    if step.runs > 1:
        facts.append(f"×{step.runs:,}")
    if seconds is not None:
        facts.append(duration(seconds))
    if step.open and not step.started:
        facts.append("queued")
    elif step.open and step.waits and step.due <= now:
        facts.append("waits")
    if step.open and step.task:
        facts.append(step.task + (f" · attempt {step.attempt}" if step.attempt > 1 else ""))
    if step.open and step.due > now:
        facts.append(f"retry in {duration((step.due - now) / 1e6)}")
    if step.loop is not None and not step.open:
        facts.append(step.loop.text)
    pad = " " * (name_width - width_of(name))
    tail = clip("  ".join(facts), max(columns - name_width - 7, 10))
    line = f"{out.paint(branch, 'dim')} {mark} {name}{pad}  {out.paint(tail, 'dim')}".rstrip()
    if step.status == "failed" and step.error:
        width = columns - 7 - name_width - width_of(tail) - 2
        if width > 20:
            line += "  " + out.paint(clip(step.error, width), "red")
    return line


def progress_text(step: Step, now: int) -> str:
    """The progress of a loop or a task, as one line without a bar; '' if there is none."""
    loop, report = step.loop, step.shown_report
    if report is not None:
        return f"{step.name}  {report.text}"
    if loop is None or not step.open or not loop.total:
        return ""
    failed = f" · {loop.failed:,} failed" if loop.failed else ""
    return f"{step.name}  {_loop_facts(loop, now)}{failed}"


def _loop_facts(loop: Loop, now: int) -> str:
    facts = [f"{loop.done:,}/{loop.total:,}"]
    seconds = (now - loop.since) / 1e6
    if loop.done and seconds > 0.2:
        rate = loop.done / seconds
        facts.append(per_second(rate))
        facts.append(f"{duration((loop.total - loop.done) / rate)} left")
    return " · ".join(facts)


def _bar_line(step: Step, now: int, columns: int, branch: str, out: Out) -> str:
    """The bar below a step whose loop is running, or whose task reports progress; '' for any other."""
    loop, report = step.loop, step.shown_report
    if report is not None:
        return report.line(columns, branch, out)
    if loop is None or not step.open or not loop.total:
        return ""
    failed = out.paint(f" · {loop.failed:,} failed", "red") if loop.failed else ""
    return bar(loop.done / loop.total, _loop_facts(loop, now), columns, branch, out) + failed
