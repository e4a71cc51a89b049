-- Of a retry or a fork: the run that it began with, the last event of it that was looked at, and retry or fork. Those that were made
-- before have it in their log alone.
ALTER TABLE executions ADD COLUMN origin INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN origin_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE executions ADD COLUMN origin_how TEXT NOT NULL DEFAULT '';
CREATE INDEX executions_by_origin ON executions (origin, execution_id) WHERE origin <> 0;
