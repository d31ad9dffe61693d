-- Version 1: the whole schema.
--
-- The file may also hold the user's own tables, so every name begins with holdfast_ and user_version is left to them.
-- Times are whole microseconds: since 1970 (UTC) in job and key, since the machine's boot in holder.

CREATE TABLE holdfast_schema (
    version INTEGER NOT NULL PRIMARY KEY,
    applied_at INTEGER NOT NULL
);

-- The columns stand in the order of holdfast.job.Record, with the store's own (nonce, settled, bounds) among the last.
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
    reset_count INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    token INTEGER NOT NULL DEFAULT 0,
    holder TEXT,
    pid INTEGER,
    quarantined INTEGER NOT NULL DEFAULT 0 CHECK (quarantined IN (0, 1)),   -- claims look for these two alone
    crashes INTEGER NOT NULL DEFAULT 0,
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
    settled INTEGER,            -- the nonce of the last settlement, by which a re-sent one is recognised
    waiting_for TEXT,                 -- what it waits for
    limit_key TEXT,                  -- the limit key's name
    bounds TEXT,                -- the limit key's numbers, as JSON: [running, interval, burst, weight]
    extra BLOB,                 -- the core's own words
    saves INTEGER NOT NULL DEFAULT 0,   -- checkpoints are numbered, so that one which comes late is known
    changed_at INTEGER
);

-- What a claim takes, in its order; quarantined jobs stand apart.
CREATE INDEX holdfast_ready ON holdfast_job (queue, quarantined, priority, run_at, seq) WHERE state = 'queued';
-- What becomes ready by the clock.
CREATE INDEX holdfast_due ON holdfast_job (queue, run_at, seq) WHERE state IN ('scheduled', 'failed');
-- What a holder has.
CREATE INDEX holdfast_running ON holdfast_job (holder) WHERE state = 'running';
-- The dead letters and the cancelled, newest last.
CREATE INDEX holdfast_unsuccessful ON holdfast_job (state, seq) WHERE state IN ('dead', 'cancelled');
-- What retention removes.
CREATE INDEX holdfast_expiry ON holdfast_job (expires_at) WHERE expires_at IS NOT NULL;
-- What waits for something, newest last.
CREATE INDEX holdfast_waiting_for ON holdfast_job (waiting_for) WHERE waiting_for IS NOT NULL;
-- What limit keys hold, in the order in which it is let go.
CREATE INDEX holdfast_deferred ON holdfast_job (waiting_for, priority, run_at, seq) WHERE waiting_for IS NOT NULL AND limit_key IS NOT NULL;
-- What runs of a limit key; with the state, so that counting reads no job.
CREATE INDEX holdfast_limit_key ON holdfast_job (limit_key, state) WHERE limit_key IS NOT NULL AND state = 'running';
-- What waits, but not for its time alone.
CREATE INDEX holdfast_blocked ON holdfast_job (queue) WHERE state = 'blocked';

-- Big payloads stand apart, so that a claim or a settle does not write them again.
CREATE TABLE holdfast_payload (
    seq INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TRIGGER holdfast_payload_gone AFTER DELETE ON holdfast_job WHEN old.payload IS NULL
BEGIN
    DELETE FROM holdfast_payload WHERE seq = old.seq;
END;

-- What jobs print, in pieces, the newest kept within a limit; it goes with its job.
CREATE TABLE holdfast_output (
    seq INTEGER NOT NULL,       -- the job's
    position INTEGER NOT NULL,  -- in bytes over all claims of the job
    fence INTEGER NOT NULL,     -- of the claim that printed it
    at INTEGER NOT NULL,        -- in bytes since that claim began to print
    data BLOB NOT NULL,
    PRIMARY KEY (seq, position)
);
CREATE TRIGGER holdfast_output_gone AFTER DELETE ON holdfast_job
BEGIN
    DELETE FROM holdfast_output WHERE seq = old.seq;
END;

-- Ended jobs are counted as they come and go: there may be millions, and a look at the queues must not read them.
CREATE TABLE holdfast_ended (
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (queue, state)
) WITHOUT ROWID;

-- Idempotency keys; they outlive their jobs.
CREATE TABLE holdfast_key (
    key TEXT NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    expires_at INTEGER,         -- NULL while the job lives
    made_at INTEGER NOT NULL DEFAULT 0  -- when its job was made
);
CREATE INDEX holdfast_key_expiry ON holdfast_key (expires_at) WHERE expires_at IS NOT NULL;

-- Whoever holds claims. A lease counts only within the boot that it was given in.
CREATE TABLE holdfast_holder (
    id TEXT NOT NULL PRIMARY KEY,
    about TEXT NOT NULL,        -- JSON of holdfast.job.Holder
    heartbeat INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL,
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

-- What is remembered of a limit key (holdfast.core.limiter.Limiter). One of which nothing is to be remembered has no row.
CREATE TABLE holdfast_limiter (
    limit_key TEXT NOT NULL PRIMARY KEY,
    tat INTEGER NOT NULL DEFAULT 0,
    rest_until INTEGER NOT NULL DEFAULT 0,
    finish INTEGER NOT NULL DEFAULT 0,
    opens_at INTEGER            -- NULL: not by the clock
) WITHOUT ROWID;
CREATE INDEX holdfast_opening ON holdfast_limiter (opens_at, limit_key) WHERE opens_at IS NOT NULL;
CREATE INDEX holdfast_idle ON holdfast_limiter (max(tat, rest_until, finish));

-- One row: until when moves are kept (microseconds since 1970).
CREATE TABLE holdfast_watch (
    until INTEGER NOT NULL
);
INSERT INTO holdfast_watch (until) VALUES (0);

-- What moved, while somebody watches: one row per commit. `upto` counts the moves of this row and all before it.
CREATE TABLE holdfast_move (
    upto INTEGER NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    moved TEXT NOT NULL         -- JSON: [[id, state], …]
);

-- How claims ended, minute by minute.
CREATE TABLE holdfast_minute (
    at INTEGER NOT NULL,        -- its beginning
    queue TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL,
    waited INTEGER NOT NULL,    -- microseconds, added up
    ran INTEGER NOT NULL,
    PRIMARY KEY (at, queue, outcome)
) WITHOUT ROWID;
