"""Builds the canonical form of a loaded document. All errors are collected; valid parts are processed further.

The operator's limits are ceilings. `playbook.tasks` reads tasks, `playbook.rules` reads rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from arclog.model.config.kinds import COMMON_SPEC_FIELDS, KindSpec
from arclog.model.config.reducers import REDUCERS, unfit
from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.events import ENVELOPE_BYTES, REGISTRY
from arclog.model.inputs import defaults, secret_names
from arclog.playbook.canon import Arc, Loop, Playbook, Rule, Step, Webhook
from arclog.playbook.declarations import read_entry, read_inputs, read_notifications, read_schedules
from arclog.playbook.document import Document, Path, above_zero, as_list, as_map, as_text, dig, priority_of, whole
from arclog.playbook.files import Files
from arclog.playbook.legacy_forms import CONTROL
from arclog.playbook.rules import read_rules
from arclog.playbook.schema import ADMIT_THEN, ENDS, ITER_KEYS, LIMITS, POOL_NAME, has_template, root_field
from arclog.playbook.tasks import Layer, TaskReader
from arclog.playbook.walk import Findings, Walker

_MISSING: Any = object()
#: Default time limit of a final step, in seconds.
FINAL_STEP_S = 300.0


def normalize(
    document: Document,
    kinds: Mapping[str, KindSpec],
    settings: Settings,
    findings: Findings,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Playbook:
    """Return the canonical playbook.

    With errors among the findings, it only serves to find more. `files` are those beside it.
    """
    return _Normalizer(document, kinds, settings, findings, files).playbook()


class _Normalizer:
    def __init__(
        self,
        document: Document,
        kinds: Mapping[str, KindSpec],
        settings: Settings,
        findings: Findings,
        files: Mapping[str, str],
    ) -> None:
        self.kinds = kinds
        self.settings = settings
        self.findings = findings
        self.walker = Walker(findings)
        self.value: dict[str, Any] = as_map(document.value)
        self.root = _language(self.value, kinds)
        self.loop_field = _below(_step_of(self.root), "loop")
        self.out = Playbook()
        self.executor_spec: dict[str, Any] = as_map(dig(self.value, "executor", "spec"))
        self.files = Files(document.file, files, settings)
        self.tasks = TaskReader(self.walker, kinds, settings, self.executor_spec, self.files)

    def playbook(self) -> Playbook:
        self.walker.walk(self.findings.document.value, self.root, (), "playbook")
        self.metadata()
        self.executor()
        self.keychain()
        self.tasks.read_workbook(self.value.get("workbook"))
        self.out.workload = as_map(self.value.get("workload"))
        if isinstance(self.executor_spec.get("inputs"), dict):
            self.out.inputs = read_inputs(self.walker, self.executor_spec["inputs"], self.out.workload)
            self.out.workload = {**defaults(self.out.inputs), **self.out.workload}
            self.secret_inputs()
        steps = as_list(self.value.get("workflow"))
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
                self.findings.unique(step.name, (*path, "step"), seen, "step")
            self.out.steps.append(step)
        self.tasks.check_times()
        self.out.files = self.files.captured
        self.entry()
        self.final_step()
        if self.executor_spec.get("sequence") is True:
            self.sequence(steps)
        return self.out

    # --- root sections ------------------------------------------------------------------------------------------

    def metadata(self) -> None:
        metadata = as_map(self.value.get("metadata"))
        name = as_text(metadata.get("name"))
        if "name" in metadata and isinstance(metadata["name"], str) and not name.strip():
            self.findings.value("bad-value", "metadata.name is empty", ("metadata", "name"))
        self.out.name = name
        self.out.path = as_text(metadata.get("path"))
        self.out.description = as_text(metadata.get("description"))
        self.out.labels = as_map(metadata.get("labels"))
        self.out.tags = tuple(tag for tag in as_list(metadata.get("tags")) if isinstance(tag, str))

    def executor(self) -> None:
        path: Path = ("executor", "spec")
        spec = self.executor_spec
        policy = as_map(spec.get("policy"))
        out = self.out
        out.result = spec.get("result")
        out.timeout_s = above_zero(spec.get("timeout_s"))
        if "concurrency" in spec:
            concurrency = as_map(spec["concurrency"])
            out.concurrency = whole(concurrency.get("max"), 1)
            out.on_excess = as_text(concurrency.get("on_excess"), "queue")
        if "ctx" in spec:
            out.ctx = as_map(spec["ctx"])
            for key, entry in out.ctx.items():
                self.walker.name(key, (*path, "ctx", key), "executor.spec.ctx")
                reducer, initial = dig(entry, "reducer"), dig(entry, "initial")
                wrong = unfit(reducer, initial) if reducer in REDUCERS else ""
                if wrong:
                    message = f"executor.spec.ctx.{key}.initial: the reducer {reducer} cannot continue from {wrong}"
                    self.findings.value("bad-value", message, (*path, "ctx", key, "initial"))
        if isinstance(spec.get("pool"), str):
            self.check_pool(spec["pool"], (*path, "pool"))
        out.priority = priority_of(spec) or 0
        self.webhooks(as_list(spec.get("webhooks")), (*path, "webhooks"))
        out.webhooks += read_notifications(self.findings, spec, path)
        out.schedules = read_schedules(self.findings, as_list(spec.get("schedules")), (*path, "schedules"), out)
        out.approval = policy.get("approval") == "required"
        out.emit = self.emit(policy, (*path, "policy"))
        self.limits(as_map(policy.get("limits")), (*path, "policy", "limits"))
        most = out.limits["max_payload_bytes"] - ENVELOPE_BYTES
        inline = self.settings.integer("results.inline_max_bytes")
        out.limits["inline_max_bytes"] = (
            most if dig(policy, "results", "reference_first") is False else max(0, min(inline, most))
        )

    def webhooks(self, webhooks: list[Any], path: Path) -> None:
        for index, raw in enumerate(webhooks):
            webhook = as_map(raw)
            url, own_path = as_text(webhook.get("url")), (*path, index)
            if "url" in webhook and (has_template(url) or not url.startswith(("http://", "https://"))):
                hint = "write the address itself; it cannot depend on the run"
                self.findings.value(
                    "bad-value", "webhook.url is not an http:// or https:// address", (*own_path, "url"), hint
                )
            on = tuple(end for end in as_list(webhook["on"]) if end in ENDS) if "on" in webhook else ENDS
            if not on:
                self.findings.value(
                    "bad-value", "webhook.on names no end", (*own_path, "on"), f"on: [{', '.join(ENDS)}]"
                )
            self.out.webhooks.append(Webhook(url, as_text(webhook.get("secret")), on, own_path))

    def limits(self, limits: dict[str, Any], path: Path) -> None:
        for field in LIMITS.fields or ():
            ceiling = self.settings.integer(f"limits.{field.name}")
            value = limits.get(field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value > ceiling:
                message = f"limits.{field.name}: {value:,} is above the operator's ceiling, {ceiling:,} (setting limits.{field.name})"
                self.findings.value("limit-exceeded", message, (*path, field.name), f"at most {ceiling}")
                value = ceiling
            self.out.limits[field.name] = whole(value, ceiling)
        self.out.limits["max_expr_work"] = self.settings.integer("expr.max_work")
        self.out.limits["max_expr_bytes"] = self.settings.integer("expr.max_bytes")

    def emit(self, policy: dict[str, Any], path: Path) -> tuple[str, ...]:
        names: list[str] = []
        for index, name in enumerate(as_list(dig(policy, "emit", "events"))):
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
        entries = as_list(self.value.get("keychain"))
        seen: dict[str, Path] = {}
        for index, entry in enumerate(entries):
            path: Path = ("keychain", index)
            if not isinstance(entry, dict):
                continue
            read_entry(self.walker, entry, path)
            if isinstance(entry.get("name"), str):
                self.findings.unique(entry["name"], (*path, "name"), seen, "keychain entry")
            self.out.keychain.append({key: value for key, value in entry.items() if not key.startswith("x-")})

    def secret_inputs(self) -> None:
        """Add a keychain entry for each secret input: it reaches task fields only, and is redacted from task output."""
        names = {entry.get("name") for entry in self.out.keychain}
        for name in secret_names(self.out.inputs):
            if name in names:
                message = f"inputs.{name} is a secret, and the keychain has an entry of that name"
                self.findings.key("conflict", message, ("executor", "spec", "inputs", name), "rename one of them")
            else:
                self.out.keychain.append({"name": name, "kind": "input"})

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

    def final_step(self) -> None:
        """Read the step that runs last. It has a time limit and is outside the routing."""
        wanted = self.executor_spec.get("final_step")
        if not isinstance(wanted, str):
            return
        path: Path = ("executor", "spec", "final_step")
        step = next((step for step in self.out.steps if step.name == wanted), None)
        if step is None:
            names = [step.name for step in self.out.steps]
            hint = self.findings.did_you_mean(wanted, names)
            self.findings.value("unknown-step", f"final_step: there is no step {wanted!r}", path, hint)
            return
        self.out.final_step = wanted
        step.timeout_s = step.timeout_s or FINAL_STEP_S
        hint = "it runs by itself when nothing else is left"
        if wanted == self.out.entry:
            self.findings.value("bad-value", f"final_step: {wanted!r} is the first step of the run", path, hint)
        for key, is_set in (("next", step.arcs), ("spec.join", step.join != "any"), ("spec.end", step.end)):
            if is_set:
                message = f"step {wanted!r} is the final step: {key} has no meaning there"
                self.findings.key("bad-value", message, (*step.path, *key.split(".")), hint)
        for other in self.out.steps:
            for arc in other.arcs:
                if arc.target == wanted:
                    message = f"an arc leads to {wanted!r}, which is the final step"
                    self.findings.value("bad-value", message, arc.path, f"remove the arc: {hint}")

    def sequence(self, raws: list[Any]) -> None:
        """Connect each step without a router to the step below it, except the final step."""
        steps = [step for step in self.out.steps if not step.name or step.name != self.out.final_step]
        for step, below in pairwise(steps):
            if "next" not in raws[int(step.path[1])] and below.name and not step.end:
                step.arcs.append(Arc(below.name, None, {}, step.path))

    # --- steps --------------------------------------------------------------------------------------------------

    def step(self, raw: dict[str, Any], path: Path) -> Step:
        spec = as_map(raw.get("spec"))
        policy = as_map(spec.get("policy"))
        policy_path = (*path, "spec", "policy")
        step = Step(
            name=as_text(raw.get("step")),
            path=path,
            desc=as_text(raw.get("desc")),
            args=as_map(raw.get("args")),
            failure_mode=as_text(dig(policy, "failure", "mode"), "fail_fast"),
            emit=self.emit(policy, policy_path),
        )
        self.lifecycle(step, policy)
        self.pool(step, spec, path)
        step.priority = priority_of(spec)
        self.resources(step, as_list(spec.get("resources")), (*path, "spec", "resources"))
        self.join(step, spec.get("join"))
        step.end = as_text(spec.get("end"))
        if isinstance(policy.get("admit"), dict) and "rules" in policy["admit"]:
            step.admit = self.admission(policy["admit"]["rules"], (*policy_path, "admit", "rules"))
        layers = [
            # There `result` is that of the execution.
            Layer(
                {key: value for key, value in self.executor_spec.items() if key != "result"},
                ("executor", "spec"),
                "executor.spec",
            ),
            Layer(spec, (*path, "spec"), "step.spec"),
        ]
        if isinstance(raw.get("loop"), dict):
            step.loop = self.loop(raw["loop"], (*path, "loop"), layers)
        self.router(step, raw.get("next"), (*path, "next"))
        self.tasks.read(step, raw.get("tool", _MISSING), (*path, "tool"), tuple(layers))
        return step

    def lifecycle(self, step: Step, policy: dict[str, Any]) -> None:
        lifecycle = as_map(policy.get("lifecycle"))
        fallback = above_zero(dig(self.executor_spec, "policy", "defaults", "timeouts", "step_s"))
        step.timeout_s = above_zero(lifecycle.get("timeout_s")) or fallback
        step.deadline_s = above_zero(lifecycle.get("deadline_s"))

    def pool(self, step: Step, spec: dict[str, Any], path: Path) -> None:
        step.pool = as_text(self.executor_spec.get("pool"), "default")
        if isinstance(spec.get("pool"), str):
            step.pool = spec["pool"]
            self.check_pool(step.pool, (*path, "spec", "pool"))

    def check_pool(self, name: str, path: Path) -> None:
        if POOL_NAME.fullmatch(name) is None:
            hint = "letters, digits, `_`, `.` and `-`, at most 64"
            self.findings.value("bad-value", f"pool: {name[:80]!r} is not a valid pool name", path, hint)

    def resources(self, step: Step, listed: list[Any], path: Path) -> None:
        names = [name for name in listed if isinstance(name, str)]
        for index, name in enumerate(names):
            if POOL_NAME.fullmatch(name) is None:
                hint = "letters, digits, `_`, `.` and `-`, at most 64"
                self.findings.value(
                    "bad-value", f"resources: {name[:80]!r} is not a valid name of a resource", (*path, index), hint
                )
        # Sorted, so that steps with the same resources share a queue.
        step.resources = tuple(sorted(set(names)))

    def join(self, step: Step, join: Any) -> None:
        if isinstance(join, dict):
            step.join, step.join_count = "count", whole(join.get("count"), 1)
        elif isinstance(join, str):
            step.join = join

    def admission(self, rules: Any, path: Path) -> list[Rule]:
        rules_read = read_rules(self.walker, rules, path)
        for rule in rules_read:
            if self.walker.keys(rule.then, ADMIT_THEN, rule.then_path, "admit.then"):
                continue
            rule.then = {"allow": rule.then.get("allow") is True}
        return rules_read

    def loop(self, raw: dict[str, Any], path: Path, layers: list[Layer]) -> Loop:
        """Read one level of a loop; its spec becomes a layer for the tasks."""
        spec = as_map(raw.get("spec"))
        policy = as_map(spec.get("policy"))
        layers.append(Layer(spec, (*path, "spec"), "loop.spec"))
        mode = self.twice(spec, policy, "mode", (*path, "spec"))
        in_flight = self.twice(spec, policy, "max_in_flight", (*path, "spec"))
        mode = as_text(mode, "sequential")
        parallel = mode == "parallel"
        iterator = as_text(raw.get("iterator"))
        if iterator in ITER_KEYS:
            self.findings.value(
                "reserved-name", f"loop.iterator: {iterator!r} is reserved: iter has it already", (*path, "iterator")
            )
        inner = None
        if isinstance(raw.get("loop"), dict):
            where = (*path, "loop")
            self.walker.walk(raw["loop"], self.loop_field, where, "loop")
            inner = self.loop(raw["loop"], where, layers)
        items = raw.get("in")
        if items is not None and not isinstance(items, (str, list)):
            self.walker.walk(items, Field("in", "list|string"), (*path, "in"), "loop.in")
        return Loop(
            items=items,
            iterator=iterator,
            mode=mode,
            max_in_flight=whole(in_flight, 10) if parallel else 1,
            exec=as_text(policy.get("exec"), "distributed" if parallel else "local"),
            inner=inner,
            path=path,
        )

    def twice(self, spec: dict[str, Any], policy: dict[str, Any], key: str, path: Path) -> Any:
        """Return a key that may be set in loop.spec and in its policy, with the same value."""
        if key in spec and key in policy and spec[key] != policy[key]:
            message = f"loop.spec.{key} is {spec[key]} and loop.spec.policy.{key} is {policy[key]}"
            self.findings.value("conflict", message, (*path, "policy", key), "keep one of them")
        return spec.get(key, policy.get(key))

    def router(self, step: Step, raw: Any, path: Path) -> None:
        spec = as_map(dig(raw, "spec"))
        step.mode = as_text(spec.get("mode"), "exclusive")
        step.on_no_match = as_text(spec.get("on_no_match"), "end")
        for index, arc in enumerate(as_list(dig(raw, "arcs"))):
            if not isinstance(arc, dict):
                continue
            arc_path = (*path, "arcs", index)
            for key in as_map(arc.get("spec")):
                if key in CONTROL:
                    self.walker.unknown(key, {}, (*arc_path, "spec", key), "arc.spec")
            when = arc.get("when")
            when = when if isinstance(when, (str, bool)) else None
            step.arcs.append(Arc(as_text(arc.get("step")), when, as_map(arc.get("args")), arc_path))


def _language(playbook: dict[str, Any], kinds: Mapping[str, KindSpec]) -> Field:
    """Return the schema of the playbook.

    Collecting the task spec keys of all kinds imports them, so it is done only if needed.
    """
    bare = root_field({})
    for spec, field in _outer_specs(playbook, bare):
        own = {inner.name for inner in field.fields or () if inner not in COMMON_SPEC_FIELDS}
        if not own.issuperset(spec):
            return root_field(kinds)
    return bare


def _outer_specs(playbook: dict[str, Any], root: Field) -> Iterator[tuple[dict[str, Any], Field]]:
    """Iterate over the specs that tasks inherit from, each with its schema."""
    yield as_map(dig(playbook, "executor", "spec")), _below(root, "executor", "spec")
    step_spec, loop_spec = _below(_step_of(root), "spec"), _below(_step_of(root), "loop", "spec")
    for step in as_list(playbook.get("workflow")):
        yield as_map(dig(step, "spec")), step_spec
        loop = dig(step, "loop")
        while isinstance(loop, dict):
            yield as_map(loop.get("spec")), loop_spec
            loop = loop.get("loop")


def _step_of(root: Field) -> Field:
    return _below(root, "workflow").items or root


def _below(field: Field, *names: str) -> Field:
    for name in names:
        field = next(inner for inner in field.fields or () if inner.name == name)
    return field
