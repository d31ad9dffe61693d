-- CLAIM. Promotes what is due and takes the first in order, in one step; writes nothing if it finds nothing.
--
-- The plans must not depend on statistics, which a table that just grew does not have: every statement here can be
-- answered from its index in order, and the settings on holdfast.write leave the planner no other way.

-- One line of an answer: `answer` is JSON about the whole batch, or the row is a claimed job.
CREATE TYPE holdfast.answer AS (
    answer text, seq bigint, id text, queue text, task text, state text, priority integer, run_at bigint,
    payload bytea, codec text, max_attempts integer, timeout double precision, key text, created_at bigint,
    attempt integer, reset_count integer, fence bigint, token bigint, holder text, pid integer, quarantined boolean,
    crashes integer, cancel boolean, started_at bigint, finished_at bigint, expires_at bigint, result bytea, error text,
    traceback text, progress bytea, checkpoint bytea, tags jsonb, meta json, retry json, history jsonb,
    waiting_for text, limit_key jsonb, extra bytea, saves integer, changed_at bigint
);

-- How many quarantined jobs that have died so often may run beside each other, where there is this much room.
CREATE FUNCTION holdfast.cohort(crashes integer, room integer) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN crashes <= -2 THEN room WHEN crashes = -1 THEN least(room, {COHORT}) ELSE 1 END
$$;

-- The place of the first ready job of a queue, in all generations, and its crashes.
CREATE FUNCTION holdfast.first_ready(of_queue text, from_quarantine boolean, of_tasks text[], gens integer[])
RETURNS TABLE (priority integer, run_at bigint, seq bigint, crashes integer) LANGUAGE sql STABLE AS $$
    SELECT f.priority, f.run_at, f.seq, f.crashes
    FROM unnest(gens) AS g(gen)
    CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at, j.seq, j.crashes FROM holdfast.job AS j
        WHERE j.queue = of_queue AND j.gen = g.gen AND j.quarantined = from_quarantine AND j.state = 'queued'
            AND (of_tasks IS NULL OR j.task = ANY (of_tasks))
        ORDER BY j.priority, j.run_at, j.seq LIMIT 1
    ) AS f
    ORDER BY f.priority, f.run_at, f.seq LIMIT 1
$$;

-- When the next job of a queue becomes due. In this language, the plan is made once a session.
CREATE FUNCTION holdfast.next_due(of_queue text, gens integer[]) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT min(d.run_at) FROM unnest(gens) AS g(gen) CROSS JOIN LATERAL (
        SELECT j.run_at FROM holdfast.job AS j
        WHERE j.queue = of_queue AND j.gen = g.gen AND j.state IN ('scheduled', 'failed')
        ORDER BY j.run_at, j.seq LIMIT 1
    ) AS d);
END $$;

