"""Compares a run with the expectations of its test. Every difference is one message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.json import encode

from arclog.core.flow.scopes import Views
from arclog.expr import Scope, compile_condition, compile_text
from arclog.model.errors import ExpressionError
from arclog.model.events import REGISTRY, Event
from arclog.testing.playbook_tests.cases import Case
from arclog.testing.playbook_tests.mocks import Call, same
from arclog.testing.playbook_tests.stage import CaseRun

_TOLERANCE_S = 0.0015
_MOST_SHOWN = 600


def failures(case: Case, run: CaseRun) -> list[str]:
    """Return the differences from the expectations of the test; [] if there are none."""
    if run.problem:
        return [run.problem]
    expect = case.expect
    differences: list[str] = []
    expected = expect.get("state", "completed" if "error" not in expect else "failed")
    if run.state != expected:
        because = f": {run.error.get('message')}" if run.error else ""
        differences.append(f"state: expected {expected}, the run {_ended(run.state)}{because}")
    judge = _Judge(case, run)
    for key in ("path", "not_run", "calls", "ctx", "result", "error", "events", "duration_s", "that"):
        if key in expect:
            differences += getattr(judge, key)(expect[key])
    for mock in [] if run.book is None else run.book.unused():
        if not mock.shared:
            differences.append(
                f"line {mock.at.line}: the mock of {mock} answered nothing; was it meant for another step or task?"
            )
    return differences


def path_of(run: CaseRun) -> list[str]:
    """The steps of a run in the order in which they began."""
    return [event.step for event in run.events if event.type == "step.scheduled"]


def _ended(state: str) -> str:
    return "was refused" if state == "refused" else f"is {state}"


class _Judge:
    def __init__(self, case: Case, run: CaseRun) -> None:
        self.run = run
        self.scope = {"workload": case.workload, "ctx": run.ctx, "result": run.result}

    def path(self, steps: list[Any]) -> Iterator[str]:
        taken = path_of(self.run)
        if taken != steps:
            yield f"path: expected {' → '.join(map(str, steps))}\n      took     {' → '.join(taken)}"

    def not_run(self, steps: list[Any]) -> Iterator[str]:
        ran = set(path_of(self.run))
        for step in steps:
            if step in ran:
                yield f"not_run: step {step} ran"

    def calls(self, counts: dict[str, Any]) -> Iterator[str]:
        for name, expected in counts.items():
            step, _, task = name.partition(".")
            made = [call for call in self.run.calls if call.step == step and task in ("", call.task)]
            if isinstance(expected, int):
                if len(made) != expected:
                    yield f"calls.{name}: expected {expected}, there were {len(made)}"
                continue
            configs = expected if isinstance(expected, list) else [expected]
            if len(made) != len(configs):
                yield f"calls.{name}: expected {len(configs)}, there were {len(made)}{_listed(made)}"
                continue
            for index, (call, part) in enumerate(zip(made, configs, strict=True)):
                yield from self.compare(f"calls.{name}[{index}]", call.config, part, partly=True)

    def ctx(self, values: dict[str, Any]) -> Iterator[str]:
        for key, expected in values.items():
            if key not in self.run.ctx:
                names = ", ".join(self.run.ctx) or "nothing"
                yield f"ctx.{key}: not set; ctx has {names}"
            else:
                yield from self.compare(f"ctx.{key}", self.run.ctx[key], expected)

    def result(self, expected: Any) -> Iterator[str]:
        return self.compare("result", self.run.result, expected)

    def error(self, pattern: Any) -> Iterator[str]:
        error = self.run.error
        if error is None:
            yield f"error: expected {_shown(pattern)}, there was none"
            return
        expected = {"message": pattern} if isinstance(pattern, str) else dict(pattern or {})
        message = expected.pop("message", "")
        if str(message) not in str(error.get("message")):
            yield f"error.message: expected a text with {message!r}, got {error.get('message')!r}"
        yield from self.compare("error", error, expected, partly=True)

    def events(self, patterns: list[Any]) -> Iterator[str]:
        remaining = iter(self.run.events)
        for index, expected in enumerate(patterns):
            part = {"type": expected} if isinstance(expected, str) else dict(expected)
            if part.get("type") not in REGISTRY:
                yield f"events[{index}]: there is no event type {part.get('type')!r}"
                return
            if not any(self.is_event(event, part) for event in remaining):
                yield f"events[{index}]: no {_shown(expected)} came after the one before"
                return

    def is_event(self, event: Event, part: dict[str, Any]) -> bool:
        fields = {
            "type": event.type,
            "step": event.step,
            "task": event.task,
            "run": event.run,
            "payload": event.payload,
        }
        fields |= {"status": event.status or REGISTRY[event.type].statuses[0], "attempt": event.attempt or 1}
        fields["item"] = None if event.iteration is None else ".".join(map(str, event.iteration))
        if isinstance(part.get("item"), int):
            part = {**part, "item": str(part["item"])}
        return not list(self.compare("", fields, part, partly=True))

    def duration_s(self, expected: Any) -> Iterator[str]:
        took = self.run.duration_s
        if isinstance(expected, Mapping):
            low, high = expected.get("min", 0), expected.get("max", float("inf"))
            if not low <= took <= high:
                yield f"duration_s: expected {_shown(expected)}, took {took:g} virtual seconds"
        elif abs(took - float(expected)) > _TOLERANCE_S:
            yield f"duration_s: expected {expected:g}, took {took:g} virtual seconds"

    def that(self, conditions: Any) -> Iterator[str]:
        own = {**self.scope, "state": self.run.state, "duration_s": self.run.duration_s, "error": self.run.error}
        scope = Scope(own, Views(self.run.steps))
        for condition in conditions if isinstance(conditions, list) else [conditions]:
            try:
                if not compile_condition(condition).evaluate(scope):
                    yield f"that: {condition} is false"
            except ExpressionError as problem:
                yield f"that: {condition}: {problem}"

    def compare(self, where: str, value: Any, expected: Any, *, partly: bool = False) -> Iterator[str]:
        """Differences of two values. A text that is one template is a condition on `value`."""
        if isinstance(expected, str) and expected.startswith("{{") and expected.endswith("}}"):
            try:
                answer = compile_text(expected).evaluate({**self.scope, "value": value})
            except ExpressionError as problem:
                yield f"{where}: {expected}: {problem}"
                return
            if answer is not True and not (answer is not False and same(value, answer)):
                yield f"{where}: {expected} does not hold for {_shown(value)}"
        elif isinstance(expected, Mapping) and isinstance(value, Mapping):
            for key, part in expected.items():
                if key not in value:
                    yield f"{where}.{key}: expected {_shown(part)}, it is not there"
                else:
                    yield from self.compare(f"{where}.{key}", value[key], part, partly=partly)
            for key in () if partly else value:
                if key not in expected:
                    yield f"{where}.{key}: not expected, it is {_shown(value[key])}"
        elif isinstance(expected, list) and isinstance(value, list) and len(expected) == len(value):
            for index, part in enumerate(expected):
                yield from self.compare(f"{where}[{index}]", value[index], part, partly=partly)
        elif not same(value, expected):
            yield f"{where}: expected {_shown(expected)}\n{' ' * len(where)}  got      {_shown(value)}"


def _shown(value: Any) -> str:
    text = encode(value).decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}… ({len(text):,} characters)"


def _listed(calls: list[Call]) -> str:
    return "" if not calls else ": " + "; ".join(f"{call} {_shown(call.config)}" for call in calls[:5])


def snapshot_of(run: CaseRun) -> dict[str, Any]:
    """The part of a run that a snapshot contains."""
    error = None if run.error is None else {key: run.error.get(key) for key in ("kind", "message", "code", "step")}
    calls = [[call.step, call.task, ".".join(map(str, call.item)), call.attempt, call.config] for call in run.calls]
    return {
        "state": run.state,
        "path": path_of(run),
        "calls": calls,
        "ctx": run.ctx,
        "result": run.result,
        "error": error,
    }


def as_json(value: Any) -> bytes:
    return msgspec.json.format(encode(value, order="deterministic"), indent=2) + b"\n"
