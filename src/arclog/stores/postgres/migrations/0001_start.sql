-- oldest: 1
-- Texts are compared byte by byte, whatever the database's collation. Whatever may hold a NUL, which texts cannot, is bytea.

-- Log rows in one table per span of execution ids, which are spans of time: old ones are dropped as a whole.
-- pos grows in the order of transaction ids: see `positions`.
CREATE TABLE arclog.log (
    execution_id bigint NOT NULL,
    seq0         bigint NOT NULL,
    seq1         bigint NOT NULL,
    base         bigint NOT NULL,  -- event id of the first event
    ts           bigint NOT NULL,  -- persisted_at
    types        bigint NOT NULL,  -- bit set of the event types inside
    pos          bigint NOT NULL,
    body         bytea  NOT NULL,  -- see arclog.stores.rows
    PRIMARY KEY (execution_id, seq0)
) PARTITION BY RANGE (execution_id);
ALTER TABLE arclog.log ALTER COLUMN body SET STORAGE EXTERNAL;  -- what can be compressed is
CREATE INDEX log_by_pos ON arclog.log (pos);

CREATE TABLE arclog.task_logs (
    pos          bigint NOT NULL,
    execution_id bigint NOT NULL,
    at           bigint NOT NULL,
    step         text   NOT NULL COLLATE "C",
    run          bigint NOT NULL,
    task         text   NOT NULL COLLATE "C",
    task_run     bigint NOT NULL,
    attempt      bigint NOT NULL,
    iteration    text   NOT NULL COLLATE "C",  -- '' outside a loop, else every index with a dot behind it: '3.0.'
    stream       text   NOT NULL COLLATE "C",
    text         bytea  NOT NULL,              -- UTF-8, in which lone surrogates stand as they are
    PRIMARY KEY (execution_id, pos)
) PARTITION BY RANGE (execution_id);
CREATE INDEX task_progress ON arclog.task_logs (execution_id, step, run, iteration, task, task_run, attempt)
    WHERE stream = 'progress';
CREATE INDEX task_progress_by_position ON arclog.task_logs (execution_id, pos) WHERE stream = 'progress';
CREATE SEQUENCE arclog.task_logs_pos;

-- The spans that have tables: lower <= execution_id < upper.
CREATE TABLE arclog.spans (
    lower bigint PRIMARY KEY,
    upper bigint NOT NULL
);

-- A log row's pos is base + (id of its transaction << 19) + its number in it. The base is 0 until the rows are restored
-- into a server whose transaction ids are lower.
CREATE TABLE arclog.positions (
    base bigint NOT NULL
);
INSERT INTO arclog.positions VALUES (0);

CREATE TABLE arclog.executions (
    execution_id    bigint  PRIMARY KEY,
    head            bigint  NOT NULL,
    state           text    NOT NULL COLLATE "C",
    current_step    text    COLLATE "C",
    started_at      bigint,
    ended_at        bigint,
    terminal_event  text    COLLATE "C",
    paused          boolean NOT NULL,
    error           bytea,
    over            boolean NOT NULL,  -- it has its terminal event
    run_id          text    NOT NULL COLLATE "C",
    name            text    NOT NULL COLLATE "C",
    path            text    NOT NULL COLLATE "C",
    version         bigint  NOT NULL,
    plan            text    NOT NULL COLLATE "C",
    tenant          text    NOT NULL COLLATE "C",
    project         text    NOT NULL COLLATE "C",
    environment     text    NOT NULL COLLATE "C",
    created_at      bigint  NOT NULL,
    idempotency_key text    NOT NULL COLLATE "C",
    parent          bigint  NOT NULL
) WITH (fillfactor = 60);  -- an append changes no indexed column: with room on the page, no index either
CREATE INDEX executions_live ON arclog.executions (execution_id) WHERE NOT over;
CREATE INDEX executions_live_by_path ON arclog.executions (tenant, path) WHERE NOT over;
CREATE INDEX executions_by_parent ON arclog.executions (parent, execution_id) WHERE parent <> 0;
CREATE INDEX executions_by_run ON arclog.executions (run_id);
CREATE UNIQUE INDEX executions_by_key ON arclog.executions (tenant, project, environment, idempotency_key)
    WHERE idempotency_key <> '';

