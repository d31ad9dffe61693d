-- What is told of a commit, in the same commit: which jobs moved, while somebody watches, and how claims
-- ended, minute by minute.
--
-- Both are only ever appended to. A counter that every commit updates would grow a chain of dead versions as long as an
-- old snapshot is open, and make workers wait for each other; so sums are made by who reads, and by holdfast.tidy().

-- Until when moves are kept, and which watch it is: it gets a new number when nobody had watched for a while.
-- Sequences, because every snapshot reads them the same: an old transaction of a user's must know of a new watch.
CREATE SEQUENCE holdfast.watched_until;
CREATE SEQUENCE holdfast.watch_number;
CREATE SEQUENCE holdfast.move_number;
-- When the last of the moves that are gone was emptied: who asked last before that may have missed it.
CREATE SEQUENCE holdfast.transitions_gone;

-- What moved, one row per step of a commit. Numbers are in the order in which things happened to each job: a row is
-- written after the change that it tells of, and the next change of that job waits for the commit.
CREATE TABLE holdfast.transition (
    number bigint NOT NULL PRIMARY KEY DEFAULT nextval('holdfast.move_number'),
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at bigint NOT NULL,
    ids text[] NOT NULL,
    states text[] NOT NULL,
    emptied_at bigint                   -- too old to be told; it stays a while, for who has to know of that
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX transition_xid ON holdfast.transition (xid);

-- How claims ended. Several rows may be about the same minute, queue and outcome: add them up.
CREATE TABLE holdfast.minute (
    at bigint NOT NULL,                 -- its beginning
    queue text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    waited bigint NOT NULL,             -- microseconds, added up
    ran bigint NOT NULL,
    part boolean NOT NULL DEFAULT true  -- of one commit; not yet added up
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX minute_at ON holdfast.minute (at);
CREATE INDEX minute_part ON holdfast.minute (at) WHERE part;

CREATE FUNCTION holdfast.watched(now bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(pg_sequence_last_value('holdfast.watched_until'::regclass), 0) > now
$$;
COMMENT ON FUNCTION holdfast.watched(bigint) IS 'Whether transitions are to be kept. To be asked after the change: who '
    'begins to watch waiting_for for the transactions that have changed something by then.';

CREATE FUNCTION holdfast.record_transition(now bigint, ids text[], states text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF ids <> '{}' AND holdfast.watched(now) THEN
        INSERT INTO holdfast.transition (at, ids, states) VALUES (now, record_transition.ids, record_transition.states);
    END IF;
END $$;
COMMENT ON FUNCTION holdfast.record_transition(bigint, text[], text[]) IS 'These jobs came to these states.';

-- Tell of those of these jobs that are new: their numbers are higher than the last one given `before`.
CREATE FUNCTION holdfast.record_new(now bigint, new_ids text[], before bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF holdfast.watched(now) THEN
        INSERT INTO holdfast.transition (at, ids, states)
        SELECT now, array_agg(j.id ORDER BY j.seq), array_agg(j.state ORDER BY j.seq)
        FROM holdfast.job AS j WHERE j.id = ANY (new_ids) AND j.seq > before HAVING count(*) > 0;
    END IF;
END $$;

-- Have moves kept for so many seconds from now. A watch that is nearly over counts as over: a commit may have found so.
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

-- Moves beyond the newest {TRANSITIONS_KEPT} are emptied, and go once everybody who asks in time has seen that; all go where nobody
-- watches. Minutes that are over are added up, and go after a week.
CREATE FUNCTION holdfast.tidy_told(most integer, now bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    newest bigint;
BEGIN
    IF NOT holdfast.watched(now) THEN
        DELETE FROM holdfast.transition;
    ELSE
        SELECT m.number INTO newest FROM (
            SELECT x.number, sum(cardinality(x.ids)) OVER (ORDER BY x.number DESC) AS told
            FROM holdfast.transition AS x WHERE x.emptied_at IS NULL ORDER BY x.number DESC LIMIT {TRANSITIONS_KEPT} + 1
        ) AS m WHERE m.told >= {TRANSITIONS_KEPT} ORDER BY m.number DESC LIMIT 1;
        UPDATE holdfast.transition AS m SET ids = '{}', states = '{}', emptied_at = now
        WHERE m.number < newest AND m.emptied_at IS NULL;
        WITH gone AS (
            DELETE FROM holdfast.transition AS m WHERE m.emptied_at < now - {WATCH} RETURNING m.emptied_at
        ) SELECT setval('holdfast.transitions_gone', max(g.emptied_at)) INTO newest FROM gone AS g;
    END IF;
    WITH parts AS (
        DELETE FROM holdfast.minute AS m WHERE m.ctid = ANY (ARRAY(
            SELECT x.ctid FROM holdfast.minute AS x WHERE x.part AND x.at < now - {MINUTE}
            ORDER BY x.at LIMIT 50 * most FOR UPDATE SKIP LOCKED))
        RETURNING m.at, m.queue, m.outcome, m.count, m.waited, m.ran
    )
    INSERT INTO holdfast.minute (at, queue, outcome, count, waited, ran, part)
    SELECT p.at, p.queue, p.outcome, sum(p.count), sum(p.waited), sum(p.ran), false
    FROM parts AS p GROUP BY p.at, p.queue, p.outcome;
    DELETE FROM holdfast.minute AS m WHERE m.ctid = ANY (ARRAY(
        SELECT x.ctid FROM holdfast.minute AS x WHERE x.at < now - {MINUTE_STATS_KEPT}
        ORDER BY x.at LIMIT 50 * most FOR UPDATE SKIP LOCKED));
END $$;

-- Put a record of each of these jobs' end.
CREATE FUNCTION holdfast.record_ended(ids text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO holdfast.record (kind, name, value)
    SELECT 'ended', u.id, '{}'::bytea FROM (SELECT DISTINCT unnest(ids)) AS u(id) ORDER BY u.id
    ON CONFLICT (kind, name) DO UPDATE SET value = excluded.value, version = excluded.version;
END $$;
