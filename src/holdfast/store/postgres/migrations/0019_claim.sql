-- Version 19: CLAIM, where a job may have a lane, or wait for something besides its time.

-- When the next job of a queue becomes due. In this language, the plan is made once a session.
CREATE OR REPLACE FUNCTION holdfast.next_due(of_queue text, gens integer[]) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT min(d.run_at) FROM unnest(gens) AS g(gen) CROSS JOIN LATERAL (
        SELECT j.run_at FROM holdfast.job AS j
        WHERE j.queue = of_queue AND j.gen = g.gen AND j.state IN ('scheduled', 'failed')
        ORDER BY j.run_at, j.seq LIMIT 1
    ) AS d);
END $$;

DROP FUNCTION holdfast.claim(
    text, text, double precision, text[], integer, bigint, text[], boolean, bigint);
CREATE FUNCTION holdfast.claim(
    ask_holder text, ask_about text, ask_lease double precision, ask_queues text[], ask_limit integer,
    ask_token bigint, ask_tasks text[], ask_busy boolean, ask_patient boolean, now bigint
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gens integer[];
    newest integer;
    of_queue text;
    wanted integer := ask_limit;
    taken bigint := 0;
    got bigint;
    waiting boolean := false;
    looked boolean := false;
    alone boolean;
    due bigint;
    soonest bigint;
    first_suspect record;
    first_sound record;
    read_before bigint := pg_stat_get_xact_blocks_fetched('holdfast.job_ready'::regclass);
    worn boolean;
    noticed boolean;
    opens bigint;
    mine text[];
    chosen tid[];
    laned boolean;
    met holdfast.met := ROW('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}');
    spare integer := 1000;
    picked record;
    said holdfast.answer;
BEGIN
    SELECT array_agg(g.gen ORDER BY g.gen), bool_or(EXISTS (SELECT FROM holdfast.notice AS n WHERE n.gen = g.gen)),
        (SELECT o.opens_at FROM holdfast.gate AS o WHERE o.opens_at IS NOT NULL ORDER BY o.opens_at, o.name LIMIT 1)
    INTO gens, noticed, opens FROM holdfast.generation AS g;
    IF noticed OR opens <= now THEN
        mine := holdfast.reopen(ask_queues, ask_limit, ask_patient, gens, now);
        SELECT array_agg(g.gen ORDER BY g.gen) INTO gens FROM holdfast.generation AS g;
    END IF;
    FOREACH of_queue IN ARRAY ask_queues LOOP
        CONTINUE WHEN EXISTS (SELECT FROM holdfast.record AS r WHERE r.kind = 'pause' AND r.name = of_queue);
        due := holdfast.next_due(of_queue, gens);
        -- An ask for nothing promotes what is due in its first queue only, as every store does.
        IF due <= now AND (wanted > 0 OR NOT looked) THEN
            newest := coalesce(newest, holdfast.open_generation());
            UPDATE holdfast.job AS j SET state = 'queued', gen = newest WHERE j.ctid = ANY (ARRAY(
                SELECT d.ctid FROM unnest(gens) AS g(gen) CROSS JOIN LATERAL (
                    SELECT x.ctid FROM holdfast.job AS x
                    WHERE x.queue = of_queue AND x.gen = g.gen AND x.state IN ('scheduled', 'failed') AND x.run_at <= now
                    ORDER BY x.run_at, x.seq LIMIT 1000 FOR UPDATE SKIP LOCKED
                ) AS d));
            IF newest <> ALL (gens) THEN
                gens := gens || newest;
            END IF;
            due := holdfast.next_due(of_queue, gens);
        END IF;
        soonest := least(soonest, due);
        looked := true;
        CONTINUE WHEN wanted <= 0;
        SELECT * INTO first_suspect FROM holdfast.first_ready(of_queue, true, ask_tasks, gens);
        alone := false;
        IF first_suspect.seq IS NOT NULL AND NOT ask_busy AND taken = 0 THEN
            SELECT * INTO first_sound FROM holdfast.first_ready(of_queue, false, ask_tasks, gens);
            alone := first_sound.seq IS NULL OR (first_suspect.priority, first_suspect.run_at, first_suspect.seq)
                < (first_sound.priority, first_sound.run_at, first_sound.seq);
        END IF;
        newest := coalesce(newest, gens[cardinality(gens)]);
        IF cardinality(gens) = 1 THEN
            SELECT array_agg(f.ctid), bool_or(f.lane IS NOT NULL) INTO chosen, laned FROM (
                SELECT x.ctid, x.lane FROM holdfast.job AS x
                WHERE x.queue = of_queue AND x.gen = newest AND x.suspect = alone AND x.state = 'queued'
                    AND (ask_tasks IS NULL OR x.task = ANY (ask_tasks))
                ORDER BY x.priority, x.run_at, x.seq
                LIMIT CASE WHEN alone THEN 1 ELSE wanted END FOR UPDATE SKIP LOCKED
            ) AS f;
        ELSE
            SELECT array_agg(o.ctid), bool_or(o.lane IS NOT NULL) INTO chosen, laned FROM (
                SELECT f.ctid, f.lane
                FROM unnest(gens) AS g(gen)
                LEFT JOIN holdfast.floor AS l ON l.gen = g.gen AND l.queue = of_queue AND NOT alone
                CROSS JOIN LATERAL (
                    SELECT x.ctid, x.priority, x.run_at, x.seq, x.lane FROM holdfast.job AS x
                    WHERE x.queue = of_queue AND x.gen = g.gen AND x.suspect = alone AND x.state = 'queued'
                        AND (x.priority, x.run_at, x.seq)
                            >= (coalesce(l.priority, -2147483648), coalesce(l.run_at, 0), coalesce(l.seq, 0))
                        AND (ask_tasks IS NULL OR x.task = ANY (ask_tasks))
                    ORDER BY x.priority, x.run_at, x.seq
                    LIMIT CASE WHEN alone THEN 1 ELSE wanted END FOR UPDATE SKIP LOCKED
                ) AS f
                ORDER BY f.priority, f.run_at, f.seq LIMIT CASE WHEN alone THEN 1 ELSE wanted END
            ) AS o;
        END IF;
        IF laned THEN
            SELECT * INTO picked FROM holdfast.pick(of_queue, ask_tasks, wanted, NOT ask_busy AND taken = 0,
                ask_patient AND mine IS NULL, gens, now, met, spare);
            chosen := picked.chosen;
            met := picked.met;
            spare := picked.spare;
        END IF;
        got := 0;
        IF chosen <> '{}' THEN
            RETURN QUERY UPDATE holdfast.job AS j SET state = 'running', attempt = j.attempt + 1, fence = j.fence + 1,
                token = ask_token, holder = ask_holder, started_at = now, pid = NULL, waits = NULL
            WHERE j.ctid = ANY (chosen)
            RETURNING NULL::text, j.seq, j.id, j.queue, j.task, j.state, j.priority, j.run_at, j.payload, j.codec,
                j.max_attempts, j.timeout, j.key, j.created_at, j.attempt, j.life, j.fence, j.token, j.holder, j.pid,
                j.suspect, j.deaths, j.cancel, j.started_at, j.finished_at, j.expires_at, j.result, j.error,
                j.traceback, j.progress, j.checkpoint, j.tags, j.meta, j.retry, j.history, j.waits, j.lane, j.extra,
                j.saves;
            GET DIAGNOSTICS got = ROW_COUNT;
        END IF;
        taken := taken + got;
        IF laned THEN
            waiting := waiting OR picked.waiting;
            alone := picked.suspects;
        END IF;
        EXIT WHEN spare <= 0 OR (alone AND got > 0);
        IF first_suspect.seq IS NOT NULL AND laned IS NOT TRUE THEN
            waiting := waiting OR got < wanted OR EXISTS (
                SELECT FROM holdfast.job AS j WHERE j.holder = ask_holder AND j.gen = ANY (gens) AND j.state = 'running'
                    AND j.token = ask_token AND j.queue = of_queue AND (j.priority, j.run_at, j.seq)
                        > (first_suspect.priority, first_suspect.run_at, first_suspect.seq));
        END IF;
        wanted := wanted - got;
        EXIT WHEN wanted <= 0 AND ask_limit > 0;
    END LOOP;
    worn := pg_stat_get_xact_blocks_fetched('holdfast.job_ready'::regclass) - read_before
        > 40 + taken / 4 + 8 * (1000 - spare) + 8 * cardinality(ask_queues) * cardinality(gens);
    IF met.names <> '{}' THEN
        UPDATE holdfast.gate AS g
        SET tat = m.next_tat, opens_at = CASE WHEN m.held THEN m.look ELSE g.opens_at END
        FROM unnest(met.names, met.next_tats, met.held, met.looks) AS m(name, next_tat, held, look)
        WHERE g.name = m.name AND (m.next_tat <> g.tat OR m.held AND m.look IS DISTINCT FROM g.opens_at);
    END IF;
    IF taken = 0 THEN
        -- Jobs of lanes that another claim is deciding about are left alone: to be asked for again at once.
        IF spare <= 0 OR array_position(met.tats, NULL) IS NOT NULL THEN
            soonest := now;
        ELSIF mine IS NOT NULL OR met.names <> '{}' THEN
            SELECT min(o.opens_at) INTO opens FROM holdfast.gate AS o WHERE o.opens_at IS NOT NULL;
            IF EXISTS (SELECT FROM holdfast.notice AS n WHERE n.gen = ANY (gens)) THEN
                opens := now;
            END IF;
        END IF;
        soonest := least(soonest, opens);
    END IF;
    IF taken = 0 OR waiting OR worn THEN
        said.answer := json_build_object('waiting', waiting, 'worn', worn, 'due_in',
            CASE WHEN taken = 0 AND soonest IS NOT NULL THEN greatest(0, soonest - now) END);
        RETURN NEXT said;
    END IF;
    IF taken > 0 AND holdfast.watched(now) THEN
        INSERT INTO holdfast.move (at, ids, states)
        SELECT now, array_agg(t.id), array_agg(t.state) FROM (
            SELECT j.id, j.state FROM holdfast.job AS j
            WHERE j.holder = ask_holder AND j.gen = ANY (gens) AND j.state = 'running' AND j.token = ask_token
            ORDER BY array_position(ask_queues, j.queue), j.priority, j.run_at, j.seq
        ) AS t;
    END IF;
    -- Renew the holder where half of its lease is spent. Looked at first: an upsert would write each time.
    IF taken > 0 AND NOT EXISTS (SELECT FROM holdfast.holder AS h WHERE h.id = ask_holder
        AND h.expires - now >= (ask_lease * 1000000)::bigint / 2)
    THEN
        INSERT INTO holdfast.holder AS h (id, about, beat, beaten_at, expires)
        VALUES (ask_holder, ask_about::json, 1, now, now + (ask_lease * 1000000)::bigint)
        ON CONFLICT (id) DO UPDATE SET beat = h.beat + 1, beaten_at = now, expires = excluded.expires;
    END IF;
END $$;
