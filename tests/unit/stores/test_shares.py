"""Claims against a naive model: whatever is issued, limited, claimed and closed, each claim takes what the rules say.

On SQLite with every pool treated as a crowded one.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arclog.model.events import Event
from arclog.ports.storage.pools import Limit, Resource
from arclog.ports.storage.store import Append, ExecutionState, NewCommand, NewExecution, Scope, Store
from arclog.stores.memory import MemoryStore
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite import work as sqlite_claims
from arclog.testing.virtual import FakeClock

T = TypeVar("T")
TENANTS = ("a", "b", "c")
POOLS = ("p", "q")
RESOURCES = ("r", "s")
SECOND = 1_000_000


def done(call: Coroutine[Any, Any, T]) -> T:
    """The memory store never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("the memory store waited")


@dataclass
class Known:
    """A command as the model knows it."""

    id: int
    execution: int
    pool: str
    tenant: str
    order: int
    resources: tuple[str, ...]
    held: bool = False


@dataclass
class Bucket:
    interval: int
    burst: int
    most: int | None
    #: of tokens: when each that was taken is back, oldest first; one comes back after the other
    back: list[int] = field(default_factory=list)

    def left(self, now: int) -> int:
        return self.burst - sum(1 for at in self.back if at > now)

    def take(self, now: int) -> None:
        self.back.append(max([now, *self.back]) + self.interval)


