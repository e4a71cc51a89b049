"""Make a new, empty database beside the one in DSN; prints its address as JSON. Usage: run_database.py DSN NAME"""

from __future__ import annotations

import json
import sys

import psycopg
from psycopg import sql

if __name__ == "__main__":
    dsn, name = sys.argv[1:]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        # What the contender before it left must not be written out on the next one's time.
        connection.execute("CHECKPOINT")
    print(json.dumps({"dsn": f"{dsn.rpartition('/')[0]}/{name}"}))
