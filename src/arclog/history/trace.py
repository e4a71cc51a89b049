"""Provenance: follows a value of a run back through templates and outcomes to its origin.

A node is a value with the event that recorded it and the line of the playbook that produced it; its sources are the
values that the template there read. A node without sources is an origin: the request, the playbook itself, or a task's
result. How a task uses its inputs is unknown, so everything that its config read is a source of its result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from arclog.core.flow.reducers import begun, combined
from arclog.expr import compile_tree, path_text
from arclog.history.step_runs import Key, Log
from arclog.model.config.reducers import misfit, unfit
from arclog.model.errors import ExpressionError, Position
from arclog.model.events import Event
from arclog.model.outcome import data_of, widened
from arclog.plan.net import Plan, StepPlan, TaskPlan

#: Parts of a path: keys and indexes.
Path = tuple[str | int, ...]

_VIEW = frozenset({"status", "result", "data", "error", "meta"})
_LONE = re.compile(r"\{\{-?\s*([A-Za-z_][\w.\[\]]*)\s*-?\}\}")
_TASK_ENDS = frozenset({"task.done", "task.failed"})
_STEP_ENDS = frozenset({"step.done", "step.failed"})
#: Maximum number of names in a message.
_MOST_NAMES = 20
#: Maximum number of templates in a chain.
_DEEPEST = 100
#: Names that come from the engine.
_ENGINE = frozenset({"execution_id", "event", "_task", "_attempt", "run"})
#: Config keys that identify the request to an external system. The first one present is shown.
_REQUEST_KEYS = (
    "url",
    "endpoint",
    "command",
    "query",
    "path",
    "key",
    "uri",
    "source",
    "subject",
    "image",
    "file",
    "code",
)
#: Those among them that only requests have. `code`, `key` and `path` may be the names of any input.
_REQUESTS = ("url", "endpoint", "command", "query", "uri", "subject", "image")


class Node(Struct):
    """A value and its sources."""

    #: result ctx step task item args workload default constant keychain run child stored other
    what: str
    #: its name there: `fetch.data.total`
    name: str
    value: Any = None
    #: seq of the event that recorded it; 0 if none did
    seq: int = 0
    step: str = ""
    task: str = ""
    #: indexes of the loop item
    item: tuple[int, ...] = ()
    #: kind of the task
    kind: str = ""
    #: line and column in the playbook; 0 if unknown
    line: int = 0
    column: int = 0
    #: the template in the playbook
    template: str = ""
    #: for a task that called an external system: url, status, command …
    origin: dict[str, Any] = {}
    sources: list[Node] = []


class Child(Struct, frozen=True):
    """The result of another run, in which the trace continues."""

    execution_id: str
    path: Path
    node: Node


class _Place(Struct, frozen=True):
    """The place where a template was evaluated: before which event, and in which pipeline."""

    #: only events before this index count
    index: int
    key: Key | None = None
    item: tuple[int, ...] = ()
    #: the task whose policy it belongs to; None between tasks or on the server
    outcome_of: int | None = None
    in_tasks: bool = False


class ReusedEvents(Struct, frozen=True):
    """The events that a run kept of another one, whose playbook may have been different."""

    #: id of the other run
    execution_id: str
    #: number of these events
    events: int
    #: steps that are new or different in this run's playbook; None if the other playbook is unknown
    changed: frozenset[str] | None


class Tracer:
    """Traces values of one run."""

    def __init__(self, plan: Plan, events: Sequence[Event], max_nodes: int, reused: ReusedEvents | None = None) -> None:
        self._plan = plan
        self._reused = reused
        self._steps: dict[str, StepPlan] = {step.name: step for step in plan.steps}
        self._events = events
        self._log = Log(events)
        #: number of nodes that may still be created
        self.left = max_nodes
        #: the playbook's file, as its author names it
        self.file: str = events[0].payload.get("file", "") if events else ""
        self._made: dict[tuple[Any, ...], Node] = {}
        #: results of other runs that were found
        self.children: list[Child] = []
        #: whether more than `max_nodes` nodes were needed, or a longer chain than is followed
        self.is_cut = False
        self._depth = 0
        self._workload = events[0].payload.get("workload") or {} if events else {}
        #: indexes of the events that set a key of ctx
        self._setting: dict[str, list[int]] = {}
        #: indexes of the events of each task run, by step run
        self._task_runs: dict[Key, dict[tuple[Any, ...], list[int]]] = {}
        #: index of the end of each step run
        self._ends: dict[Key, int] = {}
        for index, event in enumerate(events):
            if event.type in _STEP_ENDS and not event.informative:
                self._ends[event.step, event.run] = index
            patch = event.payload.get("set_ctx") if event.type == "policy.task.evaluated" else None
            if event.type == "signal.received" and event.payload.get("signal") == "UPDATE_PARAMS":
                patch = event.payload.get("data")
            for key in patch if isinstance(patch, dict) else ():
                self._setting.setdefault(str(key), []).append(index)

    def trace(self, path: Path) -> Node | None:
        """Return the node of a value: `result…`, `ctx…`, `workload…` or a step's name; None if there is no such
        value.
        """
        if not path:
            return None
        if path[0] == "result":
            return self._result(path[1:])
        return self._name(path, _Place(len(self._events)))

    def absence(self, path: Path) -> str:
        """Return what exists instead at a path that leads nowhere; '' if it leads somewhere or the log does not show
        it.
        """
        name, rest = str(path[0]) if path else "", path[1:]
        if name == "result":
            index = self._last(lambda event: event.type == "playbook.finished")
            if index < 0:
                return "the run has not recorded a result"
            payload = self._events[index].payload
            return "" if payload.get("result_ref") else _absence(("result",), payload.get("result"), rest)
        if not rest:
            return ""
        if name == "ctx":
            declared = dict.fromkeys((*self._plan.ctx, *self._setting))
            return "" if rest[0] in declared else (_members("ctx", declared) if declared else "ctx is empty")
        step = self._steps.get(name)
        if step is not None and step.loop is not None and step.loop.inner is None and rest[0] == "results" and rest[1:]:
            total = self._item_count(name)
            if total is not None and not (isinstance(rest[1], int) and -total <= rest[1] < total):
                return f"{name}.results has {_items(total)}"
        return ""

    def _item_count(self, step: str) -> int | None:
        """Return the number of items in the loop of a step's latest run; None if the log does not show it."""
        run = self._log.latest(step)
        payloads = () if run is None else (self._events[index].payload for index in run.events)
        return next((payload["total"] for payload in payloads if "total" in payload), None)

    # -- names --------------------------------------------------------------------------------------------------------

    def _name(self, path: Path, place: _Place) -> Node | None:
        """Return the value that a name referred to at a place; None if that is unknown."""
        node = self._made.get((path, place))
        if node is None:
            if self._depth >= _DEEPEST:
                self.is_cut = True
                return None
            self._depth += 1
            node = self._node_at(path, place)
            self._depth -= 1
            if node is not None:
                self._made[path, place] = node
        return node

    def _node_at(self, path: Path, place: _Place) -> Node | None:
        name = str(path[0])
        rest = path[1:]
        if place.in_tasks and place.key is not None:
            node = self._in_tasks(name, rest, place, place.key)
            if node is not None:
                return node
        if name == "ctx":
            return self._ctx(rest, place)
        if name == "workload":
            return self._from_workload(rest)
        if name == "args" and place.key is not None:
            return self._args(rest, place.key)
        if name == "outcome" and place.key is not None:
            return self._step_run(place.key, rest, place.index)
        if name in _ENGINE:
            return self._node("run", path, None)
        if name in self._steps:
            return self._step(name, rest, place.index)
        return self._from_workload(path)

    def _in_tasks(self, name: str, rest: Path, place: _Place, key: Key) -> Node | None:
        if name == "outcome" and place.outcome_of is not None:
            return self._task(place.outcome_of, rest)
        if name == "iter":
            return self._iter(rest, place, key)
        if name == "keychain":
            return self._node("keychain", (name, *rest[:1]), None)
        if name == "_prev" or any(task.name == name for task in self._steps[key[0]].tasks):
            run = self._log.runs.get(key)
            for index in reversed(() if run is None else run.events):
                event = self._events[index]
                mine = event.type in _TASK_ENDS and (event.iteration or ()) == place.item
                if mine and index < place.index and name in ("_prev", event.task):
                    return self._task(index, rest)
        return None

    # -- values of a run
    # ----------------------------------------------------------------------------------------------------

    def _result(self, path: Path) -> Node | None:
        index = self._last(lambda event: event.type == "playbook.finished")
        if index < 0:
            return None
        payload = self._events[index].payload
        value = _reach(payload.get("result"), path)
        if payload.get("result_ref"):
            value = {"ref": payload["result_ref"].get("ref")}
        if self._plan.result is not None:
            node = self._node("result", ("result", *path), value, index)

            def at(keys: Path) -> Position:
                whole = self._plan.spots.get("result", Position())
                return self._plan.spots.get(".".join(map(str, ("result", *keys))), whole)

            return self._templated(node, self._plan.result, path, _Place(index), at)
        node = self._node("result", ("result", *path), value, index)
        for run in sorted(self._log.runs.values(), key=lambda run: -run.events[-1]):
            if run.routed is not None and not run.selected and run.end is not None:
                source = self._step_run(run.key, path, index)
                if source is not None:
                    node.sources.append(source)
                break
        return node

    def _ctx(self, path: Path, place: _Place) -> Node | None:
        if not path:
            return self._whole_ctx(place)
        key = str(path[0])
        reducer = self._plan.ctx.get(key, {}).get("reducer")
        initial = self._plan.ctx.get(key, {}).get("initial")
        setting = [index for index in self._setting.get(key, ()) if index < place.index]
        node = self._node("ctx", ("ctx", *path), _reach(self._ctx_value(key, setting), path[1:]))
        for index in reversed(setting):
            event = self._events[index]
            is_signal = event.type == "signal.received"
            if is_signal:
                written = _reach(event.payload["data"][key], path[1:])
                source = self._node("run", ("UPDATE_PARAMS", *path), written, index)
            else:
                # A reducer combines whole values: the path is one of its result.
                source = self._set(index, "set_ctx", key, path[1:] if reducer is None else ())
            if not node.sources:
                node.seq, node.step, node.task = index + 1, event.step, event.task
            node.sources.append(source)
            if reducer is None or is_signal:
                return node
            if self.left <= 0:
                self.is_cut = True
                return node
        if initial is not None:
            node.sources.append(self._node("default", ("executor", "spec", "ctx", key), initial))
        return node

    def _whole_ctx(self, place: _Place) -> Node:
        """Return ctx as a map, with its keys as sources."""
        node = self._node("ctx", ("ctx",), {})
        for key in dict.fromkeys((*self._plan.ctx, *self._setting)):
            setting = [index for index in self._setting.get(key, ()) if index < place.index]
            value = self._ctx_value(key, setting)
            if not setting and value is None:
                continue
            node.value[key] = value
            if self.left <= 0:
                self.is_cut = True
                continue
            source = self._name(("ctx", key), place)
            if source is not None:
                node.sources.append(source)
        return node

    def _ctx_value(self, key: str, setting: Sequence[int]) -> Any:
        """Return the value of a key of ctx after the events that set it. A reducer combines them in item order within a
        step run, and in the order in which step runs ended.
        """
        declared = self._plan.ctx.get(key, {})
        reducer, value = declared.get("reducer"), declared.get("initial")
        if reducer is None:
            if not setting:
                return value
            payload = self._events[setting[-1]].payload
            return (payload["data"] if "set_ctx" not in payload else payload["set_ctx"])[key]
        parts: list[tuple[int, tuple[int, ...], int]] = []
        for index in setting:
            event = self._events[index]
            if event.type == "signal.received":  # it sets the key, whatever was there before
                value = event.payload["data"][key]
                parts.clear()
            else:
                parts.append((self._ends.get((event.step, event.run), index), event.iteration or (), index))
        for _, _, index in sorted(parts):
            written = self._events[index].payload["set_ctx"][key]
            if not misfit(reducer, written) and not unfit(reducer, value):
                value = combined(reducer, value, begun(reducer, written))
        return value

    def _set(self, index: int, role: str, key: str, path: Path) -> Node:
        """Return the value that a rule of a task's policy set in ctx or iter."""
        cached = self._made.get((role, index, key, path))
        if cached is not None:
            return cached
        event = self._events[index]
        task = self._task_plan(event)
        name = (event.step, event.task, role, key, *path)
        node = self._node("task", name, _reach((event.payload.get(role) or {}).get(key), path), index)
        self._made[role, index, key, path] = node
        rule = event.payload.get("matched_rule_index")
        if task is None or rule is None or task[1].policy is None or rule >= len(task[1].policy.rules):
            return node
        step, plan, number = self._steps[event.step], task[1], task[0]
        raw = getattr(task[1].policy.rules[rule].then, role).get(key)
        ended = self._last(
            lambda node: (
                node.type in ("task.done", "task.failed", "task.attempt.done", "task.attempt.failed")
                and (node.step, node.run, node.iteration, node.task)
                == (event.step, event.run, event.iteration, event.task)
            ),
            index,
        )
        place = _Place(index, (event.step, event.run), event.iteration or (), ended, in_tasks=True)

        def at(keys: Path) -> Position:
            spot = ".".join(map(str, (f"tasks.{number}.policy.rules.{rule}.then.{role}", key, *keys)))
            return step.spots.get(spot, plan.at)

        return self._templated(node, raw, path, place, at)

    def _from_workload(self, path: Path) -> Node | None:
        key = str(path[0]) if path else ""
        if not path:
            return self._node("workload", ("workload",), {**self._plan.workload, **self._workload}, 0)
        if key in self._workload:
            value = _reach(self._workload, path)
            return self._node("workload", ("workload", *path), value, 0)
        if key in self._plan.workload:
            return self._node("default", ("workload", *path), _reach(self._plan.workload, path))
        return None

    def _args(self, path: Path, key: Key) -> Node | None:
        """Return the args of a step run: those of its step, overridden by those of the arc that led to it."""
        run = self._log.runs.get(key)
        if run is None:
            return None
        scheduled = self._events[run.scheduled]
        value = _reach(scheduled.payload.get("args"), path)
        node = self._node("args", (key[0], "args", *path), value, run.scheduled)
        step = self._steps[key[0]]
        name = path[0] if path else ""
        for token in run.tokens:
            for index in range(run.scheduled - 1, -1, -1):
                event = self._events[index]
                if event.type != "next.evaluated":
                    continue
                chosen = [
                    arc_token for arc_token in event.payload.get("selected") or () if arc_token.get("token") == token
                ]
                if not chosen:
                    continue
                source = self._steps[event.step]
                arc = source.arcs[chosen[0]["arc"]]
                if name in arc.args or (not path and arc.args):
                    spots, number = source.spots, arc.index

                    def of_arc(keys: Path, spots: Any = spots, number: int = number, arc: Any = arc) -> Position:
                        position: Position = spots.get(".".join(map(str, (f"arcs.{number}.args", *keys))), arc.at)
                        return position

                    place = _Place(index, (event.step, event.run))
                    return self._templated(node, arc.args, path, place, of_arc)
                break
        if name in step.args or not path:

            def of_step(keys: Path) -> Position:
                return step.spots.get(".".join(map(str, ("args", *keys))), step.at)

            return self._templated(node, step.args, path, _Place(run.scheduled, key), of_step)
        return node

    def _iter(self, path: Path, place: _Place, key: Key) -> Node | None:
        if not path:
            return None
        step = self._steps[key[0]]
        item, rest = place.item, path
        while rest and rest[0] == "parent" and item:
            item, rest = item[:-1], rest[1:]
        for index in reversed(self._log.runs[key].events):
            event = self._events[index]
            mine = index < place.index and (event.iteration or ()) == item
            if mine and rest and rest[0] in (event.payload.get("set_iter") or {}):
                return self._set(index, "set_iter", str(rest[0]), rest[1:])
        loops = []
        loop = step.loop
        while loop is not None:
            loops.append(loop)
            loop = loop.inner
        if not item or len(item) > len(loops) or not rest or rest[0] != loops[len(item) - 1].iterator:
            return self._node("run", ("iter", *path), None)
        depth = len(item)
        run = self._log.runs[key]
        iterated, index = self._items(run.events, item[:-1], run.scheduled)
        value = _reach(_item(iterated, item[-1]), rest[1:])
        node = self._node("item", (step.name, "loop", item[-1], *rest[1:]), value, index)
        node.item = item
        at = step.spots.get("loop." + "inner." * (depth - 1) + "items", loops[depth - 1].at)
        outer = _Place(index, key, item[:-1], in_tasks=depth > 1)
        return self._templated(node, loops[depth - 1].items, (item[-1], *rest[1:]), outer, lambda _: at)

    def _items(self, indexes: Sequence[int], path: tuple[int, ...], scheduled: int) -> tuple[Any, int]:
        """Return the items of a loop, and the index of the event that has them."""
        for index in indexes:
            event = self._events[index]
            if "items" in event.payload and (event.iteration or ()) == path:
                return event.payload["items"], index
        return None, scheduled

    # -- steps and tasks ----------------------------------------------------------------------------------------------------

    def _step(self, name: str, path: Path, before: int) -> Node | None:
        """Return the latest run of a step that had ended."""
        ended = [(index, key) for key, index in self._ends.items() if key[0] == name and index < before]
        return self._step_run(max(ended)[1], path, before) if ended else None

    def _step_run(self, key: Key, path: Path, before: int) -> Node | None:
        run = self._log.runs.get(key)
        if run is None:
            return None
        ends = [
            index for index in run.events if index < before and self._events[index].type in ("task.done", "task.failed")
        ]
        if not ends:
            return self._node("step", (key[0], *path), None, run.scheduled)
        if self._steps[key[0]].loop is None:
            return self._task(ends[-1], path)
        return self._loop(key, path, ends, [index for index in run.events if index < before])

    def _loop(self, key: Key, path: Path, ends: Sequence[int], indexes: Sequence[int]) -> Node:
        """Return the results of a loop: those of its items, or of the item that the path names."""
        last: dict[tuple[int, ...], int] = {}
        for index in ends:
            last[self._events[index].iteration or ()] = index
        name = (key[0], *path)
        if len(path) > 1 and path[0] == "results" and isinstance(path[1], int):
            chosen = last.get((path[1],))
            if chosen is not None:
                return self._task(chosen, path[2:])
        if not path or path[0] != "results":
            chosen_item = self._item_of_record(key, last, indexes)
            source = self._task(max(ends) if chosen_item is None else last[chosen_item], path)
            node = self._node("step", name, source.value, source.seq - 1)
            node.sources.append(source)
            return node
        node = self._node("step", name, {"items": len(last)}, max(ends))
        node.item, node.task = (), ""  # the event is that of the item that ended last, the value is the loop's
        for item in sorted(last):
            if self.left <= 0:
                self.is_cut = True
                break
            node.sources.append(self._task(last[item], ()))
        return node

    def _item_of_record(
        self, key: Key, last: Mapping[tuple[int, ...], int], indexes: Sequence[int]
    ) -> tuple[int, ...] | None:
        """Return the item whose outcome represents the loop, as in `core.transitions.iterations`: the last one in
        order, or the one that failed the loop.
        """
        is_broken, chosen = False, None
        fails_fast = self._steps[key[0]].failure_mode == "fail_fast"
        for index in indexes:
            event = self._events[index]
            if event.type not in ("loop.iteration.done", "loop.iteration.failed"):
                continue
            item = event.iteration or ()
            is_broken = is_broken or (fails_fast and event.type == "loop.iteration.failed")
            if item in last and (is_broken or chosen is None or item >= chosen):
                chosen = item
        return chosen

    def _task(self, index: int, path: Path) -> Node:
        """Return the result of a task."""
        cached = self._made.get(("task", index, path))
        if cached is not None:
            return cached
        event = self._events[index]
        task_plan = self._task_plan(event)
        record = event.payload.get("outcome") or {}
        node = self._node("task", (event.step, event.task, *path), _of_record(record, path), index)
        self._made["task", index, path] = node
        started = self._started(index, event)
        inputs = {} if started is None else started.payload.get("inputs") or {}
        if self._is_of_other_playbook(node, index, event.step):
            node.origin = {**_recorded_origin(record, inputs), **node.origin}
            return node
        if task_plan is None:
            return node
        number, plan = task_plan
        node.kind = plan.kind
        node.line, node.column = plan.at.line, plan.at.column
        node.origin = _origin(plan, record, inputs)
        if self.left <= 0:
            self.is_cut = True
            return node
        place = _Place(index, (event.step, event.run), event.iteration or (), in_tasks=True)
        step = self._steps[event.step]

        def at(keys: Path) -> Position:
            return step.spots.get(".".join(map(str, (f"tasks.{number}.config", *keys))), plan.at)

        if plan.kind == "noop" and "data" in plan.config:
            below = path[1:] if path and path[0] in ("data", "result") else path
            return self._templated(node, plan.config["data"], below, place, lambda keys: at(("data", *keys)))
        if plan.kind == "playbook":
            child = self._child(index, event)
            if child:
                node.origin = {"execution_id": child}
                below = path[1:] if path and path[0] in ("data", "result") else path
                self.children.append(Child(child, ("result", *below), node))
        templated = {key: value for key, value in plan.config.items() if key not in plan.verbatim}
        self._read(node, templated, (), place, at)
        return node

    def _child(self, index: int, event: Event) -> str:
        """Return the run that a task called."""
        for before in self._of_task(index, event):
            if "child" in before.payload:
                return str(before.payload["child"])
        return ""

    def _started(self, index: int, event: Event) -> Event | None:
        return next(
            (event_before for event_before in self._of_task(index, event) if event_before.type == "task.started"), None
        )

    def _of_task(self, index: int, event: Event) -> Iterator[Event]:
        """Yield the events of a task run before one of them, the latest first."""
        key = (event.step, event.run)
        if key not in self._task_runs:
            # Once for a step run: a loop may have thousands of items, each of which asks for its own events.
            indexes: dict[tuple[Any, ...], list[int]] = {}
            run = self._log.runs.get(key)
            for at in () if run is None else run.events:
                indexes.setdefault(_task_run(self._events[at]), []).append(at)
            self._task_runs[key] = indexes
        for at in reversed(self._task_runs[key].get(_task_run(event), ())):
            if at < index:
                yield self._events[at]

    def _task_plan(self, event: Event) -> tuple[int, TaskPlan] | None:
        step = self._steps.get(event.step)
        for number, task in enumerate(() if step is None else step.tasks):
            if task.name == event.task:
                return number, task
        return None

    # -- templates ---------------------------------------------------------------------------------------------------------

    def _templated(self, node: Node, raw: Any, path: Path, place: _Place, at: Any) -> Node:
        """Trace a value of a nested template: the part of it that the path names."""
        if place.key is not None and self._is_of_other_playbook(node, place.index, place.key[0]):
            return node
        taken: Path = ()
        while path:
            key = path[0]
            if not _has(raw, key):
                break
            raw = raw[key]
            taken, path = (*taken, key), path[1:]
        where = at(taken)
        node.line, node.column = where.line, where.column
        if isinstance(raw, str):
            node.template = raw
            lone = _LONE.fullmatch(raw.strip())
            if lone is not None and path:
                self._read(node, raw, path, place, lambda _: where)
                return node
        self._read(node, raw, (), place, lambda keys: at((*taken, *keys)))
        return node

    def _is_of_other_playbook(self, node: Node, index: int, step: str) -> bool:
        """Return whether a value was computed before a fork or retry, by a step that has changed since. Its template is
        not the one in this run's playbook, so the node only names the run that has it.
        """
        reused = self._reused
        if reused is None or index >= reused.events or (reused.changed is not None and step not in reused.changed):
            return False
        node.origin = {"kept_from": reused.execution_id}
        return True

    def _read(self, node: Node, raw: Any, below: Path, place: _Place, at: Any) -> None:
        """Add the values that templates read as sources. `below` is the path below a lone name."""
        try:
            tree = compile_tree(raw, at)
        except ExpressionError:  # it is written for another context, such as SQL
            return
        if not tree.reads and node.what in ("args", "item"):
            node.what = "constant"
        for path in sorted(tree.reads, key=lambda path_read: tuple(map(str, path_read))):
            if self.left <= 0:
                self.is_cut = True
                return
            source = self._name((*path, *below), place)
            if source is not None and source is not node and source not in node.sources:
                node.sources.append(source)

    # -- nodes -----------------------------------------------------------------------------------------------------------------

    def _node(self, role: str, path: Path, value: Any, index: int = -1) -> Node:
        self.left -= 1
        event = self._events[index] if index >= 0 else None
        return Node(
            role,
            path_text(path),
            value,
            index + 1,
            "" if event is None else event.step,
            "" if event is None else event.task,
            () if event is None else event.iteration or (),
            origin={},
            sources=[],
        )

    def _last(self, matches: Any, before: int | None = None) -> int:
        last = len(self._events) if before is None else before
        return next((index for index in range(last - 1, -1, -1) if matches(self._events[index])), -1)