-- Whether jobs are moving to another generation, or have moved since `before`, the sum of how often they did. A claim
-- that found nothing meanwhile may have missed them: it did not see them in their new place, nor have them in the old.
CREATE FUNCTION holdfast.turned(before bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT pg_try_advisory_lock_shared(holdfast.lock_class(), 3) THEN
        RETURN true;
    END IF;
    PERFORM pg_advisory_unlock_shared(holdfast.lock_class(), 3);
    RETURN before <> (SELECT sum(g.moved) FROM holdfast.generation AS g WHERE g.gen > 0);
END $$;

CREATE FUNCTION holdfast.claim(
    ask_holder text, ask_about text, ask_lease double precision, ask_queues text[], ask_limit integer,
    ask_token bigint, ask_tasks text[], ask_busy boolean, ask_patient boolean, now bigint
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gens integer[];
    self xid := pg_current_xact_id_if_assigned()::xid;
    moved bigint;
    newest integer;
    of_queue text;
    wanted integer := ask_limit;
    taken bigint := 0;
    got bigint;
    waiting boolean := false;
    looked boolean := false;
    alone boolean;
    most integer;
    due bigint;
    soonest bigint;
    first_quarantined record;
    first_sound record;
    -- The place of the first sound job: quarantined jobs behind it wait for their turn.
    bound_priority integer;
    bound_run_at bigint;
    bound_seq bigint;
    read_before bigint := pg_stat_get_xact_blocks_fetched('holdfast.job_ready'::regclass);
    worn boolean;
    noticed boolean;
    opens bigint;
    patient boolean := ask_patient;
    chosen tid[];
    limit_keys jsonb[];
    picking boolean;
    picked record;
    spare integer := {DEFER_LIMIT};
    held text[] := '{}';
    passed boolean := false;
    late boolean;
    said holdfast.answer;
BEGIN
    SELECT array_agg(g.gen ORDER BY g.gen), sum(g.moved),
        bool_or(EXISTS (SELECT FROM holdfast.notice AS n
            WHERE n.gen = g.gen AND (n.held OR n.rest_until IS NOT NULL OR n.xmin IS DISTINCT FROM self))),
        (SELECT o.opens_at FROM holdfast.limiter AS o WHERE o.opens_at IS NOT NULL ORDER BY o.opens_at, o.name LIMIT 1)
    INTO gens, moved, noticed, opens FROM holdfast.generation AS g;
    -- Once a transaction: what its first claim has held, and says so, only others may look at, after its commit.
    noticed := noticed AND ask_patient;
    -- The lease is renewed where half of it is spent. Who is just being swept, or is beating, asks again: nobody waits for
    -- a holder while having limiters, nor while sweeping others.
    SELECT h.expires - now < (ask_lease * {MICROS})::bigint / 2 INTO late FROM holdfast.holder AS h
    WHERE h.id = ask_holder;
    IF late AND (noticed OR opens <= now OR EXISTS (
        SELECT FROM unnest(ask_queues) AS q(name) WHERE holdfast.next_due(q.name, gens) <= now
            OR EXISTS (SELECT FROM holdfast.first_ready(q.name, false, ask_tasks, gens))
            OR EXISTS (SELECT FROM holdfast.first_ready(q.name, true, ask_tasks, gens))))
    THEN
        PERFORM FROM holdfast.holder AS h WHERE h.id = ask_holder FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            said.answer := json_build_object('due_in', 0);
            RETURN NEXT said;
            RETURN;
        END IF;
    END IF;
    IF noticed OR opens <= now AND ask_patient THEN
        patient := NOT holdfast.reopen(ask_queues, ask_limit, gens, self, now);
        SELECT array_agg(g.gen ORDER BY g.gen) INTO gens FROM holdfast.generation AS g;
    END IF;
    FOREACH of_queue IN ARRAY ask_queues LOOP
        CONTINUE WHEN EXISTS (SELECT FROM holdfast.record AS r WHERE r.kind = 'pause' AND r.name = of_queue);
        due := holdfast.next_due(of_queue, gens);
        -- An ask for nothing promotes what is due in its first queue only, as every store does.
        IF due <= now AND (wanted > 0 OR NOT looked) THEN
            newest := coalesce(newest, holdfast.open_generation());
            UPDATE holdfast.job AS j SET state = 'queued', gen = newest WHERE j.ctid = ANY (ARRAY(
                SELECT d.ctid FROM unnest(gens) AS g(gen) CROSS JOIN LATERAL (
                    SELECT x.ctid FROM holdfast.job AS x
                    WHERE x.queue = of_queue AND x.gen = g.gen AND x.state IN ('scheduled', 'failed') AND x.run_at <= now
                    ORDER BY x.run_at, x.seq LIMIT {PROMOTE_LIMIT} FOR UPDATE SKIP LOCKED
                ) AS d));
            IF newest <> ALL (gens) THEN
                gens := gens || newest;
            END IF;
            due := holdfast.next_due(of_queue, gens);
        END IF;
        soonest := least(soonest, due);
        looked := true;
        CONTINUE WHEN wanted <= 0;
        SELECT * INTO first_quarantined FROM holdfast.first_ready(of_queue, true, ask_tasks, gens);
        alone := false;
        bound_priority := 2147483647;
        bound_run_at := 0;
        bound_seq := 0;
        IF first_quarantined.seq IS NOT NULL AND NOT ask_busy AND taken = 0 THEN
            SELECT * INTO first_sound FROM holdfast.first_ready(of_queue, false, ask_tasks, gens);
            alone := first_sound.seq IS NULL OR (first_quarantined.priority, first_quarantined.run_at, first_quarantined.seq)
                < (first_sound.priority, first_sound.run_at, first_sound.seq);
            IF first_sound.seq IS NOT NULL THEN
                bound_priority := first_sound.priority;
                bound_run_at := first_sound.run_at;
                bound_seq := first_sound.seq;
            END IF;
        END IF;
        most := CASE WHEN alone THEN holdfast.cohort(first_quarantined.crashes, wanted) ELSE wanted END;
        newest := coalesce(newest, gens[cardinality(gens)]);
        IF cardinality(gens) = 1 THEN
            SELECT array_agg(f.ctid), array_agg(f.limit_key) FILTER (WHERE f.limit_key IS NOT NULL) INTO chosen, limit_keys FROM (
                SELECT x.ctid, x.limit_key FROM holdfast.job AS x
                WHERE x.queue = of_queue AND x.gen = newest AND x.quarantined = alone AND x.state = 'queued'
                    AND (ask_tasks IS NULL OR x.task = ANY (ask_tasks))
                    AND (NOT alone OR x.crashes = first_quarantined.crashes
                        AND (x.priority, x.run_at, x.seq) < (bound_priority, bound_run_at, bound_seq))
                ORDER BY x.priority, x.run_at, x.seq
                LIMIT most FOR UPDATE SKIP LOCKED
            ) AS f;
        ELSE
            SELECT array_agg(o.ctid), array_agg(o.limit_key) FILTER (WHERE o.limit_key IS NOT NULL) INTO chosen, limit_keys FROM (
                SELECT f.ctid, f.limit_key
                FROM unnest(gens) AS g(gen)
                LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = of_queue AND NOT alone
                CROSS JOIN LATERAL (
                    SELECT x.ctid, x.priority, x.run_at, x.seq, x.limit_key FROM holdfast.job AS x
                    WHERE x.queue = of_queue AND x.gen = g.gen AND x.quarantined = alone AND x.state = 'queued'
                        AND (x.priority, x.run_at, x.seq)
                            >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
                        AND (ask_tasks IS NULL OR x.task = ANY (ask_tasks))
                        AND (NOT alone OR x.crashes = first_quarantined.crashes
                            AND (x.priority, x.run_at, x.seq) < (bound_priority, bound_run_at, bound_seq))
                    ORDER BY x.priority, x.run_at, x.seq
                    LIMIT most FOR UPDATE SKIP LOCKED
                ) AS f
                ORDER BY f.priority, f.run_at, f.seq LIMIT most
            ) AS o;
        END IF;
        picking := false;
        IF limit_keys IS NOT NULL THEN
            picking := NOT holdfast.admit(limit_keys, patient, now);
            patient := false;
        END IF;
        IF picking THEN
            SELECT * INTO picked FROM holdfast.pick(
                of_queue, ask_tasks, wanted, NOT ask_busy AND taken = 0, gens, now, spare);
            chosen := picked.chosen;
            spare := picked.spare;
            held := held || picked.held;
            passed := passed OR picked.passed;
        END IF;
        got := 0;
        IF chosen <> '{}' THEN
            RETURN QUERY UPDATE holdfast.job AS j SET state = 'running', attempt = j.attempt + 1, fence = j.fence + 1,
                token = ask_token, holder = ask_holder, started_at = now, pid = NULL, waiting_for = NULL,
                -- A quarantined job that is taken without company dies alone, if it does.
                crashes = CASE WHEN cardinality(chosen) = 1 THEN greatest(j.crashes, 0) ELSE j.crashes END
            WHERE j.ctid = ANY (chosen)
            RETURNING NULL::text, j.seq, j.id, j.queue, j.task, j.state, j.priority, j.run_at, j.payload, j.codec,
                j.max_attempts, j.timeout, j.key, j.created_at, j.attempt, j.reset_count, j.fence, j.token, j.holder, j.pid,
                j.quarantined, j.crashes, j.cancel, j.started_at, j.finished_at, j.expires_at, j.result, j.error,
                j.traceback, j.progress, j.checkpoint, j.tags, j.meta, j.retry, j.history, j.waiting_for, j.limit_key, j.extra,
                j.saves, j.changed_at;
            GET DIAGNOSTICS got = ROW_COUNT;
        END IF;
        taken := taken + got;
        IF picking THEN
            waiting := waiting OR picked.waiting;
            alone := picked.from_quarantine;
        END IF;
        EXIT WHEN spare <= 0 OR (alone AND got > 0);
        IF first_quarantined.seq IS NOT NULL AND NOT picking THEN
            waiting := waiting OR got < wanted OR EXISTS (
                SELECT FROM holdfast.job AS j WHERE j.holder = ask_holder AND j.gen = ANY (gens) AND j.state = 'running'
                    AND j.token = ask_token AND j.queue = of_queue AND (j.priority, j.run_at, j.seq)
                        > (first_quarantined.priority, first_quarantined.run_at, first_quarantined.seq));
        END IF;
        wanted := wanted - got;
        EXIT WHEN wanted <= 0 AND ask_limit > 0;
    END LOOP;
    worn := pg_stat_get_xact_blocks_fetched('holdfast.job_ready'::regclass) - read_before
        > 40 + taken / 4 + 8 * ({DEFER_LIMIT} - spare) + 8 * cardinality(ask_queues) * cardinality(gens);
    IF taken = 0 THEN
        -- Jobs of limit keys that another claim is deciding about are left alone: to be asked for again at once.
        IF spare <= 0 OR passed OR holdfast.turned(moved) THEN
            soonest := now;
        ELSIF noticed OR opens <= now OR spare < {DEFER_LIMIT} THEN
            SELECT min(o.opens_at) INTO opens FROM holdfast.limiter AS o WHERE o.opens_at IS NOT NULL;
            IF ask_patient AND EXISTS (SELECT FROM holdfast.notice AS n WHERE n.gen = ANY (gens)
                AND (n.held OR n.rest_until IS NOT NULL OR n.xmin IS DISTINCT FROM self))
            THEN
                opens := now;
            END IF;
        END IF;
        soonest := least(soonest, opens);
    END IF;
    IF held <> '{}' THEN
        INSERT INTO holdfast.notice (gen, limit_keys, held) VALUES (holdfast.open_generation(), held, true);
    END IF;
    IF taken = 0 OR waiting OR worn THEN
        -- `again`: what it did to limit keys, and what others did meanwhile, can be seen together only after this commit.
        said.answer := json_build_object('waiting', waiting, 'worn', worn, 'due_in',
            CASE WHEN taken = 0 AND soonest IS NOT NULL THEN greatest(0, soonest - now) END, 'again',
            taken = 0 AND (held <> '{}' OR self IS NOT NULL AND EXISTS (
                SELECT FROM holdfast.notice AS n WHERE n.gen = ANY (gens) AND n.xmin = self)));
        RETURN NEXT said;
    END IF;
    IF taken > 0 AND holdfast.watched(now) THEN
        INSERT INTO holdfast.transition (at, ids, states)
        SELECT now, array_agg(t.id), array_agg(t.state) FROM (
            SELECT j.id, j.state FROM holdfast.job AS j
            WHERE j.holder = ask_holder AND j.gen = ANY (gens) AND j.state = 'running' AND j.token = ask_token
            ORDER BY array_position(ask_queues, j.queue), j.priority, j.run_at, j.seq
        ) AS t;
    END IF;
    IF taken > 0 AND late IS DISTINCT FROM false THEN
        INSERT INTO holdfast.holder AS h (id, about, heartbeat, renewed_at, expires)
        VALUES (ask_holder, ask_about::json, 1, now, now + (ask_lease * {MICROS})::bigint)
        ON CONFLICT (id) DO UPDATE SET heartbeat = h.heartbeat + 1, renewed_at = now, expires = excluded.expires;
    END IF;
END $$;
