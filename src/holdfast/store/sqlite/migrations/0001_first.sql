-- Version 1: jobs, keys, holders and small shared records.
-- The file may also hold the user's own tables, so every name begins with holdfast_ and user_version is left to them.
-- Times are whole microseconds: since 1970 (UTC) in job and key, since the machine's boot in holder.

CREATE TABLE holdfast_schema (
    version INTEGER NOT NULL PRIMARY KEY,
    applied_at INTEGER NOT NULL
);

-- The columns stand in the order of holdfast.job.Record, then the store's own.
-- AUTOINCREMENT: a number is never given twice, so a stale one can never mean another job.
CREATE TABLE holdfast_job (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    run_at INTEGER NOT NULL,
    payload BLOB,               -- NULL: too big for the row, kept in holdfast_payload
    codec TEXT NOT NULL,
    max_attempts INTEGER NOT NULL,
    timeout REAL,
    key TEXT,
    created_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    life INTEGER NOT NULL DEFAULT 1,
    fence INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0,
    holder TEXT,
    pid INTEGER,
    suspect INTEGER NOT NULL DEFAULT 0 CHECK (suspect IN (0, 1)),   -- claims look for these two alone
    deaths INTEGER NOT NULL DEFAULT 0,
    cancel INTEGER NOT NULL DEFAULT 0,
    started_at INTEGER,
    finished_at INTEGER,
    expires_at INTEGER,
    result BLOB,
    error TEXT,
    traceback TEXT,
    progress BLOB,
    checkpoint BLOB,
    tags TEXT,                  -- JSON, NULL when empty; so are the next three
    meta TEXT,
    retry TEXT,
    history TEXT,
    nonce INTEGER NOT NULL DEFAULT 0,
    settled INTEGER             -- the nonce of the last settlement, by which a re-sent one is recognised
);

-- What a claim takes, in its order; suspects stand apart.
CREATE INDEX holdfast_ready ON holdfast_job (queue, suspect, priority, run_at, seq) WHERE state = 'queued';
-- What becomes ready by the clock.
CREATE INDEX holdfast_due ON holdfast_job (queue, run_at, seq) WHERE state IN ('scheduled', 'failed');
-- What a holder has.
CREATE INDEX holdfast_running ON holdfast_job (holder) WHERE state = 'running';
-- The dead letters and the cancelled, newest last.
CREATE INDEX holdfast_parked ON holdfast_job (state, seq) WHERE state IN ('dead', 'cancelled');
-- What retention removes.
CREATE INDEX holdfast_expiry ON holdfast_job (expires_at) WHERE expires_at IS NOT NULL;

-- Big payloads stand apart, so that a claim or a settle does not write them again.
CREATE TABLE holdfast_payload (
    seq INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TRIGGER holdfast_payload_gone AFTER DELETE ON holdfast_job WHEN old.payload IS NULL
BEGIN
    DELETE FROM holdfast_payload WHERE seq = old.seq;
END;

-- Idempotency keys; they outlive their jobs.
CREATE TABLE holdfast_key (
    key TEXT NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    expires_at INTEGER          -- NULL while the job lives
);
CREATE INDEX holdfast_key_expiry ON holdfast_key (expires_at) WHERE expires_at IS NOT NULL;

-- Whoever holds claims. A lease counts only within the boot that it was given in.
CREATE TABLE holdfast_holder (
    id TEXT NOT NULL PRIMARY KEY,
    about TEXT NOT NULL,        -- JSON of holdfast.job.Holder
    beat INTEGER NOT NULL,
    beaten_at INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    seen_at INTEGER NOT NULL    -- the wall clock at the last beat, for people
);

-- Config, pauses, schedules: small JSON values with a version for compare-and-set.
CREATE TABLE holdfast_record (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    UNIQUE (kind, name)
);
