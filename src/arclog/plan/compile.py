"""Compiles the canonical playbook to a plan: a net of places and transitions, and the text of every template.

Every template is compiled once here to find its errors; the plan itself is plain data. The same text gives the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from arclog.expr import compile_condition, compile_text
from arclog.model.errors import ExpressionError, Position
from arclog.plan.net import (
    FORMAT,
    Action,
    AdmitRule,
    ArcPlan,
    Block,
    Branch,
    Limits,
    LoopPlan,
    NetArc,
    Place,
    Plan,
    StepPlan,
    TaskPlan,
    TaskPolicy,
    TaskRule,
    Transition,
    Webhook,
)
from arclog.playbook import canon
from arclog.playbook.canon import Loop, Playbook, Rule, Step, Task
from arclog.playbook.document import Document, Path, texts
from arclog.playbook.schema import has_template
from arclog.playbook.walk import Findings


class Text(Struct, frozen=True):
    """A template of the plan, for `check`."""

    #: admit | args | loop | inner loop | task | policy | sugar | arc | result
    where: str
    source: str
    at: Position
    free: frozenset[str] = frozenset()
    paths: frozenset[tuple[str, ...]] = frozenset()
    #: index of its step; -1 outside steps
    step: int = -1
    #: index of its task; -1 outside tasks
    task: int = -1


class Compiled(Struct):
    plan: Plan
    texts: list[Text]


def compile_playbook(playbook: Playbook, document: Document, findings: Findings) -> Compiled:
    """Return the plan of a canonical playbook. Errors in templates become findings."""
    return _Compiler(document, findings).playbook(playbook)


class _Compiler:
    def __init__(self, document: Document, findings: Findings) -> None:
        self.document = document
        self.findings = findings
        self.texts: list[Text] = []
        #: cache: each text is compiled once
        self.seen: dict[tuple[bool, str], tuple[frozenset[str], frozenset[tuple[str, ...]]]] = {}
        self.spots: dict[str, Position] = {}
        self.step_index = -1
        self.task_index = -1

    def playbook(self, source: Playbook) -> Compiled:
        steps = [self.step(index, step) for index, step in enumerate(source.steps)]
        self.step_index, self.spots = -1, {}
        self.tree("result", source.result, "result", ("executor", "spec", "result"))
        places, transitions, net = _net(source.entry, steps)
        plan = Plan(
            name=source.name,
            entry=source.entry,
            steps=tuple(steps),
            format=_format(source, steps),
            path=source.path,
            description=source.description,
            labels=source.labels,
            tags=source.tags,
            workload=source.workload,
            inputs=source.inputs,
            files=source.files,
            final_step=source.final_step,
            result=source.result,
            timeout_s=source.timeout_s,
            concurrency=source.concurrency,
            on_excess=source.on_excess,
            priority=source.priority,
            approval=source.approval,
            ctx=source.ctx,
            keychain=tuple(source.keychain),
            webhooks=tuple(Webhook(webhook.url, webhook.secret, webhook.on) for webhook in source.webhooks),
            schedules=tuple(source.schedules),
            limits=Limits(**source.limits),
            emit=source.emit,
            spots=self.spots,
            places=places,
            transitions=transitions,
            net=net,
        )
        return Compiled(plan, self.texts)

    def step(self, index: int, step: Step) -> StepPlan:
        self.step_index, self.task_index, self.spots = index, -1, {}
        self.tree("args", step.args, "args", (*step.path, "args"))
        admit = (
            None if step.admit is None else tuple(self.admit(number, rule) for number, rule in enumerate(step.admit))
        )
        loop = None if step.loop is None else self.loop(step.loop, "loop")
        tasks = tuple(self.task(number, task) for number, task in enumerate(step.tasks))
        self.task_index = -1
        flow = tuple(self.flow(item) for item in step.flow)
        arcs = tuple(self.arc(step, number) for number in range(len(step.arcs)))
        return StepPlan(
            name=step.name,
            tasks=tasks,
            flow=flow,
            desc=step.desc,
            args=step.args,
            admit=admit,
            loop=loop,
            arcs=arcs,
            mode=step.mode,
            on_no_match=step.on_no_match,
            join=step.join,
            join_count=step.join_count,
            end=step.end,
            timeout_s=step.timeout_s,
            deadline_s=step.deadline_s,
            failure_mode=step.failure_mode,
            pool=step.pool,
            priority=step.priority,
            resources=step.resources,
            emit=step.emit,
            at=self.document.at((*step.path, "step")),
            spots=self.spots,
        )

    def admit(self, number: int, rule: Rule) -> AdmitRule:
        self.condition("admit", rule.when, f"admit.{number}.when", (*rule.path, "when"))
        return AdmitRule(allow=rule.then.get("allow") is True, when=rule.when, at=self.document.at(rule.path))

    def loop(self, loop: Loop, spot: str) -> LoopPlan:
        where = "loop" if spot == "loop" else "inner loop"
        self.tree(where, loop.items, f"{spot}.items", (*loop.path, "in"))
        return LoopPlan(
            items=loop.items,
            iterator=loop.iterator,
            mode=loop.mode,
            max_in_flight=loop.max_in_flight,
            exec=loop.exec,
            inner=None if loop.inner is None else self.loop(loop.inner, f"{spot}.inner"),
            at=self.document.at(loop.path),
        )

    def arc(self, step: Step, number: int) -> ArcPlan:
        arc = step.arcs[number]
        free = self.condition("arc", arc.when, f"arcs.{number}.when", (*arc.path, "when"))
        self.tree("arc", arc.args, f"arcs.{number}.args", (*arc.path, "args"))
        return ArcPlan(
            source=step.name,
            index=number,
            target=arc.target,
            when=arc.when,
            args=arc.args,
            sees_failure=not free.isdisjoint(("event", "outcome")),
            at=self.document.at((*arc.path, "step")),
        )

    def task(self, number: int, task: Task) -> TaskPlan:
        self.task_index = number
        kind = task.kind
        for key, value in task.config.items():
            if key in kind.sql:
                self.sql(task, key, f"tasks.{number}.config.{key}")
            elif key not in kind.verbatim and key not in task.files:
                for inner, text in _templates(value, (key,)):
                    spot = ".".join((f"tasks.{number}.config", *map(str, inner)))
                    self.text("task", text, spot, task.locate(inner), condition=False)
        policy = None
        if task.rules is not None:
            spot = f"tasks.{number}.policy.rules"
            rules = tuple(self.rule(rule, f"{spot}.{index}") for index, rule in enumerate(task.rules))
            policy = TaskPolicy(rules, task.on_unmatched)
        return TaskPlan(
            name=task.name,
            kind=kind.name,
            config=task.config,
            verbatim=_verbatim(task),
            sql=tuple(key for key in kind.sql if key in task.config),
            dialect=kind.dialect if any(key in task.config for key in kind.sql) else "",
            by_ref=tuple(key for key in kind.by_ref if key in task.config),
            spec=task.spec,
            policy=policy,
            timeout_s=task.timeout_s,
            effectful=kind.effectful,
            runs_on=kind.runs_on,
            needs=kind.needs,
            at_most_once=task.spec.get("delivery") == "at_most_once",
            data_at=kind.data_at,
            files=task.files,
            helper=kind.empty_helper(),
            at=self.document.at(task.path),
        )

    def flow(self, item: int | canon.Block) -> int | Block:
        """Compile a task or a block of a list."""
        if isinstance(item, int):
            return item
        branches = []
        for number, branch in enumerate(item.branches):
            self.condition("sugar", branch.when, f"flow.{item.name}.{number}.when", (*branch.path, "when"))
            branches.append(Branch(tuple(map(self.flow, branch.body)), branch.when))
        return Block(item.word, item.name, tuple(branches), item.max, self.document.key_at(item.path))

    def rule(self, rule: Rule, spot: str) -> TaskRule:
        self.condition("policy", rule.when, f"{spot}.when", (*rule.path, "when"))
        for key in ("set_iter", "set_ctx", "message"):
            self.tree("policy", rule.then.get(key), f"{spot}.then.{key}", (*rule.then_path, key))
        return TaskRule(then=_action(rule.then), when=rule.when, at=self.document.at(rule.path))

    # --- templates ----------------------------------------------------------------------------------------------

    def condition(self, where: str, source: str | bool | None, spot: str, path: Path) -> frozenset[str]:
        if source is None or isinstance(source, bool):
            return frozenset()
        return self.text(where, source, spot, path, condition=True)

    def tree(self, where: str, value: Any, spot: str, path: Path) -> None:
        for inner, text in _templates(value):
            dotted = ".".join((spot, *map(str, inner)))
            self.text(where, text, dotted, (*path, *inner), condition=False)

    def sql(self, task: Task, key: str, spot: str) -> None:
        """Compile each template of a SQL text separately.

        A template that cannot be bound is a finding at its location.
        """
        from arclog.expr.sql.compile import SqlRefused, compile_sql, place_of

        source, params = task.config[key], _only_keys(task.config.get("params"))
        path = task.locate((key,))
        at = self.spots[spot] = self.document.text_at(path)
        if not isinstance(source, str) or not isinstance(params, (list, dict, type(None))):
            return  # the schema check has reported it
        places = self.document.places(path, source)
        file, reached = task.files.get(key, ""), 0

        def place(offset: int) -> Position:
            if file:
                nonlocal reached
                reached = offset
                self.spots[f"{spot}@{offset}"] = at
                return at
            position = places.at(offset)
            if position != place_of(source, at, offset):
                # The text has escapes or folded lines: at run time the position cannot be computed.
                self.spots[f"{spot}@{offset}"] = position
            return position

        try:
            command = compile_sql(source, task.kind.dialect, params, at, place=place)
        except ExpressionError as error:
            code = "sql-template" if isinstance(error, SqlRefused) else "template-syntax"
            where = f"{file}:{_line_of(source, reached)}: " if file else ""
            self.findings.add(code, where + error.message, error.at, _template_hint(error.message))
            return
        for hole in command.holes:
            self.texts.append(
                Text("task", hole.source, hole.at, hole.free, hole.paths, self.step_index, self.task_index)
            )

    def text(self, where: str, source: str, spot: str, path: Path, *, condition: bool) -> frozenset[str]:
        at = self.spots[spot] = self.document.text_at(path)
        names = self.seen.get((condition, source))
        if names is None:
            try:
                template = compile_condition(source, at) if condition else compile_text(source, at)
            except ExpressionError as error:
                self.findings.add(
                    "template-syntax",
                    error.message,
                    self.line_in(source, path, error.at.line - at.line, at),
                    _template_hint(error.message),
                )
                return frozenset()
            names = self.seen[condition, source] = (template.free, template.paths)
        free, paths = names
        self.texts.append(Text(where, source, at, free, paths, self.step_index, self.task_index))
        return free

    def line_in(self, source: str, path: Path, number: int, at: Position) -> Position:
        """Return the location of a line of a text in the file; for its first line, the location of the text."""
        before = source.splitlines(keepends=True)[:number]
        tail = source[sum(map(len, before)) :]
        if not before or not tail.strip():
            return at
        return self.document.places(path, source).at(len(source) - len(tail.lstrip()))


def _verbatim(task: Task) -> tuple[str, ...]:
    """Return the config keys whose text is not a template: code, and files that are not SQL."""
    own = tuple(key for key in task.kind.verbatim if key in task.config)
    return (*own, *(key for key in task.files if key not in own and key not in task.kind.sql))


def _line_of(source: str, offset: int) -> int:
    return source.count("\n", 0, offset) + 1


def _only_keys(params: Any) -> Any:
    """Return the names of `params` that SQL can use; their values are compiled like any other key."""
    if isinstance(params, dict):
        return dict.fromkeys(params)
    return [None] * len(params) if isinstance(params, list) else params


def _templates(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Iterate over the texts inside a value that contain templates."""
    return ((inner, text) for inner, text in texts(value, path) if has_template(text))