class Shares(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.store: Store = self.make_store()
        self.done(self.store.open())
        self.last = 1 << 52
        self.commands: dict[int, Known] = {}
        self.limits: dict[tuple[str, str], int] = {}
        self.buckets: dict[str, Bucket] = {}
        #: rounds that each tenant has had in a pool, and the round that the pool is in
        self.rounds: dict[tuple[str, str], int] = {}
        self.round: dict[str, int] = {}

    def make_store(self) -> Store:
        return MemoryStore(clock=self.clock)

    def done(self, call: Coroutine[Any, Any, T]) -> T:
        return done(call)

    def new_id(self) -> int:
        self.last += 1
        return self.last

    @rule(
        tenant=st.sampled_from(TENANTS),
        pool=st.sampled_from(POOLS),
        orders=st.lists(st.integers(-3, 3), min_size=1, max_size=6),
        resources=st.sets(st.sampled_from(RESOURCES)),
    )
    def issue(self, tenant: str, pool: str, orders: list[int], resources: set[str]) -> None:
        execution = self.new_id()
        new = NewExecution("run", "a", "a", 1, "d" * 64, Scope(tenant, "x", "y"), 1)
        needs = tuple(sorted(resources))
        work = [Known(self.new_id(), execution, pool, tenant, order, needs) for order in orders]
        issue = [
            NewCommand(command.id, "s", 1, ("noop",), pool, order=command.order, resources=command.resources)
            for command in work
        ]
        first = [Event("playbook.execution.requested", 1)]
        self.done(self.store.append(Append(execution, 0, first, self.new_id(), ExecutionState("RUNNING"), new, issue)))
        self.commands.update((command.id, command) for command in work)

    @rule(
        pools=st.sets(st.sampled_from(POOLS), min_size=1), limit=st.integers(1, 5), only=st.sampled_from(("", *TENANTS))
    )
    def claim(self, pools: set[str], limit: int, only: str) -> None:
        claimed = self.done(
            self.store.claim("w", limit=limit, lease_until=9, kinds=["noop"], pools=sorted(pools), tenant=only)
        )
        assert [command.command_id for command in claimed] == self.expected(pools, limit, only)

    def expected(self, pools: set[str], limit: int, only: str) -> list[int]:
        chosen: list[int] = []
        waiting = [c for c in self.commands.values() if not c.held and c.pool in pools and only in ("", c.tenant)]
        contested = len({wait.tenant for wait in waiting}) > 1
        while len(chosen) < limit:
            able = [wait for wait in waiting if not wait.held and self.fits(wait)]
            if not able:
                break
            best = min(able, key=self.rank if contested else lambda command: (command.order, command.id))
            if contested and len({command.tenant for command in able}) > 1:
                now = max(self.rounds.get((best.pool, best.tenant), 0), self.round.get(best.pool, 0))
                self.round[best.pool] = now
                self.rounds[best.pool, best.tenant] = now + 1
            best.held = True
            for name in best.resources:
                if name in self.buckets and self.buckets[name].interval:
                    self.buckets[name].take(self.clock.now())
            chosen.append(best.id)
        return chosen

    def rank(self, each: Known) -> tuple[int, ...]:
        ahead = self.rounds.get((each.pool, each.tenant), 0) - self.round.get(each.pool, 0)
        return self.held(each.pool, each.tenant), max(ahead, 0), each.order, each.id

    def held(self, pool: str = "", tenant: str = "") -> int:
        return sum(c.held and pool in ("", c.pool) and tenant in ("", c.tenant) for c in self.commands.values())

    def fits(self, each: Known) -> bool:
        for pool in (each.pool, ""):
            if (pool, "") in self.limits and self.held(pool) >= self.limits[pool, ""]:
                return False
            place = (pool, each.tenant) if (pool, each.tenant) in self.limits else (pool, "*")
            if place in self.limits and self.held(pool, each.tenant) >= self.limits[place]:
                return False
        for name in each.resources:
            bucket = self.buckets.get(name)
            if bucket is None:
                continue
            if bucket.most is not None and self.users(name) >= bucket.most:
                return False
            if bucket.interval and bucket.left(self.clock.now()) < 1:
                return False
        return True

    def users(self, name: str) -> int:
        return sum(command.held and name in command.resources for command in self.commands.values())

    @precondition(lambda self: any(command.held for command in self.commands.values()))
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        held = [command for command in self.commands.values() if command.held]
        over = data.draw(st.sampled_from(held))
        record = self.done(self.store.execution(over.execution))
        assert record is not None
        event = [Event("task.done", 1)]
        now = ExecutionState("RUNNING")
        self.done(self.store.append(Append(over.execution, record.head, event, self.new_id(), now, close=[over.id])))
        del self.commands[over.id]

    @rule(pool=st.sampled_from(("", *POOLS)), tenant=st.sampled_from(("", "*", *TENANTS)), most=st.integers(0, 4))
    def set_limit(self, pool: str, tenant: str, most: int) -> None:
        self.done(self.store.set_limit(Limit(pool, tenant, most)))
        self.limits[pool, tenant] = most

    @rule(pool=st.sampled_from(("", *POOLS)), tenant=st.sampled_from(("", "*", *TENANTS)))
    def remove_limit(self, pool: str, tenant: str) -> None:
        limit = self.limits.pop((pool, tenant), None)
        assert self.done(self.store.remove_limit(pool, tenant)) == (limit is not None)

    @rule(
        name=st.sampled_from(RESOURCES),
        interval=st.sampled_from((0, SECOND, 3 * SECOND)),
        burst=st.integers(1, 4),
        most=st.none() | st.integers(0, 4),
    )
    def set_resource(self, name: str, interval: int, burst: int, most: int | None) -> None:
        self.done(self.store.remove_resource(name))  # new terms for what is owed are another rule's
        self.done(self.store.set_resource(Resource(name, interval, burst, most)))
        self.buckets[name] = Bucket(interval, burst, most)

    @rule(seconds=st.sampled_from((0.5, 1, 2, 10)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def what_is_held_is_told(self) -> None:
        counts = {(share.pool, share.tenant): (share.issued, share.claimed) for share in self.done(self.store.shares())}
        assert sum(held for _, held in counts.values()) == self.held()
        for record in self.done(self.store.resources()):
            assert record.held == self.users(record.resource.name)


class SharesInCrowds(Shares):
    """Every pool is crowded as soon as anybody waits in it."""

    def make_store(self) -> Store:
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(sqlite_claims, "MANY", 0)
        self.patched.setattr(sqlite_claims, "FEW", -1)
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        return SqliteStore(f"{self.folder.name}/arclog.db", clock=self.clock)

    def done(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    @initialize()
    def hurry(self) -> None:
        assert isinstance(self.store, SqliteStore)
        self.store._writer._connection.execute("PRAGMA synchronous = OFF")

    @invariant()
    def the_lanes_are_those_that_wait(self) -> None:
        assert isinstance(self.store, SqliteStore)
        check_lanes(self.store)

    def teardown(self) -> None:
        self.done(self.store.close())
        self.loop.close()
        self.folder.cleanup()
        self.patched.undo()


def check_lanes(store: SqliteStore) -> None:
    """What the triggers keep is what the commands say."""
    execute = store._writer._connection.execute
    kept = "SELECT {} FROM {} WHERE pool IN (SELECT pool FROM crowded) ORDER BY 1, 2, 3, 4"
    lanes = execute(kept.format("pool, tenant, kinds, resources, rank, command_id, execution_id", "lanes")).fetchall()
    assert (
        lanes
        == execute(
            kept.format(
                "pool, tenant, kinds, resources, min(rank), command_id, execution_id",
                "(SELECT * FROM commands WHERE lease_until = 0 ORDER BY rank, command_id)",
            ).replace("ORDER BY", "GROUP BY pool, tenant, kinds, resources ORDER BY")
        ).fetchall()
    )
    held = "SELECT pool, tenant, count(*) FROM commands WHERE lease_until > 0 AND pool IN (SELECT pool FROM crowded) GROUP BY 1, 2"
    assert execute("SELECT pool, tenant, held FROM holding ORDER BY 1, 2").fetchall() == execute(held).fetchall()
    odd = "SELECT count(*) FROM lanes l WHERE held <> coalesce((SELECT held FROM holding h WHERE h.pool = l.pool AND h.tenant = l.tenant), 0)"
    assert execute(odd).get == 0


TestShares = Shares.TestCase
TestShares.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


TestSharesInCrowds = SharesInCrowds.TestCase
TestSharesInCrowds.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
