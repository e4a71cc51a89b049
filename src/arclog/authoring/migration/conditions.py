"""Conditions of older releases: the event that they wait for, and the names of a task's result."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from arclog.authoring.migration.source import TEMPLATE, Undecided
from arclog.authoring.spans import scalar

SQL = frozenset({"postgres", "sqlite", "duckdb"})

#: Older conditions for the end of a step, by the current one: `done`, `failed`, or the end of a loop.
_PHASES = {
    "step.exit": "done",
    "call.done": "done",
    "step.done": "done",
    "loop.done": "loop",
    "call.error": "failed",
    "step.failed": "failed",
    "step.enter": "enter",
}
_EVENT = re.compile(r"event\.name\s*==\s*(['\"])([\w.]+)\1")
_EVENTS = re.compile(r"event\.name\s+in\s+[\[(]([^\])]*)[\])]")
_SUCCEEDED = re.compile(
    r"(?:response|result)(?:\s+is\s+defined|\s+is\s+not\s+none)?|event\.status\s*==\s*(['\"])(?:COMPLETED|completed|success)\1"
    r"|error\s+is\s+(?:not\s+defined|undefined|none)|not\s+error"
)
_FAILED = re.compile(
    r"error(?:\s+is\s+(?:defined|not\s+none))?|error\s*!=\s*(?:None|none|null)|response\s+is\s+not\s+defined"
)
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_THIS = r"(?<![\w.])this\b"
_ANSWER = r"(?<![\w.])(?:response|result)\b(?!\s*\()"


class Condition(NamedTuple):
    """A condition of a `case`."""

    #: done, failed, loop (the end of all items) or enter
    phase: str
    #: the other parts of the condition; '' if there are none
    others: str
    #: whether it names the event, or the phase alone
    explicit: bool


def conjuncts(expression: str) -> list[str]:
    """Return the parts of an expression that `and` joins; the whole if another operator binds less."""
    depth, parts, at = 0, [], 0
    for match in re.finditer(rf"{_QUOTED}|[\[({{]|[\])}}]|\b(?:and|or|if)\b", expression):
        word = match[0]
        if word in "[({":
            depth += 1
        elif word in "])}":
            depth -= 1
        elif depth == 0 and word in ("or", "if"):
            return [expression.strip()]
        elif depth == 0 and word == "and":
            parts.append(expression[at : match.start()].strip())
            at = match.end()
    return [*parts, expression[at:].strip()]


def expression_of(node: Any) -> str:
    """The expression of a `when`. Raises Undecided when it is not one."""
    text = " ".join((scalar(node) or "").split())
    bare = text[2:-2].strip() if text.startswith("{{") and text.endswith("}}") else text
    if "{{" not in bare and "{%" not in bare and bare:
        return bare
    # `{{ workload.mode }} == full` compared the rendered texts.
    match = re.fullmatch(r"\{\{\s*([^{}]+?)\s*\}\}\s*(==|!=)\s*['\"]?([\w.-]+)['\"]?", text)
    if match is None:
        raise Undecided(node, "when: it is not one expression", 'one expression between braces: when: "{{ … }}"')
    lowered = " | lower" if match[3] in ("true", "false") else ""
    return f"({match[1]}) | string{lowered} {match[2]} '{match[3]}'" if "|" in match[1] else (
        f"{match[1]} | string{lowered} {match[2]} '{match[3]}'"
    )  # fmt: skip


def condition_of(node: Any) -> Condition:
    """Parse the `when` of a case. Raises Undecided."""
    phases: set[str] = set()
    others: list[str] = []
    explicit = False
    for part in conjuncts(expression_of(node)):
        event, events = _EVENT.fullmatch(part), _EVENTS.fullmatch(part)
        if event or events:
            names = [event[2]] if event else re.findall(r"['\"]([\w.]+)['\"]", events[1] if events else "")
            matching = {_PHASES.get(name, "") for name in names}
            if len(matching) != 1 or "" in matching:
                hint = "event.name is step.done, loop.done or step.failed on an arc"
                raise Undecided(node, f"when: no event here is called {', '.join(names)}", hint)
            phases |= matching
            explicit = True
        elif _SUCCEEDED.fullmatch(part):
            phases.add("done")
            explicit = True
        elif _FAILED.fullmatch(part):
            phases.add("failed")
            explicit = True
        else:
            others.append(part)
    if "failed" in phases:
        phases.discard("done")  # step.exit came after a failure, too
    if "loop" in phases:
        phases.discard("done")
    if len(phases) > 1:
        raise Undecided(node, "when: it tests for a success and a failure", "one condition for each")
    return Condition(next(iter(phases), "done"), " and ".join(others), explicit)


def renamed(expression: str, kind: str, base: str, node: Any) -> str:
    """Return an expression with the current names for a task's result.

    `base` is its container: `outcome`, or the task's label. Raises Undecided if a name is ambiguous.
    """

    def replace(pattern: str, new: str, text: str) -> str:
        both = re.compile(rf"({_QUOTED})|{pattern}")
        return both.sub(lambda match: match[0] if match[1] else match.expand(new), text)

    def asks(pattern: str, text: str) -> bool:
        return any(not match[1] for match in re.finditer(rf"({_QUOTED})|{pattern}", text))

    text = expression
    if asks(rf"{_THIS}(?=\.data\b)", text):
        hint = "{{ LABEL.data.x }}, or {{ LABEL.result.data.x }} where the code returns a map with `data`"
        raise Undecided(node, "this.data: the task's data, or its key `data`", hint)
    text = replace(_THIS, "result", text)
    if kind in SQL:
        if asks(rf"{_ANSWER}(?:\.data)?\.command_\d", text):
            hint = "an SQL task has one statement: {{ LABEL.data }} are its rows, {{ LABEL.result.row_count }} their number"
            raise Undecided(node, "result.command_0: results of several statements", hint)
        text = replace(rf"{_ANSWER}\.(rows|row_count|columns)\b", rf"{base}.result.\2", text)
        text = replace(rf"{_ANSWER}(?:\.data)?", f"{base}.data", text)
    elif kind == "http":
        text = replace(rf"{_ANSWER}\.status_code\b", f"{base}.http.status", text)
        text = replace(rf"{_ANSWER}\.status(?=\s*(?:==|!=|[<>]|in\b)\s*[\[(]?\d)", f"{base}.http.status", text)
        if asks(rf"{_ANSWER}\.status\b", text):
            raise Undecided(
                node,
                "response.status: the status of the call, or of its body",
                "outcome.http.status, or outcome.data.status",
            )
        text = replace(rf"{_ANSWER}\.(headers|url)\b", rf"{base}.result.\2", text)
        text = replace(rf"{_ANSWER}\.(?:data|body)\b", f"{base}.data", text)
        text = replace(rf"{_ANSWER}(?=\.)", f"{base}.data", text)
        text = replace(_ANSWER, f"{base}.result", text)
    else:
        text = replace(_ANSWER, f"{base}.result", text)
    error = r"(?<![\w.])error\b"
    if kind == "http":
        text = replace(rf"{error}\.status(?:_code)?\b", f"{base}.http.status", text)
    text = replace(rf"{error}\.(message|kind|code)\b", rf"{base}.error.\2", text)
    if asks(rf"{error}\.", text):
        raise Undecided(
            node, "error: it has kind, message, code and retryable", "outcome.error.kind, outcome.error.message"
        )
    return replace(rf"{error}(?!['\"])", f"{base}.error", text)


def renamed_in(text: str, kind: str, base: str, node: Any) -> str:
    """A piece of a playbook with `renamed` expressions in its templates."""
    return TEMPLATE.sub(lambda match: renamed(match[0], kind, base, node), text)


def quoted(expression: str) -> str:
    """An expression as the value of a `when`."""
    return '"{{ ' + expression.replace("\\", "\\\\").replace('"', '\\"') + ' }}"'
