-- Every statement that the store runs, by name. `{commands}` stands for the columns of that table as `stores.records` reads
-- them: a newer release may have added others.

-- name: create_execution
INSERT INTO executions (
    execution_id, head, state, current_step, started_at, ended_at, terminal_event, paused, error, over, approvals,
    run_id, name, path, version, plan, tenant, project, environment, created_at, idempotency_key, parent,
    origin, origin_seq, origin_how
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: advance
-- The compare-and-set of an append that leaves the state as it is. It sets no column that an index has: their pages stay
-- untouched.
UPDATE executions
SET head = ?, current_step = ?, started_at = ?, ended_at = ?, terminal_event = ?, paused = ?, error = ?
WHERE execution_id = ? AND head = ? AND state = ?

-- name: enter
-- The same into another state.
UPDATE executions
SET head = ?, state = ?, current_step = ?, started_at = ?, ended_at = ?, terminal_event = ?, paused = ?, error = ?
WHERE execution_id = ? AND head = ?

-- name: count_approvals
UPDATE executions SET approvals = ? WHERE execution_id = ? AND approvals <> ?

-- name: finish
UPDATE executions
SET head = ?, state = ?, current_step = ?, started_at = ?, ended_at = ?, terminal_event = ?, paused = ?, error = ?, over = 1
WHERE execution_id = ? AND head = ? AND over = 0

-- name: count_run
INSERT INTO run_counts (tenant, hour, project, environment, completed, failed, cancelled)
SELECT tenant, ?2, project, environment, state = 'COMPLETED', state = 'FAILED', state = 'CANCELLED'
FROM executions WHERE execution_id = ?1 AND parent = 0
ON CONFLICT DO UPDATE SET
    completed = completed + excluded.completed, failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled

-- `group.…` are the same changes for the rows of a JSON array (`stores.sqlite.appends`); `{each}` lists its elements.

-- name: group.create
INSERT INTO executions (
    execution_id, head, state, current_step, started_at, ended_at, terminal_event, paused, error, over, approvals,
    run_id, name, path, version, plan, tenant, project, environment, created_at, idempotency_key, parent,
    origin, origin_seq, origin_how
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
    value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15, value ->> 16,
    value ->> 17, value ->> 18, value ->> 19, value ->> 20, value ->> 21, value ->> 22, value ->> 23, value ->> 24
FROM {each}(?) WHERE true
ON CONFLICT DO NOTHING RETURNING execution_id

-- name: group.advance
UPDATE executions
SET head = value ->> 2, current_step = value ->> 4, started_at = value ->> 5, ended_at = value ->> 6,
    terminal_event = value ->> 7, paused = value ->> 8, error = value ->> 9
FROM {each}(?)
WHERE execution_id = value ->> 0 AND head = value ->> 1 AND state = value ->> 3
RETURNING execution_id

-- name: group.enter
UPDATE executions
SET head = value ->> 2, state = value ->> 3, current_step = value ->> 4, started_at = value ->> 5, ended_at = value ->> 6,
    terminal_event = value ->> 7, paused = value ->> 8, error = value ->> 9
FROM {each}(?)
WHERE execution_id = value ->> 0 AND head = value ->> 1
RETURNING execution_id

-- name: group.finish
UPDATE executions
SET head = value ->> 2, state = value ->> 3, current_step = value ->> 4, started_at = value ->> 5, ended_at = value ->> 6,
    terminal_event = value ->> 7, paused = value ->> 8, error = value ->> 9, over = 1
FROM {each}(?)
WHERE execution_id = value ->> 0 AND head = value ->> 1 AND over = 0
RETURNING execution_id

-- name: group.add_rows
-- ?3 holds the bodies one after the other; a row has the place and the length of its own.
INSERT INTO log (execution_id, seq0, seq1, base, ts, types, body)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, ?2, value ->> 4, substr(?3, value ->> 5, value ->> 6)
FROM {each}(?1)

-- name: group.add_marks
INSERT INTO mark (event_type, ts, execution_id, seq)
SELECT value ->> 0, ?2, value ->> 1, value ->> 2 FROM {each}(?1)

-- name: group.open_steps
INSERT INTO step_runs (execution_id, step, run, seq0, seq1, until, status)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6 FROM {each}(?) WHERE true
ON CONFLICT DO NOTHING

-- name: group.close_steps
UPDATE step_runs SET seq1 = value ->> 3, until = value ->> 4, status = value ->> 5
FROM {each}(?)
WHERE execution_id = value ->> 0 AND step = value ->> 1 AND run = value ->> 2 AND seq1 IS NULL

-- name: group.stretch_steps
UPDATE step_runs SET until = value ->> 4
FROM {each}(?)
WHERE execution_id = value ->> 0 AND step = value ->> 1 AND run = value ->> 2 AND seq1 IS NOT NULL

-- name: group.close_commands
DELETE FROM commands WHERE (execution_id, command_id) IN (SELECT value ->> 0, value ->> 1 FROM {each}(?))

-- name: group.clear_timers
DELETE FROM timers WHERE (execution_id, timer_id) IN (SELECT value ->> 0, value ->> 1 FROM {each}(?))

-- name: group.issue
INSERT INTO commands (
    execution_id, command_id, step, run, kinds, pool, item0, item1, fence, worker_id, lease_until,
    by_command, by_fence, by_n, rank, resources, tenant
)
SELECT
    value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,
    value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14, value ->> 15,
    (SELECT tenant FROM executions WHERE execution_id = value ->> 0)
FROM {each}(?)

-- name: group.set_timers
INSERT INTO timers (execution_id, timer_id, due, payload)
SELECT value ->> 0, value ->> 1, value ->> 2, unhex(value ->> 3) FROM {each}(?) WHERE true
ON CONFLICT (execution_id, timer_id) DO UPDATE SET due = excluded.due, payload = excluded.payload

-- name: group.end_commands
DELETE FROM commands WHERE execution_id IN (SELECT value FROM {each}(?))

-- name: group.end_timers
DELETE FROM timers WHERE execution_id IN (SELECT value FROM {each}(?))

-- name: group.count_runs
INSERT INTO run_counts (tenant, hour, project, environment, completed, failed, cancelled)
SELECT tenant, ?2, project, environment, sum(state = 'COMPLETED'), sum(state = 'FAILED'), sum(state = 'CANCELLED')
FROM {each}(?1) CROSS JOIN executions ON execution_id = value
WHERE executions.parent = 0
GROUP BY tenant, project, environment
ON CONFLICT DO UPDATE SET
    completed = completed + excluded.completed, failed = failed + excluded.failed, cancelled = cancelled + excluded.cancelled

-- name: add_row
INSERT INTO log (execution_id, seq0, seq1, base, ts, types, body) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: add_mark
INSERT INTO mark (event_type, ts, execution_id, seq) VALUES (?, ?, ?, ?)

-- name: add_ingested
INSERT INTO ingested (execution_id, event_id, digest, seq) VALUES (?, ?, ?, ?)

-- name: ingested
SELECT event_id, digest, seq FROM ingested
WHERE execution_id = ?1 AND event_id IN (SELECT value FROM json_each(?2))
-- Ids of our own come from leased nodes; only one that looks so is looked for in the log, where rows have no index by id.
UNION ALL
SELECT asked.value, x'', log.seq0 + asked.value - log.base FROM json_each(?2) AS asked
JOIN nodes ON nodes.node = (asked.value >> 12) & 1023
JOIN log ON log.execution_id = ?1 AND log.base <= asked.value AND log.base + log.seq1 - log.seq0 >= asked.value
WHERE NOT EXISTS (SELECT 1 FROM ingested WHERE execution_id = ?1 AND event_id = asked.value)
ORDER BY 3

-- name: open_step
INSERT INTO step_runs (execution_id, step, run, seq0, seq1, until, status) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: close_step
UPDATE step_runs SET seq1 = ?, until = ?, status = ?
WHERE execution_id = ? AND step = ? AND run = ? AND seq1 IS NULL

-- name: stretch_step
-- An event that names a step run which has ended.
UPDATE step_runs SET until = ?
WHERE execution_id = ? AND step = ? AND run = ? AND seq1 IS NOT NULL

-- name: issue
INSERT INTO commands (
    execution_id, command_id, step, run, kinds, pool, item0, item1, fence, worker_id, lease_until,
    by_command, by_fence, by_n, rank, resources, tenant
) VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16,
    (SELECT tenant FROM executions WHERE execution_id = ?1)
)

-- name: close_command
DELETE FROM commands WHERE execution_id = ? AND command_id = ?

-- name: close_all_commands
DELETE FROM commands WHERE execution_id = ?

-- name: release
UPDATE commands SET worker_id = '', lease_until = 0, by_command = 0, by_fence = 0, by_n = 0
WHERE execution_id = ? AND command_id = ?

-- name: fence_of
SELECT fence FROM commands WHERE execution_id = ? AND command_id = ?

-- name: hold
-- -1 is outside of both partial indexes: what is held is neither looked for by claims nor by the search for lost leases.
UPDATE commands SET worker_id = '', lease_until = -1, by_command = 0, by_fence = 0, by_n = 0
WHERE execution_id = ? AND command_id = ?

-- name: unhold
UPDATE commands SET lease_until = 0 WHERE execution_id = ? AND command_id = ? AND lease_until = -1

-- name: extend
UPDATE commands SET lease_until = ?
WHERE execution_id = ? AND command_id = ? AND fence = ? AND lease_until > 0

-- name: set_timer
INSERT INTO timers (execution_id, timer_id, due, payload) VALUES (?, ?, ?, ?)
ON CONFLICT (execution_id, timer_id) DO UPDATE SET due = excluded.due, payload = excluded.payload

-- name: clear_timer
DELETE FROM timers WHERE execution_id = ? AND timer_id = ?

-- name: clear_all_timers
DELETE FROM timers WHERE execution_id = ?

-- name: rows_of
SELECT seq0, base, ts, body FROM log
WHERE execution_id = ?1
  AND seq0 >= coalesce((SELECT max(seq0) FROM log WHERE execution_id = ?1 AND seq0 <= ?2), 0)
  AND seq0 <= ?3 AND types & ?4
ORDER BY seq0

-- name: first_rows
SELECT seq0, base, ts, body FROM log WHERE execution_id = ? ORDER BY seq0

-- name: mark_page
-- Behind a key; whether its execution is one of those that are searched.
SELECT m.ts, m.execution_id, m.seq,
       EXISTS (SELECT 1 FROM executions e WHERE e.execution_id = m.execution_id AND ?5 IN ('', e.tenant)
               AND ?6 IN ('', e.project) AND ?7 IN ('', e.environment))
FROM mark m
WHERE m.event_type = ?1 AND m.ts >= ?2 AND m.ts < ?8 AND (m.ts > ?2 OR (m.execution_id, m.seq) > (?3, ?4))
ORDER BY m.ts, m.execution_id, m.seq LIMIT ?9

-- name: position_bounds
SELECT coalesce((SELECT min(pos) FROM log), 0), coalesce((SELECT max(pos) FROM log), 0)

-- name: first_from
SELECT pos, ts FROM log WHERE pos >= ? ORDER BY pos LIMIT 1

-- name: row_at
SELECT seq0, base, ts, body FROM log WHERE execution_id = ? AND seq0 <= ? ORDER BY seq0 DESC LIMIT 1

-- name: execution
SELECT {executions} FROM executions WHERE execution_id = ?

-- name: next_tenant
SELECT tenant FROM executions INDEXED BY executions_by_state WHERE tenant > ? ORDER BY tenant LIMIT 1

-- name: next_name
SELECT name FROM executions INDEXED BY executions_by_name WHERE tenant = ? AND name > ? ORDER BY name LIMIT 1

-- name: in_state
SELECT execution_id FROM executions INDEXED BY executions_by_state
WHERE tenant = ?1 AND state = ?2 AND execution_id < ?3 AND execution_id >= ?4
  AND ?6 IN ('', project) AND ?7 IN ('', environment)
  AND (?8 = '' OR (parent = 0) = (?8 = 'top'))
ORDER BY execution_id DESC LIMIT ?5

-- name: in_path
SELECT execution_id FROM executions INDEXED BY executions_by_path
WHERE tenant = ?1 AND path = ?2 AND state = ?3 AND execution_id < ?4 AND execution_id >= ?5 AND (?7 = '' OR instr(name, ?7) > 0)
  AND ?8 IN ('', project) AND ?9 IN ('', environment)
  AND (?10 = '' OR (parent = 0) = (?10 = 'top'))
ORDER BY execution_id DESC LIMIT ?6

-- name: with_name
SELECT execution_id FROM executions INDEXED BY executions_by_name
WHERE tenant = ?1 AND name = ?2 AND state = ?3 AND execution_id < ?4 AND execution_id >= ?5
  AND ?7 IN ('', project) AND ?8 IN ('', environment)
  AND (?9 = '' OR (parent = 0) = (?9 = 'top'))
ORDER BY execution_id DESC LIMIT ?6

-- name: next_pending_path
-- Steps through the paths of which runs are PENDING. The bound on the id passes over the pair that it comes from.
SELECT tenant, path FROM executions
WHERE over = 0 AND state = 'PENDING' AND (tenant, path, execution_id) > (?1, ?2, ?3)
ORDER BY tenant, path, execution_id LIMIT 1

-- name: by_run_id
SELECT {executions} FROM executions WHERE run_id = ?

-- name: catalog
-- Steps from path to path, one look-up each, however many versions they have.
WITH RECURSIVE paths (path) AS (
    SELECT min(path) FROM catalog WHERE tenant = ?5 AND path >= ?1
    UNION ALL
    SELECT (SELECT min(n.path) FROM catalog n WHERE n.tenant = ?5 AND n.path > p.path) FROM paths p
    WHERE substr(p.path, 1, length(?2)) = ?2
)
SELECT c.path, c.version, c.digest, c.created_at, a.archived_at
FROM paths p CROSS JOIN catalog c LEFT JOIN archived a ON a.tenant = c.tenant AND a.path = c.path
WHERE substr(p.path, 1, length(?2)) = ?2 AND c.tenant = ?5 AND c.path = p.path
  AND c.version = (SELECT max(n.version) FROM catalog n WHERE n.tenant = ?5 AND n.path = p.path
    AND {valid n ?6 ?7})
  AND (?4 OR a.archived_at IS NULL)
LIMIT ?3

-- name: add_version
INSERT INTO catalog (tenant, path, version, digest, source, created_at)
SELECT ?5, ?1, 1 + coalesce(max(version), 0), ?2, ?3, ?4 FROM catalog WHERE tenant = ?5 AND path = ?1
RETURNING version

-- name: next_lane
-- Steps through the distinct lanes of a pool's issued commands, one index look-up each; the first command of each comes along.
-- The bound on the rank lets the look-up pass over the lane that it comes from; without it, it would walk through that lane.
SELECT tenant, kinds, resources, rank, command_id, execution_id,
       (SELECT 1 FROM limits), (SELECT 1 FROM crowded WHERE pool = ?1)
FROM commands
WHERE lease_until = 0 AND pool = ?1 AND (tenant, kinds, resources, rank) > (?2, ?3, ?4, ?5)
ORDER BY tenant, kinds, resources, rank, command_id LIMIT 1

-- name: in_lane
SELECT rank, command_id, execution_id FROM commands
WHERE lease_until = 0 AND pool = ? AND tenant = ? AND kinds = ? AND resources = ? AND (rank, command_id) > (?, ?)
ORDER BY rank, command_id LIMIT ?

-- name: crowd
INSERT INTO crowded (pool) VALUES (?)

-- name: crowd_holding
INSERT INTO holding (pool, tenant, held)
SELECT pool, tenant, count(*) FROM commands INDEXED BY commands_claimed WHERE lease_until > 0 AND pool = ? GROUP BY tenant

-- name: crowd_lanes
INSERT INTO lanes (pool, tenant, kinds, resources, held, served, rank, command_id, execution_id)
SELECT ?1, l.tenant, l.kinds, l.resources,
       coalesce((SELECT held FROM holding WHERE pool = ?1 AND tenant = l.tenant), 0),
       coalesce((SELECT served FROM service WHERE pool = ?1 AND tenant = l.tenant), 0),
       l.rank, min(c.command_id), c.execution_id
FROM (
    SELECT tenant, kinds, resources, min(rank) AS rank FROM commands WHERE lease_until = 0 AND pool = ?1
    GROUP BY tenant, kinds, resources
) l CROSS JOIN commands c
WHERE c.lease_until = 0 AND c.pool = ?1 AND c.tenant = l.tenant AND c.kinds = l.kinds AND c.resources = l.resources
  AND c.rank = l.rank
GROUP BY l.tenant, l.kinds, l.resources

-- name: uncrowd
DELETE FROM crowded WHERE pool = ?

-- name: uncrowd_holding
DELETE FROM holding WHERE pool = ?

-- name: uncrowd_lanes
DELETE FROM lanes WHERE pool = ?

-- name: few_lanes
SELECT count(*) FROM (SELECT 1 FROM lanes WHERE pool = ? LIMIT ?)

-- name: next_needs
-- Steps through the kinds and resources that lanes of a crowded pool need.
SELECT kinds, resources FROM lanes WHERE pool = ?1 AND (kinds, resources, held) > (?2, ?3, ?4)
ORDER BY kinds, resources LIMIT 1

-- name: next_turn
-- Steps through the pairs of held and served that lanes have which need the same.
SELECT held, served FROM lanes WHERE pool = ?1 AND kinds = ?2 AND resources = ?3 AND (held, served, rank) > (?4, ?5, ?6)
ORDER BY held, served LIMIT 1

-- name: in_turn
-- The first lanes of such a pair.
SELECT tenant, rank, command_id, execution_id FROM lanes
WHERE pool = ?1 AND kinds = ?2 AND resources = ?3 AND held = ?4 AND served = ?5
ORDER BY rank, command_id LIMIT ?6

-- name: in_turn_but
-- The same, but for some tenants.
SELECT tenant, rank, command_id, execution_id FROM lanes
WHERE pool = ?1 AND kinds = ?2 AND resources = ?3 AND held = ?4 AND served = ?5
  AND tenant NOT IN (SELECT value FROM json_each(?7))
ORDER BY rank, command_id LIMIT ?6

-- name: two_lanes
SELECT tenant, kinds, resources, held, served, rank, command_id, execution_id FROM lanes
WHERE pool = ? AND kinds = ? AND resources = ? ORDER BY held, served LIMIT 2

-- name: lanes_of
SELECT kinds, resources, held, served, rank, command_id, execution_id FROM lanes WHERE pool = ? AND tenant = ?

-- name: settle_lanes
-- What lies behind the present counts as if it stood there: the fewer values there are, the fewer a claim steps through.
UPDATE lanes SET served = 0 WHERE pool = ?1 AND (tenant, kinds, resources) IN (
    SELECT tenant, kinds, resources FROM lanes
    WHERE pool = ?1 AND kinds = ?2 AND resources = ?3 AND held = ?4 AND served > 0 AND served <= ?5 LIMIT ?6)

-- name: present
SELECT served FROM service WHERE pool = ? AND tenant = ''

-- name: in_lane_within
SELECT rank, command_id, execution_id FROM commands
WHERE lease_until = 0 AND pool = ?1 AND tenant = ?2 AND kinds = ?3 AND resources = ?4
  AND EXISTS (SELECT 1 FROM executions e WHERE e.execution_id = commands.execution_id
              AND ?5 IN ('', e.project) AND ?6 IN ('', e.environment))
ORDER BY rank, command_id LIMIT ?7

-- name: next_head
-- Steps through a tenant's lanes in a pool, one index look-up each; the first command of each comes along.
SELECT kinds, resources, command_id, execution_id, step FROM commands
WHERE lease_until = 0 AND pool = ?1 AND tenant = ?2 AND (kinds, resources) > (?3, ?4)
ORDER BY kinds, resources, rank, command_id LIMIT 1

-- name: service
SELECT tenant, served FROM service WHERE pool = ?1 AND tenant IN (SELECT value FROM json_each(?2))

-- name: serve
INSERT INTO service (pool, tenant, served) VALUES (?, ?, ?)
ON CONFLICT (pool, tenant) DO UPDATE SET served = excluded.served

-- name: forget_service
-- A few of those that need no row; the next claims find the others.
DELETE FROM service WHERE pool = ?1 AND tenant IN (
    SELECT tenant FROM service WHERE pool = ?1 AND served <= ?2 AND tenant <> '' LIMIT ?3)

-- name: spend
UPDATE resources SET full_at = ? WHERE name = ?

-- name: resources
SELECT name, interval, burst, concurrency, full_at FROM resources ORDER BY name

-- name: held_resources
SELECT needed.value, count(*) FROM commands INDEXED BY commands_needing, json_each(commands.resources) needed
WHERE commands.resources <> '' AND lease_until > 0 GROUP BY needed.value

-- name: shares
SELECT pool, tenant, sum(issued), sum(claimed), max(oldest) FROM (
    SELECT pool, tenant, count(*) AS issued, 0 AS claimed, min(command_id) AS oldest FROM commands
    WHERE lease_until = 0 GROUP BY pool, tenant
    UNION ALL
    SELECT pool, tenant, 0, count(*), 0 FROM commands INDEXED BY commands_claimed WHERE lease_until > 0
    GROUP BY pool, tenant
)
GROUP BY pool, tenant ORDER BY pool, tenant

-- name: contest
SELECT (SELECT min(tenant) FROM commands WHERE lease_until = 0 AND pool = ?1),
       (SELECT max(tenant) FROM commands WHERE lease_until = 0 AND pool = ?1),
       (SELECT 1 FROM limits WHERE pool IN ('', ?1))

-- name: next_pool
SELECT min(pool) FROM commands WHERE lease_until = 0 AND pool > ?

-- name: issued_in
-- Of one execution and those below it.
WITH RECURSIVE family (id) AS (
    SELECT execution_id FROM executions
    WHERE execution_id = ?1 AND ?2 IN ('', project) AND ?3 IN ('', environment)
    UNION
    SELECT e.execution_id FROM family JOIN executions e ON e.parent = family.id AND e.parent <> 0
)
SELECT pool, tenant, kinds, resources, rank, command_id, execution_id, (SELECT 1 FROM limits)
FROM family CROSS JOIN commands ON execution_id = family.id WHERE lease_until = 0

-- name: take
UPDATE commands
SET fence = fence + 1, worker_id = ?, lease_until = ?, by_command = 0, by_fence = 0, by_n = 0
WHERE execution_id = ? AND command_id = ? AND lease_until = 0
RETURNING {commands}

-- name: add_result
-- The same content under the same name again: the longer of its lives, and kept again if it was removed.
INSERT INTO results (
    execution_id, name, sha256, bytes, rows, content_type, scope, stored_at, expires_at, step, run, task, seq, tenant
) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, tenant FROM executions WHERE execution_id = ?
ON CONFLICT (execution_id, name, sha256) DO UPDATE SET
    bytes = excluded.bytes, rows = coalesce(excluded.rows, rows), content_type = excluded.content_type,
    scope = iif(removed_at IS NULL, max(scope, excluded.scope), excluded.scope),
    stored_at = excluded.stored_at,
    expires_at = iif(removed_at IS NULL, max(expires_at, excluded.expires_at), excluded.expires_at),
    step = excluded.step, run = excluded.run, task = excluded.task, seq = excluded.seq, removed_at = NULL

-- name: move_snapshot
INSERT INTO past_snapshots (execution_id, seq, code, body)
SELECT execution_id, seq, code, body FROM snapshots WHERE execution_id = ?1 AND seq < ?2 AND code = ?3
ON CONFLICT (execution_id, seq) DO UPDATE SET code = excluded.code, body = excluded.body

-- name: drop_snapshots
DELETE FROM past_snapshots
WHERE execution_id = ?1 AND (code <> ?2 OR seq IN (SELECT value FROM json_each(?3)))

-- name: add_log
INSERT INTO task_logs (execution_id, at, step, run, task, task_run, attempt, iteration, stream, text)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: progress_of
-- By an index that holds these lines alone.
SELECT pos FROM task_logs
WHERE stream = 'progress' AND execution_id = ? AND step = ? AND run = ? AND task = ? AND task_run = ? AND attempt = ?
  AND iteration = ?

-- name: drop_log
DELETE FROM task_logs WHERE pos = ?

-- name: forget_progress
DELETE FROM task_logs WHERE pos IN (
    SELECT pos FROM task_logs WHERE stream = 'progress' AND execution_id = ? ORDER BY pos DESC LIMIT -1 OFFSET ?
)

-- name: log_size
SELECT bytes, cut FROM task_log_sizes WHERE execution_id = ?

-- name: put_log_size
INSERT INTO task_log_sizes (execution_id, bytes, cut) VALUES (?, ?, ?)
ON CONFLICT (execution_id) DO UPDATE SET bytes = excluded.bytes, cut = excluded.cut

-- name: logs
SELECT pos, at, step, run, task, task_run, attempt, iteration, stream, text FROM task_logs
WHERE execution_id = ?1 AND pos > ?2
  AND (?4 = '' OR step = ?4)
  AND (?5 = '' OR task = ?5)
  AND (?6 = '' OR substr(iteration, 1, length(?6)) = ?6)
  AND iif(?7 = '[]', stream <> 'progress', stream IN (SELECT value FROM json_each(?7)))
  AND (length(?8) = 0 OR instr(text, ?8) > 0)
  AND at >= ?9
ORDER BY pos LIMIT ?3

-- name: add_audit
INSERT INTO audit (at, decision, principal, tenant, method, route, target, address, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: forget_audit
-- A bounded piece: what is left goes with the next entries.
DELETE FROM audit WHERE pos IN (SELECT pos FROM audit WHERE at < ? ORDER BY at LIMIT ?)

-- name: change_schedules
-- PostgreSQL changes several with one statement; `group.change_schedules` does so here.
UPDATE schedules SET revision = ?, wakes_at = ?, lease_owner = ?, lease_until = ?, body = ?
WHERE tenant = ? AND name = ? AND revision = ?
RETURNING tenant, name

-- name: group.change_schedules
UPDATE schedules
SET revision = value ->> 0, wakes_at = value ->> 1, lease_owner = value ->> 2, lease_until = value ->> 3, body = unhex(value ->> 4)
FROM {each}(?)
WHERE tenant = value ->> 5 AND name = value ->> 6 AND revision = value ->> 7
RETURNING tenant, name

-- name: add_delivery
INSERT INTO outbox (execution_id, n, url, secret, event, body, created_at, state, due, attempts, problem, lease_until, settled)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', ?, 0, '', 0, 0)

-- name: backlog
SELECT pool, 0, count(*), min(command_id), 0 FROM commands WHERE lease_until = 0 GROUP BY pool
UNION ALL
SELECT pool, 1, count(*), 0, min(lease_until) FROM commands INDEXED BY commands_claimed WHERE lease_until > 0 GROUP BY pool

-- name: retirable
-- Above an id and minted before a moment (ids are in the order of time): each with what it takes, in rows and pages. But for
-- the execution of the newest log row: its position must not be given again.
SELECT execution_id, head / 8
    + (SELECT count(*) + coalesce(sum(length(l.body)), 0) / 4096 FROM log l WHERE l.execution_id = e.execution_id)
    + coalesce((SELECT s.bytes / 400 FROM task_log_sizes s WHERE s.execution_id = e.execution_id), 0)
FROM executions e
WHERE execution_id > ?1 AND execution_id < ?2 AND over = 1 AND coalesce(ended_at, created_at) < ?3
  AND execution_id <> (SELECT l.execution_id FROM log l ORDER BY pos DESC LIMIT 1)
  AND NOT EXISTS (
      SELECT 1 FROM results r WHERE r.execution_id = e.execution_id AND r.removed_at IS NULL AND r.scope < 3)
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.execution_id = e.execution_id AND o.settled = 0)
  AND NOT EXISTS (SELECT 1 FROM executions p WHERE p.execution_id = e.parent AND p.over = 0)
ORDER BY execution_id LIMIT ?4

-- name: count_retirable
SELECT count(*) FROM executions e
WHERE execution_id < ?1 AND over = 1 AND coalesce(ended_at, created_at) < ?2
  AND execution_id <> (SELECT l.execution_id FROM log l ORDER BY pos DESC LIMIT 1)
  AND NOT EXISTS (
      SELECT 1 FROM results r WHERE r.execution_id = e.execution_id AND r.removed_at IS NULL AND r.scope < 3)
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.execution_id = e.execution_id AND o.settled = 0)
  AND NOT EXISTS (SELECT 1 FROM executions p WHERE p.execution_id = e.parent AND p.over = 0)

