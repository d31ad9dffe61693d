-- What a claim may take, if jobs have limit keys.
--
-- Claims exclude each other per limit key: a claim locks the limiter, then counts running jobs in a separate statement,
-- and keeps the lock until its commit. A claim waits for limiters at most once, for all that it needs then, sorted by
-- name; later it skips limiters and jobs that another claim has locked. So there are no deadlocks. Jobs are locked
-- before limiters: no claim waits for a job while it has a limiter.
--
-- A settlement that commits during a claim that still counts its job cannot see the jobs that this claim defers, and the
-- claim cannot see the settlement. So both insert a notice, and a claim after the later commit sees both. For that, a
-- transaction does not apply its own notices (`self`), unless it has locked the limiter, so that no other claim decides.

-- Lock the limiters of these limit keys, which must differ, and create missing ones. Unless it is `patient`, skip
-- limiters that are locked. Returns the names of the locked ones.
CREATE FUNCTION holdfast.lock_limiters(names text[], patient boolean) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mine text[];
    fresh text[];
    parts integer[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'jobs with limits cannot be claimed at the isolation level %: run ALTER ROLE for the role of Holdfast, '
            'with SET default_transaction_isolation = ''read committed''', current_setting('transaction_isolation')
            USING ERRCODE = 'feature_not_supported';
    END IF;
    IF patient THEN
        mine := ARRAY(SELECT g.name FROM holdfast.limiter AS g WHERE g.name = ANY (names) ORDER BY g.name FOR UPDATE);
    ELSE
        mine := ARRAY(SELECT g.name FROM holdfast.limiter AS g WHERE g.name = ANY (names) FOR UPDATE SKIP LOCKED);
    END IF;
    IF cardinality(mine) = cardinality(names) THEN
        RETURN mine;
    END IF;
    fresh := ARRAY(SELECT u.n FROM unnest(names) AS u(n)
        WHERE NOT EXISTS (SELECT FROM holdfast.limiter AS g WHERE g.name = u.n));
    -- An insert would wait for a concurrent insert of the same name; so inserts are serialized by 64 locks for all names.
    parts := ARRAY(SELECT DISTINCT hashtext(n) & 63 FROM unnest(fresh) AS n ORDER BY 1);
    IF patient THEN
        PERFORM pg_advisory_xact_lock(holdfast.lock_class() # 3, p) FROM unnest(parts) AS p;
    ELSE
        parts := ARRAY(SELECT p FROM unnest(parts) AS p WHERE pg_try_advisory_xact_lock(holdfast.lock_class() # 3, p));
        fresh := ARRAY(SELECT n FROM unnest(fresh) AS n WHERE hashtext(n) & 63 = ANY (parts));
    END IF;
    -- The transaction that creates a limiter has it locked; one that another created meanwhile is skipped.
    WITH made AS (
        INSERT INTO holdfast.limiter AS g (name) SELECT n FROM unnest(fresh) AS n ON CONFLICT (name) DO NOTHING
        RETURNING g.name
    )
    SELECT mine || array_agg(m.name) INTO mine FROM made AS m;
    RETURN mine;
END $$;

-- Make deferred jobs of these limit keys ready, as many as may start; returns the queue of each. Their limiters must be
-- locked.
CREATE FUNCTION holdfast.release_deferred(names text[], now bigint) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- One element per limit key. The limits of its first deferred job determine how many may start.
    limit_keys jsonb[];
    running bigint[];
    free bigint[];
    gone bigint[];
    ats tid[];
    places bigint[];
    place bigint;
    queues text[] := '{}';
BEGIN
    SELECT array_agg(g.name), array_agg(f.limit_key), array_agg(r.running), array_agg(0::bigint),
        array_agg(CASE WHEN f.limit_key IS NULL THEN 0
            ELSE least({PROMOTE_LIMIT}, holdfast.starts(f.limit_key, g.tat, g.rest_until, r.running, now)) END)
    INTO names, limit_keys, running, gone, free
    FROM holdfast.limiter AS g
    LEFT JOIN LATERAL (
        SELECT h.limit_key FROM holdfast.generation AS x CROSS JOIN LATERAL (
            SELECT j.limit_key, j.priority, j.run_at, j.seq FROM holdfast.job AS j
            WHERE j.gen = x.gen AND j.waiting_for = '{LIMIT_PREFIX}' || g.name AND j.state = 'blocked' AND j.limit_key IS NOT NULL
            ORDER BY j.priority, j.run_at, j.seq LIMIT 1
        ) AS h ORDER BY h.priority, h.run_at, h.seq LIMIT 1
    ) AS f ON true
    CROSS JOIN LATERAL holdfast.running(CASE WHEN (f.limit_key ->> 'concurrency')::bigint > 0 THEN g.name END) AS r(running)
    WHERE g.name = ANY (names);
    SELECT array_agg(x.ctid), array_agg(u.place) INTO ats, places
    FROM unnest(names, free) WITH ORDINALITY AS u(name, free, place) CROSS JOIN LATERAL (
        SELECT f.ctid FROM holdfast.generation AS g CROSS JOIN LATERAL (
            SELECT j.ctid, j.priority, j.run_at, j.seq FROM holdfast.job AS j
            WHERE j.gen = g.gen AND j.waiting_for = '{LIMIT_PREFIX}' || u.name AND j.state = 'blocked' AND j.limit_key IS NOT NULL
            ORDER BY j.priority, j.run_at, j.seq LIMIT u.free FOR UPDATE SKIP LOCKED
        ) AS f ORDER BY f.priority, f.run_at, f.seq LIMIT u.free
    ) AS x;
    IF ats IS NOT NULL THEN
        WITH released AS (
            UPDATE holdfast.job AS j SET state = 'queued', waiting_for = NULL, gen = holdfast.open_generation()
            WHERE j.ctid = ANY (ats) RETURNING j.queue
        )
        SELECT array_agg(r.queue) INTO queues FROM released AS r;
        FOREACH place IN ARRAY places LOOP
            gone[place] := gone[place] + 1;
        END LOOP;
    END IF;
    UPDATE holdfast.limiter AS g SET opens_at = o.look FROM (
        -- Fewer than allowed: some are locked. As many as PROMOTE_LIMIT: more may be allowed.
        SELECT s.name, CASE WHEN NOT h.deferred THEN NULL WHEN u.gone < u.free OR u.free = {PROMOTE_LIMIT} THEN now
            ELSE holdfast.next_look(u.limit_key, s.tat, s.rest_until, u.running, now) END AS look
        FROM unnest(names, limit_keys, running, free, gone) AS u(name, limit_key, running, free, gone)
        JOIN holdfast.limiter AS s ON s.name = u.name
        CROSS JOIN LATERAL holdfast.has_deferred(u.name) AS h(deferred)
    ) AS o WHERE g.name = o.name AND g.opens_at IS DISTINCT FROM o.look;
    RETURN queues;
END $$;

-- Apply notices, and release deferred jobs of limiters whose time has come; what another claim has locked is left to the
-- next claim. If this needs a limiter, it first waits for the limiters of the first ready jobs of its queues, because the
-- claim needs them next. Returns whether it has locked any.
CREATE FUNCTION holdfast.reopen(ask_queues text[], ask_limit integer, gens integer[], self xid, now bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seen record;
    due text[] := ARRAY(
        SELECT g.name FROM holdfast.limiter AS g WHERE g.opens_at <= now ORDER BY g.opens_at, g.name LIMIT {DEFER_LIMIT});
    mine text[];
    others text[];
    released text[];
BEGIN
    WITH seen AS (
        DELETE FROM holdfast.notice AS x WHERE x.ctid = ANY (ARRAY(
            SELECT n.ctid FROM unnest(gens) AS g(gen) CROSS JOIN LATERAL (
                SELECT o.ctid FROM holdfast.notice AS o
                WHERE o.gen = g.gen AND (o.deferred OR o.rest_until IS NOT NULL OR o.xmin IS DISTINCT FROM self)
                LIMIT {NOTICES} FOR UPDATE SKIP LOCKED
            ) AS n))
        RETURNING x.limit_keys, x.rest_until, x.deferred
    ), limit_key AS (
        SELECT u.name, max(s.rest_until) AS rest_until, bool_or(s.rest_until IS NULL) AS left_it, bool_or(s.deferred) AS deferred
        FROM seen AS s CROSS JOIN LATERAL unnest(s.limit_keys) AS u(name) GROUP BY u.name
    )
    SELECT array_agg(l.name) FILTER (WHERE l.left_it AND (l.deferred OR h.deferred)) AS looks,
        array_agg(l.name) FILTER (WHERE l.rest_until IS NOT NULL) AS resting,
        array_agg(l.rest_until) FILTER (WHERE l.rest_until IS NOT NULL) AS rests
    INTO seen FROM limit_key AS l
    CROSS JOIN LATERAL holdfast.has_deferred(CASE WHEN l.left_it AND NOT l.deferred THEN l.name END) AS h(deferred);
    IF due = '{}' AND seen.looks IS NULL AND seen.resting IS NULL THEN
        RETURN false;
    END IF;
    PERFORM holdfast.lock_limiters(
        ARRAY(SELECT DISTINCT f.limit_key ->> 'name' FROM unnest(gens) AS g(gen) CROSS JOIN unnest(ask_queues) AS q(name)
            LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = q.name
            CROSS JOIN LATERAL (
                SELECT x.limit_key FROM holdfast.job AS x
                WHERE x.queue = q.name AND x.gen = g.gen AND x.quarantined = false AND x.state = 'queued'
                    AND (x.priority, x.run_at, x.seq)
                        >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
                ORDER BY x.priority, x.run_at, x.seq LIMIT ask_limit
            ) AS f WHERE f.limit_key IS NOT NULL),
        true);
    mine := holdfast.lock_limiters(
        ARRAY(SELECT unnest(due) UNION SELECT unnest(seen.looks) UNION SELECT unnest(seen.resting)), false);
    others := ARRAY(SELECT unnest(seen.looks) EXCEPT SELECT unnest(mine));
    IF others <> '{}' THEN
        INSERT INTO holdfast.notice (gen, limit_keys, deferred) VALUES (holdfast.open_generation(), others, true);
    END IF;
    IF seen.resting IS NOT NULL THEN
        INSERT INTO holdfast.notice (gen, limit_keys, rest_until)
        SELECT holdfast.open_generation(), ARRAY[u.name], u.rest_until
        FROM unnest(seen.resting, seen.rests) AS u(name, rest_until) WHERE u.name <> ALL (mine);
        UPDATE holdfast.limiter AS g SET rest_until = u.rest_until
        FROM unnest(seen.resting, seen.rests) AS u(name, rest_until)
        WHERE g.name = u.name AND g.rest_until < u.rest_until AND u.name = ANY (mine);
    END IF;
    released := holdfast.release_deferred(
        ARRAY((SELECT unnest(due) UNION SELECT unnest(seen.looks)) INTERSECT SELECT unnest(mine)), now);
    IF cardinality(released) > ask_limit OR NOT released <@ ask_queues THEN
        PERFORM holdfast.hint(released, '{}', '{}', '{}', false); -- for the workers that can take what this claim leaves
    END IF;
    RETURN true;
END $$;

-- Whether jobs of these limit keys may all start now; if so, count their starts in the limiters.
CREATE FUNCTION holdfast.admit(limit_keys jsonb[], patient boolean, now bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    names text[] := ARRAY(SELECT DISTINCT u.limit_key ->> 'name' FROM unnest(limit_keys) AS u(limit_key));
    fine boolean;
    timed boolean;
BEGIN
    IF cardinality(holdfast.lock_limiters(names, patient)) < cardinality(names) THEN
        RETURN false;
    END IF;
    -- Jobs of one limit key with different limits are checked one by one, by `choose`.
    SELECT count(*) = cardinality(names)
            AND bool_and(w.number <= holdfast.starts(w.limit_key, g.tat, greatest(g.rest_until, s.rest_until), r.running, now)),
        bool_or((w.limit_key ->> 'interval')::bigint > 0)
    INTO fine, timed
    FROM (SELECT u.limit_key, count(*) AS number FROM unnest(limit_keys) AS u(limit_key) GROUP BY u.limit_key) AS w
    JOIN holdfast.limiter AS g ON g.name = w.limit_key ->> 'name'
    CROSS JOIN LATERAL holdfast.running(CASE WHEN (w.limit_key ->> 'concurrency')::bigint > 0 THEN g.name END) AS r(running)
    CROSS JOIN LATERAL holdfast.noticed_rest(g.name) AS s(rest_until);
    IF fine AND timed THEN
        UPDATE holdfast.limiter AS g SET tat = greatest(g.tat, now) + w.step
        FROM (
            SELECT u.limit_key ->> 'name' AS name, sum((u.limit_key ->> 'interval')::bigint) AS step
            FROM unnest(limit_keys) AS u(limit_key) GROUP BY 1
        ) AS w
        WHERE g.name = w.name AND w.step > 0;
    END IF;
    RETURN fine;
END $$;

-- The state and the number of running jobs of these limit keys, for all whose limiters could be locked at once.
CREATE FUNCTION holdfast.read_limiters(names text[])
RETURNS TABLE (name text, tat bigint, rest_until bigint, running bigint) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mine text[] := holdfast.lock_limiters(names, false);
BEGIN
    RETURN QUERY SELECT g.name, g.tat, greatest(g.rest_until, s.rest_until), r.running
    FROM holdfast.limiter AS g CROSS JOIN LATERAL holdfast.running(g.name) AS r(running)
    CROSS JOIN LATERAL holdfast.noticed_rest(g.name) AS s(rest_until) WHERE g.name = ANY (mine);
END $$;

-- Choose at most `max_jobs` ready jobs of a queue, in order; returns them, and the place of the last one. Jobs before them
-- whose limits do not let them start are deferred, at most `spare`. `full_keys`: the limit keys at their concurrency
-- limit. `passed`: some jobs were skipped, because another claim has locked their limiters. Of quarantined jobs, it takes
-- jobs with `of_crashes` crashes that come before the first job that is not quarantined (the bound).
CREATE FUNCTION holdfast.choose(
    of_queue text, ask_tasks text[], from_quarantine boolean, of_crashes integer,
    bound_priority integer, bound_run_at bigint, bound_seq bigint, max_jobs integer, gens integer[], now bigint,
    INOUT spare integer, OUT chosen tid[], OUT full_keys text[], OUT passed boolean,
    OUT priority integer, OUT run_at bigint, OUT seq bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    places jsonb := '{}';   -- by the name of a limit key: its index in the arrays below
    names text[] := '{}';
    tats bigint[] := '{}';
    rests bigint[] := '{}';
    running bigint[] := '{}';
    started bigint[] := '{}';
    next_tats bigint[] := '{}';
    looks bigint[] := '{}';     -- when to check its deferred jobs; 0: none was deferred
    deferring tid[] := '{}';
    size integer;
    known integer;
    past integer := 0;          -- jobs that were checked and not chosen
    after record;
    n record;
    spot tid;
    at integer;
    step bigint;
    limit_keys jsonb[];
    priorities integer[];
    run_ats bigint[];
    seqs bigint[];
BEGIN
    chosen := '{}';
    passed := false;
    SELECT -2147483648 AS priority, 0::bigint AS run_at, 0::bigint AS seq INTO after;
    LOOP
        EXIT WHEN cardinality(chosen) >= max_jobs OR cardinality(deferring) >= spare;
        -- The more jobs it skipped, the more it reads at once. Each job is locked only when it is checked, so that other
        -- claims can take the rest.
        size := CASE WHEN from_quarantine THEN 1 ELSE max_jobs - cardinality(chosen) + past END;
        SELECT array_agg(f.limit_key), array_agg(f.priority), array_agg(f.run_at), array_agg(f.seq)
        INTO limit_keys, priorities, run_ats, seqs FROM (
            SELECT r.* FROM unnest(gens) AS g(gen)
            LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = of_queue AND NOT from_quarantine
            CROSS JOIN LATERAL (
                SELECT x.priority, x.run_at, x.seq, x.limit_key FROM holdfast.job AS x
                WHERE x.queue = of_queue AND x.gen = g.gen AND x.quarantined = from_quarantine AND x.state = 'queued'
                    AND (x.priority, x.run_at, x.seq) > (after.priority, after.run_at, after.seq)
                    AND (x.priority, x.run_at, x.seq)
                        >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
                    AND (ask_tasks IS NULL OR x.task = ANY (ask_tasks))
                    AND (NOT from_quarantine OR x.crashes = of_crashes
                        AND (x.priority, x.run_at, x.seq) < (bound_priority, bound_run_at, bound_seq))
                ORDER BY x.priority, x.run_at, x.seq LIMIT size
            ) AS r ORDER BY r.priority, r.run_at, r.seq LIMIT size
        ) AS f;
        EXIT WHEN seqs IS NULL;
        known := cardinality(names);
        FOR n IN SELECT m.* FROM holdfast.read_limiters(ARRAY(
            SELECT DISTINCT u.limit_key ->> 'name' FROM unnest(limit_keys) AS u(limit_key)
            WHERE u.limit_key IS NOT NULL AND NOT places ? (u.limit_key ->> 'name'))) AS m
        LOOP
            names := names || n.name;
            tats := tats || n.tat;
            rests := rests || n.rest_until;
            running := running || n.running;
            started := started || 0::bigint;
            next_tats := next_tats || n.tat;
            looks := looks || 0::bigint;
        END LOOP;
        IF cardinality(names) > known THEN
            places := places || (SELECT jsonb_object_agg(u.name, u.place + known)
                FROM unnest(names[known + 1:]) WITH ORDINALITY AS u(name, place));
        END IF;
        past := past + cardinality(seqs);
        FOR i IN 1..cardinality(seqs) LOOP
            at := (places ->> (limit_keys[i] ->> 'name'))::integer;
            IF at IS NULL AND limit_keys[i] IS NOT NULL THEN
                passed := true;
                CONTINUE;
            END IF;
            SELECT x.ctid INTO spot FROM holdfast.job AS x
            WHERE x.seq = seqs[i] AND x.state || '' = 'queued' AND x.quarantined = from_quarantine AND x.queue || '' = of_queue
            FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            IF at IS NULL OR holdfast.starts(limit_keys[i], tats[at], rests[at], running[at], now) > started[at] THEN
                chosen := chosen || spot;
                past := past - 1;
                priority := priorities[i];
                run_at := run_ats[i];
                seq := seqs[i];
                IF at IS NOT NULL THEN
                    started[at] := started[at] + 1;
                    step := (limit_keys[i] ->> 'interval')::bigint;
                    IF step > 0 THEN
                        next_tats[at] := greatest(next_tats[at], now) + step;
                    END IF;
                END IF;
            ELSE
                deferring := deferring || spot;
                looks[at] := holdfast.next_look(limit_keys[i], tats[at], rests[at], running[at] + started[at], now);
            END IF;
            EXIT WHEN cardinality(chosen) >= max_jobs OR cardinality(deferring) >= spare;
        END LOOP;
        -- The caller finds the next quarantined job again.
        EXIT WHEN cardinality(seqs) < size OR from_quarantine AND (passed OR deferring <> '{}');
        after.priority := priorities[size];
        after.run_at := run_ats[size];
        after.seq := seqs[size];
    END LOOP;
    UPDATE holdfast.limiter AS g
    SET tat = u.next_tat, opens_at = CASE WHEN u.look = 0 THEN g.opens_at ELSE u.look END
    FROM unnest(names, next_tats, looks) AS u(name, next_tat, look)
    WHERE g.name = u.name AND (u.next_tat <> g.tat
        OR u.look IS DISTINCT FROM 0 AND u.look IS DISTINCT FROM g.opens_at);
    full_keys := ARRAY(SELECT u.name FROM unnest(names, looks) AS u(name, look) WHERE u.look IS NULL);
    IF deferring <> '{}' THEN
        UPDATE holdfast.job AS j SET state = 'blocked', waiting_for = '{LIMIT_PREFIX}' || (j.limit_key ->> 'name'),
            gen = holdfast.open_generation()
        WHERE j.ctid = ANY (deferring);
        spare := spare - cardinality(deferring);
    END IF;
END $$;

-- Choose at most `room` jobs of a queue, some of which have limit keys; quarantined jobs only if `alone` is set.
CREATE FUNCTION holdfast.pick(
    of_queue text, ask_tasks text[], room integer, alone boolean, gens integer[], now bigint,
    INOUT spare integer, OUT chosen tid[], OUT full_keys text[], OUT passed boolean, OUT from_quarantine boolean, OUT waiting boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    candidate record;
    sound record;
    got record;
    bound_priority integer;
    bound_run_at bigint;
    bound_seq bigint;
    missed boolean := false;    -- the first quarantined job cannot be taken
    through boolean := false;   -- all other jobs have been checked
BEGIN
    full_keys := '{}';
    passed := false;
    LOOP
        SELECT * INTO candidate FROM holdfast.first_ready(of_queue, true, ask_tasks, gens) WHERE NOT missed;
        from_quarantine := alone AND candidate.seq IS NOT NULL;
        bound_priority := 2147483647;
        bound_run_at := 0;
        bound_seq := 0;
        IF from_quarantine AND NOT through THEN
            SELECT * INTO sound FROM holdfast.first_ready(of_queue, false, ask_tasks, gens);
            from_quarantine := sound.seq IS NULL
                OR (candidate.priority, candidate.run_at, candidate.seq) < (sound.priority, sound.run_at, sound.seq);
            IF sound.seq IS NOT NULL THEN
                bound_priority := sound.priority;
                bound_run_at := sound.run_at;
                bound_seq := sound.seq;
            END IF;
        END IF;
        SELECT * INTO got FROM holdfast.choose(
            of_queue, ask_tasks, from_quarantine, candidate.crashes, bound_priority, bound_run_at, bound_seq,
            CASE WHEN from_quarantine THEN holdfast.cohort(candidate.crashes, room) ELSE room END, gens, now, spare);
        missed := missed OR (from_quarantine AND got.chosen = '{}' AND got.spare = spare);
        through := through OR NOT from_quarantine;
        full_keys := full_keys || got.full_keys;
        passed := passed OR got.passed;
        spare := got.spare;
        chosen := got.chosen;
        waiting := NOT from_quarantine AND candidate.seq IS NOT NULL AND (chosen <> '{}' OR NOT alone)
            AND (cardinality(chosen) < room
                OR (candidate.priority, candidate.run_at, candidate.seq) < (got.priority, got.run_at, got.seq));
        EXIT WHEN spare <= 0 OR chosen <> '{}' OR (NOT from_quarantine AND (candidate.seq IS NULL OR NOT alone));
    END LOOP;
END $$;
