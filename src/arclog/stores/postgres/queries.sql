-- Every statement that the store runs, by name. `arclog.` stands for the store's schema, `{commands}` for the columns of that
-- table as `stores.records` reads them: a newer release may have added others.
-- Those named `append.` are parts of one statement: see appends.py. Their parameters are counted anew in each part;
-- $at is the time of the group. `= ANY($1)` repeats what a join says: the rows are found by their index, however it is done.

-- name: append.given
-- The compare-and-set, for executions that exist.
advanced AS (
    UPDATE arclog.executions e
    SET head = g.head, state = g.state, current_step = g.current_step, started_at = g.started_at,
        ended_at = g.ended_at, terminal_event = g.terminal_event, paused = g.paused, error = g.error,
        approvals = coalesce(g.approvals, e.approvals), over = e.over OR g.terminal
    FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::text[], $5::text[], $6::int8[], $7::int8[], $8::text[],
                $9::bool[], $10::bytea[], $11::int8[], $12::bool[])
        AS g (execution_id, expected, head, state, current_step, started_at, ended_at, terminal_event, paused, error,
              approvals, terminal)
    WHERE e.execution_id = ANY($1) AND e.execution_id = g.execution_id AND e.head = g.expected
      AND NOT (g.terminal AND e.over)$checks
    RETURNING e.execution_id, e.tenant$more
)

-- name: append.created
created AS (
    INSERT INTO arclog.executions AS e (
        execution_id, head, state, current_step, started_at, ended_at, terminal_event, paused, error, approvals, over,
        run_id, name, path, version, plan, tenant, project, environment, created_at, idempotency_key, parent,
        origin, origin_seq, origin_how
    )
    SELECT * FROM unnest(
        $1::int8[], $2::int8[], $3::text[], $4::text[], $5::int8[], $6::int8[], $7::text[], $8::bool[], $9::bytea[],
        $10::int8[], $11::bool[], $12::text[], $13::text[], $14::text[], $15::int8[], $16::text[], $17::text[],
        $18::text[], $19::text[], $20::int8[], $21::text[], $22::int8[], $23::int8[], $24::int8[], $25::text[])
        AS e (execution_id, head, state, current_step, started_at, ended_at, terminal_event, paused, error, approvals, over,
              run_id, name, path, version, plan, tenant, project, environment, created_at, idempotency_key, parent,
              origin, origin_seq, origin_how)
    WHERE true$slots
    ON CONFLICT DO NOTHING
    RETURNING e.execution_id, e.tenant$more
)

-- name: append.to_hold
-- Locked, and as they are by now: claims do not move the head.
to_hold AS (SELECT * FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS h (execution_id, command_id, fence)),
holdable AS (
    SELECT c.execution_id, c.command_id, c.fence FROM arclog.commands c
    WHERE (c.execution_id, c.command_id) IN (SELECT execution_id, command_id FROM to_hold)
    ORDER BY c.execution_id, c.command_id FOR UPDATE
)

-- name: append.check_hold
AND NOT EXISTS (
    SELECT FROM to_hold h LEFT JOIN holdable c USING (execution_id, command_id)
    WHERE h.execution_id = e.execution_id AND c.fence IS DISTINCT FROM h.fence
)

-- name: append.from_outside
from_outside AS (
    SELECT * FROM unnest($1::int8[], $2::int8[], $3::bytea[], $4::int8[]) AS o (execution_id, event_id, digest, seq)
)

-- name: append.check_outside
AND NOT EXISTS (
    SELECT FROM from_outside JOIN arclog.ingested USING (execution_id, event_id) WHERE execution_id = e.execution_id
)

-- name: append.slots
-- At most one execution of a statement needs a slot, and the lock on its path is held: see `lock_slots`.
slots AS (SELECT $1::int8 AS execution_id, $2::int8 AS most)

-- name: append.check_slots
AND NOT EXISTS (
    SELECT FROM slots s WHERE s.execution_id = e.execution_id AND s.most <= (
        SELECT count(*) FROM arclog.executions o
        WHERE o.path = e.path AND o.tenant = e.tenant AND NOT o.over AND o.state = 'RUNNING'
          AND o.execution_id <> e.execution_id
    )
)

-- name: append.rows
added_rows AS (
    INSERT INTO arclog.log (execution_id, seq0, seq1, base, ts, types, pos, body)
    SELECT r.execution_id, r.seq0, r.seq1, r.base, $at, r.types,
           (SELECT base FROM arclog.positions) + (pg_current_xact_id()::text::int8 << 19) + r.n, r.body
    FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::bytea[])
        AS r (n, execution_id, seq0, seq1, base, types, body)
    JOIN won USING (execution_id)
)

-- name: append.marks
added_marks AS (
    INSERT INTO arclog.mark (event_type, ts, execution_id, seq)
    SELECT m.event_type, $at, m.execution_id, m.seq
    FROM unnest($1::int8[], $2::int8[], $3::int8[]) AS m (execution_id, event_type, seq) JOIN won USING (execution_id)
)

-- name: append.opened
opened_steps AS (
    INSERT INTO arclog.step_runs (execution_id, step, run, seq0, seq1, until, status)
    SELECT s.execution_id, s.step, s.run, s.seq0, s.seq1, s.until, s.status
    FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::text[])
        AS s (execution_id, step, run, seq0, seq1, until, status)
    JOIN won USING (execution_id)
    ON CONFLICT DO NOTHING
)

