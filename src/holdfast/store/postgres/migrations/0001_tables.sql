-- Version 1: the tables.
--
-- Times are whole microseconds since 1970, UTC, by the server's clock: holdfast.micros().
-- Hot rows stand apart from history: holdfast.job holds what waits or runs, holdfast.ended what has ended.
-- Text compares byte by byte (COLLATE "C"), whatever the database's locale is, and faster.

CREATE FUNCTION holdfast.micros() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;
COMMENT ON FUNCTION holdfast.micros() IS 'The one clock of this store: due times and leases are measured by it.';

CREATE SEQUENCE holdfast.job_seq;

-- The columns stand in the order of holdfast.job.Record, then the store's own.
CREATE TABLE holdfast.job (
    seq bigint NOT NULL PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    run_at bigint NOT NULL,
    payload bytea NOT NULL,
    codec text COLLATE "C" NOT NULL,
    max_attempts integer NOT NULL,
    timeout double precision,
    key text COLLATE "C",
    created_at bigint NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    life integer NOT NULL DEFAULT 1,
    fence bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    holder text COLLATE "C",
    pid integer,
    suspect boolean NOT NULL DEFAULT false,
    deaths integer NOT NULL DEFAULT 0,
    cancel boolean NOT NULL DEFAULT false,
    started_at bigint,
    finished_at bigint,
    expires_at bigint,
    result bytea,
    error text,
    traceback text,
    progress bytea,
    checkpoint bytea,
    tags jsonb,                         -- NULL when empty; so are the next three
    meta json,
    retry json,
    history jsonb,
    nonce bigint NOT NULL DEFAULT 0,
    settled bigint,                     -- the nonce of the last settlement, by which a re-sent one is recognised
    gen integer NOT NULL DEFAULT 1      -- its generation: see holdfast.generation
) WITH (
    fillfactor = 85,                    -- room for notes to stay on their page
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 1, autovacuum_analyze_scale_factor = 0.2
);
CREATE UNIQUE INDEX job_id ON holdfast.job (id);
-- What a claim takes, in its order; suspects stand apart.
CREATE INDEX job_ready ON holdfast.job (queue, gen, suspect, priority, run_at, seq) WHERE state = 'queued';
-- What becomes ready by the clock.
CREATE INDEX job_due ON holdfast.job (queue, gen, run_at, seq) WHERE state IN ('scheduled', 'failed');
-- What a holder has.
CREATE INDEX job_running ON holdfast.job (holder, gen) WHERE state = 'running';

-- Jobs that have ended, until their retention removes them.
CREATE TABLE holdfast.ended (
    LIKE holdfast.job INCLUDING DEFAULTS,
    PRIMARY KEY (seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 1, autovacuum_analyze_scale_factor = 0.1
);
CREATE UNIQUE INDEX ended_id ON holdfast.ended (id);
-- What retention removes.
CREATE INDEX ended_expiry ON holdfast.ended (expires_at) WHERE expires_at IS NOT NULL;
-- The dead letters and the cancelled, newest last.
CREATE INDEX ended_parked ON holdfast.ended (state, seq) WHERE state IN ('dead', 'cancelled');

-- Idempotency keys; they outlive their jobs.
CREATE TABLE holdfast.key (
    key text COLLATE "C" NOT NULL PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    expires_at bigint                   -- NULL while the job lives
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX key_expiry ON holdfast.key (expires_at) WHERE expires_at IS NOT NULL;

-- Whoever holds claims: one row, one lease, for all of a worker's jobs. No index on what a beat changes,
-- so every beat is a HOT update inside its page.
CREATE TABLE holdfast.holder (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    about json NOT NULL,                -- holdfast.job.Holder
    beat bigint NOT NULL,
    beaten_at bigint NOT NULL,
    expires bigint NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Config, pauses, schedules: small JSON values with a version for compare-and-set.
CREATE TABLE holdfast.record (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Generations: how claims stay quick while an old snapshot keeps dead rows from being removed.
-- A row enters the newest generation, and every index that claims, due jobs and beats read begins with its generation.
-- When the newest is worn (a claim had to step over many dead entries), another is opened, and the old one only
-- empties: nothing steps over its dead any more once it is gone from this table. Usually there is one row here.
CREATE TABLE holdfast.generation (
    gen integer NOT NULL PRIMARY KEY,
    opened_at bigint NOT NULL
);
INSERT INTO holdfast.generation (gen, opened_at) VALUES (1, holdfast.micros());

-- In a generation that takes no more rows, nothing ready stands before this place of its queue.
CREATE TABLE holdfast.floor (
    gen integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    run_at bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (gen, queue)
) WITH (fillfactor = 50);
