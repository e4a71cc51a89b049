-- oldest: 2
-- States of long runs at moments before the newest that is kept.
CREATE TABLE arclog.past_snapshots (
    execution_id bigint NOT NULL,
    seq          bigint NOT NULL,
    code         text   NOT NULL COLLATE "C",
    body         bytea  NOT NULL,
    PRIMARY KEY (execution_id, seq)
);
ALTER TABLE arclog.past_snapshots ALTER COLUMN body SET STORAGE EXTERNAL;