def _task_run(event: Event) -> tuple[Any, ...]:
    return event.iteration, event.task, event.task_run


def _reach(value: Any, path: Path) -> Any:
    for key in path:
        if not _has(value, key):
            return None
        value = value[key]
    return value


def _absence(name: Path, value: Any, path: Path) -> str:
    """Return the members of a value at which a path ends early; '' if the path leads to something in it."""
    for depth, key in enumerate(path):
        if not _has(value, key):
            return _members(path_text((*name, *path[:depth])), value)
        value = value[key]
    return ""


def _members(name: str, value: Any) -> str:
    """Describe the members of a value, for a message."""
    if isinstance(value, Mapping) and value:
        return (
            f"{name} has {', '.join(map(str, islice(value, _MOST_NAMES)))}{', …' if len(value) > _MOST_NAMES else ''}"
        )
    if isinstance(value, list | tuple):
        return f"{name} has {_items(len(value))}"
    kinds = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a text"}
    return f"{name} is {kinds.get(type(value), 'empty')}"


def _items(total: int) -> str:
    return f"items 0 to {total - 1}" if total else "no items"


def _has(value: Any, key: str | int) -> bool:
    if isinstance(value, Mapping):
        return key in value
    return isinstance(value, list | tuple) and isinstance(key, int) and -len(value) <= key < len(value)