def _action(then: dict[str, Any]) -> Action:
    """Return the action with its defaults. An invalid action has been reported and becomes the default."""
    try:
        return msgspec.convert(then, Action)
    except msgspec.ValidationError:
        return Action()


def _format(source: Playbook, steps: list[StepPlan]) -> int:
    """Return the oldest plan format that can represent the plan."""
    if source.schedules or any(not hook.secret for hook in source.webhooks):
        return FORMAT
    if any(step.end or step.join == "all_ok" for step in steps):
        return FORMAT
    if (
        source.inputs
        or source.files
        or source.final_step
        or any(_is_newest(task) for step in steps for task in step.tasks)
    ):
        return FORMAT
    return 2 if source.ctx or any(step.flow for step in steps) else 1


def _is_newest(task: TaskPlan) -> bool:
    """Return whether a task needs a plan format after 2."""
    if task.runs_on == "pipeline":
        return True
    actions = [rule.then for rule in task.policy.rules] if task.policy is not None else []
    return any(action.delays or action.message or action.code for action in actions)


def _net(entry: str, steps: list[StepPlan]) -> tuple[tuple[Place, ...], tuple[Transition, ...], tuple[NetArc, ...]]:
    names = {step.name for step in steps}
    places = [Place("entry", "entry")]
    transitions: list[Transition] = []
    net = [NetArc("entry", f"start:{entry}")] if entry in names else []
    for step in steps:
        start, run, end = f"start:{step.name}", f"run:{step.name}", f"end:{step.name}"
        places.append(Place(run, "run"))
        transitions += [Transition(start, step.name, "start"), Transition(end, step.name, "end")]
        net += [NetArc(start, run), NetArc(run, end)]
        for arc in step.arcs:
            places.append(Place(arc.place, "arc"))
            net.append(NetArc(end, arc.place))
            if arc.target in names:
                net.append(NetArc(arc.place, f"start:{arc.target}"))
    return tuple(places), tuple(transitions), tuple(net)


