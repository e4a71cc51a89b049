"""A program: a plan with its templates compiled, ready to run. One per plan; everything in it is immutable.

Templates are compiled on first use, so a run pays only for the steps that it reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from arclog.expr import Limits, Template, Tree, compile_condition, compile_tree
from arclog.model.config.settings import Settings
from arclog.model.data.lazy import lazy
from arclog.model.data.lru import LruCache
from arclog.model.errors import NOWHERE, InvariantBroken, Position
from arclog.plan.guards import Guards
from arclog.plan.net import ArcPlan, LoopPlan, Plan, StepPlan, TaskPlan, TaskRule, event_room
from arclog.plan.reach import Reach
from arclog.plan.reads import Path, demanded

#: Names that a task's templates take from the worker.
LOCAL_NAMES = frozenset({"args", "iter", "keychain", "_prev", "_task", "_attempt", "execution_id", "outcome"})

#: Event types that are recorded only if a step or the executor requests them in `emit.events`.
OPTIONAL_EVENTS = frozenset(
    {"task.attempt.started", "task.attempt.done", "task.attempt.failed", "loop.iteration.scheduled"}
)


#: Maximum number of iterations that one command runs in parallel: each may leave a task that a single decision has to
#: end.
MAX_SIDE_BY_SIDE = 500


class Condition:
    """A compiled `when`; None is the else and always holds."""

    __slots__ = ("source", "template")

    def __init__(self, when: str | bool | None, at: Position, limits: Limits) -> None:
        self.source = "" if when is None else str(when)
        self.template: Template | None = None if when is None else compile_condition(when, at, limits)

    def holds(self, scope: Mapping[str, Any]) -> bool:
        return self.template is None or bool(self.template.evaluate(scope))

    @property
    def paths(self) -> Iterable[tuple[str, ...]]:
        return () if self.template is None else self.template.paths

    @property
    def reads(self) -> Iterable[Path]:
        return () if self.template is None else self.template.reads


_ALWAYS = Condition(None, NOWHERE, Limits())


class _Texts:
    """The template texts below one path of a step, with their locations and limits."""

    __slots__ = ("_fallback", "_limits", "_spots", "_start")

    def __init__(self, spots: Mapping[str, Position], prefix: str, fallback: Position, limits: Limits) -> None:
        self._spots = spots
        self._start = f"{prefix}." if prefix else ""
        self._fallback = fallback
        self._limits = limits

    def condition(self, when: str | bool | None, path: str) -> Condition:
        return _ALWAYS if when is None else Condition(when, self._at(path), self._limits)

    def tree(self, value: Mapping[str, Any], path: str) -> Tree:
        return compile_tree(dict(value), lambda keys: self._at(".".join((path, *map(str, keys)))), self._limits)

    def whole(self, value: Any, path: str) -> Tree:
        """Compile a value with a single known location."""
        at = self._at(path)
        return compile_tree(value, lambda _: at, self._limits)

    def sql(self, config: Mapping[str, Any], keys: tuple[str, ...], dialect: str) -> Tree:
        """Compile a config with SQL in it: `params` go into its statements."""
        from arclog.expr.sql.compile import compile_sql

        params = config.get("params")
        others = self.tree(
            {key: value for key, value in config.items() if key not in keys and key != "params"}, "config"
        )
        commands = {
            key: compile_sql(
                config[key],
                dialect,
                params,
                self._at(f"config.{key}"),
                self._limits,
                lambda inner: self._at(".".join(("config.params", *map(str, inner)))),
                partial(self._place, config[key], f"config.{key}"),
            )
            for key in keys
        }
        return Tree(
            lambda scope: {**others.evaluate(scope), **{key: sql.evaluate(scope) for key, sql in commands.items()}},
            [others, *commands.values()],
        )

    def _place(self, source: str, path: str, offset: int) -> Position:
        """Return the location of a character of a SQL text: the recorded one, else a computed one."""
        from arclog.expr.sql.compile import place_of

        recorded = self._spots.get(f"{self._start}{path}@{offset}")
        return place_of(source, self._at(path), offset) if recorded is None else recorded

    def _at(self, path: str) -> Position:
        """Return the recorded location of a text, or that of its step."""
        return self._spots.get(self._start + path, self._fallback)


class RuleProgram:
    """One rule of a task policy."""

    __slots__ = ("condition", "message", "rule", "set_ctx", "set_iter")

    def __init__(self, rule: TaskRule, index: int, texts: _Texts) -> None:
        self.rule = rule
        where = f"policy.rules.{index}"
        self.condition = texts.condition(self.rule.when, f"{where}.when")
        self.set_iter = texts.tree(self.rule.then.set_iter, f"{where}.then.set_iter")
        self.set_ctx = texts.tree(self.rule.then.set_ctx, f"{where}.then.set_ctx")
        #: for a fail; None if it has no message of its own
        self.message = texts.whole(rule.then.message, f"{where}.then.message") if rule.then.message else None

    @property
    def trees(self) -> tuple[Tree, ...]:
        """Its templates besides the condition."""
        return (self.set_iter, self.set_ctx) if self.message is None else (self.set_iter, self.set_ctx, self.message)


class TaskProgram:
    """One task: its templates, its verbatim values and its rules."""

    def __init__(self, plan: TaskPlan, index: int, step: StepPlan, limits: Limits) -> None:
        self.plan = plan
        self.index = index
        self._texts = _Texts(step.spots, f"tasks.{index}", plan.at, limits)
        self.verbatim = {key: plan.config[key] for key in plan.verbatim if key in plan.config}

    @lazy
    def config(self) -> Tree:
        left_out = {*self.verbatim, *self.plan.by_ref}
        templated = {key: value for key, value in self.plan.config.items() if key not in left_out}
        if self.plan.sql:
            return self._texts.sql(templated, self.plan.sql, self.plan.dialect)
        return self._texts.tree(templated, "config")

    @lazy
    def reads_keychain(self) -> bool:
        """Return whether a template of the config reads a secret."""
        return any(path[0] == "keychain" for path in self.config.paths)

    @lazy
    def by_ref(self) -> dict[str, Tree]:
        """Config keys that the tool may receive as a ref."""
        return {key: self._texts.whole(self.plan.config[key], f"config.{key}") for key in self.plan.by_ref}

    @lazy
    def rules(self) -> tuple[RuleProgram, ...]:
        policy = self.plan.policy
        if policy is None:
            return ()
        return tuple(RuleProgram(rule, index, self._texts) for index, rule in enumerate(policy.rules))

    def paths(self) -> set[tuple[str, ...]]:
        """Return every name path that the task's templates read."""
        paths = set(self.config.paths)
        for tree in self.by_ref.values():
            paths |= tree.paths
        paths.update((name,) for name in self.plan.needs)
        for rule in self.rules:
            paths.update(rule.condition.paths, *(tree.paths for tree in rule.trees))
        return paths


