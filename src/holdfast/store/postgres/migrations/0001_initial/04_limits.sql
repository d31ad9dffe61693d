-- Limit keys: concurrency limits, rate limits and fair order.
--
-- holdfast.core.limiter has the rules. A claim defers a job whose limit does not let it start: the job becomes blocked,
-- and waits for `limit:NAME`. Claims exclude each other per limit key by locking its row in holdfast.limiter. Nothing else
-- locks that row, so neither a user's open transaction nor a settlement waits for a claim, or makes one wait.

-- The state of a limit key; created by the first claim that reads a job of it.
CREATE TABLE holdfast.limiter (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    tat bigint NOT NULL DEFAULT 0,          -- theoretical arrival time of the next start (as in GCRA)
    rest_until bigint NOT NULL DEFAULT 0,   -- no job starts before
    opens_at bigint,                        -- when to check its deferred jobs; NULL: not at a time
    used_at bigint NOT NULL DEFAULT holdfast.micros()   -- when it was created, or tidy last found it in use
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX limiter_opens ON holdfast.limiter (opens_at, name) WHERE opens_at IS NOT NULL;
CREATE INDEX limiter_idle ON holdfast.limiter (used_at);  -- not on its other times: each start would write to the index

-- Changes of limit keys since the last claim that read them. Rows are only appended, so that no writer waits for a
-- limiter; the next claim applies them.
CREATE TABLE holdfast.notice (
    gen integer NOT NULL,
    limit_keys text[] NOT NULL,
    rest_until bigint,                      -- no job of the one limit key starts before; NULL: jobs are no longer ready or running
    deferred boolean NOT NULL DEFAULT false -- each of them had deferred jobs then
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX notice_gen ON holdfast.notice (gen);
CREATE INDEX notice_rest ON holdfast.notice ((limit_keys[1] COLLATE "C")) WHERE rest_until IS NOT NULL;

-- The next position in the fair order, of each limit key with a weight. Not in its limiter, because an enqueue writes it.
CREATE TABLE holdfast.share (
    limit_key text COLLATE "C" NOT NULL PRIMARY KEY,
    finish bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX share_idle ON holdfast.share (finish);

-- The same for jobs that a user's transaction enqueued. It may stay open for long, so it only inserts: no transaction
-- waits for it, and its rows count once it has committed. holdfast.tidy() merges them into holdfast.share.
CREATE TABLE holdfast.share_part (
    limit_key text COLLATE "C" NOT NULL,
    finish bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX share_part_limit_key ON holdfast.share_part (limit_key, finish);

-- How many jobs of a limit key may start now. One expression, so that the planner can inline it.
CREATE FUNCTION holdfast.starts(limit_key jsonb, tat bigint, rest_until bigint, running bigint, now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN rest_until > now THEN 0 ELSE coalesce(least(
        CASE WHEN (limit_key ->> 'concurrency')::bigint > 0 THEN greatest(0, (limit_key ->> 'concurrency')::bigint - running) END,
        CASE WHEN (limit_key ->> 'interval')::bigint > 0 THEN greatest(0,
            coalesce((limit_key ->> 'burst')::bigint, 1) - (greatest(0, tat - now) + (limit_key ->> 'interval')::bigint - 1)
                / (limit_key ->> 'interval')::bigint) END
    ), 2147483648) END
$$;

-- When to check the remaining deferred jobs, after a release; NULL: when a job of the limit key is no longer ready or running.
CREATE FUNCTION holdfast.next_look(limit_key jsonb, tat bigint, rest_until bigint, running bigint, now bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    concurrency bigint := coalesce((limit_key ->> 'concurrency')::bigint, 0);
    step bigint := coalesce((limit_key ->> 'interval')::bigint, 0);
    burst bigint := coalesce((limit_key ->> 'burst')::bigint, 1);
    soonest bigint := rest_until;
BEGIN
    IF concurrency > 0 AND running >= concurrency THEN
        RETURN NULL;
    END IF;
    IF step > 0 THEN
        soonest := greatest(soonest, tat - (burst - 1) * step);
    END IF;
    RETURN CASE WHEN soonest > now THEN soonest ELSE now + coalesce(nullif(step, 0), {LOOK_AGAIN}) END;
END $$;

-- Whether a limit key has deferred jobs. The planner inlines this function and the next. They read generations and jobs
-- in one snapshot, so that a claim does not miss jobs that have just moved to a new generation.
CREATE FUNCTION holdfast.has_deferred(name text) RETURNS SETOF boolean LANGUAGE sql STABLE ROWS 1 AS $$
    -- Not EXISTS: a plan for many limit keys might then read the deferred jobs of all limit keys.
    SELECT (SELECT true FROM holdfast.job AS j
        WHERE j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)) AND j.waiting_for = '{LIMIT_PREFIX}' || name
            AND j.state = 'blocked' AND j.limit_key IS NOT NULL LIMIT 1) IS NOT NULL
$$;

-- The number of running jobs of a limit key.
CREATE FUNCTION holdfast.running(name text) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT count(*) FROM holdfast.job AS j
    WHERE j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)) AND (j.limit_key ->> 'name') COLLATE "C" = name
        AND j.state || '' = 'running' AND j.limit_key IS NOT NULL
$$;

-- Until when no job of a limit key starts, by the notices that no claim has applied yet.
CREATE FUNCTION holdfast.noticed_rest(name text) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT max(n.rest_until) FROM holdfast.notice AS n
    WHERE n.limit_keys[1] COLLATE "C" = name AND n.rest_until IS NOT NULL
$$;

-- Jobs of these limit keys and queues are no longer ready or running. Returns the queues whose listeners to notify.
CREATE FUNCTION holdfast.capacity_freed(names text[], queues text[]) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    notifying text[];
BEGIN
    -- Also without deferred jobs: a concurrent claim that still counts these jobs may be about to defer one.
    WITH room AS (
        SELECT u.name, u.queue, h.deferred
        FROM (SELECT DISTINCT x.name, x.queue FROM unnest(names, queues) AS x(name, queue)) AS u
        CROSS JOIN LATERAL holdfast.has_deferred(u.name) AS h(deferred)
    ), noticed AS (
        INSERT INTO holdfast.notice (gen, limit_keys, deferred)
        SELECT holdfast.open_generation(), array_agg(r.name), r.deferred FROM room AS r GROUP BY r.deferred
    )
    SELECT array_agg(DISTINCT r.queue) INTO notifying FROM room AS r WHERE r.deferred;
    RETURN coalesce(notifying, '{}');
END $$;
