"""Snapshots change nothing but the time that a fold takes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.engine.commits import snapshots
from arclog.engine.commits.snapshots import superfluous
from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.stores.memory import MemoryStore
from arclog.testing.harness import World
from arclog.testing.playbooks import by_seed
from arclog.testing.virtual import LoopClock, run_virtually
from tests.simulation.support import EAGER, assert_same, ending, run, seeds

OFTEN = EAGER.replaced(engine__snapshot_events=3)

CYCLE = """
metadata: {name: cycle}
workflow:
  - step: start
    tool: {kind: act, returns: {n: 1}}
    next: {arcs: [{step: back, when: "{{ (args.lap | default(0)) < 40 }}", args: {lap: "{{ (args.lap | default(0)) + 1 }}"}}]}
  - step: back
    tool: {kind: noop}
    next: {arcs: [{step: start, args: {lap: "{{ args.lap }}"}}]}
"""


class CountingStore(MemoryStore):
    """Knows how many events were read, and can keep bad snapshots."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(clock=LoopClock(), settings=settings)
        self.events_read = 0
        self.kept: list[tuple[int, str, bytes]] = []
        self.refusing = False

    async def events(self, *args: Any, **kwargs: Any) -> Any:
        page = await super().events(*args, **kwargs)
        self.events_read += len(page)
        return page

    async def put_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
    ) -> None:
        if self.refusing:
            raise StoreUnavailable("the disk is full")
        self.kept.append((seq, code, body))
        await super().put_snapshot(execution_id, seq, code, body, drop)


@pytest.mark.parametrize("group", seeds(80, 4), ids=str)
def test_every_prefix_of_every_run_comes_back_exactly(group: range) -> None:
    async def main(text: str) -> None:
        async with World(text, settings=OFTEN) as world:
            await world.run()
            state = State(execution_id=world.execution_id)
            for entry in await world.stored():
                apply(world.program, state, entry.event)
                body = snapshots.encode_state(state)
                again = snapshots.decode_state(body)
                assert again == state
                # also in the order of its maps: which token or step run is the oldest matters to decisions
                assert snapshots.encode_state(again) == body
            engine = world.begin_life().engine
            newest_record = await engine.snapshots.newest(world.execution_id, world.program.digest, state.head)
            assert newest_record is not None
            assert (await engine.live.folded(world.execution_id)).state == state

    for seed in group:
        drawn = by_seed(seed)
        run(drawn, main(drawn.text))


@pytest.mark.parametrize("group", seeds(40, 4, first=5000), ids=str)
def test_a_run_killed_at_every_commit_goes_on_from_its_snapshots(group: range) -> None:
    async def plain(text: str) -> Any:
        async with World(text, settings=EAGER) as world:
            return await ending(world, await world.run())

    async def killed(text: str) -> Any:
        async def after(*_: Any) -> None:
            if world.lives < 60:
                world.crash_now()

        world = World(text, settings=OFTEN, after=after)
        async with world:
            state = await world.run()
            assert state == await world.state()
            return await ending(world, state)

    for seed in group:
        drawn = by_seed(seed)
        expected, resumed = run(drawn, plain(drawn.text)), run(drawn, killed(drawn.text))
        # A task that must not be repeated rightly ends `killed` when its worker dies.
        if "at_most_once" not in drawn.text:
            assert_same(drawn, expected, resumed)


def test_a_long_log_is_read_from_the_newest_snapshot_on() -> None:
    async def main() -> None:
        settings = Settings({"engine.snapshot_events": 50})
        store = CountingStore(settings)
        async with World(CYCLE, settings=settings, store=store) as world:
            await world.run()
            head = (await world.state()).head
            seqs = [seq for seq, _, _ in store.kept]
            assert seqs == sorted(seqs)
            assert head - seqs[-1] < 50 + 10
            life = world.begin_life(cold=True)
            store.events_read = 0
            live = await life.engine.live.folded(world.execution_id)
            assert store.events_read == head - seqs[-1]
            assert live.state == await world.state()
            # before the newest snapshot only the log helps
            early = await life.engine.live.folded(world.execution_id, at=seqs[-1] - 1)
            assert early.state == await world.state(at=seqs[-1] - 1)

    run_virtually(main())


def test_a_long_fold_is_followed_by_a_snapshot() -> None:
    async def main() -> None:
        never = Settings({"engine.snapshot_events": 0})
        store = CountingStore(never)
        async with World(CYCLE, settings=never, store=store) as world:
            world.begin_life()
            await world.start()
            world.current_life.start_worker()
            while (await world.store.execution(world.execution_id)).head < 120:  # type: ignore[union-attr] # it is there
                await world.clock.sleep(0.01)
            await world.crash()
            assert store.kept == []
            world.settings = Settings({"engine.snapshot_events": 100, "leases.max_losses": 9})
            await world.run()
            assert store.kept[0][0] >= 120

    run_virtually(main())


