-- States of long runs at moments before the newest that is kept.
CREATE TABLE past_snapshots (
    id           INTEGER PRIMARY KEY,
    execution_id INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    code         TEXT    NOT NULL,
    body         BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX past_snapshots_by_seq ON past_snapshots (execution_id, seq);
