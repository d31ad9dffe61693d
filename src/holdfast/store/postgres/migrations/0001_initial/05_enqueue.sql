-- ENQUEUE: new jobs; a repeated insert is recognised.
--
-- An insert that expects no conflict does without the speculative tokens of ON CONFLICT. Ids are made by the client, so
-- a conflict means that a batch was sent again: it is rolled back, and repeated with ON CONFLICT.
-- A column that is the same for all jobs may be sent as an array of one.

-- The newest generation, which stays open at least until this transaction has ended.
CREATE FUNCTION holdfast.open_generation() RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest integer;
BEGIN
    LOOP
        newest := pg_sequence_last_value('holdfast.newest_generation'::regclass);
        IF pg_try_advisory_xact_lock_shared(holdfast.lock_class(), {GENERATION_LOCK} + newest)
            AND newest = pg_sequence_last_value('holdfast.newest_generation'::regclass)
        THEN
            RETURN newest;
        END IF;
    END LOOP;
END $$;

-- The first and the last position of the ready jobs of a queue and priority, without quarantined jobs.
CREATE FUNCTION holdfast.ends(of_queue text, of_priority integer, OUT first bigint, OUT last bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT min(f.run_at) INTO first
    FROM holdfast.generation AS g LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = of_queue
    CROSS JOIN LATERAL (
        SELECT j.run_at FROM holdfast.job AS j
        WHERE j.gen = g.gen AND j.queue = of_queue AND j.quarantined = false AND j.state = 'queued'
            AND j.priority = of_priority AND (j.priority, j.run_at, j.seq)
                >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
        ORDER BY j.priority, j.run_at, j.seq LIMIT 1
    ) AS f;
    SELECT max(f.run_at) INTO last FROM holdfast.generation AS g CROSS JOIN LATERAL (
        SELECT j.run_at FROM holdfast.job AS j
        WHERE j.gen = g.gen AND j.queue = of_queue AND j.quarantined = false AND j.state = 'queued'
            AND j.priority = of_priority
        ORDER BY j.priority DESC, j.run_at DESC, j.seq DESC LIMIT 1
    ) AS f;
END $$;

-- Whether the job that has a key prevents a new one, by the rule of `uniqueness`.
CREATE FUNCTION holdfast.is_taken(known holdfast.key, uniqueness text, span double precision, now bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF known.expires_at <= now THEN
        RETURN false;
    END IF;
    CASE coalesce(uniqueness, '')
        WHEN 'window' THEN RETURN known.made_at + (greatest(0, span) * {MICROS})::bigint > now;
        WHEN 'until_start' THEN RETURN EXISTS (
            SELECT FROM holdfast.job AS j WHERE j.id = known.id AND j.state || '' <> 'running');
        WHEN 'until_end' THEN RETURN EXISTS (SELECT FROM holdfast.job AS j WHERE j.id = known.id);
        ELSE RETURN true;
    END CASE;
END $$;

-- Insert one plain job: like insert_plain, without arrays.
-- Returns NULL if it was created, 'exists' if another job has the id, or, if `with_hint` is set, the hint to publish.
CREATE FUNCTION holdfast.insert_one(
    new_id text, new_queue text, new_task text, new_priority integer, new_delay double precision, new_run_at bigint,
    new_payload bytea, new_codec text, new_max_attempts integer, new_timeout double precision, new_nonce bigint,
    new_tags text, new_meta text, new_retry text, with_hint boolean
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now bigint := holdfast.micros();
    due bigint := now;
    became text := 'queued';
    theirs bigint;
BEGIN
    IF new_run_at IS NOT NULL THEN
        due := greatest(now, new_run_at);
    ELSIF new_delay > 0 THEN
        due := now + (new_delay * {MICROS})::bigint;
    END IF;
    IF due > now THEN
        became := 'scheduled';
    END IF;
    INSERT INTO holdfast.job (seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts, timeout,
        created_at, tags, meta, retry, nonce, gen)
    VALUES (nextval('holdfast.job_seq'), new_id, new_queue, new_task, became, new_priority, due, new_payload,
        new_codec, new_max_attempts, new_timeout, now, new_tags::jsonb, new_meta::json, new_retry::json, new_nonce,
        holdfast.open_generation())
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        SELECT j.nonce INTO theirs FROM holdfast.job AS j WHERE j.id = new_id;
    ELSE
        SELECT e.nonce INTO theirs FROM holdfast.ended AS e WHERE e.id = new_id;
        IF FOUND THEN
            DELETE FROM holdfast.job AS j WHERE j.id = new_id;
        END IF;
    END IF;
    IF theirs <> new_nonce THEN
        RETURN 'exists';
    END IF;
    IF theirs IS NULL AND holdfast.watched(now) THEN
        PERFORM holdfast.record_transition(now, ARRAY[new_id], ARRAY[became]);
    END IF;
    IF with_hint OR holdfast.has_listener(1) THEN
        RETURN CASE WHEN with_hint THEN 'hint ' END || holdfast.hint(ARRAY[new_queue], '{}', '{}', '{}', with_hint);
    END IF;
    RETURN NULL;
END $$;

-- Insert jobs without a key and without a maximum depth, in one statement.
-- Returns only the jobs that were not created: (place in the batch from 1, outcome, id).
CREATE FUNCTION holdfast.insert_plain(
    new_ids text[], new_queues text[], new_tasks text[], new_priorities integer[], new_delays double precision[],
    new_run_ats bigint[], new_payloads bytea[], new_codecs text[], new_max_attempts integer[],
    new_timeouts double precision[], new_nonces bigint[], new_tags text[], new_metas text[], new_retries text[],
    new_waiting_for text[], new_limit_keys text[], new_extras bytea[], now bigint
) RETURNS TABLE (place bigint, outcome text, job text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest integer := holdfast.open_generation();
    before bigint := coalesce(pg_sequence_last_value('holdfast.job_seq'::regclass), 0);
    made bigint;
    conflict boolean;
BEGIN
    -- A subtransaction pays off only for many rows, and a user's transaction may enqueue many jobs one by one.
    IF cardinality(new_ids) >= 10 AND num_nonnulls(new_priorities, new_delays, new_run_ats, new_codecs, new_timeouts,
        new_nonces, new_tags, new_metas, new_retries, new_waiting_for, new_limit_keys, new_extras) = 0
    THEN
        BEGIN
            INSERT INTO holdfast.job (seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts,
                created_at, gen)
            SELECT nextval('holdfast.job_seq'), u.id, coalesce(u.queue, new_queues[1]), coalesce(u.task, new_tasks[1]),
                'queued', 0, now, coalesce(u.payload, new_payloads[1]), 'json',
                coalesce(u.max_attempts, new_max_attempts[1]), now, newest
            FROM unnest(new_ids, new_queues, new_tasks, new_payloads, new_max_attempts)
                AS u(id, queue, task, payload, max_attempts);
            made := cardinality(new_ids);
        EXCEPTION WHEN unique_violation THEN
        END;
    END IF;
    IF made IS NULL THEN
        INSERT INTO holdfast.job (seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts, timeout,
            created_at, tags, meta, retry, nonce, gen, waiting_for, limit_key, extra)
        SELECT nextval('holdfast.job_seq'), n.id, coalesce(n.queue, new_queues[1]), coalesce(n.task, new_tasks[1]),
            CASE WHEN n.waiting_for IS NOT NULL THEN 'blocked' WHEN n.due > now THEN 'scheduled' ELSE 'queued' END,
            coalesce(n.priority, new_priorities[1], 0), n.due,
            coalesce(n.payload, new_payloads[1]), coalesce(n.codec, new_codecs[1], 'json'),
            coalesce(n.max_attempts, new_max_attempts[1]), n.timeout, now, n.tags::jsonb, n.meta::json, n.retry::json,
            coalesce(n.nonce, new_nonces[1], 0), newest, n.waiting_for, n.limit_key::jsonb, n.extra
        FROM (
            SELECT *, CASE WHEN u.run_at IS NOT NULL THEN greatest(now, u.run_at)
                ELSE now + (greatest(0, coalesce(u.delay, new_delays[1], 0)) * {MICROS})::bigint END AS due
            FROM unnest(new_ids, new_queues, new_tasks, new_priorities, new_delays, new_run_ats, new_payloads, new_codecs,
                new_max_attempts, new_timeouts, new_nonces, new_tags, new_metas, new_retries, new_waiting_for, new_limit_keys,
                new_extras)
                AS u(id, queue, task, priority, delay, run_at, payload, codec, max_attempts, timeout, nonce, tags, meta,
                    retry, waiting_for, limit_key, extra)
        ) AS n
        ON CONFLICT (id) DO NOTHING;
        GET DIAGNOSTICS made = ROW_COUNT;
    END IF;
    -- Read after the insert, which has waited for transactions that were moving a job of this id.
    conflict := made < cardinality(new_ids) OR EXISTS (SELECT FROM holdfast.ended AS e WHERE e.id = ANY (new_ids));
    IF conflict THEN
        DELETE FROM holdfast.job AS j USING holdfast.ended AS e WHERE j.id = ANY (new_ids) AND e.id = j.id;
    END IF;
    PERFORM holdfast.record_new(now, new_ids, before);
    IF NOT conflict THEN
        RETURN;
    END IF;
    RETURN QUERY
        SELECT u.place, 'exists'::text, u.id
        FROM unnest(new_ids, new_nonces) WITH ORDINALITY AS u(id, nonce, place)
        LEFT JOIN holdfast.job AS j ON j.id = u.id
        LEFT JOIN holdfast.ended AS e ON e.id = u.id
        WHERE coalesce(j.nonce, e.nonce) <> coalesce(u.nonce, new_nonces[1], 0);
END $$;

-- Insert jobs of any kind, one by one. All callers lock in the same order: depth limits, then keys, then shares, each
-- sorted. `new_bound`: in a user's transaction, which may stay open, so it takes no locks on shares.
CREATE FUNCTION holdfast.insert_each(
    new_ids text[], new_queues text[], new_tasks text[], new_priorities integer[], new_delays double precision[],
    new_run_ats bigint[], new_payloads bytea[], new_codecs text[], new_max_attempts integer[],
    new_timeouts double precision[], new_nonces bigint[], new_tags text[], new_metas text[], new_retries text[],
    new_waiting_for text[], new_limit_keys text[], new_extras bytea[], new_keys text[], new_fingerprints text[],
    new_uniques text[], new_windows double precision[], new_depths integer[], new_bound boolean, now bigint
) RETURNS TABLE (place bigint, outcome text, job text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest integer := holdfast.open_generation();
    before bigint := coalesce(pg_sequence_last_value('holdfast.job_seq'::regclass), 0);
    seqs bigint[] := ARRAY(SELECT nextval('holdfast.job_seq') FROM generate_series(1, cardinality(new_ids)));
    n record;
    known holdfast.key%ROWTYPE;
    theirs bigint;
    fresh boolean;
    keyed boolean[] := array_fill(false, ARRAY[cardinality(new_ids)]);  -- by place: whether a new key was inserted for it
    sharing text[] := ARRAY(SELECT DISTINCT x.limit_key ->> 'name' FROM (SELECT unnest(new_limit_keys)::jsonb) AS x(limit_key)
        WHERE (x.limit_key ->> 'weight')::integer > 0);
    places jsonb;           -- by the name of a limit key: its index in `finishes`
    finishes bigint[];
    at integer;
    weight integer;
    step bigint;
    fair_position bigint;
    of_queue text;          -- the queue of `first` and `last`
    of_priority integer;
    first bigint;
    last bigint;
BEGIN
    -- A maximum depth holds only if counting and inserting transactions exclude each other.
    PERFORM pg_advisory_xact_lock(holdfast.lock_class() # 1, q.hash) FROM (
        SELECT DISTINCT hashtext(u.queue) AS hash FROM unnest(new_queues, new_depths) AS u(queue, depth)
        WHERE u.depth IS NOT NULL ORDER BY 1
    ) AS q;
    FOR n IN
        SELECT DISTINCT ON (u.key COLLATE "C") u.* FROM unnest(new_keys, new_ids, new_fingerprints)
            WITH ORDINALITY AS u(key, id, fingerprint, place)
        WHERE u.key IS NOT NULL ORDER BY u.key COLLATE "C", u.place
    LOOP
        -- Waits for another transaction that writes this key: it has the key after its commit, we after its rollback.
        LOOP
            INSERT INTO holdfast.key (key, id, fingerprint, made_at)
            VALUES (n.key, n.id, coalesce(n.fingerprint, ''), now)
            ON CONFLICT (key) DO NOTHING;
            keyed[n.place] := FOUND;
            EXIT WHEN FOUND;
            PERFORM FROM holdfast.key AS k WHERE k.key = n.key FOR UPDATE;
            EXIT WHEN FOUND;
        END LOOP;
    END LOOP;
    IF sharing <> '{}' THEN
        IF new_bound IS NULL THEN
            -- 64 locks for all names: the server has a limited number of locks.
            PERFORM pg_advisory_xact_lock(holdfast.lock_class() # 2, p.part) FROM (
                SELECT DISTINCT hashtext(x.limit_key) & 63 AS part FROM unnest(sharing) AS x(limit_key) ORDER BY 1
            ) AS p;
        END IF;
        SELECT jsonb_object_agg(u.limit_key, u.place), array_agg(greatest(s.finish, p.finish, 0) ORDER BY u.place)
        INTO places, finishes
        FROM unnest(sharing) WITH ORDINALITY AS u(limit_key, place) LEFT JOIN holdfast.share AS s ON s.limit_key = u.limit_key
        LEFT JOIN LATERAL (
            SELECT x.finish FROM holdfast.share_part AS x WHERE x.limit_key = u.limit_key ORDER BY x.limit_key DESC, x.finish DESC LIMIT 1
        ) AS p ON true;
    END IF;
    FOR n IN
        SELECT u.*, u.limit_key_text::jsonb AS limit_key, coalesce(u.given_nonce, 0) AS nonce,
            CASE WHEN u.run_at IS NOT NULL THEN greatest(now, u.run_at)
                ELSE now + (greatest(0, coalesce(u.delay, 0)) * {MICROS})::bigint END AS due
        FROM unnest(new_ids, new_queues, new_tasks, new_priorities, new_delays, new_run_ats, new_payloads, new_codecs,
            new_max_attempts, new_timeouts, new_nonces, new_tags, new_metas, new_retries, new_waiting_for, new_limit_keys,
            new_extras, new_keys, new_fingerprints, new_uniques, new_windows, new_depths) WITH ORDINALITY
            AS u(id, queue, task, priority, delay, run_at, payload, codec, max_attempts, timeout, given_nonce, tags,
                meta, retry, waiting_for, limit_key_text, extra, key, fingerprint, uniqueness, span, depth, place)
    LOOP
        place := n.place;
        job := n.id;
        outcome := NULL;
        fresh := keyed[n.place];
        IF n.key IS NOT NULL AND NOT fresh OR n.uniqueness <> '' THEN
            theirs := coalesce(
                (SELECT j.nonce FROM holdfast.job AS j WHERE j.id = n.id),
                (SELECT e.nonce FROM holdfast.ended AS e WHERE e.id = n.id));
        END IF;
        IF n.uniqueness <> '' AND n.nonce = theirs THEN
            outcome := 'created';  -- a repeat: another job may have its key by now
        ELSIF n.key IS NOT NULL AND NOT fresh THEN
            SELECT * INTO known FROM holdfast.key AS k WHERE k.key = n.key;
            IF NOT FOUND THEN
                -- Its key was inserted for another job of this batch, and removed because that job was not created.
                INSERT INTO holdfast.key (key, id, fingerprint, made_at)
                VALUES (n.key, n.id, coalesce(n.fingerprint, ''), now);
                fresh := true;
            ELSIF holdfast.is_taken(known, n.uniqueness, n.span, now) THEN
                outcome := CASE WHEN known.id = n.id AND coalesce(theirs, 0) = n.nonce THEN 'created'
                    WHEN known.fingerprint = coalesce(n.fingerprint, '') THEN 'existing' ELSE 'conflict' END;
                job := known.id;
            END IF;
        END IF;
        IF outcome IS NULL AND n.depth IS NOT NULL THEN
            SELECT 'full' INTO outcome
            WHERE NOT EXISTS (SELECT FROM holdfast.job AS j WHERE j.id = n.id)
                AND NOT EXISTS (SELECT FROM holdfast.ended AS e WHERE e.id = n.id)
                AND (SELECT count(*) FROM (SELECT FROM holdfast.job AS j WHERE j.queue = n.queue AND j.state = 'queued'
                        LIMIT n.depth) AS ready)
                  + (SELECT count(*) FROM (SELECT FROM holdfast.job AS j WHERE j.queue = n.queue
                        AND j.state IN ('scheduled', 'failed') LIMIT n.depth) AS due) >= n.depth;
        END IF;
        IF outcome IS NULL THEN
            fair_position := n.due;
            weight := CASE WHEN n.due <= now AND n.waiting_for IS NULL THEN (n.limit_key ->> 'weight')::integer END;
            IF weight > 0 THEN
                -- As in holdfast.core.limiter: one step after the last job of its limit key, but never before the head of
                -- its queue nor far after its tail, and at most {LAG} µs in the past.
                step := greatest(1, {STEP} / weight);
                at := (places ->> (n.limit_key ->> 'name'))::integer;
                IF of_queue IS DISTINCT FROM n.queue OR of_priority <> coalesce(n.priority, 0) THEN
                    of_queue := n.queue;
                    of_priority := coalesce(n.priority, 0);
                    SELECT * INTO first, last FROM holdfast.ends(of_queue, of_priority);
                END IF;
                fair_position := CASE WHEN first IS NULL THEN now
                    ELSE greatest(least(greatest(first, finishes[at]), last + step), now - {LAG}) END;
            END IF;
            INSERT INTO holdfast.job (seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts,
                timeout, key, created_at, tags, meta, retry, nonce, gen, waiting_for, limit_key, extra)
            VALUES (seqs[n.place], n.id, n.queue, n.task,
                CASE WHEN n.waiting_for IS NOT NULL THEN 'blocked' WHEN n.due > now THEN 'scheduled' ELSE 'queued' END,
                coalesce(n.priority, 0), fair_position, n.payload, coalesce(n.codec, 'json'), n.max_attempts, n.timeout, n.key,
                now, n.tags::jsonb, n.meta::json, n.retry::json, n.nonce, newest,
                n.waiting_for, n.limit_key, n.extra)
            ON CONFLICT (id) DO NOTHING;
            IF NOT FOUND THEN
                SELECT j.nonce INTO theirs FROM holdfast.job AS j WHERE j.id = n.id;
                outcome := CASE WHEN theirs = n.nonce THEN 'created' ELSE 'exists' END;
            ELSIF EXISTS (SELECT FROM holdfast.ended AS e WHERE e.id = n.id) THEN
                DELETE FROM holdfast.job AS j WHERE j.id = n.id;
                SELECT e.nonce INTO theirs FROM holdfast.ended AS e WHERE e.id = n.id;
                outcome := CASE WHEN theirs = n.nonce THEN 'created' ELSE 'exists' END;
            END IF;
        END IF;
        IF outcome IS NOT NULL THEN
            -- No new job, so no new key.
            IF fresh THEN
                DELETE FROM holdfast.key AS k WHERE k.key = n.key;
            END IF;
            IF outcome <> 'created' THEN
                RETURN NEXT;
            END IF;
        ELSIF n.key IS NOT NULL AND NOT fresh THEN
            UPDATE holdfast.key AS k SET id = n.id, fingerprint = coalesce(n.fingerprint, ''), expires_at = NULL,
                made_at = now
            WHERE k.key = n.key;
        END IF;
        IF outcome IS NULL AND weight > 0 THEN
            finishes[at] := fair_position + step;
        END IF;
        IF outcome IS NULL AND n.queue = of_queue AND coalesce(n.priority, 0) = of_priority AND n.due <= now
            AND n.waiting_for IS NULL
        THEN
            first := least(first, fair_position);
            last := greatest(last, fair_position);
        END IF;
    END LOOP;
    IF sharing <> '{}' AND new_bound THEN
        INSERT INTO holdfast.share_part (limit_key, finish)
        SELECT u.limit_key, u.finish FROM unnest(sharing, finishes) AS u(limit_key, finish) WHERE u.finish > 0;
    ELSIF sharing <> '{}' THEN
        INSERT INTO holdfast.share AS s (limit_key, finish)
        SELECT u.limit_key, u.finish FROM unnest(sharing, finishes) AS u(limit_key, finish)
        WHERE u.finish > 0 ORDER BY u.limit_key COLLATE "C"
        ON CONFLICT (limit_key) DO UPDATE SET finish = greatest(s.finish, excluded.finish);
    END IF;
    PERFORM holdfast.record_new(now, new_ids, before);
END $$;
