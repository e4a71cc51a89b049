-- oldest: 2
-- A claim from a crowded pool in one statement. As statements of their own, its parts took two round trips, and the server spent most of
-- its time on preparing plans of many nodes for a few rows.

-- Brings the lanes of a pool up to date with its oldest notes. What is noted while this runs is read next time.
CREATE FUNCTION arclog.read_notes(of_pool text, most bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    lane record;
    first_command record;
    now_held bigint;
BEGIN
    FOR lane IN
        WITH noted AS (
            DELETE FROM arclog.lane_notes d WHERE d.ctid = ANY (ARRAY (
                SELECT n.ctid FROM arclog.lane_notes n WHERE n.pool = of_pool ORDER BY n.n LIMIT most))
            RETURNING d.tenant, d.kinds, d.resources, d.held
        )
        SELECT tenant, kinds, resources, sum(held)::bigint AS more FROM noted GROUP BY tenant, kinds, resources
    LOOP
        IF lane.more = 0 THEN
            SELECT h.held INTO now_held FROM arclog.holding h WHERE h.pool = of_pool AND h.tenant = lane.tenant;
            now_held := coalesce(now_held, 0);
        ELSE
            INSERT INTO arclog.holding AS h (pool, tenant, held) VALUES (of_pool, lane.tenant, lane.more)
            ON CONFLICT (pool, tenant) DO UPDATE SET held = h.held + excluded.held
            RETURNING h.held INTO now_held;
            IF now_held <= 0 THEN
                DELETE FROM arclog.holding h WHERE h.pool = of_pool AND h.tenant = lane.tenant;
            END IF;
        END IF;
        SELECT c.rank, c.command_id INTO first_command FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = of_pool AND c.tenant = lane.tenant AND c.kinds = lane.kinds
          AND c.resources = lane.resources
        ORDER BY c.rank, c.command_id LIMIT 1;
        IF FOUND THEN
            INSERT INTO arclog.lanes AS l (pool, tenant, kinds, resources, held, served, rank, command_id)
            VALUES (of_pool, lane.tenant, lane.kinds, lane.resources, now_held, coalesce((
                SELECT s.served FROM arclog.service s WHERE s.pool = of_pool AND s.tenant = lane.tenant
            ), 0), first_command.rank, first_command.command_id)
            ON CONFLICT (pool, tenant, kinds, resources) DO UPDATE
            SET held = excluded.held, rank = excluded.rank, command_id = excluded.command_id;
        ELSE
            -- By pool and tenant: a planner without statistics would otherwise take the index of the order, and read all lanes.
            DELETE FROM arclog.lanes l WHERE l.pool = of_pool AND l.tenant = lane.tenant
              AND (l.kinds, l.resources) IS NOT DISTINCT FROM (lane.kinds, lane.resources);
        END IF;
        IF lane.more <> 0 THEN  -- the tenant's other lanes
            UPDATE arclog.lanes l SET held = now_held
            WHERE l.pool = of_pool AND l.tenant = lane.tenant AND l.held <> now_held;
        END IF;
    END LOOP;
END $$;

-- The lane that comes first of those with the same needs as `first`, which holds the fewest commands and was served least. Values of
-- service up to the pool's present count alike, so the first lane of each is looked at. More than `stale` of them are merged.
CREATE FUNCTION arclog.first_lane(first arclog.lanes, present bigint, stale bigint)
RETURNS arclog.lanes LANGUAGE plpgsql AS $$
DECLARE
    lane arclog.lanes := first;
    best arclog.lanes := first;
BEGIN
    FOR n IN 0 .. stale LOOP
        SELECT l.* INTO lane FROM arclog.lanes l
        WHERE l.pool = first.pool AND l.kinds = first.kinds AND l.resources = first.resources AND l.held = first.held
          AND l.served > lane.served AND l.served <= present
        ORDER BY l.served, l.rank, l.command_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF (lane.rank, lane.command_id) < (best.rank, best.command_id) THEN
            best := lane;
        END IF;
        IF n = stale THEN
            UPDATE arclog.lanes l SET served = 0 FROM (
                SELECT b.tenant FROM arclog.lanes b
                WHERE b.pool = first.pool AND b.kinds = first.kinds AND b.resources = first.resources AND b.held = first.held
                  AND b.served > 0 AND b.served <= present
                LIMIT 1000
            ) behind
            WHERE l.pool = first.pool AND l.tenant = behind.tenant
              AND (l.kinds, l.resources) IS NOT DISTINCT FROM (first.kinds, first.resources);
            SELECT l.* INTO lane FROM arclog.lanes l
            WHERE l.pool = first.pool AND l.kinds = first.kinds AND l.resources = first.resources
            ORDER BY l.held, l.served, l.rank, l.command_id LIMIT 1;
            RETURN arclog.first_lane(lane, present, stale);
        END IF;
    END LOOP;
    RETURN best;
END $$;

-- Takes the turn of a crowded pool and claims one command after the other: of the tenant that holds the fewest, then of the one that was
-- served least, then the oldest, as `stores.claim_choice` says. It returns a row of nulls and takes nothing if a limit or a resource
-- is set, if the pool is not crowded, if no lane fits, or if there are no more than `few` lanes (-1: they are not counted).
CREATE FUNCTION arclog.claim_in_turn(
    of_pool text, fitting bytea[], worker text, lease bigint, most bigint, few bigint, stale bigint
) RETURNS SETOF arclog.commands LANGUAGE plpgsql SET enable_sort = off AS $$
DECLARE
    lane arclog.lanes;
    best arclog.lanes;
    present bigint;   -- how often the least served tenants of the pool were served
    shared boolean;   -- whether several tenants wait
    head record;
    command arclog.commands;
BEGIN
    PERFORM pg_advisory_xact_lock(1634886669, hashtext(of_pool));
    IF EXISTS (SELECT FROM arclog.limits) OR EXISTS (SELECT FROM arclog.resources)
        OR NOT EXISTS (SELECT FROM arclog.crowded c WHERE c.pool = of_pool AND c.built) THEN
        RETURN NEXT NULL;
        RETURN;
    END IF;
    IF few >= 0 THEN
        IF few >= (SELECT count(*) FROM (SELECT FROM arclog.lanes l WHERE l.pool = of_pool LIMIT few + 1) first_lanes) THEN
            RETURN NEXT NULL;
            RETURN;
        END IF;
    END IF;
    FOR n IN 1 .. most LOOP
        PERFORM arclog.read_notes(of_pool, 1000);
        SELECT s.served INTO present FROM arclog.service s WHERE s.pool = of_pool AND s.tenant = '';
        present := coalesce(present, 0);
        best := NULL;
        shared := false;
        SELECT l.* INTO lane FROM arclog.lanes l WHERE l.pool = of_pool
        ORDER BY l.kinds, l.resources, l.held, l.served, l.rank, l.command_id LIMIT 1;
        WHILE FOUND LOOP
            IF lane.kinds <@ fitting THEN
                IF lane.served < present THEN
                    lane := arclog.first_lane(lane, present, stale);
                END IF;
                shared := shared OR lane.tenant <> coalesce(best.tenant, lane.tenant) OR EXISTS (
                    SELECT FROM arclog.lanes l WHERE l.pool = of_pool AND l.kinds = lane.kinds AND l.resources = lane.resources
                      AND l.tenant <> lane.tenant);
                lane.served := greatest(lane.served, present);
                IF best.pool IS NULL OR (lane.held, lane.served, lane.rank, lane.command_id)
                    < (best.held, best.served, best.rank, best.command_id) THEN
                    best := lane;
                END IF;
            END IF;
            SELECT l.* INTO lane FROM arclog.lanes l
            WHERE l.pool = of_pool AND (l.kinds, l.resources) > (lane.kinds, lane.resources)
            ORDER BY l.kinds, l.resources, l.held, l.served, l.rank, l.command_id LIMIT 1;
        END LOOP;
        IF best.pool IS NULL THEN
            IF n = 1 THEN
                RETURN NEXT NULL;
            END IF;
            RETURN;
        END IF;
        SELECT c.execution_id, c.command_id INTO head FROM arclog.commands c
        WHERE c.lease_until = 0 AND c.pool = of_pool AND c.tenant = best.tenant AND c.kinds = best.kinds
          AND c.resources = best.resources
        ORDER BY c.rank, c.command_id LIMIT 1;
        UPDATE arclog.commands c
        SET fence = c.fence + 1, worker_id = worker, lease_until = lease, by_command = 0, by_fence = 0, by_n = 0
        WHERE c.execution_id = head.execution_id AND c.command_id = head.command_id AND c.lease_until = 0
        RETURNING c.* INTO command;
        CONTINUE WHEN NOT FOUND;  -- somebody else took it or closed it meanwhile
        RETURN NEXT command;
        CONTINUE WHEN NOT shared;
        INSERT INTO arclog.service (pool, tenant, served) VALUES (of_pool, best.tenant, best.served + 1)
        ON CONFLICT (pool, tenant) DO UPDATE SET served = excluded.served;
        IF best.served > present THEN
            INSERT INTO arclog.service (pool, tenant, served) VALUES (of_pool, '', best.served)
            ON CONFLICT (pool, tenant) DO UPDATE SET served = excluded.served;
        END IF;
        -- Tenants at the present or behind it need no row. A few of them are removed; the next claims find the others.
        DELETE FROM arclog.service s WHERE s.ctid = ANY (ARRAY (
            SELECT o.ctid FROM arclog.service o
            WHERE o.pool = of_pool AND o.served <= best.served AND o.tenant <> '' ORDER BY o.served LIMIT 10));
    END LOOP;
END $$;
