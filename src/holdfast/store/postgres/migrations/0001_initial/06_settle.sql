-- NOTE and SETTLE: progress and end of a claim, written only under its fence and token.
--
-- Jobs are found by their numbers. `state || ''` keeps the planner from job_running, which looks cheap while the table
-- is empty: a plan made then would later read all running jobs, and all dead entries since the last vacuum.

-- Write notes. Returns the places (from 1) of the notes that were refused.
CREATE FUNCTION holdfast.note(
    note_seqs bigint[], note_fences bigint[], note_tokens bigint[], note_progress bytea[], note_checkpoints bytea[],
    note_saves integer[], note_pids integer[], note_metas text[], note_rests double precision[], now bigint
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    written bigint[];
BEGIN
    WITH given AS (
        SELECT * FROM unnest(note_seqs, note_fences, note_tokens, note_progress, note_checkpoints, note_saves, note_pids,
            note_metas) WITH ORDINALITY AS u(seq, fence, token, progress, checkpoint, saves, pid, meta, place)
    ), noted AS (
        UPDATE holdfast.job AS j SET
            progress = coalesce(s.progress, j.progress),
            checkpoint = CASE WHEN s.saves > j.saves THEN s.checkpoint ELSE j.checkpoint END,
            saves = greatest(s.saves, j.saves),
            crashes = CASE WHEN s.saves > j.saves THEN least(j.crashes, 0) ELSE j.crashes END,
            pid = coalesce(s.pid, j.pid),
            meta = CASE WHEN s.meta IS NULL THEN j.meta
                ELSE (coalesce(j.meta::jsonb, '{}') || s.meta::jsonb)::json END,
            changed_at = CASE WHEN coalesce(s.progress, s.checkpoint) IS NULL AND s.pid IS NULL AND s.meta IS NULL
                THEN j.changed_at ELSE now END
        FROM given AS s
        WHERE j.seq = s.seq AND j.fence = s.fence AND j.token = s.token AND j.state || '' = 'running'
        RETURNING s.place
    )
    SELECT array_agg(noted.place) INTO written FROM noted;
    IF note_rests IS NOT NULL THEN
        INSERT INTO holdfast.notice (gen, limit_keys, rest_until)
        SELECT holdfast.open_generation(), ARRAY[j.limit_key ->> 'name'], now + (greatest(0, u.rest) * {MICROS})::bigint
        FROM unnest(note_seqs, note_rests) WITH ORDINALITY AS u(seq, rest, place)
        JOIN holdfast.job AS j ON j.seq = u.seq
        WHERE u.rest IS NOT NULL AND u.place = ANY (written) AND j.limit_key IS NOT NULL;
    END IF;
    IF cardinality(written) = cardinality(note_seqs) THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(SELECT p FROM generate_series(1, cardinality(note_seqs)) AS p WHERE p <> ALL (coalesce(written, '{}')));
END $$;

-- Append a piece of output (or of the stream) of a claim after the last kept one; remove the oldest pieces beyond the
-- limit.
CREATE FUNCTION holdfast.print(
    of_seq bigint, of_fence bigint, piece_at bigint, piece bytea, keep bigint, of_stream boolean
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    last holdfast.output%ROWTYPE;
    place bigint := piece_at;
BEGIN
    SELECT * INTO last FROM holdfast.output AS o WHERE o.seq = of_seq AND o.stream = of_stream
    ORDER BY o.position DESC LIMIT 1;
    IF FOUND AND last.fence <> of_fence THEN
        place := last.position + length(last.data) + piece_at;
    ELSIF FOUND AND piece_at >= last.at + length(last.data) THEN
        place := last.position + piece_at - last.at;
    ELSIF FOUND THEN
        RETURN;  -- already stored
    END IF;
    INSERT INTO holdfast.output (seq, stream, position, fence, at, data)
    VALUES (of_seq, of_stream, place, of_fence, piece_at, piece);
    DELETE FROM holdfast.output AS o
    WHERE o.seq = of_seq AND o.stream = of_stream AND o.position < place + length(piece) - keep
        AND o.position + length(o.data) <= place + length(piece) - keep;
END $$;

-- Settle claims whose jobs end, at most one settlement per claim, in one statement.
-- Returns the jobs that ended, with their queues and limit keys; the caller checks the others with settled_before().
CREATE FUNCTION holdfast.settle_plain(
    end_seqs bigint[], end_fences bigint[], end_tokens bigint[], end_nonces bigint[], end_states text[],
    end_attempts integer[], end_quarantined boolean[], end_crashes integer[], end_results bytea[], end_errors text[],
    end_tracebacks text[], end_keeps double precision[], end_key_keeps double precision[], now bigint
) RETURNS TABLE (place bigint, job text, queue text, limit_key text) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    WITH gone AS (
        DELETE FROM holdfast.job AS j
        USING unnest(end_seqs, end_fences, end_tokens, end_nonces, end_states, end_attempts, end_quarantined, end_crashes,
            end_results, end_errors, end_tracebacks, end_keeps, end_key_keeps)
            WITH ORDINALITY AS u(seq, fence, token, nonce, state, attempt, quarantined, crashes, result, error, traceback,
                keep, key_keep, place)
        WHERE j.seq = u.seq AND j.fence = u.fence AND j.token = u.token AND j.state || '' = 'running'
        RETURNING u.place, u.nonce AS settling, u.state AS end_state, u.attempt AS end_attempt,
            u.quarantined AS end_quarantined, u.crashes AS end_crashes, u.result AS end_result, u.error AS end_error,
            u.traceback AS end_traceback, u.keep, u.key_keep, j.*
    ), kept AS (
        INSERT INTO holdfast.ended
        SELECT g.seq, g.id, g.queue, g.task, coalesce(g.end_state, 'succeeded'), g.priority, g.run_at, g.payload,
            g.codec, g.max_attempts, g.timeout, g.key, g.created_at, g.end_attempt, g.reset_count, g.fence, g.token, g.holder,
            g.pid, coalesce(g.end_quarantined, false), coalesce(g.end_crashes, 0), false, g.started_at, now,
            now + (g.keep * {MICROS})::bigint, g.end_result, g.end_error, g.end_traceback, g.progress,
            g.checkpoint, g.tags, g.meta, g.retry, g.history, g.nonce, g.settling, g.gen,
            NULL, g.limit_key, g.extra, g.saves, g.changed_at
        FROM gone AS g WHERE g.keep IS NULL OR g.keep > 0
    ), unkept AS (
        DELETE FROM holdfast.output AS o USING gone AS g WHERE g.keep <= 0 AND o.seq = g.seq
    ), counted AS (
        -- The outcome of a claim whose job ends is the final state of the job.
        INSERT INTO holdfast.minute (at, queue, task, outcome, count, waited, ran, waits, runs)
        SELECT now / {MINUTE} * {MINUTE}, g.queue, g.task, coalesce(g.end_state, 'succeeded'), count(*),
            sum(greatest(0, g.started_at - g.run_at)), sum(greatest(0, now - g.started_at)),
            string_agg(holdfast.letter(g.started_at - g.run_at), ''), string_agg(holdfast.letter(now - g.started_at), '')
        FROM gone AS g GROUP BY g.queue, g.task, coalesce(g.end_state, 'succeeded')
    ), recorded AS (
        INSERT INTO holdfast.transition (at, ids, states)
        SELECT now, array_agg(g.id ORDER BY g.place), array_agg(coalesce(g.end_state, 'succeeded') ORDER BY g.place)
        FROM gone AS g WHERE (SELECT holdfast.watched(now)) HAVING count(*) > 0
    ), keys AS (
        UPDATE holdfast.key AS k SET expires_at = now + (greatest(0, coalesce(g.key_keep, 0)) * {MICROS})::bigint
        FROM (SELECT x.key, x.id, x.key_keep FROM gone AS x WHERE x.key IS NOT NULL ORDER BY x.key) AS g
        WHERE k.key = g.key AND k.id = g.id  -- in the order in which an enqueue locks them
    )
    SELECT g.place, g.id, g.queue, g.limit_key ->> 'name' FROM gone AS g;
END $$;

-- Whether this settlement was the last one written for its job.
CREATE FUNCTION holdfast.settled_before(job_id text, given bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT j.settled = given FROM holdfast.job AS j WHERE j.id = job_id),
        (SELECT e.settled = given FROM holdfast.ended AS e WHERE e.id = job_id), false)
$$;

-- Settle claims in any way, one by one: [{"place", "id", "seq", "fence", "token", "nonce", "state", "outcome", …}].
-- Returns a row for each; `job` if it has ended, `queue` and `limit_key` if the settlement was written.
CREATE FUNCTION holdfast.settle_each(ends jsonb, now bigint)
RETURNS TABLE (place bigint, written boolean, queue text, job text, limit_key text) LANGUAGE plpgsql VOLATILE AS $$
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
            nonce bigint, state text, outcome text, attempt integer, delay double precision, quarantined boolean,
            crashes integer, result text, error text, traceback text, keep double precision,
            cancelled_keep double precision, key_keep double precision, expected_heartbeat bigint, waiting_for text, record_end boolean)
    LOOP
        place := e.place;
        queue := NULL;
        job := NULL;
        limit_key := NULL;
        IF e.expected_heartbeat IS NULL THEN
            SELECT * INTO j FROM holdfast.job AS x WHERE x.seq = e.seq FOR UPDATE;
        ELSE
            -- A sweep waits for no lock: a locked job is being settled, a locked holder is renewing its lease.
            SELECT * INTO j FROM holdfast.job AS x WHERE x.seq = e.seq FOR UPDATE SKIP LOCKED;
        END IF;
        IF NOT FOUND OR j.state <> 'running' OR j.fence <> e.fence OR j.token <> e.token THEN
            written := holdfast.settled_before(e.id, e.nonce);
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF e.expected_heartbeat IS NOT NULL THEN
            PERFORM FROM holdfast.holder AS h WHERE h.id = j.holder AND h.heartbeat = e.expected_heartbeat FOR SHARE SKIP LOCKED;
            IF NOT FOUND AND (e.expected_heartbeat <> 0 OR EXISTS (SELECT FROM holdfast.holder AS h WHERE h.id = j.holder)) THEN
                written := false;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        written := true;
        queue := j.queue;
        limit_key := j.limit_key ->> 'name';
        state := e.state;
        keep := e.keep;
        IF j.cancel AND state NOT IN ({FINAL_STATES}) THEN
            state := 'cancelled';
            keep := e.cancelled_keep;
        END IF;
        INSERT INTO holdfast.minute (at, queue, task, outcome, count, waited, ran, waits, runs)
        VALUES (now / {MINUTE} * {MINUTE}, j.queue, j.task, CASE WHEN state = e.state THEN e.outcome ELSE state END, 1,
            greatest(0, j.started_at - j.run_at), greatest(0, now - j.started_at),
            holdfast.letter(j.started_at - j.run_at), holdfast.letter(now - j.started_at));
        IF state IN ({FINAL_STATES}) THEN
            job := j.id;
            became := state;
            DELETE FROM holdfast.job AS x WHERE x.seq = j.seq;
            IF keep IS NULL OR keep > 0 THEN
                INSERT INTO holdfast.ended VALUES (j.seq, j.id, j.queue, j.task, state, j.priority, j.run_at, j.payload,
                    j.codec, j.max_attempts, j.timeout, j.key, j.created_at, e.attempt, j.reset_count, j.fence, j.token,
                    j.holder, j.pid, e.quarantined, e.crashes, false, j.started_at, now,
                    now + (keep * {MICROS})::bigint, decode(e.result, 'hex'), e.error, e.traceback,
                    j.progress, j.checkpoint, j.tags, j.meta, j.retry, j.history, j.nonce, e.nonce, j.gen,
                    NULL, j.limit_key, j.extra, j.saves, j.changed_at);
            ELSE
                DELETE FROM holdfast.output AS o WHERE o.seq = j.seq;
            END IF;
            IF j.key IS NOT NULL THEN
                UPDATE holdfast.key AS k SET expires_at = now + (greatest(0, e.key_keep) * {MICROS})::bigint
                WHERE k.key = j.key AND k.id = j.id;
            END IF;
            IF e.record_end THEN
                PERFORM holdfast.record_ended(ARRAY[j.id]);
            END IF;
        ELSE
            due := CASE WHEN e.delay IS NULL THEN j.run_at ELSE now + (greatest(0, e.delay) * {MICROS})::bigint END;
            became := CASE WHEN due > now OR e.state = 'blocked' THEN e.state ELSE 'queued' END;
            newest := coalesce(newest, holdfast.open_generation());
            UPDATE holdfast.job AS x SET
                state = became, run_at = due, attempt = e.attempt,
                quarantined = e.quarantined, crashes = e.crashes, cancel = false, result = decode(e.result, 'hex'),
                error = e.error, traceback = e.traceback, holder = NULL, started_at = NULL, pid = NULL,
                settled = e.nonce, gen = newest, waiting_for = e.waiting_for,
                history = jsonb_path_query_array(coalesce(j.history, '[]') || (jsonb_build_object(
                    'number', e.attempt, 'fence', j.fence, 'reset_count', j.reset_count, 'worker', j.holder, 'started_at',
                    j.started_at, 'ended_at', now, 'outcome', e.outcome)
                    || jsonb_strip_nulls(jsonb_build_object('error', e.error))), '$[last - {HISTORY_LIMIT} + 1 to last]')
            WHERE x.seq = j.seq;
        END IF;
        ids := ids || j.id;
        states := states || became;
        RETURN NEXT;
    END LOOP;
    PERFORM holdfast.record_transition(now, ids, states);
END $$;
