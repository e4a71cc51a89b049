-- oldest: 2
-- Fair shares, limits and resources of pools, and the workers that were seen.
ALTER TABLE arclog.commands
    ADD COLUMN tenant    text   NOT NULL DEFAULT '' COLLATE "C",
    -- The smallest comes first within a tenant: when it was issued, less what its priority is worth, milliseconds.
    ADD COLUMN rank      bigint NOT NULL DEFAULT 0,
    -- JSON array of names, sorted; '' when it needs none.
    ADD COLUMN resources text   NOT NULL DEFAULT '' COLLATE "C";
UPDATE arclog.commands c SET tenant = e.tenant, rank = (c.command_id >> 22) + 1704067200000
FROM arclog.executions e WHERE e.execution_id = c.execution_id;

-- A lane is what shares a pool, a tenant and its needs: claims step from lane to lane, and look at the first of each.
DROP INDEX arclog.commands_issued;
CREATE INDEX commands_issued ON arclog.commands (pool, tenant, kinds, resources, rank, command_id) WHERE lease_until = 0;
CREATE INDEX commands_needing ON arclog.commands (command_id) WHERE resources <> '' AND lease_until > 0;

CREATE TABLE arclog.limits (
    pool        text   NOT NULL COLLATE "C",  -- '': all pools together
    tenant      text   NOT NULL COLLATE "C",  -- '': all tenants together; '*': each by itself
    concurrency bigint NOT NULL,
    PRIMARY KEY (pool, tenant)
);

CREATE TABLE arclog.resources (
    name        text   PRIMARY KEY COLLATE "C",
    "interval"  bigint NOT NULL,  -- microseconds between two tokens; 0: no rate
    burst       bigint NOT NULL,
    concurrency bigint,
    full_at     bigint NOT NULL   -- when all tokens would be back
);

-- How much tenants were given while others waited. A tenant '' has the pool's present; who is not here stands there.
CREATE TABLE arclog.service (
    pool   text   NOT NULL COLLATE "C",
    tenant text   NOT NULL COLLATE "C",
    served bigint NOT NULL,
    PRIMARY KEY (pool, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);

CREATE TABLE arclog.workers (
    worker_id text    PRIMARY KEY COLLATE "C",
    pools     text    NOT NULL,  -- JSON array
    kinds     text    NOT NULL,  -- JSON array
    tenant    text    NOT NULL COLLATE "C",
    host      text    NOT NULL,
    version   text    NOT NULL,
    slots     bigint  NOT NULL,
    busy      bigint  NOT NULL,
    pace      bigint  NOT NULL,  -- microseconds that a command takes
    seen_at   bigint  NOT NULL,
    leaves    boolean NOT NULL,
    draining  boolean NOT NULL
) WITH (fillfactor = 70);
