-- Version 1: the whole schema.
--
-- The file may also have the user's own tables, so every name begins with holdfast_ and user_version is not used.
-- Times are whole microseconds: since 1970 (UTC) in job and key, since the machine's boot in holder.

CREATE TABLE holdfast_schema (
    version INTEGER NOT NULL PRIMARY KEY,
    applied_at INTEGER NOT NULL
);

-- The columns are in the order of holdfast.core.job.Record, with the store's own (nonce, settled, bounds) near the end.
-- AUTOINCREMENT: a seq is never used twice, so a stale one can never name another job.
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
    quarantined INTEGER NOT NULL DEFAULT 0 CHECK (quarantined IN (0, 1)),   -- claims look only for 0 and 1
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
    settled INTEGER,            -- the nonce of the last settlement, by which a repeated one is recognised
    waiting_for TEXT,                 -- what it waits for
    limit_key TEXT,                  -- the limit key's name
    bounds TEXT,                -- the limit key's numbers, as JSON: [running, interval, burst, weight]
    extra BLOB,                 -- internal metadata of the core
    saves INTEGER NOT NULL DEFAULT 0,   -- number of the last checkpoint, so that an older one that comes late is ignored
    changed_at INTEGER
);

-- Ready jobs, in the order of claims; quarantined jobs separately.
CREATE INDEX holdfast_ready ON holdfast_job (queue, quarantined, priority, run_at, seq) WHERE state = 'queued';
-- Jobs that become ready at a time; with the state, so that counting and listing read no job.
CREATE INDEX holdfast_due ON holdfast_job (queue, run_at, seq, state) WHERE state IN ('scheduled', 'failed');
-- Running jobs by holder.
CREATE INDEX holdfast_running ON holdfast_job (holder) WHERE state = 'running';
-- Dead and cancelled jobs, newest last; with the queue, so that listing those of a queue reads no other job.
CREATE INDEX holdfast_unsuccessful ON holdfast_job (state, seq, queue) WHERE state IN ('dead', 'cancelled');
-- Ended jobs by the end of their retention.
CREATE INDEX holdfast_expiry ON holdfast_job (expires_at) WHERE expires_at IS NOT NULL;
-- Jobs that wait for something, newest last.
CREATE INDEX holdfast_waiting_for ON holdfast_job (waiting_for) WHERE waiting_for IS NOT NULL;
-- Jobs deferred by limits, in the order of their release.
CREATE INDEX holdfast_deferred ON holdfast_job (waiting_for, priority, run_at, seq) WHERE waiting_for IS NOT NULL AND limit_key IS NOT NULL;
-- Running jobs by limit key; with the state, so that counting reads no job.
CREATE INDEX holdfast_limit_key ON holdfast_job (limit_key, state) WHERE limit_key IS NOT NULL AND state = 'running';
-- Blocked jobs.
CREATE INDEX holdfast_blocked ON holdfast_job (queue) WHERE state = 'blocked';

-- Big payloads are in a separate table, so that a claim or a settlement does not write them again.
CREATE TABLE holdfast_payload (
    seq INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TRIGGER holdfast_payload_gone AFTER DELETE ON holdfast_job WHEN old.payload IS NULL
BEGIN
    DELETE FROM holdfast_payload WHERE seq = old.seq;
END;

-- The output and the streams of jobs, in pieces, the newest of each kept within a limit; removed with the job.
CREATE TABLE holdfast_output (
    seq INTEGER NOT NULL,       -- the job's
    stream INTEGER NOT NULL,    -- whether it belongs to the job's stream
    position INTEGER NOT NULL,  -- in bytes over all claims of the job
    fence INTEGER NOT NULL,     -- of the claim that wrote it
    at INTEGER NOT NULL,        -- in bytes since the beginning of that claim's output
    data BLOB NOT NULL,
    PRIMARY KEY (seq, stream, position)
);
CREATE TRIGGER holdfast_output_gone AFTER DELETE ON holdfast_job
BEGIN
    DELETE FROM holdfast_output WHERE seq = old.seq;
END;

-- Counts of ended jobs: there may be millions, and the statistics of queues must not read them.
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
    expires_at INTEGER,         -- NULL until the job has ended
    made_at INTEGER NOT NULL DEFAULT 0  -- when its job was created
);
CREATE INDEX holdfast_key_expiry ON holdfast_key (expires_at) WHERE expires_at IS NOT NULL;

-- Holders of claims. A lease is valid only within the boot in which it was renewed.
CREATE TABLE holdfast_holder (
    id TEXT NOT NULL PRIMARY KEY,
    about TEXT NOT NULL,        -- JSON of holdfast.core.operations.Holder
    heartbeat INTEGER NOT NULL,
    renewed_at INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    seen_at INTEGER NOT NULL,   -- the wall clock at the last heartbeat, for display
    requests INTEGER NOT NULL DEFAULT 0  -- to cancel a job that ran here, or to the worker itself
);

-- Config, pauses, schedules: small JSON values with a version for compare-and-set.
CREATE TABLE holdfast_record (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    UNIQUE (kind, name)
);

-- The limiter of a limit key (holdfast.core.limiter.Limiter). An empty limiter has no row.
CREATE TABLE holdfast_limiter (
    limit_key TEXT NOT NULL PRIMARY KEY,
    tat INTEGER NOT NULL DEFAULT 0,
    rest_until INTEGER NOT NULL DEFAULT 0,
    finish INTEGER NOT NULL DEFAULT 0,
    opens_at INTEGER            -- NULL: not at a time
) WITHOUT ROWID;
CREATE INDEX holdfast_opening ON holdfast_limiter (opens_at, limit_key) WHERE opens_at IS NOT NULL;
CREATE INDEX holdfast_idle ON holdfast_limiter (max(tat, rest_until, finish));

-- One row: until when transitions are recorded (microseconds since 1970).
CREATE TABLE holdfast_watch (
    until INTEGER NOT NULL
);
INSERT INTO holdfast_watch (until) VALUES (0);

-- Transitions, while a client reads them: one row per commit. `upto` counts the transitions up to this row.
CREATE TABLE holdfast_transition (
    upto INTEGER NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    changes TEXT NOT NULL       -- JSON: [[id, state], …]
);

-- Statistics of ended claims, per minute.
CREATE TABLE holdfast_minute (
    at INTEGER NOT NULL,        -- the beginning of the minute
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    outcome TEXT NOT NULL,
    count INTEGER NOT NULL,
    waited INTEGER NOT NULL,    -- microseconds, added up
    ran INTEGER NOT NULL,
    waits BLOB NOT NULL,        -- MessagePack: how many waited how long, by bucket (core/histogram.py)
    runs BLOB NOT NULL,
    PRIMARY KEY (at, queue, task, outcome)
) WITHOUT ROWID;