class ArcProgram(Struct, frozen=True, gc=False):
    """One arc of a step. There can be many, so arcs are not tracked by the garbage collector."""

    plan: ArcPlan
    condition: Condition
    args: Tree


def _arc_program(arc: ArcPlan, spots: Mapping[str, Position], limits: Limits) -> ArcProgram:
    texts = _Texts(spots, f"arcs.{arc.index}", arc.at, limits)
    return ArcProgram(arc, texts.condition(arc.when, "when"), texts.tree(arc.args, "args"))


class Needs:
    """The values that a step run's command must contain.

    These are keys of ctx and workload (None for all), steps, and bare workload keys.
    """

    __slots__ = ("bare", "ctx", "steps", "workload")

    def __init__(self, paths: Iterable[tuple[str, ...]], labels: frozenset[str], steps: Container[str]) -> None:
        self.ctx: set[str] | None = set()
        self.workload: set[str] | None = set()
        self.steps: set[str] = set()
        self.bare: set[str] = set()
        for path in paths:
            name = path[0]
            if name == "ctx":
                self.ctx = _widened(self.ctx, path)
            elif name == "workload":
                self.workload = _widened(self.workload, path)
            elif name not in LOCAL_NAMES and name not in labels:
                (self.steps if name in steps else self.bare).add(name)


