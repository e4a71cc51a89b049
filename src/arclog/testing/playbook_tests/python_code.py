"""Runs the code of a python task in this process, for tests that request it: same contract, no sandbox and no
limits.
"""

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
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.json import decode
from msgspec.structs import replace

from arclog.model.outcome import Outcome, error, failed
from arclog.ports.results import StoredFile
from arclog.ports.tool import TaskContext
from arclog.sandbox.child import values
from arclog.sandbox.child.runner import TaskModules, call_main
from arclog.sandbox.outputs import content_type


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
