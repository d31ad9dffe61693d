-- Version 12: NOTE, SETTLE and CLAIM, told of and counted; retention of what is told.
--
-- Jobs are found by their numbers. `state || ''` keeps the planner from job_running, which looks cheap while the table
-- is empty: a plan that was made then went through all that runs, and over all that had run since the last vacuum.

-- Answers the places (from 1) of the notes that were refused.
CREATE OR REPLACE FUNCTION holdfast.note(
    say_seqs bigint[], say_fences bigint[], say_tokens bigint[], say_progress bytea[], say_checkpoints bytea[],
    say_pids integer[], say_metas text[]
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    written bigint[];
BEGIN
    WITH said AS (
        SELECT * FROM unnest(say_seqs, say_fences, say_tokens, say_progress, say_checkpoints, say_pids, say_metas)
            WITH ORDINALITY AS u(seq, fence, token, progress, checkpoint, pid, meta, place)
    ), noted AS (
        UPDATE holdfast.job AS j SET
            progress = coalesce(s.progress, j.progress),
            checkpoint = coalesce(s.checkpoint, j.checkpoint),
            deaths = CASE WHEN s.checkpoint IS NULL THEN j.deaths ELSE 0 END,
            pid = coalesce(s.pid, j.pid),
            meta = CASE WHEN s.meta IS NULL THEN j.meta
                ELSE (coalesce(j.meta::jsonb, '{}') || s.meta::jsonb)::json END
        FROM said AS s
        WHERE j.seq = s.seq AND j.fence = s.fence AND j.token = s.token AND j.state || '' = 'running'
        RETURNING s.place
    )
    SELECT array_agg(noted.place) INTO written FROM noted;
    IF cardinality(written) = cardinality(say_seqs) THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(SELECT p FROM generate_series(1, cardinality(say_seqs)) AS p WHERE p <> ALL (coalesce(written, '{}')));
END $$;

-- Claims that end for good, at most one settlement each: one statement for all of them.
-- Answers the jobs that ended by it; the caller asks settled_before() about the others.
CREATE OR REPLACE FUNCTION holdfast.settle_plain(
    end_seqs bigint[], end_fences bigint[], end_tokens bigint[], end_nonces bigint[], end_states text[],
    end_attempts integer[], end_suspects boolean[], end_deaths integer[], end_results bytea[], end_errors text[],
    end_tracebacks text[], end_keeps double precision[], end_key_keeps double precision[], now bigint
) RETURNS TABLE (place bigint, job text) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    WITH gone AS (
        DELETE FROM holdfast.job AS j
        USING unnest(end_seqs, end_fences, end_tokens, end_nonces, end_states, end_attempts, end_suspects, end_deaths,
            end_results, end_errors, end_tracebacks, end_keeps, end_key_keeps)
            WITH ORDINALITY AS u(seq, fence, token, nonce, state, attempt, suspect, deaths, result, error, traceback,
                keep, key_keep, place)
        WHERE j.seq = u.seq AND j.fence = u.fence AND j.token = u.token AND j.state || '' = 'running'
        RETURNING u.place, u.nonce AS settling, u.state AS end_state, u.attempt AS end_attempt,
            u.suspect AS end_suspect, u.deaths AS end_deaths, u.result AS end_result, u.error AS end_error,
            u.traceback AS end_traceback, u.keep, u.key_keep, j.*
    ), kept AS (
        INSERT INTO holdfast.ended
        SELECT g.seq, g.id, g.queue, g.task, coalesce(g.end_state, 'succeeded'), g.priority, g.run_at, g.payload,
            g.codec, g.max_attempts, g.timeout, g.key, g.created_at, g.end_attempt, g.life, g.fence, g.token, g.holder,
            g.pid, coalesce(g.end_suspect, false), coalesce(g.end_deaths, 0), false, g.started_at, now,
            now + (g.keep * 1000000)::bigint, g.end_result, g.end_error, g.end_traceback, g.progress,
            g.checkpoint, g.tags, g.meta, g.retry, g.history, g.nonce, g.settling, g.gen
        FROM gone AS g WHERE g.keep IS NULL OR g.keep > 0
    ), unkept AS (
        DELETE FROM holdfast.output AS o USING gone AS g WHERE g.keep <= 0 AND o.seq = g.seq
    ), counted AS (
        -- The outcome of a claim that ends for good is the state that its job ends in.
        INSERT INTO holdfast.minute (at, queue, outcome, count, waited, ran)
        SELECT now / 60000000 * 60000000, g.queue, coalesce(g.end_state, 'succeeded'), count(*),
            sum(greatest(0, g.started_at - g.run_at)), sum(greatest(0, now - g.started_at))
        FROM gone AS g GROUP BY g.queue, coalesce(g.end_state, 'succeeded')
    ), told AS (
        INSERT INTO holdfast.move (at, ids, states)
        SELECT now, array_agg(g.id ORDER BY g.place), array_agg(coalesce(g.end_state, 'succeeded') ORDER BY g.place)
        FROM gone AS g WHERE (SELECT holdfast.watched(now)) HAVING count(*) > 0
    ), keys AS (
        UPDATE holdfast.key AS k SET expires_at = now + (greatest(0, coalesce(g.key_keep, 0)) * 1000000)::bigint
        FROM gone AS g WHERE g.key IS NOT NULL AND k.key = g.key AND k.id = g.id
    )
    SELECT g.place, g.id FROM gone AS g;
END $$;

-- Settlements of any kind, one by one: [{"place", "id", "seq", "fence", "token", "nonce", "state", "outcome", …}].
-- Answers all of them; `queue` where the job waits again, `job` where it has ended.
CREATE OR REPLACE FUNCTION holdfast.settle_each(ends jsonb, now bigint)
RETURNS TABLE (place bigint, written boolean, queue text, job text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    e record;
    j holdfast.job%ROWTYPE;
    state text;
    keep double precision;
    due bigint;
    newest integer;
    became text;
    ids text[] := '{}';
    states text[] := '{}';
BEGIN
    FOR e IN
        SELECT * FROM jsonb_to_recordset(ends) AS u(place bigint, id text, seq bigint, fence bigint, token bigint,
            nonce bigint, state text, outcome text, attempt integer, delay double precision, suspect boolean,
            deaths integer, result text, error text, traceback text, keep double precision,
            cancelled_keep double precision, key_keep double precision, seen_beat bigint)
    LOOP
        place := e.place;
        queue := NULL;
        job := NULL;
        IF e.seen_beat IS NULL THEN
            SELECT * INTO j FROM holdfast.job AS x WHERE x.seq = e.seq FOR UPDATE;
        ELSE
            -- A sweep waits for nobody: a row that is locked is being settled, a holder that is locked is beating.
            SELECT * INTO j FROM holdfast.job AS x WHERE x.seq = e.seq FOR UPDATE SKIP LOCKED;
        END IF;
        IF NOT FOUND OR j.state <> 'running' OR j.fence <> e.fence OR j.token <> e.token THEN
            written := holdfast.settled_before(e.id, e.nonce);
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF e.seen_beat IS NOT NULL THEN
            PERFORM FROM holdfast.holder AS h WHERE h.id = j.holder AND h.beat = e.seen_beat FOR SHARE SKIP LOCKED;
            IF NOT FOUND AND (e.seen_beat <> 0 OR EXISTS (SELECT FROM holdfast.holder AS h WHERE h.id = j.holder)) THEN
                written := false;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        written := true;
        state := e.state;
        keep := e.keep;
        IF j.cancel AND state NOT IN ('succeeded', 'dead', 'cancelled') THEN
            state := 'cancelled';
            keep := e.cancelled_keep;
        END IF;
        INSERT INTO holdfast.minute (at, queue, outcome, count, waited, ran)
        VALUES (now / 60000000 * 60000000, j.queue, CASE WHEN state = e.state THEN e.outcome ELSE state END, 1,
            greatest(0, j.started_at - j.run_at), greatest(0, now - j.started_at));
        IF state IN ('succeeded', 'dead', 'cancelled') THEN
            job := j.id;
            became := state;
            DELETE FROM holdfast.job AS x WHERE x.seq = j.seq;
            IF keep IS NULL OR keep > 0 THEN
                INSERT INTO holdfast.ended VALUES (j.seq, j.id, j.queue, j.task, state, j.priority, j.run_at, j.payload,
                    j.codec, j.max_attempts, j.timeout, j.key, j.created_at, e.attempt, j.life, j.fence, j.token,
                    j.holder, j.pid, e.suspect, e.deaths, false, j.started_at, now,
                    now + (keep * 1000000)::bigint, decode(e.result, 'hex'), e.error, e.traceback,
                    j.progress, j.checkpoint, j.tags, j.meta, j.retry, j.history, j.nonce, e.nonce, j.gen);
            ELSE
                DELETE FROM holdfast.output AS o WHERE o.seq = j.seq;
            END IF;
            IF j.key IS NOT NULL THEN
                UPDATE holdfast.key AS k SET expires_at = now + (greatest(0, e.key_keep) * 1000000)::bigint
                WHERE k.key = j.key AND k.id = j.id;
            END IF;
        ELSE
            queue := j.queue;
            due := CASE WHEN e.delay IS NULL THEN j.run_at ELSE now + (greatest(0, e.delay) * 1000000)::bigint END;
            became := CASE WHEN due > now THEN e.state ELSE 'queued' END;
            newest := coalesce(newest, holdfast.open_generation());
            UPDATE holdfast.job AS x SET
                state = became, run_at = due, attempt = e.attempt,
                suspect = e.suspect, deaths = e.deaths, cancel = false, result = decode(e.result, 'hex'),
                error = e.error, traceback = e.traceback, holder = NULL, started_at = NULL, pid = NULL,
                settled = e.nonce, gen = newest,
                history = jsonb_path_query_array(coalesce(j.history, '[]') || (jsonb_build_object(
                    'number', e.attempt, 'fence', j.fence, 'life', j.life, 'worker', j.holder, 'started_at',
                    j.started_at, 'ended_at', now, 'outcome', e.outcome)
                    || jsonb_strip_nulls(jsonb_build_object('error', e.error))), '$[last - 49 to last]')
            WHERE x.seq = j.seq;
        END IF;
        ids := ids || j.id;
        states := states || became;
        RETURN NEXT;
    END LOOP;
    PERFORM holdfast.tell(now, ids, states);
END $$;

CREATE OR REPLACE FUNCTION holdfast.claim(
    ask_holder text, ask_about text, ask_lease double precision, ask_queues text[], ask_limit integer,
    ask_token bigint, ask_tasks text[], ask_busy boolean, now bigint
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gens integer[];
    newest integer;
    of_queue text;
    wanted integer := ask_limit;
    taken bigint := 0;
    got bigint;
    waiting boolean := false;
    looked boolean := false;
    alone boolean;
    due bigint;
    soonest bigint;
    first_suspect record;
    first_sound record;
    read_before bigint := pg_stat_get_xact_blocks_fetched('holdfast.job_ready'::regclass);
    worn boolean;
BEGIN
    SELECT array_agg(g.gen ORDER BY g.gen) INTO gens FROM holdfast.generation AS g;
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
                    ORDER BY x.run_at, x.seq LIMIT 1000 FOR UPDATE SKIP LOCKED
                ) AS d));
            IF newest <> ALL (gens) THEN
                gens := gens || newest;
            END IF;
            due := holdfast.next_due(of_queue, gens);
        END IF;
        soonest := least(soonest, due);
        looked := true;
        CONTINUE WHEN wanted <= 0;
        SELECT * INTO first_suspect FROM holdfast.first_ready(of_queue, true, ask_tasks, gens);
        alone := false;
        IF first_suspect.seq IS NOT NULL AND NOT ask_busy AND taken = 0 THEN
            SELECT * INTO first_sound FROM holdfast.first_ready(of_queue, false, ask_tasks, gens);
            alone := first_sound.seq IS NULL OR (first_suspect.priority, first_suspect.run_at, first_suspect.seq)
                < (first_sound.priority, first_sound.run_at, first_sound.seq);
        END IF;
        newest := coalesce(newest, gens[cardinality(gens)]);
        IF cardinality(gens) = 1 THEN
            RETURN QUERY UPDATE holdfast.job AS j SET state = 'running', attempt = j.attempt + 1, fence = j.fence + 1,
                token = ask_token, holder = ask_holder, started_at = now, pid = NULL
            WHERE j.ctid = ANY (ARRAY(
                SELECT x.ctid FROM holdfast.job AS x
                WHERE x.queue = of_queue AND x.gen = newest AND x.suspect = alone AND x.state = 'queued'
                    AND (ask_tasks IS NULL OR x.task = ANY (ask_tasks))
                ORDER BY x.priority, x.run_at, x.seq
                LIMIT CASE WHEN alone THEN 1 ELSE wanted END FOR UPDATE SKIP LOCKED))
            RETURNING NULL::text, j.seq, j.id, j.queue, j.task, j.state, j.priority, j.run_at, j.payload, j.codec,
                j.max_attempts, j.timeout, j.key, j.created_at, j.attempt, j.life, j.fence, j.token, j.holder, j.pid,
                j.suspect, j.deaths, j.cancel, j.started_at, j.finished_at, j.expires_at, j.result, j.error,
                j.traceback, j.progress, j.checkpoint, j.tags, j.meta, j.retry, j.history;
        ELSE
            RETURN QUERY UPDATE holdfast.job AS j SET state = 'running', attempt = j.attempt + 1, fence = j.fence + 1,
                token = ask_token, holder = ask_holder, started_at = now, pid = NULL
            WHERE j.ctid = ANY (ARRAY(
                SELECT f.ctid
                FROM unnest(gens) AS g(gen)
                LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = of_queue AND NOT alone
                CROSS JOIN LATERAL (
                    SELECT x.ctid, x.priority, x.run_at, x.seq FROM holdfast.job AS x
                    WHERE x.queue = of_queue AND x.gen = g.gen AND x.suspect = alone AND x.state = 'queued'
                        AND (x.priority, x.run_at, x.seq)
                            >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
                        AND (ask_tasks IS NULL OR x.task = ANY (ask_tasks))
                    ORDER BY x.priority, x.run_at, x.seq
                    LIMIT CASE WHEN alone THEN 1 ELSE wanted END FOR UPDATE SKIP LOCKED
                ) AS f
                ORDER BY f.priority, f.run_at, f.seq LIMIT CASE WHEN alone THEN 1 ELSE wanted END))
            RETURNING NULL::text, j.seq, j.id, j.queue, j.task, j.state, j.priority, j.run_at, j.payload, j.codec,
                j.max_attempts, j.timeout, j.key, j.created_at, j.attempt, j.life, j.fence, j.token, j.holder, j.pid,
                j.suspect, j.deaths, j.cancel, j.started_at, j.finished_at, j.expires_at, j.result, j.error,
                j.traceback, j.progress, j.checkpoint, j.tags, j.meta, j.retry, j.history;
        END IF;
        GET DIAGNOSTICS got = ROW_COUNT;
        taken := taken + got;
        EXIT WHEN alone AND got > 0;
        IF first_suspect.seq IS NOT NULL THEN
            waiting := waiting OR got < wanted OR EXISTS (
                SELECT FROM holdfast.job AS j WHERE j.holder = ask_holder AND j.gen = ANY (gens) AND j.state = 'running'
                    AND j.token = ask_token AND j.queue = of_queue AND (j.priority, j.run_at, j.seq)
                        > (first_suspect.priority, first_suspect.run_at, first_suspect.seq));
        END IF;
        wanted := wanted - got;
        EXIT WHEN wanted <= 0 AND ask_limit > 0;
    END LOOP;
    worn := pg_stat_get_xact_blocks_fetched('holdfast.job_ready'::regclass) - read_before
        > 40 + taken / 4 + 8 * cardinality(ask_queues) * cardinality(gens);
    IF taken = 0 OR waiting OR worn THEN
        RETURN NEXT (json_build_object('waiting', waiting, 'worn', worn, 'due_in',
            CASE WHEN taken = 0 AND soonest IS NOT NULL THEN greatest(0, soonest - now) END)::text,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
            )::holdfast.answer;
    END IF;
    IF taken > 0 AND holdfast.watched(now) THEN
        INSERT INTO holdfast.move (at, ids, states)
        SELECT now, array_agg(t.id), array_agg(t.state) FROM (
            SELECT j.id, j.state FROM holdfast.job AS j
            WHERE j.holder = ask_holder AND j.gen = ANY (gens) AND j.state = 'running' AND j.token = ask_token
            ORDER BY array_position(ask_queues, j.queue), j.priority, j.run_at, j.seq
        ) AS t;
    END IF;
    -- Renew the holder where half of its lease is spent. Looked at first: an upsert would write each time.
    IF taken > 0 AND NOT EXISTS (SELECT FROM holdfast.holder AS h WHERE h.id = ask_holder
        AND h.expires - now >= (ask_lease * 1000000)::bigint / 2)
    THEN
        INSERT INTO holdfast.holder AS h (id, about, beat, beaten_at, expires)
        VALUES (ask_holder, ask_about::json, 1, now, now + (ask_lease * 1000000)::bigint)
        ON CONFLICT (id) DO UPDATE SET beat = h.beat + 1, beaten_at = now, expires = excluded.expires;
    END IF;
