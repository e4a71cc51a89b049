-- Runs that retention has begun to remove: their records are gone, some of the rest is not.
CREATE TABLE retiring (
    execution_id INTEGER PRIMARY KEY
) STRICT;
