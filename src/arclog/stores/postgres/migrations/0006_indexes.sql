-- oldest: 2
-- online
-- What is looked for has an index that has it in order.
CREATE INDEX executions_by_state ON arclog.executions (tenant, state, execution_id);
CREATE INDEX executions_by_path ON arclog.executions (tenant, path, state, execution_id);
CREATE INDEX executions_by_name ON arclog.executions (tenant, name, state, execution_id);
-- Which playbooks have runs that wait to start.
CREATE INDEX executions_pending ON arclog.executions (tenant, path, execution_id) WHERE NOT over AND state = 'PENDING';
CREATE INDEX executions_live_children ON arclog.executions (execution_id) WHERE NOT over AND parent <> 0;
CREATE INDEX outbox_dead ON arclog.outbox (execution_id, n) WHERE state = 'dead';
CREATE INDEX outbox_told ON arclog.outbox (execution_id) WHERE NOT settled AND state <> 'pending';
CREATE INDEX audit_by_decision ON arclog.audit (decision, pos);
CREATE INDEX audit_of_tenant_by_decision ON arclog.audit (tenant, decision, pos);
