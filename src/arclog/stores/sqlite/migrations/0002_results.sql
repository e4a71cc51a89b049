-- What executions stored outside the log, from result.stored and result.manifest.updated.
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