#: Hints for templates that cannot be compiled, by a part of the message.
_TEMPLATE_HINTS = (
    ("got '='", "== compares"),
    (
        "there is no function 'now'",
        "run.started_at is when the run began; on arcs event.timestamp is when the step ended",
    ),
    ("there is no function 'today'", "run.started_at is when the run began: {{ run.started_at[:10] }}"),
    ("there is no function 'env'", "keychain: [{name: NAME, kind: env}], or a value of the workload"),
    ("there is no function", "write filters after a value: {{ value | filter }}; docs/templates.md lists them"),
    ("there is no method 'xcom_", "read a step's data by the step's name: {{ STEP.data }}"),
    ("there is no method 'strftime'", "a filter formats a moment: {{ value | date_format('%Y-%m-%d') }}"),
    *(
        (f"there is no filter {name!r}", "date_format('%Y-%m-%d') formats a moment, date gives its day")
        for name in ("strftime", "dateformat", "format_date", "to_datetime", "ds")
    ),
    ("filter date takes at most", "date gives the day of a moment; date_format('%Y-%m-%d') formats it"),
    ("end of print statement", "close it: {{ … }}"),
    ("looking for the following tags", "close the block: {% endif %}, {% endfor %} or {% endset %}"),
    ("a condition is one", 'when: "{{ workload.n > 1 }}"'),
)


def _template_hint(message: str) -> str:
    return next((hint for part, hint in _TEMPLATE_HINTS if part in message), "")