-- name: retiring
-- Those whose records are gone while the rest of them is not.
SELECT execution_id,
    (SELECT count(*) + coalesce(sum(length(l.body)), 0) / 4096 FROM log l WHERE l.execution_id = r.execution_id)
    + coalesce((SELECT s.bytes / 400 FROM task_log_sizes s WHERE s.execution_id = r.execution_id), 0)
FROM retiring r ORDER BY execution_id LIMIT ?

-- name: retire
-- Of these, those that may still go.
INSERT INTO retiring (execution_id)
SELECT e.execution_id FROM json_each(?1) AS given JOIN executions e ON e.execution_id = given.value
WHERE e.over = 1
  AND NOT EXISTS (
      SELECT 1 FROM results r WHERE r.execution_id = e.execution_id AND r.removed_at IS NULL AND r.scope < 3)
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.execution_id = e.execution_id AND o.settled = 0)

-- name: begun
SELECT execution_id FROM retiring WHERE execution_id IN (SELECT value FROM json_each(?))

-- name: marked_types
-- The types that some mark has, one look-up each.
WITH RECURSIVE t (bit) AS (
    SELECT min(event_type) FROM mark
    UNION ALL
    SELECT (SELECT min(event_type) FROM mark WHERE event_type > t.bit) FROM t WHERE t.bit IS NOT NULL
)
SELECT json_group_array(bit) FROM t WHERE bit IS NOT NULL

