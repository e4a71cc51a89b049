"""Tools with the answers of a test. Nothing here uses the network, the disk or another process."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import os
import re
import tempfile
import threading
import traceback
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.json import decode
from msgspec.structs import replace

from arclog.expr import compile_tree
from arclog.model.config.kinds import KindSpec
from arclog.model.errors import ExpressionError
from arclog.model.outcome import Outcome, error, failed
from arclog.playbook.engine_kinds import ENGINE_KINDS
from arclog.ports.results import StoredFile
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.sandbox.child import values
from arclog.sandbox.child.runner import TaskModules, call_main
from arclog.sandbox.outputs import content_type
from arclog.testing.playbook_tests.cases import Mock
from arclog.worker.toolbox import Toolbox, no_path

# ── python code ───────────────────────────────────────────────────────────────────────────────────────────────────────
# Runs the code of a python task in this process, for tests that request it: same contract, no sandbox and no
# limits.


async def run_code(config: Mapping[str, Any], context: TaskContext) -> Outcome:
    """One attempt of a python task."""
    await asyncio.sleep(0)
    if not config.get("outputs"):
        return _in_thread(config, context)
    with tempfile.TemporaryDirectory(prefix="arclog-test-") as scratch:
        before = os.environ.get("ARCLOG_SCRATCH")
        os.environ["ARCLOG_SCRATCH"] = scratch
        try:
            outcome = _in_thread(config, context)
        finally:
            if before is None:
                del os.environ["ARCLOG_SCRATCH"]
            else:
                os.environ["ARCLOG_SCRATCH"] = before
        return outcome if outcome.error is not None else await _with_files(outcome, config, context, scratch)


async def _with_files(outcome: Outcome, config: Mapping[str, Any], context: TaskContext, scratch: str) -> Outcome:
    try:
        bodies = {name: _body(str(path), scratch) for name, path in config["outputs"].items()}
    except OSError as problem:
        message = f"outputs: {problem.filename} cannot be read: {problem.strerror}"
        return failed(error("config", message, code="OUTPUTS"))
    return replace(outcome, files=await stored_files(bodies, config["outputs"], context))


def _body(path: str, scratch: str) -> bytes:
    return Path(re.sub(r"\$\{?ARCLOG_SCRATCH\}?", lambda _: scratch, path)).read_bytes()


async def stored_files(
    bodies: Mapping[str, bytes], paths: Mapping[str, Any], context: TaskContext
) -> dict[str, StoredFile]:
    """Store the files of a task's `outputs`."""
    stored: dict[str, StoredFile] = {}
    for name, path in paths.items():
        writer = context.results.writer(content_type=content_type(str(path)))
        await writer.write(bodies.get(name, b""))
        stored[name] = StoredFile(await writer.commit(), Path(str(path)).name)
    return stored


def _in_thread(config: Mapping[str, Any], context: TaskContext) -> Outcome:
    answers: list[Outcome] = []
    # A separate thread, since the code may start an event loop, and this one belongs to the run. It is awaited, so that
    # only one task's additions to the import system exist at a time.
    thread = threading.Thread(target=lambda: answers.append(_outcome(config, context)))
    thread.start()
    thread.join()
    return answers[0]


