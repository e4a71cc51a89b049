-- oldest: 2
-- Of a retry or a fork: the run that it began with, the last event of it that was looked at, and retry or fork. Those that were made
-- before have it in their log alone.
ALTER TABLE arclog.executions
    ADD COLUMN origin bigint NOT NULL DEFAULT 0,
    ADD COLUMN origin_seq bigint NOT NULL DEFAULT 0,
    ADD COLUMN origin_how text NOT NULL DEFAULT '';