-- name: forget.executions
DELETE FROM executions WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.mark
-- A mark has the time of its log row: so it is found without an index by execution.
DELETE FROM mark WHERE (event_type, ts, execution_id, seq) IN (
    SELECT m.event_type, m.ts, m.execution_id, m.seq FROM json_each(?1) AS given CROSS JOIN log l CROSS JOIN json_each(?2) AS bit
    CROSS JOIN mark m
    WHERE l.execution_id = given.value AND l.types >> bit.value & 1
      AND m.event_type = bit.value AND m.ts = l.ts AND m.execution_id = l.execution_id
)

-- name: forget.log
DELETE FROM log WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.step_runs
DELETE FROM step_runs WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.ingested
DELETE FROM ingested WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.snapshots
DELETE FROM snapshots WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.past_snapshots
DELETE FROM past_snapshots WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.task_logs
DELETE FROM task_logs WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.task_log_sizes
DELETE FROM task_log_sizes WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.outbox
DELETE FROM outbox WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: forget.results
DELETE FROM results WHERE execution_id IN (SELECT value FROM json_each(?1)) AND removed_at IS NOT NULL

-- name: forget.retiring
DELETE FROM retiring WHERE execution_id IN (SELECT value FROM json_each(?1))

-- name: shorten.count
SELECT count(*) FROM log WHERE execution_id = ?

