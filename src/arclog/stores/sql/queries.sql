-- The statements that are the same on SQLite and PostgreSQL, by name. `stores.sql.files` writes them in each dialect:
-- `arclog.` is the schema, `{commands}` the columns of that table as `stores.records` reads them, and small differences are
-- parameters in braces. What only one of them can do well is in its own queries.sql.

-- name: slot_holders_of
SELECT execution_id FROM arclog.executions
WHERE tenant = $1 AND path = $2 AND over = {false} AND state = 'RUNNING' AND execution_id <> $3
ORDER BY execution_id LIMIT $4

-- name: head
SELECT head, over FROM arclog.executions WHERE execution_id = $1

-- name: slot_holders
SELECT other.execution_id
FROM arclog.executions me JOIN arclog.executions other ON other.path = me.path AND other.tenant = me.tenant
WHERE me.execution_id = $1 AND other.over = {false} AND other.state = 'RUNNING' AND other.execution_id <> $1
ORDER BY other.execution_id LIMIT $2

-- name: tail
-- What was written by transactions below the oldest that is still under way: none of them can add anything any more.
SELECT pos, execution_id, seq0, base, ts, body FROM arclog.log
WHERE pos > $1 {settled pos}
ORDER BY pos LIMIT $2

-- name: marks
SELECT ts, execution_id, seq FROM arclog.mark
WHERE event_type = $1 AND ts >= $2 ORDER BY ts, execution_id, seq LIMIT $3