class Absent(Mapping[str, str]):
    """Messages about steps and tasks that have not run, by name. One object per step; the names are shared."""

    __slots__ = ("steps", "tasks")

    def __init__(self, steps: Collection[str] = (), tasks: Collection[str] = ()) -> None:
        self.steps = steps
        #: tasks of the step whose templates these are; none outside task lists
        self.tasks = tasks

    def __getitem__(self, name: str) -> str:
        if name == "_prev" and self.tasks:
            why = "no task has run before"
        elif name in self.tasks:
            why = f"task {name} has not run"
        elif name in self.steps:
            why = f"step {name} has not run"
        else:
            raise KeyError(name)
        return f"{why}; ask for it first ({{{{ … if {name} else … }}}}), or give it a default (| default(…))"

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys((*(["_prev"] if self.tasks else ()), *self.tasks, *self.steps))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Names(Struct, frozen=True):
    """The possible meanings of a template's names, besides the available values."""

    absent: Absent
    #: ctx keys to which every `set_ctx` contributes a value, with their reducers
    reducers: dict[str, str] = {}


class StepProgram:
    """One step."""

    #: names that `loop.in` can use besides ctx, workload, steps and workload keys
    _LOOP_NAMES = frozenset({"event", "args", "iter", "execution_id"})

    def __init__(self, plan: StepPlan, run: Names, emit: frozenset[str], limits: Limits) -> None:
        self.plan = plan
        self.name = plan.name
        #: optional event types that this step records
        self.emit = emit
        self._run = run
        self._limits = limits
        self._texts = _Texts(plan.spots, "", plan.at, limits)
        self.tasks = tuple(TaskProgram(task, i, plan, limits) for i, task in enumerate(plan.tasks))
        self.index = {task.name: i for i, task in enumerate(plan.tasks)}

    @lazy
    def on_engine(self) -> frozenset[str]:
        """Names of the tasks that the engine runs."""
        return frozenset(task.name for task in self.plan.tasks if task.runs_on == "engine")

    @lazy
    def args(self) -> Tree:
        return self._texts.tree(self.plan.args, "args")

    @lazy
    def names(self) -> Names:
        """The possible meanings of the names in its task list."""
        return Names(Absent(self._run.absent.steps, self.index), self._run.reducers)

    @lazy
    def guards(self) -> Guards | None:
        """The guards of `choose`, `while` and `until`; None if the tasks run in sequence."""
        return Guards(self.plan.flow, len(self.tasks), self._texts.condition) if self.plan.flow else None

    @lazy
    def admit(self) -> tuple[tuple[Condition, bool], ...] | None:
        if self.plan.admit is None:
            return None
        return tuple(
            (self._texts.condition(rule.when, f"admit.{i}.when"), rule.allow) for i, rule in enumerate(self.plan.admit)
        )

    @property
    def loop(self) -> LoopPlan:
        """The loop. Raises InvariantBroken if the step has none."""
        if self.plan.loop is None:
            raise InvariantBroken(f"step {self.name} is not a loop")
        return self.plan.loop

    @lazy
    def loops(self) -> tuple[LoopPlan, ...]:
        """The loop and the loops inside it, outermost first."""
        levels = [self.loop]
        while levels[-1].inner is not None:
            levels.append(levels[-1].inner)
        return tuple(levels)

    @lazy
    def plain_tasks(self) -> tuple[str, ...] | None:
        """The names of the tasks if workers run all of them, in order, with neither guards nor policies; else None."""
        plans = [task.plan for task in self.tasks]
        if self.guards is not None or self.on_engine or any(plan.policy is not None for plan in plans):
            return None
        return tuple(plan.name for plan in plans)

    @lazy
    def items(self) -> tuple[Tree, ...]:
        """The items of each loop level, outermost first."""
        levels: list[Tree] = []
        plan: LoopPlan | None = self.loop
        while plan is not None:
            levels.append(self._texts.whole(plan.items, "loop." + "inner." * len(levels) + "items"))
            plan = plan.inner
        return tuple(levels)

    def items_at(self, depth: int) -> Tree:
        return self.items[depth]

    @lazy
    def arcs(self) -> tuple[ArcProgram, ...]:
        return tuple(_arc_program(arc, self.plan.spots, self._limits) for arc in self.plan.arcs)

    @lazy
    def reads_own(self) -> tuple[Path, ...]:
        """The parts of this step's outcomes that the server reads by names that only the step has.

        On arcs that is `outcome`; in the policies of tasks that the engine runs, the earlier tasks.
        """
        on_arcs = [path for arc in self.arcs for path in (*arc.condition.reads, *arc.args.reads)]
        policies = [rule for task in self.tasks if task.plan.runs_on == "engine" for rule in task.rules]
        in_rules = [
            path
            for rule in policies
            for path in (*rule.condition.reads, *(read for tree in rule.trees for read in tree.reads))
        ]
        return (
            *(path for path in on_arcs if path[0] == "outcome"),
            *(path for path in in_rules if path[0] == "_prev" or path[0] in self.index),
        )

    @lazy
    def kinds(self) -> tuple[str, ...]:
        """Kinds that a worker must support to run the step."""
        return tuple(sorted({task.kind for task in self.plan.tasks if task.runs_on == "worker"}))

    @lazy
    def items_needs(self) -> Needs:
        """The values that a worker needs to evaluate `loop.in`, at any level."""
        paths = {path for level in self.items for path in level.paths if path[0] not in self._LOOP_NAMES}
        return Needs(paths, frozenset(), self._run.absent.steps)

    def paths(self) -> set[tuple[str, ...]]:
        """Return every name path that the templates of the task list read."""
        paths: set[tuple[str, ...]] = set()
        for task in self.tasks:
            paths |= task.paths()
        for condition in self.guards.conditions if self.guards is not None else ():
            paths.update(condition.paths)
        return paths

    @lazy
    def needs(self) -> Needs:
        return Needs(self.paths(), frozenset(self.index), self._run.absent.steps)


