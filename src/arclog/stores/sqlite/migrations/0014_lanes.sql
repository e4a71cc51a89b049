-- Claims in pools where many tenants wait: the lanes in the order of their turns, so that a claim looks at the first of them
-- alone. Triggers keep them, whichever release changes a command; in other pools these tables are empty.
CREATE TABLE crowded (
    pool TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Commands that workers hold.
CREATE TABLE holding (
    pool   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    held   INTEGER NOT NULL,
    PRIMARY KEY (pool, tenant)
) STRICT, WITHOUT ROWID;

-- One row for each lane in which a command waits.
CREATE TABLE lanes (
    pool         TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    kinds        TEXT    NOT NULL,
    resources    TEXT    NOT NULL,
    held         INTEGER NOT NULL,  -- as in `holding`
    served       INTEGER NOT NULL,  -- as in `service`; what lies behind the pool's present counts as if it stood there
    rank         INTEGER NOT NULL,  -- of its first command
    command_id   INTEGER NOT NULL,
    execution_id INTEGER NOT NULL,
    PRIMARY KEY (pool, tenant, kinds, resources)
) STRICT, WITHOUT ROWID;
CREATE INDEX lanes_in_turn ON lanes (pool, kinds, resources, held, served, rank, command_id);

CREATE INDEX service_by_count ON service (pool, served);

CREATE TRIGGER lane_opened AFTER INSERT ON commands
WHEN NEW.lease_until = 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = NEW.pool)
BEGIN
    INSERT INTO lanes (pool, tenant, kinds, resources, held, served, rank, command_id, execution_id) VALUES (
        NEW.pool, NEW.tenant, NEW.kinds, NEW.resources,
        coalesce((SELECT held FROM holding WHERE pool = NEW.pool AND tenant = NEW.tenant), 0),
        coalesce((SELECT served FROM service WHERE pool = NEW.pool AND tenant = NEW.tenant), 0),
        NEW.rank, NEW.command_id, NEW.execution_id
    ) ON CONFLICT DO UPDATE
    SET rank = excluded.rank, command_id = excluded.command_id, execution_id = excluded.execution_id
    WHERE (excluded.rank, excluded.command_id) < (rank, command_id);
END;

CREATE TRIGGER lane_opened_again AFTER UPDATE OF lease_until ON commands
WHEN OLD.lease_until <> 0 AND NEW.lease_until = 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = NEW.pool)
BEGIN
    INSERT INTO lanes (pool, tenant, kinds, resources, held, served, rank, command_id, execution_id) VALUES (
        NEW.pool, NEW.tenant, NEW.kinds, NEW.resources,
        coalesce((SELECT held FROM holding WHERE pool = NEW.pool AND tenant = NEW.tenant), 0),
        coalesce((SELECT served FROM service WHERE pool = NEW.pool AND tenant = NEW.tenant), 0),
        NEW.rank, NEW.command_id, NEW.execution_id
    ) ON CONFLICT DO UPDATE
    SET rank = excluded.rank, command_id = excluded.command_id, execution_id = excluded.execution_id
    WHERE (excluded.rank, excluded.command_id) < (rank, command_id);
END;

-- A lane's first command is gone: the next takes its place, or nobody waits there any more.
CREATE TRIGGER lane_moved AFTER UPDATE OF lease_until ON commands
WHEN OLD.lease_until = 0 AND NEW.lease_until <> 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = OLD.pool)
BEGIN
    UPDATE lanes SET (rank, command_id, execution_id) = (
        SELECT coalesce(min(rank), -1), coalesce(command_id, -1), coalesce(execution_id, -1) FROM (
            SELECT rank, command_id, execution_id FROM commands c
            WHERE c.lease_until = 0 AND c.pool = OLD.pool AND c.tenant = OLD.tenant AND c.kinds = OLD.kinds
              AND c.resources = OLD.resources
            ORDER BY rank, command_id LIMIT 1
        )
    )
    WHERE pool = OLD.pool AND tenant = OLD.tenant AND kinds = OLD.kinds AND resources = OLD.resources
      AND command_id = OLD.command_id;
    DELETE FROM lanes WHERE pool = OLD.pool AND tenant = OLD.tenant AND kinds = OLD.kinds AND resources = OLD.resources
      AND command_id = -1;
