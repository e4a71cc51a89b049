-- oldest: 2
-- Runs by the hour in which they ended; those that another run called are not counted. Each connection adds to a shard of its
-- own, so that appends do not wait for each other's rows; readers add them up.
CREATE TABLE arclog.run_counts (
    tenant      text   NOT NULL COLLATE "C",
    hour        bigint NOT NULL,  -- its beginning
    project     text   NOT NULL COLLATE "C",
    environment text   NOT NULL COLLATE "C",
    shard       bigint NOT NULL,
    completed   bigint NOT NULL,
    failed      bigint NOT NULL,
    cancelled   bigint NOT NULL,
    PRIMARY KEY (tenant, hour, project, environment, shard)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);
INSERT INTO arclog.run_counts (tenant, hour, project, environment, shard, completed, failed, cancelled)
SELECT tenant, ended_at - ended_at % 3600000000, project, environment, 0,
       count(*) FILTER (WHERE state = 'COMPLETED'), count(*) FILTER (WHERE state = 'FAILED'),
       count(*) FILTER (WHERE state = 'CANCELLED')
FROM arclog.executions WHERE over AND parent = 0 AND ended_at IS NOT NULL GROUP BY 1, 2, 3, 4;

-- Sessions of browsers: what is needed to check a token. The token itself is nowhere.
CREATE TABLE arclog.sessions (
    digest      text   PRIMARY KEY COLLATE "C",
    key_id      text   NOT NULL COLLATE "C",
    name        text   NOT NULL,
    tenant      text   NOT NULL COLLATE "C",
    roles       text   NOT NULL,  -- JSON array
    subject     text   NOT NULL,
    created_at  bigint NOT NULL,
    expires_at  bigint NOT NULL,
    project     text   NOT NULL,
    environment text   NOT NULL
);
CREATE INDEX sessions_by_end ON arclog.sessions (expires_at);
CREATE INDEX sessions_of_subject ON arclog.sessions (tenant, subject, created_at);

-- Last: it keeps others from the table until the transaction ends.
ALTER TABLE arclog.executions ADD COLUMN approvals bigint NOT NULL DEFAULT 0;  -- how many it waits for
