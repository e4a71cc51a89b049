"""Lint for authors: mistakes that a plan can have and still run, or fail with only once it does.

`arclog check` and editors ask for it (`build(…, thorough=True)`); a run does not pay for it. Codes: docs/findings.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from arclog.model.errors import Position
from arclog.plan.compile import Compiled, Text
from arclog.plan.lint.conditions import AFTER_ERROR, truth
from arclog.plan.lint.files import lint_files, outputs_of
from arclog.plan.lint.python import lint_python
from arclog.plan.lint.tasks import lint_task
from arclog.plan.net import StepPlan, TaskRule
from arclog.playbook.canon import Playbook, Step
from arclog.playbook.schema import ITER_KEYS, has_template
from arclog.playbook.walk import Findings

#: Keys of every view of a step or task; others are looked up in its data.
_VIEW_KEYS = frozenset({"status", "data", "result", "error", "meta", "results", "files"})
#: Texts beyond this are machine-made.
_LONG = 10_000


def lint(compiled: Compiled, playbook: Playbook, findings: Findings) -> None:
    """Add what an author should look at."""
    _Lint(compiled, playbook, findings).all()


class _Lint:
    def __init__(self, compiled: Compiled, playbook: Playbook, findings: Findings) -> None:
        self.plan = compiled.plan
        self.playbook = playbook
        self.findings = findings
        self.texts: list[list[Text]] = [[] for _ in self.plan.steps]
        self.others: list[Text] = []
        for text in compiled.texts:
            (self.texts[text.step] if text.step >= 0 else self.others).append(text)
        self.labels = {step.name: [task.name for task in step.tasks] for step in self.plan.steps}

    def all(self) -> None:
        # A task of a kind that is not known is not compiled: what its templates read is not known either.
        is_whole = not any(finding.code == "unknown-kind" for finding in self.findings.errors)
        linted: set[str] = set()
        outputs = outputs_of(self.playbook)
        for number, (step, source) in enumerate(zip(self.plan.steps, self.playbook.steps, strict=True)):
            texts = self.texts[number]
            if is_whole:
                self.step_args(source, texts)
            self.items(source)
            known = self.iter_keys(step)
            for text in texts:
                self.foreign_tasks(text, step.name)
                lint_files(text, step, self.plan.steps, outputs, self.findings, self.place)
                if is_whole:
                    self.iter_uses(text, step, known)
                self.workload_uses(text)
            for task, written in zip(step.tasks, source.tasks, strict=True):
                lint_task(written, self.findings)
                lint_python(written, self.findings, linted)
                if task.policy is not None:
                    self.delays(task.policy.rules, task.at)
                if task.policy is not None and task.kind != "noop":
                    self.swallowed(task.policy.rules, task.name)
        for text in self.others:
            self.foreign_tasks(text, "")
            lint_files(text, None, self.plan.steps, outputs, self.findings, self.place)
            self.workload_uses(text)

    # --- steps ------------------------------------------------------------------------------------------------------

    def step_args(self, step: Step, texts: list[Text]) -> None:
        """Args of a step that no template of it reads."""
        if not step.args:
            return
        paths = [path for text in texts for path in text.paths if path and path[0] == "args"]
        if any(len(path) == 1 for path in paths):
            return
        read = {path[1] for path in paths}
        for key in step.args:
            if key not in read and not key.startswith("x-"):
                hint = f'give it to the task: args: {{{key}: "{{{{ args.{key} }}}}"}}; step args reach templates, not tools'
                self.findings.key(
                    "unused-args",
                    f"nothing in step {step.name!r} reads args.{key}",
                    (*step.path, "args", key),
                    hint,
                    "warning",
                )

    def items(self, step: Step) -> None:
        loop = step.loop
        while loop is not None:
            if isinstance(loop.items, str) and not has_template(loop.items):
                name = re.sub(r"\W", "_", loop.items)[:40] or "items"
                hint = f'a list, or a template that gives one: in: "{{{{ {name} }}}}"'
                self.findings.value(
                    "loop-in-text", f"loop.in is the text {loop.items[:40]!r}, not a list", (*loop.path, "in"), hint
                )
            loop = loop.inner

    def delays(self, rules: tuple[TaskRule, ...], at: Position) -> None:
        """Delays that `max_delay` cuts short."""
        for rule in rules:
            action = rule.then
            longest = max(action.delays, default=action.delay)
            if action.do == "retry" and longest > action.max_delay:
                message = f"retry: a delay of {longest:g} s is cut to max_delay, {action.max_delay:g} s"
                place = rule.at if rule.at.line else at
                self.findings.add("retry-delay", message, place, f"max_delay: {longest:g}", "warning")

    # --- templates --------------------------------------------------------------------------------------------------

    def foreign_tasks(self, text: Text, own: str) -> None:
        """`{{ other_step.its_task.… }}`: a step's view is that of its last task."""
        for path in text.paths:
            if len(path) < 2 or path[0] == own or path[0] not in self.labels:
                continue
            step, task = path[0], path[1]
            labels = self.labels[step]
            if task in labels and task not in _VIEW_KEYS and not self.has_data(step, task):
                if labels[-1] == task:
                    hint = f"{step} is the view of its last task, which is {task}: write {step}.{'.'.join(path[2:]) or 'data'}"
                else:
                    hint = f"the tasks of a step are known inside it only: keep the value with set_ctx, or make {task} the last task"
                message = f"{step}.{task}: {task!r} is a task of step {step!r}, not a key of its result"
                self.findings.add("foreign-task", message, self.place(text, f"{step}.{task}"), hint, "warning")

    def has_data(self, step: str, key: str) -> bool:
        source = next(one for one in self.playbook.steps if one.name == step)
        data = source.tasks[-1].config.get("data") if source.tasks else None
        return isinstance(data, Mapping) and key in data

    def iter_keys(self, step: StepPlan) -> list[set[str]]:
        """Keys of `iter` from the innermost level out."""
        own: set[str] = set()
        for task in step.tasks:
            for rule in task.policy.rules if task.policy is not None else ():
                own.update(rule.then.set_iter or ())
        levels: list[set[str]] = []
        loop = step.loop
        while loop is not None:
            levels.append({loop.iterator, *ITER_KEYS})
            loop = loop.inner
        levels.reverse()
        if not levels:
            return [own]
        levels[0] |= own
        return levels

    def iter_uses(self, text: Text, step: StepPlan, levels: list[set[str]]) -> None:
        if text.where not in ("task", "policy", "sugar"):
            return
        for path in text.paths:
            if path[:1] != ("iter",) or len(path) < 2:
                continue
            depth, rest = 0, path[1:]
            while rest[0] == "parent" and len(rest) > 1 and depth < len(levels) - 1:
                depth, rest = depth + 1, rest[1:]
            key = rest[0]
            if key in levels[depth] or _is_guarded(".".join(("iter", *path[1:])), text.source):
                continue
            known = sorted(levels[depth])
            if step.loop is None:
                message = f"iter.{key}: step {step.name!r} has no loop, and no rule of it sets iter.{key}"
                hint = f"add loop: {{in: …, iterator: {key}}}, or set it with set_iter"
            else:
                message = f"{'.'.join(path[: depth + 2])}: iter has no key {key!r} here"
                hint = self.findings.did_you_mean(key, known)
            self.findings.add("unknown-iter", message, self.place(text, ".".join(path[: depth + 2])), hint, "warning")

    def workload_uses(self, text: Text) -> None:
        """`workload.idz` beside a key `ids`."""
        workload = {**self.plan.workload, **self.playbook.inputs}
        for path in text.paths:
            if path[:1] != ("workload",) or len(path) < 2 or path[1] in workload:
                continue
            if _is_guarded(f"workload.{path[1]}", text.source):
                continue
            near = self.findings.nearest(path[1], workload)
            hint = (
                f"did you mean {near}?"
                if near
                else f"declare it under executor.spec.inputs, give it a default under workload:, or write workload.{path[1]} | default(…)"
            )
            message = f"workload.{path[1]}: the playbook declares no such key, and a run without it fails"
            severity = "warning" if near else "info"
            self.findings.add("unknown-workload", message, self.place(text, f"workload.{path[1]}"), hint, severity)

    def swallowed(self, rules: tuple[TaskRule, ...] | list[TaskRule], task: str) -> None:
        """An else that goes on although an error may come to it."""
        for rule in rules:
            if rule.when is None:
                if rule.then.do == "continue":
                    message = f"errors of task {task!r} that no rule before matches are passed over by this else"
                    hint = "put {when: \"{{ outcome.status == 'error' }}\", then: {do: fail}} before it"
                    self.findings.add("error-swallowed", message, rule.at, hint, "info")
                return
            if truth(rule.when, AFTER_ERROR):
                return

    def place(self, text: Text, words: str) -> Position:
        """Where some words of a template stand; else the template's own place."""
        document = self.findings.document
        for number in range(text.at.line, text.at.line + min(text.source.count("\n"), 200) + 2):
            line = document.line(number)
            if len(line) <= _LONG:
                at = line.find(words, text.at.column - 1 if number == text.at.line else 0)
                if at >= 0:
                    return Position(number, at + 1)
        return text.at


def _is_guarded(path: str, source: str) -> bool:
    """Whether the author provides for a path to be missing."""
    if len(source) > _LONG:
        return True
    pattern = rf"{re.escape(path)}\b[\w.\[\]'\"]*\s*(\|\s*(default|d)\b|is\s+(not\s+)?(un)?defined)"
    return re.search(pattern, source) is not None or bool(list(_tested(path, source)))


def _tested(path: str, source: str) -> Iterator[str]:
    """The path as a condition of its own: `… if iter.page else 1`, `iter.page and …`."""
    for match in re.finditer(rf"(?:\bif\s+|\bnot\s+)?{re.escape(path)}\s+(?:else|and|or)\b", source):
        yield match.group()
