-- What others are to be told of a run's end: written with the end, kept until they were told or were given up.
CREATE TABLE outbox (
    execution_id INTEGER NOT NULL,
    n            INTEGER NOT NULL,            -- from 1 per execution
    url          TEXT    NOT NULL,
    secret       TEXT    NOT NULL,            -- name of the keychain entry that signs
    event        TEXT    NOT NULL,            -- completed | failed | cancelled
    body         BLOB    NOT NULL,            -- what is sent, byte by byte the same each time
    created_at   INTEGER NOT NULL,
    state        TEXT    NOT NULL,            -- pending | delivered | dead
    due          INTEGER NOT NULL,            -- of the next attempt
    attempts     INTEGER NOT NULL,
    problem      TEXT    NOT NULL,            -- of the last attempt
    lease_until  INTEGER NOT NULL,
    settled      INTEGER NOT NULL,            -- its run's log says playbook.processed
    PRIMARY KEY (execution_id, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX outbox_pending ON outbox (due) WHERE state = 'pending';
CREATE INDEX outbox_unsettled ON outbox (execution_id) WHERE settled = 0;