@pytest.mark.parametrize("damage", ["cut", "noise", "other run", "empty", "other shape"])
def test_a_damaged_snapshot_is_ignored_with_a_word(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        settings = Settings({"engine.snapshot_events": 50})
        store = CountingStore(settings)
        async with World(CYCLE, settings=settings, store=store) as world:
            await world.run()
            import zstandard

            seq, code, body = store.kept[-1]
            other = snapshots.encode_state(State(execution_id=99, head=seq))
            bad = {
                "cut": body[:-7],
                "noise": b"\x00" * 50,
                "other run": zstandard.compress(other),
                "empty": b"",
                "other shape": zstandard.compress(b'{"execution_id": "x"}'),
            }[damage]
            await store.put_snapshot(world.execution_id, seq, code, bad)
            with caplog.at_level(logging.WARNING, "arclog.engine"):
                live = await world.begin_life().engine.live.folded(world.execution_id)
            assert live.state == await world.state()

    run_virtually(main())
    assert "reading the log instead" in caplog.text


def test_a_store_that_refuses_snapshots_harms_no_run(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = CountingStore(OFTEN)
        store.refusing = True
        async with World(CYCLE, settings=OFTEN, store=store) as world:
            assert (await world.run()).status == "COMPLETED"

    with caplog.at_level(logging.WARNING, "arclog.engine"):
        run_virtually(main())
    assert "was not stored: the disk is full" in caplog.text


def test_a_state_that_is_too_large_is_not_kept_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        settings = Settings({"engine.snapshot_events": 10, "engine.snapshot_max_bytes": 100})
        store = CountingStore(settings)
        async with World(CYCLE, settings=settings, store=store) as world:
            assert (await world.run()).status == "COMPLETED"
        assert store.kept == []

    with caplog.at_level(logging.WARNING, "arclog.engine"):
        run_virtually(main())
    assert caplog.text.count("too many for a snapshot") == 1


def test_all_snapshots_of_a_run_take_no_more_than_its_log() -> None:
    """A loop with a large list: its items stand in every snapshot, so snapshots get rarer."""

    async def main() -> None:
        text = """
metadata: {name: wide}
workflow:
  - step: start
    loop: {in: "{{ workload.items }}", iterator: item}
    tool: {kind: noop}
"""
        settings = Settings({"engine.snapshot_events": 10, "worker.started_flush_ms": 0})
        store = CountingStore(settings)
        items = ["x" * 100] * 400
        async with World(text, settings=settings, store=store, workload={"items": items}) as world:
            await world.run()
            head = (await world.state()).head
        sizes = [len(msgspec.json.encode(items))] * len(store.kept)
        assert len(store.kept) >= 1
        assert sum(sizes) <= 64 * head + sizes[0]

    run_virtually(main())


def test_another_plan_and_another_shape_of_state_read_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    assert snapshots.code_of("a") != snapshots.code_of("b")
    before = snapshots.code_of("a")
    monkeypatch.setattr(snapshots, "STATE_VERSION", "another")
    assert snapshots.code_of("a") != before
    monkeypatch.undo()

    class Changed(State):
        more: int = 0

    monkeypatch.setattr(snapshots, "State", Changed)
    snapshots._schema.cache_clear()
    assert snapshots.code_of("a") != before
    monkeypatch.undo()
    snapshots._schema.cache_clear()
    assert snapshots.code_of("a") == before


def test_values_come_back_as_the_log_has_them() -> None:
    state = State(execution_id=2**62, ctx={"big": 2**200, "small": -(2**63) - 1, "float": 1e22, "text": "ü\u2028"})
    again = snapshots.decode_state(snapshots.encode_state(state))
    assert again == state
    assert type(again.ctx["float"]) is float
    with pytest.raises(ValueError, match="surrogates"):
        snapshots.encode_state(State(execution_id=1, ctx={"lone": "\ud800"}))


def test_any_moment_of_a_long_run_is_near_a_snapshot() -> None:
    async def main() -> None:
        settings = OFTEN.replaced(engine__snapshots_kept=8)
        store = CountingStore(settings)
        async with World(CYCLE, settings=settings, store=store) as world:
            await world.run()
            head = (await world.state()).head
            kept = [*await store.past_snapshots(world.execution_id, store.kept[-1][1]), store.kept[-1][0]]
            assert len(kept) == 9
            farthest = max(later - earlier for earlier, later in pairwise([0, *kept, head]))
            assert farthest <= head // 3
            for at in range(1, head, 7):
                before = store.events_read
                live = await world.current_life.engine.live.folded(world.execution_id, at)
                assert store.events_read - before <= farthest
                assert snapshots.encode_state(live.state) == snapshots.encode_state(await world.state(at))

    run_virtually(main())


def test_past_snapshots_are_spread_over_the_log() -> None:
    seqs: list[int] = []
    for newest in range(10, 10_000, 10):
        seqs = [seq for seq in seqs if seq not in superfluous(seqs, newest, 16)] + [newest]
        assert len(seqs) <= 16
        gaps = [later - earlier for earlier, later in pairwise([0, *seqs])]
        assert max(gaps) <= max(10, 4 * newest // 16)
