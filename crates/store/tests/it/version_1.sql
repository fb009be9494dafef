-- The tables as version 1 of the state directory had them.
CREATE TABLE layer (
    id          TEXT PRIMARY KEY NOT NULL,
    below       TEXT REFERENCES layer(id) DEFERRABLE INITIALLY DEFERRED,
    sealed      INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    size_bytes  INTEGER NOT NULL
) STRICT;
CREATE INDEX layer_below ON layer(below);

CREATE TABLE sandbox (
    id            TEXT PRIMARY KEY NOT NULL,
    name          TEXT NOT NULL UNIQUE,
    parent        TEXT,
    base          TEXT REFERENCES layer(id),
    top           TEXT NOT NULL REFERENCES layer(id),
    policy        TEXT NOT NULL,
    template      TEXT NOT NULL,
    mounts        TEXT NOT NULL,
    directory     BLOB NOT NULL,
    created_ms    INTEGER NOT NULL,
    touched_ms    INTEGER NOT NULL,
    ttl_ms        INTEGER,
    fork_ctime_ns INTEGER NOT NULL,
    epoch         INTEGER NOT NULL
) STRICT;
CREATE INDEX sandbox_parent ON sandbox(parent);
CREATE INDEX sandbox_base ON sandbox(base);
CREATE INDEX sandbox_top ON sandbox(top);
CREATE INDEX sandbox_directory ON sandbox(directory, touched_ms);

CREATE TABLE snapshot (
    sandbox     TEXT NOT NULL REFERENCES sandbox(id) ON DELETE CASCADE,
    name        TEXT NOT NULL,
    layer       TEXT NOT NULL REFERENCES layer(id),
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (sandbox, name)
) STRICT;
CREATE INDEX snapshot_layer ON snapshot(layer);

CREATE TABLE run (
    id          TEXT PRIMARY KEY NOT NULL,
    sandbox     TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    pid_start   INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    cgroup      TEXT,
    started_ms  INTEGER NOT NULL
) STRICT;
CREATE INDEX run_sandbox ON run(sandbox);

CREATE TABLE volume (
    name        TEXT PRIMARY KEY NOT NULL,
    created_ms  INTEGER NOT NULL
) STRICT;

CREATE TABLE journal (
    seq         INTEGER PRIMARY KEY NOT NULL,
    prev        TEXT NOT NULL,
    hash        TEXT NOT NULL,
    sandbox     TEXT,
    body        TEXT NOT NULL
) STRICT;
CREATE INDEX journal_sandbox ON journal(sandbox, seq);

CREATE TABLE head (
    one         INTEGER PRIMARY KEY NOT NULL CHECK (one = 1),
    seq         INTEGER NOT NULL,
    hash        TEXT NOT NULL
) STRICT;

CREATE TABLE journal_salvaged (
    repaired_ms INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    prev        TEXT NOT NULL,
    hash        TEXT NOT NULL,
    body        TEXT NOT NULL
) STRICT;
