"""Stored results through the API: found by ref within a tenant, read, and let go of when their time is over."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.views.api import EngineApi
from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound, RequestRejected, ResultUnavailable
from arclog.model.events import Event
from arclog.model.principal import Principal
from arclog.model.refs import RefMeta, ResultRef, ref_text
from arclog.ports.boundary import Boundary
from arclog.ports.results import Results
from arclog.ports.storage.store import Append, ExecutionState, NewExecution, Scope
from arclog.ports.views.api import Collected
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock

KEEP = 1000.0
GRACE = 100.0


class ClockedResults(MemoryResults):
    """Stores by the test's clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._time = clock
        #: what writers that died left behind
        self.unfinished = 0

    async def leftovers(self, older_than: int) -> int:
        cleared, self.unfinished = self.unfinished, 0
        return cleared

    def keep(self, tenant: str, sha256: str, body: bytes, items: list[bytes] | None) -> None:
        super().keep(tenant, sha256, body, items)
        self.kept[tenant, sha256].stored_at = self._time.now()


class Home:
    def __init__(self, retention_s: float = 0.0) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.results = ClockedResults(self.clock)
        settings = Settings({"results.keep_s": KEEP, "results.orphan_grace_s": GRACE, "store.retention_s": retention_s})
        self.engine = Engine(self.store, self.clock, settings, Minter(self.clock, 1))
        self.api = EngineApi(self.engine, {}, self.results)
        self._heads: dict[int, int] = {}

    async def run(self, parent: int = 0, tenant: str = "default") -> int:
        execution_id = 1000 + len(self._heads)
        scope = Scope(tenant, "default", "local")
        new = NewExecution("r", "n", "p", 1, "d", scope, self.clock.now(), parent_execution_id=parent)
        self._heads[execution_id] = 0
        await self._append(execution_id, Event("playbook.started", 1), new=new)
        return execution_id

    async def end(self, execution_id: int) -> None:
        now = ExecutionState("COMPLETED", ended_at=self.clock.now(), terminal_event="playbook.finished")
        await self._append(execution_id, Event("playbook.finished", 1), now=now)

    async def _append(self, execution_id: int, event: Event, **more: Any) -> None:
        now = more.pop("now", ExecutionState("RUNNING"))
        expected = self._heads[execution_id]
        await self.store.append(Append(execution_id, expected, [event], execution_id * 1000 + expected, now, **more))
        self._heads[execution_id] = expected + 1

    async def put(self, execution_id: int, body: bytes, name: str = "s.t", **more: Any) -> str:
        record = await self.store.execution(execution_id)
        assert record is not None
        writer = self.results.writer(record.new.scope.tenant)
        await writer.write(body)
        done = await writer.commit()
        meta = RefMeta(done.bytes, done.sha256, done.content_type)
        ref = ResultRef("data", "memory", ref_text(execution_id, name, done.sha256), meta)
        payload = {"result_ref": ref.as_dict(), "preview": done.preview, **more}
        await self._append(execution_id, Event("result.stored", 1, "s", 1, task="t", payload=payload))
        return ref.ref

    async def read(self, ref: str, start: int = 0, end: int | None = None) -> bytes:
        return b"".join([chunk async for chunk in self.api.content(ref, start, end)])

    async def blobs(self) -> int:
        return len([result async for result in self.results.all()])


@pytest.fixture
async def home():
    made = Home()
    await made.store.open()
    yield made
    await made.store.close()


class gone:  # noqa: N801 - reads like a word
    """Equals what gc says when it let go of so many results and removed so many contents (of so many bytes)."""

    def __init__(self, results: int, contents: int, freed: int | None = None) -> None:
        self.wanted = (results, contents, freed)

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Collected)
        results, contents, freed = self.wanted
        return (other.results, other.contents) == (results, contents) and freed in (None, other.bytes)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"gone{self.wanted}"


# -- reading ----------------------------------------------------------------------------------------------------------


async def test_a_result_is_listed_described_and_read(home):
    run = await home.run()
    ref = await home.put(run, b"hello, result", ttl_s=5)
    (listed,) = await home.api.results(str(run))
    assert (listed.ref, listed.name, listed.bytes, listed.kind, listed.step, listed.task) == (
        ref, "s.t", 13, "data", "s", "t",
    )  # fmt: skip
    assert listed.preview is None
    result = await home.api.result(ref)
    assert (result.preview, result.stored_bytes, result.kept_until, result.removed_at) == (
        "hello, result",
        13,
        None,
        None,
    )
    assert await home.read(ref) == b"hello, result"
    assert await home.read(ref, 7, 10) == b"res"
    await home.end(run)
    assert (await home.api.result(ref)).kept_until is not None


