-- One call for a batch of mixed operations, kind by kind in the order of holdfast.store.protocol.Batch.
-- A NULL array is a kind that the batch does not have. Returns no row if nothing was refused and nothing was claimed.

CREATE FUNCTION holdfast.write(
    with_hint boolean = false,
    -- enqueue: arguments after `new_extras` are NULL if all jobs are plain
    new_ids text[] = NULL, new_queues text[] = NULL, new_tasks text[] = NULL, new_priorities integer[] = NULL,
    new_delays double precision[] = NULL, new_run_ats bigint[] = NULL, new_payloads bytea[] = NULL,
    new_codecs text[] = NULL, new_max_attempts integer[] = NULL, new_timeouts double precision[] = NULL,
    new_nonces bigint[] = NULL, new_tags text[] = NULL, new_metas text[] = NULL, new_retries text[] = NULL,
    new_waiting_for text[] = NULL, new_limit_keys text[] = NULL, new_extras bytea[] = NULL,
    new_keys text[] = NULL, new_fingerprints text[] = NULL, new_uniques text[] = NULL,
    new_windows double precision[] = NULL, new_depths integer[] = NULL, new_bound boolean = NULL,
    -- note
    note_seqs bigint[] = NULL, note_fences bigint[] = NULL, note_tokens bigint[] = NULL, note_progress bytea[] = NULL,
    note_checkpoints bytea[] = NULL, note_saves integer[] = NULL, note_pids integer[] = NULL, note_metas text[] = NULL,
    note_rests double precision[] = NULL, out_places integer[] = NULL,
    out_ats bigint[] = NULL, out_pieces bytea[] = NULL, out_keeps bigint[] = NULL, out_streams boolean[] = NULL,
    -- settle: the plain ends, then all others
    end_ids text[] = NULL, end_seqs bigint[] = NULL, end_fences bigint[] = NULL, end_tokens bigint[] = NULL,
    end_nonces bigint[] = NULL, end_states text[] = NULL, end_attempts integer[] = NULL,
    end_quarantined boolean[] = NULL, end_crashes integer[] = NULL, end_results bytea[] = NULL, end_errors text[] = NULL,
    end_tracebacks text[] = NULL, end_keeps double precision[] = NULL, end_key_keeps double precision[] = NULL,
    end_recorded boolean[] = NULL, ends text = NULL,
    -- claim
    ask_holder text = NULL, ask_about text = NULL, ask_lease double precision = NULL, ask_queues text[] = NULL,
    ask_limit integer = NULL, ask_token bigint = NULL, ask_tasks text[] = NULL, ask_busy boolean = NULL,
    ask_patient boolean = NULL
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_sort = off
SET jit = off
AS $$
DECLARE
    now bigint := holdfast.micros();
    answers jsonb := '{}';
    queues text[] := '{}';
    jobs text[] := '{}';
    noted text[] := '{}';
    places bigint[];
    found jsonb;
    limit_keys text[];
    limit_key_queues text[];
    hinted text;
    row_of_answers holdfast.answer;
BEGIN
    IF new_ids IS NOT NULL THEN
        IF new_keys IS NULL THEN
            SELECT jsonb_agg(jsonb_build_array(i.place, i.outcome, i.job)) INTO found FROM holdfast.insert_plain(
                new_ids, new_queues, new_tasks, new_priorities, new_delays, new_run_ats, new_payloads, new_codecs,
                new_max_attempts, new_timeouts, new_nonces, new_tags, new_metas, new_retries, new_waiting_for, new_limit_keys,
                new_extras, now) AS i;
        ELSE
            SELECT jsonb_agg(jsonb_build_array(i.place, i.outcome, i.job)) INTO found FROM holdfast.insert_each(
                new_ids, new_queues, new_tasks, new_priorities, new_delays, new_run_ats, new_payloads, new_codecs,
                new_max_attempts, new_timeouts, new_nonces, new_tags, new_metas, new_retries, new_waiting_for, new_limit_keys,
                new_extras, new_keys, new_fingerprints, new_uniques, new_windows, new_depths, new_bound, now) AS i;
        END IF;
        IF found IS NOT NULL THEN
            answers := answers || jsonb_build_object('inserts', found);
        END IF;
        queues := new_queues;
    END IF;
    IF num_nonnulls(note_seqs, end_seqs, ends) > 1 THEN
        -- Each kind locks its jobs in the order of their numbers; lock the jobs of all kinds in this order first, or two
        -- batches could deadlock. A sweep waits for no lock.
        PERFORM FROM holdfast.job AS j WHERE j.seq = ANY (note_seqs || end_seqs || ARRAY(
            SELECT e.seq FROM jsonb_to_recordset(ends::jsonb) AS e(seq bigint, expected_heartbeat bigint)
            WHERE e.expected_heartbeat IS NULL)) ORDER BY j.seq FOR UPDATE;
    END IF;
    IF note_seqs IS NOT NULL THEN
        places := holdfast.note(
            note_seqs, note_fences, note_tokens, note_progress, note_checkpoints, note_saves, note_pids, note_metas, note_rests,
            now);
        IF places <> '{}' THEN
            answers := answers || jsonb_build_object('notes', places);
        END IF;
        IF out_places IS NOT NULL THEN
            PERFORM holdfast.print(
                note_seqs[o.place], note_fences[o.place], o.at, o.piece, o.keep, coalesce(o.stream, false))
            FROM unnest(out_places, out_ats, out_pieces, out_keeps, out_streams) AS o(place, at, piece, keep, stream)
            WHERE o.place <> ALL (places);
        END IF;
        IF num_nonnulls(note_progress, out_streams) > 0 AND (with_hint OR holdfast.has_listener(4)) THEN
            noted := ARRAY(SELECT j.id FROM holdfast.job AS j WHERE j.seq = ANY (note_seqs));
        END IF;
    END IF;
    IF end_seqs IS NOT NULL THEN
        SELECT array_agg(s.place), array_agg(s.job), array_agg(s.limit_key) FILTER (WHERE s.limit_key IS NOT NULL),
            array_agg(s.queue) FILTER (WHERE s.limit_key IS NOT NULL)
        INTO places, jobs, limit_keys, limit_key_queues FROM holdfast.settle_plain(
            end_seqs, end_fences, end_tokens, end_nonces, end_states, end_attempts, end_quarantined, end_crashes,
            end_results, end_errors, end_tracebacks, end_keeps, end_key_keeps, now) AS s;
        jobs := coalesce(jobs, '{}');
        IF cardinality(jobs) <> cardinality(end_seqs) THEN
            SELECT jsonb_agg(u.place) INTO found FROM unnest(end_ids, end_nonces) WITH ORDINALITY AS u(id, nonce, place)
            WHERE u.place <> ALL (coalesce(places, '{}')) AND NOT holdfast.settled_before(u.id, u.nonce);
            answers := answers || jsonb_build_object('settles', found);
        END IF;
        IF end_recorded IS NOT NULL THEN
            PERFORM holdfast.record_ended(array_agg(end_ids[p])) FROM unnest(places) AS p WHERE end_recorded[p];
        END IF;
    END IF;
    IF ends IS NOT NULL THEN
        SELECT jsonb_agg(s.place) FILTER (WHERE NOT s.written),
            queues || coalesce(array_agg(s.queue) FILTER (WHERE s.queue IS NOT NULL AND s.job IS NULL), '{}'),
            jobs || coalesce(array_agg(s.job) FILTER (WHERE s.job IS NOT NULL), '{}'),
            limit_keys || array_agg(s.limit_key) FILTER (WHERE s.limit_key IS NOT NULL),
            limit_key_queues || array_agg(s.queue) FILTER (WHERE s.limit_key IS NOT NULL)
        INTO found, queues, jobs, limit_keys, limit_key_queues FROM holdfast.settle_each(ends::jsonb, now) AS s;
        IF found IS NOT NULL THEN
            answers := answers || jsonb_build_object('ends', found);
        END IF;
    END IF;
    IF limit_keys IS NOT NULL THEN
        queues := queues || holdfast.capacity_freed(limit_keys, limit_key_queues);
    END IF;
    IF queues <> '{}' OR jobs <> '{}' OR noted <> '{}' THEN
        hinted := holdfast.hint(queues, jobs, '{}', noted, with_hint);
        IF with_hint AND hinted IS NOT NULL THEN
            answers := answers || jsonb_build_object('hint', hinted);
        END IF;
    END IF;
    IF answers <> '{}' THEN
        row_of_answers.answer := answers;
        RETURN NEXT row_of_answers;
    END IF;
    IF ask_queues IS NOT NULL THEN
        RETURN QUERY SELECT * FROM holdfast.claim(
            ask_holder, ask_about, ask_lease, ask_queues, ask_limit, ask_token, ask_tasks, ask_busy,
            ask_patient, now);
    END IF;
END $$;
