-- What a claim may take, where jobs have limit keys.
--
-- Claims of one limit key take turns: who decides about it has locked its limiter, counts what runs only then, in a statement of
-- its own, and keeps the limiter until the commit. A claim waits for limiters once at the most, for all that it needs then, by
-- name; whatever it meets later it leaves alone where another has it, as it does with jobs. So no two ever wait for each
-- other. Jobs come before limiters: nobody waits for a job while having a limiter.
--
-- An end that commits while a claim which still counts its job is under way cannot see what that claim holds, and the
-- claim cannot see the end. So both leave a notice, and whichever commits last has it seen by a claim that sees both. For
-- that, a transaction leaves its own notices alone (`self`), except where it has the limiter, and so nobody else decides.

-- Lock the limiters of these limit keys, all different, making them if need be; where it is not `patient`, those that can be had
-- at once.
CREATE FUNCTION holdfast.take_limiters(names text[], patient boolean) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mine text[];
    fresh text[];
    parts integer[];
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'jobs with limits cannot be claimed at the isolation level %: let the role that Holdfast connects '
            'as SET default_transaction_isolation = ''read committed''', current_setting('transaction_isolation')
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
    -- Making one would wait for whoever is just making the same; so those who make any of a part of all names take turns.
    parts := ARRAY(SELECT DISTINCT hashtext(n) & 63 FROM unnest(fresh) AS n ORDER BY 1);
    IF patient THEN
        PERFORM pg_advisory_xact_lock(holdfast.lock_class() # 3, p) FROM unnest(parts) AS p;
    ELSE
        parts := ARRAY(SELECT p FROM unnest(parts) AS p WHERE pg_try_advisory_xact_lock(holdfast.lock_class() # 3, p));
        fresh := ARRAY(SELECT n FROM unnest(fresh) AS n WHERE hashtext(n) & 63 = ANY (parts));
    END IF;
    -- Whoever makes a limiter has it; one that another has made meanwhile is theirs.
    WITH made AS (
        INSERT INTO holdfast.limiter AS g (name) SELECT n FROM unnest(fresh) AS n ON CONFLICT (name) DO NOTHING
        RETURNING g.name
    )
    SELECT mine || array_agg(m.name) INTO mine FROM made AS m;
    RETURN mine;
END $$;

-- Make held jobs of these limit keys ready, as many as may start. Their limiters are locked.
CREATE FUNCTION holdfast.let_go(names text[], now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- A place in each for every limit key. The first job that it holds says how many may start.
    limit_keys jsonb[];
    running bigint[];
    free bigint[];
    gone bigint[];
    ats tid[];
    places bigint[];
    place bigint;
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
        UPDATE holdfast.job AS j SET state = 'queued', waiting_for = NULL, gen = holdfast.open_generation()
        WHERE j.ctid = ANY (ats);
        FOREACH place IN ARRAY places LOOP
            gone[place] := gone[place] + 1;
        END LOOP;
    END IF;
    UPDATE holdfast.limiter AS g SET opens_at = o.look FROM (
        -- Fewer than could: somebody is just changing one. Many: there may be room for more.
        SELECT s.name, CASE WHEN NOT h.held THEN NULL WHEN u.gone < u.free OR u.free = {PROMOTE_LIMIT} THEN now
            ELSE holdfast.next_look(u.limit_key, s.tat, s.rest_until, u.running, now) END AS look
        FROM unnest(names, limit_keys, running, free, gone) AS u(name, limit_key, running, free, gone)
        JOIN holdfast.limiter AS s ON s.name = u.name
        CROSS JOIN LATERAL holdfast.holds(u.name) AS h(held)
    ) AS o WHERE g.name = o.name AND g.opens_at IS DISTINCT FROM o.look;
END $$;

-- Take in what happened to limit keys, and open the limiters whose time it is, except those that another claim has: it is left
-- for the next. Where this needs any limiter, it first takes those of the first ready jobs of its queues, for which it waits:
-- it is about to need them. Answers whether it has any.
CREATE FUNCTION holdfast.reopen(ask_queues text[], ask_limit integer, gens integer[], self xid, now bigint)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seen record;
    due text[] := ARRAY(
        SELECT g.name FROM holdfast.limiter AS g WHERE g.opens_at <= now ORDER BY g.opens_at, g.name LIMIT {DEFER_LIMIT});
    mine text[];
    others text[];
BEGIN
    WITH seen AS (
        DELETE FROM holdfast.notice AS x WHERE x.ctid = ANY (ARRAY(
            SELECT n.ctid FROM unnest(gens) AS g(gen) CROSS JOIN LATERAL (
                SELECT o.ctid FROM holdfast.notice AS o
                WHERE o.gen = g.gen AND (o.held OR o.rest_until IS NOT NULL OR o.xmin IS DISTINCT FROM self)
                LIMIT {NOTICES} FOR UPDATE SKIP LOCKED
            ) AS n))
        RETURNING x.limit_keys, x.rest_until, x.held
    ), limit_key AS (
        SELECT u.name, max(s.rest_until) AS rest_until, bool_or(s.rest_until IS NULL) AS left_it, bool_or(s.held) AS held
        FROM seen AS s CROSS JOIN LATERAL unnest(s.limit_keys) AS u(name) GROUP BY u.name
    )
    SELECT array_agg(l.name) FILTER (WHERE l.left_it AND (l.held OR h.held)) AS looks,
        array_agg(l.name) FILTER (WHERE l.rest_until IS NOT NULL) AS resting,
        array_agg(l.rest_until) FILTER (WHERE l.rest_until IS NOT NULL) AS rests
    INTO seen FROM limit_key AS l
    CROSS JOIN LATERAL holdfast.holds(CASE WHEN l.left_it AND NOT l.held THEN l.name END) AS h(held);
    IF due = '{}' AND seen.looks IS NULL AND seen.resting IS NULL THEN
        RETURN false;
    END IF;
    PERFORM holdfast.take_limiters(
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
    mine := holdfast.take_limiters(
        ARRAY(SELECT unnest(due) UNION SELECT unnest(seen.looks) UNION SELECT unnest(seen.resting)), false);
    others := ARRAY(SELECT unnest(seen.looks) EXCEPT SELECT unnest(mine));
    IF others <> '{}' THEN
        INSERT INTO holdfast.notice (gen, limit_keys, held) VALUES (holdfast.open_generation(), others, true);
    END IF;
    IF seen.resting IS NOT NULL THEN
        INSERT INTO holdfast.notice (gen, limit_keys, rest_until)
        SELECT holdfast.open_generation(), ARRAY[u.name], u.rest_until
        FROM unnest(seen.resting, seen.rests) AS u(name, rest_until) WHERE u.name <> ALL (mine);
        UPDATE holdfast.limiter AS g SET rest_until = u.rest_until
        FROM unnest(seen.resting, seen.rests) AS u(name, rest_until)
        WHERE g.name = u.name AND g.rest_until < u.rest_until AND u.name = ANY (mine);
    END IF;
    PERFORM holdfast.let_go(
        ARRAY((SELECT unnest(due) UNION SELECT unnest(seen.looks)) INTERSECT SELECT unnest(mine)), now);
    RETURN true;
END $$;

-- Whether jobs of these limit keys may all start now; if so, their limiters remember it.
CREATE FUNCTION holdfast.admit(limit_keys jsonb[], patient boolean, now bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    names text[] := ARRAY(SELECT DISTINCT u.limit_key ->> 'name' FROM unnest(limit_keys) AS u(limit_key));
    fine boolean;
    timed boolean;
BEGIN
    IF cardinality(holdfast.take_limiters(names, patient)) < cardinality(names) THEN
        RETURN false;
    END IF;
    -- Jobs of one limit key whose numbers differ are looked at one by one.
    SELECT count(*) = cardinality(names)
            AND bool_and(w.number <= holdfast.starts(w.limit_key, g.tat, greatest(g.rest_until, s.rest_until), r.running, now)),
        bool_or((w.limit_key ->> 'interval')::bigint > 0)
    INTO fine, timed
    FROM (SELECT u.limit_key, count(*) AS number FROM unnest(limit_keys) AS u(limit_key) GROUP BY u.limit_key) AS w
    JOIN holdfast.limiter AS g ON g.name = w.limit_key ->> 'name'
    CROSS JOIN LATERAL holdfast.running(CASE WHEN (w.limit_key ->> 'concurrency')::bigint > 0 THEN g.name END) AS r(running)
    CROSS JOIN LATERAL holdfast.rests(g.name) AS s(rest_until);
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

-- What is remembered and what runs of these limit keys, as far as their limiters can be had at once.
CREATE FUNCTION holdfast.meet(names text[])
RETURNS TABLE (name text, tat bigint, rest_until bigint, running bigint) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mine text[] := holdfast.take_limiters(names, false);
BEGIN
    RETURN QUERY SELECT g.name, g.tat, greatest(g.rest_until, s.rest_until), r.running
    FROM holdfast.limiter AS g CROSS JOIN LATERAL holdfast.running(g.name) AS r(running)
    CROSS JOIN LATERAL holdfast.rests(g.name) AS s(rest_until) WHERE g.name = ANY (mine);
END $$;

-- Choose at most `most` ready jobs of a queue, in order; answers them, and the place of the last one. Those whose limit keys
-- do not let them start are held on the way, at most `spare`: `held` names the limit keys that are full. `passed`: some were
-- left alone, because another claim is deciding about their limit keys. Of quarantined jobs, those that have died `of_crashes` times and
-- stand before a place, that of the first sound job.
CREATE FUNCTION holdfast.choose(
    of_queue text, ask_tasks text[], from_quarantine boolean, of_crashes integer,
    bound_priority integer, bound_run_at bigint, bound_seq bigint, most integer, gens integer[], now bigint,
    INOUT spare integer, OUT chosen tid[], OUT held text[], OUT passed boolean,
    OUT priority integer, OUT run_at bigint, OUT seq bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    places jsonb := '{}';   -- by the name of a limit key that was met: its place in these
    names text[] := '{}';
    tats bigint[] := '{}';
    rests bigint[] := '{}';
    running bigint[] := '{}';
    started bigint[] := '{}';
    next_tats bigint[] := '{}';
    looks bigint[] := '{}';     -- when to look at what it holds; 0: it holds nothing
    aside tid[] := '{}';
    size integer;
    known integer;
    past integer := 0;          -- jobs that were looked at and not chosen
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
        EXIT WHEN cardinality(chosen) >= most OR cardinality(aside) >= spare;
        -- The more it had to leave, the further it looks at once. Jobs are locked only when it comes to them: others may
        -- take those that it does not need.
        size := CASE WHEN from_quarantine THEN 1 ELSE most - cardinality(chosen) + past END;
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
        FOR n IN SELECT m.* FROM holdfast.meet(ARRAY(
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
                aside := aside || spot;
                looks[at] := holdfast.next_look(limit_keys[i], tats[at], rests[at], running[at] + started[at], now);
            END IF;
            EXIT WHEN cardinality(chosen) >= most OR cardinality(aside) >= spare;
        END LOOP;
        -- Where the next quarantined job stands is looked at anew.
        EXIT WHEN cardinality(seqs) < size OR from_quarantine AND (passed OR aside <> '{}');
        after.priority := priorities[size];
        after.run_at := run_ats[size];
        after.seq := seqs[size];
    END LOOP;
    UPDATE holdfast.limiter AS g
    SET tat = u.next_tat, opens_at = CASE WHEN u.look = 0 THEN g.opens_at ELSE u.look END
    FROM unnest(names, next_tats, looks) AS u(name, next_tat, look)
    WHERE g.name = u.name AND (u.next_tat <> g.tat
        OR u.look IS DISTINCT FROM 0 AND u.look IS DISTINCT FROM g.opens_at);
    held := ARRAY(SELECT u.name FROM unnest(names, looks) AS u(name, look) WHERE u.look IS NULL);
    IF aside <> '{}' THEN
        UPDATE holdfast.job AS j SET state = 'blocked', waiting_for = '{LIMIT_PREFIX}' || (j.limit_key ->> 'name'),
            gen = holdfast.open_generation()
        WHERE j.ctid = ANY (aside);
        spare := spare - cardinality(aside);
    END IF;
END $$;

-- Choose jobs of a queue, some of which have limit keys: at most `room`; quarantined jobs only where they may be `alone`.
CREATE FUNCTION holdfast.pick(
    of_queue text, ask_tasks text[], room integer, alone boolean, gens integer[], now bigint,
    INOUT spare integer, OUT chosen tid[], OUT held text[], OUT passed boolean, OUT from_quarantine boolean, OUT waiting boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    candidate record;
    sound record;
    got record;
    bound_priority integer;
    bound_run_at bigint;
    bound_seq bigint;
    missed boolean := false;    -- the first quarantined job cannot be had
    through boolean := false;   -- all others have been looked at
BEGIN
    held := '{}';
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
        held := held || got.held;
        passed := passed OR got.passed;
        spare := got.spare;
        chosen := got.chosen;
        waiting := NOT from_quarantine AND candidate.seq IS NOT NULL AND (chosen <> '{}' OR NOT alone)
            AND (cardinality(chosen) < room
                OR (candidate.priority, candidate.run_at, candidate.seq) < (got.priority, got.run_at, got.seq));
        EXIT WHEN spare <= 0 OR chosen <> '{}' OR (NOT from_quarantine AND (candidate.seq IS NULL OR NOT alone));
    END LOOP;
END $$;
