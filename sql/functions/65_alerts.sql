-- Notifications of failures. Present failures are compared with the last report to each target (level-triggered).
-- No report is sent twice, not by two engines and not after a restart.
-- A failure that begins and ends between two checks is not reported.

-- The failures to report now, found by indexes. `count`: the number of chunks. `data_id`: the first of these chunks.
CREATE VIEW opendataflow.active_alert AS
    SELECT j.id AS job, 'failed' AS kind, (SELECT r.finished_at FROM opendataflow.run r WHERE r.id = f.run) AS since,
           (SELECT count(*) FROM opendataflow.task w WHERE w.job = j.id AND w.state = 'FAILED') AS count,
           f.data_id, f.reason AS message
    FROM opendataflow.job j
    CROSS JOIN LATERAL (SELECT w.data_id, w.run, w.reason FROM opendataflow.task w WHERE w.job = j.id AND w.state = 'FAILED'
                        ORDER BY w.sort_key LIMIT 1) f
    WHERE NOT j.deleted
    UNION ALL
    SELECT b.job, 'breaker', b.opened_at, cardinality(b.failed)::bigint, NULL, b.message
    FROM opendataflow.breaker b JOIN opendataflow.job j ON j.id = b.job
    WHERE b.opened_at IS NOT NULL AND NOT j.deleted
    UNION ALL
    SELECT g.job, g.kind, g.failing_since, 0, NULL, g.failure
    FROM opendataflow.gate g JOIN opendataflow.job j ON j.id = g.job
    WHERE g.failed IS NOT NULL AND NOT j.deleted
    UNION ALL
    SELECT j.id, 'preflight', (m.found ->> 'since')::timestamptz, (m.found ->> 'lasting')::bigint, m.found -> 'examples' ->> 0, m.found ->> 'reason'
    FROM opendataflow.job j CROSS JOIN LATERAL (SELECT opendataflow.missing_locations(j.id) AS found) m
    WHERE NOT j.deleted AND (m.found ->> 'lasting')::bigint > 0
      AND NOT EXISTS (SELECT FROM opendataflow.gate g WHERE g.job = j.id AND g.kind = 'preflight');

-- Return at most p_limit reports that a target must receive now. Each report is given to one caller.
-- A caller that does not call record_alert() within p_ttl has crashed, and another caller receives the report again.
-- p_pause: the minimum time between two reports about the same failure.
CREATE FUNCTION opendataflow.claim_alerts(p_target text, p_limit integer, p_pause interval, p_ttl interval)
RETURNS TABLE (job text, kind text, failing boolean, since timestamptz, count bigint, data_id text, message text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_jobs  text[];
    v_kinds text[];
BEGIN
    -- Delete alerts that were never reported and have ended, and recoveries that were reported more than a day ago.
    DELETE FROM alert a
    WHERE a.target = p_target AND (a.failing IS NULL OR (NOT a.failing AND a.reported_at < clock_timestamp() - interval '1 day'))
      AND (a.claimed_until IS NULL OR a.claimed_until < clock_timestamp())
      AND NOT EXISTS (SELECT FROM active_alert f WHERE f.job = a.job AND f.kind = a.kind);
    INSERT INTO alert (target, job, kind) SELECT p_target, f.job, f.kind FROM active_alert f ORDER BY 2, 3 ON CONFLICT DO NOTHING;

    SELECT array_agg(d.job), array_agg(d.kind) INTO v_jobs, v_kinds
    FROM (SELECT a.job, a.kind FROM alert a
          WHERE a.target = p_target AND (a.reported_at IS NULL OR a.reported_at <= clock_timestamp() - p_pause)
            AND (a.claimed_until IS NULL OR a.claimed_until < clock_timestamp())
            AND coalesce(a.failing, false) <> EXISTS (SELECT FROM active_alert f WHERE f.job = a.job AND f.kind = a.kind)
          ORDER BY a.job, a.kind LIMIT p_limit FOR UPDATE SKIP LOCKED) d;
    UPDATE alert a SET claimed_until = clock_timestamp() + p_ttl
    FROM unnest(v_jobs, v_kinds) AS d(job, kind) WHERE a.target = p_target AND a.job = d.job AND a.kind = d.kind;
    RETURN QUERY
    SELECT d.job, d.kind, NOT coalesce(a.failing, false), coalesce(f.since, clock_timestamp()), coalesce(f.count, 0), f.data_id, f.message
    FROM unnest(v_jobs, v_kinds) AS d(job, kind)
    JOIN alert a ON a.target = p_target AND a.job = d.job AND a.kind = d.kind
    LEFT JOIN LATERAL (SELECT * FROM active_alert f WHERE f.job = d.job AND f.kind = d.kind OFFSET 0) f ON true;
END $$;

-- Record that a report was sent to a target.
CREATE FUNCTION opendataflow.record_alert(p_target text, p_job text, p_kind text, p_failing boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE alert a SET failing = p_failing, reported_at = clock_timestamp(), claimed_until = NULL
    WHERE a.target = p_target AND a.job = p_job AND a.kind = p_kind;
END $$;

-- Release reports that could not be sent, so that another caller can send them.
CREATE FUNCTION opendataflow.release_alerts(p_target text, p_jobs text[], p_kinds text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE alert a SET claimed_until = NULL
    FROM unnest(p_jobs, p_kinds) AS d(job, kind) WHERE a.target = p_target AND a.job = d.job AND a.kind = d.kind;
END $$;