async def test_a_ref_opens_nothing_by_itself(home):
    run, other, foreign = await home.run(), await home.run(), await home.run(tenant="acme")
    ref = await home.put(run, b"mine")
    of_acme = await home.put(foreign, b"of acme")
    in_nobodys_books = ref.replace(str(run), str(other))
    elsewhere = ref.replace("s.t", "s.u")
    of_no_run = ref.replace(str(run), "77")
    for bad in (of_acme, in_nobodys_books, elsewhere, of_no_run, of_acme.replace(str(foreign), str(run))):
        with pytest.raises(NotFound):
            await home.api.result(bad)
        with pytest.raises(NotFound):
            await home.read(bad)
    for worse in ("", "noetl://execution/../../etc/passwd", ref + "/..", ref.replace("s.t", "%2e%2e"), ref + "\x00"):
        with pytest.raises(RequestRejected, match="not a result ref"):
            await home.read(worse)
    with pytest.raises(NotFound):
        await home.api.results("77")
    with pytest.raises(NotFound, match="of tenant default"):
        await home.api.results(str(foreign))


# -- gc ---------------------------------------------------------------------------------------------------------------


async def test_results_go_a_while_after_their_run_ended(home):
    run = await home.run()
    ref = await home.put(run, b"x" * 50)
    home.clock.advance(10 * KEEP)
    assert await home.api.collect() == gone(0, 0)  # it still runs
    await home.end(run)
    home.clock.advance(KEEP - 1)
    assert await home.api.collect() == gone(0, 0)
    home.clock.advance(1)
    assert await home.api.collect(dry_run=True) == gone(1, 1, 50)
    assert await home.read(ref) == b"x" * 50
    assert await home.api.collect() == gone(1, 1, 50)
    assert await home.blobs() == 0
    with pytest.raises(ResultUnavailable, match=r"was removed by gc on \d{4}-\d\d-\d\d"):
        await home.read(ref)
    result = await home.api.result(ref)
    assert result.removed_at is not None
    assert (result.stored_bytes, result.preview) == (None, "x" * 50)
    assert await home.api.collect() == gone(0, 0)


async def test_content_that_another_run_keeps_stays(home):
    ended, running = await home.run(), await home.run()
    first, second = await home.put(ended, b"shared"), await home.put(running, b"shared", "a.b")
    await home.end(ended)
    home.clock.advance(2 * KEEP)
    assert await home.api.collect(dry_run=True) == gone(1, 0)
    assert await home.api.collect() == gone(1, 0)
    with pytest.raises(ResultUnavailable, match="removed by gc"):
        await home.read(first)
    assert await home.read(second) == b"shared"
    await home.end(running)
    home.clock.advance(2 * KEEP)
    assert await home.api.collect(dry_run=True) == gone(1, 1)
    assert await home.api.collect() == gone(1, 1)


async def test_scopes_and_times_to_live(home):
    root = await home.run()
    child = await home.run(parent=root)
    for name, scope, more in (
        ("a.step", "step", {}),
        ("a.workflow", "workflow", {}),
        ("a.permanent", "permanent", {}),
        ("a.short", "permanent", {"ttl_s": 5}),
    ):
        await home.put(child, name.encode(), name, scope=scope, **more)
    await home.end(child)
    home.clock.advance(GRACE)

    async def left() -> list[str]:
        await home.api.collect()
        return [result.name for result in await home.api.results(str(child)) if result.removed_at is None]

    assert await left() == ["a.step", "a.workflow", "a.permanent"]
    home.clock.advance(2 * KEEP)
    assert await left() == ["a.workflow", "a.permanent"]
    await home.end(root)
    assert await left() == ["a.workflow", "a.permanent"]
    home.clock.advance(KEEP)
    assert await left() == ["a.permanent"]
    home.clock.advance(1000 * KEEP)
    assert await left() == ["a.permanent"]
    assert await home.blobs() == 1


