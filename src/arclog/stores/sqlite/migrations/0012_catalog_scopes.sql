-- Where versions of the catalog are valid that a key registered which is bound to a project or an environment; '' is any.
-- A version without a row is valid in its whole tenant.
CREATE TABLE catalog_scopes (
    tenant      TEXT    NOT NULL,
    path        TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    project     TEXT    NOT NULL,
    environment TEXT    NOT NULL,
    PRIMARY KEY (tenant, path, version, project, environment)
) STRICT, WITHOUT ROWID;
