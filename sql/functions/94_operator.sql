-- What the operator tells in the statuses of resources. Nothing here changes anything.

-- The last runs of a job that failed or were lost, the newest first.
CREATE FUNCTION opendataflow.last_failures(p_job text, p_limit integer)
RETURNS TABLE (data_id text, run bigint, message text, at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT r.data_id, r.id, coalesce(r.message, ''), r.finished_at FROM opendataflow.run r
    WHERE r.job = p_job AND r.state IN ('FAILED', 'LOST')
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
        'stale', (SELECT count(*) FROM work w WHERE w.job = j.id AND w.stale),
        'resubmit', (SELECT jsonb_build_object('id', q.id, 'answer', q.answer) FROM request q WHERE q.owner = 'job ' || j.id))
    FROM job j WHERE j.id = ANY (p_jobs);
END $$;

-- The chunks of a data set by status, the watermark (the last id before the first that is not READY, in natural order),
-- and the first gaps before the last READY one. Looks at every chunk: whoever asks has to leave long pauses. Null where
-- there is no such data set.
CREATE FUNCTION opendataflow.dataset_report(p_dataset text, p_gaps integer) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = opendataflow, pg_temp AS $$
    WITH c AS MATERIALIZED (
        SELECT c.data_id, c.status, sort_key(c.data_id) AS key FROM chunk c WHERE c.dataset = p_dataset
    ), edge AS (
        SELECT min(c.key) FILTER (WHERE c.status <> 'READY') AS first_missing,
               max(c.key) FILTER (WHERE c.status = 'READY') AS last_ready FROM c
    ), placed AS (  -- chunks that are not there have the same number of READY ones before them if none is between
        SELECT c.data_id, c.status, c.key, count(*) FILTER (WHERE c.status = 'READY') OVER (ORDER BY c.key) AS before
        FROM c, edge e WHERE c.key > e.first_missing OR c.key = e.first_missing
    ), gap AS (
        SELECT (array_agg(p.data_id ORDER BY p.key))[1] AS "from", (array_agg(p.data_id ORDER BY p.key DESC))[1] AS "to",
               count(*) AS chunks, min(p.key) AS key
        FROM placed p, edge e WHERE p.status <> 'READY' AND p.key < e.last_ready
        GROUP BY p.before ORDER BY min(p.key) LIMIT p_gaps
    )
    SELECT jsonb_build_object(
        'counts', (SELECT coalesce(jsonb_object_agg(n.status, n.chunks), '{}')
                   FROM (SELECT c.status, count(*) AS chunks FROM c GROUP BY c.status) n),
        'watermark', (SELECT c.data_id FROM c, edge e
                      WHERE c.status = 'READY' AND (e.first_missing IS NULL OR c.key < e.first_missing)
                      ORDER BY c.key DESC LIMIT 1),
        'gaps', (SELECT coalesce(jsonb_agg(jsonb_build_object('from', g."from", 'to', g."to", 'chunks', g.chunks) ORDER BY g.key), '[]')
                 FROM gap g))
    FROM dataset d WHERE d.id = p_dataset
$$;
