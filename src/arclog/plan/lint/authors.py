"""Lint for authors: mistakes with which a plan can still run, or that fail only at run time.

`arclog check` and editors request it (`build(…, thorough=True)`); runs do not. Codes: docs/findings.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from arclog.model.config.kinds import OUTPUT_NAME
from arclog.model.errors import Position
from arclog.plan.compile import Compiled, Text
from arclog.plan.lint.conditions import AFTER_ERROR, truth
from arclog.plan.lint.python import lint_python
from arclog.plan.net import StepPlan, TaskRule
from arclog.playbook.canon import Playbook, Step, Task
from arclog.playbook.document import Path, texts
from arclog.playbook.schema import ITER_KEYS, has_template
from arclog.playbook.walk import Findings

# Lint of task fields: implausible http requests, and secrets in plain text.


METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "QUERY",
    "PROPFIND",
    "REPORT",
)
_BODIES = ("json", "form", "multipart", "body", "content")
#: scheme://user:password@host, where the password is not a template. Every part is bounded, so that matching takes
#: linear time.
_PASSWORD = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^/\s:@{}]{1,100}:([^@\s{}]{1,200})@", re.IGNORECASE)
_KEYWORD_PASSWORD = re.compile(r"\bpassword\s*=\s*(?!['\"]?\{\{)([^\s;'\"{}]+)", re.IGNORECASE)
_BEARER = re.compile(r"^\s*(Bearer|Basic|Token)\s+(?!\{\{)[A-Za-z0-9._~+/=-]{8,}\s*$")
_SECRET_KEYS = re.compile(r"(password|passwd|api[_-]?key|secret|token)$", re.IGNORECASE)
_KEYCHAIN = "declare it under keychain: and write {{ keychain.NAME.value }}, or name the entry with auth:"


def lint_task(task: Task, findings: Findings) -> None:
    """Add findings about the fields of one task."""
    if task.kind.name == "http":
        _request(task, findings)
    if isinstance(outputs := task.config.get("outputs"), dict):
        _outputs(task, outputs, findings)
    for inner, text in texts(task.config):
        if inner[:1] in (("code",), ("command",), ("script",)) and len(text) > 2_000:
            continue
        _secret(inner, text, task, findings)


def _request(task: Task, findings: Findings) -> None:
    config = task.config
    bodies = [key for key in _BODIES if key in config and config[key] is not None]
    if len(bodies) > 1:
        message = f"a request has one body, not {' and '.join(bodies)}"
        findings.key("two-bodies", message, task.locate((bodies[1],)), f"keep {bodies[0]} or {bodies[1]}", "warning")
    method = config.get("method")
    if isinstance(method, str) and not has_template(method) and method.upper() not in METHODS:
        near = findings.nearest(method.upper(), METHODS)
        hint = f"did you mean {near}?" if near else f"the usual ones: {', '.join(METHODS[:6])}"
        findings.value(
            "http-method", f"method: {method[:40]!r} is not a HTTP method", task.locate(("method",)), hint, "warning"
        )
    elif isinstance(method, str) and method.upper() in ("GET", "HEAD") and bodies:
        message = f"a {method.upper()} request with {bodies[0]}: most servers ignore its body"
        findings.key("http-body", message, task.locate((bodies[0],)), "method: POST, or give it as params:", "warning")
    url = config.get("url")
    if isinstance(url, str) and url.strip() and not url.lstrip().startswith("{{") and not re.match(r"https?://", url):
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", url)
        message = f"url: {url[:60]!r} has {'the scheme ' + scheme[1] if scheme else 'no scheme'}"
        hint = "http:// or https://" if scheme else f"did you mean https://{url[:60].lstrip('/')}?"
        findings.value("url-scheme", message, task.locate(("url",)), hint, "warning")


def _outputs(task: Task, outputs: dict[str, Any], findings: Findings) -> None:
    for name, path in outputs.items():
        where = task.locate(("outputs", name))
        if not OUTPUT_NAME.fullmatch(name):
            hint = "letters, digits and _, at most 64, no digit first"
            findings.key("output-name", f"outputs: {name[:40]!r} cannot be the name of a file", where, hint)
        elif not isinstance(path, str) or not path:
            findings.value(
                "output-path", f"outputs.{name} must be the path of a file", where, "for example out/report.csv"
            )
        elif not has_template(path) and (path.endswith("/") or ".." in path.split("/")):
            hint = "a file in the working directory, or $ARCLOG_SCRATCH/name"
            findings.value(
                "output-path", f"outputs.{name}: {path[:60]!r} is not a file in the task's folders", where, hint
            )


def _secret(inner: Path, text: str, task: Task, findings: Findings) -> None:
    where = task.locate(inner)
    if _BEARER.match(text):
        scheme = text.split(maxsplit=1)[0]
        findings.value(
            "literal-secret", f"{inner[-1]}: a {scheme} credential is written out", where, _KEYCHAIN, "warning"
        )
    elif _PASSWORD.search(text) or (inner[-1] in ("dsn", "connection", "url") and _KEYWORD_PASSWORD.search(text)):
        findings.value("literal-secret", f"{inner[-1]}: a password is written out", where, _KEYCHAIN, "warning")
    elif (
        len(inner) > 1
        and isinstance(inner[-1], str)
        and _SECRET_KEYS.search(inner[-1])
        and inner[0] in ("headers", "params", "env", "auth", "connection")
        and len(text) >= 8
        and not has_template(text)
    ):
        findings.value("literal-secret", f"{inner[-1]}: a secret is written out", where, _KEYCHAIN, "warning")


# Lint of templates that name files of tasks: `{{ task.files.name }}`.


class Outputs(Struct, frozen=True):
    """The declared files of a playbook, by step and task."""

    #: names of the files that a task stores; tasks without files are left out
    names: Mapping[tuple[str, str], frozenset[str]]
    #: tasks that run no tool, or only pass values on
    by_reference: frozenset[tuple[str, str]]
    #: tasks of kinds that neither open files nor accept them by reference
    nowhere: frozenset[tuple[str, str]]


def outputs_of(playbook: Playbook) -> Outputs:
    outputs_by_task: dict[tuple[str, str], frozenset[str]] = {}
    by_reference: set[tuple[str, str]] = set()
    nowhere: set[tuple[str, str]] = set()
    for step in playbook.steps:
        for task in step.tasks:
            outputs = task.config.get("outputs")
            if isinstance(outputs, dict) and outputs:
                outputs_by_task[step.name, task.name] = frozenset(outputs)
            if task.kind.runs_on != "worker" or task.kind.at_once:
                by_reference.add((step.name, task.name))
            elif not task.kind.opens_files and not task.kind.by_ref:
                nowhere.add((step.name, task.name))
    return Outputs(outputs_by_task, frozenset(by_reference), frozenset(nowhere))


def lint_files(
    text: Text,
    own: StepPlan | None,
    steps: Sequence[StepPlan],
    outputs: Outputs,
    findings: Findings,
    place: Callable[[Text, str], Position],
) -> None:
    """Add findings for names of files that no task stores, and for places where a file is a reference, not a path."""
    for path in text.paths if outputs.names else ():
        if len(path) < 2 or path[1] != "files":
            continue
        names = _files(path[0], text, own, steps, outputs.names)
        if names is None:
            continue
        words = ".".join(map(str, path[:3]))
        if len(path) > 2 and path[2] not in names:
            hint = findings.did_you_mean(str(path[2]), sorted(names))
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
    """Return the files of a name's view; None if they are unknown, or if its task stores none."""
    if own is not None:
        if name == "outcome" and 0 <= text.task < len(own.tasks):
            return outputs.get((own.name, own.tasks[text.task].name))
        if (own.name, name) in outputs:
            return outputs[own.name, name]
        if any(task.name == name for task in own.tasks):
            return None
    step = next((step for step in steps if step.name == name), None)
    if step is None or not step.tasks:
        return None
    if step.loop is not None:  # its view has the results of all items and no files
        return frozenset() if (name, step.tasks[-1].name) in outputs else None
    return outputs.get((name, step.tasks[-1].name))


