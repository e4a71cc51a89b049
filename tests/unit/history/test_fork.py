"""A run can be forked after any of its events; a playbook that its state does not fit is refused with a verdict."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from arclog.history.reused_events import FirstEvents, FirstEventsBuilder
from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, DoesNotFit, RequestRejected
from arclog.ports.views.api import ExecuteRequest, ForkRequest
from arclog.testing.closed_logs import check_events
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually
from arclog.wiring.embedded import embedded
from tests.unit.history.support import called, log_of, replay_of, went_on

GOLDEN = Path(__file__).parents[2] / "golden" / "playbooks"
#: All of them at every event is what `EVERY = 1` does.
EVERY = 9


async def forked_everywhere(name: str, every: int) -> None:
    async with World((GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")) as world:
        end = await world.run()
        stored = await world.stored()
        started = next((entry.seq for entry in stored if entry.event.type == "workflow.started"), 0)
        if not started:
            return
        for seq in range(started, len(stored) - 3, every):
            state = await went_on(world, ForkRequest(at=seq))
            assert state.status == end.status, f"forked at {seq}: {state.error}"
            stored_new = await log_of(world, state.execution_id)
            check_events([entry.event for entry in stored_new])
            replayed = await replay_of(world, state.execution_id)
            assert replayed.difference is None, f"forked at {seq}"


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml"))[::3])
def test_a_fork_after_any_event_comes_to_the_same_end(name: str) -> None:
    run_virtually(forked_everywhere(name, EVERY))


CHANGED = """
metadata: {name: changed}
workflow:
  - step: start
    tool: {name: read, kind: act, returns: 3, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: text}}}}]}}}
    next: {arcs: [{step: work}]}
  - {step: work, tool: {name: do, kind: act, returns: 1, fail_attempts: 1}}
"""


async def verdict_of(text: str, request: ForkRequest) -> list[tuple[str, str]]:
    async with World(text) as world:
        await world.run()
        made = len(world.ledger.calls)
        await went_on(world, request)
        return called(world, made)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("step: start", "step: begin", r"step start \(run 1\) is not in the playbook.*it fits up to event 4"),
        ("name: read", "name: load", r"event 7: step start has no task read.*it fits up to event 6"),
        (
            "tool: {name: read",
            "loop: {in: [1], iterator: n}\n    tool: {name: read",
            "is a loop and did not run as one",
        ),
        ("arcs: [{step: work}]", "arcs: [{step: start}]", "gave to step work has no arc"),
        (
            "workflow:",
            "executor: {spec: {ctx: {seen: {reducer: sum, initial: 0}}}}\nworkflow:",
            "ctx.seen has the reducer sum, which does not take text",
        ),
    ],
)
def test_the_verdict_names_what_has_no_place(old: str, new: str, said: str) -> None:
    changed = CHANGED.replace(old, new, 1)
    with pytest.raises(DoesNotFit, match=said):
        run_virtually(verdict_of(CHANGED, ForkRequest(failed=True, playbook=changed)))


@pytest.mark.parametrize(
    ("renamed", "said"),
    [
        ({"strat": "begin"}, "the run's playbook does not have: strat; it has start, work"),
        ({"start": "began"}, "the new playbook does not have: began; it has begin, work"),
    ],
)
def test_a_map_of_steps_that_are_not_there_is_refused(renamed: dict[str, str], said: str) -> None:
    changed = CHANGED.replace("step: start", "step: begin", 1)
    with pytest.raises(RequestRejected, match=said):
        run_virtually(verdict_of(CHANGED, ForkRequest(failed=True, playbook=changed, map=renamed)))


UNNAMED = """
metadata: {name: unnamed}
workflow:
  - {step: start, tool: {kind: act, returns: [1, 2]}, next: {arcs: [{step: each}]}}
  - step: each
    loop: {in: "{{ start.data }}", iterator: n, spec: {mode: sequential}}
    tool: {kind: act, returns: "{{ iter.n }}"}
