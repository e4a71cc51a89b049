"""Tasks: every way to write one is converted to the same form.

Only declared keys are inherited from an outer spec, `policy` and `mode` never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.data.json_data import deep_merge
from arclog.model.data.shapes import Field
from arclog.playbook.canon import Block, Branch, Step, Task
from arclog.playbook.document import Path, above_zero, as_list, as_map, as_text, dig, size
from arclog.playbook.files import KEYS as FILE_KEYS
from arclog.playbook.files import FileMissing, FileRefused, Files, as_config, entry, functions, script, shell_command
from arclog.playbook.rules import COMPILED, assertions, read_action, read_rules, reserved_keys, short_rules
from arclog.playbook.schema import ON_SUCCESS, TASK, TASK_POLICY, WORKBOOK_TASK, has_template, task_spec_fields
from arclog.playbook.sugar import SUGAR, BlockReader, Entry, Group
from arclog.playbook.walk import Walker

#: Kinds in older playbooks, and their current names.
_OLD_KINDS = {
    "sink": "storing is an ordinary task: use the kind that writes the data",
    "iterator": 'a loop belongs to the step: loop: {in: "{{ … }}", iterator: NAME}',
    "loop": 'a loop belongs to the step: loop: {in: "{{ … }}", iterator: NAME}',
    "start": "use kind: noop",
    "end": "use kind: noop",
    # Names in other tools, in lower case and without a final `operator`.
    **dict.fromkeys(
        ("bash", "sh", "command", "cmd", "script", "run", "exec", "ssh"),
        "did you mean shell? command: [program, argument]",
    ),
    **dict.fromkeys(("py", "function", "callable", "branchpython"), "did you mean python? code: |…, or file: NAME.py"),
    **dict.fromkeys(
        ("sleep", "delay", "pause", "timer", "datetimesensor", "timedeltasensor"), "did you mean wait? for_s: SECONDS"
    ),
    **dict.fromkeys(("event", "signal", "sensor", "webhook"), "did you mean wait? signal: NAME"),
    **dict.fromkeys(
        ("subflow", "flow", "workflow", "subworkflow", "childworkflow", "triggerdagrun", "call"),
        "did you mean playbook? path: NAME",
    ),
    **dict.fromkeys(
        ("slack", "teams", "rest", "api", "request", "curl", "simplehttp"), "did you mean http? url: https://…"
    ),
    **dict.fromkeys(
        ("email", "mail", "smtp"),
        "of the run: executor: {spec: {on_failure: [{email: name@example.org}]}}; else python with smtplib",
    ),
    **dict.fromkeys(("human", "manual", "input"), "did you mean approval?"),
    **dict.fromkeys(("empty", "dummy", "pass", "log", "echo", "debug"), "did you mean noop? data: …"),
    **dict.fromkeys(("s3", "gcs", "blob"), "did you mean object?"),
    **dict.fromkeys(("sql", "query", "postgresql", "pg", "mysql"), "did you mean postgres, sqlite or duckdb?"),
}


#: Key under which a task that is being read keeps the texts of its files; no author can write such a key.
_TAKEN = "x-\0files"
_MODULES = "x-\0modules"


class Layer(NamedTuple):
    """An outer spec that tasks inherit from."""

    spec: dict[str, Any]
    path: Path
    #: its name in messages
    label: str


class TaskReader:
    """Reads the tasks of one playbook; the workbook first, since tasks refer to it."""

    def __init__(
        self,
        walker: Walker,
        kinds: Mapping[str, KindSpec],
        settings: Settings,
        executor_spec: dict[str, Any],
        files: Files,
    ) -> None:
        self.files = files
        self.walker = walker
        self.findings = walker.findings
        self.kinds = kinds
        self.settings = settings
        self.executor_spec = executor_spec
        #: valid entries by name: raw task and its path
        self.workbook: dict[str, tuple[dict[str, Any], Path]] = {}
        self.task_fields: dict[str, tuple[Field, ...]] = {}
        self.spec_fields: dict[str, tuple[Field, ...]] = {}
        #: outer time limits in parts, for kinds that only use the total: the field, the value, its name in messages,
        #: the kind
        self.parts_of_time: dict[Path, tuple[Field, Any, str, str]] = {}
        #: those of them whose parts some task uses
        self.timed: set[Path] = set()
        #: number of values that layers and workbook may still copy into tasks
        self.room = settings.integer("playbook.max_nodes")

    def read_workbook(self, entries: Any) -> None:
        seen: dict[str, Path] = {}
        for index, raw in enumerate(as_list(entries)):
            path: Path = ("workbook", index)
            if not isinstance(raw, dict):
                continue
            name = raw.get("name")
            if not isinstance(name, str):
                self.findings.value("missing-key", "workbook entry needs the key 'name'", path)
                continue
            self.findings.unique(name, (*path, "name"), seen, "workbook entry")
            if raw.get("kind") == "workbook":
                self.findings.value("bad-value", "a workbook entry cannot be of kind workbook", (*path, "kind"))
                continue
            taken = self.taken_in(raw, path)
            self.task(Entry(name, path, taken), ())
            self.workbook.setdefault(name, (taken, path))

    def read(self, step: Step, tool: Any, path: Path, layers: tuple[Layer, ...]) -> None:
        if isinstance(tool, dict):
            if "kind" not in tool and any(word in tool for word in SUGAR):
                word = next(word for word in SUGAR if word in tool)
                self.findings.key(
                    "wrong-type", f"{word} must be in a list of tasks", (*path, word), f"tool: [{{{word}: …}}]"
                )
                return
            name = tool.get("name")
            read: list[Entry | Group] = [
                Entry(name if isinstance(name, str) and name else f"{step.name}_task", path, tool)
            ]
        elif isinstance(tool, list):
            read = BlockReader(self.walker).read(tool, path)
            if not tool:
                self.findings.value("missing-key", "the step has no task", path, "tool: {kind: noop}")
        else:
            return
        flow = self.body(step, read, layers, {}, Counter())
        if any(isinstance(item, Group) for item in read):
            step.flow = flow

    def body(
        self, step: Step, read: list[Entry | Group], layers: tuple[Layer, ...], seen: dict[str, Path],
        uses: Counter[str],
    ) -> list[int | Block]:  # fmt: skip
        """Add the tasks of a list, and of the blocks in it, to the step. Returns their order.

        `seen` has the labels of the step so far, `uses` counts its workbook entries.
        """
        flow: list[int | Block] = []
        for item in read:
            if isinstance(item, Group):
                branches = [
                    Branch(part.when, self.body(step, part.items, layers, seen, uses), part.path) for part in item.parts
                ]
                flow.append(Block(item.word, item.name, branches, item.most, item.path))
                continue
            task = self.task(item, layers)
            if task is None:
                continue
            if item.raw.get("kind") == "workbook":
                # `name` is that of the entry, which may be used more than once.
                uses[task.name] += 1
                task.name = f"{task.name}_{uses[task.name]}" if uses[task.name] > 1 else task.name
            where = (*item.path, "name") if "name" in item.raw else item.path
            self.findings.unique(task.name, where, seen, "task")
            flow.append(len(step.tasks))
            step.tasks.append(task)
        return flow

    def check_times(self) -> None:
        """Check outer time limits in parts that no task below them uses."""
        for path, (field, value, label, kind) in self.parts_of_time.items():
            if path not in self.timed:
                self.walker.walk(value, field, path, f"{label} (for kind {kind})")

    def task(self, entry: Entry, layers: tuple[Layer, ...]) -> Task | None:
        raw, path = entry.raw, entry.path
        kind_name = raw.get("kind")
        if kind_name is None and len(raw) == 1:
            ((label, inner),) = raw.items()
            if isinstance(inner, dict) and "kind" in inner:
                hint = f"- {{name: {label}, kind: {inner['kind']}, …}}"
                self.findings.key(
                    "task-label-map",
                    f"the label of a task is the value of `name:`, not a key: {label!r}",
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
        raw = self.taken_in(raw, path)
        self.walker.keys(raw, self.fields_of(kind), path, "task")
        self.one_of(raw, kind, path)
        self.variant(raw, kind, path)
        roots: dict[Path, Path] = {(key,): (*path, source) for key, (source, _) in as_map(raw.get(_TAKEN)).items()}
        return self.finish(entry.label, kind, raw, path, roots, layers)

    def taken_in(self, raw: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return the task with the text of its file in place of `file`, `module` and `function`."""
        kind = self.kinds.get(as_text(raw.get("kind")))
        place_key = next((key for key in ("file", "module") if key in raw), "")
        if kind is None or not kind.from_file or _TAKEN in raw or not (place_key or "function" in raw):
            return raw
        made = {key: value for key, value in raw.items() if key not in FILE_KEYS}
        # Whatever is wrong with the file, its missing text is not a separate error.
        made.setdefault(kind.from_file, "SELECT 1" if kind.sql else "")
        try:
            made |= self.text_of(raw, kind, place_key)
        except FileRefused as refused:
            code = "missing-file" if isinstance(refused, FileMissing) else "bad-file"
            hint = ""
            if code == "missing-file":
                hint = "the path counts from the playbook's folder; over HTTP the file comes along in `files`"
            elif "folder" in str(refused):
                hint = "put the file into the playbook's folder, or below it"
            self.findings.value(code, f"task of kind {kind.name}: {refused}", (*path, place_key or "function"), hint)
        return made

    def text_of(self, raw: dict[str, Any], kind: KindSpec, place_key: str) -> dict[str, Any]:
        """Return the config keys for `file`, or `module` and `function`, of a task. Raises FileRefused."""
        function = raw.get("function", "")
        wanted = [key for key in (kind.from_file, "file", "module") if key in raw]
        if len(wanted) > 1:
            raise FileRefused(f"{' and '.join(wanted)} exclude each other")
        if not kind.takes_modules and (place_key != "file" or "function" in raw):
            raise FileRefused("module and function belong to kind python")
        if not place_key:
            raise FileRefused("function names one in `file` or `module`")
        if not isinstance(raw[place_key], str) or has_template(raw[place_key]):
            raise FileRefused(
                f"{place_key} must be text without a template: files are read when the playbook is compiled"
            )
        if not isinstance(function, str) or (function and not function.isidentifier()):
            raise FileRefused(f"function: {str(function)[:60]!r} is not a valid name of a function")
        if place_key == "module":
            modules = self.files.module(raw[place_key])
            source = modules[raw[place_key]][1]
            code, where = entry(raw[place_key], function), modules[raw[place_key]][0]
        else:
            where, source = raw[place_key], self.files.text(raw[place_key])
            code = source
            modules = self.files.imports(source) if kind.takes_modules else {}
        if kind.takes_modules:
            defined = functions(source)
            wanted_function = function or ("main" if place_key == "module" else "")
            if defined is not None and wanted_function and wanted_function not in defined:
                raise FileRefused(f"{where} defines no function {wanted_function!r}")
            code = code if place_key == "module" else script(source, function)
        text = shell_command(source) if kind.name == "shell" else code
        made: dict[str, Any] = {kind.from_file: text, _TAKEN: {kind.from_file: (place_key, where)}}
        return {**made, _MODULES: as_config(modules)} if modules else made

    def kind(self, name: str, path: Path) -> KindSpec | None:
        kind = self.kinds.get(name)
        if kind is None:
            short = name.lower().removesuffix("operator") if "." not in name else name.lower().split(".")[-2]
            hint = (
                _OLD_KINDS.get(short)
                or (f"did you mean {short}?" if short in self.kinds else "")
                or self.findings.did_you_mean(name, [*self.kinds, "workbook"])
            )
            names = ", ".join(sorted(self.kinds))
            message = f"there is no tool kind {name[:60]!r} here; known: {names}"
            self.findings.value("unknown-kind", message, (*path, "kind"), "" if hint.startswith("known:") else hint)
        return kind

    def fields_of(self, kind: KindSpec) -> tuple[Field, ...]:
        fields = self.task_fields.get(kind.name)
        if fields is None:
            own = {field.name for field in kind.fields}
            spec = Field("spec", "object", fields=(*task_spec_fields(kind), *ON_SUCCESS, TASK_POLICY))
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
                if there:
                    message = f"task of kind {kind.name}: {' and '.join(there)} exclude each other"
                    last = [key for key in raw if key in there][-1]
                    self.findings.key("one-of", message, (*path, last), "keep one of them")
                else:
                    message = f"task of kind {kind.name}: one of {', '.join(group)} is needed"
                    self.findings.value("one-of", message, path)

    def variant(self, raw: dict[str, Any], kind: KindSpec, path: Path) -> None:
        """Report missing keys of the chosen operation, and keys of other operations."""
        chosen = next((variant for variant in kind.variants if variant.name == raw.get(kind.choice)), None)
        if chosen is None:
            return
        label = f"{kind.choice} {chosen.name}"
        for key in chosen.needs:
            if key not in raw:
                self.findings.value("missing-key", f"task of kind {kind.name}: {label} needs the key {key!r}", path)
        for key in raw:
            fitting = [variant.name for variant in kind.variants if key in (*variant.needs, *variant.takes)]
            if fitting and chosen.name not in fitting:
                message = f"{key} belongs to {kind.choice} {', '.join(fitting)}, not to {chosen.name}"
                self.findings.key("unknown-key", f"task of kind {kind.name}: {message}", (*path, key))

    def from_workbook(self, entry: Entry, layers: tuple[Layer, ...]) -> Task | None:
        """Return the workbook's entry in place of the task, merged with the task's args and spec."""
        raw, path = entry.raw, entry.path
        good = self.walker.keys(raw, WORKBOOK_TASK, path, "task")
        name = as_text(raw.get("name"))
        definition = self.workbook.get(name)
        if not good or definition is None:
            if name:
                self.findings.value(
                    "unknown-workbook",
                    f"the workbook has no entry {name!r}",
                    (*path, "name"),
                    self.findings.did_you_mean(name, self.workbook)
                    or f"declare it: workbook: [{{name: {name[:60]}, kind: …}}]",
                )
            return None
        body, home = definition
        kind = self.kinds.get(as_text(body.get("kind")))
        if kind is None:
            return None
        if "args" in raw and all(field.name != "args" for field in kind.fields):
            self.findings.key("unknown-key", f"a task of kind {kind.name} takes no args", (*path, "args"))
        spec_field = Field("spec", "object", fields=(*task_spec_fields(kind), *ON_SUCCESS, TASK_POLICY))
        self.walker.walk(raw.get("spec", {}), spec_field, (*path, "spec"), "task.spec")
        if not self.has_room(body, path):
            return None
        config = deep_merge(body, {key: raw[key] for key in ("args", "spec") if key in raw})
        roots: dict[Path, Path] = {(key,): (*home, key) for key in body}
        roots.update({("args", key): (*path, "args", key) for key in as_map(raw.get("args"))})
        if "spec" in raw:
            roots[("spec",)] = (*path, "spec")
        return self.finish(name, kind, config, path, roots, layers)

    def finish(
        self, label: str, kind: KindSpec, raw: dict[str, Any], path: Path, roots: dict[Path, Path],
        layers: tuple[Layer, ...],
    ) -> Task:  # fmt: skip
        spec = as_map(raw.get("spec"))
        config = {
            key: value
            for key, value in raw.items()
            if key not in ("name", "kind", "desc", "spec") and not key.startswith("x-")
        }
        own = {field.name for field in kind.fields}
        for key in ("name", "desc"):
            if key in raw and key in own:
                config[key] = raw[key]
        if kind.name == "assert":
            config = assertions(config)
        taken = {key: where for key, (_, where) in as_map(raw.get(_TAKEN)).items()}
        if _MODULES in raw:
            config["modules"] = raw[_MODULES]
        task = Task(label, kind, config, path, roots, taken)
        self.layered(task, spec, layers)
        policy = spec.get("policy")
        if isinstance(policy, dict):
            self.policy(task, policy, task.locate(("spec", "policy")))
        self.shorthands(task, spec)
        return task

    def shorthands(self, task: Task, spec: dict[str, Any]) -> None:
        """Compile `retry`, `set_ctx` and `set_iter` to rules.

        `retry` of an outer spec does not affect a task with a policy.
        """
        path = task.locate(("spec",))
        sets = {field.name: spec[field.name] for field in ON_SUCCESS if isinstance(spec.get(field.name), dict)}
        for patch, values in sets.items():
            reserved_keys(self.walker, values, patch, (*path, patch))
        # A kind that never waits gives the same result every time.
        retry = task.spec.get("retry") if "retry" in spec or not task.kind.at_once else None
        if task.rules is not None and "retry" in spec:
            hint = "keep one of them: a rule with then: {do: retry, …} does the same"
            self.findings.key(
                "conflict", "task.spec.retry has no effect together with a policy", (*path, "retry"), hint
            )
        short_rules(
            task, retry if isinstance(retry, dict) else None, {key: value for key, value in sets.items() if value}, path
        )
        task.spec = {key: value for key, value in task.spec.items() if key not in COMPILED}

    def layered(self, task: Task, spec: dict[str, Any], layers: tuple[Layer, ...]) -> None:
        """Set the effective spec of a task, from declared keys only.

        merge(kind_defaults, executor.spec, step.spec, loop.spec, task.spec)
        """
        fields = {field.name: field for field in self.spec_fields.get(task.kind.name) or task_spec_fields(task.kind)}
        written: dict[str, Any] = {}
        for layer, path, label in layers:
            for key, value in layer.items():
                field = fields.get(key)
                if field is None or key in ("policy", "mode") or not self.has_room(value, (*path, key)):
                    continue
                if key == "timeout" and isinstance(value, dict):
                    if "object" not in field.types:
                        # Kinds other than http use only the total of a time limit in parts.
                        self.parts_of_time.setdefault((*path, key), (field, value, f"{label}.{key}", task.kind.name))
                        if "total" not in value:
                            continue
                        value = value["total"]  # noqa: PLW2901  # what it means for this kind
                    else:
                        self.timed.add((*path, key))
                fitting = self.walker.walk(value, field, (*path, key), f"{label}.{key} (for kind {task.kind.name})")
                if key == "timeout":
                    self.positive(value, (*path, key), f"{label}.timeout")
                if fitting:
                    written = deep_merge(written, {key: value})
        for key, value in spec.items():
            if key in fields:
                written = deep_merge(written, {key: value})
        if "timeout" in spec:
            self.positive(spec["timeout"], task.locate(("spec", "timeout")), "task.spec.timeout")
        task.spec = deep_merge(task.kind.defaults, written)
        task.timeout_s = (
            _seconds_of(written.get("timeout"))
            or above_zero(dig(self.executor_spec, "policy", "defaults", "timeouts", "task_s"))
            or _seconds_of(task.kind.defaults.get("timeout"))
            or self.settings.number("tasks.timeout_s")
        )

    def has_room(self, value: Any, path: Path) -> bool:
        """Return whether inherited values still fit: copies count, or a small file could make a huge plan."""
        if self.room < 0:
            return False
        if isinstance(value, (dict, list)):
            self.room -= size(value, self.room)
        if self.room < 0:
            most = self.settings.integer("playbook.max_nodes")
            message = f"tasks inherit more than {most:,} values from here and elsewhere (playbook.max_nodes)"
            self.findings.key("limit-exceeded", message, path)
            return False
        return True

    def positive(self, timeout: Any, path: Path, label: str) -> None:
        """Report time limits that are not positive, for every kind."""
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
        task.on_unmatched = as_text(policy.get("on_unmatched"), "continue")
        task.rules = read_rules(self.walker, policy["rules"], (*path, "rules"))
        for rule in task.rules:
            read_action(self.walker, rule)


def _seconds_of(timeout: Any) -> float | None:
    """Return the attempt's limit in a `timeout`: a number, or the `total` of a map."""
    return above_zero(timeout.get("total") if isinstance(timeout, dict) else timeout)