CREATE TABLE arclog.mark (
    event_type   bigint NOT NULL,  -- the type's bit
    ts           bigint NOT NULL,
    execution_id bigint NOT NULL,
    seq          bigint NOT NULL,
    PRIMARY KEY (event_type, ts, execution_id, seq)
);

CREATE TABLE arclog.step_runs (
    execution_id bigint NOT NULL,
    step         text   NOT NULL COLLATE "C",
    run          bigint NOT NULL,
    seq0         bigint NOT NULL,
    seq1         bigint,           -- the event that ended it
    until        bigint,           -- once ended: the last event that names it
    status       text   NOT NULL COLLATE "C",
    PRIMARY KEY (execution_id, step, run)
) WITH (fillfactor = 80);

-- Open work. Issued commands have lease_until 0, held ones -1.
CREATE TABLE arclog.commands (
    execution_id bigint  NOT NULL,
    command_id   bigint  NOT NULL,
    step         text    NOT NULL COLLATE "C",
    run          bigint  NOT NULL,
    kinds        bytea[] NOT NULL,
    pool         text    NOT NULL COLLATE "C",
    item0        bigint  NOT NULL,
    item1        bigint  NOT NULL,
    fence        bigint  NOT NULL,
    worker_id    text    NOT NULL COLLATE "C",
    lease_until  bigint  NOT NULL,
    by_command   bigint  NOT NULL,  -- the report whose commit granted it; 0, 0, 0 when it was claimed
    by_fence     bigint  NOT NULL,
    by_n         bigint  NOT NULL,
    PRIMARY KEY (execution_id, command_id)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);  -- rows come and go
CREATE INDEX commands_issued ON arclog.commands (pool, kinds, command_id) WHERE lease_until = 0;
CREATE INDEX commands_claimed ON arclog.commands (command_id) WHERE lease_until > 0;

CREATE TABLE arclog.timers (
    execution_id bigint NOT NULL,
    timer_id     text   NOT NULL COLLATE "C",
    due          bigint NOT NULL,
    payload      bytea  NOT NULL,
    PRIMARY KEY (execution_id, timer_id)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX timers_by_due ON arclog.timers (due);

-- Events that came with an id of their own: what they said, so that a repetition is known.
CREATE TABLE arclog.ingested (
    execution_id bigint NOT NULL,
    event_id     bigint NOT NULL,
    digest       bytea  NOT NULL,  -- sha256 of the content
    seq          bigint NOT NULL,
    PRIMARY KEY (execution_id, event_id)
);

CREATE TABLE arclog.plans (
    digest text  PRIMARY KEY COLLATE "C",
    body   bytea NOT NULL
);
CREATE TABLE arclog.catalog (
    n          bigint GENERATED ALWAYS AS IDENTITY,  -- who came first
    tenant     text   NOT NULL COLLATE "C",
    path       text   NOT NULL COLLATE "C",
    version    bigint NOT NULL,
    digest     text   NOT NULL COLLATE "C",
    source     bytea  NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, path, version)
);
CREATE UNIQUE INDEX catalog_by_digest ON arclog.catalog (digest, tenant, path);
CREATE TABLE arclog.archived (
    tenant      text   NOT NULL COLLATE "C",
    path        text   NOT NULL COLLATE "C",
    archived_at bigint NOT NULL,
    PRIMARY KEY (tenant, path)
);

CREATE TABLE arclog.snapshots (
    execution_id bigint PRIMARY KEY,
    seq          bigint NOT NULL,
    code         text   NOT NULL COLLATE "C",
    body         bytea  NOT NULL
);

-- What an execution's task log takes: the bytes of its lines, and whether it was cut.
CREATE TABLE arclog.task_log_sizes (
    execution_id bigint  PRIMARY KEY,
    bytes        bigint  NOT NULL,
    cut          boolean NOT NULL
);

