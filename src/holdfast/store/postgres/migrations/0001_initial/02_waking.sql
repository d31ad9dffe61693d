-- Notifications. A hint is one NOTIFY per commit, sent only if a process listens.
--
-- NOTIFY makes its transaction wait for others that notify, so it is not sent without need: a listener holds an
-- advisory lock (shared, of its session), and a sender tries that lock first.
-- The second number of the lock is the kind of hint: 1 for the jobs of a queue, 2 for the end of a job, 3 for a request
-- to cancel a running job of a holder, 4 for notes (progress and streams) of a job.

CREATE FUNCTION holdfast.lock_class() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtext('holdfast.')
$$;

CREATE FUNCTION holdfast.has_listener(kind integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_try_advisory_lock(holdfast.lock_class(), kind) THEN
        RETURN NOT pg_advisory_unlock(holdfast.lock_class(), kind);
    END IF;
    RETURN true;
END $$;
COMMENT ON FUNCTION holdfast.has_listener(integer) IS 'Whether a process listens for hints of this kind.';

CREATE FUNCTION holdfast.topic(name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 8)
$$;
COMMENT ON FUNCTION holdfast.topic(text) IS 'The short form in which hints name queue/NAME, job/ID, holder/ID and note/ID.';

CREATE FUNCTION holdfast.hint(queues text[], jobs text[], holders text[], noted text[], with_hint boolean) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    names text[] := '{}';
    hint_text text;
BEGIN
    -- `with_hint`: the caller publishes hints itself (signal=redis): return the text, and send nothing.
    IF queues <> '{}' AND (with_hint OR holdfast.has_listener(1)) THEN
        names := ARRAY(SELECT DISTINCT 'queue/' || q FROM unnest(queues) AS q);
    END IF;
    IF jobs <> '{}' AND (with_hint OR holdfast.has_listener(2)) THEN
        names := names || ARRAY(SELECT 'job/' || j FROM unnest(jobs) AS j);
    END IF;
    IF names <> '{}' THEN
        hint_text := CASE WHEN cardinality(names) > 500 THEN '*'
            ELSE (SELECT string_agg(holdfast.topic(n), ',') FROM unnest(names) AS n) END;
    END IF;
    IF holders <> '{}' AND (with_hint OR holdfast.has_listener(3)) THEN
        -- A payload has at most 8000 bytes. Further holders learn of it by their next heartbeat.
        hint_text := concat_ws(',', hint_text,
            (SELECT string_agg(holdfast.topic('holder/' || h), ',') FROM unnest(holders[:300]) AS h));
    END IF;
    IF noted <> '{}' THEN -- of a batch, which has no holders
        hint_text := concat_ws(',', hint_text,
            (SELECT string_agg(holdfast.topic('note/' || n), ',') FROM unnest(noted[:300]) AS n));
    END IF;
    IF hint_text IS NULL THEN
        RETURN NULL;
    END IF;
    IF NOT with_hint THEN
        PERFORM pg_notify('holdfast.', hint_text);
    END IF;
    RETURN hint_text;
END $$;
COMMENT ON FUNCTION holdfast.hint(text[], text[], text[], text[], boolean) IS 'Notify listeners, when the transaction commits, of what may have changed.';