END;

CREATE TRIGGER lane_left AFTER DELETE ON commands
WHEN OLD.lease_until = 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = OLD.pool)
BEGIN
    UPDATE lanes SET (rank, command_id, execution_id) = (
        SELECT coalesce(min(rank), -1), coalesce(command_id, -1), coalesce(execution_id, -1) FROM (
            SELECT rank, command_id, execution_id FROM commands c
            WHERE c.lease_until = 0 AND c.pool = OLD.pool AND c.tenant = OLD.tenant AND c.kinds = OLD.kinds
              AND c.resources = OLD.resources
            ORDER BY rank, command_id LIMIT 1
        )
    )
    WHERE pool = OLD.pool AND tenant = OLD.tenant AND kinds = OLD.kinds AND resources = OLD.resources
      AND command_id = OLD.command_id;
    DELETE FROM lanes WHERE pool = OLD.pool AND tenant = OLD.tenant AND kinds = OLD.kinds AND resources = OLD.resources
      AND command_id = -1;
END;

CREATE TRIGGER held_by_grant AFTER INSERT ON commands
WHEN NEW.lease_until > 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = NEW.pool)
BEGIN
    INSERT INTO holding (pool, tenant, held) VALUES (NEW.pool, NEW.tenant, 1) ON CONFLICT DO UPDATE SET held = held + 1;
    UPDATE lanes SET held = held + 1 WHERE pool = NEW.pool AND tenant = NEW.tenant;
END;

CREATE TRIGGER held_by_claim AFTER UPDATE OF lease_until ON commands
WHEN OLD.lease_until <= 0 AND NEW.lease_until > 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = NEW.pool)
BEGIN
    INSERT INTO holding (pool, tenant, held) VALUES (NEW.pool, NEW.tenant, 1) ON CONFLICT DO UPDATE SET held = held + 1;
    UPDATE lanes SET held = held + 1 WHERE pool = NEW.pool AND tenant = NEW.tenant;
END;

CREATE TRIGGER held_no_more AFTER UPDATE OF lease_until ON commands
WHEN OLD.lease_until > 0 AND NEW.lease_until <= 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = OLD.pool)
BEGIN
    UPDATE holding SET held = held - 1 WHERE pool = OLD.pool AND tenant = OLD.tenant;
    DELETE FROM holding WHERE pool = OLD.pool AND tenant = OLD.tenant AND held <= 0;
    UPDATE lanes SET held = held - 1 WHERE pool = OLD.pool AND tenant = OLD.tenant;
END;

CREATE TRIGGER held_until_closed AFTER DELETE ON commands
WHEN OLD.lease_until > 0 AND EXISTS (SELECT 1 FROM crowded WHERE pool = OLD.pool)
BEGIN
    UPDATE holding SET held = held - 1 WHERE pool = OLD.pool AND tenant = OLD.tenant;
    DELETE FROM holding WHERE pool = OLD.pool AND tenant = OLD.tenant AND held <= 0;
    UPDATE lanes SET held = held - 1 WHERE pool = OLD.pool AND tenant = OLD.tenant;
END;

CREATE TRIGGER served_first AFTER INSERT ON service WHEN NEW.tenant <> ''
BEGIN
    UPDATE lanes SET served = NEW.served WHERE pool = NEW.pool AND tenant = NEW.tenant;
END;

CREATE TRIGGER served_again AFTER UPDATE OF served ON service WHEN NEW.tenant <> ''
BEGIN
    UPDATE lanes SET served = NEW.served WHERE pool = NEW.pool AND tenant = NEW.tenant;
END;