-- name: shorten.bound
-- Where the first so many log rows of a large run end.
SELECT seq0 FROM log WHERE execution_id = ? ORDER BY seq0 LIMIT 1 OFFSET ?

-- name: shorten.mark
DELETE FROM mark WHERE (event_type, ts, execution_id, seq) IN (
    SELECT m.event_type, m.ts, m.execution_id, m.seq FROM log l CROSS JOIN json_each(?3) AS bit CROSS JOIN mark m
    WHERE l.execution_id = ?1 AND l.seq0 < ?2 AND l.types >> bit.value & 1
      AND m.event_type = bit.value AND m.ts = l.ts AND m.execution_id = l.execution_id
)

-- name: shorten.log
DELETE FROM log WHERE execution_id = ?1 AND seq0 < ?2

-- name: shorten.step_runs
DELETE FROM step_runs WHERE execution_id = ?1 AND (step, run) IN (
    SELECT step, run FROM step_runs WHERE execution_id = ?1 LIMIT ?2)

-- name: shorten.ingested
DELETE FROM ingested WHERE execution_id = ?1 AND event_id IN (
    SELECT event_id FROM ingested WHERE execution_id = ?1 LIMIT ?2)

-- name: shorten.task_logs
DELETE FROM task_logs WHERE pos IN (SELECT pos FROM task_logs WHERE execution_id = ?1 LIMIT ?2)

