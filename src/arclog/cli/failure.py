"""Why a run failed, for people: which step and task, what kind of error, where in the playbook, what to do next."""

from __future__ import annotations

from typing import Any

from arclog.cli.render import Out, clean, clip, indented
from arclog.model.events import CLOSING_REASONS
from arclog.ports.api import Api, Summary

_PAGE = 1000
_MOST_PAGES = 50
_TRACEBACK_LINES = 15


async def explained(api: Api, summary: Summary, out: Out, file: str = "") -> str:
    """The lines below the verdict of a failed or cancelled run."""
    error = summary.error or {}
    if summary.state == "CANCELLED":
        return indented(clean(f"reason: {error.get('message') or 'none given'}"))
    failed = await _last_failures(api, summary.execution_id)
    step = error.get("step") or (failed["step.failed"] or {}).get("step") or ""
    task_event = failed["task.failed"]
    if task_event is None or task_event.get("step") != step:
        task_event = {}
    task = error.get("task") or task_event.get("task") or ""
    place = " · ".join(part for part in (f"step {step}" if step else "", f"task {task}" if task else "") if part)
    if task_event.get("attempt", 1) > 1:
        place += f" · attempt {task_event['attempt']}"
    if "iteration" in task_event:
        place += f" · item {task_event['iteration']}"
    message = clean(str(error.get("message") or "no message"))
    code = f" ({clean(str(error['code']))})" if error.get("code") else ""
    head = out.paint(clean(str(error.get("kind") or "error")), "red", "bold") + code
    lines = [f"{place}: {head}: {message}" if place else f"{head}: {message}"]
    where = await _where(api, summary.execution_id, step, task, file)
    lines += [out.paint(line, "dim") for line in (*where, *_traceback(task_event))]
    return indented("\n".join(lines))


def next_commands(execution_id: str, out: Out) -> str:
    commands = (
        f"arclog why {execution_id}     why it ended so",
        f"arclog events {execution_id}  every decision",
        f"arclog logs {execution_id}    what its tasks printed",
    )
    return indented("\n".join(out.paint(command, "dim") for command in commands))


async def _last_failures(api: Api, execution_id: str) -> dict[str, dict[str, Any] | None]:
    """The last event of each failing type; an endless list of failures is read only so far."""
    last: dict[str, dict[str, Any] | None] = {"step.failed": None, "task.failed": None}
    after = 0
    for _ in range(_MOST_PAGES):
        page = await api.events(execution_id, after=after, limit=_PAGE, types=tuple(last))
        for event in page:
            if not event.get("informative") and event["payload"].get("reason") not in CLOSING_REASONS:
                last[event["event_type"]] = event
        if len(page) < _PAGE:
            break
        after = page[-1]["seq"]
    return last


async def _where(api: Api, execution_id: str, step: str, task: str, file: str) -> list[str]:
    """`file:line:column` and the source line of the step or task; nothing when it cannot be found."""
    if not step:
        return []
    from arclog.model.errors import ArclogError
    from arclog.playbook.document import lines_of
    from arclog.playbook.load import load

    try:
        source = await api.source(execution_id)
        document = load(source, file)
    except ArclogError:
        return []
    path = _path_of(document.value, step, task)
    if not path:
        return []
    at = document.at(path)
    line = clean(lines_of(source)[at.line - 1].strip()) if at.line else ""
    return [f"at {file or 'playbook'}:{at.line}:{at.column}  {clip(line, 100)}"]


def _path_of(playbook: Any, step: str, task: str) -> tuple[str | int, ...]:
    """Where a task (else its step) stands in a playbook."""
    workflow = playbook.get("workflow") if isinstance(playbook, dict) else None
    for number, entry in enumerate(workflow if isinstance(workflow, list) else []):
        if not isinstance(entry, dict) or entry.get("step") != step:
            continue
        tool = entry.get("tool")
        for index, one in enumerate(tool if isinstance(tool, list) else []):
            if task and isinstance(one, dict) and one.get("name", f"task_{index}") == task:
                return ("workflow", number, "tool", index)
        return ("workflow", number)
    return ()


def _traceback(task_event: dict[str, Any]) -> list[str]:
    """The end of a python task's traceback."""
    outcome = task_event.get("payload", {}).get("outcome") or {}
    text = (outcome.get("py") or {}).get("traceback")
    if not isinstance(text, str) or not text.strip():
        return []
    lines = clean(text.rstrip()).split("\n")
    cut = ["…"] if len(lines) > _TRACEBACK_LINES else []
    return [*cut, *lines[-_TRACEBACK_LINES:]]