def _side_by_side(step: StepPlan) -> int:
    """Return the number of iterations that one command of a loop runs at a time.

    A task that waits ends its command, so it must be the only one in it.
    """
    loop = step.loop
    while loop is not None and loop.inner is not None:
        loop = loop.inner
    if loop is None or loop.mode != "parallel" or loop.exec != "local":
        return 1
    return 1 if any(task.runs_on == "engine" for task in step.tasks) else min(loop.max_in_flight, MAX_SIDE_BY_SIDE)


class Program:
    """A runnable plan."""

    def __init__(self, plan: Plan, digest: str, size: int = 0, pause: Callable[[], None] | None = None) -> None:
        """`pause` is called periodically: a large plan takes long."""
        self.plan = plan
        self.digest = digest
        #: bytes of the encoded plan; 0 if unknown
        self.size = size
        #: ctx keys with a reducer
        self.declared: dict[str, str] = {key: spec["reducer"] for key, spec in plan.ctx.items()}
        #: possible meanings of the names in templates that the server evaluates
        self.names = Names(
            Absent(frozenset(step.name for step in plan.steps)), self.declared if plan.format > 1 else {}
        )
        #: maximum bytes of an event's payload
        self.event_room = event_room(plan.limits)
        self._limits = Limits(max_work=plan.limits.max_expr_work, max_bytes=plan.limits.max_expr_bytes)
        self.steps: dict[str, StepProgram] = {}
        for step in plan.steps:
            self.steps[step.name] = StepProgram(step, self.names, _emitted(plan.emit + step.emit), self._limits)
            if pause is not None:
                pause()

    @lazy
    def result(self) -> Tree | None:
        if self.plan.result is None:
            return None
        return _Texts(self.plan.spots, "", NOWHERE, self._limits).whole(self.plan.result, "result")

    @lazy
    def asks(self) -> bool:
        """Return whether the start or some task waits for an approval."""
        return self.plan.approval or any(task.kind == "approval" for step in self.plan.steps for task in step.tasks)

    @lazy
    def reach(self) -> Reach:
        """The plan's joins, and the steps that can bring them tokens."""
        return Reach(self.plan.entry, self.plan.steps)

    def prepare(self, pause: Callable[[], None]) -> None:
        """Compute everything that decisions would compute on first use, with a call of `pause` now and then."""
        for step in self.steps.values():
            _ = step.args, step.admit, step.reads_own, list(step.paths())
            pause()
        self.__dict__["reach"] = Reach(self.plan.entry, self.plan.steps, pause=pause)
        for name in ("result", "asks", "side_by_side", "results_read", "results_routed", "demand"):
            getattr(self, name)
            pause()

    @lazy
    def side_by_side(self) -> dict[str, int]:
        """Steps whose commands run several iterations at a time, with the number."""
        counts = {step.name: _side_by_side(step) for step in self.plan.steps if step.loop is not None}
        return {name: count for name, count in counts.items() if count > 1}

    @lazy
    def results_read(self) -> frozenset[str]:
        """Steps whose loop results some template reads, as `{{ step.results }}` or as a whole."""
        in_tasks = {path for step in self.steps.values() for path in step.paths()}
        return self._whose_results(in_tasks) | self._whose_results(self._routing_reads(items=True))

    @lazy
    def results_routed(self) -> frozenset[str]:
        """Steps whose loop results the server itself reads. Items of loops do not count: a worker can expand those."""
        return self._whose_results(self._routing_reads(items=False))

    @lazy
    def demand(self) -> dict[str, frozenset[Path]]:
        """The parts of each step's outcome that templates of the server read."""
        own = {name: step.reads_own for name, step in self.steps.items()}
        return demanded(self._routing_reads(items=True), self.steps, own)

    def _whose_results(self, paths: Iterable[tuple[Any, ...]]) -> frozenset[str]:
        return frozenset(
            path[0] for path in paths if path[0] in self.steps and (len(path) == 1 or path[1] == "results")
        )

    def _routing_reads(self, *, items: bool) -> Iterable[Path]:
        """Iterate over the paths that templates of the server read."""
        if self.result is not None:
            yield from self.result.reads
        for step in self.steps.values():
            yield from step.args.reads
            if items and step.plan.loop is not None:
                for level in step.items:
                    yield from level.reads
            for condition, _ in step.admit or ():
                yield from condition.reads
            for arc in step.arcs:
                yield from arc.condition.reads
                yield from arc.args.reads


