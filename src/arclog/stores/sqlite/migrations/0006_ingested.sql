-- Events that came with an id of their own: what they said, so that a repetition is known.
CREATE TABLE ingested (
    execution_id INTEGER NOT NULL,
    event_id     INTEGER NOT NULL,
    digest       BLOB    NOT NULL,  -- sha256 of the content
    seq          INTEGER NOT NULL,
    PRIMARY KEY (execution_id, event_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX executions_by_run ON executions (run_id);
