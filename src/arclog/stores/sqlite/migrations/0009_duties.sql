-- Work that one server of several does at a time, and how far it is with it.
CREATE TABLE duties (
    duty     TEXT    PRIMARY KEY,
    owner    TEXT    NOT NULL,
    until    INTEGER NOT NULL,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
