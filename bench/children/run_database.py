"""Make a new, empty database beside the one in DSN; prints its address as JSON. Usage: run_database.py DSN NAME"""

from __future__ import annotations

import json
import sys
import time

import psycopg
from psycopg import sql

#: a server that has just been started answers by then
PATIENCE_S = 60.0


def connected(dsn: str) -> psycopg.Connection:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return psycopg.connect(dsn, autocommit=True)
        except psycopg.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    dsn, name = sys.argv[1:]
    with connected(dsn) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        # What the contender before it left must not be written out on the next one's time.
        connection.execute("CHECKPOINT")
    print(json.dumps({"dsn": f"{dsn.rpartition('/')[0]}/{name}"}))
