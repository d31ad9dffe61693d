-- Recorded in the commit that makes them: transitions of jobs, while a client reads them, statistics of ended claims,
-- per minute, and how many ended jobs there are.
--
-- Rows are only appended. A counter that every commit updates would grow a chain of dead versions while an old snapshot
-- is open, and workers would wait for each other; so readers and holdfast.tidy() compute the sums.

-- Until when transitions are recorded, and the number of the watch: a new one after a time without readers.
-- Sequences, because every snapshot reads the same value: an old transaction of a user must see a new watch.
CREATE SEQUENCE holdfast.watched_until;
CREATE SEQUENCE holdfast.watch_number;
CREATE SEQUENCE holdfast.transition_number;
-- When the last removed transition was emptied: a reader that read last before that may have missed it.
CREATE SEQUENCE holdfast.transitions_gone;

-- Transitions, one row per step of a commit. For each job, numbers are in the order of its transitions: a row is
-- written after the change that it records, and the next change of that job waits for the commit.
CREATE TABLE holdfast.transition (
    number bigint NOT NULL PRIMARY KEY DEFAULT nextval('holdfast.transition_number'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at bigint NOT NULL,
    ids text[] NOT NULL,
    states text[] NOT NULL,
    emptied_at bigint                   -- too old to be read; kept for WATCH, so that readers see the gap
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX transition_xid ON holdfast.transition (xid);

-- Statistics of ended claims. Several rows may have the same minute, queue, task and outcome: add them up.
CREATE TABLE holdfast.minute (
    at bigint NOT NULL,                 -- the beginning of the minute
    queue text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    waited bigint NOT NULL,             -- microseconds, added up
    ran bigint NOT NULL,
    waits text COLLATE "C" NOT NULL,    -- of a part: a letter per claim, A for bucket 0; else the claims of each bucket
    runs text COLLATE "C" NOT NULL,
    part boolean NOT NULL DEFAULT true  -- of one commit; not yet added up
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX minute_at ON holdfast.minute (at);
CREATE INDEX minute_part ON holdfast.minute (at) WHERE part;

-- How many jobs holdfast.ended has: add up the rows of a queue and state.
CREATE TABLE holdfast.ended_count (
    queue text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    count bigint NOT NULL               -- of one statement, less than 0 if it removed jobs; or of many, added up
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE FUNCTION holdfast.count_ended() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO holdfast.ended_count SELECT e.queue, e.state, count(*) FROM came AS e GROUP BY e.queue, e.state;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        INSERT INTO holdfast.ended_count SELECT e.queue, e.state, -count(*) FROM went AS e GROUP BY e.queue, e.state;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER count_inserted AFTER INSERT ON holdfast.ended REFERENCING NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.count_ended();
CREATE TRIGGER count_deleted AFTER DELETE ON holdfast.ended REFERENCING OLD TABLE AS went
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.count_ended();
CREATE TRIGGER count_updated AFTER UPDATE ON holdfast.ended REFERENCING OLD TABLE AS went NEW TABLE AS came
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.count_ended();

-- The letter of a duration in microseconds: A for bucket 0 of core/histogram.py, B for bucket 1, …
CREATE FUNCTION holdfast.letter(duration bigint) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT chr({FIRST_LETTER} + width_bucket(duration, '{{BUCKET_BOUNDS}}'::bigint[]))
$$;

-- How many of these letters there are: "0 12 3" for bucket 0, 1 and 2.
CREATE FUNCTION holdfast.letter_counts(letters text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT regexp_replace(string_agg((length(letters) - length(replace(letters, chr({FIRST_LETTER} + b), '')))::text, ' '
        ORDER BY b), '( 0)+$', '') FROM generate_series(0, {BUCKETS} - 1) AS b
$$;

CREATE FUNCTION holdfast.watched(now bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(pg_sequence_last_value('holdfast.watched_until'::regclass), 0) > now
$$;
COMMENT ON FUNCTION holdfast.watched(bigint) IS 'Whether transitions are recorded. To be called after the change: a '
    'new watch waits for the transactions that have changed something by then.';

CREATE FUNCTION holdfast.record_transition(now bigint, ids text[], states text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF ids <> '{}' AND holdfast.watched(now) THEN
        INSERT INTO holdfast.transition (at, ids, states) VALUES (now, record_transition.ids, record_transition.states);
    END IF;
END $$;
COMMENT ON FUNCTION holdfast.record_transition(bigint, text[], text[]) IS 'Record that these jobs have changed to these states.';

-- Record the new ones of these jobs: their numbers are higher than `before`.
CREATE FUNCTION holdfast.record_new(now bigint, new_ids text[], before bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF holdfast.watched(now) THEN
        INSERT INTO holdfast.transition (at, ids, states)
        SELECT now, array_agg(j.id ORDER BY j.seq), array_agg(j.state ORDER BY j.seq)
        FROM holdfast.job AS j WHERE j.id = ANY (new_ids) AND j.seq > before HAVING count(*) > 0;
    END IF;
END $$;

-- Record transitions for `keep` seconds from now. A watch with less than 5 s left counts as over: a commit may have seen
-- its end.
CREATE FUNCTION holdfast.watch(keep double precision) RETURNS TABLE (watch bigint, fresh boolean, now bigint, gone bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    until bigint := coalesce(pg_sequence_last_value('holdfast.watched_until'::regclass), 0);
    lasting bigint := (keep * {MICROS})::bigint;
BEGIN
    now := holdfast.micros();
    gone := coalesce(pg_sequence_last_value('holdfast.transitions_gone'::regclass), 0);
    fresh := until < now + 5 * {MICROS};
    IF until < now + lasting / 2 THEN
        PERFORM setval('holdfast.watched_until', now + lasting);
    END IF;
    watch := CASE WHEN fresh THEN nextval('holdfast.watch_number')
        ELSE pg_sequence_last_value('holdfast.watch_number'::regclass) END;
    RETURN NEXT;
END $$;

-- Empty transitions beyond the newest {TRANSITIONS_KEPT}, and remove them after WATCH, when every reader has seen that;
-- remove all without a watch. Add up the statistics of past minutes, and remove them after a week.
CREATE FUNCTION holdfast.tidy_transitions(max_rows integer, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest bigint;
BEGIN
    IF NOT holdfast.watched(now) THEN
        DELETE FROM holdfast.transition;
    ELSE
        SELECT m.number INTO newest FROM (
            SELECT x.number, sum(cardinality(x.ids)) OVER (ORDER BY x.number DESC) AS total
            FROM holdfast.transition AS x WHERE x.emptied_at IS NULL ORDER BY x.number DESC LIMIT {TRANSITIONS_KEPT} + 1
        ) AS m WHERE m.total >= {TRANSITIONS_KEPT} ORDER BY m.number DESC LIMIT 1;
        UPDATE holdfast.transition AS m SET ids = '{}', states = '{}', emptied_at = now
        WHERE m.number < newest AND m.emptied_at IS NULL;
        WITH gone AS (
            DELETE FROM holdfast.transition AS m WHERE m.emptied_at < now - {WATCH} RETURNING m.emptied_at
        ) SELECT setval('holdfast.transitions_gone', max(g.emptied_at)) INTO newest FROM gone AS g;
    END IF;
    WITH parts AS (
        DELETE FROM holdfast.minute AS m WHERE m.ctid = ANY (ARRAY(
            SELECT x.ctid FROM holdfast.minute AS x WHERE x.part AND x.at < now - {MINUTE}
            ORDER BY x.at LIMIT 50 * max_rows FOR UPDATE SKIP LOCKED))
        RETURNING m.at, m.queue, m.task, m.outcome, m.count, m.waited, m.ran, m.waits, m.runs
    )
    INSERT INTO holdfast.minute (at, queue, task, outcome, count, waited, ran, waits, runs, part)
    SELECT p.at, p.queue, p.task, p.outcome, sum(p.count), sum(p.waited), sum(p.ran),
        holdfast.letter_counts(string_agg(p.waits, '')), holdfast.letter_counts(string_agg(p.runs, '')), false
    FROM parts AS p GROUP BY p.at, p.queue, p.task, p.outcome
    ORDER BY p.at, p.queue, p.task, p.outcome;     -- in the order in which they are shown, so that there is little to sort
    DELETE FROM holdfast.minute AS m WHERE m.ctid = ANY (ARRAY(
        SELECT x.ctid FROM holdfast.minute AS x WHERE x.at < now - {MINUTE_STATS_KEPT}
        ORDER BY x.at LIMIT 50 * max_rows FOR UPDATE SKIP LOCKED));
    -- Added up when it pays: after 500 rows, and as many as there are sums.
    IF (SELECT count(*) > 500 + 2 * count(DISTINCT (c.queue, c.state)) FROM holdfast.ended_count AS c) THEN
        WITH parts AS (
            DELETE FROM holdfast.ended_count AS c WHERE c.ctid = ANY (ARRAY(
                SELECT x.ctid FROM holdfast.ended_count AS x LIMIT 50 * max_rows FOR UPDATE SKIP LOCKED))
            RETURNING c.queue, c.state, c.count
        )
        INSERT INTO holdfast.ended_count
        SELECT p.queue, p.state, sum(p.count) FROM parts AS p GROUP BY p.queue, p.state HAVING sum(p.count) <> 0;
    END IF;
END $$;

-- Record the end of each of these jobs.
CREATE FUNCTION holdfast.record_ended(ids text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO holdfast.record (kind, name, value)
    SELECT 'ended', u.id, '{}'::bytea FROM (SELECT DISTINCT unnest(ids)) AS u(id) ORDER BY u.id
    ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value, version = excluded.version;
END $$;