def _outcome(config: Mapping[str, Any], context: TaskContext) -> Outcome:
    code = str(config["code"])
    args = dict(config.get("args") or {})
    surroundings = SimpleNamespace(
        execution_id=context.execution_id,
        step=context.step,
        task=context.task,
        attempt=context.attempt,
        workload=dict(context.workload),
        ctx=dict(context.ctx),
        progress=lambda *_: None,
    )
    space: dict[str, Any] = {"context": surroundings, "input_data": args, **args, "__name__": "__task__"}
    modules = TaskModules(config.get("modules") or {})
    modules.enter()
    try:
        for alias, module in (config.get("libs") or {}).items():
            space[alias] = importlib.import_module(module)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, f"<{context.step}.{context.task}>", "exec", dont_inherit=True), space)
            main = space.get("main")
            is_function = callable(main) and not isinstance(main, type)
            value: Any = call_main(main, args, surroundings) if is_function else space.get("result")
            if hasattr(value, "__next__"):
                value = list(value)
        return Outcome(result=decode(values.encoded(value)))
    except values.NotJSON as problem:
        return failed(error("exception", str(problem), code="NotJSON"))
    except BaseException as problem:
        name = type(problem).__name__
        text = "".join(traceback.format_exception(problem))
        message = f"{name}: {problem}" if str(problem) else name
        return failed(error("exception", message, code=name), py={"exception": name, "traceback": text})
    finally:
        modules.leave()


# ── mocks ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


#: Tools that only compute; they are not mocked. (`assert` is not a tool: the worker runs it itself.)
PURE = frozenset({"noop"})
#: Kinds of the control plane that a test mocks like a tool: a child playbook has its own tests.
MOCKED_ENGINE_KINDS = frozenset({"playbook"})


@dataclass(slots=True)
class Call:
    """One attempt of a task."""

    step: str
    task: str
    kind: str
    #: indexes of the loop item; () outside loops
    item: tuple[int, ...]
    attempt: int
    #: its rendered config
    config: dict[str, Any]

    def __str__(self) -> str:
        item = f" item {'.'.join(map(str, self.item))}" if self.item else ""
        return f"{self.step}.{self.task}{item}" + (f" attempt {self.attempt}" if self.attempt > 1 else "")


