-- The tables. Version 1 is the whole schema: the parts of this folder, in the order of their names.
--
-- Times are whole microseconds since 1970, UTC, by the server's clock: holdfast.micros().
-- Hot rows are separate from history: unfinished jobs are in holdfast.job, ended jobs in holdfast.ended.
-- Text is compared by bytes (COLLATE "C"): the same in every locale of the database, and faster.

CREATE FUNCTION holdfast.micros() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * {MICROS})::bigint
$$;
COMMENT ON FUNCTION holdfast.micros() IS 'The one clock of this store: due times and leases are measured by it.';

CREATE SEQUENCE holdfast.job_seq;

-- In plpgsql, because every statement that writes a job prepares the expressions of its constraints anew.
CREATE FUNCTION holdfast.is_limit_key(value jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN jsonb_typeof(value -> 'name') = 'string'
        AND coalesce(value ->> 'concurrency', '0') ~ '^[0-9]{1,15}$' AND coalesce(value ->> 'interval', '0') ~ '^[0-9]{1,15}$'
        AND coalesce(value ->> 'burst', '1') ~ '^[0-9]{1,15}$' AND coalesce(value ->> 'weight', '0') ~ '^[0-9]{1,9}$';
END $$;

-- The columns are in the order of holdfast.core.job.Record, with the store's own (nonce, settled, gen) after history.
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
    reset_count integer NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    token bigint NOT NULL DEFAULT 0,
    holder text COLLATE "C",
    pid integer,
    quarantined boolean NOT NULL DEFAULT false,
    crashes integer NOT NULL DEFAULT 0,
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
    gen integer NOT NULL DEFAULT 1,     -- its generation: see holdfast.generation
    waiting_for text COLLATE "C",
    limit_key jsonb,
    extra bytea,
    saves integer NOT NULL DEFAULT 0,
    changed_at bigint,
    -- The functions below add to these numbers: one that is too large would stop every claim, not only that of this job.
    CONSTRAINT numbers_can_rise CHECK (attempt < 2000000000 AND fence < {LARGE}
        AND run_at BETWEEN 0 AND {LARGE} AND created_at BETWEEN 0 AND {LARGE}),
    CONSTRAINT limit_key_has_numbers CHECK (limit_key IS NULL OR holdfast.is_limit_key(limit_key))
) WITH (
    fillfactor = 85,                    -- room for notes to stay on their page
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.2,
    autovacuum_vacuum_cost_delay = 1, autovacuum_analyze_scale_factor = 0.2
);
CREATE UNIQUE INDEX job_id ON holdfast.job (id);
-- Ready jobs, in the order of claims; quarantined jobs separately.
CREATE INDEX job_ready ON holdfast.job (gen, queue, quarantined, priority, run_at, seq) WHERE state = 'queued';
-- Jobs that become ready at a time.
CREATE INDEX job_due ON holdfast.job (gen, queue, run_at, seq) WHERE state IN ('scheduled', 'failed');
-- The same jobs, newest last, so that listing those of a state reads no other job.
CREATE INDEX job_delayed ON holdfast.job (state, seq, queue) WHERE state IN ('scheduled', 'failed');
-- Running jobs by holder.
CREATE INDEX job_running ON holdfast.job (gen, holder) WHERE state = 'running';
-- Jobs that wait for something, newest last.
CREATE INDEX job_waiting_for ON holdfast.job (waiting_for, seq) WHERE waiting_for IS NOT NULL;
-- Jobs deferred by limits, in the order of their release. Jobs without a limit key are excluded first, which costs little.
CREATE INDEX job_deferred ON holdfast.job (gen, waiting_for, priority, run_at, seq) WHERE limit_key IS NOT NULL AND state = 'blocked';
-- Running jobs by limit key. `state || ''` keeps the planner from job_running, which looks as cheap while few jobs run.
CREATE INDEX job_limit_key ON holdfast.job (gen, ((limit_key ->> 'name') COLLATE "C"))
    WHERE limit_key IS NOT NULL AND state || '' = 'running';

-- Jobs that have ended, until their retention removes them.
CREATE TABLE holdfast.ended (
    LIKE holdfast.job INCLUDING DEFAULTS,
    PRIMARY KEY (seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_cost_delay = 1, autovacuum_analyze_scale_factor = 0.1
);
CREATE UNIQUE INDEX ended_id ON holdfast.ended (id);
-- Ended jobs by the end of their retention.
CREATE INDEX ended_expiry ON holdfast.ended (expires_at) WHERE expires_at IS NOT NULL;
-- Dead and cancelled jobs, newest last; with the queue, so that listing those of a queue reads no other job.
CREATE INDEX ended_unsuccessful ON holdfast.ended (state, seq, queue) WHERE state IN ('dead', 'cancelled');
CREATE INDEX ended_waiting_for ON holdfast.ended (waiting_for, seq) WHERE waiting_for IS NOT NULL;

-- The output and the streams of jobs, in pieces, the newest of each kept within a limit; removed with the job.
CREATE TABLE holdfast.output (
    seq bigint NOT NULL,                -- the job's
    stream boolean NOT NULL,            -- whether it belongs to the job's stream
    position bigint NOT NULL,           -- in bytes over all claims of the job
    fence bigint NOT NULL,              -- of the claim that wrote it
    at bigint NOT NULL,                 -- in bytes since the beginning of that claim's output
    data bytea NOT NULL,
    PRIMARY KEY (seq, stream, position)
) WITH (autovacuum_vacuum_scale_factor = 0.05);

-- Idempotency keys; they outlive their jobs.
CREATE TABLE holdfast.key (
    key text COLLATE "C" NOT NULL PRIMARY KEY,
    id text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    expires_at bigint,                  -- NULL until the job has ended
    made_at bigint NOT NULL DEFAULT 0   -- when its job was created
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX key_expiry ON holdfast.key (expires_at) WHERE expires_at IS NOT NULL;

-- Holders of claims: one row and one lease for all jobs of a worker. No index has a column that a heartbeat changes,
-- so every heartbeat is a HOT update inside its page.
CREATE TABLE holdfast.holder (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    about json NOT NULL,                -- holdfast.core.operations.Holder
    heartbeat bigint NOT NULL,
    renewed_at bigint NOT NULL,
    expires bigint NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Config, pauses, schedules: small JSON values with a version for compare-and-set, which is never used again.
CREATE TABLE holdfast.record (
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    version bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY,
    PRIMARY KEY (kind, name)
);

-- Generations keep claims fast while dead rows have not been removed yet, or an old snapshot prevents their removal.
-- A row enters the newest generation, and every index that claims and heartbeats read begins with the generation.
-- When the newest is worn (a claim has to skip many dead index entries) another is opened. The old one gets no more
-- rows; once it is empty it is removed from this table, and its dead entries are not read any more. Usually there are
-- one or two.
CREATE TABLE holdfast.generation (
    gen integer NOT NULL PRIMARY KEY,
    closed boolean NOT NULL DEFAULT false,  -- it gets no more rows, also from open transactions
    moved bigint NOT NULL DEFAULT 0         -- how often jobs were moved to it
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
INSERT INTO holdfast.generation (gen) VALUES (1);

-- The newest generation. A sequence, because its value is the same in every snapshot: a user's transaction that began
-- an hour ago must not add to a generation that was retired meanwhile.
CREATE SEQUENCE holdfast.newest_generation AS integer;
SELECT setval('holdfast.newest_generation', 1);

-- In a closed generation, no ready job comes before this place of its queue (except quarantined jobs).
CREATE TABLE holdfast.floor (
    gen integer NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority integer NOT NULL,
    run_at bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (gen, queue)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);
