-- What is looked for has an index that has it in order.
CREATE INDEX executions_by_state ON executions (tenant, state, execution_id);
CREATE INDEX executions_by_path ON executions (tenant, path, state, execution_id);
CREATE INDEX executions_by_name ON executions (tenant, name, state, execution_id);
-- Which playbooks have runs that wait to start.
CREATE INDEX executions_pending ON executions (tenant, path, execution_id) WHERE over = 0 AND state = 'PENDING';
CREATE INDEX executions_live_children ON executions (execution_id) WHERE over = 0 AND parent <> 0;

CREATE INDEX outbox_dead ON outbox (execution_id, n) WHERE state = 'dead';
CREATE INDEX outbox_told ON outbox (execution_id) WHERE settled = 0 AND state <> 'pending';

CREATE INDEX audit_by_decision ON audit (decision, pos);
CREATE INDEX audit_of_tenant_by_decision ON audit (tenant, decision, pos);
