-- Lanes: how many jobs of one name run, how often one starts, and whose turn it is.
--
-- holdfast.core.limiter has the rules. A claim that meets a job whose lane does not let it start holds it: it becomes
-- blocked, and waits for `limit:NAME`. Claims of one lane take turns by its row in holdfast.gate; nobody else ever locks
-- that row, so neither a user's open transaction nor the end of a job waits for a claim, or has one wait for it.

-- What is remembered of a lane; made by the first claim that meets it.
CREATE TABLE holdfast.gate (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    tat bigint NOT NULL DEFAULT 0,          -- when the next start would arrive that came in step
    rest_until bigint NOT NULL DEFAULT 0,   -- no job starts before
    opens_at bigint,                        -- when to look at what is held, where that is a matter of time
    used_at bigint NOT NULL DEFAULT holdfast.micros()   -- when it was made, or retention last found it in use
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX gate_opens ON holdfast.gate (opens_at, name) WHERE opens_at IS NOT NULL;
CREATE INDEX gate_idle ON holdfast.gate (used_at);  -- not of its other times: starts would have to write to the index

-- What happened to lanes since a claim last looked. Only ever appended to, so that nobody waits for a gate; the next
-- claim takes it in.
CREATE TABLE holdfast.notice (
    gen integer NOT NULL,
    lanes text[] NOT NULL,
    rest_until bigint,                      -- no job of one lane starts before; NULL: jobs have left the ready or the running
    held boolean NOT NULL DEFAULT false     -- each of them held something then
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX notice_gen ON holdfast.notice (gen);
CREATE INDEX notice_rest ON holdfast.notice ((lanes[1] COLLATE "C")) WHERE rest_until IS NOT NULL;

-- The turn after that of the last job, of each lane with a weight. Apart from its gate: this is written by who enqueues.
CREATE TABLE holdfast.share (
    lane text COLLATE "C" NOT NULL PRIMARY KEY,
    finish bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX share_idle ON holdfast.share (finish);

-- The same, of jobs that a user's transaction has enqueued. It may stay open for long, so it only ever adds: nobody waits
-- for it, and what it adds counts once it has committed. Retention takes these into the shares.
CREATE TABLE holdfast.share_part (
    lane text COLLATE "C" NOT NULL,
    finish bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX share_part_lane ON holdfast.share_part (lane, finish);

-- How many jobs of a lane may start now, with so many running. One expression, so that it becomes part of a statement.
CREATE FUNCTION holdfast.starts(lane jsonb, tat bigint, rest_until bigint, running bigint, now bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN rest_until > now THEN 0 ELSE coalesce(least(
        CASE WHEN (lane ->> 'running')::bigint > 0 THEN greatest(0, (lane ->> 'running')::bigint - running) END,
        CASE WHEN (lane ->> 'interval')::bigint > 0 THEN greatest(0,
            coalesce((lane ->> 'burst')::bigint, 1) - (greatest(0, tat - now) + (lane ->> 'interval')::bigint - 1)
                / (lane ->> 'interval')::bigint) END
    ), 2147483648) END
$$;

-- When to look again at what is still held, once as many as could were let go; NULL: when a job has left.
CREATE FUNCTION holdfast.next_look(lane jsonb, tat bigint, rest_until bigint, running bigint, now bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most bigint := coalesce((lane ->> 'running')::bigint, 0);
    step bigint := coalesce((lane ->> 'interval')::bigint, 0);
    burst bigint := coalesce((lane ->> 'burst')::bigint, 1);
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

-- Whether a lane holds any job. This and the next become part of the statement that asks. They read the generations in
-- the same breath as the jobs: who decides by them must not miss what has just moved to a new one.
CREATE FUNCTION holdfast.holds(name text) RETURNS SETOF boolean LANGUAGE sql STABLE ROWS 1 AS $$
    -- Not EXISTS: a plan for many lanes might then read all that is held, by whatever lane.
    SELECT (SELECT true FROM holdfast.job AS j
        WHERE j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)) AND j.waits = '{LIMIT_PREFIX}' || name
            AND j.state = 'blocked' AND j.lane IS NOT NULL LIMIT 1) IS NOT NULL
$$;

-- How many jobs of a lane run.
CREATE FUNCTION holdfast.running(name text) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT count(*) FROM holdfast.job AS j
    WHERE j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)) AND (j.lane ->> 'name') COLLATE "C" = name
        AND j.state || '' = 'running' AND j.lane IS NOT NULL
$$;

-- Until when a lane rests by what was said since a claim last took that in.
CREATE FUNCTION holdfast.rests(name text) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT max(n.rest_until) FROM holdfast.notice AS n
    WHERE n.lanes[1] COLLATE "C" = name AND n.rest_until IS NOT NULL
$$;

-- Jobs of these lanes and queues have left the ready or the running. Answers the queues whose bells are to ring.
CREATE FUNCTION holdfast.make_room(names text[], queues text[]) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ringing text[];
BEGIN
    -- Also where nothing is held: a claim under way may be about to hold a job because of those that have left.
    WITH room AS (
        SELECT u.name, u.queue, h.held
        FROM (SELECT DISTINCT x.name, x.queue FROM unnest(names, queues) AS x(name, queue)) AS u
        CROSS JOIN LATERAL holdfast.holds(u.name) AS h(held)
    ), noticed AS (
        INSERT INTO holdfast.notice (gen, lanes, held)
        SELECT holdfast.open_generation(), array_agg(r.name), r.held FROM room AS r GROUP BY r.held
    )
    SELECT array_agg(DISTINCT r.queue) INTO ringing FROM room AS r WHERE r.held;
    RETURN coalesce(ringing, '{}');
END $$;
