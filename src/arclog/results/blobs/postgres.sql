-- The statements on results in PostgreSQL. {s} is the schema, {now} the database's own time in microseconds since 1970.
-- A blob without a sha256 is being written, and its stored_at is when its last part came.

-- name: is_schema_there
SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s

-- name: schema
CREATE SCHEMA {s}

-- name: tables
CREATE TABLE {s}.result_blobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    sha256 text,
    stored_bytes bigint NOT NULL DEFAULT 0,
    stored_at bigint NOT NULL,
    parts_index bytea
);
CREATE UNIQUE INDEX result_blobs_by_name ON {s}.result_blobs (tenant, sha256) WHERE sha256 IS NOT NULL;
CREATE INDEX result_blobs_unfinished ON {s}.result_blobs (stored_at) WHERE sha256 IS NULL;
CREATE TABLE {s}.result_parts (
    blob bigint NOT NULL REFERENCES {s}.result_blobs ON DELETE CASCADE,
    number integer NOT NULL,
    frame bytea NOT NULL,
    PRIMARY KEY (blob, number)
);
-- It is packed already.
ALTER TABLE {s}.result_parts ALTER COLUMN frame SET STORAGE EXTERNAL

-- name: are_tables_there
-- Not by to_regclass: what a connection found under a name, or did not, it believes until its next transaction.
SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'result_parts'

-- name: begin
INSERT INTO {s}.result_blobs (tenant, stored_at) VALUES (%s, {now}) RETURNING id

-- name: put
WITH written AS (UPDATE {s}.result_blobs SET stored_at = {now} WHERE id = %s AND sha256 IS NULL RETURNING id)
INSERT INTO {s}.result_parts (blob, number, frame) SELECT id, %s, %b FROM written
ON CONFLICT (blob, number) DO UPDATE SET frame = excluded.frame RETURNING number

-- name: durable
-- What was committed before is on the disk when this transaction is: the database's log is written in order.
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'

-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))

-- name: renew
UPDATE {s}.result_blobs SET stored_at = greatest({now}, stored_at + 1) WHERE id = %s

-- name: name
UPDATE {s}.result_blobs SET sha256 = %s, parts_index = %b, stored_bytes = %s, stored_at = greatest({now}, %s + 1)
WHERE id = %s AND sha256 IS NULL

-- name: drop
DELETE FROM {s}.result_blobs WHERE id = %s

-- name: forget
DELETE FROM {s}.result_blobs WHERE id = %s AND sha256 IS NULL

-- name: open
SELECT id, CASE WHEN id = ANY(%s::bigint[]) THEN NULL ELSE parts_index END, stored_at, stored_bytes
FROM {s}.result_blobs WHERE tenant = %s AND sha256 = %s

-- name: part
SELECT frame FROM {s}.result_parts WHERE blob = %s AND number = %s

-- name: find
SELECT stored_bytes, stored_at FROM {s}.result_blobs WHERE tenant = %s AND sha256 = %s

-- name: remove
DELETE FROM {s}.result_blobs WHERE tenant = %s AND sha256 = %s AND (%s::bigint IS NULL OR stored_at = %s) RETURNING id

-- name: all
SELECT id, tenant, sha256, stored_bytes, stored_at FROM {s}.result_blobs
WHERE sha256 IS NOT NULL AND id > %s ORDER BY id LIMIT %s

-- name: leftovers
DELETE FROM {s}.result_blobs WHERE sha256 IS NULL AND stored_at < %s RETURNING id
