"""Rules of the data of servers (schedules, the outbox, the backlog, duties, the clock), of API keys and of the audit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.ports.storage.duties import DutyRecord
from arclog.ports.storage.outbox import DEAD, DELIVERED, PENDING, NewDelivery, receiver_of
from arclog.ports.storage.store import Backlog, Timer
from arclog.testing.conformance.store.base import DONE, RUNNING, SECOND, Rules, World, command, event

# ── operations ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of schedules, the outbox and the backlog.

HOOK = NewDelivery("https://example.org/hook", "hook_key", "completed", b'{"a": 1}')


def schedule(name: str, due: int | None = 100, **more: Any) -> Schedule:
    fields = {"tenant": "acme", "project": "p", "environment": "e", "zone": "UTC", "path": "flows/a", **more}
    return Schedule(name=name, cron="* * * * *", created_at=1, next_due=due, **fields)


class OperationRules(Rules):
    # -- schedules ----------------------------------------------------------------------------------------------------

    async def test_a_schedule_is_kept_as_it_was_given(self, world: World) -> None:
        store = world.store
        full = schedule("a", workload={"n": [1, None, "ü"]}, queue=(5, 7), firing=3, note="x", last_execution=9)
        await store.add_schedule(full)
        assert await store.schedule("acme", "a") == full
        assert await store.schedule("other", "a") is None
        with pytest.raises(Conflict):
            await store.add_schedule(schedule("a"))
        await store.add_schedule(schedule("a", tenant="other"))

    async def test_schedules_are_listed_by_name_within_their_tenant(self, world: World) -> None:
        store = world.store
        for name, tenant in (("b", "acme"), ("a", "acme"), ("c", "acme"), ("a", "zeta")):
            await store.add_schedule(schedule(name, tenant=tenant))
        assert [schedule.name for schedule in await store.schedules("acme")] == ["a", "b", "c"]
        assert [schedule.name for schedule in await store.schedules("acme", after="a", limit=1)] == ["b"]
        assert [await store.count_schedules(tenant) for tenant in ("acme", "zeta", "other")] == [3, 1, 0]
        assert [(schedule.tenant, schedule.name) for schedule in await store.schedules()] == [
            ("acme", "a"),
            ("acme", "b"),
            ("acme", "c"),
            ("zeta", "a"),
        ]
        assert await store.schedules("nobody") == []

    async def test_schedules_are_listed_by_when_they_are_next_looked_at(self, world: World) -> None:
        store = world.store
        for name, due, tenant in (("a", 30, "acme"), ("b", 10, "acme"), ("c", 20, "acme"), ("d", 5, "zeta")):
            await store.add_schedule(schedule(name, due, tenant=tenant))
        assert [schedule.name for schedule in await store.next_schedules("acme")] == ["b", "c", "a"]
        assert [schedule.name for schedule in await store.next_schedules("acme", limit=1)] == ["b"]

    async def test_a_change_of_an_old_revision_is_a_conflict(self, world: World) -> None:
        store = world.store
        await store.add_schedule(schedule("a"))
        old = await store.schedule("acme", "a")
        assert old is not None
        changed = await store.change_schedule(replace(old, note="first"))
        assert (changed.revision, changed.note) == (old.revision + 1, "first")
        assert await store.schedule("acme", "a") == changed
        with pytest.raises(Conflict):
            await store.change_schedule(replace(old, note="second"))
        assert await store.remove_schedule("acme", "a") is True
        assert await store.remove_schedule("acme", "a") is False
        with pytest.raises(Conflict):
            await store.change_schedule(changed)

    async def test_of_many_changes_at_once_each_is_made_or_refused_by_itself(self, world: World) -> None:
        store = world.store
        for name in ("a", "b", "c"):
            await store.add_schedule(schedule(name))
        by_name = {schedule.name: schedule for schedule in await store.schedules("acme")}
        by_name["b"] = replace(by_name["b"], revision=7)
        answers = await asyncio.gather(
            store.change_schedule(replace(by_name["a"], note="first")),
            store.change_schedule(replace(by_name["b"], note="old")),
            store.change_schedule(replace(by_name["c"], note="only"), "me", 900),
            store.change_schedule(replace(by_name["a"], note="second")),
            store.change_schedule(replace(by_name["a"], name="none")),
            return_exceptions=True,
        )
        refused = [isinstance(answer, Conflict) for answer in answers]
        assert refused[1:3] + refused[4:] == [True, False, True]
        assert refused[0] != refused[3]
        now = {schedule.name: schedule for schedule in await store.schedules("acme")}
        assert now["a"] in answers
        assert now["b"].note == ""
        assert now["c"] == answers[2]

    async def test_changes_that_are_handed_in_together_are_answered_in_their_order(self, world: World) -> None:
        store = world.store
        for name in ("c", "a", "b"):
            await store.add_schedule(schedule(name))
        by_name = {schedule.name: schedule for schedule in await store.schedules("acme")}
        old = replace(by_name["a"], revision=7)
        changes = [
            replace(by_name["c"], note="ü"),
            old,
            replace(by_name["b"], note="2"),
            replace(by_name["b"], name="none"),
        ]
        answers = await store.change_schedules(changes, "me", 900)
        assert [isinstance(answer, Conflict) for answer in answers] == [False, True, False, True]
        now = {schedule.name: schedule for schedule in await store.schedules("acme")}
        assert (now["c"], now["b"]) == (answers[0], answers[2])
        assert [schedule.revision for schedule in (now["c"], now["a"])] == [
            by_name["c"].revision + 1,
            by_name["a"].revision,
        ]
        assert await store.change_schedules([]) == []

    async def test_many_changes_are_made_as_few_are(self, world: World) -> None:
        store = world.store
        for n in range(20):
            await store.add_schedule(schedule(f'"{n:02}"', None if n % 3 else 1 << 53))
        by_name = {row.name: row for row in await store.schedules("acme")}
        changes = [replace(row, note=f"ü {row.name} \\", queue=(n, 1 << 53)) for n, row in enumerate(by_name.values())]
        changes[5] = replace(changes[5], revision=7)
        changes[9] = replace(changes[9], name="none")
        answers = await store.change_schedules(changes, "me", 900)
        assert [n for n, answer in enumerate(answers) if isinstance(answer, Conflict)] == [5, 9]
        now = {row.name: row for row in await store.schedules("acme")}
        changed = [n for n in range(20) if n not in (5, 9)]
        assert [now[changes[n].name] for n in changed] == [answers[n] for n in changed]
        assert all(now[changes[n].name] == replace(changes[n], revision=changes[n].revision + 1) for n in changed)
        assert now['"05"'] == by_name['"05"']
        assert now['"09"'] == by_name['"09"']
        assert {row.name for row in await store.lease_schedules("other", 899, 900)} <= {'"05"', '"09"'}

    async def test_a_schedule_is_leased_when_it_is_due_and_to_one_alone(self, world: World) -> None:
        store = world.store
        for name, due in (("late", 300), ("soon", 100), ("soonest", 50)):
            await store.add_schedule(schedule(name, due))
        await store.add_schedule(schedule("asleep", 10, paused=True))
        await store.add_schedule(schedule("over", None))

        async def leased(owner: str, now: int, until: int, limit: int = 100) -> list[str]:
            return [schedule.name for schedule in await store.lease_schedules(owner, now, until, limit)]

        assert [schedule.name for schedule in await store.late_schedules(100)] == ["soon", "soonest"]
        assert [schedule.name for schedule in await store.late_schedules(400, 2)] == ["late", "soon"]
        assert await leased("x", 49, 200) == []
        assert await leased("x", 100, 200, limit=1) == ["soonest"]
        both = await asyncio.gather(leased("x", 100, 200), leased("y", 100, 200))
        assert sorted(map(len, both)) == [0, 1]
        assert await leased("y", 199, 400) == []
        assert await leased("y", 200, 400) == ["soonest", "soon"]
        held = await store.schedule("acme", "soon")
        assert held is not None
        renewed = await store.change_schedule(held, "y", 500)
        assert await leased("x", 450, 600) == ["soonest", "late"]
        await store.change_schedule(renewed)
        assert await leased("x", 450, 600) == ["soon"]

    async def test_a_schedule_with_work_left_is_due_at_once(self, world: World) -> None:
        await world.store.add_schedule(schedule("queued", 900, queue=(5,)))
        await world.store.add_schedule(schedule("firing", 900, firing=5))
        leased = await world.store.lease_schedules("x", 1, 2)
        assert [schedule.name for schedule in leased] == ["firing", "queued"]

    # -- the outbox ---------------------------------------------------------------------------------------------------

    async def test_the_append_that_ends_a_run_brings_its_deliveries(self, world: World) -> None:
        store = world.store
        execution_id = await world.create()
        with pytest.raises(Conflict):
            await world.add(execution_id, 7, event("playbook.finished"), now=DONE, deliveries=[HOOK])
        assert await store.deliveries(execution_id) == []
        await world.add(
            execution_id, 1, event("playbook.finished"), now=DONE, deliveries=[HOOK, replace(HOOK, url="http://b/")]
        )
        first, second = await store.deliveries(execution_id)
        assert (first.n, second.n, second.url) == (1, 2, "http://b/")
        assert (first.execution_id, first.body, first.state, first.attempts) == (execution_id, HOOK.body, PENDING, 0)
        assert first.created_at == first.due == world.clock.now()

    async def test_a_delivery_is_leased_when_due_and_to_one_alone(self, world: World) -> None:
        store, now = world.store, world.clock.now()
        execution_id = await world.create(event("playbook.finished"), now=DONE, deliveries=[HOOK])
        assert await store.lease_deliveries(now - 1, now + 50) == []
        both = await asyncio.gather(store.lease_deliveries(now, now + 50), store.lease_deliveries(now, now + 50))
        assert sorted(map(len, both)) == [0, 1]
        (taken,) = await store.lease_deliveries(now + 50, now + 99)  # its previous owner is gone
        await store.attempted(replace(taken, attempts=1, due=now + 1000, problem="refused"))
        assert await store.lease_deliveries(now + 999, now + 2000) == []
        (again,) = await store.lease_deliveries(now + 1000, now + 2000)
        assert (again.attempts, again.problem) == (1, "refused")
        assert await store.executions_to_settle() == []
        await store.attempted(replace(again, state=DELIVERED, attempts=2, problem=""))
        assert await store.lease_deliveries(now + 9999, now + 99999) == []
        await store.attempted(replace(again, state=DEAD))  # too late: its state stays
        assert [delivery.state for delivery in await store.deliveries(execution_id)] == [DELIVERED]

    async def test_receivers_that_have_enough_in_hand_are_passed_over(self, world: World) -> None:
        store, now = world.store, world.clock.now()
        urls = ["http://a/1", "HTTP://A", "http://a:8/1", "http://ab/1", "http://a?x", "https://a/1"]
        await world.create(event("playbook.finished"), now=DONE, deliveries=[replace(HOOK, url=url) for url in urls])
        leased = await store.lease_deliveries(now, now + 50, but=["http://a"])
        assert [delivery.url for delivery in leased] == ["http://a:8/1", "http://ab/1", "https://a/1"]
        leased = await store.lease_deliveries(now, now + 50, 2, but=["http://a:8", "http://%", "http://_"])
        assert [delivery.url for delivery in leased] == ["http://a/1", "HTTP://A"]
        assert {receiver_of(url) for url in urls[:2]} == {"http://a"} == {receiver_of(urls[4])}

    async def test_an_execution_is_listed_once_nothing_is_pending(self, world: World) -> None:
        store, now = world.store, world.clock.now()
        execution_id = await world.create(event("playbook.finished"), now=DONE, deliveries=[HOOK, HOOK])
        first, second = await store.lease_deliveries(now, now + 50)
        await store.attempted(replace(first, state=DELIVERED))
        assert await store.executions_to_settle() == []
        await store.attempted(replace(second, state=DEAD))
        assert await store.executions_to_settle() == [execution_id]
        await store.settle_deliveries(execution_id)
        assert await store.executions_to_settle() == []

    async def test_abandoned_deliveries_are_listed_newest_execution_first(self, world: World) -> None:
        store, now = world.store, world.clock.now()
        older = await world.create(event("playbook.finished"), now=DONE, deliveries=[HOOK, HOOK])
        newer = await world.create(event("playbook.finished"), now=DONE, deliveries=[HOOK])
        for delivery in await store.lease_deliveries(now, now + 50):
            state = DELIVERED if (delivery.execution_id, delivery.n) == (older, 1) else DEAD
            await store.attempted(replace(delivery, state=state, attempts=12, problem="refused"))
        await store.settle_deliveries(older)
        dead = await store.given_up(0)
        assert [(delivery.execution_id, delivery.n, delivery.problem) for delivery in dead] == [
            (newer, 1, "refused"),
            (older, 2, "refused"),
        ]
        assert [delivery.execution_id for delivery in await store.given_up(0, limit=1)] == [newer]
        assert [delivery.execution_id for delivery in await store.given_up(newer)] == [newer]

    # -- the backlog --------------------------------------------------------------------------------------------------

    async def test_the_backlog_counts_open_work_by_pool(self, world: World) -> None:
        store = world.store
        assert await store.backlog() == []
        await world.create(issue=[command(11), command(12), command(13, pool="gpu"), command(14, pool="x", held=True)])
        assert await store.backlog() == [Backlog("default", 2, 11), Backlog("gpu", 1, 13)]
        await store.claim("w", limit=1, lease_until=77, kinds=("noop",))
        assert await store.backlog() == [Backlog("default", 1, 12, 1, 77), Backlog("gpu", 1, 13)]


# ── duties ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of duties, of idle runs, and of the store's clock.


class DutyRules(Rules):
    async def test_a_duty_has_one_owner_until_its_lease_ends(self, world: World) -> None:
        store = world.store
        assert await store.lease_duty("timers", "a", 100, 200)
        assert not await store.lease_duty("timers", "b", 199, 300)
        assert await store.lease_duty("timers", "a", 150, 250)
        assert not await store.lease_duty("timers", "b", 249, 300)
        assert await store.lease_duty("timers", "b", 250, 300)
        assert not await store.lease_duty("timers", "a", 260, 400)
        assert await store.lease_duty("sweeper", "a", 260, 400)

    async def test_a_duty_that_was_given_up_is_free_at_once(self, world: World) -> None:
        store = world.store
        assert await store.lease_duty("timers", "a", 100, 200)
        assert await store.lease_duty("timers", "a", 110, 110)
        assert await store.lease_duty("timers", "b", 110, 210)

    async def test_one_of_many_concurrent_requests_gets_the_duty(self, world: World) -> None:
        requests = [world.store.lease_duty("timers", f"server-{n}", 100, 200) for n in range(20)]
        assert sum(await asyncio.gather(*requests)) == 1

    async def test_a_position_is_moved_by_its_owner_and_never_back(self, world: World) -> None:
        store = world.store
        assert await store.position("events") == 0
        assert not await store.move_position("events", "a", 100, 5)
        assert await store.lease_duty("events", "a", 100, 200)
        assert await store.move_position("events", "a", 150, 5)
        assert not await store.move_position("events", "b", 150, 9)
        assert not await store.move_position("events", "a", 150, 4)
        assert await store.position("events") == 5

    async def test_an_owner_that_slept_past_its_lease_moves_nothing(self, world: World) -> None:
        store = world.store
        assert await store.lease_duty("events", "a", 100, 200)
        assert not await store.move_position("events", "a", 200, 7)
        assert await store.lease_duty("events", "b", 200, 300)
        assert await store.move_position("events", "b", 210, 3)
        assert not await store.move_position("events", "a", 210, 7)
        assert await store.position("events") == 3

    async def test_every_duty_is_listed_with_its_last_owner(self, world: World) -> None:
        store = world.store
        assert list(await store.duties()) == []
        await store.lease_duty("timers", "a", 100, 200)
        await store.lease_duty("events", "b", 100, 300)
        await store.move_position("events", "b", 150, 7)
        await store.lease_duty("timers", "c", 250, 400)
        expected = [DutyRecord("events", "b", 300, 7), DutyRecord("timers", "c", 400, 0)]
        assert list(await store.duties()) == expected

    async def test_duties_and_positions_outlive_the_process(self, world: World) -> None:
        store = world.store
        assert await store.lease_duty("events", "a", 100, 200)
        assert await store.move_position("events", "a", 110, 7)
        await store.close()
        await store.open()
        assert await store.position("events") == 7
        assert not await store.lease_duty("events", "b", 150, 300)

    async def test_idle_runs_are_those_that_nothing_will_move(self, world: World) -> None:
        clock = world.clock
        abandoned = await world.create(event("playbook.started"))
        await world.create(issue=[command(world.ids())])
        timed = await world.create()
        await world.add(timed, 1, event("step.scheduled", "s", 1), set_timers=[Timer(timed, "t", 9 * SECOND)])
        await world.create(now=replace(RUNNING, paused=True))
        over = await world.create()
        await world.add(over, 1, event("playbook.finished"), now=DONE)
        pending = await world.create(now=replace(RUNNING, state="PENDING", started_at=None))
        clock.advance(10)
        since = clock.now()
        clock.advance(10)
        await world.create()
        moved = await world.create()
        await world.add(moved, 1, event("step.scheduled", "s", 1))

        async def idle(**bounds: int) -> tuple[list[int], int]:
            page = await world.store.idle(since, **bounds)
            return [record.execution_id for record in page.records], page.last

        assert await idle() == ([abandoned, pending], 0)
        assert await idle(after=abandoned) == ([pending], 0)
        # The limit counts the live runs that are examined, not the idle ones that are returned.
        assert await idle(limit=1) == ([abandoned], abandoned)
        assert await idle(limit=2, after=abandoned) == ([], timed)
        assert await idle(limit=2, after=timed) == ([pending], pending)
        assert await idle(limit=2, after=pending) == ([], moved)
        assert await idle(limit=2, after=moved) == ([], 0)

    async def test_the_store_returns_its_time(self, world: World) -> None:
        first = await world.store.time()
        assert first > 0
        assert await world.store.time() >= first


# ── access ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of API keys and of the audit.

KEY = KeyRecord("k1", "ci", "$argon2id$…", "t1", ("operator", "viewer"), 5, "p", "e", expires_at=99)


SESSION = SessionRecord("ab" * 32, "k1", "ada", "t1", ("viewer",), "key-k1", 5, 50, "p", "e")


class AccessRules(Rules):
    async def test_a_key_is_kept_as_it_is(self, world: World) -> None:
        store = world.store
        other = KeyRecord("k2", "other", "h", "t2", ("worker",), 4)
        await store.add_key(KEY)
        await store.add_key(other)
        assert await store.key("k1") == KEY
        assert await store.key("k3") is None
        assert await store.keys() == [other, KEY]
        assert await store.keys("t1") == [KEY]
        assert await store.keys("t3") == []

    async def test_a_key_id_is_taken_once(self, world: World) -> None:
        await world.store.add_key(KEY)
        with pytest.raises(Conflict):
            await world.store.add_key(replace(KEY, tenant="t2"))
        assert await world.store.keys() == [KEY]

    async def test_a_key_is_revoked_for_good(self, world: World) -> None:
        store = world.store
        await store.add_key(KEY)
        assert await store.revoke_key("k1", 50) == replace(KEY, revoked_at=50)
        assert await store.revoke_key("k1", 60) == replace(KEY, revoked_at=50)
        assert await store.key("k1") == replace(KEY, revoked_at=50)
        assert await store.revoke_key("k2", 50) is None

    async def test_a_store_that_had_a_key_has_keys(self, world: World) -> None:
        assert not await world.store.has_keys()
        await world.store.add_key(KEY)
        await world.store.revoke_key("k1", 50)
        assert await world.store.has_keys()

    async def test_a_session_is_kept_until_it_is_removed(self, world: World) -> None:
        store = world.store
        await store.add_session(SESSION)
        assert await store.session(SESSION.digest) == SESSION
        assert await store.session("cd" * 32) is None
        assert await store.remove_session(SESSION.digest)
        assert not await store.remove_session(SESSION.digest)
        assert await store.session(SESSION.digest) is None

    async def test_the_oldest_sessions_of_a_subject_go_when_it_has_too_many(self, world: World) -> None:
        store = world.store
        digests = [f"{number:02x}" * 32 for number in range(4)]
        for number, digest in enumerate(digests):
            await store.add_session(replace(SESSION, digest=digest, created_at=SESSION.created_at + number), 2)
        await store.add_session(replace(SESSION, digest="ff" * 32, subject="somebody else"), 2)
        remaining = [digest for digest in (*digests, "ff" * 32) if await store.session(digest) is not None]
        assert remaining == [*digests[2:], "ff" * 32]

    async def test_sessions_that_have_expired_go_with_the_next_one(self, world: World) -> None:
        store = world.store
        longer = replace(SESSION, digest="cd" * 32, expires_at=51)
        await store.add_session(SESSION)
        await store.add_session(longer)
        await store.add_session(replace(SESSION, digest="ef" * 32, created_at=50, expires_at=90))
        assert await store.session(SESSION.digest) is None
        assert await store.session(longer.digest) == longer

    async def test_the_audit_is_read_newest_first(self, world: World) -> None:
        store = world.store
        await store.add_audit([_entry(1, "granted", "t1"), _entry(2, "denied", "t2")])
        await store.add_audit([_entry(3, "denied", "t1", "no such role")])

        async def times(tenant: str = "", decision: str = "", before: int = 0, limit: int = 100) -> list[int]:
            entries = await store.audit(tenant=tenant, decision=decision, before=before, limit=limit)
            return [entry.at for _, entry in entries]

        assert await times() == [3, 2, 1]
        assert await times(limit=2) == [3, 2]
        assert await times(tenant="t1") == [3, 1]
        assert await times(tenant="t1", decision="granted") == [1]
        assert await times(decision="denied") == [3, 2]
        (position, entry), *_ = await store.audit()
        assert entry == _entry(3, "denied", "t1", "no such role")
        assert await times(before=position) == [2, 1]

    async def test_old_entries_go_and_their_positions_are_not_given_again(self, world: World) -> None:
        store = world.store
        await store.add_audit([_entry(at, "granted", "t1") for at in (1, 2, 3)])
        last = (await store.audit(limit=1))[0][0]
        await store.add_audit([_entry(9, "granted", "t1")], keep_from=9)
        ((position, entry),) = await store.audit()
        assert entry.at == 9
        assert position > last

    async def test_the_oldest_entries_of_a_caller_and_of_its_tenant_go_first(self, world: World) -> None:
        store = world.store
        await store.add_audit([_entry(at, "granted", "t1") for at in (1, 2, 3, 4)])
        await store.add_audit([_entry(5, "granted", "t1", by="other"), _entry(6, "granted", "t2")])

        async def times() -> list[int]:
            return [entry.at for _, entry in await store.audit()]

        await store.trim_audit("t1", "ci", 3, 10)
        assert await times() == [6, 5, 4, 3, 2], "a caller has at most three"
        await store.trim_audit("t1", "ci", 3, 2)
        assert await times() == [6, 5, 4], "its tenant has at most two, another tenant keeps its own"
        await store.trim_audit("t1", "nobody", 0, 2)
        assert await times() == [6, 5, 4]


def _entry(at: int, decision: str, tenant: str, reason: str = "", by: str = "ci") -> AuditEntry:
    return AuditEntry(at, decision, by, tenant, "POST", "/api/x/{id}", "id=1", "127.0.0.1", reason)
