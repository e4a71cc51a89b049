-- Schedules; what is not looked for stands in the body, a JSON object.
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