-- name: append.named
-- Step runs that events name: the first end counts; after it, the last event that names the step run.
named_steps AS (
    UPDATE arclog.step_runs s
    SET seq1 = coalesce(s.seq1, n.closed), until = n.last,
        status = CASE WHEN s.seq1 IS NULL THEN n.status ELSE s.status END
    FROM unnest($1::int8[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::text[])
        AS n (execution_id, step, run, closed, last, status)
    JOIN won USING (execution_id)
    WHERE s.execution_id = ANY($1) AND s.execution_id = n.execution_id AND s.step = n.step AND s.run = n.run
      AND (s.seq1 IS NOT NULL OR n.closed IS NOT NULL)
)

-- name: append.results
-- The same content under the same name again: the longer of its lives, and kept again if it was removed.
added_results AS (
    INSERT INTO arclog.results AS k (
        execution_id, name, sha256, bytes, rows, content_type, scope, stored_at, expires_at, step, run, task, seq, tenant
    )
    SELECT r.*, won.tenant
    FROM unnest($1::int8[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::text[], $7::int8[], $8::int8[],
                $9::int8[], $10::text[], $11::int8[], $12::text[], $13::int8[])
        AS r (execution_id, name, sha256, bytes, rows, content_type, scope, stored_at, expires_at, step, run, task, seq)
    JOIN won USING (execution_id)
    ON CONFLICT (execution_id, name, sha256) DO UPDATE SET
        bytes = excluded.bytes, rows = coalesce(excluded.rows, k.rows), content_type = excluded.content_type,
        scope = CASE WHEN k.removed_at IS NULL THEN greatest(k.scope, excluded.scope) ELSE excluded.scope END,
        stored_at = excluded.stored_at,
        expires_at = CASE
            WHEN k.removed_at IS NOT NULL THEN excluded.expires_at
            WHEN k.expires_at IS NOT NULL AND excluded.expires_at IS NOT NULL
            THEN greatest(k.expires_at, excluded.expires_at)
        END,
        step = excluded.step, run = excluded.run, task = excluded.task, seq = excluded.seq, removed_at = NULL
)

-- name: append.ingested
added_ingested AS (
    INSERT INTO arclog.ingested (execution_id, event_id, digest, seq)
    SELECT execution_id, event_id, digest, seq FROM from_outside JOIN won USING (execution_id)
)

-- name: append.closed
closed_commands AS (
    DELETE FROM arclog.commands c
    USING unnest($1::int8[], $2::int8[]) AS d (execution_id, command_id) JOIN won USING (execution_id)
    WHERE c.execution_id = ANY($1) AND c.execution_id = d.execution_id AND c.command_id = d.command_id
)

-- name: append.changed
-- 1 extends a lease, 2 releases, 3 holds, 4 unholds. What is held (-1) is in neither partial index.
changed_commands AS (
    UPDATE arclog.commands c
    SET lease_until = CASE d.change WHEN 1 THEN d.lease_until WHEN 3 THEN -1 ELSE 0 END,
        worker_id = CASE WHEN d.change IN (2, 3) THEN '' ELSE c.worker_id END,
        by_command = CASE WHEN d.change IN (2, 3) THEN 0 ELSE c.by_command END,
        by_fence = CASE WHEN d.change IN (2, 3) THEN 0 ELSE c.by_fence END,
        by_n = CASE WHEN d.change IN (2, 3) THEN 0 ELSE c.by_n END
    FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::int8[], $5::int8[])
        AS d (execution_id, command_id, change, fence, lease_until)
    JOIN won USING (execution_id)
    WHERE c.execution_id = ANY($1) AND c.execution_id = d.execution_id AND c.command_id = d.command_id
      AND CASE d.change
          WHEN 1 THEN c.fence = d.fence AND c.lease_until > 0
          WHEN 4 THEN c.lease_until = -1
          ELSE true
      END
)

-- name: append.issued
issued_commands AS (
    INSERT INTO arclog.commands (
        execution_id, command_id, step, run, kinds, pool, item0, item1, fence, worker_id, lease_until,
        by_command, by_fence, by_n, rank, resources, tenant
    )
    SELECT i.execution_id, i.command_id, i.step, i.run, i.kinds::bytea[], i.pool, i.item0, i.item1, i.fence,
           i.worker_id, i.lease_until, i.by_command, i.by_fence, i.by_n, i.rank, i.resources, won.tenant
    FROM unnest($1::int8[], $2::int8[], $3::text[], $4::int8[], $5::text[], $6::text[], $7::int8[], $8::int8[],
                $9::int8[], $10::text[], $11::int8[], $12::int8[], $13::int8[], $14::int8[], $15::int8[], $16::text[])
        AS i (execution_id, command_id, step, run, kinds, pool, item0, item1, fence, worker_id, lease_until,
              by_command, by_fence, by_n, rank, resources)
    JOIN won USING (execution_id)$again
)

-- name: append.issued_again
-- A command that the same append closes.
ON CONFLICT (execution_id, command_id) DO UPDATE SET
    step = excluded.step, run = excluded.run, kinds = excluded.kinds, pool = excluded.pool, item0 = excluded.item0,
    item1 = excluded.item1, fence = excluded.fence, worker_id = excluded.worker_id, lease_until = excluded.lease_until,
    by_command = excluded.by_command, by_fence = excluded.by_fence, by_n = excluded.by_n, rank = excluded.rank,
    resources = excluded.resources

-- name: append.cleared
cleared_timers AS (
    DELETE FROM arclog.timers t
    USING unnest($1::int8[], $2::text[]) AS d (execution_id, timer_id) JOIN won USING (execution_id)
    WHERE t.execution_id = ANY($1) AND t.execution_id = d.execution_id AND t.timer_id = d.timer_id
)

-- name: append.timers
added_timers AS (
    INSERT INTO arclog.timers (execution_id, timer_id, due, payload)
    SELECT t.execution_id, t.timer_id, t.due, t.payload
    FROM unnest($1::int8[], $2::text[], $3::int8[], $4::bytea[]) AS t (execution_id, timer_id, due, payload)
    JOIN won USING (execution_id)
    ON CONFLICT (execution_id, timer_id) DO UPDATE SET due = excluded.due, payload = excluded.payload
)

-- name: append.ended
-- An execution that is over has no open work, whatever its last append lists.
ended_commands AS (
    DELETE FROM arclog.commands c USING unnest($1::int8[]) AS d (execution_id) JOIN won USING (execution_id)
    WHERE c.execution_id = ANY($1) AND c.execution_id = d.execution_id
),
ended_timers AS (
    DELETE FROM arclog.timers t USING unnest($1::int8[]) AS d (execution_id) JOIN won USING (execution_id)
    WHERE t.execution_id = ANY($1) AND t.execution_id = d.execution_id
)

-- name: append.more
-- Of executions, where runs are counted.
, e.project, e.environment, e.state, e.parent

-- name: append.counted
-- In the same order in every process: nobody waits in a circle.
counted_runs AS (
    INSERT INTO arclog.run_counts AS k (tenant, hour, project, environment, shard, completed, failed, cancelled)
    SELECT won.tenant, $at - $at % 3600000000, won.project, won.environment, pg_backend_pid() % 64,
           count(*) FILTER (WHERE won.state = 'COMPLETED'), count(*) FILTER (WHERE won.state = 'FAILED'),
           count(*) FILTER (WHERE won.state = 'CANCELLED')
    FROM unnest($1::int8[]) AS c (execution_id) JOIN won USING (execution_id)
    WHERE won.parent = 0
    GROUP BY won.tenant, won.project, won.environment ORDER BY won.tenant, won.project, won.environment
    ON CONFLICT (tenant, hour, project, environment, shard) DO UPDATE SET
        completed = k.completed + excluded.completed, failed = k.failed + excluded.failed,
        cancelled = k.cancelled + excluded.cancelled
)

-- name: append.deliveries
added_deliveries AS (
    INSERT INTO arclog.outbox (
        execution_id, n, url, secret, event, body, created_at, state, due, attempts, problem, lease_until, settled
    )
    SELECT d.execution_id, d.n, d.url, d.secret, d.event, d.body, $at, 'pending', $at, 0, '', 0, false
    FROM unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::text[], $6::bytea[])
        AS d (execution_id, n, url, secret, event, body)
    JOIN won USING (execution_id)
)

-- name: lock_slots
-- For the rest of the transaction: who counts the runs of this path and tenant does so alone.
SELECT pg_advisory_xact_lock(1634886668, hashtext(tenant || '/' || path)) FROM arclog.executions WHERE execution_id = $1

-- name: lock_slots_of
-- The same for an execution that is created.
SELECT pg_advisory_xact_lock(1634886668, hashtext($1 || '/' || $2))

-- name: fences
SELECT command_id, fence FROM arclog.commands WHERE execution_id = $1 AND command_id = ANY($2::int8[])

-- name: end_session
-- The server processes that a connection of this name had or has.
SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = $1 AND pid <> pg_backend_pid() AND datname = current_database()

-- name: appended_at
-- Whether a log row was committed: event ids are nobody else's.
SELECT ts FROM arclog.log WHERE execution_id = $1 AND seq0 = $2 AND base = $3

-- name: issued_at
-- The same for an append without events that issued commands.
SELECT (SELECT max(ts) FROM arclog.log l WHERE l.execution_id = $1) FROM arclog.commands
WHERE execution_id = $1 AND command_id = ANY($2::int8[]) LIMIT 1

-- name: ingested
SELECT event_id, digest, seq FROM arclog.ingested WHERE execution_id = $1 AND event_id = ANY($2::int8[])
-- Ids of our own come from leased nodes; only one that looks so is looked for in the log, where rows have no index by id.
UNION ALL
SELECT asked.id, ''::bytea, l.seq0 + asked.id - l.base FROM unnest($2::int8[]) AS asked (id)
JOIN arclog.nodes n ON n.node = (asked.id >> 12) & 1023
JOIN arclog.log l ON l.execution_id = $1 AND l.base <= asked.id AND l.base + l.seq1 - l.seq0 >= asked.id
WHERE NOT EXISTS (SELECT FROM arclog.ingested i WHERE i.execution_id = $1 AND i.event_id = asked.id)
ORDER BY 3

-- name: rows_of
SELECT seq0, base, ts, body FROM arclog.log
WHERE execution_id = $1
  AND seq0 >= coalesce((SELECT max(seq0) FROM arclog.log WHERE execution_id = $1 AND seq0 <= $2), 0)
  AND seq1 >= $2 AND seq0 <= $3 AND types & $4 <> 0
ORDER BY seq0 LIMIT $5

-- name: lift_positions
-- After rows were restored into a server with lower transaction ids: what is written from now on comes after them.
UPDATE arclog.positions SET base = ((newest.pos >> 19) + 1 - now.id) << 19
FROM (SELECT coalesce(max(pos), 0) AS pos FROM arclog.log) newest, (SELECT pg_current_xact_id()::text::int8 AS id) now
WHERE newest.pos >= base + (now.id << 19)

-- name: first_rows
SELECT execution_id, seq0, base, ts, body FROM arclog.log WHERE execution_id = ANY($1::int8[]) AND seq0 <= $2::int8
ORDER BY execution_id, seq0

-- name: mark_page
-- Behind a key; whether its execution is one of those that are searched. A subquery for each row: PostgreSQL would read all
-- executions into a hash table for an EXISTS.
SELECT m.ts, m.execution_id, m.seq,
       coalesce((SELECT $5::text IN ('', e.tenant) AND $6::text IN ('', e.project) AND $7::text IN ('', e.environment)
                 FROM arclog.executions e WHERE e.execution_id = m.execution_id), false)
FROM arclog.mark m
WHERE m.event_type = $1 AND (m.ts, m.execution_id, m.seq) > ($2, $3, $4) AND m.ts < $8
ORDER BY m.ts, m.execution_id, m.seq LIMIT $9

-- name: position_bounds
SELECT coalesce((SELECT pos FROM arclog.log ORDER BY pos LIMIT 1), 0),
       coalesce((SELECT pos FROM arclog.log ORDER BY pos DESC LIMIT 1), 0)