"""


def test_a_task_without_a_name_keeps_its_place_in_a_step_that_has_a_new_one() -> None:
    async def go() -> None:
        async with World(UNNAMED) as world:
            end = await world.run()
            stored = await world.stored()
            started = next(entry.seq for entry in stored if entry.event.type == "workflow.started")
            changed = UNNAMED.replace("step: each", "step: every")
            for seq in range(started, len(stored) - 2):
                state = await went_on(world, ForkRequest(at=seq, playbook=changed, map={"each": "every"}))
                assert state.status == end.status, f"forked at {seq}: {state.error}"
                assert (await replay_of(world, state.execution_id)).difference is None, f"forked at {seq}"
            named = changed.replace('kind: act, returns: "', 'name: own, kind: act, returns: "')
            with pytest.raises(DoesNotFit, match="step every has no task each_task"):
                await went_on(world, ForkRequest(at=seq, playbook=named, map={"each": "every"}))

    run_virtually(go())


def test_what_is_new_in_a_playbook_needs_no_place() -> None:
    changed = CHANGED.replace("fail_attempts: 1}}", "fail_attempts: 0}, next: {arcs: [{step: more}]}}")
    changed += "  - {step: more, tool: {name: last, kind: act, returns: '{{ start.data }}'}}\n"
    request = ForkRequest(failed=True, playbook=changed)
    assert run_virtually(verdict_of(CHANGED, request)) == [("work", "do"), ("more", "last")]


def test_a_fork_before_the_start_is_refused() -> None:
    with pytest.raises(RequestRejected, match="had not started by event"):
        run_virtually(verdict_of(CHANGED, ForkRequest(at=2)))


SLOTS = """
metadata: {name: slots, path: slots}
executor: {spec: {concurrency: {max: 2}}}
workflow:
  - step: start
    tool: {kind: approval}
"""


async def test_forks_of_a_run_that_goes_on_share_its_slots(tmp_path: Path) -> None:
    """A run holds one of two slots and still goes on; two forks of it want the other one at the same moment."""
    async with embedded(Settings({"home": str(tmp_path)})) as runtime:
        api = runtime.api
        source = (await api.execute(ExecuteRequest(SLOTS))).execution_id
        at = (await api.events(source, types=("workflow.started",)))[0]["seq"]
        answers = await asyncio.gather(
            *(api.fork(source, ForkRequest(at=at)) for _ in range(2)), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert [isinstance(answer, Conflict) for answer in refused] == [True], answers
        assert "2 at a time" in str(refused[0])
        assert len(await api.list(states=("RUNNING",))) == 2
        assert (await api.status(source)).state == "RUNNING"
        with pytest.raises(Conflict, match="2 at a time"):
            await api.fork(source, ForkRequest(at=at))


TWICE = """
metadata: {name: twice}
workflow:
  - step: start
    tool: {kind: act, returns: {rows: [1, 2, 3, 4]}, spec: {result: {store: always}}}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ start.rows }}", iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    tool: {kind: act, returns: "{{ iter.n * 2 }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: act, returns: "{{ each.results }}"}}
"""


def test_a_fork_of_a_fork_goes_on_from_any_event_of_either() -> None:
    async def go() -> None:
        async with World(TWICE) as world:
            await world.run()
            api = world.current_life.api
            head = len(await world.stored())
            for at in range(6, head, 7):
                first = await went_on(world, ForkRequest(at=at))
                (summary,) = [run for run in await api.list(limit=1) if run.execution_id == str(first.execution_id)]
                shared = (await log_of(world, first.execution_id))[0].event.payload["origin"]["events"]
                for again in {max(4, shared - 1), shared, shared + 2}:
                    second = await went_on(world, ForkRequest(at=again), first.execution_id)
                    assert second.result == [2, 4, 6, 8]
                    third = await went_on(world, ForkRequest(step="end"), second.execution_id)
                    assert third.result == [2, 4, 6, 8]
                    for state, source in ((second, first), (third, second)):
                        number = str(state.execution_id)
                        origin = (await api.summary(number)).origin
                        assert origin is not None
                        assert origin.execution_id == str(source.execution_id)
                        (stored,) = await world.store.results(state.execution_id)
                        assert stored.execution_id == state.execution_id
                        assert (await replay_of(world, state.execution_id)).difference is None
                        check_events([entry.event for entry in await log_of(world, state.execution_id)])
                assert summary.state == "COMPLETED"

    run_virtually(go())


def test_a_log_is_freed_without_a_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection that has to examine a long log takes a tenth of the time of the fork."""
    builders: list[weakref.ref[FirstEventsBuilder]] = []
    build = FirstEventsBuilder.build

    def watched(builder: FirstEventsBuilder, *given: Any) -> FirstEvents:
        builders.append(weakref.ref(builder))
        return build(builder, *given)

    async def go() -> None:
        async with World(TWICE) as world:
            await world.run()
            gc.disable()
            try:
                await world.current_life.api.fork(str(world.execution_id), ForkRequest(step="end"))
                assert [builder() for builder in builders] == [None]
            finally:
                gc.enable()

    monkeypatch.setattr(FirstEventsBuilder, "build", watched)
    run_virtually(go())
