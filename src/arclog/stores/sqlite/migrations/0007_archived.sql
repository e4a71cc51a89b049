-- Paths of the catalog that were put away.
CREATE TABLE archived (
    path        TEXT    PRIMARY KEY,
    archived_at INTEGER NOT NULL
) STRICT;
