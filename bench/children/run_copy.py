"""The floor of a transfer: what a short script of one's own does, from SQLite to PostgreSQL by COPY.

fill FILE ROWS            make a SQLite file with a table of so many rows
copy FILE DSN TABLE       copy it, whole, in one transaction
look DSN TABLE            how many rows a table has, and their sums
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from typing import Any

MADE = "(id BIGINT, name TEXT, amount DOUBLE PRECISION, note TEXT)"


def fill(file: str, rows: int) -> dict[str, Any]:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE rows (id INTEGER, name TEXT, amount REAL, note TEXT)")
    with connection:
        connection.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, ?)",
            ((n, f"name of row {n}", n / 8, None if n % 3 else "a note") for n in range(rows)),
        )
    connection.close()
    return {"rows": rows}


def copy(file: str, dsn: str, table: str) -> dict[str, Any]:
    import psycopg

    started = time.perf_counter()
    source = sqlite3.connect(file)
    with psycopg.connect(dsn) as target, target.cursor() as cursor:
        cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} {MADE}".encode())
        cursor.execute(f"TRUNCATE {table}".encode())
        with cursor.copy(f"COPY {table} FROM STDIN".encode()) as out:
            for row in source.execute("SELECT * FROM rows"):
                out.write_row(row)
    source.close()
    return {"run_s": time.perf_counter() - started}


def look(dsn: str, table: str) -> dict[str, Any]:
    import psycopg

    # The server may have been started a moment ago.
    deadline = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(dsn) as connection:
                if table == "none":
                    return {}
                sums = "count(*), sum(id)::bigint, sum(amount), count(note), sum(length(name))"
                found = connection.execute(f"SELECT {sums} FROM {table}".encode()).fetchone()
                return {"found": found}
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main(argv: list[str]) -> None:
    match argv:
        case ["fill", file, rows]:
            answer = fill(file, int(rows))
        case ["copy", file, dsn, table]:
            answer = copy(file, dsn, table)
        case ["look", dsn, table]:
            answer = look(dsn, table)
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
