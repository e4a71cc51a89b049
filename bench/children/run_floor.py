"""The floor under a durable step: a bare loop that evaluates one expression and commits seven events.

Same library (apsw) and the same promises as arclog's store (WAL, synchronous FULL), one row per transaction and one
head row; no engine, worker, lease, check or asyncio. Usage: run_floor.py STEPS FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import apsw
import msgspec
from jinja2.sandbox import SandboxedEnvironment

SCHEMA = """
CREATE TABLE log (pos INTEGER PRIMARY KEY, run INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
CREATE UNIQUE INDEX log_by_seq ON log (run, seq);
CREATE TABLE head (run INTEGER PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
INSERT INTO head VALUES (1, 0);
"""
TYPES = (
    "step.started",
    "task.started",
    "task.done",
    "policy.evaluated",
    "step.done",
    "next.evaluated",
    "step.scheduled",
)


def events_of(step: int, followed: bool) -> list[dict[str, Any]]:
    """Seven events of about the size that a simple step has in arclog's log."""
    now = time.time_ns() // 1000
    lean = {"@": now, "s": f"s{step}", "r": 1, "k": f"s{step}_task"}
    events = [{"t": kind, **lean} for kind in TYPES]
    events[2]["p"] = {"outcome": {"status": "ok", "meta": {"attempt": 1, "duration_ms": 0.027}}}
    events[5]["p"] = {"mode": "exclusive", "selected": [{"step": f"s{step + 1}"}] if followed else []}
    return events


def chain(steps: int, folder: str) -> dict[str, Any]:
    connection = apsw.Connection(os.path.join(folder, "floor.db"))
    connection.pragma("journal_mode", "wal")
    connection.execute(
        "PRAGMA synchronous = FULL; PRAGMA cache_size = -16000; PRAGMA wal_autocheckpoint = 4000"
    ).fetchall()
    assert (connection.pragma("journal_mode"), connection.pragma("synchronous")) == ("wal", 2)
    connection.execute(SCHEMA).fetchall()
    when = SandboxedEnvironment().compile_expression("outcome.status == 'ok' and step >= 0")
    encode = msgspec.json.Encoder().encode
    execute = connection.cursor().execute
    started, cpu = time.perf_counter(), time.process_time()
    seq = 0
    for step in range(steps):
        events = events_of(step, bool(when(outcome={"status": "ok"}, step=step)))
        execute("BEGIN IMMEDIATE")
        execute("INSERT INTO log (run, seq, body) VALUES (1, ?, ?)", (seq + 1, encode(events)))
        execute("UPDATE head SET seq = ? WHERE run = 1 AND seq = ?", (seq + len(events), seq))
        if connection.changes() != 1:
            raise RuntimeError("the head was moved by somebody else")
        execute("COMMIT")
        seq += len(events)
    run_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    total_s = time.time() - float(os.environ["BENCH_T0"])
    rows = connection.execute("SELECT count(*) FROM log").get
    body = connection.execute("SELECT avg(length(body)) FROM log").get
    head = connection.execute("SELECT seq FROM head").get
    connection.close()
    return {"run_s": run_s, "cpu_s": cpu_s, "total_s": total_s, "rows": rows, "head": head, "body_bytes": body}


if __name__ == "__main__":
    print(json.dumps(chain(int(sys.argv[1]), sys.argv[2])))
