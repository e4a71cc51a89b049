"""The account of a run, for people: what failed, the root cause with its line and traceback, and the next actions.

It renders `ports.views.insight.Account` for `run`, `show` and `why`. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from arclog.cli.render import Out, clean, clip, indented, one_line

if TYPE_CHECKING:
    from arclog.ports.views.api import Summary
    from arclog.ports.views.insight import Cause, Problem

_TRACEBACK_LINES = 15
#: Failed items of one step that are named; `--json` has more.
_ITEMS_SHOWN = 3
_COLOURS = {"failed": "red", "items": "yellow", "denied": "dim", "cancelled": "dim"}


def account(summary: Summary, out: Out) -> str:
    """The lines below the verdict of a run; '' if there are none."""
    lines: list[str] = []
    if summary.state == "CANCELLED":
        lines.append(clean(f"reason: {(summary.error or {}).get('message') or 'none given'}"))
    elif summary.cause is not None:
        lines += cause_lines(summary.cause, out)
    elif summary.error is not None:
        lines.append(f"{summary.error.get('kind')}: {clean(str(summary.error.get('message')))}")
    lines += problem_lines(summary.problems, out, summary.cause)
    return indented("\n".join(lines)) if lines else ""


def cause_lines(cause: Cause, out: Out) -> list[str]:
    """Return the root cause: its place, its message, the line of the file, the traceback, the rule that let it fail."""
    via = [f"{call} →" for call in cause.calls()]
    if via:
        via.append(f"run {cause.execution_id}{':' if cause.step else ''}")
    place = [f"step {cause.step}"] if cause.step else []
    place += [f"item {cause.iteration}"] if cause.iteration else []
    place += [f"task {cause.task}"] if cause.task else []
    place += [f"attempt {cause.attempt}"] if cause.attempt > 1 else []
    code = f" ({cause.code})" if cause.code and not cause.message.startswith(cause.code) else ""
    where = " ".join([*via, " · ".join(place)]).strip()
    head = out.paint(clean(cause.kind), "red", "bold") + clean(code)
    message = clean(cause.message)
    lines = [f"{clean(where)}: {head}: {message}" if where else f"{head}: {message}"]
    lines += [out.paint(line, "dim") for line in (*_source_line(cause), *_traceback(cause.traceback))]
    if cause.rule:
        lines.append(clean(cause.rule))
    return lines


def problem_lines(problems: Sequence[Problem], out: Out, cause: Cause | None = None) -> list[str]:
    """Further problems; the step of the root cause is not repeated."""
    lines: list[str] = []
    for problem in problems:
        if problem.what == "failed" and cause is not None and (problem.step == cause.step or cause.via):
            continue
        lines.append(out.paint(one_line(problem.text), _COLOURS.get(problem.what, "dim")))
        if cause is not None and [error.item for error in problem.errors] == [cause.iteration]:
            continue
        for error in problem.errors[:_ITEMS_SHOWN]:
            task = f" · {error.task}" if error.task else ""
            text = one_line(f"item {error.item}{task}: {error.kind}: {error.message}")
            lines.append(out.paint(f"  {clip(text, 200)}", "dim"))
        if len(problem.errors) > _ITEMS_SHOWN:
            lines.append(out.paint("  …", "dim"))
    return lines


def next_lines(commands: Sequence[str], out: Out) -> str:
    return indented("\n".join(out.paint(command, "dim") for command in commands))


def _source_line(cause: Cause) -> list[str]:
    if not cause.line:
        return []
    column = cause.at.partition(":")[2] if cause.at.partition(":")[0] == str(cause.line) else ""
    where = f"{cause.file or 'playbook'}:{cause.line}{f':{column}' if column else ''}"
    return [f"at {clean(where)}  {clip(one_line(cause.source), 100)}".rstrip()]


def _traceback(text: str) -> list[str]:
    """The end of a traceback: it names the line that failed."""
    if not text.strip():
        return []
    lines = clean(text.rstrip()).split("\n")
    cut = ["…"] if len(lines) > _TRACEBACK_LINES else []
    return [*cut, *lines[-_TRACEBACK_LINES:]]
