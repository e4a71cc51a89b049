-- The schema of a new store, as the migrations up to this one make it: it takes half of their time. A newer migration may be
-- left out here; it then runs after this script. A test compares both, and
-- `./x pytest tests/integration/stores/test_sqlite_opening.py --redraw` writes this file again.
-- schema: 18
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
, approvals INTEGER NOT NULL DEFAULT 0, origin INTEGER NOT NULL DEFAULT 0, origin_seq INTEGER NOT NULL DEFAULT 0, origin_how TEXT NOT NULL DEFAULT '') STRICT;

CREATE INDEX executions_live ON executions (execution_id) WHERE over = 0;

CREATE INDEX executions_by_parent ON executions (parent, execution_id) WHERE parent <> 0;

CREATE UNIQUE INDEX executions_by_key ON executions (tenant, project, environment, idempotency_key)
    WHERE idempotency_key <> '';

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
    by_n         INTEGER NOT NULL, tenant TEXT NOT NULL DEFAULT '', rank INTEGER NOT NULL DEFAULT 0, resources TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (execution_id, command_id)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE snapshots (
    execution_id INTEGER PRIMARY KEY,
    seq          INTEGER NOT NULL,
    code         TEXT    NOT NULL,
    body         BLOB    NOT NULL
) STRICT;

CREATE TABLE nodes (
    node  INTEGER PRIMARY KEY,
    owner TEXT    NOT NULL UNIQUE,
    until INTEGER NOT NULL
) STRICT;

CREATE TABLE results (
    execution_id INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    sha256       TEXT    NOT NULL,
    bytes        INTEGER NOT NULL,
    rows         INTEGER,           -- items of a list
    content_type TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    scope        INTEGER NOT NULL,  -- 0 step, 1 execution, 2 workflow, 3 permanent
    stored_at    INTEGER NOT NULL,
    expires_at   INTEGER,
    step         TEXT    NOT NULL,
    run          INTEGER NOT NULL,
    task         TEXT    NOT NULL,
    seq          INTEGER NOT NULL,
    removed_at   INTEGER,           -- when gc let go of it
    PRIMARY KEY (execution_id, name, sha256)
) STRICT, WITHOUT ROWID;

CREATE INDEX results_by_seq ON results (execution_id, seq);

CREATE INDEX results_by_content ON results (tenant, sha256, execution_id, name) WHERE removed_at IS NULL;

CREATE TABLE task_logs (
    pos          INTEGER PRIMARY KEY,
    execution_id INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    step         TEXT    NOT NULL,
    run          INTEGER NOT NULL,
    task         TEXT    NOT NULL,
    task_run     INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    iteration    TEXT    NOT NULL,  -- '' outside a loop, else every index with a dot behind it: '3.0.'
    stream       TEXT    NOT NULL,
    text         BLOB    NOT NULL   -- UTF-8, in which lone surrogates stand as they are
) STRICT;

CREATE INDEX task_logs_by_execution ON task_logs (execution_id);

CREATE INDEX task_progress ON task_logs (execution_id, step, run, iteration, task, task_run, attempt)
    WHERE stream = 'progress';

CREATE INDEX task_progress_by_execution ON task_logs (execution_id) WHERE stream = 'progress';

CREATE TABLE task_log_sizes (
    execution_id INTEGER PRIMARY KEY,
    bytes        INTEGER NOT NULL,
    cut          INTEGER NOT NULL
) STRICT;

