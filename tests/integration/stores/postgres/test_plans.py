"""Rows are found by their indexes, also by plans that were made when the tables were empty and by a planner without figures."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.ports.storage.store import NewCommand, Timer
from arclog.stores.postgres.append_statement import Wave
from arclog.stores.postgres.queries import queries
from arclog.stores.rows import Codec
from arclog.testing.conformance.store.administration import HOOK
from arclog.testing.conformance.store.executions import stored_event
from tests.integration.stores.postgres.test_spans import minted
from tests.unit.stores.filling import POSTGRES
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
    await store.coming_timers(5, 10)


async def test_no_table_is_read_from_end_to_end(postgres, opened):
    store = await opened(postgres)
    await everyday(store, 1, 10)  # plans are made
    before = scans(postgres, "arclog")
    await store.append(replace(creation(1000), issue=[NewCommand(5000 + n, "s", 1, ("gpu",)) for n in range(3000)]))
    await everyday(store, 20, 10)
    await store.close()
    after = scans(postgres, "arclog%")
    assert {name: after[name] - before[name] for name in after} == dict.fromkeys(after, 0)


# -- every statement ---------------------------------------------------------------------------------------------------

#: tables that do not grow with what is run: settings of the installation, its servers and workers and their crashes, spans of time
BOUNDED = {
    "crashes",
    "crash_suspects",
    "limits",
    "resources",
    "workers",
    "nodes",
    "duties",
    "crowded",
    "positions",
    "spans",
    "secrets",
    "pg_",
}
#: statements that read a table, or an index, from one end to the other; why that is right
ALLOWED = {
    "held": "as many commands as workers hold; only where few tenants compete or a limit is set",
    "resources": "as many commands as workers hold that need resources",
    "build_lanes": "the lanes of a pool, once, when it becomes crowded",
    "expired": "as many commands as workers hold",
    "granted": "as many commands as workers hold; only for a report that came twice",
    "shares": "counts the open commands, for people and metrics",
    "backlog": "counts the open commands, for people and metrics",
    "keys": "the keys of an installation, for people",
    "has_keys": "the first row",
    "schedules": "a page of all schedules, in their order",
    "executions_to_settle": "an index of executions that are to be settled alone",
    "end_session": "the server's own list of connections",
}
PLAINLY = """
SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan
"""


def scans_of(node: dict[str, Any], limited: bool = False) -> Iterator[str]:
    """What a plan reads from end to end. A scan in the order of an index that a limit ends does not."""
    kind, table = node["Node Type"], node.get("Relation Name", "")
    bounded = any(table.startswith(name) for name in BOUNDED)
    if kind == "Seq Scan" and not bounded:
        yield f"{kind} on {table}"
    whole_index = kind in ("Index Scan", "Index Only Scan") and "Index Cond" not in node
    if whole_index and not bounded and (not limited or "Filter" in node):
        yield f"{kind} on {table} using {node['Index Name']}"
    passes_on = kind in ("Limit", "Result", "Subquery Scan", "LockRows", "Append", "Merge Append", "Unique")
    for below in node.get("Plans", ()):
        yield from scans_of(below, limited=(limited or kind == "Limit") and passes_on)


def statements(queries: dict[str, str]) -> Iterator[tuple[str, str]]:
    """All that are named, and appends that need every part."""
    for name, text in queries.items():
        if not name.startswith("append.") and text.split(maxsplit=1)[0] in (
            "SELECT",
            "WITH",
            "INSERT",
            "UPDATE",
            "DELETE",
        ):
            yield name, text
    codec, work = Codec(Settings()), NewCommand(1, "s", 1, ("noop",), resources=("r",))
    stored = stored_event(7, "s.t", "a")
    wave = Wave()
    for what in (
        replace(creation(6), issue=[work]),
        change(
            7, 3, Event("step.scheduled", 1, "s", 1), Event("step.done", 1, "t", 1), stored, Event("task.failed", 1),
            issue=[replace(work, command_id=3)], close=[3, 4], release=[5], hold=[(6, 1)], unhold=[8], extend=[(9, 1, 2)],
            set_timers=[Timer(7, "t", 5)], clear_timers=["u"], slots=2,
        ),
        replace(change(8, 3, Event("playbook.finished", 1)), deliveries=[HOOK]),
        replace(change(9, 3, Event("task.done", 1, own_id=77)), digests={77: "00" * 32}),
    ):  # fmt: skip
        wave.add(what, codec.derive(what), 1, 0)
    for number, (text, _) in enumerate(wave.calls(queries, 1)):
        yield f"append {number}", text


def plan_of(connection: Any, text: str) -> dict[str, Any]:
    count = max(map(int, re.findall(r"\$(\d+)", text)), default=0)
    nothing = f"({', '.join(['NULL'] * count)})" if count else ""
    connection.execute(f"PREPARE s AS {text}")
    [(plan,)] = connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE s{nothing}").fetchall()
    connection.execute("DEALLOCATE s")
    top: dict[str, Any] = plan[0]["Plan"]
    return top


async def test_no_statement_scans_what_grows(postgres, opened):
    store = await opened(postgres, store__partition_s=3600)
    for hour in range(3):  # several partitions
        await store.append(creation(minted(hour)))
    postgres.rows(POSTGRES.format(n=3000, first=minted(0)))
    scanned = {}
    with postgres.connect() as connection:
        connection.execute(PLAINLY)
        for name, text in statements(queries("arclog")):
            if (scans := list(scans_of(plan_of(connection, text)))) and name not in ALLOWED:
                scanned[name] = scans
    assert scanned == {}, "\n".join(f"{name}: {scans[:3]}" for name, scans in scanned.items())


def reads_of(node: dict[str, Any], table: str) -> Iterator[dict[str, Any]]:
    """The parts of a plan that read a table."""
    if node.get("Relation Name") == table:
        yield node
    for below in node.get("Plans", ()):
        yield from reads_of(below, table)


async def test_pages_of_a_search_look_executions_up(postgres, opened):
    """PostgreSQL likes to read all executions into a hash table instead, once a page."""
    store = await opened(postgres, store__partition_s=3600)
    await store.append(creation(minted(0)))
    postgres.rows(POSTGRES.format(n=3000, first=minted(0)))
    with postgres.connect() as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        for name in ("scanned_page", "mark_page"):
            [read] = reads_of(plan_of(connection, queries("arclog")[name]), "executions")
            assert "execution_id =" in read.get("Index Cond", ""), (name, read)
