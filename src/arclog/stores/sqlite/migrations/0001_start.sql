-- The log: one row per transaction, or several when it is large. Positions are given in commit order.
CREATE TABLE log (
    pos          INTEGER PRIMARY KEY,
    execution_id INTEGER NOT NULL,
    seq0         INTEGER NOT NULL,
    seq1         INTEGER NOT NULL,
    base         INTEGER NOT NULL,  -- event id of the first event
    ts           INTEGER NOT NULL,  -- persisted_at
    types        INTEGER NOT NULL,  -- bit set of the event types inside
    body         BLOB    NOT NULL   -- see arclog.stores.rows
) STRICT;
-- With the types in it, a search for a rare type reads the index alone.
CREATE UNIQUE INDEX log_by_seq ON log (execution_id, seq0, types);

CREATE TABLE mark (
    event_type   INTEGER NOT NULL,  -- the type's bit
    ts           INTEGER NOT NULL,
    execution_id INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    PRIMARY KEY (event_type, ts, execution_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE step_runs (
    execution_id INTEGER NOT NULL,
    step         TEXT    NOT NULL,
    run          INTEGER NOT NULL,
    seq0         INTEGER NOT NULL,
    seq1         INTEGER,           -- the event that ended it
    until        INTEGER,           -- once ended: the last event that names it
    status       TEXT    NOT NULL,
    PRIMARY KEY (execution_id, step, run)
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
    execution_id    INTEGER PRIMARY KEY,
    head            INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    current_step    TEXT,
    started_at      INTEGER,
    ended_at        INTEGER,
    terminal_event  TEXT,
    paused          INTEGER NOT NULL,
    error           TEXT,
    over            INTEGER NOT NULL,  -- 1: it has its terminal event
    run_id          TEXT    NOT NULL,
    name            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    version         INTEGER NOT NULL,
    plan            TEXT    NOT NULL,
    tenant          TEXT    NOT NULL,
    project         TEXT    NOT NULL,
    environment     TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    idempotency_key TEXT    NOT NULL,
    parent          INTEGER NOT NULL
) STRICT;
CREATE INDEX executions_live ON executions (execution_id) WHERE over = 0;
CREATE INDEX executions_by_parent ON executions (parent, execution_id) WHERE parent <> 0;
CREATE UNIQUE INDEX executions_by_key ON executions (tenant, project, environment, idempotency_key)
    WHERE idempotency_key <> '';

-- Open work. Issued commands have lease_until 0.
CREATE TABLE commands (
    execution_id INTEGER NOT NULL,
    command_id   INTEGER NOT NULL,
    step         TEXT    NOT NULL,
    run          INTEGER NOT NULL,
    kinds        TEXT    NOT NULL,  -- JSON array, sorted
    pool         TEXT    NOT NULL,
    item0        INTEGER NOT NULL,
    item1        INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    worker_id    TEXT    NOT NULL,
    lease_until  INTEGER NOT NULL,
    by_command   INTEGER NOT NULL,  -- the report whose commit granted it; 0, 0, 0 when it was claimed
    by_fence     INTEGER NOT NULL,
    by_n         INTEGER NOT NULL,
    PRIMARY KEY (execution_id, command_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX commands_issued ON commands (pool, kinds, command_id) WHERE lease_until = 0;
CREATE INDEX commands_claimed ON commands (command_id) WHERE lease_until > 0;

CREATE TABLE timers (
    execution_id INTEGER NOT NULL,
    timer_id     TEXT    NOT NULL,
    due          INTEGER NOT NULL,
    payload      BLOB    NOT NULL,
    PRIMARY KEY (execution_id, timer_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX timers_by_due ON timers (due);

CREATE TABLE plans (
    digest TEXT PRIMARY KEY,
    body   BLOB NOT NULL
) STRICT;
CREATE TABLE catalog (
    path       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    digest     TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (path, version)
) STRICT;
CREATE UNIQUE INDEX catalog_by_digest ON catalog (digest, path);

CREATE TABLE snapshots (
    execution_id INTEGER PRIMARY KEY,
    seq          INTEGER NOT NULL,
    code         TEXT    NOT NULL,
    body         BLOB    NOT NULL
) STRICT;

CREATE TABLE task_logs (
    pos          INTEGER PRIMARY KEY,
    execution_id INTEGER NOT NULL,
    body         BLOB    NOT NULL
) STRICT;
CREATE INDEX task_logs_by_execution ON task_logs (execution_id);

CREATE TABLE nodes (
    node  INTEGER PRIMARY KEY,
    owner TEXT    NOT NULL UNIQUE,
    until INTEGER NOT NULL
) STRICT;
