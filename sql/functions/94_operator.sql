-- What the operator tells in the statuses of resources. Nothing here changes anything.

-- The last runs of a job that failed or were lost, the newest first; those that were given back have failed at nothing.
CREATE FUNCTION opendataflow.last_failures(p_job text, p_limit integer)
RETURNS TABLE (data_id text, run bigint, reason text, message text, at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT r.data_id, r.id, r.failure_class, coalesce(r.message, ''), r.finished_at FROM opendataflow.run r
    WHERE r.job = p_job AND r.state IN ('FAILED', 'LOST') AND r.failure_class IS DISTINCT FROM 'NotStarted'
    ORDER BY r.finished_at DESC LIMIT p_limit
$$;

-- All that the statuses of some jobs tell: what job_status() says, and beside it the last failures, how much is stale, and
-- the request that was done last. One question for many jobs. (plpgsql: job_status() comes in a later file.)
CREATE FUNCTION opendataflow.job_reports(p_jobs text[], p_failures integer) RETURNS TABLE (job text, report jsonb)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT j.id, job_status(j.id) || jsonb_build_object(
        'last_failures', (SELECT coalesce(jsonb_agg(to_jsonb(f)), '[]') FROM last_failures(j.id, p_failures) f),
        'stale', (SELECT count(*) FROM task w WHERE w.job = j.id AND w.stale),
        'resubmit', (SELECT jsonb_build_object('id', q.id, 'answer', q.answer) FROM request q WHERE q.owner = 'job ' || j.id))
    FROM job j WHERE j.id = ANY (p_jobs);
END $$;

-- The chunks of a data set by status, and a number that tells which of them are not READY. Looks at every chunk (a million
-- take a fifth of a second). Null where there is no such data set.
CREATE FUNCTION opendataflow.dataset_counts(p_dataset text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    SELECT (SELECT jsonb_build_object('counts', coalesce(jsonb_object_agg(n.status, n.chunks), '{}'),
                                      'missing', coalesce(sum(n.ids) FILTER (WHERE n.status <> 'READY'), 0))
            FROM (SELECT c.status, count(*) AS chunks, sum(hashtextextended(c.data_id, 0)) AS ids
                  FROM chunk c WHERE c.dataset = d.id GROUP BY c.status) n)
    FROM dataset d WHERE d.id = p_dataset
$$;

-- The watermark of a data set (the last id before the first that is not READY, in natural order), and its first gaps before
-- the last READY one. Puts every chunk in order, which takes half a minute for a million: whoever asks has to leave
-- long pauses. Ids that have digits in the same places, like dates, are in natural order as they are.
CREATE FUNCTION opendataflow.dataset_gaps(p_dataset text, p_gaps integer) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp SET work_mem = '64MB' SET jit = off AS $$
    WITH shape AS MATERIALIZED (
        SELECT min(s.shape) = max(s.shape) AS is_one
        FROM (SELECT translate(c.data_id, '123456789', '000000000') COLLATE "C" AS shape FROM chunk c WHERE c.dataset = p_dataset) s
    ), c AS MATERIALIZED (
        SELECT c.data_id, c.status = 'READY' AS is_ready,
               CASE WHEN (SELECT s.is_one FROM shape s) THEN convert_to(c.data_id, 'UTF8') ELSE sort_key(c.data_id) END AS key
        FROM chunk c WHERE c.dataset = p_dataset
    ), edge AS MATERIALIZED (
        -- Before version 18 bytea has neither min nor max.
        SELECT (SELECT c.key FROM c WHERE NOT c.is_ready ORDER BY c.key LIMIT 1) AS first_missing,
               (SELECT c.key FROM c WHERE c.is_ready ORDER BY c.key DESC LIMIT 1) AS last_ready
    ), placed AS (  -- chunks that are not there have the same number of READY ones before them if none is between
        SELECT c.data_id, c.is_ready, c.key, count(*) FILTER (WHERE c.is_ready) OVER (ORDER BY c.key ROWS UNBOUNDED PRECEDING) AS before
        FROM c, edge e WHERE c.key >= e.first_missing AND c.key <= e.last_ready
    ), gap AS (
        SELECT (array_agg(p.data_id ORDER BY p.key))[1] AS "from", (array_agg(p.data_id ORDER BY p.key DESC))[1] AS "to",
               count(*) AS chunks, p.before
        FROM placed p WHERE NOT p.is_ready
        GROUP BY p.before ORDER BY p.before LIMIT p_gaps
    )
    SELECT jsonb_build_object(
        'watermark', (SELECT c.data_id FROM c, edge e
                      WHERE c.is_ready AND (e.first_missing IS NULL OR c.key < e.first_missing)
                      ORDER BY c.key DESC LIMIT 1),
        'gaps', (SELECT coalesce(jsonb_agg(jsonb_build_object('from', g."from", 'to', g."to", 'chunks', g.chunks) ORDER BY g.before), '[]')
                 FROM gap g))
$$;