-- What executions stored outside the log, from result.stored and result.manifest.updated.
CREATE TABLE arclog.results (
    execution_id bigint NOT NULL,
    name         text   NOT NULL COLLATE "C",
    sha256       text   NOT NULL COLLATE "C",
    bytes        bigint NOT NULL,
    rows         bigint,           -- items of a list
    content_type text   NOT NULL COLLATE "C",
    tenant       text   NOT NULL COLLATE "C",
    scope        bigint NOT NULL,  -- 0 step, 1 execution, 2 workflow, 3 permanent
    stored_at    bigint NOT NULL,
    expires_at   bigint,
    step         text   NOT NULL COLLATE "C",
    run          bigint NOT NULL,
    task         text   NOT NULL COLLATE "C",
    seq          bigint NOT NULL,
    removed_at   bigint,           -- when gc let go of it
    PRIMARY KEY (execution_id, name, sha256)
);
CREATE INDEX results_by_seq ON arclog.results (execution_id, seq);
CREATE INDEX results_by_content ON arclog.results (tenant, sha256, execution_id, name) WHERE removed_at IS NULL;

-- Schedules; what is not looked for stands in the body, a JSON object.
CREATE TABLE arclog.schedules (
    tenant      text   NOT NULL COLLATE "C",
    name        text   NOT NULL COLLATE "C",
    revision    bigint NOT NULL,
    wakes_at    bigint NOT NULL,             -- when somebody should look at it
    lease_owner text   NOT NULL DEFAULT '',
    lease_until bigint NOT NULL DEFAULT 0,
    body        bytea  NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX schedules_by_time ON arclog.schedules (wakes_at);

-- What others are to be told of a run's end: written with the end, kept until they were told or were given up.
CREATE TABLE arclog.outbox (
    execution_id bigint  NOT NULL,
    n            bigint  NOT NULL,            -- from 1 per execution
    url          text    NOT NULL,
    secret       text    NOT NULL,            -- name of the keychain entry that signs
    event        text    NOT NULL,            -- completed | failed | cancelled
    body         bytea   NOT NULL,            -- what is sent, byte by byte the same each time
    created_at   bigint  NOT NULL,
    state        text    NOT NULL COLLATE "C",  -- pending | delivered | dead
    due          bigint  NOT NULL,            -- of the next attempt
    attempts     bigint  NOT NULL,
    problem      text    NOT NULL,            -- of the last attempt
    lease_until  bigint  NOT NULL,
    settled      boolean NOT NULL,            -- its run's log says playbook.processed
    PRIMARY KEY (execution_id, n)
);
CREATE INDEX outbox_pending ON arclog.outbox (due) WHERE state = 'pending';
CREATE INDEX outbox_unsettled ON arclog.outbox (execution_id) WHERE NOT settled;

CREATE TABLE arclog.nodes (
    node  bigint PRIMARY KEY,
    owner text   NOT NULL UNIQUE COLLATE "C",
    until bigint NOT NULL
);

-- Work that one server of several does at a time, and how far it is with it.
CREATE TABLE arclog.duties (
    duty     text   PRIMARY KEY COLLATE "C",
    owner    text   NOT NULL COLLATE "C",
    until    bigint NOT NULL,
    position bigint NOT NULL
);

-- API keys: what is needed to check one. The secret is nowhere.
CREATE TABLE arclog.keys (
    key_id      text   PRIMARY KEY COLLATE "C",
    name        text   NOT NULL,
    hash        text   NOT NULL,
    tenant      text   NOT NULL COLLATE "C",
    roles       text   NOT NULL,  -- JSON array
    created_at  bigint NOT NULL,
    project     text   NOT NULL,
    environment text   NOT NULL,
    expires_at  bigint,
    revoked_at  bigint
);

-- What callers were granted and denied.
CREATE TABLE arclog.audit (
    pos       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        bigint NOT NULL,
    decision  text   NOT NULL COLLATE "C",
    principal text   NOT NULL,
    tenant    text   NOT NULL COLLATE "C",
    method    text   NOT NULL,
    route     text   NOT NULL,
    target    text   NOT NULL,
    address   text   NOT NULL,
    reason    text   NOT NULL
);
CREATE INDEX audit_by_time ON arclog.audit (at);
CREATE INDEX audit_by_tenant ON arclog.audit (tenant, pos);
