-- Version 7: leases, which belong to holders, and retention.

-- Renew each holder (making it if need be). Rows are touched in the order of their ids, so that two callers never
-- wait for each other; a task's own transaction never touches them.
CREATE FUNCTION holdfast.beat(ids text[], abouts text[], leases double precision[])
RETURNS TABLE (holder text, beat bigint) LANGUAGE sql VOLATILE AS $$
    INSERT INTO holdfast.holder AS h (id, about, beat, beaten_at, expires)
    SELECT u.id, u.about::json, 1, n.now, n.now + (u.lease * 1000000)::bigint
    FROM unnest(ids, abouts, leases) AS u(id, about, lease), (SELECT holdfast.micros() AS now) AS n
    ORDER BY u.id
    ON CONFLICT (id) DO UPDATE SET
        about = excluded.about, beat = h.beat + 1, beaten_at = excluded.beaten_at, expires = excluded.expires
    RETURNING h.id, h.beat
$$;

-- Remove at most `most` each of jobs past their retention, forgotten keys, and holders gone without jobs.
CREATE FUNCTION holdfast.tidy(most integer) RETURNS TABLE (jobs bigint, keys bigint, holders bigint)
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
    RETURN NEXT;
END $$;