-- name: positions_from
-- The first row from each of some positions on.
SELECT asked.pos, found.ts FROM unnest($1::int8[]) AS asked (pos) CROSS JOIN LATERAL (
    SELECT l.ts FROM arclog.log l WHERE l.pos >= asked.pos ORDER BY l.pos LIMIT 1
) found ORDER BY asked.pos

-- name: events_at
SELECT asked.execution_id, asked.seq, found.seq0, found.base, found.ts, found.body
FROM unnest($1::int8[], $2::int8[]) WITH ORDINALITY AS asked (execution_id, seq, n) CROSS JOIN LATERAL (
    SELECT l.seq0, l.base, l.ts, l.body FROM arclog.log l
    WHERE l.execution_id = asked.execution_id AND l.seq0 <= asked.seq ORDER BY l.seq0 DESC LIMIT 1
) found ORDER BY asked.n

-- name: executions_by_id
SELECT {executions} FROM arclog.executions WHERE execution_id = ANY($1::int8[])

-- name: tenants
-- Steps from tenant to tenant, one look-up each.
WITH RECURSIVE tenants AS (
    (SELECT tenant FROM arclog.executions ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT following.tenant FROM tenants t CROSS JOIN LATERAL (
        SELECT x.tenant FROM arclog.executions x WHERE x.tenant > t.tenant ORDER BY x.tenant LIMIT 1
    ) following
)
SELECT tenant FROM tenants

-- name: names
-- Steps from name to name of these tenants, one look-up each.
WITH RECURSIVE names AS (
    SELECT t.tenant, first.name FROM unnest($1::text[]) AS t (tenant) CROSS JOIN LATERAL (
        SELECT x.name FROM arclog.executions x WHERE x.tenant = t.tenant ORDER BY x.name LIMIT 1
    ) first
    UNION ALL
    SELECT n.tenant, following.name FROM names n CROSS JOIN LATERAL (
        SELECT x.name FROM arclog.executions x WHERE x.tenant = n.tenant AND x.name > n.name ORDER BY x.name LIMIT 1
    ) following
)
SELECT tenant, name FROM names WHERE strpos(name, $2) > 0

-- name: in_state
SELECT {executions} FROM arclog.executions JOIN (
    SELECT found.execution_id FROM unnest($5::text[]) AS t (tenant) CROSS JOIN unnest($4::text[]) AS s (state) CROSS JOIN LATERAL (
        SELECT x.execution_id FROM arclog.executions x
        WHERE x.tenant = t.tenant AND x.state = s.state AND x.execution_id < $1 AND x.execution_id >= $2
          AND $6::text IN ('', x.project) AND $7::text IN ('', x.environment)
          AND ($8::text = '' OR (x.parent = 0) = ($8 = 'top'))
        ORDER BY x.execution_id DESC LIMIT $3
    ) found
    ORDER BY found.execution_id DESC LIMIT $3
) page USING (execution_id)
ORDER BY execution_id DESC

-- name: in_path
SELECT {executions} FROM arclog.executions JOIN (
    SELECT found.execution_id FROM unnest($5::text[]) AS t (tenant) CROSS JOIN unnest($4::text[]) AS s (state) CROSS JOIN LATERAL (
        SELECT x.execution_id FROM arclog.executions x
        WHERE x.tenant = t.tenant AND x.path = $6 AND x.state = s.state AND x.execution_id < $1 AND x.execution_id >= $2
          AND ($7::text = '' OR strpos(x.name, $7) > 0) AND $8::text IN ('', x.project) AND $9::text IN ('', x.environment)
          AND ($10::text = '' OR (x.parent = 0) = ($10 = 'top'))
        ORDER BY x.execution_id DESC LIMIT $3
    ) found
    ORDER BY found.execution_id DESC LIMIT $3
) page USING (execution_id)
ORDER BY execution_id DESC

-- name: with_name
SELECT {executions} FROM arclog.executions JOIN (
    SELECT found.execution_id FROM unnest($5::text[], $6::text[]) AS t (tenant, name) CROSS JOIN unnest($4::text[]) AS s (state) CROSS JOIN LATERAL (
        SELECT x.execution_id FROM arclog.executions x
        WHERE x.tenant = t.tenant AND x.name = t.name AND x.state = s.state AND x.execution_id < $1 AND x.execution_id >= $2
          AND $7::text IN ('', x.project) AND $8::text IN ('', x.environment)
          AND ($9::text = '' OR (x.parent = 0) = ($9 = 'top'))
        ORDER BY x.execution_id DESC LIMIT $3
    ) found
    ORDER BY found.execution_id DESC LIMIT $3
) page USING (execution_id)
ORDER BY execution_id DESC

-- name: pending_paths
-- Steps through the paths of which runs are PENDING, one look-up each. The bound on the id passes over the pair before.
WITH RECURSIVE paths AS (
    (
        SELECT tenant, path, 1 AS n FROM arclog.executions
        WHERE NOT over AND state = 'PENDING' AND (tenant, path, execution_id) > ($1::text, $2::text, $3::int8)
        ORDER BY tenant, path, execution_id LIMIT 1
    )
    UNION ALL
    SELECT following.tenant, following.path, paths.n + 1 FROM paths CROSS JOIN LATERAL (
        SELECT e.tenant, e.path FROM arclog.executions e
        WHERE NOT e.over AND e.state = 'PENDING' AND (e.tenant, e.path, e.execution_id) > (paths.tenant, paths.path, $3)
        ORDER BY e.tenant, e.path, e.execution_id LIMIT 1
    ) following
    WHERE paths.n < $4::int8
)
SELECT tenant, path FROM paths ORDER BY n

-- name: by_run_id
SELECT {executions} FROM arclog.executions WHERE run_id = $1 ORDER BY execution_id LIMIT 1

-- name: lock_path
SELECT pg_advisory_xact_lock(1634886667, hashtext($1::text || '/' || $2::text))

-- name: add_version
-- Only what is new is bound: content that already exists stays valid where it is.
WITH added AS (
    INSERT INTO arclog.catalog (tenant, path, version, digest, source, created_at)
    SELECT $1, $2, 1 + coalesce(max(version), 0), $3, $4, $5 FROM arclog.catalog WHERE tenant = $1 AND path = $2
    ON CONFLICT (digest, tenant, path) DO NOTHING RETURNING tenant, path, version
)
INSERT INTO arclog.catalog_scopes (tenant, path, version, project, environment)
SELECT tenant, path, version, $6, $7 FROM added WHERE $6::text <> '' OR $7::text <> ''

-- name: catalog
-- Steps from path to path, one look-up each, however many versions they have.
WITH RECURSIVE paths (path) AS (
    (SELECT c.path FROM arclog.catalog c WHERE c.tenant = $5 AND c.path >= $1 ORDER BY c.path LIMIT 1)
    UNION ALL
    SELECT n.path FROM paths p CROSS JOIN LATERAL (
        SELECT c.path FROM arclog.catalog c WHERE c.tenant = $5 AND c.path > p.path ORDER BY c.path LIMIT 1
    ) n
    WHERE starts_with(p.path, $2)
)
SELECT c.path, c.version, c.digest, c.created_at, a.archived_at
FROM paths p CROSS JOIN LATERAL (
    SELECT n.path, n.version, n.digest, n.created_at FROM arclog.catalog n
    WHERE n.tenant = $5 AND n.path = p.path
      AND {valid n $6 $7}
    ORDER BY n.version DESC LIMIT 1
) c
LEFT JOIN arclog.archived a ON a.tenant = $5 AND a.path = c.path
WHERE starts_with(p.path, $2) AND ($4::bool OR a.archived_at IS NULL)
LIMIT $3

-- name: claim
-- Steps through the distinct lanes of its pools, one index look-up each; of those that the worker can serve, the
-- first commands that nobody else is taking. Where tenants share, a limit is set or resources are needed, nothing is taken,
-- and the first column names the pools for which a turn is needed; the second tells whether it must be everybody's. Pools that
-- are crowded (the fourth) are not looked through, nor are more lanes than $7.
WITH RECURSIVE every (pool) AS (
    (SELECT pool FROM arclog.commands WHERE lease_until = 0 AND cardinality($4::text[]) = 0 ORDER BY pool LIMIT 1)
    UNION ALL
    SELECT n.pool FROM every e CROSS JOIN LATERAL (
        SELECT c.pool FROM arclog.commands c WHERE c.lease_until = 0 AND c.pool > e.pool ORDER BY c.pool LIMIT 1
    ) n
),
wanted (pool) AS (SELECT pool FROM every UNION SELECT unnest($4::text[])),
crowds AS MATERIALIZED (
    SELECT w.pool FROM wanted w JOIN arclog.crowded k USING (pool)
    WHERE $6::text = '' /*within AND false */ AND EXISTS (
        SELECT FROM arclog.commands c WHERE c.lease_until = 0 AND c.pool = w.pool)
),
offered (pool, tenant, kinds, resources) AS (
    SELECT n.pool, n.tenant, n.kinds, n.resources FROM wanted w CROSS JOIN LATERAL (
        SELECT c.pool, c.tenant, c.kinds, c.resources FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = w.pool AND c.tenant >= $6::text
        ORDER BY c.tenant, c.kinds, c.resources LIMIT 1
    ) n
    WHERE w.pool NOT IN (SELECT pool FROM crowds)
    UNION ALL
    SELECT n.pool, n.tenant, n.kinds, n.resources FROM offered o CROSS JOIN LATERAL (
        SELECT c.pool, c.tenant, c.kinds, c.resources FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = o.pool AND (c.tenant, c.kinds, c.resources) > (o.tenant, o.kinds, o.resources)
        ORDER BY c.tenant, c.kinds, c.resources LIMIT 1
    ) n
    WHERE $6::text IN ('', o.tenant)
),
known AS MATERIALIZED (SELECT * FROM offered LIMIT CASE WHEN $6 = '' /*within AND false */ THEN $7::int8 + 1 END),
fitting AS MATERIALIZED (
    SELECT * FROM known o WHERE kinds <@ $5::bytea[] AND $6 IN ('', tenant)
      /*within AND EXISTS (
        SELECT FROM arclog.commands i JOIN arclog.executions e ON e.execution_id = i.execution_id
        WHERE i.lease_until = 0 AND i.pool = o.pool AND i.tenant = o.tenant AND i.kinds = o.kinds
          AND i.resources = o.resources AND $8::text IN ('', e.project) AND $9::text IN ('', e.environment)) */
),
verdict AS MATERIALIZED (
    SELECT (SELECT array_agg(DISTINCT pool) FROM (SELECT pool FROM fitting UNION SELECT pool FROM crowds) p) AS pools,
           coalesce(bool_or(resources <> ''), false) OR EXISTS (SELECT FROM arclog.limits WHERE pool = '')
               OR EXISTS (SELECT FROM crowds, arclog.resources) AS wide,
           count(DISTINCT tenant) > 1 OR EXISTS (SELECT FROM crowds)
               OR (SELECT count(*) > $7 FROM known) OR EXISTS (
               SELECT FROM arclog.limits l WHERE l.pool IN (SELECT pool FROM fitting)) AS shared,
           coalesce((SELECT array_agg(pool) FROM crowds), '{}') AS crowds
    FROM fitting HAVING count(*) > 0 OR EXISTS (SELECT FROM crowds)
),
free AS MATERIALIZED (
    SELECT c.execution_id, c.command_id FROM fitting f CROSS JOIN LATERAL (
        SELECT i.execution_id, i.command_id, i.rank FROM arclog.commands i
        WHERE i.lease_until = 0 AND i.pool = f.pool AND i.tenant = f.tenant AND i.kinds = f.kinds
          AND i.resources = f.resources
          /*within AND EXISTS (SELECT FROM arclog.executions e WHERE e.execution_id = i.execution_id
                               AND $8::text IN ('', e.project) AND $9::text IN ('', e.environment)) */
        ORDER BY i.rank, i.command_id LIMIT $3 FOR UPDATE SKIP LOCKED
    ) c
    WHERE NOT (SELECT wide OR shared FROM verdict)
    ORDER BY c.rank, c.command_id LIMIT $3
),
taken AS (
    UPDATE arclog.commands c
    SET fence = fence + 1, worker_id = $1, lease_until = $2, by_command = 0, by_fence = 0, by_n = 0
    FROM free WHERE c.execution_id = free.execution_id AND c.command_id = free.command_id
    RETURNING {c.commands}
)
SELECT v.pools, v.wide, v.wide OR v.shared, v.crowds, EXISTS (SELECT FROM arclog.limits), t.* FROM verdict v LEFT JOIN taken t ON true

-- name: claim_in
-- The same for one execution and those below it.
WITH RECURSIVE family (id) AS (
    SELECT execution_id FROM arclog.executions
    WHERE execution_id = $6::int8 /*within AND $8::text IN ('', project) AND $9::text IN ('', environment) */
    UNION
    SELECT e.execution_id FROM family JOIN arclog.executions e ON e.parent = family.id AND e.parent <> 0
),
fitting AS MATERIALIZED (
    SELECT DISTINCT c.pool, c.tenant, c.resources FROM arclog.commands c
    WHERE c.lease_until = 0 AND c.execution_id IN (SELECT id FROM family)
      AND (cardinality($4::text[]) = 0 OR c.pool = ANY($4)) AND c.kinds <@ $5::bytea[]
      AND ($7::text = '' OR c.tenant = $7)
),
verdict AS MATERIALIZED (
    SELECT array_agg(DISTINCT pool) AS pools,
           coalesce(bool_or(resources <> ''), false) OR EXISTS (SELECT FROM arclog.limits WHERE pool = '') AS wide,
           count(DISTINCT tenant) > 1 OR EXISTS (
               SELECT FROM arclog.limits l WHERE l.pool IN (SELECT pool FROM fitting)) AS shared
    FROM fitting HAVING count(*) > 0
),
free AS MATERIALIZED (
    SELECT c.execution_id, c.command_id FROM arclog.commands c
    WHERE c.lease_until = 0 AND c.execution_id IN (SELECT id FROM family)
      AND (cardinality($4::text[]) = 0 OR c.pool = ANY($4)) AND c.kinds <@ $5::bytea[]
      AND ($7::text = '' OR c.tenant = $7) AND NOT (SELECT wide OR shared FROM verdict)
    ORDER BY c.rank, c.command_id LIMIT $3 FOR UPDATE SKIP LOCKED
),
taken AS (
    UPDATE arclog.commands c
    SET fence = fence + 1, worker_id = $1, lease_until = $2, by_command = 0, by_fence = 0, by_n = 0
    FROM free WHERE c.execution_id = free.execution_id AND c.command_id = free.command_id
    RETURNING {c.commands}
)
SELECT v.pools, v.wide, v.wide OR v.shared, '{}'::text[], false, t.* FROM verdict v LEFT JOIN taken t ON true

-- name: lock_turn
-- For the rest of the transaction: who chooses in these pools does so alone. '' is everybody's.
SELECT pg_advisory_xact_lock(1634886669, h) FROM (
    SELECT DISTINCT hashtext(pool) AS h FROM unnest($1::text[]) AS p (pool) ORDER BY 1
) locks

-- name: lanes
-- The first commands of every lane that a worker can serve, but for those of the crowded pools $5; what their tenants were served,
-- and the present of their pools.
WITH RECURSIVE offered (pool, tenant, kinds, resources) AS (
    SELECT n.pool, n.tenant, n.kinds, n.resources FROM unnest($2::text[]) AS w (pool) CROSS JOIN LATERAL (
        SELECT c.pool, c.tenant, c.kinds, c.resources FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = w.pool AND c.tenant >= $4::text
        ORDER BY c.tenant, c.kinds, c.resources LIMIT 1
    ) n
    WHERE NOT EXISTS (SELECT FROM arclog.crowded k WHERE k.pool = w.pool AND k.pool = ANY($5::text[]))
    UNION ALL
    SELECT n.pool, n.tenant, n.kinds, n.resources FROM offered o CROSS JOIN LATERAL (
        SELECT c.pool, c.tenant, c.kinds, c.resources FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = o.pool AND (c.tenant, c.kinds, c.resources) > (o.tenant, o.kinds, o.resources)
        ORDER BY c.tenant, c.kinds, c.resources LIMIT 1
    ) n
    WHERE $4::text IN ('', o.tenant)
)
SELECT f.pool, f.tenant, f.resources, c.rank, c.command_id, c.execution_id,
       coalesce(s.served, 0), coalesce(p.served, 0), f.kinds
FROM offered f
LEFT JOIN arclog.service s ON s.pool = f.pool AND s.tenant = f.tenant
LEFT JOIN arclog.service p ON p.pool = f.pool AND p.tenant = ''
CROSS JOIN LATERAL (
    SELECT i.rank, i.command_id, i.execution_id FROM arclog.commands i
    WHERE i.lease_until = 0 AND i.pool = f.pool AND i.tenant = f.tenant AND i.kinds = f.kinds
      AND i.resources = f.resources
      /*within AND EXISTS (SELECT FROM arclog.executions e WHERE e.execution_id = i.execution_id
                           AND $6::text IN ('', e.project) AND $7::text IN ('', e.environment)) */
    ORDER BY i.rank, i.command_id LIMIT $1
) c
WHERE f.kinds <@ $3::bytea[] AND $4 IN ('', f.tenant)

-- name: lanes_in
-- The same of one execution and those below it.
WITH RECURSIVE family (id) AS (
    SELECT execution_id FROM arclog.executions
    WHERE execution_id = $5::int8 /*within AND $6::text IN ('', project) AND $7::text IN ('', environment) */
    UNION
    SELECT e.execution_id FROM family JOIN arclog.executions e ON e.parent = family.id AND e.parent <> 0
),
waiting AS (
    SELECT c.pool, c.tenant, c.resources, c.rank, c.command_id, c.execution_id, c.kinds, row_number() OVER (
        PARTITION BY c.pool, c.tenant, c.kinds, c.resources ORDER BY c.rank, c.command_id) AS nth
    FROM arclog.commands c
    WHERE c.lease_until = 0 AND c.execution_id IN (SELECT id FROM family)
      AND c.pool = ANY($2::text[]) AND c.kinds <@ $3::bytea[] AND ($4::text = '' OR c.tenant = $4)
)
SELECT w.pool, w.tenant, w.resources, w.rank, w.command_id, w.execution_id,
       coalesce(s.served, 0), coalesce(p.served, 0), w.kinds
FROM waiting w
LEFT JOIN arclog.service s ON s.pool = w.pool AND s.tenant = w.tenant
LEFT JOIN arclog.service p ON p.pool = w.pool AND p.tenant = ''
WHERE w.nth <= $1

-- name: lock_commands
-- Until the end of the transaction nobody changes a command: who changed one before did not know that a pool is crowded.
-- In the mode that turns triggers on and off, since two holders of a weaker one would wait for each other.
LOCK TABLE arclog.commands IN SHARE ROW EXCLUSIVE MODE

-- name: crowd
WITH crowds AS (
    INSERT INTO arclog.crowded (pool, built) SELECT unnest($1::text[]), false ON CONFLICT DO NOTHING RETURNING pool
),
no_lanes AS (DELETE FROM arclog.lanes l USING crowds c WHERE l.pool = ANY($1) AND l.pool = c.pool)
DELETE FROM arclog.holding h USING crowds c WHERE h.pool = ANY($1) AND h.pool = c.pool

-- name: crowded
SELECT pool FROM arclog.crowded

-- name: are_crowded
SELECT pool FROM arclog.crowded WHERE pool = ANY($1::text[]) AND built

-- name: build_lanes
-- Of pools that became crowded: what waits and what is held at one moment, in the place of notes up to it.
WITH RECURSIVE new_pools AS MATERIALIZED (
    SELECT pool FROM arclog.crowded WHERE pool = ANY($1::text[]) AND NOT built FOR UPDATE
),
forgotten AS (DELETE FROM arclog.lane_notes n USING new_pools p WHERE n.pool = p.pool),
built AS (UPDATE arclog.crowded c SET built = true FROM new_pools p WHERE c.pool = p.pool),
held AS MATERIALIZED (
    SELECT c.pool, c.tenant, count(*) AS held FROM arclog.commands c
    WHERE c.lease_until > 0 AND c.pool IN (SELECT pool FROM new_pools) GROUP BY 1, 2
),
kept AS (INSERT INTO arclog.holding (pool, tenant, held) SELECT pool, tenant, held FROM held),
offered (pool, tenant, kinds, resources, rank, command_id) AS (
    SELECT n.* FROM new_pools w CROSS JOIN LATERAL (
        SELECT c.pool, c.tenant, c.kinds, c.resources, c.rank, c.command_id FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = w.pool ORDER BY c.tenant, c.kinds, c.resources, c.rank, c.command_id LIMIT 1
    ) n
    UNION ALL
    SELECT n.* FROM offered o CROSS JOIN LATERAL (
        SELECT c.pool, c.tenant, c.kinds, c.resources, c.rank, c.command_id FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = o.pool AND (c.tenant, c.kinds, c.resources) > (o.tenant, o.kinds, o.resources)
        ORDER BY c.tenant, c.kinds, c.resources, c.rank, c.command_id LIMIT 1
    ) n
)
INSERT INTO arclog.lanes (pool, tenant, kinds, resources, held, served, rank, command_id)
SELECT o.pool, o.tenant, o.kinds, o.resources, coalesce(h.held, 0), coalesce(s.served, 0), o.rank, o.command_id
FROM offered o LEFT JOIN held h USING (pool, tenant)
LEFT JOIN arclog.service s ON s.pool = o.pool AND s.tenant = o.tenant

-- name: read_notes
-- Brings lanes up to date with the oldest $2 notes of each pool.
SELECT arclog.read_notes(pool, $2) FROM arclog.crowded WHERE pool = ANY ($1::text[]) AND built

-- name: claim_in_turn
-- A row of nulls means that the lanes have to be looked at: see the function.
SELECT {c.commands} FROM arclog.claim_in_turn($1, $2::bytea[], $3, $4, $5, $6, $7) AS c

-- name: window
-- The lanes of crowded pools that a claim has to see, as `stores.claim_choice` says, with their first commands: but for the tenants $4,
-- and those that hold as much as $5 says of each pool.
WITH RECURSIVE given AS MATERIALIZED (
    SELECT g.pool, g.most, coalesce(s.served, 0) AS present
    FROM unnest($2::text[], $5::int8[]) AS g (pool, most) JOIN arclog.crowded c ON c.pool = g.pool
    LEFT JOIN arclog.service s ON s.pool = g.pool AND s.tenant = ''
),
needs (pool, kinds, resources) AS (
    SELECT n.pool, n.kinds, n.resources FROM given g CROSS JOIN LATERAL (
        SELECT l.pool, l.kinds, l.resources FROM arclog.lanes l WHERE l.pool = g.pool ORDER BY l.kinds, l.resources LIMIT 1
    ) n
    UNION ALL
    SELECT n.pool, n.kinds, n.resources FROM needs o CROSS JOIN LATERAL (
        SELECT l.pool, l.kinds, l.resources FROM arclog.lanes l
        WHERE l.pool = o.pool AND (l.kinds, l.resources) > (o.kinds, o.resources) ORDER BY l.kinds, l.resources LIMIT 1
    ) n
),
turns (pool, present, most, kinds, resources, held, served, least, seen) AS (
    SELECT n.pool, g.present, g.most, n.kinds, n.resources, t.held, t.served, t.held, c.seen
    FROM needs n JOIN given g USING (pool) CROSS JOIN LATERAL (
        SELECT l.held, l.served FROM arclog.lanes l
        WHERE l.pool = n.pool AND l.kinds = n.kinds AND l.resources = n.resources ORDER BY l.held, l.served LIMIT 1
    ) t CROSS JOIN LATERAL (
        SELECT count(*) AS seen FROM (
            SELECT FROM arclog.lanes l
            WHERE l.pool = n.pool AND l.kinds = n.kinds AND l.resources = n.resources AND l.held = t.held
              AND l.served = t.served AND l.tenant <> ALL ($4::text[]) LIMIT $1::int8 + 1
        ) lanes
    ) c
    WHERE n.kinds <@ $3::bytea[] AND t.held < g.most
    UNION ALL
    SELECT o.pool, o.present, o.most, o.kinds, o.resources, t.held, t.served, o.least, o.seen + c.seen
    FROM turns o CROSS JOIN LATERAL (
        SELECT l.held, l.served FROM arclog.lanes l
        WHERE l.pool = o.pool AND l.kinds = o.kinds AND l.resources = o.resources
          AND (l.held, l.served) > (o.held, o.served)
        ORDER BY l.held, l.served LIMIT 1
    ) t CROSS JOIN LATERAL (
        SELECT count(*) AS seen FROM (
            SELECT FROM arclog.lanes l
            WHERE l.pool = o.pool AND l.kinds = o.kinds AND l.resources = o.resources AND l.held = t.held
              AND l.served = t.served AND l.tenant <> ALL ($4::text[]) LIMIT $1::int8 + 1
        ) lanes
    ) c
    WHERE t.held < o.most
      AND NOT (o.seen > $1::int8 AND (t.held > o.held OR (o.held = o.least AND t.served > o.present)))
),
-- A lane is taken from again only while its tenant holds less than others.
last AS MATERIALIZED (
    SELECT pool, kinds, resources, max(held) AS held, max(seen) AS seen FROM turns GROUP BY 1, 2, 3
),
lanes AS MATERIALIZED (
    SELECT t.pool, l.tenant, t.kinds, t.resources, t.held, t.served, t.present,
           CASE WHEN t.held < last.held OR last.seen <= $1::int8 THEN $1::int8 ELSE 1 END AS most
    FROM turns t JOIN last USING (pool, kinds, resources) CROSS JOIN LATERAL (
        SELECT n.tenant FROM arclog.lanes n
        WHERE n.pool = t.pool AND n.kinds = t.kinds AND n.resources = t.resources AND n.held = t.held
          AND n.served = t.served AND n.tenant <> ALL ($4::text[])
        ORDER BY n.rank, n.command_id LIMIT $1::int8 + 1
    ) l
    UNION ALL
    SELECT n.pool, n.tenant, n.kinds, n.resources, n.held, n.served, g.present, $1::int8
    FROM given g JOIN arclog.lanes n ON n.pool = g.pool AND n.tenant = ANY ($6::text[]) WHERE n.kinds <@ $3::bytea[]
)
SELECT l.pool, l.tenant, l.resources, c.rank, c.command_id, c.execution_id, l.served, l.present, l.kinds, l.held
FROM lanes l CROSS JOIN LATERAL (
    SELECT i.rank, i.command_id, i.execution_id FROM arclog.commands i
    WHERE i.lease_until = 0 AND i.pool = l.pool AND i.tenant = l.tenant AND i.kinds = l.kinds AND i.resources = l.resources
    ORDER BY i.rank, i.command_id LIMIT l.most
) c

-- name: two_lanes
-- Of each kind that a claim can serve, two lanes, whether they have room or not: do several tenants wait?
WITH RECURSIVE needs (pool, kinds, resources) AS (
    SELECT n.pool, n.kinds, n.resources FROM unnest($1::text[]) AS g (pool) CROSS JOIN LATERAL (
        SELECT l.pool, l.kinds, l.resources FROM arclog.lanes l WHERE l.pool = g.pool ORDER BY l.kinds, l.resources LIMIT 1
    ) n
    UNION ALL
    SELECT n.pool, n.kinds, n.resources FROM needs o CROSS JOIN LATERAL (
        SELECT l.pool, l.kinds, l.resources FROM arclog.lanes l
        WHERE l.pool = o.pool AND (l.kinds, l.resources) > (o.kinds, o.resources) ORDER BY l.kinds, l.resources LIMIT 1
    ) n
)
SELECT DISTINCT l.tenant FROM needs n CROSS JOIN LATERAL (
    SELECT l.tenant FROM arclog.lanes l WHERE l.pool = n.pool AND l.kinds = n.kinds AND l.resources = n.resources LIMIT 2
) l WHERE n.kinds <@ $2::bytea[]

-- name: settle_lanes
-- What lies behind the present counts as if it stood there: the fewer values there are, the fewer a claim steps through.
UPDATE arclog.lanes l SET served = 0 FROM (
    SELECT n.tenant FROM arclog.lanes n
    WHERE n.pool = $1 AND n.kinds = $2::bytea[] AND n.resources = $3 AND n.held = $4 AND n.served > 0
      AND n.served <= (SELECT s.served FROM arclog.service s WHERE s.pool = $1 AND s.tenant = '')
    LIMIT $5
) stale
WHERE l.pool = $1 AND l.tenant = stale.tenant AND l.kinds = $2::bytea[] AND l.resources = $3

-- name: uncrowd
-- Of a pool in which no more than $2 lanes are left.
WITH few AS MATERIALIZED (
    SELECT p.pool FROM unnest($1::text[]) AS p (pool)
    WHERE (SELECT count(*) FROM (SELECT FROM arclog.lanes l WHERE l.pool = p.pool LIMIT $2::int8 + 1) lanes) <= $2::int8
      AND NOT EXISTS (SELECT FROM arclog.lane_notes n WHERE n.pool = p.pool)
),
no_lanes AS (DELETE FROM arclog.lanes l USING few WHERE l.pool = few.pool),
no_holding AS (DELETE FROM arclog.holding h USING few WHERE h.pool = few.pool)
DELETE FROM arclog.crowded c USING few WHERE c.pool = few.pool

-- name: are_notes_idle
-- Whether the triggers that leave notes are on, although no pool is crowded.
SELECT NOT EXISTS (SELECT FROM arclog.crowded) AND EXISTS (
    SELECT FROM pg_trigger WHERE tgrelid = 'arclog.commands'::regclass AND tgname = 'lane_opened' AND tgenabled <> 'D'
)

-- name: stop_notes
SELECT arclog.stop_notes()

-- name: resources
SELECT r.name, r."interval", r.burst, r.concurrency, r.full_at, (
    SELECT count(*) FROM arclog.commands c
    WHERE c.resources <> '' AND c.lease_until > 0 AND c.resources::jsonb ? r.name
) FROM arclog.resources r ORDER BY r.name

-- name: spend
UPDATE arclog.resources r SET full_at = s.full_at
FROM unnest($1::text[], $2::int8[]) AS s (name, full_at) WHERE r.name = s.name

-- name: serve
-- Who stood at the pool's present before, or behind it, needs no row. A few of them; the next claims find the others.
WITH served AS (
    INSERT INTO arclog.service (pool, tenant, served) SELECT * FROM unnest($1::text[], $2::text[], $3::int8[])
    ON CONFLICT (pool, tenant) DO UPDATE SET served = excluded.served
)
DELETE FROM arclog.service s USING unnest($4::text[]) AS p (pool) CROSS JOIN LATERAL (
    SELECT o.tenant FROM arclog.service o
    WHERE o.pool = p.pool AND o.tenant <> '' AND o.tenant <> ALL ($2::text[])
      AND o.served <= (SELECT now.served FROM arclog.service now WHERE now.pool = p.pool AND now.tenant = '')
    ORDER BY o.served LIMIT $5
) old
WHERE s.pool = p.pool AND s.tenant = old.tenant

-- name: take
UPDATE arclog.commands c
SET fence = fence + 1, worker_id = $1, lease_until = $2, by_command = 0, by_fence = 0, by_n = 0
FROM unnest($3::int8[], $4::int8[]) AS t (execution_id, command_id)
WHERE c.execution_id = t.execution_id AND c.command_id = t.command_id AND c.lease_until = 0
RETURNING {c.commands}

-- name: shares
SELECT pool, tenant, count(*) FILTER (WHERE lease_until = 0), count(*) FILTER (WHERE lease_until > 0),
       coalesce(min(command_id) FILTER (WHERE lease_until = 0), 0)
FROM arclog.commands WHERE lease_until >= 0 GROUP BY pool, tenant ORDER BY pool, tenant

-- name: queue_heads
WITH RECURSIVE pools (pool) AS (
    SELECT min(pool) FROM arclog.commands WHERE lease_until = 0
    UNION ALL
    SELECT (SELECT min(c.pool) FROM arclog.commands c WHERE c.lease_until = 0 AND c.pool > p.pool) FROM pools p
    WHERE p.pool IS NOT NULL
), heads (pool, kinds, resources, command_id, execution_id, step) AS (
    SELECT n.* FROM pools p CROSS JOIN LATERAL (
        SELECT c.pool, c.kinds, c.resources, c.command_id, c.execution_id, c.step FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = p.pool AND c.tenant = $1
        ORDER BY c.kinds, c.resources, c.rank, c.command_id LIMIT 1
    ) n
    UNION ALL
    SELECT n.* FROM heads h CROSS JOIN LATERAL (
        SELECT c.pool, c.kinds, c.resources, c.command_id, c.execution_id, c.step FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = h.pool AND c.tenant = $1 AND (c.kinds, c.resources) > (h.kinds, h.resources)
        ORDER BY c.kinds, c.resources, c.rank, c.command_id LIMIT 1
    ) n
)
SELECT pool, kinds, command_id, execution_id, step FROM heads ORDER BY pool, kinds, resources LIMIT $2

-- name: contest
SELECT (SELECT tenant FROM arclog.commands WHERE lease_until = 0 AND pool = $1 ORDER BY pool, tenant LIMIT 1),
       (SELECT tenant FROM arclog.commands WHERE lease_until = 0 AND pool = $1 ORDER BY pool DESC, tenant DESC LIMIT 1),
       EXISTS (SELECT FROM arclog.limits WHERE pool IN ('', $1))

-- name: heartbeat
UPDATE arclog.commands c SET lease_until = $2
FROM unnest($3::int8[], $4::int8[]) AS h (command_id, fence)
WHERE c.command_id = ANY($3) AND c.command_id = h.command_id AND c.fence = h.fence AND c.worker_id = $1
  AND c.lease_until > 0
RETURNING c.command_id

-- name: backlog
SELECT pool, sign(lease_until)::int8, count(*), min(command_id), min(lease_until) FROM arclog.commands GROUP BY 1, 2

-- name: remove_results
UPDATE arclog.results k SET removed_at = $1
FROM unnest($2::int8[], $3::text[], $4::text[], $5::int8[]) AS r (execution_id, name, sha256, seq)
WHERE k.execution_id = r.execution_id AND k.name = r.name AND k.sha256 = r.sha256 AND k.seq = r.seq
  AND k.removed_at IS NULL
RETURNING k.seq

-- name: put_next_snapshot
-- The one before it is kept, too.
WITH moved AS (
    INSERT INTO arclog.past_snapshots (execution_id, seq, code, body)
    SELECT execution_id, seq, code, body FROM arclog.snapshots WHERE execution_id = $1 AND seq < $2 AND code = $3
    ON CONFLICT (execution_id, seq) DO UPDATE SET code = excluded.code, body = excluded.body
),
dropped AS (
    DELETE FROM arclog.past_snapshots WHERE execution_id = $1 AND (code <> $3 OR seq = ANY($5::int8[]))
)
INSERT INTO arclog.snapshots AS k (execution_id, seq, code, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (execution_id) DO UPDATE SET seq = excluded.seq, code = excluded.code, body = excluded.body
WHERE excluded.seq >= k.seq OR excluded.code <> k.code

-- name: lock_logs
-- Who adds lines to an execution's log does so alone: positions are given in the order of commits.
INSERT INTO arclog.task_log_sizes AS k (execution_id, bytes, cut)
SELECT DISTINCT execution_id, 0, false FROM unnest($1::int8[]) AS l (execution_id) ORDER BY execution_id
ON CONFLICT (execution_id) DO UPDATE SET bytes = k.bytes

-- name: add_logs
-- $13 is what a log may take (none: any size), $14 the text that says so, $15 its size.
WITH lines AS (
    SELECT l.*, k.cut, k.bytes + sum(l.size) OVER (PARTITION BY l.execution_id ORDER BY l.n) AS total
    FROM unnest($1::int8[], $2::int8[], $3::int8[], $4::text[], $5::int8[], $6::text[], $7::int8[], $8::int8[],
                $9::text[], $10::text[], $11::bytea[], $12::int8[])
        AS l (n, execution_id, at, step, run, task, task_run, attempt, iteration, stream, text, size)
    JOIN arclog.task_log_sizes k USING (execution_id)
),
kept AS (
    SELECT n, execution_id, at, step, run, task, task_run, attempt, iteration, stream, text, size, false AS cutting
    FROM lines WHERE stream = 'progress' OR $13::int8 IS NULL OR total <= $13 AND NOT cut
    UNION ALL
    SELECT DISTINCT ON (execution_id)
           n, execution_id, at, step, run, task, task_run, attempt, iteration, 'log', $14::bytea, $15::int8, true
    FROM (SELECT * FROM lines WHERE stream <> 'progress' AND total > $13 AND NOT cut ORDER BY execution_id, n) first
),
replaced AS (
    DELETE FROM arclog.task_logs o USING kept n
    WHERE o.execution_id = ANY($2) AND o.stream = 'progress' AND n.stream = 'progress' AND o.execution_id = n.execution_id
      AND o.step = n.step AND o.run = n.run AND o.iteration = n.iteration AND o.task = n.task AND o.task_run = n.task_run
      AND o.attempt = n.attempt
),
sizes AS (
    UPDATE arclog.task_log_sizes k SET bytes = k.bytes + s.size, cut = k.cut OR s.cutting
    FROM (SELECT execution_id, sum(size)::int8 AS size, bool_or(cutting) AS cutting FROM kept GROUP BY 1) s
    WHERE s.execution_id = k.execution_id
)
INSERT INTO arclog.task_logs (
    pos, execution_id, at, step, run, task, task_run, attempt, iteration, stream, text
)
SELECT nextval('arclog.task_logs_pos'), o.* FROM (
    SELECT execution_id, at, step, run, task, task_run, attempt, iteration, stream, text FROM kept ORDER BY n
) o

-- name: forget_progress
DELETE FROM arclog.task_logs t USING unnest($1::int8[]) AS e (execution_id)
WHERE t.execution_id = ANY($1) AND t.execution_id = e.execution_id AND t.stream = 'progress' AND t.pos <= (
    SELECT pos FROM arclog.task_logs k
    WHERE k.execution_id = e.execution_id AND k.stream = 'progress' ORDER BY pos DESC OFFSET $2 LIMIT 1
)

-- name: logs
SELECT pos, at, step, run, task, task_run, attempt, iteration, stream, text FROM arclog.task_logs
WHERE execution_id = $1 AND pos > $2
  AND ($4::text = '' OR step = $4)
  AND ($5::text = '' OR task = $5)
  AND starts_with(iteration, $6)
  AND CASE WHEN cardinality($7::text[]) = 0 THEN stream <> 'progress' ELSE stream = ANY($7) END
  AND (length($8::bytea) = 0 OR position($8 IN text) > 0)
  AND at >= $9
ORDER BY pos LIMIT $3

-- name: time
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8

-- name: lock_nodes
SELECT pg_advisory_xact_lock(1634886669, 0)

-- name: lease_node
INSERT INTO arclog.nodes AS k (node, owner, until)
SELECT node, $1, $3 FROM (
    (SELECT node FROM arclog.nodes WHERE owner = $1)
    UNION ALL
    (SELECT n FROM generate_series(0, $4::int8) AS n
     WHERE NOT EXISTS (SELECT FROM arclog.nodes o WHERE o.node = n AND o.until > $2) LIMIT 1)
) AS possible (node) LIMIT 1
ON CONFLICT (node) DO UPDATE SET owner = excluded.owner, until = excluded.until
RETURNING node

-- name: add_audit
INSERT INTO arclog.audit (at, decision, principal, tenant, method, route, target, address, reason)
SELECT a.* FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                       $9::text[]) AS a

-- name: forget_audit
-- A bounded piece: what is left goes with the next entries.
DELETE FROM arclog.audit WHERE pos = ANY(ARRAY(SELECT pos FROM arclog.audit WHERE at < $1 ORDER BY at LIMIT $2))

-- name: change_schedules
UPDATE arclog.schedules s
SET revision = c.revision, wakes_at = c.wakes_at, lease_owner = c.owner, lease_until = c.until, body = c.body
FROM unnest($1::int8[], $2::int8[], $3::text[], $4::int8[], $5::bytea[], $6::text[], $7::text[], $8::int8[])
    AS c (revision, wakes_at, owner, until, body, tenant, name, known)
WHERE s.tenant = c.tenant AND s.name = c.name AND s.revision = c.known
RETURNING s.tenant, s.name

-- name: lease_schedules
WITH free AS MATERIALIZED (
    SELECT tenant, name FROM arclog.schedules WHERE wakes_at <= $2 AND lease_until <= $2
    ORDER BY wakes_at, tenant, name LIMIT $4 FOR UPDATE SKIP LOCKED
),
leased AS (
    UPDATE arclog.schedules s SET lease_owner = $1, lease_until = $3
    FROM free WHERE s.tenant = free.tenant AND s.name = free.name
    RETURNING s.wakes_at, s.tenant, s.name, s.body
)
SELECT body FROM leased ORDER BY wakes_at, tenant, name

-- name: lease_deliveries
WITH free AS MATERIALIZED (
    SELECT execution_id, n FROM arclog.outbox WHERE state = 'pending' AND due <= $1 AND lease_until <= $1
    AND NOT EXISTS (
        SELECT 1 FROM unnest($4::text[]) AS receiver
        WHERE lower(left(url, length(receiver))) = receiver AND substr(url, length(receiver) + 1, 1) IN ('', '/', '?', '#')
    )
    ORDER BY due, execution_id, n LIMIT $3 FOR UPDATE SKIP LOCKED
),
leased AS (
    UPDATE arclog.outbox o SET lease_until = $2
    FROM free WHERE o.execution_id = free.execution_id AND o.n = free.n
    RETURNING o.execution_id, o.n, url, secret, event, body, created_at, state, due, attempts, problem
)
SELECT * FROM leased ORDER BY due, execution_id, n

-- name: spans
SELECT lower, upper FROM arclog.spans ORDER BY lower

-- name: retirable
-- The first span behind $3 that lies before $1, the id of a moment, all of whose executions ended before it ($2, microseconds).
-- What keeps most spans is looked for first, by an index that has little else.
SELECT s.lower, s.upper FROM arclog.spans s
WHERE s.upper <= $1 AND s.lower > $3
  AND NOT EXISTS (SELECT FROM arclog.executions e WHERE NOT e.over AND e.execution_id >= s.lower AND e.execution_id < s.upper)
  AND NOT EXISTS (
      SELECT FROM arclog.outbox o WHERE o.execution_id >= s.lower AND o.execution_id < s.upper AND NOT o.settled)
  AND NOT EXISTS (
      SELECT FROM arclog.results r
      WHERE r.execution_id >= s.lower AND r.execution_id < s.upper AND r.removed_at IS NULL AND r.scope < 3)
  AND NOT EXISTS (
      SELECT FROM arclog.executions e LEFT JOIN arclog.executions p ON p.execution_id = e.parent
      WHERE e.execution_id >= s.lower AND e.execution_id < s.upper
        AND (coalesce(e.ended_at, e.created_at) >= $2 OR NOT p.over))
ORDER BY s.lower LIMIT 1

-- name: count_span
SELECT count(*) FROM arclog.executions WHERE execution_id >= $1 AND execution_id < $2

-- name: retire
-- Some executions of a span, as a whole but for their log rows, which go with the span's tables. Marks have the time of their log
-- rows: so they are found without an index by execution.
WITH RECURSIVE types (bit) AS (
    (SELECT event_type FROM arclog.mark ORDER BY event_type LIMIT 1)
    UNION ALL
    SELECT n.event_type FROM types t CROSS JOIN LATERAL (
        SELECT m.event_type FROM arclog.mark m WHERE m.event_type > t.bit ORDER BY m.event_type LIMIT 1
    ) n
),
gone AS MATERIALIZED (
    SELECT execution_id FROM arclog.executions
    WHERE execution_id >= $1 AND execution_id < $2 AND over AND coalesce(ended_at, created_at) < $3
    ORDER BY execution_id LIMIT $4
),
marks AS (
    DELETE FROM arclog.mark m USING gone g CROSS JOIN LATERAL (
        SELECT r.ts, r.types FROM arclog.log r WHERE r.execution_id = g.execution_id ORDER BY r.seq0
    ) l CROSS JOIN types t
    WHERE (l.types >> t.bit::int4) & 1 = 1 AND m.event_type = t.bit AND m.ts = l.ts AND m.execution_id = g.execution_id
),
step_runs AS (DELETE FROM arclog.step_runs d USING gone g WHERE d.execution_id = g.execution_id),
ingested AS (DELETE FROM arclog.ingested d USING gone g WHERE d.execution_id = g.execution_id),
snapshots AS (DELETE FROM arclog.snapshots d USING gone g WHERE d.execution_id = g.execution_id),
past_snapshots AS (DELETE FROM arclog.past_snapshots d USING gone g WHERE d.execution_id = g.execution_id),
sizes AS (DELETE FROM arclog.task_log_sizes d USING gone g WHERE d.execution_id = g.execution_id),
outbox AS (DELETE FROM arclog.outbox d USING gone g WHERE d.execution_id = g.execution_id),
results AS (
    DELETE FROM arclog.results d USING gone g WHERE d.execution_id = g.execution_id AND d.removed_at IS NOT NULL
)
DELETE FROM arclog.executions d USING gone g WHERE d.execution_id = g.execution_id RETURNING d.execution_id

-- name: span_is_empty
SELECT NOT EXISTS (SELECT FROM arclog.executions WHERE execution_id >= $1 AND execution_id < $2)

-- name: forget_span
DELETE FROM arclog.spans WHERE lower = $1

-- name: lock_secrets
-- Held to the end of the transaction: whether all have one key is looked at and kept true by one writer at a time.
SELECT pg_advisory_xact_lock(1634886671, 0)

-- name: put_secret
INSERT INTO arclog.secrets (name, scope, fields, set_at, key, nonce, data)
SELECT $1, $2, $3, $4, $5, $6::bytea, $7::bytea WHERE NOT EXISTS (SELECT FROM arclog.secrets WHERE key <> $5)
ON CONFLICT (name, scope) DO UPDATE SET fields = excluded.fields, set_at = excluded.set_at, key = excluded.key,
    nonce = excluded.nonce, data = excluded.data
RETURNING name

-- name: secret
SELECT name, scope, fields, set_at, key, nonce, data FROM arclog.secrets
WHERE name = $1 AND scope = ANY($2::text[]) ORDER BY length(scope) DESC LIMIT 1

-- name: secrets
SELECT name, scope, fields, set_at FROM arclog.secrets ORDER BY name, scope

-- name: secrets_key
SELECT key FROM arclog.secrets LIMIT 1

-- name: remove_secret
DELETE FROM arclog.secrets WHERE name = $1 AND scope = $2 RETURNING name

-- name: add_crash
-- A server that left no record was presumed to have died of it; its own marks, which come later, confirm that.
INSERT INTO arclog.crashes AS c (execution_id, work, count, at) VALUES ($1, $2, 1, $3)
ON CONFLICT (execution_id, work) DO UPDATE SET count = c.count + 1 - c.presumed, presumed = 0, at = excluded.at

-- name: crashes
SELECT execution_id, work, count, paused_at, presumed, owner FROM arclog.crashes

-- name: record_attempt
-- A process renews only its own record.
INSERT INTO arclog.crashes AS c (execution_id, work, count, at, owner) VALUES ($1, $2, 1, $3, $4)
ON CONFLICT (execution_id, work) DO UPDATE SET count = c.count + 1, at = excluded.at WHERE c.owner = excluded.owner

-- name: end_attempt
DELETE FROM arclog.crashes WHERE execution_id = $1 AND work = $2 AND owner = $3

-- name: count_attempt
-- Several servers may do this; the one that deletes the record counts it.
WITH gone AS (
    DELETE FROM arclog.crashes WHERE execution_id = $1 AND work = $2 AND ($4::bigint = 0 OR count = $4::bigint) RETURNING owner
), suspects AS (
    INSERT INTO arclog.crash_suspects (execution_id, owner) SELECT $1, n.owner FROM arclog.nodes n, gone WHERE n.until > $5
    ON CONFLICT DO NOTHING
)
INSERT INTO arclog.crashes AS c (execution_id, work, count, at, presumed, owner)
SELECT $1, $3, $6::bigint, $5, $6::bigint - 1, owner FROM gone
ON CONFLICT (execution_id, work) DO UPDATE
SET count = greatest(c.count + 1, excluded.count), at = excluded.at, owner = excluded.owner,
    presumed = CASE WHEN c.count = 0 THEN excluded.presumed ELSE c.presumed END

-- name: excuse_attempt
WITH gone AS (DELETE FROM arclog.crashes WHERE execution_id = $1 AND work = $2 RETURNING owner)
INSERT INTO arclog.crashes AS c (execution_id, work, count, at, waiting, owner) SELECT $1, $3, 1, $4, 1, owner FROM gone
ON CONFLICT (execution_id, work) DO UPDATE
SET count = c.count + 1, waiting = c.waiting + 1, at = excluded.at, owner = excluded.owner

-- name: excuse_crash
-- $3: whether the crash itself is withdrawn, since its server is alive; $4: whether the work was waiting when its server died.
UPDATE arclog.crashes c SET count = c.count - c.presumed - $3::bigint, presumed = 0, waiting = c.waiting + $4::bigint
WHERE c.execution_id = $1 AND c.work = $2 AND c.presumed > 0 AND NOT EXISTS (
    SELECT FROM arclog.crashes o
    WHERE o.execution_id = $1 AND o.work <> $2 AND o.work & $5::bigint = 0 AND o.count > o.waiting
)

-- name: vouch
DELETE FROM arclog.crash_suspects s WHERE s.owner = $1
OR NOT EXISTS (SELECT FROM arclog.crashes c WHERE c.execution_id = s.execution_id AND c.presumed > 0)

-- name: excuse_vouched
UPDATE arclog.crashes c SET count = c.count - c.presumed, presumed = 0
WHERE c.presumed > 0
AND NOT EXISTS (SELECT FROM arclog.crash_suspects s WHERE s.execution_id = c.execution_id)
AND NOT EXISTS (
    SELECT FROM arclog.crashes o
    WHERE o.execution_id = c.execution_id AND o.work <> c.work AND o.work & $1::bigint = 0 AND o.count > o.waiting
)

-- name: pause_crash
UPDATE arclog.crashes SET paused_at = $3 WHERE execution_id = $1 AND work = $2 AND paused_at = $4 AND count >= $5 RETURNING work

-- name: resume_crash
UPDATE arclog.crashes SET paused_at = 0 WHERE execution_id = $1 AND work = $2 AND paused_at = $3

-- name: forget_excused
DELETE FROM arclog.crashes WHERE execution_id = $1 AND work = $2 AND count = 0 AND paused_at = 0

-- name: forget_crash
DELETE FROM arclog.crashes WHERE execution_id = $1 AND (work = $2::bigint OR ($2::bigint = 0 AND work & $3::bigint = 0))

-- name: forget_crashes
-- Crashes that are far apart are not in a row; a run that is paused stays known, and so does one that is not begun (a negative id).
DELETE FROM arclog.crashes WHERE at < $1 AND paused_at = 0 AND (execution_id >= 0 OR count < 2)
