"""From a loaded document to its canonical form. All that is wrong is collected; what is usable goes on.

Laws: every way to write a task ends in one shape; only declared keys cross from an outer spec into a task's, `policy`
and `mode` never; the operator's limits are ceilings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.model.events import REGISTRY
from arclog.model.kinds import KindSpec
from arclog.model.settings import Settings
from arclog.model.shapes import Field
from arclog.playbook.canon import Arc, Loop, Playbook, Rule, Step, Task, Use
from arclog.playbook.load import Document, Path
from arclog.playbook.older import CONTROL
from arclog.playbook.schema import (
    ACTION,
    ACTION_KEYS,
    ADMIT_THEN,
    ELSE_RULE,
    EMPTY_ELSE_RULE,
    ITER_KEYS,
    KEYCHAIN_FIELDS,
    LIMITS,
    RULE,
    TASK,
    TASK_POLICY,
    root_field,
    task_spec_fields,
)
from arclog.playbook.sugar import SUGAR, Entry, Expander
from arclog.playbook.walk import Findings, Walker

_MISSING: Any = object()
_A_MAP = Field("rule", "object")
#: Kinds that older playbooks name, and what they are now.
_OLD_KINDS = {
    "sink": "storing is an ordinary task: use the kind that writes the data",
    "iterator": 'a loop belongs to the step: loop: {in: "{{ … }}", iterator: NAME}',
    "loop": 'a loop belongs to the step: loop: {in: "{{ … }}", iterator: NAME}',
    "start": "use kind: noop",
    "end": "use kind: noop",
}


def normalize(document: Document, kinds: Mapping[str, KindSpec], settings: Settings, findings: Findings) -> Playbook:
    """The canonical playbook; with error findings it is only good for finding more."""
    return _Normalizer(document, kinds, settings, findings).playbook()


def merged(outer: Any, inner: Any) -> Any:
    """Maps deep-merge, anything else is replaced."""
    if isinstance(outer, dict) and isinstance(inner, dict):
        result = dict(outer)
        for key, value in inner.items():
            result[key] = merged(outer[key], value) if key in outer else value
        return result
    return inner


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any, default: str = "") -> str:
    return value if isinstance(value, str) else default


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    return None


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


def _dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = _map(value).get(key)
    return value


class _Normalizer:
    def __init__(
        self, document: Document, kinds: Mapping[str, KindSpec], settings: Settings, findings: Findings
    ) -> None:
        self.kinds = kinds
        self.settings = settings
        self.findings = findings
        self.walker = Walker(findings)
        self.root = root_field(kinds)
        step = next(field for field in self.root.fields or () if field.name == "workflow").items
        step_fields = step.fields if step is not None else None
        self.loop_field = next(field for field in step_fields or () if field.name == "loop")
        self.value: dict[str, Any] = _map(document.value)
        self.out = Playbook()
        self.executor_spec: dict[str, Any] = {}
        #: usable entries by name: raw task and its path
        self.workbook: dict[str, tuple[dict[str, Any], Path]] = {}
        self.task_fields: dict[str, tuple[Field, ...]] = {}
        self.spec_fields: dict[str, tuple[Field, ...]] = {}
        #: values that layers and workbook may still copy into tasks
        self.room = settings.integer("playbook.max_nodes")

    def playbook(self) -> Playbook:
        self.walker.walk(self.findings.document.value, self.root, (), "playbook")
        self.metadata()
        self.executor()
        self.keychain()
        self.read_workbook()
        self.out.workload = _map(self.value.get("workload"))
        steps = _list(self.value.get("workflow"))
        most = self.settings.integer("playbook.max_steps")
        if "workflow" in self.value and not steps and isinstance(self.value["workflow"], list):
            self.findings.key(
                "missing-key", "the workflow has no step", ("workflow",), "- step: start\n  tool: {kind: noop}"
            )
        if len(steps) > most:
            message = f"the workflow has {len(steps):,} steps; the limit is {most:,} (playbook.max_steps)"
            self.findings.key("limit-exceeded", message, ("workflow",))
            return self.out
        seen: dict[str, Path] = {}
        for index, raw in enumerate(steps):
            path: Path = ("workflow", index)
            if not isinstance(raw, dict):
                continue
            step = self.step(raw, path)
            if step.name:
                self.unique(step.name, (*path, "step"), seen, "step")
            self.out.steps.append(step)
        self.entry()
        return self.out

    def use(self, feature: str, path: Path) -> None:
        self.out.uses.append(Use(feature, path))

    def unique(self, name: str, path: Path, seen: dict[str, Path], what: str) -> None:
        if name in seen:
            first = self.findings.document.at(seen[name])
            self.findings.value(
                "duplicate-name",
                f"the {what} {name!r} stands twice, first at {first}",
                path,
                "give one of them another name",
            )
        else:
            seen[name] = path

    # --- root sections ------------------------------------------------------------------------------------------

    def metadata(self) -> None:
        metadata = _map(self.value.get("metadata"))
        name = _text(metadata.get("name"))
        if "name" in metadata and isinstance(metadata["name"], str) and not name.strip():
            self.findings.value("bad-value", "metadata.name is empty", ("metadata", "name"))
        self.out.name = name
        self.out.path = _text(metadata.get("path"))
        self.out.description = _text(metadata.get("description"))
        self.out.labels = _map(metadata.get("labels"))
        self.out.tags = tuple(tag for tag in _list(metadata.get("tags")) if isinstance(tag, str))

    def executor(self) -> None:
        path: Path = ("executor", "spec")
        spec = self.executor_spec = _map(_dig(self.value, "executor", "spec"))
        policy = _map(spec.get("policy"))
        out = self.out
        out.result = spec.get("result")
        out.timeout_s = _number(spec.get("timeout_s"))
        if out.timeout_s is not None:
            self.use("executor.spec.timeout_s", (*path, "timeout_s"))
        if "concurrency" in spec:
            concurrency = _map(spec["concurrency"])
            out.concurrency = _whole(concurrency.get("max"), 1)
            out.on_excess = _text(concurrency.get("on_excess"), "queue")
            self.use("executor.spec.concurrency", (*path, "concurrency"))
        if "ctx" in spec:
            out.ctx = _map(spec["ctx"])
            self.use("executor.spec.ctx", (*path, "ctx"))
            for key in out.ctx:
                self.walker.name(key, (*path, "ctx", key), "executor.spec.ctx")
        if policy.get("approval") == "required":
            out.approval = True
            self.use("approval", (*path, "policy", "approval"))
        if _dig(policy, "results", "reference_first") is False:
            self.use("results.reference_first", (*path, "policy", "results", "reference_first"))
        if _number(_dig(policy, "defaults", "timeouts", "step_s")) is not None:
            self.use("defaults.timeouts.step_s", (*path, "policy", "defaults", "timeouts", "step_s"))
        out.emit = self.emit(policy, (*path, "policy"))
        self.limits(_map(policy.get("limits")), (*path, "policy", "limits"))

    def limits(self, limits: dict[str, Any], path: Path) -> None:
        for field in LIMITS.fields or ():
            ceiling = self.settings.integer(f"limits.{field.name}")
            value = limits.get(field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value > ceiling:
                message = f"limits.{field.name}: {value:,} is above the operator's ceiling, {ceiling:,} (setting limits.{field.name})"
                self.findings.value("limit-exceeded", message, (*path, field.name), f"at most {ceiling}")
                value = ceiling
            self.out.limits[field.name] = _whole(value, ceiling)
        self.out.limits["max_expr_work"] = self.settings.integer("expr.max_work")
        self.out.limits["max_expr_bytes"] = self.settings.integer("expr.max_bytes")

    def emit(self, policy: dict[str, Any], path: Path) -> tuple[str, ...]:
        names: list[str] = []
        for index, name in enumerate(_list(_dig(policy, "emit", "events"))):
            if not isinstance(name, str):
                continue
            if name != "full" and name not in REGISTRY:
                message = f"there is no event type {name!r}"
                self.findings.value(
                    "bad-value",
                    message,
                    (*path, "emit", "events", index),
                    self.findings.did_you_mean(name, ["full", *REGISTRY]),
                )
            names.append(name)
        return tuple(names)

    def keychain(self) -> None:
        entries = _list(self.value.get("keychain"))
        seen: dict[str, Path] = {}
        for index, entry in enumerate(entries):
            path: Path = ("keychain", index)
            if not isinstance(entry, dict):
                continue
            # Further keys belong to the entry's kind, which the secrets side checks.
            known = {field.name for field in KEYCHAIN_FIELDS}
            self.walker.keys(
                {key: value for key, value in entry.items() if key in known}, KEYCHAIN_FIELDS, path, "keychain entry"
            )
            if isinstance(entry.get("name"), str):
                self.unique(entry["name"], (*path, "name"), seen, "keychain entry")
            self.out.keychain.append(entry)
        if entries:
            self.use("keychain", ("keychain",))

    def read_workbook(self) -> None:
        seen: dict[str, Path] = {}
        for index, raw in enumerate(_list(self.value.get("workbook"))):
            path: Path = ("workbook", index)
            if not isinstance(raw, dict):
                continue
            name = raw.get("name")
            if not isinstance(name, str):
                self.findings.value("missing-key", "workbook entry needs the key 'name'", path)
                continue
            self.unique(name, (*path, "name"), seen, "workbook entry")
            if raw.get("kind") == "workbook":
                self.findings.value("bad-value", "a workbook entry cannot be of kind workbook", (*path, "kind"))
                continue
            self.task(Entry(name, path, raw=raw), ())
            self.workbook.setdefault(name, (raw, path))

    def entry(self) -> None:
        names = [step.name for step in self.out.steps]
        wanted = self.executor_spec.get("entry_step")
        if isinstance(wanted, str):
            self.out.entry = wanted
            if wanted not in names:
                path: Path = ("executor", "spec", "entry_step")
                self.findings.value(
                    "unknown-step",
                    f"entry_step: there is no step {wanted!r}",
                    path,
                    self.findings.did_you_mean(wanted, names),
                )
        else:
            self.out.entry = "start" if "start" in names else next(iter(names), "")

    # --- steps --------------------------------------------------------------------------------------------------

    def step(self, raw: dict[str, Any], path: Path) -> Step:
        spec = _map(raw.get("spec"))
        policy = _map(spec.get("policy"))
        here = (*path, "spec", "policy")
        step = Step(
            name=_text(raw.get("step")),
            path=path,
            desc=_text(raw.get("desc")),
            args=_map(raw.get("args")),
            failure_mode=_text(_dig(policy, "failure", "mode"), "fail_fast"),
            emit=self.emit(policy, here),
        )
        self.lifecycle(step, policy, here)
        self.join(step, spec.get("join"), (*path, "spec", "join"))
        if isinstance(policy.get("admit"), dict) and "rules" in policy["admit"]:
            step.admit = self.admission(policy["admit"]["rules"], (*here, "admit", "rules"))
        layers: list[tuple[dict[str, Any], Path, str]] = [
            (self.executor_spec, ("executor", "spec"), "executor.spec"),
            (spec, (*path, "spec"), "step.spec"),
        ]
        if isinstance(raw.get("loop"), dict):
            step.loop = self.loop(raw["loop"], (*path, "loop"), layers)
        self.router(step, raw.get("next"), (*path, "next"))
        self.tasks(step, raw.get("tool", _MISSING), (*path, "tool"), tuple(layers))
        return step

    def lifecycle(self, step: Step, policy: dict[str, Any], path: Path) -> None:
        lifecycle = _map(policy.get("lifecycle"))
        for key in ("timeout_s", "deadline_s"):
            if key in lifecycle:
                self.use(f"lifecycle.{key}", (*path, "lifecycle", key))
        fallback = _number(_dig(self.executor_spec, "policy", "defaults", "timeouts", "step_s"))
        step.timeout_s = _number(lifecycle.get("timeout_s")) or fallback
        step.deadline_s = _number(lifecycle.get("deadline_s"))

    def join(self, step: Step, join: Any, path: Path) -> None:
        if isinstance(join, dict):
            step.join, step.join_count = "count", _whole(join.get("count"), 1)
        elif isinstance(join, str):
            step.join = join
        if step.join != "any":
            self.use("join", path)

    def admission(self, rules: Any, path: Path) -> list[Rule]:
        found = self.rules(rules, path)
        for rule in found:
            if self.walker.keys(rule.then, ADMIT_THEN, rule.then_path, "admit.then"):
                continue
            rule.then = {"allow": rule.then.get("allow") is True}
        return found

    def loop(self, raw: dict[str, Any], path: Path, layers: list[tuple[dict[str, Any], Path, str]]) -> Loop:
        """One level of a loop; its spec joins the layers for the tasks."""
        spec = _map(raw.get("spec"))
        policy = _map(spec.get("policy"))
        layers.append((spec, (*path, "spec"), "loop.spec"))
        mode = self.twice(spec, policy, "mode", (*path, "spec"))
        in_flight = self.twice(spec, policy, "max_in_flight", (*path, "spec"))
        mode = _text(mode, "sequential")
        parallel = mode == "parallel"
        if parallel:
            self.use("loop.parallel", (*path, "spec", "mode") if "mode" in spec else (*path, "spec", "policy", "mode"))
        iterator = _text(raw.get("iterator"))
        if iterator in ITER_KEYS:
            self.findings.value(
                "reserved-name", f"loop.iterator: {iterator!r} is reserved: iter has it already", (*path, "iterator")
            )
        inner = None
        if isinstance(raw.get("loop"), dict):
            where = (*path, "loop")
            self.use("loop.nested", where)
            self.walker.walk(raw["loop"], self.loop_field, where, "loop")
            inner = self.loop(raw["loop"], where, layers)
        items = raw.get("in")
        if items is not None and not isinstance(items, (str, list)):
            self.walker.walk(items, Field("in", "list|string"), (*path, "in"), "loop.in")
        return Loop(
            items=items,
            iterator=iterator,
            mode=mode,
            max_in_flight=_whole(in_flight, 10) if parallel else 1,
            exec=_text(policy.get("exec"), "distributed" if parallel else "local"),
            inner=inner,
            path=path,
        )

    def twice(self, spec: dict[str, Any], policy: dict[str, Any], key: str, path: Path) -> Any:
        """A knob that may stand in loop.spec and in its policy, with the same value."""
        if key in spec and key in policy and spec[key] != policy[key]:
            message = f"loop.spec.{key} is {spec[key]} and loop.spec.policy.{key} is {policy[key]}"
            self.findings.value("conflict", message, (*path, "policy", key), "keep one of them")
        return spec.get(key, policy.get(key))

    def router(self, step: Step, raw: Any, path: Path) -> None:
        spec = _map(_dig(raw, "spec"))
        step.mode = _text(spec.get("mode"), "exclusive")
        step.on_no_match = _text(spec.get("on_no_match"), "end")
        for index, arc in enumerate(_list(_dig(raw, "arcs"))):
            if not isinstance(arc, dict):
                continue
            here = (*path, "arcs", index)
            for key in _map(arc.get("spec")):
                if key in CONTROL:
                    self.walker.unknown(key, (), (*here, "spec", key), "arc.spec")
            when = arc.get("when")
            when = when if isinstance(when, (str, bool)) else None
            step.arcs.append(Arc(_text(arc.get("step")), when, _map(arc.get("args")), here))

    # --- tasks --------------------------------------------------------------------------------------------------

    def tasks(self, step: Step, tool: Any, path: Path, layers: tuple[tuple[dict[str, Any], Path, str], ...]) -> None:
        if isinstance(tool, dict):
            if "kind" not in tool and any(word in tool for word in SUGAR):
                word = next(word for word in SUGAR if word in tool)
                self.findings.key(
                    "wrong-type", f"{word} stands in a list of tasks", (*path, word), f"tool: [{{{word}: …}}]"
                )
                return
            named = tool.get("name")
            entries = [Entry(named if isinstance(named, str) and named else f"{step.name}_task", path, raw=tool)]
        elif isinstance(tool, list):
            entries = Expander(self.walker, self.kinds.get("noop")).expand(tool, path)
            if not tool:
                self.findings.value("missing-key", "the step has no task", path, "tool: {kind: noop}")
        else:
            return
        seen: dict[str, Path] = {}
        for entry in entries:
            task = entry.made if entry.raw is None else self.task(entry, layers)
            if task is None:
                continue
            where = (*entry.path, "name") if entry.raw is not None and "name" in entry.raw else entry.path
            self.unique(task.name, where, seen, "task")
            step.tasks.append(task)

    def task(self, entry: Entry, layers: tuple[tuple[dict[str, Any], Path, str], ...]) -> Task | None:
        raw, path = entry.raw or {}, entry.path
        kind_name = raw.get("kind")
        if kind_name is None and len(raw) == 1:
            ((label, inner),) = raw.items()
            if isinstance(inner, dict) and "kind" in inner:
                hint = f"- {{name: {label}, kind: {inner['kind']}, …}}"
                self.findings.key(
                    "task-label-map",
                    f"a task's label stands under `name:`, not as a key: {label!r}",
                    (*path, label),
                    hint,
                )
                return None
        if not isinstance(kind_name, str):
            self.walker.keys(
                raw,
                (*TASK, *(Field(key, "any") for key in raw if key not in {field.name for field in TASK})),
                path,
                "task",
            )
            return None
        if kind_name == "workbook":
            return self.from_workbook(entry, layers)
        kind = self.kind(kind_name, path)
        if kind is None:
            return None
        self.walker.keys(raw, self.fields_of(kind), path, "task")
        self.one_of(raw, kind, path)
        return self.finish(entry.label, kind, raw, path, {}, layers)

    def kind(self, name: str, path: Path) -> KindSpec | None:
        kind = self.kinds.get(name)
        if kind is None:
            hint = _OLD_KINDS.get(name) or self.findings.did_you_mean(name, [*self.kinds, "workbook"])
            known = ", ".join(sorted(self.kinds))
            message = f"there is no tool kind {name[:60]!r} here; known: {known}"
            self.findings.value("unknown-kind", message, (*path, "kind"), "" if hint.startswith("known:") else hint)
            return None
        if kind.runs_on == "engine":
            self.use(f"kind.{name}", (*path, "kind"))
        return kind

    def fields_of(self, kind: KindSpec) -> tuple[Field, ...]:
        fields = self.task_fields.get(kind.name)
        if fields is None:
            own = {field.name for field in kind.fields}
            spec = Field("spec", "object", fields=(*task_spec_fields(kind), TASK_POLICY))
            common = tuple(
                spec if field.name == "spec" else field
                for field in TASK
                if field.name not in own or field.name == "spec"
            )
            fields = self.task_fields[kind.name] = (*common, *kind.fields)
            self.spec_fields[kind.name] = task_spec_fields(kind)
        return fields

    def one_of(self, raw: dict[str, Any], kind: KindSpec, path: Path) -> None:
        for group in kind.one_of:
            there = [key for key in group if key in raw]
            if len(there) != 1:
                what = " and ".join(there) + " exclude each other" if there else f"one of {', '.join(group)} is needed"
                self.findings.value("one-of", f"task of kind {kind.name}: {what}", path)

    def from_workbook(self, entry: Entry, layers: tuple[tuple[dict[str, Any], Path, str], ...]) -> Task | None:
        """The workbook's entry in place of the task, with the task's args and spec laid over it."""
        raw, path = entry.raw or {}, entry.path
        known = (
            Field("name", "string", "The workbook entry.", required=True),
            Field("kind", "string", required=True),
            Field("desc", "string"),
            Field("args", "object", template=True),
            Field("spec", "object"),
        )
        good = self.walker.keys(raw, known, path, "task")
        name = _text(raw.get("name"))
        found = self.workbook.get(name)
        if not good or found is None:
            if name:
                self.findings.value(
                    "unknown-workbook",
                    f"the workbook has no entry {name!r}",
                    (*path, "name"),
                    self.findings.did_you_mean(name, self.workbook),
                )
            return None
        body, home = found
        kind = self.kinds.get(_text(body.get("kind")))
        if kind is None:
            return None
        if "args" in raw and all(field.name != "args" for field in kind.fields):
            self.findings.key("unknown-key", f"a task of kind {kind.name} takes no args", (*path, "args"))
        spec_field = Field("spec", "object", fields=(*task_spec_fields(kind), TASK_POLICY))
        self.walker.walk(raw.get("spec", {}), spec_field, (*path, "spec"), "task.spec")
        if not self.has_room(body, path):
            return None
        overlay: dict[str, Any] = {key: merged(body.get(key), raw[key]) for key in ("args", "spec") if key in raw}
        config: dict[str, Any] = {**body, **overlay}
        roots: dict[Path, Path] = {(key,): (*home, key) for key in body}
        roots.update({("args", key): (*path, "args", key) for key in _map(raw.get("args"))})
        if "spec" in raw:
            roots[("spec",)] = (*path, "spec")
        return self.finish(name, kind, config, path, roots, layers)

    def finish(
        self, label: str, kind: KindSpec, raw: dict[str, Any], path: Path, roots: dict[Path, Path],
        layers: tuple[tuple[dict[str, Any], Path, str], ...],
    ) -> Task:  # fmt: skip
        spec = _map(raw.get("spec"))
        config = {
            key: value
            for key, value in raw.items()
            if key not in ("name", "kind", "desc", "spec") and not key.startswith("x-")
        }
        own = {field.name for field in kind.fields}
        for key in ("name", "desc"):
            if key in raw and key in own:
                config[key] = raw[key]
        task = Task(label, kind, config, path, roots)
        if "auth" in raw:
            self.use("auth", task.locate(("auth",)))
        self.layered(task, spec, layers)
        policy = spec.get("policy")
        if isinstance(policy, dict):
            self.policy(task, policy, task.locate(("spec", "policy")))
        return task

    def layered(self, task: Task, spec: dict[str, Any], layers: tuple[tuple[dict[str, Any], Path, str], ...]) -> None:
        """merge(kind_defaults, executor.spec, step.spec, loop.spec, task.spec), declared keys only."""
        fields = {field.name: field for field in self.spec_fields.get(task.kind.name) or task_spec_fields(task.kind)}
        written: dict[str, Any] = {}
        for layer, path, label in layers:
            for key, value in layer.items():
                field = fields.get(key)
                if field is None or key in ("policy", "mode") or not self.has_room(value, (*path, key)):
                    continue
                fitting = self.walker.walk(value, field, (*path, key), f"{label}.{key} (for kind {task.kind.name})")
                if key == "timeout":
                    self.positive(value, (*path, key), f"{label}.timeout")
                if fitting:
                    written[key] = merged(written.get(key), value)
        for key, value in spec.items():
            if key in fields:
                written[key] = merged(written.get(key), value)
        if "timeout" in spec:
            self.positive(spec["timeout"], task.locate(("spec", "timeout")), "task.spec.timeout")
        task.spec = merged(task.kind.defaults, written)
        task.timeout_s = (
            _seconds_of(written.get("timeout"))
            or _number(_dig(self.executor_spec, "policy", "defaults", "timeouts", "task_s"))
            or _seconds_of(task.kind.defaults.get("timeout"))
            or self.settings.number("tasks.timeout_s")
        )

    def has_room(self, value: Any, path: Path) -> bool:
        """Whether what a task inherits still fits: copies count, or a small file could make a huge plan."""
        if self.room < 0:
            return False
        if isinstance(value, (dict, list)):
            self.room -= _size(value, self.room)
        if self.room < 0:
            most = self.settings.integer("playbook.max_nodes")
            message = f"tasks inherit more than {most:,} values from here and elsewhere (playbook.max_nodes)"
            self.findings.key("limit-exceeded", message, path)
            return False
        return True

    def positive(self, timeout: Any, path: Path, label: str) -> None:
        """No kind may let a time limit of zero through: nothing runs for ever."""
        parts = timeout.items() if isinstance(timeout, dict) else [("", timeout)]
        for key, value in parts:
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
                where, name = ((*path, key), f"{label}.{key}") if key else (path, label)
                self.findings.value("out-of-range", f"{name}: {value} must be more than 0", where)

    def policy(self, task: Task, policy: dict[str, Any], path: Path) -> None:
        for hook in ("before", "after", "finally"):
            if policy.get(hook):
                self.findings.key(
                    "not-run",
                    f"task.spec.policy.{hook} is a placeholder: its entries are not run",
                    (*path, hook),
                    severity="warning",
                )
        if "rules" not in policy:
            return
        task.on_unmatched = _text(policy.get("on_unmatched"), "continue")
        task.rules = self.rules(policy["rules"], (*path, "rules"))
        for rule in task.rules:
            self.action(rule)

    def action(self, rule: Rule) -> None:
        then, path = rule.then, rule.then_path
        self.walker.keys(then, ACTION, path, "then")
        do = _text(then.get("do"), "continue")
        for key, owner in ACTION_KEYS.items():
            if key in then and do != owner:
                self.findings.key(
                    "action-key",
                    f"'{key}' has a meaning only with do: {owner}",
                    (*path, key),
                    f"then: {{do: {owner}, …}}",
                )
        if do == "jump" and "to" not in then:
            self.findings.value("missing-key", "do: jump needs the key 'to'", path, "to: LABEL of a task in this list")
        for patch in ("set_iter", "set_ctx"):
            for key in _map(then.get(patch)):
                if key.startswith("_"):
                    self.findings.key(
                        "reserved-name",
                        f"{patch}: keys that begin with _ are arclog's own: {key!r}",
                        (*path, patch, key),
                    )
        rule.then = {key: value for key, value in then.items() if any(field.name == key for field in ACTION)}

    def rules(self, rules: Any, path: Path) -> list[Rule]:
        """`{when, then}` … and last `{else: {then}}` or `{else: null, then}`."""
        found: list[Rule] = []
        for index, raw in enumerate(_list(rules)):
            here = (*path, index)
            if not self.walker.walk(raw, _A_MAP, here, "rule"):
                continue
            if "else" in raw:
                rule = self.else_rule(raw, here)
                if index < len(rules) - 1:
                    self.findings.key(
                        "else-not-last",
                        "else must be the last rule: the ones after it can never match",
                        (*here, "else"),
                    )
            else:
                self.walker.keys(raw, RULE, here, "rule")
                when = raw.get("when")
                rule = Rule(
                    when if isinstance(when, (str, bool)) else False, _map(raw.get("then")), here, (*here, "then")
                )
                if not isinstance(raw.get("then"), dict):
                    continue
            if rule is not None:
                found.append(rule)
        return found

    def else_rule(self, raw: dict[str, Any], path: Path) -> Rule | None:
        body = raw["else"]
        if body is None:
            good = self.walker.keys(raw, EMPTY_ELSE_RULE, path, "rule")
            return Rule(None, raw["then"], path, (*path, "then")) if good else None
        good = self.walker.keys(raw, ELSE_RULE, path, "rule")
        return Rule(None, body["then"], path, (*path, "else", "then")) if good else None


def _seconds_of(timeout: Any) -> float | None:
    """The attempt's limit in a `timeout`: a number, or the `total` of a map."""
    return _number(timeout.get("total") if isinstance(timeout, dict) else timeout)


def _size(value: Any, most: int) -> int:
    """How many values a value holds; counting ends soon after `most`."""
    count = 0
    waiting = [value]
    while waiting and count <= most:
        part = waiting.pop()
        count += 1
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return count
