-- oldest: 2
-- How many of the crashes of some work are deaths of servers that left no record of what they were doing, and during how many the work
-- was waiting (ADR 080).
ALTER TABLE arclog.crashes
    ADD COLUMN presumed bigint NOT NULL DEFAULT 0,
    ADD COLUMN waiting bigint NOT NULL DEFAULT 0;
-- Processes that may be the ones whose death is presumed to have been caused by a run: all that were registered at that time and have neither
-- shown that they are alive nor, after a restart in the same home, what they were doing when they died.
CREATE TABLE arclog.crash_suspects (
    execution_id bigint NOT NULL,
    owner        text NOT NULL,
    PRIMARY KEY (execution_id, owner)
);
