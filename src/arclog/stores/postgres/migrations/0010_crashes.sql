-- oldest: 2
-- How often in a row servers died while they did some work on a run (engine.quarantine).
CREATE TABLE arclog.crashes (
    execution_id bigint NOT NULL,
    work         bigint NOT NULL,
    count        bigint NOT NULL,
    paused_at    bigint NOT NULL DEFAULT 0,  -- the run's head with its pause
    at           bigint NOT NULL,            -- of the latest
    PRIMARY KEY (execution_id, work)
);