-- name: shorten.results
DELETE FROM results WHERE execution_id = ?1 AND (name, sha256) IN (
    SELECT name, sha256 FROM results WHERE execution_id = ?1 AND removed_at IS NOT NULL LIMIT ?2)

-- name: heartbeat
UPDATE commands SET lease_until = ?2
WHERE command_id = ?3 AND fence = ?4 AND worker_id = ?1 AND lease_until > 0
RETURNING command_id

-- name: remove_results
UPDATE results SET removed_at = ?1
WHERE execution_id = ?2 AND name = ?3 AND sha256 = ?4 AND seq = ?5 AND removed_at IS NULL
RETURNING seq

-- name: free_schedules
SELECT 1 FROM schedules WHERE wakes_at <= ?1 AND lease_until <= ?1 LIMIT 1

-- name: lease_schedules
UPDATE schedules SET lease_owner = ?1, lease_until = ?3 WHERE (tenant, name) IN (
    SELECT tenant, name FROM schedules WHERE wakes_at <= ?2 AND lease_until <= ?2 ORDER BY wakes_at, tenant, name LIMIT ?4)
RETURNING body

-- name: due_deliveries
SELECT 1 FROM outbox
WHERE state = 'pending' AND due <= ?1 AND lease_until <= ?1
AND NOT EXISTS (
    SELECT 1 FROM json_each(?2)
    WHERE lower(substr(url, 1, length(value))) = value AND substr(url, length(value) + 1, 1) IN ('', '/', '?', '#')
)
LIMIT 1

-- name: lease_deliveries
UPDATE outbox SET lease_until = ?2 WHERE (execution_id, n) IN (
    SELECT execution_id, n FROM outbox
    WHERE state = 'pending' AND due <= ?1 AND lease_until <= ?1
    AND NOT EXISTS (
        SELECT 1 FROM json_each(?4)
        WHERE lower(substr(url, 1, length(value))) = value AND substr(url, length(value) + 1, 1) IN ('', '/', '?', '#')
    )
    ORDER BY due, execution_id, n LIMIT ?3)
RETURNING execution_id, n, url, secret, event, body, created_at, state, due, attempts, problem

-- name: lease_node
INSERT INTO nodes AS k (node, owner, until)
SELECT node, ?1, ?3 FROM (
    SELECT node FROM nodes WHERE owner = ?1
    UNION ALL
    SELECT n FROM (
        WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?4)
        SELECT n FROM numbers WHERE NOT EXISTS (SELECT 1 FROM nodes o WHERE o.node = n AND o.until > ?2) LIMIT 1)
) AS possible WHERE true LIMIT 1
ON CONFLICT (node) DO UPDATE SET owner = excluded.owner, until = excluded.until
RETURNING node
