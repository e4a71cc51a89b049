"""A call of one run by another: how the child is made of it, and what outcome its end is to the task that called.

Law: both are functions of the parent's log (and the child's): done again, they give the same child and the same outcome.
"""

from __future__ import annotations

import logging
from typing import Any

from arclog.core.boundary.inputs import Request
from arclog.core.flow.loops import encoded_size
from arclog.core.transitions.state import State, Wait
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import new_uuid
from arclog.engine.runs.inputs import fitted_or_problem
from arclog.engine.views.account import root_error
from arclog.model import ids, status
from arclog.model.errors import Conflict
from arclog.model.outcome import Outcome, TaskError, error, failed
from arclog.playbook.files import beside
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.store import ExecutionRecord, NewExecution

log = logging.getLogger("arclog.engine")


async def start_child(engine: Engine, parent: State, record: ExecutionRecord, wait: Wait) -> TaskError | None:
    """Create the child; what is wrong when it cannot be."""
    config = wait.config
    cap = engine.settings.integer("limits.max_child_depth")
    if parent.depth >= cap:
        message = f"runs may call runs {cap} deep (limits.max_child_depth); does the playbook call itself for ever?"
        return error("limit", message, code="MAX_CHILD_DEPTH")
    plan = await _plan(engine, parent, record, config)
    if plan is None:
        what = config.get("path") or config.get("file")
        version = f" in version {config['version']}" if config.get("version") else ""
        remedy = "run that playbook once, or call it by `file:`" if "path" in config else "start the run with its files"
        return error("child", f"no playbook is registered as {what!r}{version}; {remedy}", code="NOT_FOUND")
    workload = config.get("args") or {}
    program = await engine.live.program(plan.digest)
    workload, refusal = fitted_or_problem(program.plan, workload)
    size, most = encoded_size({"workload": workload}), program.plan.limits.max_payload_bytes
    if size > most:
        message = f"the child's workload takes {size} bytes; an event holds {most} (limits.max_payload_bytes)"
        return error("limit", message, code="MAX_PAYLOAD_BYTES")
    scope = record.new.scope
    new = NewExecution(
        run_id=new_uuid(),
        name=program.plan.name,
        path=plan.path,
        version=plan.version,
        plan=plan.digest,
        scope=scope,
        created_at=engine.clock.now(),
        idempotency_key=f"child:{parent.execution_id}:{wait.key}:{wait.child}",
        parent_execution_id=parent.execution_id,
    )
    caller: dict[str, Any] = {
        "execution_id": str(parent.execution_id),
        "step_run_id": ids.step_run_id(wait.step, wait.run),
        "task_run_id": ids.task_run_id(wait.task, wait.task_run),
        "wait": wait.key,
    }
    if wait.iteration is not None:
        caller["iteration_id"] = ids.iteration_id(wait.step, wait.run, wait.iteration)
    if config.get("wait") is False:
        caller["detached"] = True
    request = Request(
        plan.path,
        plan.version,
        workload,
        parent.scope,
        problem=refusal,
        parent=caller,
        depth=parent.depth + 1,
        files=parent.files,
        priority=parent.priority,
        file=beside(parent.file, str(config["file"])) if "file" in config else "",
    )
    try:
        await engine.start(program, new, request, wait.child)
    except Conflict:
        log.info("child %s of %s was already started", wait.child, parent.execution_id)
    return None


async def _plan(engine: Engine, parent: State, record: ExecutionRecord, config: dict[str, Any]) -> PlanRecord | None:
    path, version = config.get("path", ""), int(config.get("version") or 0)
    if "file" in config:
        path, version = parent.files.get(record.new.plan, {}).get(config["file"], ("", 0))
    return await engine.store.registered(path, version, **record.new.scope.parts)


def record_of(child: State) -> dict[str, Any]:
    """The outcome of the task that called a run which has ended."""
    if child.status == status.COMPLETED:
        record = Outcome(result=child.result, helper=_helper(child)).as_record()
        return record if child.result_ref is None else {**record, "result_ref": child.result_ref}
    cause = child.error or {}
    ended = "was cancelled" if child.status == status.CANCELLED else "failed"
    where = f" in step {cause['step']}" if "step" in cause else ""
    message = f"run {child.execution_id} {ended}{where}: {cause.get('kind', '')}: {cause.get('message', '')}"
    if cause.get("kind") == "child":
        message = cause["message"]  # names the run in which it really went wrong
    problem = error("child", message, code=cause.get("code"), retryable=bool(cause.get("retryable")))
    record = {**failed(problem, **_helper(child)).as_record(), "result": {"error": cause}}
    root = root_error(child)
    return record if root is None else {**record, "error": {**problem.as_dict(), "cause": root}}


def _helper(child: State) -> dict[str, dict[str, Any]]:
    return {"child": {"execution_id": str(child.execution_id), "state": child.status}}
