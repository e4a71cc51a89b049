"""A net driven by hand: decisions without engine, store or worker. The test says which step run ends next, and how.

`Net(text, reborn=True)` throws its state away after every decision and folds it from the log again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from arclog.core.boundary.inputs import Continue, Input, Request, WorkReported
from arclog.core.transitions.apply import apply
from arclog.core.transitions.decide import decide
from arclog.core.transitions.state import State, run_key
from arclog.model.events import TERMINAL, Event
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.program import Program
from arclog.testing.harness import SPECS


def program_of(text: str) -> Program:
    body = net.encode(build_or_raise(text, "test.yaml", SPECS))
    return Program(net.decode(body), net.digest(body))


class Net:
    """One run of a playbook."""

    def __init__(self, text: str | Program, *, reborn: bool = False) -> None:
        self.program = program_of(text) if isinstance(text, str) else text
        self.reborn = reborn
        self.state = State(execution_id=1)
        self.log: list[Event] = []
        self.clock = 0
        self.put(Request("p", 1, {}))

    def put(self, incoming: Input) -> None:
        self.clock += 1
        txn = decide(self.program, self.state, incoming, self.clock, self.clock * 1_000_000)
        assert txn.refused is None, txn.refused
        self.log += txn.events
        again = State(execution_id=1)
        for event in self.log:
            apply(self.program, again, msgspec.convert(msgspec.to_builtins(event), Event))
        assert msgspec.json.encode(again) == msgspec.json.encode(self.state), "replay and live state differ"
        if self.reborn:
            self.state = again
        if txn.more:
            self.put(Continue())

    # -- what a worker does -------------------------------------------------------------------------------------------

    @property
    def open(self) -> list[str]:
        return [run.step for run in self.state.open.values()]

    def end(self, step: str, error: str = "", ctx: dict[str, Any] | None = None) -> None:
        """End the oldest open run of a step."""
        run = next(run for run in self.state.open.values() if run.step == step)
        events = [Event("step.started", self.clock, step=step, run=run.run)]
        if error:
            problem = {"kind": error, "message": error, "code": None, "retryable": False}
            events.append(Event("step.failed", self.clock, step=step, run=run.run, payload={"error": problem}))
        else:
            outcome = {"outcome": {"status": "ok"}}
            for task in self.program.steps[step].index:
                place: dict[str, Any] = {"step": step, "run": run.run, "task": task, "task_run": 1}
                events.append(Event("task.started", self.clock, **place))
                events.append(Event("task.done", self.clock, **place, payload=outcome))
            events.append(Event("step.done", self.clock, step=step, run=run.run))
        command = next(
            command for command in self.state.commands.values() if (command.step, command.run) == (run.step, run.run)
        )
        self.put(WorkReported(command.id, 1, 1, "w", events))

    def ends(self, *steps: str) -> None:
        for step in steps:
            self.end(step)

    # -- what became of it --------------------------------------------------------------------------------------------

    def args(self, step: str, run: int = 1) -> dict[str, Any]:
        return self.state.open[run_key(step, run)].args

    def taken(self, step: str) -> list[list[int]]:
        return [event.payload["tokens"] for event in self.log if event.type == "step.scheduled" and event.step == step]

    def order(self) -> list[str]:
        """The steps in the order in which they were scheduled."""
        return [event.step for event in self.log if event.type == "step.scheduled"]

    def failures(self) -> list[tuple[str, str | None]]:
        return [(event.step, event.payload["error"]["code"]) for event in self.log if event.type == "step.failed"]

    @property
    def over(self) -> bool:
        return self.state.terminal is not None

    @property
    def error(self) -> dict[str, Any]:
        assert self.state.error is not None
        return self.state.error

    def check_end(self) -> None:
        """Exactly one terminal event, one routing per step run, and no token lost."""
        assert sum(event.type in TERMINAL for event in self.log) == 1
        assert not self.state.tokens
        assert not self.state.waiting
        made: set[int] = set()
        taken: list[int] = []
        for event in self.log:
            taken += event.payload.get("tokens") or []
            if event.type == "workflow.started":
                made.add(event.payload["token"])
            elif event.type == "next.evaluated":
                made |= {choice["token"] for choice in event.payload["selected"]}
                taken += [choice["token"] for choice in event.payload["selected"] if choice.get("absorbed")]
        assert len(taken) == len(set(taken))
        assert set(taken) == made
        if self.state.status == "COMPLETED":
            scheduled = sum(event.type == "step.scheduled" for event in self.log)
            assert scheduled == sum(event.type == "next.evaluated" for event in self.log)


def steps(*rows: str) -> str:
    """A playbook from rows `name [join] [admit=…] [mode] [best_effort] -> target? args … | target when …`.

    `a -> b, c` is an inclusive fork to b and c; `a -> b if ctx.x, c` gives b a condition; `a => b` is exclusive.
    `b@x` gives the arc's token args {b: x}.
    """
    made = []
    for row in rows:
        arrow = "=>" if "=>" in row else "->"
        head, _, tail = row.partition(arrow)
        name, *words = head.split()
        spec: dict[str, Any] = {}
        policy: dict[str, Any] = {}
        for word in words:
            if word == "all":
                spec["join"] = "all"
            elif word.isdigit():
                spec["join"] = {"count": int(word)}
            elif word == "best_effort":
                policy["failure"] = {"mode": "best_effort"}
            elif word == "deny":
                policy["admit"] = {"rules": [{"when": False, "then": {"allow": True}}]}
            else:
                raise AssertionError(word)
        if policy:
            spec["policy"] = policy
        step: dict[str, Any] = {"step": name, "tool": {"kind": "noop"}}
        if spec:
            step["spec"] = spec
        arcs = []
        for part in tail.split(","):
            if not part.strip():
                continue
            target, _, when = part.strip().partition(" if ")
            target, _, value = target.partition("@")
            arc: dict[str, Any] = {"step": target}
            if when:
                arc["when"] = {"failed": "event.name == 'step.failed'"}.get(when, when)
            if value:
                arc["args"] = {name: value, "last": value}
            arcs.append(arc)
        if arcs:
            mode = "inclusive" if arrow == "->" else "exclusive"
            step["next"] = {"spec": {"mode": mode}, "arcs": arcs}
        made.append(step)
    return str(msgspec.json.encode({"metadata": {"name": "p"}, "workflow": made}), "utf-8")
