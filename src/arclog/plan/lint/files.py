"""Lint of templates that name files of tasks: `{{ task.files.name }}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from arclog.model.errors import Position
from arclog.plan.compile import Text
from arclog.plan.net import StepPlan
from arclog.playbook.canon import Playbook
from arclog.playbook.walk import Findings


class Outputs(Struct, frozen=True):
    """What a playbook says about files, by step and task."""

    #: names of the files that a task stores; one without any is left out
    names: Mapping[tuple[str, str], frozenset[str]]
    #: tasks that run no tool, or only hand values on
    by_reference: frozenset[tuple[str, str]]
    #: tasks of kinds that open no files and take none by reference
    nowhere: frozenset[tuple[str, str]]


def outputs_of(playbook: Playbook) -> Outputs:
    found: dict[tuple[str, str], frozenset[str]] = {}
    by_reference: set[tuple[str, str]] = set()
    nowhere: set[tuple[str, str]] = set()
    for step in playbook.steps:
        for task in step.tasks:
            outputs = task.config.get("outputs")
            if isinstance(outputs, dict) and outputs:
                found[step.name, task.name] = frozenset(outputs)
            if task.kind.runs_on != "worker" or task.kind.at_once:
                by_reference.add((step.name, task.name))
            elif not task.kind.opens_files and not task.kind.by_ref:
                nowhere.add((step.name, task.name))
    return Outputs(found, frozenset(by_reference), frozenset(nowhere))


def lint_files(
    text: Text,
    own: StepPlan | None,
    steps: Sequence[StepPlan],
    outputs: Outputs,
    findings: Findings,
    place: Callable[[Text, str], Position],
) -> None:
    """Add names of files that no task stores, and places where a file is its reference and not a path."""
    for path in text.paths if outputs.names else ():
        if len(path) < 2 or path[1] != "files":
            continue
        known = _files(path[0], text, own, steps, outputs.names)
        if known is None:
            continue
        words = ".".join(map(str, path[:3]))
        if len(path) > 2 and path[2] not in known:
            hint = findings.did_you_mean(str(path[2]), sorted(known))
            findings.add(
                "unknown-file", f"{words}: {path[0]!r} stores no file of that name", place(text, words), hint, "warning"
            )
        elif (reader := _reader(text, own)) in outputs.nowhere:
            message = f"{words}: a task of this kind opens no files"
            hint = "read the file in a python or shell task, and hand its data on"
            findings.add("file-unread", message, place(text, words), hint, "warning")
        elif len(path) <= 3 and (reader is None or reader in outputs.by_reference):
            hint = "name it in a field of a task that opens files, such as the args of a python task, to get a path"
            message = f"{words} is the reference of the stored file here, not a path"
            findings.add("file-reference", message, place(text, words), hint, "info")


def _files(
    name: str,
    text: Text,
    own: StepPlan | None,
    steps: Sequence[StepPlan],
    outputs: Mapping[tuple[str, str], frozenset[str]],
) -> frozenset[str] | None:
    """The files that a name's view has; None: not known, or its task stores none."""
    if own is not None:
        if name == "outcome" and 0 <= text.task < len(own.tasks):
            return outputs.get((own.name, own.tasks[text.task].name))
        if (own.name, name) in outputs:
            return outputs[own.name, name]
        if any(task.name == name for task in own.tasks):
            return None
    step = next((each for each in steps if each.name == name), None)
    if step is None or not step.tasks:
        return None
    if step.loop is not None:  # its view has the results of all items, and no files
        return frozenset() if (name, step.tasks[-1].name) in outputs else None
    return outputs.get((name, step.tasks[-1].name))


def _reader(text: Text, own: StepPlan | None) -> tuple[str, str] | None:
    """The task whose field the template is."""
    if text.where != "task" or own is None or not 0 <= text.task < len(own.tasks):
        return None
    return own.name, own.tasks[text.task].name
