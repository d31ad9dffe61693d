-- Version 11: ENQUEUE, told of; and plain jobs in bulk cost a third less.
--
-- An insert that expects no conflict does without the speculative tokens of ON CONFLICT. Ids are made by the client, so
-- a conflict means that a batch is sent again: it is undone, and done once more the careful way.
-- A column that is the same for all jobs may be sent as an array of one.

-- Tell of those of these jobs that are new: their numbers are higher than the last one given `before`.
CREATE FUNCTION holdfast.tell_new(now bigint, new_ids text[], before bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF holdfast.watched(now) THEN
        INSERT INTO holdfast.move (at, ids, states)
        SELECT now, array_agg(j.id ORDER BY j.seq), array_agg(j.state ORDER BY j.seq)
        FROM holdfast.job AS j WHERE j.id = ANY (new_ids) AND j.seq > before HAVING count(*) > 0;
    END IF;
END $$;

-- One plain job, as enqueue without group commit has it: what insert_plain does, without the arrays.
-- Answers NULL where it was created, 'exists' where the id is another's, or, where it is `told`, the hint to carry.
CREATE OR REPLACE FUNCTION holdfast.insert_one(
    new_id text, new_queue text, new_task text, new_priority integer, new_delay double precision, new_run_at bigint,
    new_payload bytea, new_codec text, new_max_attempts integer, new_timeout double precision, new_nonce bigint,
    new_tags text, new_meta text, new_retry text, told boolean
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
        due := now + (new_delay * 1000000)::bigint;
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
        PERFORM holdfast.tell(now, ARRAY[new_id], ARRAY[became]);
    END IF;
    IF told OR holdfast.heard(1) THEN
        RETURN CASE WHEN told THEN 'hint ' END || holdfast.hint(ARRAY[new_queue], '{}', told);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION holdfast.insert_plain(
    new_ids text[], new_queues text[], new_tasks text[], new_priorities integer[], new_delays double precision[],
    new_run_ats bigint[], new_payloads bytea[], new_codecs text[], new_max_attempts integer[],
    new_timeouts double precision[], new_nonces bigint[], new_tags text[], new_metas text[], new_retries text[],
    now bigint
) RETURNS TABLE (place bigint, outcome text, job text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest integer := holdfast.open_generation();
    before bigint := coalesce(pg_sequence_last_value('holdfast.job_seq'::regclass), 0);
    made bigint;
    conflict boolean;
BEGIN
    -- A subtransaction is worth it for many rows only, and a user's transaction may enqueue one by one, very often.
    IF cardinality(new_ids) >= 10 AND num_nonnulls(new_priorities, new_delays, new_run_ats, new_codecs, new_timeouts,
        new_nonces, new_tags, new_metas, new_retries) = 0
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
            created_at, tags, meta, retry, nonce, gen)
        SELECT nextval('holdfast.job_seq'), n.id, coalesce(n.queue, new_queues[1]), coalesce(n.task, new_tasks[1]),
            CASE WHEN n.due > now THEN 'scheduled' ELSE 'queued' END, coalesce(n.priority, new_priorities[1], 0), n.due,
            coalesce(n.payload, new_payloads[1]), coalesce(n.codec, new_codecs[1], 'json'),
            coalesce(n.max_attempts, new_max_attempts[1]), n.timeout, now, n.tags::jsonb, n.meta::json, n.retry::json,
            coalesce(n.nonce, new_nonces[1], 0), newest
        FROM (
            SELECT *, CASE WHEN u.run_at IS NOT NULL THEN greatest(now, u.run_at)
                ELSE now + (greatest(0, coalesce(u.delay, new_delays[1], 0)) * 1000000)::bigint END AS due
            FROM unnest(new_ids, new_queues, new_tasks, new_priorities, new_delays, new_run_ats, new_payloads, new_codecs,
                new_max_attempts, new_timeouts, new_nonces, new_tags, new_metas, new_retries)
                AS u(id, queue, task, priority, delay, run_at, payload, codec, max_attempts, timeout, nonce, tags, meta, retry)
        ) AS n
        ON CONFLICT (id) DO NOTHING;
        GET DIAGNOSTICS made = ROW_COUNT;
    END IF;
    -- Looked for after the insert, which has waited for whoever was just moving a job of this id.
    conflict := made < cardinality(new_ids) OR EXISTS (SELECT FROM holdfast.ended AS e WHERE e.id = ANY (new_ids));
    IF conflict THEN
        DELETE FROM holdfast.job AS j USING holdfast.ended AS e WHERE j.id = ANY (new_ids) AND e.id = j.id;
    END IF;
    PERFORM holdfast.tell_new(now, new_ids, before);
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

-- Jobs of any kind, one by one. `new_places` is where each stands in the caller's batch, from 1 and without gaps:
-- numbers are given in that order, whatever the order of work is.
CREATE OR REPLACE FUNCTION holdfast.insert_each(
    new_ids text[], new_queues text[], new_tasks text[], new_priorities integer[], new_delays double precision[],
    new_run_ats bigint[], new_payloads bytea[], new_codecs text[], new_max_attempts integer[],
    new_timeouts double precision[], new_nonces bigint[], new_tags text[], new_metas text[], new_retries text[],
    new_keys text[], new_fingerprints text[], new_depths integer[], new_places bigint[], now bigint
) RETURNS TABLE (place bigint, outcome text, job text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest integer := holdfast.open_generation();
    before bigint := coalesce(pg_sequence_last_value('holdfast.job_seq'::regclass), 0);
    seqs bigint[] := ARRAY(SELECT nextval('holdfast.job_seq') FROM generate_series(1, cardinality(new_ids)));
    n record;
    known holdfast.key%ROWTYPE;
    theirs bigint;
    fresh boolean;
BEGIN
    -- A limit of depth holds only if those who count and those who add take turns.
    PERFORM pg_advisory_xact_lock(holdfast.lock_class() # 1, q.hash) FROM (
        SELECT DISTINCT hashtext(u.queue) AS hash FROM unnest(new_queues, new_depths) AS u(queue, depth)
        WHERE u.depth IS NOT NULL ORDER BY 1
    ) AS q;
    FOR n IN
        SELECT u.*, coalesce(u.given_nonce, 0) AS nonce, CASE WHEN u.run_at IS NOT NULL THEN greatest(now, u.run_at)
            ELSE now + (greatest(0, coalesce(u.delay, 0)) * 1000000)::bigint END AS due
        FROM unnest(new_ids, new_queues, new_tasks, new_priorities, new_delays, new_run_ats, new_payloads, new_codecs,
            new_max_attempts, new_timeouts, new_nonces, new_tags, new_metas, new_retries, new_keys, new_fingerprints,
            new_depths, new_places)
            AS u(id, queue, task, priority, delay, run_at, payload, codec, max_attempts, timeout, given_nonce, tags,
                meta, retry, key, fingerprint, depth, place)
    LOOP
        place := n.place;
        job := n.id;
        fresh := false;
        IF n.key IS NOT NULL THEN
            -- Waits for whoever is writing this key: after their commit it is theirs, after their rollback ours.
            LOOP
                INSERT INTO holdfast.key (key, id, fingerprint) VALUES (n.key, n.id, coalesce(n.fingerprint, ''))
                ON CONFLICT (key) DO NOTHING;
                fresh := FOUND;
                EXIT WHEN fresh;
                SELECT * INTO known FROM holdfast.key AS k WHERE k.key = n.key FOR UPDATE;
                EXIT WHEN FOUND;
            END LOOP;
            IF NOT fresh AND (known.expires_at IS NULL OR known.expires_at > now) THEN
                SELECT coalesce(
                    (SELECT j.nonce FROM holdfast.job AS j WHERE j.id = n.id),
                    (SELECT e.nonce FROM holdfast.ended AS e WHERE e.id = n.id), 0) INTO theirs;
                CONTINUE WHEN known.id = n.id AND theirs = n.nonce;
                outcome := CASE WHEN known.fingerprint = coalesce(n.fingerprint, '') THEN 'existing' ELSE 'conflict' END;
                job := known.id;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        outcome := NULL;
        IF n.depth IS NOT NULL
            AND NOT EXISTS (SELECT FROM holdfast.job AS j WHERE j.id = n.id)
            AND NOT EXISTS (SELECT FROM holdfast.ended AS e WHERE e.id = n.id)
            AND (SELECT count(*) FROM (SELECT FROM holdfast.job AS j WHERE j.queue = n.queue AND j.state = 'queued'
                    LIMIT n.depth) AS ready)
              + (SELECT count(*) FROM (SELECT FROM holdfast.job AS j WHERE j.queue = n.queue
                    AND j.state IN ('scheduled', 'failed') LIMIT n.depth) AS due) >= n.depth
        THEN
            outcome := 'full';
        ELSE
            INSERT INTO holdfast.job (seq, id, queue, task, state, priority, run_at, payload, codec, max_attempts,
                timeout, key, created_at, tags, meta, retry, nonce, gen)
            VALUES (seqs[n.place], n.id, n.queue, n.task, CASE WHEN n.due > now THEN 'scheduled' ELSE 'queued' END,
                coalesce(n.priority, 0), n.due, n.payload, coalesce(n.codec, 'json'), n.max_attempts, n.timeout, n.key,
                now, n.tags::jsonb, n.meta::json, n.retry::json, n.nonce, newest)
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
            UPDATE holdfast.key AS k SET id = n.id, fingerprint = coalesce(n.fingerprint, ''), expires_at = NULL
            WHERE k.key = n.key;
        END IF;
    END LOOP;
    PERFORM holdfast.tell_new(now, new_ids, before);
END $$;