def _of_record(record: Mapping[str, Any], path: Path) -> Any:
    """Return the value that templates see at a path of an outcome."""
    if "status" not in record:
        return None
    if not path or (path[0] not in _VIEW and path[0] not in record):
        value = data_of(record)
    else:
        value, path = widened(record)[str(path[0])], path[1:]
    if value is None and "result_ref" in record:
        extracted = record.get("extracted") or {}
        text = path_text(path)
        return extracted[text] if text in extracted else {"ref": record["result_ref"].get("ref")}
    return _reach(value, path)


def _item(items: Any, index: int) -> Any:
    if isinstance(items, Mapping):
        if "range" in items:
            start, _, step = items["range"]
            return start + index * step
        return {"ref": (items.get("ref") or {}).get("ref")}
    return items[index] if isinstance(items, list) and index < len(items) else None


def _recorded_origin(record: Mapping[str, Any], inputs: Any) -> dict[str, Any]:
    """Return the request and the response as far as the log has them, for a task whose playbook is another one."""
    fields = inputs if isinstance(inputs, Mapping) else {}
    name = next((name for name in _REQUESTS if fields.get(name) is not None), "")
    response = {"status": (record.get("http") or {}).get("status")} if "http" in record else {}
    stored = {"result_ref": record["result_ref"].get("ref")} if "result_ref" in record else {}
    return {**({name: fields[name]} if name else {}), **response, **stored}


def _origin(plan: TaskPlan, record: Mapping[str, Any], inputs: Any) -> dict[str, Any]:
    """Return the request to an external system, and its response."""
    if plan.kind in ("noop", "assert", "wait", "approval", "playbook", "workbook"):
        return {}
    values: dict[str, Any] = {}
    rendered = inputs if isinstance(inputs, Mapping) else {}
    for name in _REQUEST_KEYS:
        value = rendered.get(name, plan.config.get(name))
        if value is not None:
            values[name] = value
            break
    if "method" in rendered or "method" in plan.config:
        values["method"] = rendered.get("method", plan.config.get("method"))
    for helper in plan.helper:
        for key, value in (record.get(helper) or {}).items():
            if value is not None and key not in ("headers", "traceback"):
                values.setdefault(key, value)
    if "result_ref" in record:
        values["result_ref"] = record["result_ref"].get("ref")
    return values
