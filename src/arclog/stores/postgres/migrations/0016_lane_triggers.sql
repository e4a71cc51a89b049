-- oldest: 2
-- The triggers of `commands` are only on while a pool is crowded: to find out that none is, they took a tenth of the time of an append.
-- Whoever makes a pool crowded, of whichever release, holds a lock on `commands` that excludes changes until its transaction ends.
CREATE FUNCTION arclog.start_notes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Unconditionally: this transaction's snapshot may be older than the lock. It changes nothing if they are on.
    ALTER TABLE arclog.commands ENABLE TRIGGER lane_opened, ENABLE TRIGGER lane_changed, ENABLE TRIGGER lane_left;
    RETURN NULL;
END $$;
CREATE TRIGGER crowd_noticed AFTER INSERT ON arclog.crowded FOR EACH STATEMENT EXECUTE FUNCTION arclog.start_notes();

-- Turns the triggers off unless a pool is crowded. The caller has locked `commands`. In a stricter mode of isolation, this would not see
-- a pool that became crowded before the lock was granted.
CREATE FUNCTION arclog.stop_notes() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' AND NOT EXISTS (SELECT FROM arclog.crowded) THEN
        ALTER TABLE arclog.commands DISABLE TRIGGER lane_opened, DISABLE TRIGGER lane_changed, DISABLE TRIGGER lane_left;
    END IF;
END $$;

LOCK TABLE arclog.commands IN SHARE ROW EXCLUSIVE MODE;
SELECT arclog.stop_notes();
