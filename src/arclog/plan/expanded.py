"""Writes a plan as a playbook in canonical form, with every short form expanded.

The text compiles to the same net. Layers are resolved: each task has its effective spec, each step its own limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.plan.net import Action, ArcPlan, Block, LoopPlan, Plan, StepPlan, TaskPlan

_ASSERT_HEAD, _ASSERT_TAIL = "{% else %}", "{% endif %}"


def as_playbook(plan: Plan) -> dict[str, Any]:
    """Return the canonical playbook of a plan, as data."""
    spec = _kept(
        entry_step=plan.entry,
        final_step=plan.final_step,
        inputs=plan.inputs,
        result=plan.result,
        timeout_s=plan.timeout_s,
        concurrency=None if plan.concurrency is None else {"max": plan.concurrency, "on_excess": plan.on_excess},
        ctx=plan.ctx,
        priority=plan.priority,
        webhooks=[
            {"url": hook.url, "secret": hook.secret, "on": list(hook.on)} for hook in plan.webhooks if hook.secret
        ],
        on_failure=_notified(plan, "failed"),
        on_success=_notified(plan, "completed"),
        schedules=list(plan.schedules),
        policy=_kept(
            approval="required" if plan.approval else None,
            emit={"events": list(plan.emit)} if plan.emit else None,
        ),
    )
    return _kept(
        metadata=_kept(
            name=plan.name, path=plan.path, description=plan.description, labels=plan.labels, tags=list(plan.tags)
        ),
        keychain=[entry for entry in plan.keychain if entry.get("kind") != "input"],
        executor={"spec": spec},
        # Defaults of inputs are in their declarations.
        workload={key: value for key, value in plan.workload.items() if key not in plan.inputs},
        workflow=[_step(step, plan) for step in plan.steps],
    )


def _notified(plan: Plan, end: str) -> list[dict[str, Any]]:
    """Return the unsigned notifications of an end."""
    urls = [hook.url for hook in plan.webhooks if not hook.secret and hook.on == (end,)]
    mail = "mailto:"
    return [{"email": url.removeprefix(mail).split(",")} if url.startswith(mail) else {"webhook": url} for url in urls]


def _kept(**parts: Any) -> dict[str, Any]:
    """Return the parts that are neither absent nor empty."""
    return {name: value for name, value in parts.items() if value not in (None, "", 0, {}, [], False)}


def _step(step: StepPlan, plan: Plan) -> dict[str, Any]:
    spec = _kept(
        join=_join(step),
        end=step.end,
        pool="" if step.pool == "default" else step.pool,
        priority=step.priority,
        resources=list(step.resources),
        policy=_kept(
            admit=None
            if step.admit is None
            else {"rules": [_ruled(rule.when, {"allow": rule.allow}) for rule in step.admit]},
            lifecycle=_kept(timeout_s=step.timeout_s, deadline_s=step.deadline_s),
            failure={"mode": step.failure_mode} if step.failure_mode != "fail_fast" else None,
            emit={"events": list(step.emit)} if step.emit else None,
        ),
    )
    router = _kept(
        mode="" if step.mode == "exclusive" else step.mode,
        on_no_match="" if step.on_no_match == "end" else step.on_no_match,
    )
    tasks = [_task(task, plan) for task in step.tasks]
    return _kept(
        step=step.name,
        desc=step.desc,
        spec=spec,
        args=step.args,
        loop=None if step.loop is None else _loop(step.loop),
        tool=_flow(step.flow, tasks) if step.flow else tasks,
        next=_kept(spec=router, arcs=[_arc(arc) for arc in step.arcs]) if step.arcs else None,
    )


def _join(step: StepPlan) -> Any:
    return {"any": None, "count": {"count": step.join_count}}.get(step.join, step.join)


def _loop(loop: LoopPlan) -> dict[str, Any]:
    spec: dict[str, Any] = {"mode": loop.mode, "policy": {"exec": loop.exec}}
    if loop.mode == "parallel":
        spec["max_in_flight"] = loop.max_in_flight
    made = {"in": loop.items, "iterator": loop.iterator, "spec": spec}
    return made if loop.inner is None else {**made, "loop": _loop(loop.inner)}


def _arc(arc: ArcPlan) -> dict[str, Any]:
    when = {} if arc.when is None else {"when": arc.when}
    return {"step": arc.target, **when, **_kept(args=arc.args)}


def _flow(flow: tuple[int | Block, ...], tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [tasks[item] if isinstance(item, int) else _block(item, tasks) for item in flow]


def _block(block: Block, tasks: list[dict[str, Any]]) -> dict[str, Any]:
    if block.word == "choose":
        ladder = [
            {"else": _flow(branch.body, tasks)}
            if branch.when is None
            else {"when": branch.when, "then": _flow(branch.body, tasks)}
            for branch in block.branches
        ]
        return {"choose": ladder}
    (branch,) = block.branches
    most = {} if block.max is None else {"max": block.max}
    return {block.word: {"when": branch.when, "do": _flow(branch.body, tasks), **most}}


def _task(task: TaskPlan, plan: Plan) -> dict[str, Any]:
    config = dict(task.config)
    if task.kind == "assert":
        config["that"] = config.pop("text", [])
        if isinstance(config.get("message"), str):
            config["message"] = config["message"].partition(_ASSERT_HEAD)[2].removesuffix(_ASSERT_TAIL)
    taken = {path: plan.files.get(path, "") for path in task.files.values()}
    for module in config.pop("modules", {}).values():
        taken[module["path"]] = plan.files.get(module["path"], "")
    spec = dict(task.spec)
    if task.policy is not None:
        rules = [_ruled(rule.when, _action(rule.then)) for rule in task.policy.rules]
        unmatched = {} if task.policy.on_unmatched == "continue" else {"on_unmatched": task.policy.on_unmatched}
        spec["policy"] = {**unmatched, "rules": rules}
    made = {"name": task.name, "kind": task.kind, **config, **_kept(spec=spec)}
    return {**made, "x-files": taken} if taken else made


def _ruled(when: str | bool | None, then: Mapping[str, Any]) -> dict[str, Any]:
    return {"else": {"then": dict(then)}} if when is None else {"when": when, "then": dict(then)}


def _action(action: Action) -> dict[str, Any]:
    made: dict[str, Any] = {"do": action.do}
    if action.do == "retry":
        made["attempts"] = action.attempts
        timing = (
            {"delays": list(action.delays)} if action.delays else {"delay": action.delay, "backoff": action.backoff}
        )
        made |= {**timing, "max_delay": action.max_delay, "jitter": action.jitter}
    return made | _kept(
        to=action.to, message=action.message, code=action.code, set_iter=action.set_iter, set_ctx=action.set_ctx
    )
