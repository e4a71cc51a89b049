-- Fair shares, limits and resources of pools, and the workers that were seen.
ALTER TABLE commands ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
-- The smallest comes first within a tenant: when it was issued, less what its priority is worth, milliseconds.
ALTER TABLE commands ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
-- JSON array of names, sorted; '' when it needs none.
ALTER TABLE commands ADD COLUMN resources TEXT NOT NULL DEFAULT '';
UPDATE commands SET
    tenant = coalesce((SELECT e.tenant FROM executions e WHERE e.execution_id = commands.execution_id), ''),
    rank = (command_id >> 22) + 1704067200000;

-- A lane is what shares a pool, a tenant and its needs: claims step from lane to lane, and look at the first of each.
DROP INDEX commands_issued;
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

-- How much tenants were given while others waited. A tenant '' has the pool's present; who is not here stands there.
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
