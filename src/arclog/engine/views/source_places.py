"""Where in the author's file a failure stands: of python code the line itself, of a template its place, else the task.

Pure. The sandbox counts lines from the beginning of `code:`; here they become lines of the file.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from arclog.core.transitions.state import Fault
from arclog.model.errors import ArclogError, Position
from arclog.plan.net import TaskPlan
from arclog.plan.program import Program
from arclog.playbook.yaml.document import Document, Path
from arclog.playbook.yaml.load import load

#: How a template error names its place in the playbook.
_TEMPLATE_AT = re.compile(r" at (\d+):(\d+)$")
_TEXT_MAX = 200


class Place(Struct, frozen=True):
    """A line of the playbook's file. Line 0: unknown."""

    line: int = 0
    #: what stands there
    text: str = ""
    #: the traceback with the lines of the file
    traceback: str = ""


def place_of(program: Program, fault: Fault, task: TaskPlan | None, source: str, file: str = "") -> Place:
    """The place of a fault in the text of its playbook."""
    try:
        document = load(source, file)
    except ArclogError:
        return Place()
    traceback, line = fault.traceback, 0
    if task is not None and fault.traceback:
        traceback, line = _in_file(document, fault, task, file)
    if not line:
        match = _TEMPLATE_AT.search(str((fault.own or fault.error).get("message", "")))
        line = int(match[1]) if match else _position(program, fault, task).line
    return Place(line, document.line(line).strip()[:_TEXT_MAX], traceback)


def _position(program: Program, fault: Fault, task: TaskPlan | None) -> Position:
    if task is not None and task.at.line:
        return task.at
    step = program.steps.get(fault.step)
    return step.plan.at if step is not None else Position()


def _in_file(document: Document, fault: Fault, task: TaskPlan, file: str) -> tuple[str, int]:
    """The traceback with lines of the file, and the line of its last frame; 0 when lines cannot be mapped."""
    if taken := task.files.get("code"):
        return re.sub(
            rf'File "<{re.escape(fault.step)}\.{re.escape(fault.task)}>"', f'File "{taken}"', fault.traceback
        ), 0
    first = _first_line(document, task)
    name = file or "playbook"
    last = 0

    def mapped(match: re.Match[str]) -> str:
        nonlocal last
        if first is None:
            return f'File "{name}, code of {fault.step}.{fault.task}", line {match[1]}'
        last = first + int(match[1]) - 1
        return f'File "{name}", line {last}'

    frame = re.compile(rf'File "<{re.escape(fault.step)}\.{re.escape(fault.task)}>", line (\d+)')
    return frame.sub(mapped, fault.traceback), last


def _first_line(document: Document, task: TaskPlan) -> int | None:
    """The line of the file that is the first line of the task's code; None where YAML folds or escapes it."""
    path = _code_path(document, task)
    if path is None:
        return None
    at = document.at(path)
    opener = document.line(at.line)[at.column - 1 : at.column]
    if opener == "|":
        return at.line + 1
    return at.line if "\n" not in str(task.config.get("code", "")).rstrip("\n") else None


def _code_path(document: Document, task: TaskPlan) -> Path | None:
    """Where the task's code stands: in the task, or in the entry of the workbook that the task names."""
    path = document.path_at(task.at)
    value = _value(document.value, path) if path is not None else None
    if path is None or not isinstance(value, dict):
        return None
    if "code" in value:
        return (*path, "code")
    workbook = document.value.get("workbook")
    for index, entry in enumerate(workbook if isinstance(workbook, list) else ()):
        if isinstance(entry, dict) and "code" in entry and entry.get("code") == task.config.get("code"):
            return ("workbook", index, "code")
    return None


def _value(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value
