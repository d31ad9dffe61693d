-- Version 18: CLAIM with lanes.
--
-- Claims of one lane take turns: who decides about it has locked its gate, counts what runs only then, in a statement of
-- its own, and keeps the gate until the commit. A claim waits for gates once at the most, for all that it needs then, by
-- name; whatever it meets later it leaves alone where another has it, as it does with jobs. So no two ever wait for each
-- other. Jobs come before gates: nobody waits for a job while having a gate.

-- Lock the gates of these lanes, making them if need be; where it is not `patient`, those that can be had at once.
CREATE FUNCTION holdfast.take_gates(names text[], patient boolean) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    fresh text[] := ARRAY(SELECT DISTINCT u.n FROM unnest(names) AS u(n)
        WHERE NOT EXISTS (SELECT FROM holdfast.gate AS g WHERE g.name = u.n));
    part integer;
BEGIN
    -- Making one would wait for whoever is just making the same; so those who make any of a part of all names take turns.
    FOR part IN SELECT DISTINCT hashtext(n) & 63 FROM unnest(fresh) AS n ORDER BY 1 LOOP
        IF patient THEN
            PERFORM pg_advisory_xact_lock(holdfast.lock_class() # 3, part);
        ELSIF NOT pg_try_advisory_xact_lock(holdfast.lock_class() # 3, part) THEN
            fresh := ARRAY(SELECT n FROM unnest(fresh) AS n WHERE hashtext(n) & 63 <> part);
        END IF;
    END LOOP;
    INSERT INTO holdfast.gate (name) SELECT n FROM unnest(fresh) AS n ON CONFLICT (name) DO NOTHING;
    IF patient THEN
        RETURN ARRAY(SELECT g.name FROM holdfast.gate AS g WHERE g.name = ANY (names) ORDER BY g.name FOR UPDATE);
    END IF;
    RETURN ARRAY(SELECT g.name FROM holdfast.gate AS g WHERE g.name = ANY (names) FOR UPDATE SKIP LOCKED);
END $$;

-- Make held jobs of a lane ready, as many as may start. Its gate is locked.
CREATE FUNCTION holdfast.let_go(of_lane text, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gate holdfast.gate%ROWTYPE;
    lane jsonb;
    running bigint;
    free bigint;
    gone bigint := 0;
    look bigint;
BEGIN
    SELECT * INTO gate FROM holdfast.gate AS g WHERE g.name = of_lane;
    SELECT f.lane INTO lane FROM holdfast.generation AS g CROSS JOIN LATERAL (
        SELECT j.lane, j.priority, j.run_at, j.seq FROM holdfast.job AS j
        WHERE j.gen = g.gen AND j.waits = 'lane:' || of_lane AND j.state = 'blocked' AND j.lane IS NOT NULL
        ORDER BY j.priority, j.run_at, j.seq LIMIT 1
    ) AS f ORDER BY f.priority, f.run_at, f.seq LIMIT 1;
    IF lane IS NOT NULL THEN
        running := holdfast.running(of_lane);
        free := least(1000, holdfast.starts(lane, gate.tat, gate.rest_until, running, now));
        IF free > 0 THEN
            UPDATE holdfast.job AS j SET state = 'queued', waits = NULL, gen = holdfast.open_generation()
            WHERE j.ctid = ANY (ARRAY(
                SELECT f.ctid FROM holdfast.generation AS g CROSS JOIN LATERAL (
                    SELECT x.ctid, x.priority, x.run_at, x.seq FROM holdfast.job AS x
                    WHERE x.gen = g.gen AND x.waits = 'lane:' || of_lane AND x.state = 'blocked' AND x.lane IS NOT NULL
                    ORDER BY x.priority, x.run_at, x.seq LIMIT free FOR UPDATE SKIP LOCKED
                ) AS f ORDER BY f.priority, f.run_at, f.seq LIMIT free));
            GET DIAGNOSTICS gone = ROW_COUNT;
        END IF;
        IF holdfast.holds(of_lane) THEN
            -- Fewer than could: somebody is just changing one. Many: there may be room for more.
            look := CASE WHEN gone < free OR free = 1000 THEN now
                ELSE holdfast.next_look(lane, gate.tat, gate.rest_until, running, now) END;
        END IF;
    END IF;
    IF look IS DISTINCT FROM gate.opens_at THEN
        UPDATE holdfast.gate AS g SET opens_at = look WHERE g.name = of_lane;
    END IF;
END $$;

-- Take in what happened to lanes, and open the gates whose time it is, except those that another claim has: it is left
-- for the next. Answers the gates that this claim has now, also those of the first ready jobs of its queues, for which it
-- waits: it is about to need them.
CREATE FUNCTION holdfast.reopen(
    ask_queues text[], ask_limit integer, ask_patient boolean, gens integer[], now bigint
) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mine text[];
    looks text[];
    n record;
BEGIN
    mine := holdfast.take_gates(
        ARRAY(SELECT f.lane ->> 'name' FROM unnest(gens) AS g(gen) CROSS JOIN unnest(ask_queues) AS q(name)
            LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = q.name
            CROSS JOIN LATERAL (
                SELECT x.lane FROM holdfast.job AS x
                WHERE x.queue = q.name AND x.gen = g.gen AND x.suspect = false AND x.state = 'queued'
                    AND (x.priority, x.run_at, x.seq)
                        >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
                ORDER BY x.priority, x.run_at, x.seq LIMIT ask_limit
            ) AS f WHERE f.lane IS NOT NULL),
        ask_patient);
    mine := mine || holdfast.take_gates(
        ARRAY(SELECT g.name FROM holdfast.gate AS g WHERE g.opens_at <= now ORDER BY g.opens_at, g.name LIMIT 1000)
        || ARRAY(SELECT o.lane FROM unnest(gens) AS g(gen) CROSS JOIN LATERAL (
            SELECT DISTINCT x.lane FROM holdfast.notice AS x WHERE x.gen = g.gen LIMIT 1000) AS o),
        false);
    looks := ARRAY(SELECT g.name FROM holdfast.gate AS g WHERE g.name = ANY (mine) AND g.opens_at <= now);
    FOR n IN
        WITH seen AS (
            DELETE FROM holdfast.notice AS x WHERE x.gen = ANY (gens) AND x.lane = ANY (mine)
            RETURNING x.lane, x.rest_until, x.held
        )
        SELECT s.lane, max(s.rest_until) AS rest_until, bool_or(s.rest_until IS NULL) AS left_it, bool_or(s.held) AS held
        FROM seen AS s GROUP BY s.lane
    LOOP
        UPDATE holdfast.gate AS g SET rest_until = n.rest_until WHERE g.name = n.lane AND g.rest_until < n.rest_until;
        IF n.left_it AND n.lane <> ALL (looks) AND (n.held OR holdfast.holds(n.lane)) THEN
            looks := looks || n.lane;
        END IF;
    END LOOP;
    PERFORM holdfast.let_go(u.lane, now) FROM unnest(looks) AS u(lane);
    RETURN mine;
END $$;

-- Lanes that a claim has met, a place in each array for each: what is remembered of it (NULL where another claim has its
-- gate), what ran before this claim, what this one starts, and what its gate is to remember at the end.
CREATE TYPE holdfast.met AS (
    names text[], tats bigint[], rests bigint[], running bigint[], started bigint[], next_tats bigint[], held boolean[],
    looks bigint[]
);

-- What is remembered and what runs of these lanes, after their gates are locked.
CREATE FUNCTION holdfast.meet(names text[], patient boolean)
RETURNS TABLE (name text, tat bigint, rest_until bigint, running bigint) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mine text[] := holdfast.take_gates(names, patient);
BEGIN
    RETURN QUERY SELECT u.n, g.tat, g.rest_until, CASE WHEN g.name IS NOT NULL THEN holdfast.running(g.name) END
    FROM unnest(names) AS u(n) LEFT JOIN holdfast.gate AS g ON g.name = u.n AND g.name = ANY (mine);
END $$;

-- Choose at most `most` ready jobs of a queue, in order; answers them, and the place of the last one. Those whose lanes
-- do not let them start are held on the way, at most `spare`.
CREATE FUNCTION holdfast.choose(
    of_queue text, ask_tasks text[], suspects boolean, most integer, patient boolean, gens integer[], now bigint,
    INOUT met holdfast.met, INOUT spare integer, OUT chosen tid[], OUT priority integer, OUT run_at bigint, OUT seq bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Apart, since what is in a variable of its own is changed where it is.
    names text[] := met.names;
    tats bigint[] := met.tats;
    rests bigint[] := met.rests;
    running bigint[] := met.running;
    started bigint[] := met.started;
    next_tats bigint[] := met.next_tats;
    held boolean[] := met.held;
    looks bigint[] := met.looks;
    aside tid[] := '{}';
    size integer;
    found record;
    after record;
    n record;
    places integer[];
    at integer;
    lane jsonb;
    step bigint;
BEGIN
    chosen := '{}';
    SELECT -2147483648 AS priority, 0::bigint AS run_at, 0::bigint AS seq INTO after;
    LOOP
        size := most - cardinality(chosen);
        EXIT WHEN size <= 0 OR cardinality(aside) >= spare;
        SELECT array_agg(f.ctid) AS ats, array_agg(f.lane) AS lanes, array_agg(f.priority) AS priorities,
            array_agg(f.run_at) AS run_ats, array_agg(f.seq) AS seqs
        INTO found FROM (
            SELECT r.* FROM unnest(gens) AS g(gen)
            LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = of_queue AND NOT suspects
            CROSS JOIN LATERAL (
                SELECT x.ctid, x.priority, x.run_at, x.seq, x.lane FROM holdfast.job AS x
                WHERE x.queue = of_queue AND x.gen = g.gen AND x.suspect = suspects AND x.state = 'queued'
                    AND (x.priority, x.run_at, x.seq) > (after.priority, after.run_at, after.seq)
                    AND (x.priority, x.run_at, x.seq)
                        >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
                    AND (ask_tasks IS NULL OR x.task = ANY (ask_tasks))
                ORDER BY x.priority, x.run_at, x.seq LIMIT size FOR UPDATE SKIP LOCKED
            ) AS r ORDER BY r.priority, r.run_at, r.seq LIMIT size
        ) AS f;
        EXIT WHEN found.ats IS NULL;
        FOR n IN SELECT m.* FROM holdfast.meet(
            ARRAY(SELECT DISTINCT u.lane ->> 'name' FROM unnest(found.lanes) AS u(lane)
                WHERE u.lane IS NOT NULL AND u.lane ->> 'name' <> ALL (names)),
            patient AND names = '{}') AS m
        LOOP
            names := names || n.name;
            tats := tats || n.tat;
            rests := rests || n.rest_until;
            running := running || n.running;
            started := started || 0::bigint;
            next_tats := next_tats || n.tat;
            held := held || false;
            looks := looks || NULL::bigint;
        END LOOP;
        places := ARRAY(SELECT array_position(names, u.lane ->> 'name') FROM unnest(found.lanes) AS u(lane));
        FOR i IN 1..cardinality(found.ats) LOOP
            at := places[i];
            lane := found.lanes[i];
            CONTINUE WHEN at IS NOT NULL AND tats[at] IS NULL;  -- another claim is deciding about it
            IF at IS NULL OR holdfast.starts(lane, tats[at], rests[at], running[at], now) > started[at] THEN
                chosen := chosen || found.ats[i];
                priority := found.priorities[i];
                run_at := found.run_ats[i];
                seq := found.seqs[i];
                IF at IS NOT NULL THEN
                    started[at] := started[at] + 1;
                    step := (lane ->> 'interval')::bigint;
                    IF step > 0 THEN
                        next_tats[at] := greatest(next_tats[at], now) + step;
                    END IF;
                END IF;
            ELSE
                aside := aside || found.ats[i];
                held[at] := true;
                looks[at] := holdfast.next_look(lane, tats[at], rests[at], running[at], now);
                EXIT WHEN cardinality(aside) >= spare;
            END IF;
        END LOOP;
        EXIT WHEN suspects OR cardinality(found.ats) < size;  -- where the next suspect stands is looked at anew
        after.priority := found.priorities[size];
        after.run_at := found.run_ats[size];
        after.seq := found.seqs[size];
    END LOOP;
    met := ROW(names, tats, rests, running, started, next_tats, held, looks);
    IF aside <> '{}' THEN
        UPDATE holdfast.job AS j SET state = 'blocked', waits = 'lane:' || (j.lane ->> 'name'),
            gen = holdfast.open_generation()
        WHERE j.ctid = ANY (aside);
        spare := spare - cardinality(aside);
    END IF;
END $$;

-- Choose jobs of a queue, some of which have lanes: at most `room`; a suspect only where it may be `alone`.
CREATE FUNCTION holdfast.pick(
    of_queue text, ask_tasks text[], room integer, alone boolean, patient boolean, gens integer[], now bigint,
    INOUT met holdfast.met, INOUT spare integer, OUT chosen tid[], OUT suspects boolean, OUT waiting boolean
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    suspect record;
    sound record;
    got record;
    passed boolean := false;    -- the first suspect cannot be had
    through boolean := false;   -- all others have been looked at
BEGIN
    LOOP
        SELECT * INTO suspect FROM holdfast.first_ready(of_queue, true, ask_tasks, gens) WHERE NOT passed;
        suspects := alone AND suspect.seq IS NOT NULL;
        IF suspects AND NOT through THEN
            SELECT * INTO sound FROM holdfast.first_ready(of_queue, false, ask_tasks, gens);
            suspects := sound.seq IS NULL
                OR (suspect.priority, suspect.run_at, suspect.seq) < (sound.priority, sound.run_at, sound.seq);
        END IF;
        SELECT * INTO got FROM holdfast.choose(of_queue, ask_tasks, suspects, CASE WHEN suspects THEN 1 ELSE room END,
            patient, gens, now, met, spare);
        passed := passed OR (suspects AND got.chosen = '{}' AND got.spare = spare);
        through := through OR NOT suspects;
        met := got.met;
        spare := got.spare;
        chosen := got.chosen;
        waiting := NOT suspects AND suspect.seq IS NOT NULL AND (chosen <> '{}' OR NOT alone)
            AND (cardinality(chosen) < room
                OR (suspect.priority, suspect.run_at, suspect.seq) < (got.priority, got.run_at, got.seq));
        EXIT WHEN spare <= 0 OR chosen <> '{}' OR (NOT suspects AND (suspect.seq IS NULL OR NOT alone));
    END LOOP;
END $$;
