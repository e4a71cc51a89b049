"""Rows are found by their indexes, also by plans that were made when the tables were empty and by a planner without figures."""

from msgspec.structs import replace

from arclog.model.events import Event
from arclog.ports.store import NewCommand, Timer
from tests.unit.stores.support import change, creation

SCANS = """
SELECT relname, seq_scan FROM pg_stat_user_tables
WHERE schemaname = 'arclog' AND relname IN ('executions', 'commands', 'step_runs', 'timers', 'ingested', 'results', 'mark')
   OR relname LIKE 'log_%'
"""


def scans(database, names):
    """Server processes report what they did when they end."""
    ending = f"SELECT FROM pg_stat_activity WHERE application_name LIKE '{names}' AND datname = current_database()"
    while database.rows(ending):
        pass
    return dict(database.rows(SCANS))


async def everyday(store, base, count):
    """What every run does: appends, claims, heartbeats, reads."""
    for number in range(base, base + count):
        work = NewCommand(number, "s", 1, ("noop",))
        await store.append(creation(number))
        await store.append(
            change(number, 1, Event("step.scheduled", 1, "s", 1), issue=[work], set_timers=[Timer(number, "t", 5)])
        )
        (taken,) = await store.claim("w", limit=1, lease_until=1 << 60, kinds=["noop"])
        assert await store.heartbeat("w", [(taken.command_id, taken.fence)], 1 << 61) == []
        done = Event("step.done", 1, "s", 1)
        await store.append(change(number, 2, done, close=[number], clear_timers=["t"]))
        assert len(await store.events(number)) == 3
        assert len(await store.step_events(number, "s", 1)) == 2
        assert (await store.execution(number)).head == 3
    await store.due_timers(10)


async def test_no_table_is_read_from_end_to_end(postgres, opened):
    store = await opened(postgres)
    await everyday(store, 1, 10)  # plans are made
    before = scans(postgres, "arclog")
    await store.append(replace(creation(1000), issue=[NewCommand(5000 + n, "s", 1, ("gpu",)) for n in range(3000)]))
    await everyday(store, 20, 10)
    await store.close()
    after = scans(postgres, "arclog%")
    assert {name: after[name] - before[name] for name in after} == dict.fromkeys(after, 0)