def _emitted(asked: tuple[str, ...]) -> frozenset[str]:
    """Return the optional event types that `emit.events` requests; 'full' for all of them."""
    return OPTIONAL_EVENTS if "full" in asked else OPTIONAL_EVENTS & set(asked)


def _widened(keys: set[str] | None, path: tuple[str, ...]) -> set[str] | None:
    if keys is None or len(path) == 1:
        return None
    keys.add(path[1])
    return keys


# A memory cache of programs: a large plan takes about eleven times the bytes of its encoding.
#
# Small and large programs have separate limits, so that a few large ones do not displace many small ones.


#: Minimum bytes of an encoded large plan; preparing a smaller one takes a few milliseconds.
LARGE = 32_768


class Programs:
    """Programs by the digest of their plan; the least recently used is removed first."""

    def __init__(self, settings: Settings) -> None:
        most, most_bytes = settings.integer("engine.cache_programs"), settings.integer("engine.cache_programs_bytes")
        self._small: LruCache[str, Program] = LruCache(most, most_bytes, _size)
        self._large: LruCache[str, Program] = LruCache(most, most_bytes, _size)

    def get(self, digest: str) -> Program | None:
        return self._small.get(digest) or self._large.get(digest)

    def keep(self, program: Program) -> Program:
        """Add a program unless its plan has one. Returns the cached program."""
        return self.get(program.digest) or self._side(program).put(program.digest, program)

    def has_given_up(self, program: Program) -> bool:
        """Return whether a program is a large one that is no longer cached."""
        return program.size >= LARGE and program.digest not in self._large

    def _side(self, program: Program) -> LruCache[str, Program]:
        return self._large if program.size >= LARGE else self._small


def _size(program: Program) -> int:
    return program.size