@dataclass(slots=True)
class MockBook:
    """The mocks of one run, the calls, and the mocks that answered."""

    mocks: Sequence[Mock]
    runs_python: bool = False
    #: of the run, defaults included
    workload: Mapping[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    #: answers given, by index of the mock
    used: Counter[int] = field(default_factory=Counter)
    #: set by the first call without a matching mock
    unanswered: asyncio.Event = field(default_factory=asyncio.Event)
    missing: Call | None = None

    def find(self, call: Call) -> Mock | None:
        """The first mock that matches a call and is not used up."""
        for index, mock in enumerate(self.mocks):
            if mock.times and self.used[index] >= mock.times:
                continue
            if _fits(mock, call):
                self.used[index] += 1
                return mock
        return None

    def unused(self) -> list[Mock]:
        return [mock for index, mock in enumerate(self.mocks) if not self.used[index] and not mock.optional]


def _fits(mock: Mock, call: Call) -> bool:
    return (
        mock.step == call.step
        and (not mock.task or mock.task == call.task)
        and (mock.item is None or mock.item == call.item)
        and (not mock.attempts or call.attempt in mock.attempts)
        and holds(call.config, mock.config)
    )


def holds(value: Any, part: Any) -> bool:
    """Return whether a value contains `part`: maps by their keys, everything else by equality."""
    if isinstance(part, Mapping) and isinstance(value, Mapping):
        return all(key in value and holds(value[key], inner) for key, inner in part.items())
    return same(value, part)


def same(value: Any, other: Any) -> bool:
    """Equality of JSON data, where true is not 1."""
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return bool(value == other)


def mocked_spec(spec: KindSpec) -> KindSpec:
    """A kind as a test's worker has it: engine kinds that are mocked run on the worker."""
    return replace(spec, runs_on="worker") if spec.name in MOCKED_ENGINE_KINDS else spec


def _bodies(files: Mapping[str, Any]) -> dict[str, bytes]:
    """The contents of files as a mock writes them."""
    return {
        name: b64decode(content["base64"]) if isinstance(content, Mapping) else str(content).encode()
        for name, content in files.items()
    }


class MockedKinds(Mapping[str, KindSpec]):
    """The installed kinds with those of the control plane that tests mock."""

    def __init__(self, installed: Mapping[str, KindSpec]) -> None:
        self._installed = installed
        self._mocked = {name: mocked_spec(ENGINE_KINDS[name]) for name in MOCKED_ENGINE_KINDS}

    def __getitem__(self, name: str) -> KindSpec:
        return self._mocked[name] if name in self._mocked else self._installed[name]

    def __contains__(self, name: object) -> bool:
        return name in self._mocked or name in self._installed

    def __iter__(self) -> Any:
        return iter(dict.fromkeys([*self._mocked, *self._installed]))

    def __len__(self) -> int:
        return len(list(iter(self)))


class MockedToolbox(Toolbox):
    """Answers every attempt from a MockBook; pure kinds run."""

    def __init__(
        self, specs: Mapping[str, KindSpec], pure: Mapping[str, ToolKind], services: ToolServices, book: MockBook
    ) -> None:
        super().__init__(pure, services)
        self._specs = specs
        self._book = book

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._specs)

    def is_at_once(self, kind: str) -> bool:
        return kind in PURE and self._specs[kind].at_once

    def no_path(self, kind: str) -> str:
        return no_path(self._specs.get(kind))

    async def run(self, kind: str, config: Mapping[str, Any], context: TaskContext) -> Outcome:
        where = context.key.split(":")[3]
        item = tuple(int(part) for part in where.split(".")) if where else ()
        call = Call(context.step, context.task, kind, item, context.attempt, dict(config))
        if kind in PURE and not any(mock.step == call.step and mock.task == call.task for mock in self._book.mocks):
            return await super().run(kind, config, context)
        self._book.calls.append(call)
        mock = self._book.find(call)
        if mock is None:
            if kind == "python" and self._book.runs_python:
                return await self._timed(run_code(config, context), context)
            self._book.missing = self._book.missing or call
            self._book.unanswered.set()
            return failed(error("config", f"the test has no mock for {call}"))
        if mock.real:
            if kind != "python":
                return failed(error("config", f"real: only python tasks run in a test, not {kind}"))
            return await self._timed(run_code(config, context), context)
        return await self._timed(self._answer(mock, call, context), context)

    async def _answer(self, mock: Mock, call: Call, context: TaskContext) -> Outcome:
        if mock.takes_s:
            await asyncio.sleep(mock.takes_s)
        spec = self._specs[call.kind]
        scope = {
            "args": call.config.get("args") or {},
            "config": call.config,
            "item": call.item[-1] if call.item else None,
            "attempt": call.attempt,
            "workload": self._book.workload,
            "ctx": dict(context.ctx),
        }
        try:
            tree = compile_tree([mock.ok, mock.result, mock.error, mock.helper, mock.files])
            ok, result, problem, helper_fields, files = tree.evaluate(scope)
        except ExpressionError as failure:
            return failed(error("template", f"the mock of {call}: {failure}"))
        helper = {spec.helper: {**dict.fromkeys(spec.helper_fields), **helper_fields}} if spec.helper else {}
        if problem is None and spec.helper == "http" and helper["http"].get("status") is None:
            helper["http"]["status"] = 200
        if not mock.has_result:
            result = {spec.data_at: ok} if spec.data_at else ok
        outcome = Outcome(result=result, data_at=spec.data_at, helper=helper)
        if problem is not None:
            mismatch = error(
                problem["kind"], str(problem["message"]), code=problem.get("code"), retryable=problem.get("retryable")
            )
            return replace(outcome, status="error", error=mismatch)
        if not call.config.get("outputs"):
            return outcome
        return replace(outcome, files=await stored_files(_bodies(files), call.config["outputs"], context))

    async def _timed(self, work: Any, context: TaskContext) -> Outcome:
        """Within the task's own time limit, as a tool is."""
        try:
            async with asyncio.timeout(context.timeout_s):
                outcome: Outcome = await work
                return outcome
        except TimeoutError:
            message = f"task {context.task} took longer than {context.timeout_s:g} s (spec.timeout)"
            return failed(error("timeout", message))
