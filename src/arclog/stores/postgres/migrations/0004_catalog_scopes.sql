-- oldest: 2
-- Where versions of the catalog are valid that a key registered which is bound to a project or an environment; '' is any.
-- A version without a row is valid in its whole tenant.
CREATE TABLE arclog.catalog_scopes (
    tenant      text   NOT NULL COLLATE "C",
    path        text   NOT NULL COLLATE "C",
    version     bigint NOT NULL,
    project     text   NOT NULL COLLATE "C",
    environment text   NOT NULL COLLATE "C",
    PRIMARY KEY (tenant, path, version, project, environment)
);
