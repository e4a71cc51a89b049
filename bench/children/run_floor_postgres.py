"""The floor under a durable step on PostgreSQL: one expression, and seven events in one statement, one commit a step.

One row for the events and one head row, a compare-and-set in a CTE; no engine, worker, lease, check or asyncio.
Usage: run_floor_postgres.py STEPS DSN
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import msgspec
import psycopg
from jinja2.sandbox import SandboxedEnvironment

from bench.children.run_floor import events_of

SCHEMA = """
CREATE TABLE log (pos bigserial PRIMARY KEY, run bigint NOT NULL, seq bigint NOT NULL, body bytea NOT NULL);
CREATE UNIQUE INDEX log_by_seq ON log (run, seq);
CREATE TABLE head (run bigint PRIMARY KEY, seq bigint NOT NULL);
INSERT INTO head VALUES (1, 0);
"""
STEP = """
WITH moved AS (UPDATE head SET seq = %(last)s WHERE run = 1 AND seq = %(seq)s RETURNING run)
INSERT INTO log (run, seq, body) SELECT run, %(first)s, %(body)s FROM moved
"""


def chain(steps: int, dsn: str) -> dict[str, Any]:
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=0) as connection:
        connection.execute(SCHEMA, prepare=False)
        cursor = connection.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("on",)
        when = SandboxedEnvironment().compile_expression("outcome.status == 'ok' and step >= 0")
        encode = msgspec.json.Encoder().encode
        started, cpu = time.perf_counter(), time.process_time()
        seq = 0
        for step in range(steps):
            events = events_of(step, bool(when(outcome={"status": "ok"}, step=step)))
            last = seq + len(events)
            parameters = {"seq": seq, "first": seq + 1, "last": last, "body": encode(events)}
            if connection.execute(STEP, parameters, binary=True).rowcount != 1:
                raise RuntimeError("the head was moved by somebody else")
            seq = last
        run_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        total_s = time.time() - float(os.environ["BENCH_T0"])
        rows, head = connection.execute("SELECT (SELECT count(*) FROM log), (SELECT seq FROM head)").fetchone() or (
            0,
            0,
        )
    return {"run_s": run_s, "cpu_s": cpu_s, "total_s": total_s, "rows": rows, "head": head}


if __name__ == "__main__":
    print(json.dumps(chain(int(sys.argv[1]), sys.argv[2])))
