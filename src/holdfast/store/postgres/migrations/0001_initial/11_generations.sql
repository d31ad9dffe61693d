-- Rotation of generations. See holdfast.generation.

-- How many blocks of the ready index are read to find the first job of a queue; a few if there are few dead entries.
CREATE FUNCTION holdfast.wear(of_queue text, of_gen integer) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    before bigint := pg_stat_get_xact_blocks_fetched('holdfast.job_ready'::regclass);
BEGIN
    PERFORM FROM holdfast.first_ready(of_queue, false, NULL, ARRAY[of_gen]);
    RETURN pg_stat_get_xact_blocks_fetched('holdfast.job_ready'::regclass) - before;
END $$;

-- One bounded step: open another generation if the newest is worn, close old ones and move jobs out of them. To be
-- called again while `again` is true: a generation becomes the newest only after its row has been committed.
CREATE FUNCTION holdfast.rotate(queues text[]) RETURNS TABLE (generations bigint, again boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_sort = off
AS $$
DECLARE
    newest integer;
    coming integer;
    g record;
    room integer := {STRAGGLERS};
    moved bigint;
    left_over boolean;
BEGIN
    again := false;
    IF NOT pg_try_advisory_xact_lock(holdfast.lock_class(), 3) THEN
        SELECT count(*) INTO generations FROM holdfast.generation;
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT last_value INTO newest FROM holdfast.newest_generation;
    SELECT max(x.gen) INTO coming FROM holdfast.generation AS x;
    IF coming > newest THEN
        PERFORM setval('holdfast.newest_generation', coming);
        newest := coming;
    ELSIF (SELECT count(*) FROM holdfast.generation) < 16
        AND EXISTS (SELECT FROM unnest(queues) AS q WHERE holdfast.wear(q, newest) > 30)
    THEN
        INSERT INTO holdfast.generation (gen) VALUES (newest + 1);
        again := true;
    END IF;
    FOR g IN SELECT x.gen, x.closed FROM holdfast.generation AS x WHERE x.gen < newest ORDER BY x.gen LOOP
        IF NOT g.closed THEN
            -- A transaction that may still add rows to it holds this lock until its end.
            CONTINUE WHEN NOT pg_try_advisory_xact_lock(holdfast.lock_class(), {GENERATION_LOCK} + g.gen);
            UPDATE holdfast.generation AS x SET closed = true WHERE x.gen = g.gen;
        END IF;
        -- Where claims begin. It only rises: a closed generation gets no more rows.
        INSERT INTO holdfast.floor AS f (gen, queue, priority, run_at, seq)
        SELECT g.gen, q.name, p.priority, p.run_at, p.seq
        FROM unnest(queues) AS q(name) CROSS JOIN LATERAL (
            SELECT j.priority, j.run_at, j.seq
            FROM (SELECT) AS one LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = q.name
            CROSS JOIN LATERAL (
                SELECT x.priority, x.run_at, x.seq FROM holdfast.job AS x
                WHERE x.gen = g.gen AND x.queue = q.name AND x.quarantined = false AND x.state = 'queued'
                    AND (x.priority, x.run_at, x.seq)
                        >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
                ORDER BY x.priority, x.run_at, x.seq LIMIT 1
            ) AS j
        ) AS p
        ON CONFLICT (gen, queue) DO UPDATE SET
            priority = excluded.priority, run_at = excluded.run_at, seq = excluded.seq;
        -- Move remaining jobs to the newest generation, a few at a time; many ready jobs stay where they are.
        -- Read backwards, because remaining jobs are at the end.
        left_over := (SELECT count(*) FROM (
            SELECT FROM holdfast.job AS x WHERE x.gen = g.gen AND x.state = 'queued'
            ORDER BY x.gen DESC, x.queue DESC, x.quarantined DESC, x.priority DESC, x.run_at DESC, x.seq DESC LIMIT {STRAGGLERS} + 1
        ) AS stragglers) > {STRAGGLERS};
        IF NOT left_over AND room > 0 THEN
            UPDATE holdfast.job AS j SET gen = newest WHERE j.ctid = ANY (ARRAY(
                SELECT x.ctid FROM holdfast.job AS x WHERE x.gen = g.gen AND x.state = 'queued'
                ORDER BY x.gen DESC, x.queue DESC, x.quarantined DESC, x.priority DESC, x.run_at DESC, x.seq DESC
                LIMIT room FOR UPDATE SKIP LOCKED));
            GET DIAGNOSTICS moved = ROW_COUNT;
            room := room - moved;
        END IF;
        IF room > 0 THEN
            UPDATE holdfast.job AS j SET gen = newest WHERE j.ctid = ANY (ARRAY(
                SELECT x.ctid FROM holdfast.job AS x WHERE x.gen = g.gen AND x.state IN ('scheduled', 'failed')
                ORDER BY x.gen DESC, x.queue DESC, x.run_at DESC, x.seq DESC LIMIT room FOR UPDATE SKIP LOCKED));
            GET DIAGNOSTICS moved = ROW_COUNT;
            room := room - moved;
        END IF;
        IF room > 0 THEN
            UPDATE holdfast.job AS j SET gen = newest WHERE j.ctid = ANY (ARRAY(
                SELECT x.ctid FROM holdfast.job AS x WHERE x.gen = g.gen AND x.state = 'running'
                ORDER BY x.gen DESC, x.holder DESC LIMIT room FOR UPDATE SKIP LOCKED));
            GET DIAGNOSTICS moved = ROW_COUNT;
            room := room - moved;
        END IF;
        IF room > 0 THEN
            UPDATE holdfast.job AS j SET gen = newest WHERE j.ctid = ANY (ARRAY(
                SELECT x.ctid FROM holdfast.job AS x WHERE x.gen = g.gen AND x.state = 'blocked' AND x.limit_key IS NOT NULL
                ORDER BY x.gen DESC, x.waiting_for DESC, x.priority DESC, x.run_at DESC, x.seq DESC
                LIMIT room FOR UPDATE SKIP LOCKED));
            GET DIAGNOSTICS moved = ROW_COUNT;
            room := room - moved;
        END IF;
        UPDATE holdfast.notice AS n SET gen = newest WHERE n.ctid = ANY (ARRAY(
            SELECT x.ctid FROM holdfast.notice AS x WHERE x.gen = g.gen LIMIT {NOTICES} FOR UPDATE SKIP LOCKED));
    END LOOP;
    IF room < {STRAGGLERS} THEN
        UPDATE holdfast.generation AS x SET moved = x.moved + 1 WHERE x.gen = newest;
    END IF;
    SELECT count(*) INTO generations FROM holdfast.generation;
    RETURN NEXT;
END $$;

-- Remove closed generations that are empty. Separate from rotate(), so that the moves of rotate() have been committed:
-- a claim that began before does not see the moved rows in the new generation, and must still find them in the old one.
CREATE FUNCTION holdfast.retire() RETURNS bigint LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    g integer;
BEGIN
    FOR g IN SELECT x.gen FROM holdfast.generation AS x WHERE x.closed ORDER BY x.gen LOOP
        IF NOT EXISTS (SELECT FROM holdfast.job AS x WHERE x.gen = g AND x.state = 'queued')
            AND NOT EXISTS (SELECT FROM holdfast.job AS x WHERE x.gen = g AND x.state IN ('scheduled', 'failed'))
            AND NOT EXISTS (SELECT FROM holdfast.job AS x WHERE x.gen = g AND x.state = 'running')
            AND NOT EXISTS (SELECT FROM holdfast.job AS x
                WHERE x.gen = g AND x.state = 'blocked' AND x.limit_key IS NOT NULL)
            AND NOT EXISTS (SELECT FROM holdfast.notice AS x WHERE x.gen = g)
        THEN
            DELETE FROM holdfast.generation AS x WHERE x.gen = g;
            DELETE FROM holdfast.floor AS f WHERE f.gen = g;
        END IF;
    END LOOP;
    RETURN (SELECT count(*) FROM holdfast.generation);
END $$;
