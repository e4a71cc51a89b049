-- oldest: 2
-- How many of the crashes of some work are deaths of servers that left no record of what they were doing (ADR 080).
ALTER TABLE arclog.crashes ADD COLUMN presumed bigint NOT NULL DEFAULT 0;
