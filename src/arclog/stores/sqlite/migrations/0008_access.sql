-- API keys: what is needed to check one. The secret is nowhere.
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

-- What callers were granted and denied.
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

-- Every tenant has paths and versions of its own. What was registered before belongs to the tenant that ran it first.
ALTER TABLE catalog RENAME TO catalog_1;
DROP INDEX catalog_by_digest;
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
INSERT INTO catalog (tenant, path, version, digest, source, created_at)
SELECT coalesce((SELECT e.tenant FROM executions e WHERE e.path = c.path ORDER BY e.execution_id LIMIT 1), 'default'),
       path, version, digest, source, created_at
FROM catalog_1 c ORDER BY rowid;
DROP TABLE catalog_1;

CREATE TABLE archived_1 (
    tenant      TEXT    NOT NULL,
    path        TEXT    NOT NULL,
    archived_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, path)
) STRICT, WITHOUT ROWID;
INSERT INTO archived_1 (tenant, path, archived_at)
SELECT DISTINCT c.tenant, a.path, a.archived_at FROM archived a JOIN catalog c USING (path);
DROP TABLE archived;
ALTER TABLE archived_1 RENAME TO archived;
