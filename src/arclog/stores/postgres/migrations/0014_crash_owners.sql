-- oldest: 2
-- The process that wrote a record of work, or whose record was counted as a crash (ADR 080). Older releases leave it empty.
ALTER TABLE arclog.crashes ADD COLUMN owner text NOT NULL DEFAULT '';