def _reader(text: Text, own: StepPlan | None) -> tuple[str, str] | None:
    """Return the task whose field the template is; None if it is none."""
    if text.where != "task" or own is None or not 0 <= text.task < len(own.tasks):
        return None
    return own.name, own.tasks[text.task].name


#: Keys of every view of a step or task; other keys are looked up in its data.
_VIEW_KEYS = frozenset({"status", "data", "result", "error", "meta", "results", "files"})
#: Maximum length of a text that is linted; longer ones are generated.
_LONG = 10_000


def lint(compiled: Compiled, playbook: Playbook, findings: Findings) -> None:
    """Add findings that an author should look at."""
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
        # A task of an unknown kind is not compiled, so the names that its templates read are unknown as well.
        is_whole = not any(finding.code == "unknown-kind" for finding in self.findings.errors)
        linted: set[str] = set()
        outputs = outputs_of(self.playbook)
        for number, (step, source) in enumerate(zip(self.plan.steps, self.playbook.steps, strict=True)):
            texts = self.texts[number]
            if is_whole:
                self.step_args(source, texts)
            self.items(source)
            iter_keys = self.iter_keys(step)
            for text in texts:
                self.foreign_tasks(text, step.name)
                lint_files(text, step, self.plan.steps, outputs, self.findings, self.place)
                if is_whole:
                    self.iter_uses(text, step, iter_keys)
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
        """Report args of a step that none of its templates reads."""
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
        """Report delays that `max_delay` cuts."""
        for rule in rules:
            action = rule.then
            longest = max(action.delays, default=action.delay)
            if action.do == "retry" and longest > action.max_delay:
                message = f"retry: a delay of {longest:g} s is cut to max_delay, {action.max_delay:g} s"
                place = rule.at if rule.at.line else at
                self.findings.add("retry-delay", message, place, f"max_delay: {longest:g}", "warning")

    # --- templates --------------------------------------------------------------------------------------------------

    def foreign_tasks(self, text: Text, own: str) -> None:
        """Report `{{ other_step.its_task.… }}`: the view of a step is that of its last task."""
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
        source = next(candidate for candidate in self.playbook.steps if candidate.name == step)
        data = source.tasks[-1].config.get("data") if source.tasks else None
        return isinstance(data, Mapping) and key in data

    def iter_keys(self, step: StepPlan) -> list[set[str]]:
        """Return the keys of `iter`, from the innermost level outward."""
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
            depth, keys = 0, path[1:]
            while keys[0] == "parent" and len(keys) > 1 and depth < len(levels) - 1:
                depth, keys = depth + 1, keys[1:]
            key = keys[0]
            if key in levels[depth] or _is_guarded(".".join(("iter", *path[1:])), text.source):
                continue
            names = sorted(levels[depth])
            if step.loop is None:
                message = f"iter.{key}: step {step.name!r} has no loop, and no rule of it sets iter.{key}"
                hint = f"add loop: {{in: …, iterator: {key}}}, or set it with set_iter"
            else:
                message = f"{'.'.join(path[: depth + 2])}: iter has no key {key!r} here"
                hint = self.findings.did_you_mean(key, names)
            self.findings.add("unknown-iter", message, self.place(text, ".".join(path[: depth + 2])), hint, "warning")

    def workload_uses(self, text: Text) -> None:
        """Report unknown workload keys, such as `workload.idz` with a key `ids`."""
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
        """Report an else that continues after errors."""
        for rule in rules:
            if rule.when is None:
                if rule.then.do == "continue":
                    message = f"errors of task {task!r} that no earlier rule matches are ignored by this else"
                    hint = "put {when: \"{{ outcome.status == 'error' }}\", then: {do: fail}} before it"
                    self.findings.add("error-swallowed", message, rule.at, hint, "info")
                return
            if truth(rule.when, AFTER_ERROR):
                return

    def place(self, text: Text, words: str) -> Position:
        """Return the location of some words of a template, or of the template itself."""
        document = self.findings.document
        for number in range(text.at.line, text.at.line + min(text.source.count("\n"), 200) + 2):
            line = document.line(number)
            if len(line) <= _LONG:
                at = line.find(words, text.at.column - 1 if number == text.at.line else 0)
                if at >= 0:
                    return Position(number, at + 1)
        return text.at


def _is_guarded(path: str, source: str) -> bool:
    """Return whether the author handles a missing path."""
    if len(source) > _LONG:
        return True
    pattern = rf"{re.escape(path)}\b[\w.\[\]'\"]*\s*(\|\s*(default|d)\b|is\s+(not\s+)?(un)?defined)"
    return re.search(pattern, source) is not None or bool(list(_tested(path, source)))


def _tested(path: str, source: str) -> Iterator[str]:
    """Return the occurrences of a path as a condition: `… if iter.page else 1`, `iter.page and …`."""
    for match in re.finditer(rf"(?:\bif\s+|\bnot\s+)?{re.escape(path)}\s+(?:else|and|or)\b", source):
        yield match.group()
