-- Task logs that can be searched, replaced (progress) and capped per execution.
ALTER TABLE task_logs RENAME TO task_logs_1;
DROP INDEX task_logs_by_execution;

CREATE TABLE task_logs (
    pos          INTEGER PRIMARY KEY,
    execution_id INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    step         TEXT    NOT NULL,
    run          INTEGER NOT NULL,
    task         TEXT    NOT NULL,
    task_run     INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    iteration    TEXT    NOT NULL,  -- '' outside a loop, else every index with a dot behind it: '3.0.'
    stream       TEXT    NOT NULL,
    text         BLOB    NOT NULL   -- UTF-8, in which lone surrogates stand as they are
) STRICT;
CREATE INDEX task_logs_by_execution ON task_logs (execution_id);
CREATE INDEX task_progress ON task_logs (execution_id, step, run, iteration, task, task_run, attempt)
    WHERE stream = 'progress';
CREATE INDEX task_progress_by_execution ON task_logs (execution_id) WHERE stream = 'progress';

-- What an execution's log takes: the bytes of its lines, and whether it was cut.
CREATE TABLE task_log_sizes (
    execution_id INTEGER PRIMARY KEY,
    bytes        INTEGER NOT NULL,
    cut          INTEGER NOT NULL
) STRICT;

-- A space before the text marks what JSON holds escaped; both forms are JSON all the same.
INSERT INTO task_logs (pos, execution_id, at, step, run, task, task_run, attempt, iteration, stream, text)
SELECT pos, execution_id,
       json_extract(line, '$.at'), json_extract(line, '$.step'), json_extract(line, '$.run'),
       json_extract(line, '$.task'), json_extract(line, '$.task_run'), json_extract(line, '$.attempt'),
       coalesce((SELECT group_concat(value || '.', '') FROM json_each(line, '$.iteration') WHERE type = 'integer'), ''),
       json_extract(line, '$.stream'), CAST(json_extract(line, '$.text') AS BLOB)
FROM (SELECT pos, execution_id, CAST(body AS TEXT) AS line FROM task_logs_1);
INSERT INTO task_log_sizes (execution_id, bytes, cut)
SELECT execution_id, sum(length(text) + 1), 0 FROM task_logs GROUP BY execution_id;
DROP TABLE task_logs_1;
