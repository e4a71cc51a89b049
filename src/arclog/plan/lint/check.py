"""Lint: parts of a plan that its author cannot have intended. Every code is in docs/findings.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from arclog.model.config.settings import Settings
from arclog.model.errors import Position
from arclog.model.status import RESERVED_SIGNALS
from arclog.plan.compile import Compiled, Text
from arclog.plan.lint.conditions import AFTER_ERROR, boundary_names, compared, on_failure, on_success, truth
from arclog.plan.lint.flow import check_flow, check_parallel
from arclog.plan.lint.keychain import check_keychain
from arclog.plan.lint.soundness import Soundness, check_soundness
from arclog.plan.net import AdmitRule, ArcPlan, StepPlan, TaskPlan, TaskRule
from arclog.playbook.canon import Playbook, Rule, Task
from arclog.playbook.schema import has_template
from arclog.playbook.walk import Findings

_SERVER = frozenset({"event", "args", "ctx", "workload", "execution_id", "run"})
_TASK = frozenset({"args", "iter", "ctx", "workload", "keychain", "_prev", "_task", "_attempt", "execution_id", "run"})
_POLICY = (_TASK - {"keychain"}) | {"outcome"}
#: Names in scope by the location of a template, besides task labels (in tasks), step names and workload keys.
SCOPES: dict[str, frozenset[str]] = {
    "admit": _SERVER,
    "args": _SERVER,
    "loop": _SERVER,
    "inner loop": _SERVER | {"iter"},
    "task": _TASK,
    "policy": _POLICY,
    "sugar": _POLICY - {"outcome", "_task", "_attempt"},
    "arc": _SERVER | {"outcome"},
    "result": frozenset({"ctx", "workload", "execution_id", "run"}),
}
#: Additional names in the final step.
FINAL_NAMES = frozenset({"event", "outcome", "error"})
_IN_TASKS = frozenset({"task", "policy", "sugar"})
_WHERE = {
    "admit": "an admission rule",
    "args": "step args",
    "loop": "loop.in",
    "inner loop": "loop.in",
    "task": "a task's field",
    "policy": "a task's policy",
    "sugar": "choose, while and until",
    "arc": "an arc",
    "result": "executor.spec.result",
}
#: Names for the result of a task in older releases and other tools.
_OLD_ANSWERS = frozenset({"result", "response", "this", "self", "output"})
_DATA = "read a step's data by the step's name: {{ STEP.data }}"
_GIVEN = "values that a run is given are workload.NAME"
_WHEN = "run.started_at is the time at which the run began: {{ run.started_at | date_format('%Y-%m-%d') }}"
#: Names in other tools → the name here; NAME stands for the part after the dot.
_FOREIGN = {
    **dict.fromkeys(("steps", "needs", "outputs", "ti", "task_instance", "tasks", "xcom", "jobs"), _DATA),
    **dict.fromkeys(("inputs", "params", "parameters", "dag_run", "github", "flow", "context"), _GIVEN),
    **dict.fromkeys(("env", "var", "vars", "conf", "envs"), f"{_GIVEN}; secrets are keychain.NAME of a keychain entry"),
    **dict.fromkeys(
        ("secrets", "secret", "credentials", "conn"), "secrets are keychain.NAME.value of a keychain entry"
    ),
    **dict.fromkeys(
        ("ds", "ts", "ds_nodash", "execution_date", "logical_date", "data_interval_start", "trigger"), _WHEN
    ),
    **dict.fromkeys(
        ("matrix", "taskrun", "item", "each"), "the item of a loop is iter.NAME, where NAME is loop.iterator"
    ),
    **dict.fromkeys(("execution", "run_id", "workflow_id"), "the id of the run is execution_id"),
}
#: Those of them that have values directly below them.
_PLAIN = frozenset({"inputs", "params", "parameters", "github", "env", "vars", "secrets"})
_EVERY_NAME = frozenset().union(*SCOPES.values())

#: Maximum length of a text that is linted; longer ones are generated, and patterns would only cost time.
_LONG = 10_000


def check(compiled: Compiled, playbook: Playbook, findings: Findings, settings: Settings) -> None:
    """Add all findings that follow from the plan itself."""
    _Check(compiled, playbook, findings, settings).all()


class _Check:
    def __init__(self, compiled: Compiled, playbook: Playbook, findings: Findings, settings: Settings) -> None:
        self.settings = settings
        self.plan = compiled.plan
        self.texts = compiled.texts
        self.playbook = playbook
        self.findings = findings

    @cached_property
    def step_names(self) -> frozenset[str]:
        return frozenset(step.name for step in self.plan.steps)

    @cached_property
    def labels(self) -> list[frozenset[str]]:
        """Task labels of each step."""
        return [frozenset(task.name for task in step.tasks) for step in self.plan.steps]

    def all(self) -> None:
        for step, labels, source in zip(self.plan.steps, self.labels, self.playbook.steps, strict=True):
            for arc in step.arcs:
                self.arc_target(arc)
            self.arc_order(step)
            self.order(step.admit or (), source.admit or ())
            for task, written in zip(step.tasks, source.tasks, strict=True):
                self.task(task, written, labels)
        for text in self.texts:
            self.names(text)
            self.comparisons(text)
        self.workload()
        self.reachable()
        self.endless()
        self.resources()
        check_flow(self.plan, self.playbook, self.findings, self.settings.integer("playbook.max_join_work"))
        check_keychain(self.playbook, self.texts, self.findings)
        check_parallel(self.plan, self.findings)

    # --- arcs and steps -----------------------------------------------------------------------------------------

    def arc_target(self, arc: ArcPlan) -> None:
        if arc.target and arc.target not in self.step_names:
            hint = self.findings.did_you_mean(arc.target, self.step_names)
            self.findings.add("unknown-step", f"there is no step {arc.target!r}", arc.at, hint)

    def arc_order(self, step: StepPlan) -> None:
        """Report arcs that never match: by themselves, or because in exclusive routing an earlier arc always does."""
        taken: dict[str, ArcPlan] = {}
        for arc in step.arcs:
            cases = {"success": on_success(step, arc), "failure": on_failure(step, arc)}
            possible = [case for case, matches in cases.items() if matches is not False]
            if not possible and not any(self.strange_events(step, str(arc.when))):
                self.findings.add("dead-rule", "this arc can never match", arc.at, "remove it", "warning")
            elif possible and all(case in taken for case in possible):
                message = f"this arc can never match: the arc at {taken[possible[0]].at} takes every {possible[0]}"
                self.findings.add("dead-rule", message, arc.at, "put the arc without a condition last", "warning")
            if step.mode == "exclusive":
                for case, matches in cases.items():
                    if matches:
                        taken.setdefault(case, arc)

    def order(self, rules: Sequence[AdmitRule | TaskRule], written: Sequence[Rule]) -> None:
        """Report rules that never match: by themselves, or because an earlier rule always does."""
        for index, (rule, source) in enumerate(zip(rules, written, strict=True)):
            matches = None if rule.when is None or source.flawed else truth(rule.when)
            if matches is False:
                self.findings.add("dead-rule", "this rule can never match", rule.at, "remove it", "warning")
            elif matches and index < len(rules) - 1:
                message = "this rule can never match: the one before it always does"
                self.findings.add("dead-rule", message, rules[index + 1].at, severity="warning")
                break

    def reachable(self) -> None:
        if self.plan.entry not in self.step_names:
            return
        steps = {step.name: step for step in self.plan.steps}
        open_names = [name for name in (self.plan.entry, self.plan.final_step) if name in steps]
        seen = set(open_names)
        while open_names:
            for arc in steps[open_names.pop()].arcs:
                if arc.target in steps and arc.target not in seen:
                    seen.add(arc.target)
                    open_names.append(arc.target)
        for step in self.plan.steps:
            if step.name and step.name not in seen:
                message = f"no arc leads from {self.plan.entry!r} to step {step.name!r}: it never runs"
                self.findings.add("unreachable-step", message, step.at, "add an arc to it, or remove it", "warning")
        check_soundness(self.soundness, self.findings, seen)

    @cached_property
    def soundness(self) -> Soundness:
        most = self.settings.integer("playbook.max_markings")
        return Soundness(self.plan, most, self.settings.integer("playbook.max_join_work"))

    @cached_property
    def cycles(self) -> list[frozenset[str]]:
        return _cycles(self.plan.steps)

    def endless(self) -> None:
        """Report cycles of steps that no success leaves."""
        by_name = {step.name: (number, step) for number, step in enumerate(self.plan.steps)}
        for names in self.cycles:
            steps = [step for _, step in sorted((by_name[name] for name in names), key=lambda row: row[0])]
            if all(_stays(step, names) for step in steps):
                way = " → ".join(step.name for step in steps[:6]) + (" → …" if len(steps) > 6 else "")
                message = f"the steps {way} form a cycle without a way out"
                if self.plan.entry in self.step_names and self.plan.entry not in names:
                    first = min(steps, key=lambda step: len(self.soundness.way_to(step.name)))
                    message += f"; a run comes to it by {self.soundness.way_to(first.name)}"
                hint = f"give an arc a condition; limits.max_step_runs ({self.plan.limits.max_step_runs:,}) ends it otherwise"
                self.findings.add("endless-cycle", message, steps[0].at, hint, "warning")

    def resources(self) -> None:
        """Report resource names: only operators can limit a resource, so a misspelled name has no limit."""
        names: dict[str, Position] = {}
        for step in self.plan.steps:
            for name in step.resources:
                names.setdefault(name, step.at)
        for name, at in names.items():
            hint = f"`arclog resource list` shows those that are bounded; `arclog resource set {name} --rate 10/s` bounds it"
            self.findings.add(
                "named-resource", f"resource {name} has no limit unless operators set one", at, hint, "info"
            )

    # --- tasks --------------------------------------------------------------------------------------------------

    def task(self, task: TaskPlan, written: Task, labels: frozenset[str]) -> None:
        if task.kind == "shell":
            command = task.config.get("command", task.config.get("cmd"))
            if has_template(command):
                hint = "write the command as a list: each item is one argument, whatever it holds"
                self.findings.add(
                    "shell-template", "a template inside a shell text is open to injection", task.at, hint, "info"
                )
        if task.kind == "wait" and task.config.get("signal") in RESERVED_SIGNALS:
            message = f"signal {task.config['signal']} means something to the run itself: it never ends a wait"
            self.findings.add("reserved-signal", message, task.at, "wait for a name of your own", "warning")
        if task.policy is None:
            return
        rules = task.policy.rules
        self.order(rules, written.rules or ())
        for rule in rules:
            if rule.then.do == "jump" and rule.then.to and rule.then.to not in labels:
                hint = self.findings.did_you_mean(rule.then.to, labels)
                if rule.then.to in self.step_names:
                    hint = "a jump stays within the task list; another step is reached by next: {arcs: […]}"
                self.findings.add(
                    "unknown-task", f"jump: there is no task {rule.then.to!r} in this list", rule.at, hint
                )
        if task.policy.on_unmatched == "continue" and task.kind != "noop" and not _catch_errors(rules):
            message = f"an error of task {task.name!r} that matches no rule is ignored (on_unmatched: continue)"
            hint = "end the rules with {else: {then: {do: …}}}, or set on_unmatched: fail"
            self.findings.add("error-falls-through", message, task.at, hint, "warning")

    # --- templates ----------------------------------------------------------------------------------------------

    def workload(self) -> None:
        """Report templates in the workload, which are never rendered."""
        pending: list[tuple[Any, tuple[str | int, ...]]] = [(self.playbook.workload, ("workload",))]
        while pending and not self.findings.full:
            value, path = pending.pop()
            if isinstance(value, dict):
                pending += [(item, (*path, key)) for key, item in value.items() if isinstance(key, str)]
            elif isinstance(value, list):
                pending += [(item, (*path, index)) for index, item in enumerate(value)]
            elif has_template(value) and path[1] not in self.plan.inputs:
                message = "the workload is not rendered: this template stays a text"
                hint = "write the template where the value is used, in a task's field or in step args"
                self.findings.value("workload-template", message, path, hint, "warning")

    def names(self, text: Text) -> None:
        scope = SCOPES[text.where]
        if text.step >= 0 and self.plan.steps[text.step].name == self.plan.final_step:
            scope = scope | FINAL_NAMES
        for name in sorted(text.free):
            if name in scope or name in self.step_names or name in self.plan.workload or name in self.plan.inputs:
                continue
            step = self.plan.steps[text.step] if text.step >= 0 else None
            labels = self.labels[text.step] if step is not None and text.where in _IN_TASKS else frozenset[str]()
            if name in labels:
                continue
            if name == "keychain":
                message = f"keychain cannot be used in {_WHERE[text.where]}: secrets reach task fields only"
                self.findings.add(
                    "keychain-misplaced",
                    message,
                    self.name_at(name, text),
                    "use it in a field of the task that needs it",
                )
            elif not self.findings.full and not _guarded(name, text.source):
                message = f"nothing called {name!r} is in scope in {_WHERE[text.where]}"
                hint = self.name_hint(name, text, step, labels)
                self.findings.add("unknown-name", message, self.name_at(name, text), hint, "warning")

    def name_at(self, name: str, text: Text) -> Position:
        """Return the location of a name if the line shows it, else of the template."""
        line = self.findings.document.line(text.at.line)
        if len(line) > _LONG:
            return text.at
        match = re.compile(rf"(?<![\w.'\"]){re.escape(name)}\b").search(line, text.at.column - 1)
        return Position(text.at.line, match.start() + 1) if match is not None else text.at

    def name_hint(self, name: str, text: Text, step: StepPlan | None, labels: frozenset[str]) -> str:
        loop = step.loop if step is not None else None
        while loop is not None:
            if loop.iterator == name:
                if "iter" in SCOPES[text.where]:
                    return f"the loop's item is iter.{name}"
                return f"the item is known inside the loop only: its tasks see it as iter.{name}"
            loop = loop.inner
        if step is not None and name in self.labels[text.step]:
            return f"a task's label is known inside its step only; the step's view is {step.name}"
        if name in _EVERY_NAME:
            places = [_WHERE[where] for where, names in SCOPES.items() if name in names]
            extra = "; use _prev or a task's label" if name == "outcome" and text.where in _IN_TASKS else ""
            return f"{name} is known in {', '.join(dict.fromkeys(places))}{extra}"
        if "args" in SCOPES[text.where] and step is not None and name in self.args_of(step):
            return f"an arg of the step is args.{name}"
        if name in _OLD_ANSWERS:
            if "outcome" in SCOPES[text.where]:
                return "the result of the task is outcome: outcome.data, outcome.result, outcome.error"
            return "read the result of a step or task by its name, and that of the previous task as _prev"
        if name in _FOREIGN:
            part = re.search(rf"\b{name}\.(\w+)", text.source)
            return _FOREIGN[name].replace("NAME", part[1] if part and name in _PLAIN else "NAME")
        near = self.findings.patience > 0 and self.findings.nearest(
            name, [*SCOPES[text.where], *labels, *self.step_names, *self.plan.workload]
        )
        if near:
            return f"did you mean {near}?"
        return f"give it a default under workload:, or write workload.{name} if every request provides it"

    def args_of(self, step: StepPlan) -> set[str]:
        """Return the names of the args that a step and the arcs to it provide."""
        arcs = [arc for other in self.plan.steps for arc in other.arcs if arc.target == step.name]
        return {*(step.args or ()), *(key for arc in arcs for key in arc.args or ())}

    def comparisons(self, text: Text) -> None:
        if len(text.source) > _LONG:
            return
        if "outcome" in text.free:
            for _, value in compared(text.source, ("outcome", "status"), ("ok", "error")):
                hint = "an http status is outcome.http.status" if value.isdigit() else ""
                message = f"outcome.status is 'ok' or 'error', never {value!r}"
                self.findings.add("outcome-status", message, text.at, hint, "warning")
        if "status" in text.source and "{%" not in text.source:
            self.statuses(text)
        if "event" in text.free and text.step >= 0:
            step = self.plan.steps[text.step]
            if text.where == "arc":
                loop = "with" if step.loop is not None else "without"
                where, possible = f"on the arcs of a step {loop} a loop", set(boundary_names(step))
            else:
                where, possible = f"where step {step.name} is reached", self.arrivals[step.name]
            for op, value in compared(text.source, ("event", "name"), possible):
                if op == "eq":
                    hint = f"use {' or '.join(sorted(possible))}" if possible else ""
                    self.findings.add("event-name", f"event.name is never {value!r} {where}", text.at, hint, "warning")

    def statuses(self, text: Text) -> None:
        """Report comparisons of the `status` of a step, a label or _prev with values that it never has."""
        views = self.step_names | {"_prev"}
        if text.where in _IN_TASKS and text.step >= 0:
            views |= self.labels[text.step]
        for name in sorted(text.free & views):
            for _, value in compared(text.source, (name, "status"), ("ok", "error")):
                hint = f"a key `status` of the data is {name}.data.status"
                if value.isdigit():
                    hint = f"an http status is {name}.http.status"
                message = f"{name}.status is 'ok' or 'error', never {value!r}"
                self.findings.add("outcome-status", message, text.at, hint, "warning")

    @cached_property
    def arrivals(self) -> dict[str, set[str]]:
        """The possible values of `event.name` when a step is reached."""
        events_by_step: dict[str, set[str]] = {step.name: set() for step in self.plan.steps}
        events_by_step.setdefault(self.plan.entry, set()).add("playbook.started")
        if self.plan.final_step:
            events_by_step[self.plan.final_step] = {"workflow.finished"}
        for step in self.plan.steps:
            done, failed = boundary_names(step)
            for arc in step.arcs:
                events_by_step.setdefault(arc.target, set()).update((done, failed) if arc.sees_failure else (done,))
        return events_by_step

    def strange_events(self, step: StepPlan, when: str) -> Iterator[str]:
        """Return event names in a condition that its step never has; they have their own finding."""
        for _, value in compared(when, ("event", "name"), boundary_names(step)):
            yield value


def _catch_errors(rules: Sequence[TaskRule]) -> bool:
    """Return whether every error outcome matches a rule."""
    return any(rule.when is None for rule in rules) or any(truth(rule.when, AFTER_ERROR) for rule in rules)


def _guarded(name: str, source: str) -> bool:
    """Return whether the author handles a missing name."""
    if len(source) > _LONG:
        return False
    pattern = rf"\b{re.escape(name)}\b[\w.\[\]'\"]*\s*(\|\s*(default|d)\b|is\s+(not\s+)?(un)?defined)"
    return re.search(pattern, source) is not None


def _stays(step: StepPlan, names: frozenset[str]) -> bool:
    """Return whether every success of a step is routed back into the cycle."""
    if step.admit is not None or any(arc.target not in names for arc in step.arcs):
        return False
    return any(on_success(step, arc) for arc in step.arcs)


def _cycles(steps: tuple[StepPlan, ...]) -> list[frozenset[str]]:
    """Return the strongly connected groups of steps that contain a cycle (Tarjan, without recursion)."""
    targets = {step.name: [arc.target for arc in step.arcs] for step in steps}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    cycles: list[frozenset[str]] = []
    for root in targets:
        if root in index:
            continue
        work: list[tuple[str, int]] = [(root, 0)]
        while work:
            name, position = work.pop()
            if position == 0:
                index[name] = low[name] = len(index)
                path.append(name)
                on_path.add(name)
            descended = False
            for offset in range(position, len(targets[name])):
                target = targets[name][offset]
                if target not in targets:
                    continue
                if target not in index:
                    work += [(name, offset + 1), (target, 0)]
                    descended = True
                    break
                if target in on_path:
                    low[name] = min(low[name], index[target])
            if descended:
                continue
            if work and work[-1][0] in low:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[name])
            if low[name] == index[name]:
                group: list[str] = []
                while True:
                    member = path.pop()
                    on_path.discard(member)
                    group.append(member)
                    if member == name:
                        break
                if len(group) > 1 or name in targets[name]:
                    cycles.append(frozenset(group))
    return cycles
