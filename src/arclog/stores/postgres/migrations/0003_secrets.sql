-- oldest: 2
-- Credentials of playbooks, sealed: the key is on the servers, never here.
CREATE TABLE arclog.secrets (
    name   text  NOT NULL COLLATE "C",
    scope  text  NOT NULL COLLATE "C",  -- tenant, tenant/project or tenant/project/environment
    fields text  NOT NULL,              -- JSON array
    set_at text  NOT NULL,
    key    text  NOT NULL,              -- which key it is sealed with
    nonce  bytea NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (name, scope)
);