END $$;

-- Remove at most `most` each of jobs past their retention, forgotten keys, and holders gone without jobs.
CREATE OR REPLACE FUNCTION holdfast.tidy(most integer) RETURNS TABLE (jobs bigint, keys bigint, holders bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    now bigint := holdfast.micros();
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.ended AS e WHERE e.ctid = ANY (ARRAY(
            SELECT x.ctid FROM holdfast.ended AS x WHERE x.expires_at <= now
            ORDER BY x.expires_at LIMIT most FOR UPDATE SKIP LOCKED)) RETURNING e.seq
    ), printed AS (
        DELETE FROM holdfast.output AS o USING gone AS g WHERE o.seq = g.seq
    ) SELECT count(*) INTO jobs FROM gone;
    DELETE FROM holdfast.key AS k WHERE k.ctid = ANY (ARRAY(
        SELECT x.ctid FROM holdfast.key AS x WHERE x.expires_at <= now
        ORDER BY x.expires_at LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS keys = ROW_COUNT;
    DELETE FROM holdfast.holder AS h WHERE h.id = ANY (ARRAY(
        SELECT x.id FROM holdfast.holder AS x WHERE x.expires <= now AND NOT EXISTS (
            SELECT FROM holdfast.job AS j WHERE j.holder = x.id AND j.state = 'running'
                AND j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)))
        LIMIT most FOR UPDATE SKIP LOCKED)) AND h.expires <= now;
    GET DIAGNOSTICS holders = ROW_COUNT;
    PERFORM holdfast.tidy_told(most, now);
    RETURN NEXT;
END $$;