-- name: scanned_page
-- Rows behind a position, of transactions that can add nothing more, with their bodies where a type is in them and the
-- execution is one of those that are searched (a subquery for each row, as in PostgreSQL's mark_page).
SELECT l.pos, l.ts, l.execution_id, l.seq0, l.base,
       CASE WHEN l.types & $2 <> 0 AND (
           SELECT $3::text IN ('', e.tenant) AND $4::text IN ('', e.project) AND $5::text IN ('', e.environment)
           FROM arclog.executions e WHERE e.execution_id = l.execution_id) THEN l.body END
FROM arclog.log l
WHERE l.pos > $1 {settled l.pos}
ORDER BY l.pos LIMIT $6

-- name: executions
SELECT {executions} FROM arclog.executions
WHERE execution_id < $1 AND execution_id >= $2 ORDER BY execution_id DESC LIMIT $3

-- name: awaiting_approval
SELECT {executions} FROM arclog.executions
WHERE approvals > 0 AND tenant = $1 AND execution_id > $2 ORDER BY execution_id LIMIT $3

-- name: run_counts
SELECT hour, sum(completed)::int8, sum(failed)::int8, sum(cancelled)::int8 FROM arclog.run_counts
WHERE tenant = $1 AND hour > $4 AND ($2::text = '' OR project = $2) AND ($3::text = '' OR environment = $3)
GROUP BY hour ORDER BY hour LIMIT $5

-- name: live_children
SELECT {executions} FROM arclog.executions {indexed executions_live_children}
WHERE over = {false} AND parent <> 0 AND execution_id < $1
  AND ({empty $2} OR state {in $2}) AND ($3::text = '' OR path = $3) AND ($4::text = '' OR tenant = $4)
  AND execution_id >= $6 AND ($7::text = '' OR {contains name $7})
  AND $8::text IN ('', project) AND $9::text IN ('', environment)
ORDER BY execution_id DESC LIMIT $5

-- name: children_of
SELECT {executions} FROM arclog.executions
WHERE parent = $10 AND parent <> 0 AND execution_id < $1
  AND ({empty $2} OR state {in $2}) AND ($3::text = '' OR path = $3) AND ($4::text = '' OR tenant = $4)
  AND execution_id >= $6 AND ($7::text = '' OR {contains name $7})
  AND $8::text IN ('', project) AND $9::text IN ('', environment)
ORDER BY execution_id DESC LIMIT $5

-- name: forks_of
SELECT {executions} FROM arclog.executions {indexed executions_by_origin}
WHERE origin = $10 AND origin <> 0 AND execution_id < $1
  AND ({empty $2} OR state {in $2}) AND ($3::text = '' OR path = $3) AND ($4::text = '' OR tenant = $4)
  AND execution_id >= $6 AND ($7::text = '' OR {contains name $7})
  AND $8::text IN ('', project) AND $9::text IN ('', environment)
ORDER BY execution_id DESC LIMIT $5

-- name: live_in_path
SELECT {executions} FROM arclog.executions {indexed executions_by_path}
WHERE over = {false} AND tenant = $1 AND path = $2 AND state = $3 AND execution_id > $4
ORDER BY execution_id LIMIT $5

-- name: last_live
SELECT max(execution_id), count(*) FROM (
    SELECT execution_id FROM arclog.executions {indexed executions_live}
    WHERE over = {false} AND execution_id > $1 ORDER BY execution_id LIMIT $2
) AS live

-- name: idle
SELECT {executions} FROM arclog.executions AS e {indexed executions_live}
WHERE over = {false} AND execution_id > $1 AND execution_id <= $3 AND paused = {false}
  AND NOT EXISTS (SELECT 1 FROM arclog.commands c WHERE c.execution_id = e.execution_id)
  AND NOT EXISTS (SELECT 1 FROM arclog.timers t WHERE t.execution_id = e.execution_id)
  AND (SELECT ts FROM arclog.log l WHERE l.execution_id = e.execution_id ORDER BY seq0 DESC LIMIT 1) < $2
ORDER BY execution_id

-- name: by_idempotency_key
SELECT {executions} FROM arclog.executions
WHERE tenant = $1 AND project = $2 AND environment = $3 AND idempotency_key = $4 AND idempotency_key <> ''

-- name: step_runs
SELECT step, run, seq0, seq1, status FROM arclog.step_runs WHERE execution_id = $1 ORDER BY seq0, step, run

-- name: step_bounds
SELECT seq0, until FROM arclog.step_runs WHERE execution_id = $1 AND step = $2 AND run = $3

-- name: add_plan
INSERT INTO arclog.plans (digest, body) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: version_of
-- The last column: whether it is valid in a part of its tenant only.
SELECT c.version, c.source, c.created_at, EXISTS (
    SELECT 1 FROM arclog.catalog_scopes s WHERE s.tenant = c.tenant AND s.path = c.path AND s.version = c.version)
FROM arclog.catalog c WHERE c.digest = $1 AND c.tenant = $2 AND c.path = $3

-- name: add_scope
INSERT INTO arclog.catalog_scopes (tenant, path, version, project, environment) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING

-- name: remove_scopes
DELETE FROM arclog.catalog_scopes WHERE tenant = $1 AND path = $2 AND version = $3

-- name: plan
SELECT p.digest, c.path, c.version, p.body, c.source, c.created_at
FROM arclog.plans p JOIN arclog.catalog c USING (digest)
WHERE digest = $1 ORDER BY c.{serial} LIMIT 1

-- name: registered
SELECT p.digest, c.path, c.version, p.body, c.source, c.created_at
FROM arclog.catalog c JOIN arclog.plans p USING (digest)
WHERE c.tenant = $3 AND c.path = $1 AND ($2::int8 = 0 OR c.version = $2)
  AND {valid c $4 $5}
ORDER BY c.version DESC LIMIT 1

-- name: catalog_path
SELECT c.path, c.version, c.digest, c.created_at, a.archived_at
FROM arclog.catalog c LEFT JOIN arclog.archived a USING (tenant, path)
WHERE c.tenant = $1 AND c.path = $2
  AND {valid c $3 $4}
ORDER BY c.version DESC LIMIT 1

-- name: versions
SELECT c.digest, c.path, c.version, CAST('' AS {bytes}), c.source, c.created_at FROM arclog.catalog c
WHERE c.tenant = $4 AND c.path = $1 AND ($2::int8 = 0 OR c.version < $2)
  AND {valid c $5 $6}
ORDER BY c.version DESC LIMIT $3

-- name: archive
INSERT INTO arclog.archived (tenant, path, archived_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING

-- name: unarchive
DELETE FROM arclog.archived WHERE tenant = $1 AND path = $2

-- name: held
SELECT pool, tenant, count(*) FROM arclog.commands {indexed commands_claimed} WHERE lease_until > 0 GROUP BY pool, tenant

-- name: limits
SELECT pool, tenant, concurrency FROM arclog.limits ORDER BY pool, tenant

-- name: set_limit
INSERT INTO arclog.limits (pool, tenant, concurrency) VALUES ($1, $2, $3)
ON CONFLICT (pool, tenant) DO UPDATE SET concurrency = excluded.concurrency

-- name: remove_limit
DELETE FROM arclog.limits WHERE pool = $1 AND tenant = $2 RETURNING pool

-- name: set_resource
-- What is owed stays owed, up to the new burst.
INSERT INTO arclog.resources AS r (name, "interval", burst, concurrency, full_at) VALUES ($1, $2, $3, $4, 0)
ON CONFLICT (name) DO UPDATE SET
    "interval" = excluded."interval", burst = excluded.burst, concurrency = excluded.concurrency,
    full_at = {least}(r.full_at, $5::int8 + excluded.burst * excluded."interval")

-- name: remove_resource
DELETE FROM arclog.resources WHERE name = $1 RETURNING name

-- name: ahead
-- Counted up to a number: whoever asks wants to know whether it is a few or many.
SELECT count(*) FROM (
    SELECT 1 FROM arclog.commands me JOIN arclog.commands other ON other.pool = me.pool AND other.tenant = me.tenant
    WHERE me.execution_id = $1 AND me.command_id = $2 AND other.lease_until = 0
      AND (other.rank, other.command_id) < (me.rank, me.command_id)
    LIMIT $3
) AS others

-- name: forget_workers
DELETE FROM arclog.workers WHERE seen_at < $1

-- name: see_worker
INSERT INTO arclog.workers (
    worker_id, pools, kinds, tenant, host, version, slots, busy, pace, seen_at, leaves, draining
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, {false})
ON CONFLICT (worker_id) DO UPDATE SET
    pools = excluded.pools, kinds = excluded.kinds, tenant = excluded.tenant, host = excluded.host,
    version = excluded.version, slots = excluded.slots, busy = excluded.busy, pace = excluded.pace,
    seen_at = excluded.seen_at, leaves = excluded.leaves
RETURNING draining

-- name: workers
SELECT worker_id, pools, kinds, tenant, host, version, slots, busy, pace, seen_at, leaves, draining FROM arclog.workers
ORDER BY worker_id

-- name: drain_worker
UPDATE arclog.workers SET draining = {true} WHERE worker_id = $1 RETURNING worker_id

-- name: expired
SELECT {commands} FROM arclog.commands {indexed commands_claimed}
WHERE lease_until > 0 AND lease_until < $1 ORDER BY lease_until, command_id LIMIT $2

-- name: commands
SELECT {commands} FROM arclog.commands WHERE execution_id = $1 ORDER BY command_id

-- name: granted
SELECT {commands} FROM arclog.commands {indexed commands_claimed}
WHERE lease_until > 0 AND by_command > 0 AND by_command = $1 AND by_fence = $2 AND by_n = $3 ORDER BY command_id

-- name: due_timers
SELECT execution_id, timer_id, due, payload FROM arclog.timers
WHERE due <= $1 ORDER BY due, execution_id, timer_id LIMIT $2

-- name: latest_timers
SELECT execution_id, timer_id, due, payload FROM arclog.timers
WHERE due <= $1 ORDER BY due DESC, execution_id DESC, timer_id DESC LIMIT $2

-- name: coming_timers
SELECT execution_id FROM arclog.timers WHERE due > $1 AND due <= $2 ORDER BY due, execution_id LIMIT $3

-- name: next_due
SELECT min(due) FROM arclog.timers

-- name: result
SELECT {results} FROM arclog.results WHERE execution_id = $1 AND name = $2 AND sha256 = $3

-- name: results
SELECT {results} FROM arclog.results WHERE execution_id = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: kept_results
SELECT {results} FROM arclog.results
WHERE (execution_id, name, sha256) > ($1, $2, $3) AND removed_at IS NULL
ORDER BY execution_id, name, sha256 LIMIT $4

-- name: keepers
SELECT {results} FROM arclog.results {indexed results_by_content}
WHERE tenant = $1 AND sha256 = $2 AND (execution_id, name) > ($3, $4) AND removed_at IS NULL
ORDER BY execution_id, name LIMIT $5

-- name: put_snapshot
INSERT INTO arclog.snapshots AS k (execution_id, seq, code, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (execution_id) DO UPDATE SET seq = excluded.seq, code = excluded.code, body = excluded.body
WHERE excluded.seq >= k.seq OR excluded.code <> k.code

-- name: snapshot
SELECT seq, body FROM arclog.snapshots WHERE execution_id = $1 AND code = $2 AND seq <= $3

-- name: past_snapshot
SELECT seq, body FROM arclog.past_snapshots WHERE execution_id = $1 AND code = $2 AND seq <= $3 ORDER BY seq DESC LIMIT 1

-- name: past_snapshots
SELECT seq FROM arclog.past_snapshots WHERE execution_id = $1 AND code = $2 ORDER BY seq

-- name: lease_duty
INSERT INTO arclog.duties AS k (duty, owner, until, position) VALUES ($1, $2, $4, 0)
ON CONFLICT (duty) DO UPDATE SET owner = $2, until = $4 WHERE k.owner = $2 OR k.until <= $3
RETURNING duty

-- name: duties
SELECT duty, owner, until, position FROM arclog.duties ORDER BY duty

-- name: duty_position
SELECT position FROM arclog.duties WHERE duty = $1

-- name: move_position
UPDATE arclog.duties SET position = $4 WHERE duty = $1 AND owner = $2 AND until > $3 AND position <= $4
RETURNING duty

-- name: add_key
INSERT INTO arclog.keys (key_id, name, hash, tenant, roles, created_at, project, environment, expires_at, revoked_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT DO NOTHING RETURNING key_id

-- name: key
SELECT {keys} FROM arclog.keys WHERE key_id = $1

-- name: keys
SELECT {keys} FROM arclog.keys WHERE $1::text = '' OR tenant = $1 ORDER BY created_at, key_id

-- name: revoke_key
UPDATE arclog.keys SET revoked_at = $1 WHERE key_id = $2 AND revoked_at IS NULL

-- name: has_keys
SELECT EXISTS (SELECT 1 FROM arclog.keys)

-- name: add_session
INSERT INTO arclog.sessions (digest, key_id, name, tenant, roles, subject, created_at, expires_at, project, environment)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: forget_sessions
DELETE FROM arclog.sessions WHERE expires_at <= $1

-- name: trim_sessions
DELETE FROM arclog.sessions WHERE tenant = $1 AND subject = $2 AND digest NOT IN (
    SELECT digest FROM arclog.sessions WHERE tenant = $1 AND subject = $2 ORDER BY created_at DESC, digest LIMIT $3)

-- name: session
SELECT {sessions} FROM arclog.sessions WHERE digest = $1

-- name: remove_session
DELETE FROM arclog.sessions WHERE digest = $1 RETURNING digest

-- name: trim_audit_of_tenant
-- A bounded piece: what is left goes the next time.
DELETE FROM arclog.audit WHERE pos IN (
    SELECT pos FROM arclog.audit WHERE tenant = $1 ORDER BY pos DESC LIMIT 10000 OFFSET $2)

-- name: trim_audit_of_caller
DELETE FROM arclog.audit WHERE pos IN (
    SELECT pos FROM arclog.audit WHERE tenant = $1 AND principal = $2 ORDER BY pos DESC LIMIT 10000 OFFSET $3)

-- name: audit
SELECT {audit} FROM arclog.audit WHERE pos < $1 ORDER BY pos DESC LIMIT $2

-- name: audit_by_decision
SELECT {audit} FROM arclog.audit WHERE decision = $1 AND pos < $2 ORDER BY pos DESC LIMIT $3

-- name: audit_of_tenant
SELECT {audit} FROM arclog.audit WHERE tenant = $1 AND pos < $2 ORDER BY pos DESC LIMIT $3

-- name: audit_of_tenant_by_decision
SELECT {audit} FROM arclog.audit WHERE tenant = $1 AND decision = $2 AND pos < $3 ORDER BY pos DESC LIMIT $4

-- name: add_schedule
INSERT INTO arclog.schedules (tenant, name, revision, wakes_at, body) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING RETURNING name

-- name: schedule
SELECT body FROM arclog.schedules WHERE tenant = $1 AND name = $2

-- name: schedules
SELECT body FROM arclog.schedules WHERE name > $1 ORDER BY tenant, name LIMIT $2

-- name: count_schedules
SELECT count(*) FROM arclog.schedules WHERE tenant = $1

-- name: late_schedules
SELECT body FROM arclog.schedules WHERE wakes_at <= $1 ORDER BY wakes_at DESC LIMIT $2

-- name: schedules_of_tenant
SELECT body FROM arclog.schedules WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3

-- name: next_schedules
SELECT body FROM arclog.schedules WHERE tenant = $1 ORDER BY wakes_at, name LIMIT $2

-- name: remove_schedule
DELETE FROM arclog.schedules WHERE tenant = $1 AND name = $2 RETURNING name

-- name: deliveries
SELECT execution_id, n, url, secret, event, body, created_at, state, due, attempts, problem FROM arclog.outbox
WHERE execution_id = $1 ORDER BY n

-- name: attempted
UPDATE arclog.outbox SET state = $1, due = $2, attempts = $3, problem = $4, lease_until = 0
WHERE execution_id = $5 AND n = $6 AND state = 'pending'

-- name: given_up
SELECT execution_id, n, url, secret, event, body, created_at, state, due, attempts, problem FROM arclog.outbox
WHERE execution_id >= $1 AND state = 'dead' ORDER BY execution_id DESC, n LIMIT $2

-- name: executions_to_settle
SELECT DISTINCT execution_id FROM arclog.outbox AS o WHERE settled = {false} AND state <> 'pending'
AND NOT EXISTS (SELECT 1 FROM arclog.outbox AS p WHERE p.execution_id = o.execution_id AND p.state = 'pending')
ORDER BY execution_id LIMIT $1

-- name: settle_deliveries
UPDATE arclog.outbox SET settled = {true} WHERE execution_id = $1
