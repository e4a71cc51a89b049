ALTER TABLE executions ADD COLUMN approvals INTEGER NOT NULL DEFAULT 0;  -- how many it waits for
CREATE INDEX executions_approvals ON executions (tenant, execution_id) WHERE approvals > 0;

-- Runs by the hour in which they ended; those that another run called are not counted.
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
INSERT INTO run_counts (tenant, hour, project, environment, completed, failed, cancelled)
SELECT tenant, ended_at - ended_at % 3600000000, project, environment,
       sum(state = 'COMPLETED'), sum(state = 'FAILED'), sum(state = 'CANCELLED')
FROM executions WHERE over = 1 AND parent = 0 AND ended_at IS NOT NULL GROUP BY 1, 2, 3, 4;

CREATE INDEX schedules_of ON schedules (tenant, wakes_at, name);

-- Sessions of browsers: what is needed to check a token. The token itself is nowhere.
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
