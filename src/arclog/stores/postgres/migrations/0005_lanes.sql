-- oldest: 2
-- Claims in pools where many tenants wait: the lanes in the order of their turns, so that a claim looks at the first of them
-- alone. Whoever changes a command of such a pool, of whichever release, leaves a note; the next claim, which has the pool's
-- turn, brings `lanes` and `holding` up to date. So appends wait for nobody. All of it can be made anew from the commands: it is
-- not logged, and empty after a crash.
CREATE UNLOGGED TABLE arclog.crowded (
    pool  text    PRIMARY KEY COLLATE "C",
    built boolean NOT NULL  -- lanes and holding are there
);

CREATE UNLOGGED TABLE arclog.lane_notes (
    n         bigint  GENERATED ALWAYS AS IDENTITY,
    pool      text    NOT NULL COLLATE "C",
    tenant    text    NOT NULL COLLATE "C",
    kinds     bytea[] NOT NULL,
    resources text    NOT NULL COLLATE "C",
    held      bigint  NOT NULL,  -- how many more are held
    PRIMARY KEY (pool, n)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);

-- Commands that workers hold.
CREATE UNLOGGED TABLE arclog.holding (
    pool   text   NOT NULL COLLATE "C",
    tenant text   NOT NULL COLLATE "C",
    held   bigint NOT NULL,
    PRIMARY KEY (pool, tenant)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);

-- One row for each lane in which a command waits.
CREATE UNLOGGED TABLE arclog.lanes (
    pool       text    NOT NULL COLLATE "C",
    tenant     text    NOT NULL COLLATE "C",
    kinds      bytea[] NOT NULL,
    resources  text    NOT NULL COLLATE "C",
    held       bigint  NOT NULL,  -- as in `holding`
    served     bigint  NOT NULL,  -- as in `service`; what lies behind the pool's present counts as if it stood there
    rank       bigint  NOT NULL,  -- of its first command
    command_id bigint  NOT NULL,
    PRIMARY KEY (pool, tenant, kinds, resources)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX lanes_in_turn ON arclog.lanes (pool, kinds, resources, held, served, rank, command_id);

CREATE INDEX service_by_count ON arclog.service (pool, served);

CREATE FUNCTION arclog.note_lane() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    more bigint := 0;
BEGIN
    IF TG_OP <> 'DELETE' AND NEW.lease_until > 0 THEN more := more + 1; END IF;
    IF TG_OP <> 'INSERT' AND OLD.lease_until > 0 THEN more := more - 1; END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO arclog.lane_notes (pool, tenant, kinds, resources, held)
        SELECT NEW.pool, NEW.tenant, NEW.kinds, NEW.resources, more FROM arclog.crowded c WHERE c.pool = NEW.pool;
    ELSE
        INSERT INTO arclog.lane_notes (pool, tenant, kinds, resources, held)
        SELECT OLD.pool, OLD.tenant, OLD.kinds, OLD.resources, more FROM arclog.crowded c WHERE c.pool = OLD.pool;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER lane_opened AFTER INSERT ON arclog.commands FOR EACH ROW
    WHEN (NEW.lease_until >= 0) EXECUTE FUNCTION arclog.note_lane();
CREATE TRIGGER lane_changed AFTER UPDATE OF lease_until ON arclog.commands FOR EACH ROW
    WHEN (sign(OLD.lease_until) <> sign(NEW.lease_until)) EXECUTE FUNCTION arclog.note_lane();
CREATE TRIGGER lane_left AFTER DELETE ON arclog.commands FOR EACH ROW
    WHEN (OLD.lease_until >= 0) EXECUTE FUNCTION arclog.note_lane();

CREATE FUNCTION arclog.note_service() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE arclog.lanes l SET served = NEW.served WHERE l.pool = NEW.pool AND l.tenant = NEW.tenant;
    RETURN NULL;
END $$;
CREATE TRIGGER lanes_served AFTER INSERT OR UPDATE ON arclog.service FOR EACH ROW
    WHEN (NEW.tenant <> '') EXECUTE FUNCTION arclog.note_service();
