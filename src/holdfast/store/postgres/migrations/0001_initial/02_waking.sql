-- Waking. A hint is one NOTIFY a commit, sent only where somebody listens.
--
-- NOTIFY makes its transaction wait for others that notify, so it is not sent into the void: a listener holds an
-- advisory lock (shared, of its session), and whoever has something to say tries that lock first.
-- The second number of the lock: 1 somebody waits for jobs of a queue, 2 somebody waits for the end of a job.

CREATE FUNCTION holdfast.lock_class() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtext('holdfast.')
$$;

CREATE FUNCTION holdfast.heard(kind integer) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_try_advisory_lock(holdfast.lock_class(), kind) THEN
        RETURN NOT pg_advisory_unlock(holdfast.lock_class(), kind);
    END IF;
    RETURN true;
END $$;
COMMENT ON FUNCTION holdfast.heard(integer) IS 'Whether anybody listens for hints of this kind.';

CREATE FUNCTION holdfast.topic(name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 8)
$$;
COMMENT ON FUNCTION holdfast.topic(text) IS 'The short form in which hints name queue/NAME and job/ID.';

CREATE FUNCTION holdfast.hint(queues text[], jobs text[], told boolean) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    names text[] := '{}';
    said text;
BEGIN
    -- `told`: the caller carries hints itself (signal=redis); it is given the text, and nothing is sent.
    IF queues <> '{}' AND (told OR holdfast.heard(1)) THEN
        names := ARRAY(SELECT DISTINCT 'queue/' || q FROM unnest(queues) AS q);
    END IF;
    IF jobs <> '{}' AND (told OR holdfast.heard(2)) THEN
        names := names || ARRAY(SELECT 'job/' || j FROM unnest(jobs) AS j);
    END IF;
    IF names = '{}' THEN
        RETURN NULL;
    END IF;
    said := CASE WHEN cardinality(names) > 500 THEN '*'
        ELSE (SELECT string_agg(holdfast.topic(n), ',') FROM unnest(names) AS n) END;
    IF NOT told THEN
        PERFORM pg_notify('holdfast.', said);
    END IF;
    RETURN said;
END $$;
COMMENT ON FUNCTION holdfast.hint(text[], text[], boolean) IS 'Say, uniqueness the transaction commits, what may have changed.';
