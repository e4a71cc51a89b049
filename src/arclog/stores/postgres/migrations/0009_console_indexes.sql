-- oldest: 2
-- online
CREATE INDEX executions_approvals ON arclog.executions (tenant, execution_id) WHERE approvals > 0;
CREATE INDEX schedules_of ON arclog.schedules (tenant, wakes_at, name);
