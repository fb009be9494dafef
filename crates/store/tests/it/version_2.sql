-- What version 2 added to them.
CREATE TABLE apply (
    id          TEXT PRIMARY KEY NOT NULL,
    state       TEXT NOT NULL,
    root        BLOB NOT NULL,
    stages      TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    pid_start   INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    sandbox     TEXT,
    seq         INTEGER,
    undoes      TEXT,
    undone_by   TEXT,
    kept        INTEGER NOT NULL
) STRICT;
CREATE INDEX apply_unfinished ON apply(id) WHERE state NOT IN ('done', 'left');

CREATE TABLE capture (
    key         TEXT PRIMARY KEY NOT NULL,
    layer       TEXT NOT NULL REFERENCES layer(id),
    used_ms     INTEGER NOT NULL
) STRICT;
CREATE INDEX capture_layer ON capture(layer);
