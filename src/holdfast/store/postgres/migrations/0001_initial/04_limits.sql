-- Limit keys: how many jobs of one name run, how often one starts, and whose turn it is.
--
-- holdfast.core.limiter has the rules. A claim that meets a job whose limit key does not let it start holds it: it becomes
-- blocked, and waits for `limit:NAME`. Claims of one limit key take turns by its row in holdfast.gate; nobody else ever locks
-- that row, so neither a user's open transaction nor the end of a job waits for a claim, or has one wait for it.

-- What is remembered of a limit key; made by the first claim that meets it.
CREATE TABLE holdfast.limiter (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    tat bigint NOT NULL DEFAULT 0,          -- when the next start would arrive that came in step
    rest_until bigint NOT NULL DEFAULT 0,   -- no job starts before
    opens_at bigint,                        -- when to look at what is held, where that is a matter of time
    used_at bigint NOT NULL DEFAULT holdfast.micros()   -- when it was made, or retention last found it in use
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX limiter_opens ON holdfast.limiter (opens_at, name) WHERE opens_at IS NOT NULL;
CREATE INDEX limiter_idle ON holdfast.limiter (used_at);  -- not of its other times: starts would have to write to the index

-- What happened to limit keys since a claim last looked. Only ever appended to, so that nobody waits for a limiter; the next
-- claim takes it in.
CREATE TABLE holdfast.notice (
    gen integer NOT NULL,
    limit_keys text[] NOT NULL,
    rest_until bigint,                      -- no job of one limit key starts before; NULL: jobs have left the ready or the running
    held boolean NOT NULL DEFAULT false     -- each of them held something then
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX notice_gen ON holdfast.notice (gen);
CREATE INDEX notice_rest ON holdfast.notice ((limit_keys[1] COLLATE "C")) WHERE rest_until IS NOT NULL;

-- The turn after that of the last job, of each limit key with a weight. Apart from its limiter: this is written by who enqueues.
CREATE TABLE holdfast.share (
    limit_key text COLLATE "C" NOT NULL PRIMARY KEY,
    finish bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX share_idle ON holdfast.share (finish);

-- The same, of jobs that a user's transaction has enqueued. It may stay open for long, so it only ever adds: nobody waits
-- for it, and what it adds counts once it has committed. Retention takes these into the shares.
CREATE TABLE holdfast.share_part (
    limit_key text COLLATE "C" NOT NULL,
    finish bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX share_part_limit_key ON holdfast.share_part (limit_key, finish);

-- How many jobs of a limit key may start now, with so many running. One expression, so that it becomes part of a statement.
CREATE FUNCTION holdfast.starts(limit_key jsonb, tat bigint, rest_until bigint, running bigint, now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN rest_until > now THEN 0 ELSE coalesce(least(
        CASE WHEN (limit_key ->> 'concurrency')::bigint > 0 THEN greatest(0, (limit_key ->> 'concurrency')::bigint - running) END,
        CASE WHEN (limit_key ->> 'interval')::bigint > 0 THEN greatest(0,
            coalesce((limit_key ->> 'burst')::bigint, 1) - (greatest(0, tat - now) + (limit_key ->> 'interval')::bigint - 1)
                / (limit_key ->> 'interval')::bigint) END
    ), 2147483648) END
$$;

-- When to look again at what is still held, once as many as could were let go; NULL: when a job has left.
CREATE FUNCTION holdfast.next_look(limit_key jsonb, tat bigint, rest_until bigint, running bigint, now bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most bigint := coalesce((limit_key ->> 'concurrency')::bigint, 0);
    step bigint := coalesce((limit_key ->> 'interval')::bigint, 0);
    burst bigint := coalesce((limit_key ->> 'burst')::bigint, 1);
    soonest bigint := rest_until;
BEGIN
    IF most > 0 AND running >= most THEN
        RETURN NULL;
    END IF;
    IF step > 0 THEN
        soonest := greatest(soonest, tat - (burst - 1) * step);
    END IF;
    RETURN CASE WHEN soonest > now THEN soonest ELSE now + coalesce(nullif(step, 0), {LOOK_AGAIN}) END;
END $$;

-- Whether a limit key holds any job. This and the next become part of the statement that asks. They read the generations in
-- the same breath as the jobs: who decides by them must not miss what has just moved to a new one.
CREATE FUNCTION holdfast.holds(name text) RETURNS SETOF boolean LANGUAGE sql STABLE ROWS 1 AS $$
    -- Not EXISTS: a plan for many limit keys might then read all that is held, by whatever limit key.
    SELECT (SELECT true FROM holdfast.job AS j
        WHERE j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)) AND j.waiting_for = '{LIMIT_PREFIX}' || name
            AND j.state = 'blocked' AND j.limit_key IS NOT NULL LIMIT 1) IS NOT NULL
$$;

-- How many jobs of a limit key run.
CREATE FUNCTION holdfast.running(name text) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT count(*) FROM holdfast.job AS j
    WHERE j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)) AND (j.limit_key ->> 'name') COLLATE "C" = name
        AND j.state || '' = 'running' AND j.limit_key IS NOT NULL
$$;

-- Until when a limit key rests by what was said since a claim last took that in.
CREATE FUNCTION holdfast.rests(name text) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT max(n.rest_until) FROM holdfast.notice AS n
    WHERE n.limit_keys[1] COLLATE "C" = name AND n.rest_until IS NOT NULL
$$;

-- Jobs of these limit keys and queues have left the ready or the running. Answers the queues whose listeners are to ring.
CREATE FUNCTION holdfast.make_room(names text[], queues text[]) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    notifying text[];
BEGIN
    -- Also where nothing is held: a claim under way may be about to hold a job because of those that have left.
    WITH room AS (
        SELECT u.name, u.queue, h.held
        FROM (SELECT DISTINCT x.name, x.queue FROM unnest(names, queues) AS x(name, queue)) AS u
        CROSS JOIN LATERAL holdfast.holds(u.name) AS h(held)
    ), noticed AS (
        INSERT INTO holdfast.notice (gen, limit_keys, held)
        SELECT holdfast.open_generation(), array_agg(r.name), r.held FROM room AS r GROUP BY r.held
    )
    SELECT array_agg(DISTINCT r.queue) INTO notifying FROM room AS r WHERE r.held;
    RETURN coalesce(notifying, '{}');
END $$;