async def test_content_that_nobody_ever_named_goes_after_its_grace(home):
    writer = home.results.writer("default")
    await writer.write(b"its task died")
    await writer.commit()
    home.clock.advance(GRACE - 1)
    assert await home.api.collect() == gone(0, 0)
    home.clock.advance(1)
    assert await home.api.collect() == gone(0, 1)
    assert await home.blobs() == 0


async def test_young_content_stays_though_its_record_is_gone(home):
    """Somebody may have stored the same again, and not have said so yet."""
    run = await home.run()
    await home.put(run, b"x", ttl_s=0)
    await home.end(run)
    assert await home.api.collect() == gone(1, 0)
    assert await home.blobs() == 1
    home.clock.advance(GRACE)
    assert await home.api.collect() == gone(0, 1)


async def test_content_stored_again_while_gc_looks_is_not_lost(home):
    run = await home.run()
    await home.put(run, b"again")
    await home.end(run)
    home.clock.advance(2 * KEEP)
    below = home.results.all

    async def all_and_then() -> Any:
        async for blob in below():
            writer = home.results.writer("default")  # a task stores the same just now
            await writer.write(b"again")
            await writer.commit()
            yield blob

    home.results.all = all_and_then
    assert await home.api.collect() == gone(1, 0)
    assert await home.blobs() == 1


class Dying(Exception):
    pass


class DyingResults:
    """Dies before the n-th removal."""

    def __init__(self, below: Results, lives: int) -> None:
        self._below = below
        self._lives = lives

    async def remove(self, tenant: str, sha256: str, stored_at: int | None = None) -> bool:
        self._lives -= 1
        if self._lives < 0:
            raise Dying
        return await self._below.remove(tenant, sha256, stored_at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


@pytest.mark.parametrize("removals", range(4))
async def test_gc_that_dies_is_finished_by_the_next_one(home, removals):
    run = await home.run()
    refs = [await home.put(run, b"content %d" % number, f"s.t{number}") for number in range(4)]
    await home.end(run)
    home.clock.advance(2 * KEEP)
    whole = home.api._results
    home.api._results = DyingResults(whole, removals)
    with pytest.raises(Dying):
        await home.api.collect()
    home.api._results = whole
    for ref in refs:
        with pytest.raises(ResultUnavailable, match="removed by gc"):
            await home.read(ref)
    assert await home.api.collect() == gone(0, 4 - removals)
    assert await home.blobs() == 0


async def test_gc_reads_all_pages(home, monkeypatch):
    monkeypatch.setattr("arclog.engine.duties.garbage_collection._PAGE", 3)
    run = await home.run()
    for number in range(10):
        await home.put(run, b"%d" % number, f"s.t{number}")
    await home.end(run)
    home.clock.advance(2 * KEEP)
    assert await home.api.collect() == gone(10, 10)


async def test_a_tenant_collects_its_own_and_whoever_looks_after_the_installation_everything():
    home = Home(retention_s=2 * KEEP)
    await home.store.open()
    for tenant in ("acme", "default"):
        run = await home.run(tenant=tenant)
        await home.put(run, tenant.encode())
        await home.end(run)
    home.clock.advance(3 * KEEP)
    home.results.unfinished = 1
    acme, globex, own = (
        home.api.within(Boundary.of(Principal("root", tenant, frozenset({"admin"})), home.engine.settings))
        for tenant in ("acme", "globex", "default")
    )
    assert await globex.collect() == gone(0, 0)
    for dry_run in (True, False):
        done = await acme.collect(dry_run=dry_run)
        assert done == gone(1, 1)
        assert (done.leftovers, done.executions) == (0, 0)
    assert [blob.tenant async for blob in home.results.all()] == ["default"]
    done = await own.collect()
    assert done == gone(1, 1)
    assert (done.leftovers, done.executions) == (1, 2)
    await home.store.close()


async def test_runs_are_forgotten_after_what_they_stored():
    home = Home(retention_s=2 * KEEP)
    await home.store.open()
    run, live = await home.run(), await home.run()
    await home.put(run, b"x" * 50)
    await home.end(run)
    home.clock.advance(2 * KEEP)
    assert (await home.api.collect()).executions == 0  # its result went, and it is not yet long ago
    home.clock.advance(1)
    assert (await home.api.collect(dry_run=True)).executions == 1
    assert await home.store.execution(run) is not None
    assert (await home.api.collect()).executions == 1
    assert await home.store.execution(run) is None
    assert await home.store.execution(live) is not None
    assert (await home.api.collect()).executions == 0
