"""What runs share: stored content lives as long as one of them needs it; approvals and limits of a start hold for a fork, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, NotFound, RequestRejected
from arclog.model.principal import Principal
from arclog.ports.boundary import Boundary
from arclog.ports.views.api import ExecuteRequest, ForkRequest, SignalRequest
from arclog.testing.conformance.api.base import HELLO, WAITING, ended, ended_run, started, until_event
from arclog.wiring.embedded import embedded

STORING = """
metadata: {name: storing}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'rows': list(range(20_000))}"}
    next: {arcs: [{step: hold}]}
  - step: hold
    tool: {kind: wait, signal: go}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, data: "{{ start.rows | length }}"}}
"""


async def test_shared_content_is_kept_while_a_run_refers_to_it(tmp_path: Path) -> None:
    settings = {"home": str(tmp_path / "home"), "results.keep_s": 0, "results.orphan_grace_s": 0}
    async with embedded(Settings(settings)) as runtime:
        await runtime.start_worker()
        api = runtime.api
        first = await started(api, STORING)
        waiting = await until_event(api, first, "command.completed")
        await api.signal(first, SignalRequest("go"))
        assert (await ended(api, first)).state == "COMPLETED"
        new = await api.fork(first, ForkRequest(at=waiting["seq"]))
        await until_event(api, new.execution_id, "command.completed")
        did = await api.collect()
        assert (did.results, did.contents) == (1, 0), "the first run lets go of its own, the content stays"
        with pytest.raises(RequestRejected, match=r"were removed: .*start"):
            await api.fork(first, ForkRequest(at=waiting["seq"]))
        await api.signal(new.execution_id, SignalRequest("go"))
        assert (await ended(api, new.execution_id)).state == "COMPLETED"
        assert (await api.summary(new.execution_id)).result == 20_000
        did = await api.collect()
        assert (did.results, did.contents) == (1, 1), "nobody needs it any more"


async def test_a_changed_run_of_a_playbook_that_needs_an_approval_is_refused(tmp_path: Path) -> None:
    approved = HELLO.replace("workflow:", "executor: {spec: {policy: {approval: required}}}\nworkflow:")
    async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
        await runtime.start_worker()
        api = runtime.api
        first = await started(api, approved)
        assert (await api.signal(first, SignalRequest("APPROVE"))).accepted
        assert (await ended(api, first)).state == "COMPLETED"
        with pytest.raises(RequestRejected, match="must be approved before it starts"):
            await api.fork(first, ForkRequest(step="end", workload={"name": "Eve"}))
        new = await api.fork(first, ForkRequest(step="end"))
        assert (await ended(api, new.execution_id)).state == "COMPLETED"


async def test_a_fork_needs_a_free_slot(tmp_path: Path) -> None:
    alone = WAITING.replace("workflow:", "executor: {spec: {concurrency: {max: 1}}}\nworkflow:")
    async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
        await runtime.start_worker()
        api = runtime.api
        first = await started(api, alone)
        waiting = await until_event(api, first, "command.completed")
        with pytest.raises(Conflict, match="1 at a time of this playbook may run"):
            await api.fork(first, ForkRequest(at=waiting["seq"]))
        await api.cancel(first, "enough")
        new = await api.fork(first, ForkRequest(failed=True))
        await until_event(api, new.execution_id, "command.completed")
        await api.cancel(new.execution_id, "enough")


async def test_another_tenants_run_is_not_there(tmp_path: Path) -> None:
    async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
        await runtime.start_worker()
        mine = await ended_run(runtime.api)
        other = runtime.api.within(
            Boundary.of(Principal("eve", "elsewhere", frozenset({"admin"})), runtime.engine.settings)
        )
        for request in (other.fork(mine, ForkRequest(step="end")), other.replay(mine), other.diff(mine, mine)):
            with pytest.raises(NotFound):
                await request
        assert len(await runtime.api.list()) == 1


async def test_a_fork_that_dies_in_its_commit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
        await runtime.start_worker()
        first = await ended_run(runtime.api)

        async def dies(_: object) -> None:
            raise ConnectionResetError("the process is gone")

        with monkeypatch.context() as patched:
            patched.setattr(runtime.engine.store, "append", dies)
            with pytest.raises(ConnectionResetError):
                await runtime.api.fork(first, ForkRequest(step="end"))
        assert [run.execution_id for run in await runtime.api.list()] == [first]
        new = await runtime.api.fork(first, ForkRequest(step="end"))
        assert (await ended(runtime.api, new.execution_id)).state == "COMPLETED"


async def test_a_fork_starts_the_playbook_that_it_names_and_not_another_ones_files(tmp_path: Path) -> None:
    async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
        await runtime.start_worker()
        first = (await runtime.api.execute(ExecuteRequest(HELLO, "first.yaml"))).execution_id
        await ended(runtime.api, first)
        new = await runtime.api.fork(
            first, ForkRequest(step="end", playbook=HELLO.replace("hello {{", "bye {{"), file="x.yaml")
        )
        await ended(runtime.api, new.execution_id)
        assert (await runtime.api.summary(new.execution_id)).result == "hello world", "the first step was kept"
        (request_event,) = await runtime.api.events(new.execution_id, types=("playbook.execution.requested",))
        assert (request_event["payload"]["file"], request_event["payload"]["original_run_id"]) == (
            "x.yaml",
            (await runtime.api.summary(first)).run_id,
        )
