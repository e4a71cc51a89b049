"""Many runs in a store, fast: the engine made a few, the others are copies of their rows with earlier ids.

Ids and times of copy n are n × SPACING_MS earlier, so what the store mints next comes after all of them.
"""

from __future__ import annotations

import os
from typing import Any

#: Copied rows, with what a copy has instead; `{later}` is negative. The copies of one run differ in nothing else.
_TABLES = ("executions", "log", "mark", "step_runs", "timers")
_TIMES = ("ts", "created_at", "started_at", "ended_at")
SPACING_MS = 360
#: copies between two commits
_PART = 5000


def copy(
    home: str, originals: dict[int, tuple[int, ...]], *, tables: tuple[str, ...] = _TABLES, schema: str = "arclog"
) -> None:
    """`originals`: by the id of a run, the numbers of its copies."""
    url = os.environ.get("ARCLOG_STORE_URL", "")
    if url:
        _copy_postgres(url, originals, tables, schema)
    else:
        _copy_sqlite(os.path.join(home, "arclog.db"), originals, tables)


def _values(columns: list[str], pos: str) -> str:
    later = f"(-n.i * {SPACING_MS}::bigint)" if pos != "NULL" else f"(-n.i * {SPACING_MS})"
    ids, times = f"({later} * 4194304)", f"({later} * 1000)"
    changed = {
        "execution_id": f"t.execution_id + {ids}",
        "base": f"t.base + {ids}",
        "pos": pos,
        "run_id": "'run-' || t.execution_id || '-' || n.i",
        **{name: f"t.{name} + {times}" for name in _TIMES},
    }
    return ", ".join(changed.get(name, f"t.{name}") for name in columns)


def _copy_sqlite(file: str, originals: dict[int, tuple[int, ...]], tables: tuple[str, ...]) -> None:
    import apsw

    connection = apsw.Connection(file)
    connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; CREATE TEMP TABLE n (i INTEGER)")
    for original, numbers in originals.items():
        for at in reversed(range(0, len(numbers), _PART)):  # positions rise with time
            with connection:
                connection.execute("DELETE FROM n")
                connection.executemany("INSERT INTO n VALUES (?)", [(number,) for number in numbers[at : at + _PART]])
                for table in tables:
                    columns: list[Any] = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                    connection.execute(
                        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {_values(columns, 'NULL')} "
                        f"FROM n CROSS JOIN {table} t WHERE t.execution_id = ? ORDER BY n.i DESC",
                        (original,),
                    )
    connection.execute("PRAGMA optimize")
    connection.close()


def _copy_postgres(url: str, originals: dict[int, tuple[int, ...]], tables: tuple[str, ...], schema: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        # Positions rise with time, and the copies of a run have as many as it has events.
        newest = max(max(numbers, default=0) for numbers in originals.values())
        (longest,) = connection.execute(
            f"SELECT max(seq1) FROM {schema}.log WHERE execution_id = ANY(%s)", (list(originals),)
        ).fetchone() or (0,)
        pos = f"({newest} - n.i) * {longest + 1}::bigint + t.seq0"
        for original, numbers in originals.items():
            for at in range(0, len(numbers), _PART):
                part = list(numbers[at : at + _PART])
                for table in tables:
                    columns = [
                        row[0]
                        for row in connection.execute(
                            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s "
                            "AND table_name = %s ORDER BY ordinal_position",
                            (schema, table),
                        )
                    ]
                    connection.execute(
                        f"INSERT INTO {schema}.{table} ({', '.join(columns)}) SELECT {_values(columns, pos)} "
                        f"FROM unnest(%s::bigint[]) AS n (i) CROSS JOIN {schema}.{table} t WHERE t.execution_id = %s",
                        (part, original),
                    )
        connection.execute("VACUUM ANALYZE")


async def make_spans(store: Any, numbers: int, newest: int) -> None:
    """PostgreSQL's partitions for what will be copied; a SQLite file has none."""
    spans = getattr(store, "_spans", None)
    if spans is None:
        return
    for number in range(0, numbers + 1000, 1000):
        wanted = newest - number * SPACING_MS * 4194304
        if not spans.has(wanted):
            await spans.ensure(wanted)
