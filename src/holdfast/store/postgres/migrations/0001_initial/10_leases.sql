-- Leases, which belong to holders, and retention.

-- Renew the lease of each holder (creating missing ones): a row for each, then one for each of its claims. Rows are locked
-- in the order of their ids, so that callers do not deadlock; a task's own transaction never locks them.
-- The claims are read by a later statement, so they are at least as new as the heartbeat: a sweep that could end one of
-- them has committed before the holder was locked, or skips it.
CREATE FUNCTION holdfast.heartbeat(ids text[], abouts text[], leases double precision[])
RETURNS TABLE (holder text, heartbeat bigint, job text, seq bigint, fence bigint, token bigint, cancel boolean)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    INSERT INTO holdfast.holder AS h (id, about, heartbeat, renewed_at, expires)
    SELECT u.id, u.about::json, 1, n.now, n.now + (u.lease * {MICROS})::bigint
    FROM unnest(ids, abouts, leases) AS u(id, about, lease), (SELECT holdfast.micros() AS now) AS n
    ORDER BY u.id
    ON CONFLICT (id) DO UPDATE SET
        about = excluded.about, heartbeat = h.heartbeat + 1, renewed_at = excluded.renewed_at, expires = excluded.expires
    RETURNING h.id, h.heartbeat, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::boolean;
    RETURN QUERY
    SELECT j.holder, NULL::bigint, j.id, j.seq, j.fence, j.token, j.cancel FROM holdfast.job AS j
    WHERE j.holder = ANY (ids) AND j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)) AND j.state = 'running'
    ORDER BY j.seq;
END $$;

-- Remove at most `max_rows` each of jobs past their retention, expired keys, expired holders without jobs, and limit keys
-- that have been idle for LIMIT_KEYS_KEPT.
CREATE FUNCTION holdfast.tidy(max_rows integer) RETURNS TABLE (jobs bigint, keys bigint, holders bigint)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    now bigint := holdfast.micros();
    idle tid[];
    used tid[];
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.ended AS e WHERE e.ctid = ANY (ARRAY(
            SELECT x.ctid FROM holdfast.ended AS x WHERE x.expires_at <= now
            ORDER BY x.expires_at LIMIT max_rows FOR UPDATE SKIP LOCKED)) RETURNING e.seq
    ), printed AS (
        DELETE FROM holdfast.output AS o USING gone AS g WHERE o.seq = g.seq
    ) SELECT count(*) INTO jobs FROM gone;
    DELETE FROM holdfast.key AS k WHERE k.ctid = ANY (ARRAY(
        SELECT x.ctid FROM holdfast.key AS x WHERE x.expires_at <= now
        ORDER BY x.expires_at LIMIT max_rows FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS keys = ROW_COUNT;
    -- A claim that was committed after its holder was removed: the holder is added again, expired, so that it is swept.
    WITH RECURSIVE held AS (
        SELECT g.gen, (SELECT min(j.holder) FROM holdfast.job AS j WHERE j.gen = g.gen AND j.state = 'running') AS holder
        FROM holdfast.generation AS g
        UNION ALL
        SELECT h.gen, (SELECT min(j.holder) FROM holdfast.job AS j
            WHERE j.gen = h.gen AND j.state = 'running' AND j.holder > h.holder) FROM held AS h WHERE h.holder IS NOT NULL
    )
    INSERT INTO holdfast.holder (id, about, heartbeat, renewed_at, expires)
    SELECT h.holder, json_build_object('id', h.holder, 'lease', 0), 1, now, now FROM held AS h
    WHERE h.holder IS NOT NULL AND NOT EXISTS (SELECT FROM holdfast.holder AS k WHERE k.id = h.holder) GROUP BY h.holder
    ON CONFLICT (id) DO NOTHING;
    DELETE FROM holdfast.holder AS h WHERE h.id = ANY (ARRAY(
        SELECT x.id FROM holdfast.holder AS x WHERE x.expires <= now AND NOT EXISTS (
            SELECT FROM holdfast.job AS j WHERE j.holder = x.id AND j.state = 'running'
                AND j.gen = ANY (ARRAY(SELECT g.gen FROM holdfast.generation AS g)))
        LIMIT max_rows FOR UPDATE SKIP LOCKED)) AND h.expires <= now;
    GET DIAGNOSTICS holders = ROW_COUNT;
    SELECT array_agg(o.ctid) FILTER (WHERE o.idle), array_agg(o.ctid) FILTER (WHERE NOT o.idle) INTO idle, used FROM (
        SELECT x.ctid, greatest(x.tat, x.rest_until) < now - {LIMIT_KEYS_KEPT} AND x.opens_at IS NULL AND NOT h.deferred AS idle
        FROM holdfast.limiter AS x CROSS JOIN LATERAL holdfast.has_deferred(x.name) AS h(deferred)
        WHERE x.used_at < now - {LIMIT_KEYS_KEPT} ORDER BY x.used_at LIMIT max_rows FOR UPDATE OF x SKIP LOCKED
    ) AS o;
    DELETE FROM holdfast.limiter AS g WHERE g.ctid = ANY (idle);
    UPDATE holdfast.limiter AS g SET used_at = now WHERE g.ctid = ANY (used);
    WITH parts AS (
        DELETE FROM holdfast.share_part AS p WHERE p.ctid = ANY (ARRAY(
            SELECT x.ctid FROM holdfast.share_part AS x
            ORDER BY x.limit_key, x.finish LIMIT 50 * max_rows FOR UPDATE SKIP LOCKED)) RETURNING p.limit_key, p.finish
    )
    INSERT INTO holdfast.share AS s (limit_key, finish)
    SELECT p.limit_key, max(p.finish) FROM parts AS p GROUP BY p.limit_key ORDER BY p.limit_key
    ON CONFLICT (limit_key) DO UPDATE SET finish = greatest(s.finish, excluded.finish);
    DELETE FROM holdfast.share AS s WHERE s.ctid = ANY (ARRAY(
        SELECT x.ctid FROM holdfast.share AS x WHERE x.finish < now - {LIMIT_KEYS_KEPT}
        ORDER BY x.finish LIMIT max_rows FOR UPDATE SKIP LOCKED));
    PERFORM holdfast.tidy_transitions(max_rows, now);
    RETURN NEXT;
END $$;
