-- Enqueue from SQL: triggers, cron jobs, other languages. Part of the calling transaction.
--
--     SELECT holdfast.enqueue('send', '{"to": "a@example.com"}', queue => 'mail', key => 'welcome-42');
--
-- Returns the id of the job. The same key with the same task and payload gives the same job; with others it is an error.

CREATE FUNCTION holdfast.enqueue(
    task text, payload jsonb = '{}', queue text = 'default', priority integer = 0, delay interval = NULL,
    run_at timestamptz = NULL, max_attempts integer = {MAX_ATTEMPTS}, timeout double precision = NULL, key text = NULL,
    id text = NULL, tags text[] = NULL, meta jsonb = NULL
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    job_id text := coalesce(enqueue.id, holdfast.new_id());
    nonce bigint := CASE WHEN enqueue.id IS NULL THEN 0 ELSE (random() * ({LARGE} - 1))::bigint END;
    reply jsonb;
BEGIN
    IF coalesce(enqueue.task, '') = '' OR coalesce(enqueue.queue, '') = '' OR jsonb_typeof(enqueue.payload) <> 'object'
        OR enqueue.priority NOT BETWEEN {PRIORITY_MIN} AND {PRIORITY_MAX} OR enqueue.max_attempts < 0
    THEN
        RAISE EXCEPTION 'holdfast.enqueue needs a task, a queue, a JSON object as payload, a priority from {PRIORITY_MIN} to {PRIORITY_MAX}, and max_attempts of at least 0'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT w.answer::jsonb INTO reply FROM holdfast.write(
        new_ids => ARRAY[job_id], new_queues => ARRAY[enqueue.queue], new_tasks => ARRAY[enqueue.task],
        new_priorities => ARRAY[enqueue.priority],
        new_delays => ARRAY[extract(epoch FROM enqueue.delay)::double precision],
        new_run_ats => ARRAY[(extract(epoch FROM enqueue.run_at) * {MICROS})::bigint],
        new_payloads => ARRAY[convert_to(enqueue.payload::text, 'UTF8')], new_max_attempts => ARRAY[enqueue.max_attempts],
        new_timeouts => ARRAY[enqueue.timeout], new_nonces => ARRAY[nonce],
        new_tags => ARRAY[to_jsonb(nullif(enqueue.tags, '{}'))::text], new_metas => ARRAY[enqueue.meta::text],
        new_keys => ARRAY[enqueue.key],
        new_fingerprints => ARRAY['sql:' || encode(sha256(convert_to(
            enqueue.task || chr(10) || enqueue.payload::text, 'UTF8')), 'hex')],
        new_bound => true) AS w WHERE w.answer IS NOT NULL;
    CASE reply -> 'inserts' -> 0 ->> 1
        WHEN 'existing' THEN RETURN reply -> 'inserts' -> 0 ->> 2;
        WHEN 'conflict' THEN RAISE EXCEPTION 'key % belongs to job %, which has another task or payload: use another key',
            enqueue.key, reply -> 'inserts' -> 0 ->> 2 USING ERRCODE = 'unique_violation';
        WHEN 'exists' THEN RAISE EXCEPTION 'job % exists already: use another id', job_id USING ERRCODE = 'unique_violation';
        ELSE RETURN job_id;
    END CASE;
END $$;

-- A UUID of version 7, ordered by time, like the ids that the library makes.
CREATE FUNCTION holdfast.new_id() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-7' || substr(r, 1, 3) || '-' || substr(r, 17, 4) || '-' || substr(r, 21, 12)
    FROM (SELECT lpad(to_hex(holdfast.micros() / 1000), 12, '0') AS h,
        replace(gen_random_uuid()::text, '-', '') AS r) AS made
$$;

-- Every role that may use the schema may call it, without rights on its tables.
ALTER FUNCTION holdfast.enqueue(
    text, jsonb, text, integer, interval, timestamptz, integer, double precision, text, text, text[], jsonb
) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
