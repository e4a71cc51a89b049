-- oldest: 2
-- online
CREATE INDEX executions_by_origin ON arclog.executions (origin, execution_id) WHERE origin <> 0;
