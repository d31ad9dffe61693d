-- Version 14: what jobs wait for, and lanes: how many jobs of one name run, how often one starts, and whose turn it is.
--
-- holdfast.store.gate has the rules. A claim that meets a job whose lane does not let it start holds it: it becomes
-- blocked, and waits for `lane:NAME`. Claims of one lane take turns by its row in holdfast.gate; nobody else ever locks
-- that row, so neither a user's open transaction nor the end of a job waits for a claim, or has one wait for it.

ALTER TABLE holdfast.job ADD COLUMN waits text COLLATE "C", ADD COLUMN lane jsonb, ADD COLUMN extra bytea,
    ADD COLUMN saves integer NOT NULL DEFAULT 0;
ALTER TABLE holdfast.ended ADD COLUMN waits text COLLATE "C", ADD COLUMN lane jsonb, ADD COLUMN extra bytea,
    ADD COLUMN saves integer NOT NULL DEFAULT 0;
ALTER TYPE holdfast.answer ADD ATTRIBUTE waits text, ADD ATTRIBUTE lane jsonb, ADD ATTRIBUTE extra bytea,
    ADD ATTRIBUTE saves integer;
-- What waits for the same, newest last.
CREATE INDEX job_waits ON holdfast.job (waits, seq) WHERE waits IS NOT NULL;
CREATE INDEX ended_waits ON holdfast.ended (waits, seq) WHERE waits IS NOT NULL;
-- What a lane holds, in the order in which it lets go; and what runs of it. Jobs without a lane are told by its absence
-- first, which costs next to nothing.
CREATE INDEX job_held ON holdfast.job (gen, waits, priority, run_at, seq) WHERE lane IS NOT NULL AND state = 'blocked';
CREATE INDEX job_lane ON holdfast.job (gen, (lane ->> 'name')) WHERE lane IS NOT NULL AND state = 'running';

ALTER TABLE holdfast.key ADD COLUMN made_at bigint NOT NULL DEFAULT 0;  -- when its job was made

-- What is remembered of a lane; made by the first claim that meets it.
CREATE TABLE holdfast.gate (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    tat bigint NOT NULL DEFAULT 0,          -- when the next start would arrive that came in step
    rest_until bigint NOT NULL DEFAULT 0,   -- no job starts before
    opens_at bigint,                        -- when to look at what is held, where that is a matter of time
    made_at bigint NOT NULL DEFAULT holdfast.micros()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX gate_opens ON holdfast.gate (opens_at, name) WHERE opens_at IS NOT NULL;
CREATE INDEX gate_idle ON holdfast.gate (greatest(tat, rest_until, made_at)) WHERE opens_at IS NULL;

-- What happened to lanes since a claim last looked. Only ever appended to, so that nobody waits for a gate; the next
-- claim takes it in.
CREATE TABLE holdfast.notice (
    gen integer NOT NULL,
    lane text COLLATE "C" NOT NULL,
    rest_until bigint,                      -- no job starts before; NULL: a job has left the ready or the running
    held boolean NOT NULL DEFAULT false     -- something was held then
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX notice_lane ON holdfast.notice (gen, lane);

-- The turn after that of the last job, of each lane with a weight. Apart from its gate: this is written by who enqueues.
CREATE TABLE holdfast.share (
    lane text COLLATE "C" NOT NULL PRIMARY KEY,
    finish bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX share_idle ON holdfast.share (finish);

-- How many jobs of a lane may start now, with so many running.
CREATE FUNCTION holdfast.starts(lane jsonb, tat bigint, rest_until bigint, running bigint, now bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most bigint := coalesce((lane ->> 'running')::bigint, 0);
    step bigint := coalesce((lane ->> 'interval')::bigint, 0);
    burst bigint := coalesce((lane ->> 'burst')::bigint, 1);
    many bigint := 2147483648;
    spare bigint;
BEGIN
    IF rest_until > now THEN
        RETURN 0;
    END IF;
    IF most > 0 THEN
        many := greatest(0, most - running);
    END IF;
    IF step > 0 THEN
        spare := (burst - 1) * step - (greatest(tat, now) - now);
        many := least(many, CASE WHEN spare < 0 THEN 0 ELSE spare / step + 1 END);
    END IF;
    RETURN many;
END $$;

-- When to look again at what is still held, once as many as could were let go; NULL: when a job has left.
CREATE FUNCTION holdfast.next_look(lane jsonb, tat bigint, rest_until bigint, running bigint, now bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    most bigint := coalesce((lane ->> 'running')::bigint, 0);
    step bigint := coalesce((lane ->> 'interval')::bigint, 0);
    burst bigint := coalesce((lane ->> 'burst')::bigint, 1);
    soonest bigint := rest_until;
BEGIN
    IF step > 0 THEN
        soonest := greatest(soonest, tat - (burst - 1) * step);
    END IF;
    IF soonest > now THEN
        RETURN soonest;
    END IF;
    RETURN CASE WHEN step > 0 AND (most = 0 OR running < most) THEN now + step END;
END $$;

-- Whether a lane holds any job. This and the next read the generations in the same breath as the jobs: who decides by
-- them must not miss what has just moved to a new one.
CREATE FUNCTION holdfast.holds(name text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.generation AS g CROSS JOIN LATERAL (
        SELECT FROM holdfast.job AS j
        WHERE j.gen = g.gen AND j.waits = 'lane:' || name AND j.state = 'blocked' AND j.lane IS NOT NULL LIMIT 1) AS h);
END $$;

-- How many jobs of a lane run.
CREATE FUNCTION holdfast.running(name text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*) FROM holdfast.generation AS g CROSS JOIN LATERAL (
        SELECT FROM holdfast.job AS j
        WHERE j.gen = g.gen AND j.lane ->> 'name' = name AND j.state = 'running' AND j.lane IS NOT NULL) AS r);
END $$;

-- Jobs of these lanes and queues have left the ready or the running. Answers the queues whose bells are to ring.
CREATE FUNCTION holdfast.make_room(names text[], queues text[]) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    holding text[] := ARRAY(SELECT n FROM (SELECT DISTINCT unnest(names)) AS u(n) WHERE holdfast.holds(n));
BEGIN
    -- Always, for a claim that is under way may be about to hold a job because of those that have left.
    INSERT INTO holdfast.notice (gen, lane, held)
    SELECT holdfast.open_generation(), u.n, u.n = ANY (holding) FROM (SELECT DISTINCT unnest(names)) AS u(n);
    RETURN ARRAY(SELECT DISTINCT u.queue FROM unnest(names, queues) AS u(name, queue) WHERE u.name = ANY (holding));
END $$;

-- Put a record of each of these jobs' end.
CREATE FUNCTION holdfast.tell_ended(ids text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO holdfast.record AS r (kind, name, value, version)
    SELECT 'ended', u.id, '{}'::bytea, 1 FROM (SELECT DISTINCT unnest(ids)) AS u(id) ORDER BY u.id
    ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value, version = r.version + 1;
END $$;