CREATE TABLE schedules (
    tenant      TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    revision    INTEGER NOT NULL,
    wakes_at    INTEGER NOT NULL,             -- when somebody should look at it
    lease_owner TEXT    NOT NULL DEFAULT '',
    lease_until INTEGER NOT NULL DEFAULT 0,
    body        BLOB    NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_by_time ON schedules (wakes_at);

CREATE TABLE outbox (
    execution_id INTEGER NOT NULL,
    n            INTEGER NOT NULL,            -- from 1 per execution
    url          TEXT    NOT NULL,
    secret       TEXT    NOT NULL,            -- name of the keychain entry that signs
    event        TEXT    NOT NULL,            -- completed | failed | cancelled
    body         BLOB    NOT NULL,            -- what is sent, byte by byte the same each time
    created_at   INTEGER NOT NULL,
    state        TEXT    NOT NULL,            -- pending | delivered | dead
    due          INTEGER NOT NULL,            -- of the next attempt
    attempts     INTEGER NOT NULL,
    problem      TEXT    NOT NULL,            -- of the last attempt
    lease_until  INTEGER NOT NULL,
    settled      INTEGER NOT NULL,            -- its run's log says playbook.processed
    PRIMARY KEY (execution_id, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_pending ON outbox (due) WHERE state = 'pending';

CREATE INDEX outbox_unsettled ON outbox (execution_id) WHERE settled = 0;

CREATE TABLE ingested (
    execution_id INTEGER NOT NULL,
    event_id     INTEGER NOT NULL,
    digest       BLOB    NOT NULL,  -- sha256 of the content
    seq          INTEGER NOT NULL,
    PRIMARY KEY (execution_id, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX executions_by_run ON executions (run_id);

CREATE TABLE keys (
    key_id      TEXT    PRIMARY KEY,
    name        TEXT    NOT NULL,
    hash        TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    roles       TEXT    NOT NULL,  -- JSON array
    created_at  INTEGER NOT NULL,
    project     TEXT    NOT NULL,
    environment TEXT    NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER
) STRICT;

CREATE TABLE audit (
    pos       INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, also after the newest entries were removed
    at        INTEGER NOT NULL,
    decision  TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    tenant    TEXT    NOT NULL,
    method    TEXT    NOT NULL,
    route     TEXT    NOT NULL,
    target    TEXT    NOT NULL,
    address   TEXT    NOT NULL,
    reason    TEXT    NOT NULL
) STRICT;

CREATE INDEX audit_by_time ON audit (at);

CREATE INDEX audit_by_tenant ON audit (tenant, pos);

CREATE TABLE catalog (
    tenant     TEXT    NOT NULL,
    path       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    digest     TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, path, version)
) STRICT;

CREATE UNIQUE INDEX catalog_by_digest ON catalog (digest, tenant, path);

CREATE TABLE "archived" (
    tenant      TEXT    NOT NULL,
    path        TEXT    NOT NULL,
    archived_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE duties (
    duty     TEXT    PRIMARY KEY,
    owner    TEXT    NOT NULL,
    until    INTEGER NOT NULL,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX commands_issued ON commands (pool, tenant, kinds, resources, rank, command_id) WHERE lease_until = 0;

CREATE INDEX commands_needing ON commands (lease_until) WHERE resources <> '';

CREATE TABLE limits (
    pool        TEXT    NOT NULL,  -- '': all pools together
    tenant      TEXT    NOT NULL,  -- '': all tenants together; '*': each by itself
    concurrency INTEGER NOT NULL,
    PRIMARY KEY (pool, tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE resources (
    name        TEXT    PRIMARY KEY,
    interval    INTEGER NOT NULL,  -- microseconds between two tokens; 0: no rate
    burst       INTEGER NOT NULL,
    concurrency INTEGER,
    full_at     INTEGER NOT NULL   -- when all tokens would be back
) STRICT, WITHOUT ROWID;

CREATE TABLE service (
    pool   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (pool, tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    worker_id TEXT    PRIMARY KEY,
    pools     TEXT    NOT NULL,  -- JSON array
    kinds     TEXT    NOT NULL,  -- JSON array
    tenant    TEXT    NOT NULL,
    host      TEXT    NOT NULL,
    version   TEXT    NOT NULL,
    slots     INTEGER NOT NULL,
    busy      INTEGER NOT NULL,
    pace      INTEGER NOT NULL,  -- microseconds that a command takes
    seen_at   INTEGER NOT NULL,
    leaves    INTEGER NOT NULL,
    draining  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE compatibility (
    oldest INTEGER NOT NULL
) STRICT;

CREATE TABLE catalog_scopes (
    tenant      TEXT    NOT NULL,
    path        TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    project     TEXT    NOT NULL,
    environment TEXT    NOT NULL,
    PRIMARY KEY (tenant, path, version, project, environment)
) STRICT, WITHOUT ROWID;

CREATE TABLE retiring (
    execution_id INTEGER PRIMARY KEY
) STRICT;

CREATE TABLE crowded (
    pool TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE holding (
    pool   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    held   INTEGER NOT NULL,
    PRIMARY KEY (pool, tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE lanes (
    pool         TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    kinds        TEXT    NOT NULL,
    resources    TEXT    NOT NULL,
    held         INTEGER NOT NULL,  -- as in `holding`
    served       INTEGER NOT NULL,  -- as in `service`; what lies behind the pool's present counts as if it stood there
    rank         INTEGER NOT NULL,  -- of its first command
    command_id   INTEGER NOT NULL,
    execution_id INTEGER NOT NULL,
    PRIMARY KEY (pool, tenant, kinds, resources)
) STRICT, WITHOUT ROWID;

CREATE INDEX lanes_in_turn ON lanes (pool, kinds, resources, held, served, rank, command_id);

CREATE INDEX service_by_count ON service (pool, served);

CREATE TRIGGER lane_opened AFTER INSERT ON commands
WHEN NEW.lease_until = 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = NEW.pool)
BEGIN
    INSERT INTO lanes (pool, tenant, kinds, resources, held, served, rank, command_id, execution_id) VALUES (
        NEW.pool, NEW.tenant, NEW.kinds, NEW.resources,
        coalesce((SELECT held FROM holding WHERE pool = NEW.pool AND tenant = NEW.tenant), 0),
        coalesce((SELECT served FROM service WHERE pool = NEW.pool AND tenant = NEW.tenant), 0),
        NEW.rank, NEW.command_id, NEW.execution_id
    ) ON CONFLICT DO UPDATE
    SET rank = excluded.rank, command_id = excluded.command_id, execution_id = excluded.execution_id
    WHERE (excluded.rank, excluded.command_id) < (rank, command_id);
END;

CREATE TRIGGER lane_opened_again AFTER UPDATE OF lease_until ON commands
WHEN OLD.lease_until <> 0 AND NEW.lease_until = 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = NEW.pool)
BEGIN
    INSERT INTO lanes (pool, tenant, kinds, resources, held, served, rank, command_id, execution_id) VALUES (
        NEW.pool, NEW.tenant, NEW.kinds, NEW.resources,
        coalesce((SELECT held FROM holding WHERE pool = NEW.pool AND tenant = NEW.tenant), 0),
        coalesce((SELECT served FROM service WHERE pool = NEW.pool AND tenant = NEW.tenant), 0),
        NEW.rank, NEW.command_id, NEW.execution_id
    ) ON CONFLICT DO UPDATE
    SET rank = excluded.rank, command_id = excluded.command_id, execution_id = excluded.execution_id
    WHERE (excluded.rank, excluded.command_id) < (rank, command_id);
END;

CREATE TRIGGER lane_moved AFTER UPDATE OF lease_until ON commands
WHEN OLD.lease_until = 0 AND NEW.lease_until <> 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = OLD.pool)
BEGIN
    UPDATE lanes SET (rank, command_id, execution_id) = (
        SELECT coalesce(min(rank), -1), coalesce(command_id, -1), coalesce(execution_id, -1) FROM (
            SELECT rank, command_id, execution_id FROM commands c
            WHERE c.lease_until = 0 AND c.pool = OLD.pool AND c.tenant = OLD.tenant AND c.kinds = OLD.kinds
              AND c.resources = OLD.resources
            ORDER BY rank, command_id LIMIT 1
        )
    )
    WHERE pool = OLD.pool AND tenant = OLD.tenant AND kinds = OLD.kinds AND resources = OLD.resources
      AND command_id = OLD.command_id;
    DELETE FROM lanes WHERE pool = OLD.pool AND tenant = OLD.tenant AND kinds = OLD.kinds AND resources = OLD.resources
      AND command_id = -1;
END;

CREATE TRIGGER lane_left AFTER DELETE ON commands
WHEN OLD.lease_until = 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = OLD.pool)
BEGIN
    UPDATE lanes SET (rank, command_id, execution_id) = (
        SELECT coalesce(min(rank), -1), coalesce(command_id, -1), coalesce(execution_id, -1) FROM (
            SELECT rank, command_id, execution_id FROM commands c
            WHERE c.lease_until = 0 AND c.pool = OLD.pool AND c.tenant = OLD.tenant AND c.kinds = OLD.kinds
              AND c.resources = OLD.resources
            ORDER BY rank, command_id LIMIT 1
        )
    )
    WHERE pool = OLD.pool AND tenant = OLD.tenant AND kinds = OLD.kinds AND resources = OLD.resources
      AND command_id = OLD.command_id;
    DELETE FROM lanes WHERE pool = OLD.pool AND tenant = OLD.tenant AND kinds = OLD.kinds AND resources = OLD.resources
      AND command_id = -1;
END;

CREATE TRIGGER held_by_grant AFTER INSERT ON commands
WHEN NEW.lease_until > 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = NEW.pool)
BEGIN
    INSERT INTO holding (pool, tenant, held) VALUES (NEW.pool, NEW.tenant, 1) ON CONFLICT DO UPDATE SET held = held + 1;
    UPDATE lanes SET held = held + 1 WHERE pool = NEW.pool AND tenant = NEW.tenant;
END;

CREATE TRIGGER held_by_claim AFTER UPDATE OF lease_until ON commands
WHEN OLD.lease_until <= 0 AND NEW.lease_until > 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = NEW.pool)
BEGIN
    INSERT INTO holding (pool, tenant, held) VALUES (NEW.pool, NEW.tenant, 1) ON CONFLICT DO UPDATE SET held = held + 1;
    UPDATE lanes SET held = held + 1 WHERE pool = NEW.pool AND tenant = NEW.tenant;
END;

CREATE TRIGGER held_no_more AFTER UPDATE OF lease_until ON commands
WHEN OLD.lease_until > 0 AND NEW.lease_until <= 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = OLD.pool)
BEGIN
    UPDATE holding SET held = held - 1 WHERE pool = OLD.pool AND tenant = OLD.tenant;
    DELETE FROM holding WHERE pool = OLD.pool AND tenant = OLD.tenant AND held <= 0;
    UPDATE lanes SET held = held - 1 WHERE pool = OLD.pool AND tenant = OLD.tenant;
END;

CREATE TRIGGER held_until_closed AFTER DELETE ON commands
WHEN OLD.lease_until > 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = OLD.pool)
BEGIN
    UPDATE holding SET held = held - 1 WHERE pool = OLD.pool AND tenant = OLD.tenant;
    DELETE FROM holding WHERE pool = OLD.pool AND tenant = OLD.tenant AND held <= 0;
    UPDATE lanes SET held = held - 1 WHERE pool = OLD.pool AND tenant = OLD.tenant;
END;

CREATE TRIGGER served_first AFTER INSERT ON service WHEN NEW.tenant <> ''
BEGIN
    UPDATE lanes SET served = NEW.served WHERE pool = NEW.pool AND tenant = NEW.tenant;
END;

CREATE TRIGGER served_again AFTER UPDATE OF served ON service WHEN NEW.tenant <> ''
BEGIN
    UPDATE lanes SET served = NEW.served WHERE pool = NEW.pool AND tenant = NEW.tenant;
END;

CREATE INDEX executions_by_state ON executions (tenant, state, execution_id);

CREATE INDEX executions_by_path ON executions (tenant, path, state, execution_id);

CREATE INDEX executions_by_name ON executions (tenant, name, state, execution_id);

CREATE INDEX executions_pending ON executions (tenant, path, execution_id) WHERE over = 0 AND state = 'PENDING';

CREATE INDEX executions_live_children ON executions (execution_id) WHERE over = 0 AND parent <> 0;

CREATE INDEX outbox_dead ON outbox (execution_id, n) WHERE state = 'dead';

CREATE INDEX outbox_told ON outbox (execution_id) WHERE settled = 0 AND state <> 'pending';

CREATE INDEX audit_by_decision ON audit (decision, pos);

CREATE INDEX audit_of_tenant_by_decision ON audit (tenant, decision, pos);

CREATE TABLE past_snapshots (
    id           INTEGER PRIMARY KEY,
    execution_id INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    code         TEXT    NOT NULL,
    body         BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX past_snapshots_by_seq ON past_snapshots (execution_id, seq);

CREATE INDEX executions_approvals ON executions (tenant, execution_id) WHERE approvals > 0;

CREATE TABLE run_counts (
    tenant      TEXT    NOT NULL,
    hour        INTEGER NOT NULL,  -- its beginning
    project     TEXT    NOT NULL,
    environment TEXT    NOT NULL,
    completed   INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    cancelled   INTEGER NOT NULL,
    PRIMARY KEY (tenant, hour, project, environment)
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_of ON schedules (tenant, wakes_at, name);

CREATE TABLE sessions (
    digest      TEXT    NOT NULL PRIMARY KEY,
    key_id      TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    roles       TEXT    NOT NULL,  -- JSON array
    subject     TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    project     TEXT    NOT NULL,
    environment TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_end ON sessions (expires_at);

CREATE INDEX sessions_of_subject ON sessions (tenant, subject, created_at);

CREATE INDEX executions_by_origin ON executions (origin, execution_id) WHERE origin <> 0;

INSERT INTO compatibility (oldest) VALUES (11);
